#include "delay/cron.h"

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/assert.h"
#include "base/log.h"

namespace tarry::delay {
namespace {

using namespace std::chrono;

constexpr sys_seconds earliest{sys_days{year{0} / January / 1}};
constexpr sys_seconds latest{sys_days{year{Cron::last_year} / December / 31} + hours{24} -
                             seconds{1}};

// Sets of small numbers: bit n is n.
constexpr std::uint64_t all_between(unsigned min, unsigned max) {
  return (~std::uint64_t{0} >> (63 - max)) >> min << min;
}
constexpr bool contains(std::uint64_t set, unsigned value) {
  return (set >> value & 1) != 0;
}
unsigned lowest(std::uint64_t set) {
  return static_cast<unsigned>(std::countr_zero(set));
}
unsigned highest(std::uint64_t set) {
  return 63 - static_cast<unsigned>(std::countl_zero(set));
}
constexpr std::uint64_t above(std::uint64_t set, unsigned value) {
  return set & ~all_between(0, value);
}
constexpr std::uint64_t below(std::uint64_t set, unsigned value) {
  return value == 0 ? 0 : set & all_between(0, value - 1);
}

constexpr std::array<std::string_view, 12> month_names = {"JAN", "FEB", "MAR", "APR", "MAY", "JUN",
                                                          "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"};
constexpr std::array<std::string_view, 7> weekday_names = {"SUN", "MON", "TUE", "WED",
                                                           "THU", "FRI", "SAT"};

struct Field {
  std::string_view name;
  unsigned min, max;                        // 7 of the days of the week is read as well.
  std::span<const std::string_view> names;  // The first is that of `min`.
  bool is_day = false;

  bool is_weekday() const { return is_day && min == 0; }
  unsigned count() const { return max - min + 1; }
  std::string allowed() const {
    const std::string numbers = fmt::format("{}-{}", min, is_weekday() ? 7 : max);
    return names.empty() ? numbers
                         : fmt::format("{} or {}-{}", numbers, names.front(), names.back());
  }
};
constexpr std::array<Field, 6> fields = {{{"second", 0, 59, {}},
                                          {"minute", 0, 59, {}},
                                          {"hour", 0, 23, {}},
                                          {"day of month", 1, 31, {}, true},
                                          {"month", 1, 12, month_names},
                                          {"day of week", 0, 6, weekday_names, true}}};

struct Macro {
  std::string_view name, fields;
};
constexpr std::array<Macro, 7> macros = {{{"@yearly", "0 0 1 1 *"},
                                          {"@annually", "0 0 1 1 *"},
                                          {"@monthly", "0 0 1 * *"},
                                          {"@weekly", "0 0 * * 0"},
                                          {"@daily", "0 0 * * *"},
                                          {"@midnight", "0 0 * * *"},
                                          {"@hourly", "0 * * * *"}}};

bool equals_in_any_case(std::string_view a, std::string_view b) {
  const auto small = [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (small(a[i]) != small(b[i])) return false;
  }
  return true;
}

// The words of `text`, which spaces and tabs divide.
std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; (at = text.find_first_not_of(" \t", at)) != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(" \t", at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

template <typename T>
using Parsed = std::expected<T, std::string>;

std::unexpected<std::string> wrong(const Field& field, std::string_view value,
                                   std::string_view why) {
  return std::unexpected(fmt::format("{} {} {}", field.name, printable(value, 32), why));
}

// Digits alone, as far as they fit into `max`.
std::optional<unsigned> number_in(std::string_view text, unsigned max) {
  unsigned number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + static_cast<unsigned>(c - '0');
    // Checked with each digit, so that no number of digits can overflow it.
    if (number > max) return std::nullopt;
  }
  return text.empty() ? std::nullopt : std::optional(number);
}

Parsed<unsigned> value_in(const Field& field, std::string_view text) {
  for (std::size_t i = 0; i < field.names.size(); ++i) {
    if (equals_in_any_case(text, field.names[i])) return field.min + static_cast<unsigned>(i);
  }
  const auto number = number_in(text, field.is_weekday() ? 7 : field.max);
  if (number && *number >= field.min) return *number;
  return wrong(field, text.empty() ? "\"\"" : text, fmt::format("is not in {}", field.allowed()));
}

// One item of a list.
Parsed<std::uint64_t> item_in(const Field& field, std::string_view item) {
  const std::size_t slash = item.find('/');
  const std::string_view range = item.substr(0, slash);
  unsigned step = 1;
  if (slash != std::string_view::npos) {
    const std::string_view text = item.substr(slash + 1);
    const auto given = number_in(text, field.count());
    if (!given || *given == 0) {
      return std::unexpected(fmt::format("{} step {} is not in 1-{}", field.name,
                                         text.empty() ? "\"\"" : printable(text, 32),
                                         field.count()));
    }
    step = *given;
  }
  unsigned from = field.min, to = field.max;
  if (range == "?") {
    if (!field.is_day) return wrong(field, item, "is allowed in the two day fields only; write *");
  } else if (range != "*") {
    const std::size_t dash = range.find('-');
    const auto first = value_in(field, range.substr(0, dash));
    if (!first) return std::unexpected(first.error());
    from = *first;
    if (dash != std::string_view::npos) {
      const auto second = value_in(field, range.substr(dash + 1));
      if (!second) return std::unexpected(second.error());
      to = *second;
      // Sunday stands at both ends of the week.
      if (field.is_weekday() && to == 0 && from > 0) to = 7;
      if (field.is_weekday() && from == 7 && to < 7) from = 0;
      if (from > to) return wrong(field, range, "runs backwards; write two ranges");
      // With a step, 5/15 goes on to the end of the field.
    } else if (slash == std::string_view::npos || from > to) {
      to = from;
    }
  }
  std::uint64_t set = 0;
  for (unsigned value = from; value <= to; value += step)
    set |= std::uint64_t{1} << (field.is_weekday() ? value % 7 : value);
  return set;
}

Parsed<std::uint64_t> set_in(const Field& field, std::string_view text) {
  std::uint64_t set = 0;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const auto item = item_in(field, text.substr(at, comma - at));
    if (!item) return std::unexpected(item.error());
    set |= *item;
    at = comma + 1;
  }
  return set;
}

// The first character decides, as in cron: */2 counts as no restriction too.
bool is_restricted(std::string_view day_field) {
  return !day_field.starts_with('*') && !day_field.starts_with('?');
}

unsigned length_of(year_month month) {
  return static_cast<unsigned>((month / last).day());
}

}  // namespace

