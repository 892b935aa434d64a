#include "delay/time_zone.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tarry::delay {
namespace {

using namespace std::chrono;

constexpr seconds max_offset = TimeZone::max_offset;

// The ends of time here: far enough from those of the type that adding an offset is safe.
constexpr sys_seconds begin_of_time{seconds{std::int64_t{-1} << 61}};
constexpr sys_seconds end_of_time{seconds{std::int64_t{1} << 61}};
constexpr sys_seconds first_asked{sys_days{year{-9999} / January / 1}};
constexpr sys_seconds last_asked{sys_days{year{19999} / December / 31}};
constexpr local_seconds first_reading{first_asked.time_since_epoch() + 2 * max_offset};
constexpr local_seconds last_reading{last_asked.time_since_epoch() - 2 * max_offset};

constexpr std::size_t header_bytes = 44;

bool is_possible(seconds offset) {
  return offset >= -max_offset && offset <= max_offset;
}

local_seconds reading_at(sys_seconds time, seconds offset) {
  return local_seconds{time.time_since_epoch() + offset};
}

std::unexpected<Error> damaged(std::string what) {
  return fail(Errc::corrupt, std::move(what));
}

}  // namespace

// The last line of a file, from front to back: CET-1CEST,M3.5.0,M10.5.0/3
class TimeZone::RuleText {
 public:
  explicit RuleText(std::string_view text) : rest_(text) {}

