#include "cli/time_word.h"

#include <chrono>
#include <cstdint>
#include <string>

#include <fmt/core.h>

#include "base/log.h"
#include "base/time_text.h"

namespace tarry::cli {
namespace {

// "+1h" of "in 1h", "-10m" of "10m ago", and of themselves; empty: the word is no shift.
std::string shift_in(std::string_view word) {
  if (word.starts_with('+') || word.starts_with('-')) return std::string(word);
  if (word.starts_with("in ")) return fmt::format("+{}", word.substr(3));
  if (word.ends_with(" ago")) return fmt::format("-{}", word.substr(0, word.size() - 4));
  return {};
}

}  // namespace

WallTime wall_now() {
  return std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
}

Result<std::chrono::milliseconds> parse_shift(std::string_view word) {
  const bool has_sign = word.starts_with('+') || word.starts_with('-');
  // A sign is no part of a duration, of which headers and settings have no negative ones.
  auto duration = parse_duration(word.substr(has_sign ? 1 : 0));
  if (duration && word.starts_with('-')) return -*duration;
  return duration;
}

Result<WallTime> parse_time_word(std::string_view word) {
  if (word == "now") return wall_now();
  const std::string shift_word = shift_in(word);
  if (!shift_word.empty()) {
    const auto shift = parse_shift(shift_word);
    if (!shift) return std::unexpected(shift.error());
    // Each of the two is in range, but their sum need not be.
    std::int64_t sum = 0;
    if (!__builtin_add_overflow(to_ms(wall_now()), shift->count(), &sum)) return from_ms(sum);
    return fail(Errc::invalid, fmt::format("\"{}\" is too far away", printable(word)));
  }
  auto time = parse_time(word);
  if (!time)
    return fail(Errc::invalid, time.error().message + "; or one of now, +1h, -10m, \"in 1h\"");
  return time;
}

const CLI::Validator is_time_word(
    [](std::string& word) {
      const auto time = parse_time_word(word);
      return time ? std::string() : time.error().message;
    },
    "");

const CLI::Validator is_shift(
    [](std::string& word) {
      const auto shift = parse_shift(word);
      return shift ? std::string() : shift.error().message;
    },
    "");

}  // namespace tarry::cli
