#include "delay/schedule.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <fmt/format.h>

#include "base/ascii_case.h"
#include "base/edit_distance.h"
#include "base/log.h"
#include "base/time_text.h"
#include "base/utf8.h"
#include "delay/header_aliases.h"
#include "delay/header_value.h"
#include "delay/recurrence_headers.h"
#include "delay/time_zones.h"

namespace tarry::delay {
namespace {

using std::chrono::milliseconds;

// Headers that ask for something.  All begin with "x-", in either case, which is what the search
// looks for.
constexpr std::array<std::string_view, 10> scheduling = {
    header::deliver_at, header::delay, header::schedule_id, header::schedule_action,
    header::expire_at,  header::every, header::cron,        header::cron_tz,
    header::until,      header::count};
// Delivery removes these: what scheduled the record, and what an earlier delivery added.
constexpr std::array<std::string_view, 11> taken_out = {
    header::deliver_at, header::delay,         header::schedule_action, header::expire_at,
    header::every,      header::cron,          header::cron_tz,         header::until,
    header::count,      header::scheduled_for, header::schedule_handle};

// The names of ours, a bit for each of `scheduling`, that a name of some length can be, or can be
// one letter off from.  Most lengths rule out nearly all.
struct Candidates {
  std::uint16_t exact = 0, near = 0;
};
constexpr std::size_t max_slip = header::schedule_action.size() + 1;
constexpr auto candidates_of_size = [] {
  std::array<Candidates, max_slip + 1> table{};
  for (std::size_t i = 0; i < scheduling.size(); ++i) {
    const std::size_t size = scheduling[i].size();
    const auto bit = static_cast<std::uint16_t>(1u << i);
    table[size].exact |= bit;
    for (const std::size_t near : {size - 1, size, size + 1}) table[near].near |= bit;
  }
  return table;
}();

// Two letters of a name as one number; case aside, and no more exact than that.
unsigned pair_at(std::string_view name, std::size_t at) {
  const auto byte = [name](std::size_t i) { return static_cast<unsigned char>(name[i]) | 0x20u; };
  return byte(at) << 8 | byte(at + 1);
}

// Whether the first letters behind the "x", or the last ones, are the same.  One slip leaves one of
// these pairs as it was in a name of six letters, our shortest, or more.
bool may_be_near(std::string_view name, std::string_view ours) {
  return pair_at(name, 1) == pair_at(ours, 1) ||
         pair_at(name, name.size() - 2) == pair_at(ours, ours.size() - 2);
}

// The one of `candidates` for which `is_it` holds; empty: none.
template <typename IsIt>
std::string_view one_of(unsigned candidates, IsIt is_it) {
  for (; candidates != 0; candidates &= candidates - 1) {
    const auto ours = scheduling[static_cast<std::size_t>(std::countr_zero(candidates))];
    if (is_it(ours)) return ours;
  }
  return {};
}

std::string_view near_one_of(unsigned candidates, std::string_view name) {
  return one_of(candidates, [name](std::string_view ours) {
    return may_be_near(name, ours) && is_one_letter_off(name, ours);
  });
}

// Checks the name with the "x-" at `at`, after the length of a name.  `slips_too`: it is not known
// yet that there are any.
NamesFound name_at(Bytes bytes, std::size_t at, bool slips_too) {
  // Zigzag: names are shorter than 64 bytes, so their length is one byte, doubled.
  const std::size_t doubled = at == 0 ? 0 : bytes[at - 1];
  const std::size_t size = doubled / 2;
  if (doubled % 2 != 0 || size > max_slip) return NamesFound::none;
  const Candidates candidates = candidates_of_size[size];
  if (candidates.near == 0 || size > bytes.size() - at) return NamesFound::none;
  const std::string_view name = as_text(bytes.subspan(at, size));
  const auto same = [name](std::string_view ours) {
    return pair_at(name, 2) == pair_at(ours, 2) && equals_ignoring_case(name, ours);
  };
  if (!one_of(candidates.exact, same).empty()) return NamesFound::scheduling;
  if (slips_too && !near_one_of(candidates.near, name).empty()) return NamesFound::slips;
  return NamesFound::none;
}

// All names of ours begin so.
bool has_our_prefix(std::string_view name) {
  return name.size() > 2 && ascii_lower(name[0]) == 'x' && name[1] == '-';
}

ScheduleError wrong(std::string_view reason, std::string_view name,
                    const std::optional<Bytes>& value, std::string_view why) {
  return {reason, fmt::format("{}: {} {}", name, shown(value), why)};
}

// The value, or an error for a value that says nothing.
template <typename T>
std::expected<T, ScheduleError> readable(std::expected<T, std::string> value) {
  if (value) return *value;
  return std::unexpected(ScheduleError{reason::unreadable_value, std::move(value.error())});
}

// A due time, and an x-expire-at, lies within these years: a number of seconds or microseconds lies
// outside, when milliseconds were meant.
constexpr std::int64_t earliest_ms = 946'684'800'000;    // 2000-01-01T00:00:00Z
constexpr std::int64_t latest_ms = 253'402'300'799'999;  // 9999-12-31T23:59:59.999Z
// Below it a number is no time in seconds either, so that `0` and its like can mean "now".
constexpr std::int64_t earliest_s = earliest_ms / 1000;

bool is_in_range(std::int64_t ms) {
  return ms >= earliest_ms && ms <= latest_ms;
}

// The value as a bare number, which has no unit of its own; empty: it is none.
std::optional<std::int64_t> bare_number(const std::optional<Bytes>& value) {
  if (!value) return std::nullopt;
  if (is_binary(*value)) return load_be<std::int64_t>(value->data());
  std::int64_t number = 0;
  const std::string_view text = as_text(*value);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Names the unit in which a number would be a time of those years, if it was not milliseconds.  At
// most one is possible: their ranges are a factor of 1000 apart, and 9999 is no more than 267 times
// 2000.
std::string unit_hint(std::optional<std::int64_t> number) {
  if (!number || *number < 0) return {};
  const auto probably = [](std::string_view unit, std::int64_t ms) {
    return fmt::format(
        "; it was probably given in {} instead of milliseconds, and would then be {}", unit,
        format_time(from_ms(ms)));
  };
  if (*number <= latest_ms / 1000 && is_in_range(*number * 1000))
    return probably("seconds", *number * 1000);
  if (is_in_range(*number / 1000)) return probably("microseconds", *number / 1000);
  if (is_in_range(*number / 1'000'000)) return probably("nanoseconds", *number / 1'000'000);
  return {};
}

// With the number that a binary value is.
std::string shown_number(const std::optional<Bytes>& value) {
  if (!value || !is_binary(*value)) return shown(value);
  return fmt::format("{} (8 bytes)", load_be<std::int64_t>(value->data()));
}

// The error of a time outside the years 2000 to 9999, if it is.
std::optional<ScheduleError> range_error(std::string_view name, const std::optional<Bytes>& value,
                                         WallTime time) {
  const std::int64_t ms = to_ms(time);
  if (is_in_range(ms)) return std::nullopt;
  return ScheduleError{
      reason::out_of_range,
      fmt::format("{}: {} is {}{}", name, shown_number(value),
                  ms < earliest_ms ? "before the year 2000" : "after the year 9999",
                  unit_hint(bare_number(value)))};
}

// The same for a duration that leads too far.
ScheduleError too_far(std::string_view name, const std::string& value,
                      std::optional<std::int64_t> number, WallTime from) {
  std::string error = fmt::format("{}: {} leads to a due time after the year 9999", name, value);
  if (!number) return {reason::out_of_range, std::move(error)};
  std::string_view before = "; a bare number is milliseconds:";
  for (const auto& [unit, per_ms] :
       {std::pair{"microseconds", 1'000}, {"nanoseconds", 1'000'000}}) {
    std::int64_t ms = 0;
    // The relay counts from the producer's timestamp, which may be any number.
    if (__builtin_add_overflow(to_ms(from), *number / per_ms, &ms) || ms > latest_ms) continue;
    error += fmt::format("{} as {} it would be due at {}", std::exchange(before, ","), unit,
                         format_time(from_ms(ms)));
  }
  return {reason::out_of_range, std::move(error)};
}

std::expected<std::string_view, ScheduleError> id_in(const std::optional<Bytes>& value) {
  const std::string_view id = value ? as_text(*value) : std::string_view{};
  if (!value || id.empty() || id.size() > max_schedule_id_bytes) {
    return std::unexpected(
        wrong(reason::bad_id, header::schedule_id, value,
              fmt::format("is not an id: an id has 1 to {} bytes", max_schedule_id_bytes)));
  }
  if (id.front() == '@') {
    return std::unexpected(wrong(
        reason::bad_id, header::schedule_id, value,
        "is not an id: a value that begins with @ is a handle, which only the broker gives out"));
  }
  if (!is_utf8(id)) {
    return std::unexpected(
        wrong(reason::bad_id, header::schedule_id, value, "is not an id: it is not UTF-8"));
  }
  return id;
}

// A header of which there may be one.
struct Given {
  bool present = false;
  bool twice = false;
  std::optional<Bytes> value;
  std::optional<Bytes> second;

  void take(const std::optional<Bytes>& given) {
    if (std::exchange(present, true)) {
      twice = true;
      second = given;
    } else {
      value = given;
    }
  }
};

struct GivenHeaders {
  Given deliver_at, delay, id, action, expire_at, every, cron, cron_tz, until, count;

  std::string_view alias;    // The first name that is an alias, of
  std::string_view aliased;  // this name of ours.

  bool has_time() const { return deliver_at.present || delay.present; }
  bool recurs() const {
    return every.present || cron.present || cron_tz.present || until.present || count.present;
  }
};

constexpr std::pair<Given GivenHeaders::*, std::string_view> headers[] = {
    {&GivenHeaders::deliver_at, header::deliver_at},
    {&GivenHeaders::delay, header::delay},
    {&GivenHeaders::id, header::schedule_id},
    {&GivenHeaders::action, header::schedule_action},
    {&GivenHeaders::expire_at, header::expire_at},
    {&GivenHeaders::every, header::every},
    {&GivenHeaders::cron, header::cron},
    {&GivenHeaders::cron_tz, header::cron_tz},
    {&GivenHeaders::until, header::until},
    {&GivenHeaders::count, header::count}};

GivenHeaders take_headers(const records::RecordView& record) {
  GivenHeaders given;
  for (const auto& each : record.headers) {
    const auto original = header_aliases().original_of(each.name);
    if (original.empty() && !has_our_prefix(each.name)) continue;
    for (const auto& [header, name] : headers) {
      if (equals_ignoring_case(original.empty() ? each.name : original, name))
        (given.*header).take(each.value);
    }
    if (!original.empty() && given.alias.empty()) {
      given.alias = each.name;
      given.aliased = original;
    }
  }
  return given;
}

// The error of headers that do not go together, whatever their values say.
std::optional<ScheduleError> conflict_in(const GivenHeaders& given) {
  for (const auto& [member, name] : headers) {
    const Given& header = given.*member;
    if (header.twice) {
      return ScheduleError{reason::given_twice,
                           fmt::format("{}: given twice, as {} and as {}", name,
                                       shown(header.value), shown(header.second))};
    }
  }
  if (given.deliver_at.present && given.delay.present) {
    return ScheduleError{
        reason::conflict,
        fmt::format("{}: {} cannot be combined with {}: {}; give one of them", header::deliver_at,
                    shown(given.deliver_at.value), header::delay, shown(given.delay.value))};
  }
  return std::nullopt;
}

// The error of a wish to cancel.
std::optional<ScheduleError> cancel_error(const GivenHeaders& given) {
  if (!given.action.value || as_text(*given.action.value) != "cancel")
    return wrong(reason::bad_action, header::schedule_action, given.action.value,
                 "is not an action: the only action is cancel");
  for (const auto& [member, name] : headers) {
    const Given& header = given.*member;
    // A cancel with a time may have been meant as a move, so neither is done.
    if (header.present && &header != &given.id && &header != &given.action) {
      return ScheduleError{reason::conflict,
                           fmt::format("{}: \"cancel\" cannot be combined with {}: {}",
                                       header::schedule_action, name, shown(header.value))};
    }
  }
  if (!given.id.present)
    return wrong(reason::bad_action, header::schedule_action, given.action.value,
                 "needs an x-schedule-id");
  return std::nullopt;
}

// A small number in x-expire-at is an error too: the record would be dropped without a trace.
std::optional<ScheduleError> expiry_range_error(const std::optional<Bytes>& value,
                                                WallTime expires) {
  auto error = range_error(header::expire_at, value, expires);
  if (error && to_ms(expires) >= 0 && to_ms(expires) < earliest_s)
    error->message += "; x-expire-at is a time, not a duration";
  return error;
}

// The header or setting that decides when a record is due, and its value.  For errors alone,
// because writing it out costs more than reading it.
std::pair<std::string_view, std::string> decider(const GivenHeaders& given,
                                                 const TopicDelay& topic) {
  if (given.deliver_at.present) return {header::deliver_at, shown_number(given.deliver_at.value)};
  if (given.delay.present) return {header::delay, shown_number(given.delay.value)};
  return {"tarry.delay.ms", std::to_string(topic.default_delay.count())};
}

// Sets when the record is due and whether that is now; or returns the error.
std::optional<ScheduleError> set_due(Schedule& schedule, const GivenHeaders& given,
                                     const TopicDelay& topic, WallTime arrived, WallTime believed) {
  milliseconds delay =
      given.has_time() ? milliseconds{0} : std::max(topic.default_delay, milliseconds{0});
  if (given.deliver_at.present) {
    const auto time = readable(time_in(header::deliver_at, given.deliver_at.value));
    if (!time) return time.error();
    const bool means_now = to_ms(*time) >= 0 && to_ms(*time) < earliest_s;
    if (!means_now) {
      if (auto error = range_error(header::deliver_at, given.deliver_at.value, *time)) return error;
    }
    schedule.due = *time;
  } else {
    if (given.delay.present) {
      const auto duration = readable(duration_in(header::delay, given.delay.value));
      if (!duration) return duration.error();
      delay = *duration;
    }
    if (delay.count() > latest_ms - to_ms(arrived)) {
      const auto [name, value] = decider(given, topic);
      return too_far(name, value,
                     given.delay.present ? bare_number(given.delay.value) : std::nullopt, arrived);
    }
    schedule.due = arrived + delay;
  }
  // A delay of nothing is now, even while `believed` is behind the clock of the arrival.
  const bool is_now = schedule.due <= believed || (!given.deliver_at.present && delay.count() == 0);
  schedule.kind = is_now ? Schedule::Kind::immediate : Schedule::Kind::delayed;
  // The topic's own default is not held against its limit.
  if (given.has_time() && topic.max_delay && schedule.due > arrived &&
      schedule.due - arrived > *topic.max_delay) {
    const auto [name, value] = decider(given, topic);
    return ScheduleError{
        reason::delay_too_long,
        fmt::format(
            "{}: {} is further in the future than this topic's tarry.delay.max.ms={} allows", name,
            value, topic.max_delay->count())};
  }
  return std::nullopt;
}

// The same for a record that is delivered again and again.
std::optional<ScheduleError> set_recurrence(Schedule& schedule, const GivenHeaders& given,
                                            const TopicDelay& topic, WallTime arrived,
                                            WallTime believed) {
  std::optional<WallTime> start;
  if (given.has_time()) {
    if (auto error = set_due(schedule, given, topic, arrived, believed)) return error;
    start = schedule.due;
  }
  const auto value = [](const Given& header) -> std::optional<HeaderValue> {
    if (!header.present) return std::nullopt;
    return std::optional<HeaderValue>(std::in_place, header.value);
  };
  const RecurrenceHeaders asked{value(given.every), value(given.cron),  value(given.cron_tz),
                                value(given.until), value(given.count), value(given.expire_at),
                                value(given.action)};
  auto recurrence = read_recurrence(asked, start, arrived, topic.max_delay, TimeZones::of_system());
  if (!recurrence) return ScheduleError{reason::bad_recurrence, std::move(recurrence.error())};
  // A first run that is due now is delivered by the engine too, which then knows of the next.
  schedule.kind = Schedule::Kind::delayed;
  schedule.due = recurrence->run();
  schedule.recurrence = std::make_shared<const Recurrence>(std::move(*recurrence));
  return std::nullopt;
}

}  // namespace

bool is_taken_out(std::string_view name) {
  if (const auto original = header_aliases().original_of(name); !original.empty()) name = original;
  if (!has_our_prefix(name)) return false;
  return std::ranges::any_of(
      taken_out, [name](std::string_view each) { return equals_ignoring_case(name, each); });
}

std::string_view nearly_named(std::string_view name) {
  if (name.size() > max_slip || !header_aliases().original_of(name).empty()) return {};
  const unsigned candidates = candidates_of_size[name.size()].near;
  return candidates == 0 ? std::string_view{} : near_one_of(candidates, name);
}

namespace {

NamesFound search_our_names(Bytes records) {
  NamesFound found = NamesFound::none;
  // Whether the search is at its end.
  const auto look_at = [&](std::size_t at) {
    const NamesFound here = name_at(records, at, found == NamesFound::none);
    if (here != NamesFound::none) found = here;
    return found == NamesFound::scheduling;
  };
  std::size_t at = 0;
#if defined(__SSE2__)
  // Sixteen places at a time: an 'x' or 'X', which differ in one bit, with a '-' behind it.
  const __m128i case_bit = _mm_set1_epi8(0x20);
  const __m128i x = _mm_set1_epi8('x');
  const __m128i dash = _mm_set1_epi8('-');
  for (; at + 17 <= records.size(); at += 16) {
    const auto* here = records.data() + at;
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(here));
    const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(here + 1));
    const __m128i is_x = _mm_cmpeq_epi8(_mm_or_si128(first, case_bit), x);
    auto hits =
        static_cast<unsigned>(_mm_movemask_epi8(_mm_and_si128(is_x, _mm_cmpeq_epi8(second, dash))));
    for (; hits != 0; hits &= hits - 1) {
      if (look_at(at + static_cast<std::size_t>(__builtin_ctz(hits)))) return found;
    }
  }
#endif
  for (; at + 2 <= records.size(); ++at) {
    if ((records[at] | 0x20) == 'x' && records[at + 1] == '-' && look_at(at)) return found;
  }
  return found;
}

std::expected<Schedule, ScheduleError> schedule_of(const GivenHeaders& given,
                                                   const TopicDelay& topic, WallTime arrived,
                                                   WallTime believed) {
  const bool by_default = !given.has_time() && topic.default_delay > milliseconds{0};
  const bool asks = given.has_time() || given.action.present || given.expire_at.present ||
                    given.recurs() || by_default;
  if (!asks) return Schedule{};  // An id alone schedules nothing.
  if (auto conflict = conflict_in(given)) return std::unexpected(std::move(*conflict));

  Schedule schedule;
  if (given.id.present) {
    const auto id = id_in(given.id.value);
    if (!id) return std::unexpected(id.error());
    schedule.id = *id;
  }
  if (given.action.present) {
    if (auto error = cancel_error(given)) return std::unexpected(std::move(*error));
    schedule.kind = Schedule::Kind::cancel;
    return schedule;
  }
  if (given.recurs()) {
    if (auto error = set_recurrence(schedule, given, topic, arrived, believed))
      return std::unexpected(std::move(*error));
    return schedule;
  }
  if (auto error = set_due(schedule, given, topic, arrived, believed))
    return std::unexpected(std::move(*error));
  if (given.expire_at.present) {
    const auto expires = readable(time_in(header::expire_at, given.expire_at.value));
    if (!expires) return std::unexpected(expires.error());
    if (auto error = expiry_range_error(given.expire_at.value, *expires))
      return std::unexpected(std::move(*error));
    // It can never be delivered before that, or not any more.
    if (*expires <= schedule.due || *expires <= believed) schedule.kind = Schedule::Kind::expired;
    schedule.expires = *expires;
  }
  return schedule;
}

}  // namespace

NamesFound search_names(Bytes records) {
  const auto found = search_our_names(records);
  return found != NamesFound::scheduling && header_aliases().occur_in(records)
             ? NamesFound::scheduling
             : found;
}

std::expected<Schedule, ScheduleError> read_schedule(const records::RecordView& record,
                                                     const TopicDelay& topic, WallTime arrived,
                                                     WallTime believed) {
  const GivenHeaders given = take_headers(record);
  auto schedule = schedule_of(given, topic, arrived, believed);
  // The producer knows the name that it gave.
  if (!schedule && !given.alias.empty())
    schedule.error().message +=
        fmt::format(" ({} stands for {})", printable(given.alias), given.aliased);
  return schedule;
}

}  // namespace tarry::delay
