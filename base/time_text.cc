#include "base/time_text.h"

#include <array>
#include <limits>
#include <optional>

#include <fmt/core.h>

#include "base/log.h"

namespace tarry {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t second_ms = 1000;
constexpr std::int64_t minute_ms = 60 * second_ms;
constexpr std::int64_t hour_ms = 60 * minute_ms;
constexpr std::int64_t day_ms = 24 * hour_ms;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Takes the digits at the front of `text` as a number; empty if there are none or too many.
std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int64_t number = 0;
  std::size_t digits = 0;
  for (; digits < text.size() && is_digit(text[digits]); ++digits)
    if (__builtin_mul_overflow(number, 10, &number) ||
        __builtin_add_overflow(number, text[digits] - '0', &number))
      return std::nullopt;
  if (digits == 0) return std::nullopt;
  text.remove_prefix(digits);
  return number;
}

// Exactly `digits` digits, as in the fields of a date.
std::optional<int> take_field(std::string_view& text, std::size_t digits) {
  if (text.size() < digits) return std::nullopt;
  int number = 0;
  for (std::size_t i = 0; i < digits; ++i) {
    if (!is_digit(text[i])) return std::nullopt;
    number = number * 10 + (text[i] - '0');
  }
  text.remove_prefix(digits);
  return number;
}

bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

// The digits after a decimal point as milliseconds, 0 to 1000: rounded up.
std::optional<std::int64_t> take_fraction(std::string_view& text) {
  std::int64_t ms = 0;
  std::size_t digits = 0;
  bool more = false;
  for (; digits < text.size() && is_digit(text[digits]); ++digits) {
    if (digits < 3)
      ms = ms * 10 + (text[digits] - '0');
    else
      more = more || text[digits] != '0';
  }
  if (digits == 0) return std::nullopt;
  for (std::size_t i = digits; i < 3; ++i) ms *= 10;
  text.remove_prefix(digits);
  return ms + (more ? 1 : 0);
}

// sum += count * unit; false when that does not fit.
bool add(std::int64_t& sum, std::int64_t count, std::int64_t unit) {
  std::int64_t product = 0;
  return !__builtin_mul_overflow(count, unit, &product) &&
         !__builtin_add_overflow(sum, product, &sum);
}

// 2d 1h30m 250ms
std::optional<std::int64_t> units_duration(std::string_view text) {
  struct Unit {
    std::string_view name;
    std::int64_t ms;
  };
  // "ms" is looked for before "m", which is its beginning.
  static constexpr std::array<Unit, 5> units = {
      {{"ms", 1}, {"d", day_ms}, {"h", hour_ms}, {"m", minute_ms}, {"s", second_ms}}};
  std::int64_t sum = 0;
  std::int64_t last_unit = std::numeric_limits<std::int64_t>::max();
  while (!text.empty()) {
    const auto count = take_number(text);
    if (!count) return std::nullopt;
    const Unit* unit = nullptr;
    for (const Unit& candidate : units)
      if (take(text, candidate.name)) {
        unit = &candidate;
        break;
      }
    // A unit has to be smaller than the one before it, which also refuses one that stands twice.
    if (unit == nullptr || unit->ms >= last_unit || !add(sum, *count, unit->ms))
      return std::nullopt;
    last_unit = unit->ms;
  }
  return sum;
}

// P1DT2H30M0.5S, P2W
std::optional<std::int64_t> iso_duration(std::string_view text) {
  if (!take(text, "P")) return std::nullopt;
  std::int64_t sum = 0;
  std::int64_t last_unit = std::numeric_limits<std::int64_t>::max();
  bool in_time = false, any = false;
  while (!text.empty()) {
    if (!in_time && take(text, "T")) {
      in_time = true;
      any = false;  // Something has to follow.
      continue;
    }
    const auto count = take_number(text);
    if (!count) return std::nullopt;
    std::optional<std::int64_t> fraction;
    // ISO 8601 allows both signs.
    if (take(text, ".") || take(text, ",")) {
      fraction = take_fraction(text);
      if (!fraction) return std::nullopt;
    }
    std::int64_t unit = 0;
    if (!in_time && take(text, "W"))
      unit = 7 * day_ms;
    else if (!in_time && take(text, "D"))
      unit = day_ms;
    else if (in_time && take(text, "H"))
      unit = hour_ms;
    else if (in_time && take(text, "M"))
      unit = minute_ms;
    else if (in_time && take(text, "S"))
      unit = second_ms;
    if (unit == 0 || unit >= last_unit || (fraction && unit != second_ms)) return std::nullopt;
    if (!add(sum, *count, unit) || !add(sum, fraction.value_or(0), 1)) return std::nullopt;
    last_unit = unit;
    any = true;
  }
  if (!any) return std::nullopt;
  return sum;
}

// A text of digits alone.
std::optional<std::int64_t> bare_number(std::string_view text) {
  const auto number = take_number(text);
  if (!number || !text.empty()) return std::nullopt;
  return number;
}

