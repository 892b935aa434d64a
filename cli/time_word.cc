#include "cli/time_word.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
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

bool has_only_digits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// As RFC 3339 writes it, from what people type: a blank for the T, no seconds, +0100.  Headers are
// read more strictly, so it happens here.
std::string as_rfc3339(std::string_view word) {
  std::string text(word);
  if (text.size() < 16 || text[4] != '-' || text[7] != '-' || text[13] != ':') return text;
  if (text[10] == ' ') text[10] = 'T';
  if (text.size() == 16 || std::string_view("Zz+-").contains(text[16])) text.insert(16, ":00");
  constexpr std::size_t offset_at = 19;  // At the earliest: 2026-12-24T18:00:00
  const std::size_t last = text.size() - 5;
  if (last >= offset_at && (text[last] == '+' || text[last] == '-') &&
      has_only_digits(std::string_view(text).substr(last + 1))) {
    text.insert(last + 3, ":");
  }
  return text;
}

// The mistake in a text that begins as a time of RFC 3339; empty: it is not known.
std::string fault_of(std::string_view text) {
  using namespace std::chrono;
  // Empty: there is no such field of two digits, or of four.
  const auto number_at = [&](std::size_t at, std::size_t digits) -> std::optional<unsigned> {
    if (text.size() < at + digits || !has_only_digits(text.substr(at, digits))) return std::nullopt;
    return static_cast<unsigned>(std::stoul(std::string(text.substr(at, digits))));
  };
  const auto year_number = number_at(0, 4), month_number = number_at(5, 2),
             day_number = number_at(8, 2);
  if (!year_number || !month_number || !day_number || text[4] != '-' || text[7] != '-') return {};
  if (*month_number < 1 || *month_number > 12) return fmt::format("no month {}", *month_number);
  const year_month_day_last last{year{static_cast<int>(*year_number)},
                                 month_day_last{month{*month_number}}};
  if (*day_number < 1 || *day_number > static_cast<unsigned>(last.day()))
    return fmt::format("{} has {} days", text.substr(0, 7), static_cast<unsigned>(last.day()));
  if (text.size() == 10) return "it has no time of day: add T18:00:00Z";
  const auto hour = number_at(11, 2), minute = number_at(14, 2), second = number_at(17, 2);
  if (!hour || !minute || !second || text[13] != ':' || text[16] != ':') return {};
  if (*hour > 23) return fmt::format("no hour {}", *hour);
  if (*minute > 59) return fmt::format("no minute {}", *minute);
  if (*second > 60) return fmt::format("no second {}", *second);
  text.remove_prefix(19);
  if (text.starts_with('.'))
    text.remove_prefix(std::min(text.find_first_not_of("0123456789", 1), text.size()));
  return text.empty() ? "it has no offset: add Z or +01:00" : std::string();
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
  const std::string text = as_rfc3339(word);
  if (auto time = parse_time(text)) return time;
  if (parse_duration(word)) {
    return fail(Errc::invalid,
                fmt::format("\"{}\" is a duration, not a time; write +{} for that long from now",
                            printable(word), printable(word)));
  }
  // The broker's own text has the word as it was typed, and examples.
  std::string reason = parse_time(word).error().message;
  if (const auto fault = fault_of(text); !fault.empty())
    reason = fmt::format("\"{}\" is not a time: {}; as in 2026-11-21T10:00:00+01:00",
                         printable(word), fault);
  return fail(Errc::invalid, reason + "; or one of now, +1h, -10m, \"in 1h\"");
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