std::expected<Cron, std::string> Cron::parse(std::string_view text) {
  if (text.size() > max_text_bytes) {
    return std::unexpected(
        fmt::format("it has {} bytes, more than the {} allowed", text.size(), max_text_bytes));
  }
  auto words = words_of(text);
  Cron cron;
  // An expression has one spelling: it is stored, and compared with what parsing it again gives.
  cron.text_ = fmt::format("{}", fmt::join(words, " "));
  if (words.size() == 1 && words[0].starts_with('@')) {
    std::string_view meant;
    for (const Macro& macro : macros) {
      if (equals_in_any_case(words[0], macro.name)) meant = macro.fields;
    }
    if (meant.empty()) {
      return std::unexpected(fmt::format(
          "{} is not known; use one of @yearly @annually @monthly @weekly @daily @midnight @hourly",
          printable(words[0], 32)));
    }
    words = words_of(meant);
  }
  if (words.size() != 5 && words.size() != 6) {
    return std::unexpected(fmt::format(
        "it has {} fields; write 5 (minute, hour, day of month, month, day of week) or 6 "
        "(the second first)",
        words.size()));
  }
  const std::size_t absent = 6 - words.size();
  const std::array<std::uint64_t*, 6> sets = {&cron.seconds_, &cron.minutes_, &cron.hours_,
                                              &cron.days_,    &cron.months_,  &cron.weekdays_};
  for (std::size_t i = absent; i < fields.size(); ++i) {
    const auto set = set_in(fields[i], words[i - absent]);
    if (!set) return std::unexpected(set.error());
    *sets[i] = *set;
  }
  // As in cron: if both day fields say something, a day that either of them names is meant.
  cron.either_day_ = is_restricted(words[3 - absent]) && is_restricted(words[5 - absent]);
  if (!cron.can_fire()) {
    return std::unexpected(fmt::format("it never fires: day of month {} is in no month of {}",
                                       words[3 - absent], words[4 - absent]));
  }
  return cron;
}