  bool empty() const { return rest_.empty(); }
  bool at(char c) const { return !rest_.empty() && rest_.front() == c; }
  bool take(char c) {
    if (!at(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  // CET or <+01>
  bool take_name() {
    std::size_t size = 0;
    if (take('<')) {
      size = rest_.find('>');
      if (size == std::string_view::npos || size == 0) return false;
      rest_.remove_prefix(size + 1);
      return true;
    }
    while (size < rest_.size() && is_letter(rest_[size])) ++size;
    rest_.remove_prefix(size);
    // POSIX asks for three letters at least, and a shorter word is part of something else.
    return size >= 3;
  }

  std::optional<unsigned> take_number(unsigned max) {
    unsigned number = 0;
    std::size_t size = 0;
    for (; size < rest_.size() && rest_[size] >= '0' && rest_[size] <= '9'; ++size) {
      number = number * 10 + static_cast<unsigned>(rest_[size] - '0');
      // It stops at once, so that no number overflows.
      if (number > max) return std::nullopt;
    }
    if (size == 0) return std::nullopt;
    rest_.remove_prefix(size);
    return number;
  }

  // [+-]hh[:mm[:ss]]
  std::optional<seconds> take_time(unsigned max_hours) {
    const bool negative = at('-');
    if (negative || at('+')) rest_.remove_prefix(1);
    const auto hour = take_number(max_hours);
    if (!hour) return std::nullopt;
    seconds time = hours{*hour};
    for (const seconds unit : {seconds{60}, seconds{1}}) {
      if (!take(':')) break;
      const auto number = take_number(59);
      if (!number) return std::nullopt;
      time += unit * *number;
    }
    return negative ? -time : time;
  }

  // ,M3.5.0/2 ,J60 ,59/-1
  std::optional<RuleDay> take_day() {
    if (!take(',')) return std::nullopt;
    RuleDay rule;
    std::optional<unsigned> day;
    if (take('M')) {
      rule.kind = RuleDay::Kind::weekday;
      const auto month = take_number(12);
      if (!month || *month == 0 || !take('.')) return std::nullopt;
      const auto week = take_number(5);
      if (!week || *week == 0 || !take('.')) return std::nullopt;
      rule.month = *month;
      rule.week = *week;
      day = take_number(6);
    } else if (take('J')) {
      rule.kind = RuleDay::Kind::julian;
      day = take_number(365);
      if (day && *day == 0) return std::nullopt;
    } else {
      rule.kind = RuleDay::Kind::zero_based;
      day = take_number(365);
    }
    if (!day) return std::nullopt;
    rule.day = *day;
    if (!take('/')) return rule;
    // RFC 8536 allows a week in both directions where POSIX has 24 hours.
    const auto time = take_time(167);
    if (!time) return std::nullopt;
    rule.time = *time;
    return rule;
  }

 private:
  static bool is_letter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

  std::string_view rest_;
};

local_seconds TimeZone::RuleDay::in(year in_year) const {
  local_days date{};
  switch (kind) {
    case Kind::julian: {  // 1 to 365; 29 February is never counted.
      const bool behind_leap_day = in_year.is_leap() && day >= 60;
      date = local_days{in_year / January / 1} + days{day - 1} + days{behind_leap_day ? 1 : 0};
      break;
    }
    case Kind::zero_based:
      date = local_days{in_year / January / 1} + days{day};
      break;
    case Kind::weekday: {
      const std::chrono::month in_month{month};
      const std::chrono::weekday on{day};
      // Week 5 is the last one of the month, which may be its fourth.
      date = week == 5 ? local_days{in_year / in_month / on[last]}
                       : local_days{in_year / in_month / on[week]};
      break;
    }
  }
  return date + time;
}

std::optional<TimeZone::Rule> TimeZone::parse_rule(std::string_view text) {
  RuleText rest(text);
  Rule rule;
  if (!rest.take_name()) return std::nullopt;
  // POSIX counts to the west.
  const auto west = rest.take_time(24);
  if (!west) return std::nullopt;
  rule.offset = -*west;
  if (rest.empty()) return rule;

  Summer summer;
  if (!rest.take_name()) return std::nullopt;
  // POSIX's default when the rule names no other.
  summer.offset = rule.offset + hours{1};
  if (!rest.at(',')) {
    const auto summer_west = rest.take_time(24);
    if (!summer_west) return std::nullopt;
    summer.offset = -*summer_west;
  }
  const auto begin = rest.take_day();
  if (!begin) return std::nullopt;
  const auto end = rest.take_day();
  if (!end || !rest.empty()) return std::nullopt;
  summer.begin = *begin;
  summer.end = *end;
  if (!is_possible(rule.offset) || !is_possible(summer.offset)) return std::nullopt;
  rule.summer = summer;
  return rule;
}

// One of the two tables of a file.
struct TimeZone::Block {
  std::uint8_t version = 0;
  seconds first_offset{0};
  std::vector<Transition> transitions;
};

// Takes a header and its table from the front of `rest`.
Result<TimeZone::Block> TimeZone::parse_block(Bytes& rest, std::size_t time_bytes) {
  if (rest.size() < header_bytes || as_text(rest.first(4)) != "TZif")
    return damaged("it is not a TZif file");
  Block block;
  block.version = rest[4];
  std::array<std::uint64_t, 6> counts{};  // Each below 2^32, so that no sum of sizes overflows.
  for (std::size_t i = 0; i < counts.size(); ++i)
    counts[i] = load_be<std::uint32_t>(rest.data() + 20 + 4 * i);
  const auto [universal, standard, leaps, times, types, letters] = counts;
  rest = rest.subspan(header_bytes);
  const std::uint64_t size = times * (time_bytes + 1) + types * 6 + letters +
                             leaps * (time_bytes + 4) + standard + universal;
  if (size > rest.size()) return damaged("its table is truncated");
  if (types == 0) return damaged("it has no types");
  // The times of such a file count leap seconds, and ours do not.
  if (leaps != 0) return damaged("it counts leap seconds");

  const Bytes indexes = rest.subspan(times * time_bytes, times);
  const Bytes offsets = rest.subspan(times * (time_bytes + 1), types * 6);
  const auto offset_of = [&](std::size_t type) {
    return seconds{load_be<std::int32_t>(offsets.data() + type * 6)};
  };
  for (std::size_t type = 0; type < types; ++type) {
    if (!is_possible(offset_of(type)))
      return damaged(
          fmt::format("an offset is {} s, which is out of range", offset_of(type).count()));
  }
  block.first_offset = offset_of(0);
  block.transitions.reserve(times);
  for (std::size_t i = 0; i < times; ++i) {
    const std::uint8_t* at = rest.data() + i * time_bytes;
    const sys_seconds time{
        seconds{time_bytes == 8 ? load_be<std::int64_t>(at) : load_be<std::int32_t>(at)}};
    if (time <= begin_of_time || time >= end_of_time)
      return damaged("a transition lies outside the supported years");
    if (!block.transitions.empty() && time <= block.transitions.back().at)
      return damaged("its transitions are not in ascending order");
    if (indexes[i] >= types) return damaged("a transition names a type that the file lacks");
    block.transitions.push_back({time, offset_of(indexes[i])});
  }
  rest = rest.subspan(size);
  return block;
}

Result<TimeZone> TimeZone::parse(std::string name, Bytes file) {
  const auto refuse = [&](const std::string& what) {
    return damaged(fmt::format("the file of time zone {} is damaged: {}", name, what));
  };
  if (file.size() > max_file_bytes)
    return refuse(
        fmt::format("it has {} bytes, more than the {} allowed", file.size(), max_file_bytes));
  Bytes rest = file;
  auto block = parse_block(rest, 4);
  TimeZone zone;
  if (block && block->version != 0) {
    // The same once more with times of 64 bits, and the rule.
    block = parse_block(rest, 8);
    if (block) {
      if (rest.size() < 2 || rest.front() != '\n' || rest.back() != '\n')
        return refuse("its last line is truncated");
      const std::string_view text = as_text(rest.subspan(1, rest.size() - 2));
      if (!text.empty()) {
        zone.rule_ = parse_rule(text);
        if (!zone.rule_) return refuse("its last line is not a rule");
      }
    }
  }
  if (!block) return refuse(block.error().message);
  zone.name_ = std::move(name);
  zone.first_offset_ = block->first_offset;
  zone.transitions_ = std::move(block->transitions);
  return zone;
}

std::shared_ptr<const TimeZone> TimeZone::utc() {
  static const auto zone = [] {
    TimeZone made;
    made.name_ = "UTC";
    return std::make_shared<const TimeZone>(std::move(made));
  }();
  return zone;
}

TimeZone::Period TimeZone::period_at(sys_seconds time) const {
  time = std::clamp(time, first_asked, last_asked);
  if (rule_ && (transitions_.empty() || time >= transitions_.back().at))
    return period_by_rule(time);
  const auto next = std::upper_bound(
      transitions_.begin(), transitions_.end(), time,
      [](sys_seconds t, const Transition& transition) { return t < transition.at; });
  Period period{begin_of_time, end_of_time, first_offset_};
  if (next != transitions_.begin()) {
    period.begin = std::prev(next)->at;
    period.offset = std::prev(next)->offset;
  }
  if (next != transitions_.end()) period.end = next->at;
  return period;
}

TimeZone::Period TimeZone::period_by_rule(sys_seconds time) const {
  Period period{begin_of_time, end_of_time, rule_->offset};
  if (rule_->summer) {
    // In a year summer may begin before it ends or, in the south, after; it may last all year, and
    // then one year's end is the next one's begin, which has to come second.
    const Summer& summer = *rule_->summer;
    const year this_year = year_month_day{floor<days>(time + rule_->offset)}.year();
    std::array<Transition, 6> around;
    std::size_t count = 0;
    for (const year each : {this_year - years{1}, this_year, this_year + years{1}}) {
      const auto begin = summer.begin.in(each).time_since_epoch() - rule_->offset;
      const auto end = summer.end.in(each).time_since_epoch() - summer.offset;
      around[count++] = {sys_seconds{end}, rule_->offset};
      around[count++] = {sys_seconds{begin}, summer.offset};
    }
    std::stable_sort(around.begin(), around.end(),
                     [](const Transition& a, const Transition& b) { return a.at < b.at; });
    for (const Transition& each : around) {
      if (each.at <= time) {
        period.begin = each.at;
        period.offset = each.offset;
      } else {
        period.end = each.at;
        break;
      }
    }
  }
  if (!transitions_.empty()) period.begin = std::max(period.begin, transitions_.back().at);
  return period;
}

sys_seconds TimeZone::first_moment(local_seconds reading) const {
  reading = std::clamp(reading, first_reading, last_reading);
  const sys_seconds by_utc{reading.time_since_epoch()};
  // No clock shows it before that.
  Period period = period_at(by_utc - max_offset);
  while (period.end < end_of_time && reading_at(period.end, period.offset) <= reading)
    period = period_at(period.end);
  return std::max(by_utc - period.offset, period.begin);
}

local_seconds TimeZone::highest_reading(sys_seconds time) const {
  time = std::clamp(time, first_asked, last_asked);
  // Earlier readings are less than the current one.
  Period period = period_at(time - 2 * max_offset);
  local_seconds highest = local_seconds::min();
  while (period.end <= time) {
    highest = std::max(highest, reading_at(period.end - seconds{1}, period.offset));
    period = period_at(period.end);
  }
  return std::max(highest, reading_at(time, period.offset));
}

}  // namespace tarry::delay