std::optional<WallTime> rfc3339(std::string_view text) {
  using namespace std::chrono;
  const auto year_number = take_field(text, 4);
  if (!year_number || !take(text, "-")) return std::nullopt;
  const auto month_number = take_field(text, 2);
  if (!month_number || !take(text, "-")) return std::nullopt;
  const auto day_number = take_field(text, 2);
  if (!day_number || (!take(text, "T") && !take(text, "t"))) return std::nullopt;
  const year_month_day date{year{*year_number}, month{static_cast<unsigned>(*month_number)},
                            day{static_cast<unsigned>(*day_number)}};
  if (!date.ok()) return std::nullopt;

  const auto hour = take_field(text, 2);
  if (!hour || *hour > 23 || !take(text, ":")) return std::nullopt;
  const auto minute = take_field(text, 2);
  if (!minute || *minute > 59 || !take(text, ":")) return std::nullopt;
  const auto second = take_field(text, 2);
  if (!second || *second > 60) return std::nullopt;
  std::int64_t fraction_ms = 0;
  if (take(text, ".")) {
    const auto fraction = take_fraction(text);
    if (!fraction) return std::nullopt;
    fraction_ms = *fraction;
  }

  minutes offset{0};
  if (!take(text, "Z") && !take(text, "z")) {
    const bool west = text.starts_with("-");
    if (!take(text, "+") && !take(text, "-")) return std::nullopt;
    const auto offset_hour = take_field(text, 2);
    if (!offset_hour || *offset_hour > 23 || !take(text, ":")) return std::nullopt;
    const auto offset_minute = take_field(text, 2);
    if (!offset_minute || *offset_minute > 59) return std::nullopt;
    offset = hours{*offset_hour} + minutes{*offset_minute};
    if (west) offset = -offset;
  }
  if (!text.empty()) return std::nullopt;

  const auto to_the_minute = sys_days{date} + hours{*hour} + minutes{*minute} - offset;
  // The offset is off by now: leap seconds end a month of UTC, whatever the local clock shows.
  if (*second == 60) {
    const auto next_day = floor<days>(to_the_minute) + days{1};
    const bool month_ends = year_month_day{next_day}.day() == day{1};
    if (to_the_minute + minutes{1} != next_day || !month_ends) return std::nullopt;
  }
  return WallTime{to_the_minute + seconds{*second} + milliseconds{fraction_ms}};
}

}  // namespace

Result<milliseconds> parse_duration(std::string_view text) {
  auto ms = bare_number(text);
  if (!ms && text.starts_with("P")) ms = iso_duration(text);
  if (!ms && !text.empty() && is_digit(text.front())) ms = units_duration(text);
  if (ms) return milliseconds{*ms};
  return fail(Errc::invalid, fmt::format("\"{}\" is not a duration; write 250ms, 90s, 30m, 1h30m, "
                                         "2d, PT1H30M or a number of milliseconds",
                                         printable(text)));
}

Result<WallTime> parse_time(std::string_view text) {
  // Digits alone are always milliseconds: 2026 is no year, but two seconds after 1970 began.
  if (const auto ms = bare_number(text)) return from_ms(*ms);
  if (const auto time = rfc3339(text)) return *time;
  return fail(Errc::invalid, fmt::format("\"{}\" is not a time; write 2026-11-21T10:00:00+01:00, "
                                         "2026-11-21T09:00:00Z or milliseconds since 1970",
                                         printable(text)));
}

Result<std::uint64_t> parse_size(std::string_view text) {
  std::string_view rest = text;
  std::uint64_t bytes = 0;
  bool fits = !rest.empty() && is_digit(rest.front());
  for (; fits && !rest.empty() && is_digit(rest.front()); rest.remove_prefix(1))
    fits = !__builtin_mul_overflow(bytes, std::uint64_t{10}, &bytes) &&
           !__builtin_add_overflow(bytes, static_cast<std::uint64_t>(rest.front() - '0'), &bytes);
  std::uint64_t unit = 0;
  if (rest.empty())
    unit = 1;
  else if (rest == "KiB")
    unit = std::uint64_t{1} << 10;
  else if (rest == "MiB")
    unit = std::uint64_t{1} << 20;
  else if (rest == "GiB")
    unit = std::uint64_t{1} << 30;
  if (fits && unit != 0 && !__builtin_mul_overflow(bytes, unit, &bytes)) return bytes;
  return fail(Errc::invalid, fmt::format("\"{}\" is not a size; write 65536, 64KiB, 1MiB or 2GiB",
                                         printable(text)));
}

std::string format_time(WallTime time) {
  using namespace std::chrono;
  static constexpr WallTime first{sys_days{year{0} / January / 1}};
  static constexpr WallTime beyond{sys_days{year{10000} / January / 1}};
  if (time < first || time >= beyond) return fmt::format("{}", to_ms(time));
  const auto day_start = floor<days>(time);
  const year_month_day date{day_start};
  const hh_mm_ss clock{time - day_start};
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count(),
                     clock.subseconds().count());
}

std::string format_duration(milliseconds duration) {
  const std::int64_t ms = duration.count();
  // Unsigned: the most negative number has no positive counterpart.
  std::uint64_t left = ms < 0 ? 0 - static_cast<std::uint64_t>(ms) : static_cast<std::uint64_t>(ms);
  if (left == 0) return "0ms";
  std::string text = ms < 0 ? "-" : "";
  const auto part = [&](std::int64_t unit, const char* name) {
    const auto size = static_cast<std::uint64_t>(unit);
    if (left >= size) text += fmt::format("{}{}", left / size, name);
    left %= size;
  };
  part(day_ms, "d");
  part(hour_ms, "h");
  part(minute_ms, "m");
  part(second_ms, "s");
  part(1, "ms");
  return text;
}

}  // namespace tarry
