#pragma once

// Numbers as people read them.

#include <cstdint>
#include <string>
#include <string_view>

namespace tarry::cli {

// 12 345 678
std::string grouped(std::uint64_t number);
// 3.4 MiB
std::string size_text(std::uint64_t bytes);
// "1 record", "2 records", "0 records"
std::string counted(std::uint64_t number, std::string_view one, std::string_view many);

}  // namespace tarry::cli
