#pragma once

// Reads the values of the headers that schedule a record, or makes an error for the producer that
// names header and value: `x-every: "soon" is not a duration; write ...`.
//
// Pure; any thread.

#include <chrono>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/clock.h"

namespace tarry::delay {

// A record's value of a header: empty is Kafka's null.
using HeaderValue = std::optional<Bytes>;

// Whether it is a big-endian number; anything else is text (base/time_text.h).
inline bool is_binary(Bytes value) {
  return value.size() == 8 && value[0] == 0;
}

// The value in quotation marks, shortened and safe to print; "null" without any.
std::string shown(const HeaderValue& value);

// NAME: "VALUE" WHY
std::string header_error(std::string_view name, const HeaderValue& value, std::string_view why);

std::expected<WallTime, std::string> time_in(std::string_view name, const HeaderValue& value);
std::expected<std::chrono::milliseconds, std::string> duration_in(std::string_view name,
                                                                  const HeaderValue& value);
// A whole number from 1 to `max`.
std::expected<std::uint64_t, std::string> count_in(std::string_view name, const HeaderValue& value,
                                                   std::uint64_t max);

}  // namespace tarry::delay
