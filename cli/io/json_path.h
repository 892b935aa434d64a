#pragma once

// Values of a broker's answer by their path ("/delayed/pending").  Commands talk to brokers of
// other versions too, so a value that is missing, null or of another type is not an error: each
// function says what it is then.
//
// Only .cc files include it (base/json.h).

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/json.h"

namespace tarry::cli {

// Null when there is none.
const Json* find_at(const Json& json, const char* path);
// 0 when there is none, or a negative one.
std::uint64_t number_at(const Json& json, const char* path);
double figure_at(const Json& json, const char* path);     // 0 when there is none.
std::string text_at(const Json& json, const char* path);  // Empty when there is none.
std::optional<WallTime> time_at(const Json& json, const char* path);

}  // namespace tarry::cli