// Any date falls on each day of the week at some time in 400 years, so only the date can be one
// that does not exist; and a day of the week by itself comes in each month.
bool Cron::can_fire() const {
  if (either_day_) return true;
  for (unsigned month = 1; month <= 12; ++month) {
    const unsigned length = length_of(year{2000} / std::chrono::month{month});
    if (contains(months_, month) && (days_ & all_between(1, length)) != 0) return true;
  }
  return false;
}

bool Cron::goes_by_real_time() const {
  return hours_ == all_between(0, 23);
}

std::uint64_t Cron::days_of(year_month month) const {
  // The week's pattern from the day of the week of the first on, five times.
  const unsigned first = weekday{sys_days{month / 1}}.c_encoding();
  const std::uint64_t week = (weekdays_ >> first | weekdays_ << (7 - first)) & all_between(0, 6);
  std::uint64_t by_weekday = 0;
  for (unsigned day = 1; day <= 29; day += 7) by_weekday |= week << day;
  const std::uint64_t days = either_day_ ? days_ | by_weekday : days_ & by_weekday;
  return days & all_between(1, length_of(month));
}

std::optional<seconds> Cron::first_time(seconds time) const {
  const auto h = static_cast<unsigned>(time / hours{1});
  const auto m = static_cast<unsigned>(time / minutes{1} % 60);
  const auto s = static_cast<unsigned>(time.count() % 60);
  const seconds first_second{lowest(seconds_)};
  const minutes first_minute{lowest(minutes_)};
  if (contains(hours_, h)) {
    if (contains(minutes_, m)) {
      if (const auto at = seconds_ & ~below(seconds_, s))
        return hours{h} + minutes{m} + seconds{lowest(at)};
    }
    if (const auto at = above(minutes_, m)) return hours{h} + minutes{lowest(at)} + first_second;
  }
  if (const auto at = above(hours_, h)) return hours{lowest(at)} + first_minute + first_second;
  return std::nullopt;
}

std::optional<seconds> Cron::last_time(seconds time) const {
  const auto h = static_cast<unsigned>(time / hours{1});
  const auto m = static_cast<unsigned>(time / minutes{1} % 60);
  const auto s = static_cast<unsigned>(time.count() % 60);
  const seconds last_second{highest(seconds_)};
  const minutes last_minute{highest(minutes_)};
  if (contains(hours_, h)) {
    if (contains(minutes_, m)) {
      if (const auto at = seconds_ & ~above(seconds_, s))
        return hours{h} + minutes{m} + seconds{highest(at)};
    }
    if (const auto at = below(minutes_, m)) return hours{h} + minutes{highest(at)} + last_second;
  }
  if (const auto at = below(hours_, h)) return hours{highest(at)} + last_minute + last_second;
  return std::nullopt;
}

// It goes from month to month and finds days and times by bit scans: 29 February on a certain
// weekday may be decades away, and going from second to second would take minutes.
std::optional<local_seconds> Cron::first_match(local_seconds from) const {
  const auto day = floor<days>(from);
  const year_month_day date{day};
  year in_year = date.year();
  auto in_month = static_cast<unsigned>(date.month());
  const auto of_month = static_cast<unsigned>(date.day());
  if (contains(months_, in_month)) {
    const std::uint64_t matching = days_of(date.year() / date.month());
    if (contains(matching, of_month)) {
      if (const auto time = first_time(from - day)) return day + *time;
    }
    // A later day begins anew with the first of its times, whatever the time in `from` is.
    if (const auto later = above(matching, of_month)) {
      return local_days{date.year() / date.month() / std::chrono::day{lowest(later)}} +
             *first_time({});
    }
  }
  while (in_year <= year{last_year}) {
    const auto later = above(months_, in_month);
    if (later == 0) {
      ++in_year;
      in_month = 0;
      continue;
    }
    in_month = lowest(later);
    const year_month month = in_year / std::chrono::month{in_month};
    if (const auto matching = days_of(month))
      return local_days{month / std::chrono::day{lowest(matching)}} + *first_time({});
  }
  return std::nullopt;
}

