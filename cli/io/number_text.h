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
// A time in ms as a person reads it, in three digits: "0.34 ms", "12 ms", "5.51 s"; from a minute
// on "2m5s".
std::string milliseconds_text(double milliseconds);
// Three digits, or more before the point: "0.05", "12.3", "5512".
std::string figure_text(double figure);
// "1 record", "2 records", "0 records"
std::string counted(std::uint64_t number, std::string_view one, std::string_view many);

}  // namespace tarry::cli