std::optional<local_seconds> Cron::last_match(local_seconds to) const {
  constexpr seconds end_of_day = hours{24} - seconds{1};
  const auto day = floor<days>(to);
  const year_month_day date{day};
  year in_year = date.year();
  auto in_month = static_cast<unsigned>(date.month());
  const auto of_month = static_cast<unsigned>(date.day());
  if (contains(months_, in_month)) {
    const std::uint64_t matching = days_of(date.year() / date.month());
    if (contains(matching, of_month)) {
      if (const auto time = last_time(to - day)) return day + *time;
    }
    if (const auto earlier = below(matching, of_month)) {
      return local_days{date.year() / date.month() / std::chrono::day{highest(earlier)}} +
             *last_time(end_of_day);
    }
  }
  while (in_year >= year{0}) {
    const auto earlier = below(months_, in_month);
    if (earlier == 0) {
      --in_year;
      in_month = 13;
      continue;
    }
    in_month = highest(earlier);
    const year_month month = in_year / std::chrono::month{in_month};
    if (const auto matching = days_of(month))
      return local_days{month / std::chrono::day{highest(matching)}} + *last_time(end_of_day);
  }
  return std::nullopt;
}

std::optional<WallTime> Cron::next(WallTime after, const TimeZone& zone) const {
  if (after >= latest) return std::nullopt;
  sys_seconds from = std::max(floor<seconds>(after) + seconds{1}, earliest);
  if (!goes_by_real_time()) {
    const auto match = first_match(zone.highest_reading(from - seconds{1}) + seconds{1});
    if (!match) return std::nullopt;
    const sys_seconds time = zone.first_moment(*match);
    return time <= latest ? std::optional<WallTime>(time) : std::nullopt;
  }
  // In each period of the zone only the readings that the clock shows in it.
  while (from <= latest) {
    const TimeZone::Period period = zone.period_at(from);
    const auto match = first_match(local_seconds{from.time_since_epoch() + period.offset});
    if (!match) return std::nullopt;
    const sys_seconds time{match->time_since_epoch() - period.offset};
    if (time < period.end) return time <= latest ? std::optional<WallTime>(time) : std::nullopt;
    // Readings from then on are later than the one that was asked about, so the years up to the
    // match have no other one.  Earlier the clock may still be set back to a reading that matches.
    const bool is_clear = period.end - from >= 2 * TimeZone::max_offset;
    const sys_seconds near_match = sys_seconds{match->time_since_epoch()} - TimeZone::max_offset;
    from = period.end;
    if (is_clear) from = std::max(from, near_match);
  }
  return std::nullopt;
}

std::optional<WallTime> Cron::previous(WallTime before, const TimeZone& zone) const {
  if (before <= earliest) return std::nullopt;
  sys_seconds to = std::min(ceil<seconds>(before) - seconds{1}, latest);
  if (!goes_by_real_time()) {
    const auto match = last_match(zone.highest_reading(to));
    if (!match) return std::nullopt;
    const sys_seconds time = zone.first_moment(*match);
    return time >= earliest ? std::optional<WallTime>(time) : std::nullopt;
  }
  while (to >= earliest) {
    const TimeZone::Period period = zone.period_at(to);
    const auto match = last_match(local_seconds{to.time_since_epoch() + period.offset});
    if (!match) return std::nullopt;
    const sys_seconds time{match->time_since_epoch() - period.offset};
    if (time >= period.begin)
      return time >= earliest ? std::optional<WallTime>(time) : std::nullopt;
    // As in next(), the other way round.
    const bool is_clear = to - period.begin >= 2 * TimeZone::max_offset;
    const sys_seconds near_match = sys_seconds{match->time_since_epoch()} + TimeZone::max_offset;
    to = period.begin - seconds{1};
    if (is_clear) to = std::min(to, near_match);
  }
  return std::nullopt;
}

}  // namespace tarry::delay
