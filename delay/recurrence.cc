#include "delay/recurrence.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/time_text.h"

namespace tarry::delay {
namespace {

using std::chrono::milliseconds;

// It is stored in pending records, which may wait for years: another format needs another number.
constexpr std::uint8_t version = 1;
constexpr std::uint8_t cron_flag = 1, until_flag = 2, count_flag = 4;

// Times are kept within these, so that no sum of two of them overflows.
constexpr WallTime first_time =
    std::chrono::sys_days{std::chrono::year{0} / std::chrono::January / 1};

bool is_kept(WallTime time) {
  return time >= first_time && time <= last_due;
}

// Takes fields from the front; once one is missing, `whole` is false and all others are zero.
class Fields {
 public:
  explicit Fields(Bytes bytes) : rest_(bytes) {}

  template <typename T>
  T number() {
    if (!has(sizeof(T))) return T{};
    const T value = load_be<T>(rest_.data());
    rest_ = rest_.subspan(sizeof(T));
    return value;
  }
  WallTime time() { return from_ms(number<std::int64_t>()); }
  std::string_view text() {
    const std::size_t size = number<std::uint8_t>();
    if (!has(size)) return {};
    const std::string_view text = as_text(rest_.first(size));
    rest_ = rest_.subspan(size);
    return text;
  }
  bool end() const { return whole_ && rest_.empty(); }

 private:
  bool has(std::size_t size) {
    whole_ = whole_ && rest_.size() >= size;
    return whole_;
  }

  Bytes rest_;
  bool whole_ = true;
};

void append_text(Buffer& to, std::string_view text) {
  to.push_back(static_cast<std::uint8_t>(text.size()));
  append_bytes(to, as_bytes(text));
}

std::unexpected<Error> corrupt(std::string_view what) {
  return fail(Errc::corrupt, fmt::format("a stored recurrence is damaged: {}", what));
}

}  // namespace

Result<MissedRuns> parse_missed_runs(std::string_view text) {
  if (text == "once") return MissedRuns::once;
  if (text == "all") return MissedRuns::all;
  if (text == "skip") return MissedRuns::skip;
  return fail(Errc::invalid,
              fmt::format("\"{}\" is not a policy for missed runs; write once, all or skip",
                          printable(text, 64)));
}

Recurrence::Recurrence(Rule rule, End end, WallTime first)
    : rule_(std::move(rule)), end_(end), run_(first) {
  TARRY_ASSERT(is_kept(first) && (!end_.until || first <= *end_.until),
               "a recurrence begins before it ends");
  TARRY_ASSERT(!end_.count || *end_.count > 0, "a recurrence has a run");
  if (const auto* every = std::get_if<Every>(&rule_)) {
    TARRY_ASSERT(every->period >= min_period && every->period <= max_period, "a period is bounded");
    TARRY_ASSERT(is_kept(every->anchor) && every->anchor <= first,
                 "a series begins before its first run");
  }
}

std::optional<WallTime> Recurrence::next_after(WallTime time) const {
  std::optional<WallTime> next;
  if (const auto* every = std::get_if<Every>(&rule_)) {
    next = every->anchor;
    if (time >= every->anchor)
      // The anchor is counted from, so that no rounding and no late delivery adds up over the
      // years.
      *next += ((time - every->anchor) / every->period + 1) * every->period;
  } else {
    const auto& in_zone = std::get<InZone>(rule_);
    next = in_zone.cron.next(time, *in_zone.zone);
  }
  if (next && *next > std::min(end_.until.value_or(last_due), last_due)) return std::nullopt;
  return next;
}

std::optional<WallTime> Recurrence::last_before(WallTime time) const {
  // The end itself may be a run, and `time` is not looked at.
  if (end_.until) time = std::min(time, *end_.until + milliseconds{1});
  if (const auto* every = std::get_if<Every>(&rule_)) {
    if (time <= every->anchor) return std::nullopt;
    return every->anchor + (time - every->anchor - milliseconds{1}) / every->period * every->period;
  }
  const auto& in_zone = std::get<InZone>(rule_);
  return in_zone.cron.previous(time, *in_zone.zone);
}

std::optional<WallTime> Recurrence::nth_last(WallTime after, WallTime before, std::uint32_t n,
                                             std::uint32_t& looked_at) const {
  auto run = last_before(before);
  looked_at = 1;
  if (const auto* every = std::get_if<Every>(&rule_)) {
    // With a fixed period n runs back is one subtraction, however many were missed.
    if (run) *run -= (n - 1) * every->period;
  } else {
    for (; looked_at < n && run && *run > after; ++looked_at) run = last_before(*run);
  }
  return run && *run > after ? run : std::nullopt;
}

Recurrence::NextRun Recurrence::plan_run(WallTime due, WallTime running_since,
                                         const MissedPolicy& policy) const {
  // A run that was moved ahead of its time still counts as that run; one that was moved behind
  // others takes their place.
  const WallTime here = std::max(run_, due);
  NextRun planned;
  planned.deliver = due;
  WallTime last = here;  // The next times come after it.
  if (due < running_since) {
    if (policy.runs == MissedRuns::skip) {
      planned.deliver.reset();
      planned.left_out = true;
      last = std::max(here, running_since - milliseconds{1});
    } else {
      // A broker that was down for a year owes a record each minute: all that are owed would bury
      // its consumers, so `all` is bounded as well.
      const std::uint32_t kept = policy.runs == MissedRuns::all ? std::max(policy.max, 1u) : 1;
      if (const auto oldest = nth_last(here, running_since, kept, planned.looked_at)) {
        planned.deliver = last = *oldest;
        planned.left_out = true;
      }
    }
  }
  // A run that was left out does not count: who asks for ten deliveries gets ten.
  const bool was_last = planned.deliver && end_.count && delivered_ + 1 >= *end_.count;
  if (!was_last) planned.next = next_after(last);
  return planned;
}

void Recurrence::take(const NextRun& planned) {
  TARRY_ASSERT(planned.next.has_value(), "a recurrence that has ended is not kept");
  if (planned.deliver) ++delivered_;
  run_ = *planned.next;
}

std::vector<WallTime> Recurrence::upcoming(std::size_t limit) const {
  std::vector<WallTime> runs;
  // The run that is pending counts as one of them.
  if (end_.count) limit = std::min<std::uint64_t>(limit, *end_.count - delivered_ - 1);
  std::optional<WallTime> next = run_;
  while (runs.size() < limit && (next = next_after(*next))) runs.push_back(*next);
  return runs;
}

std::string Recurrence::text() const {
  std::string text;
  if (const auto* every = std::get_if<Every>(&rule_)) {
    text = fmt::format("every {}", format_duration(every->period));
  } else {
    const auto& in_zone = std::get<InZone>(rule_);
    text = fmt::format("cron {} {}", in_zone.cron.text(), in_zone.zone->name());
  }
  if (end_.count) text += fmt::format(", {} of {} left", *end_.count - delivered_, *end_.count);
  if (end_.until) text += fmt::format(", until {}", format_time(*end_.until));
  return text;
}

void Recurrence::append_to(Buffer& to) const {
  const auto* every = std::get_if<Every>(&rule_);
  to.push_back(version);
  to.push_back(static_cast<std::uint8_t>((every != nullptr ? 0 : cron_flag) |
                                         (end_.until ? until_flag : 0) |
                                         (end_.count ? count_flag : 0)));
  append_be(to, delivered_);
  append_be(to, to_ms(run_));
  if (every != nullptr) {
    append_be(to, std::int64_t{every->period.count()});
    append_be(to, to_ms(every->anchor));
  } else {
    const auto& in_zone = std::get<InZone>(rule_);
    append_text(to, in_zone.cron.text());
    append_text(to, in_zone.zone->name());
  }
  if (end_.until) append_be(to, to_ms(*end_.until));
  if (end_.count) append_be(to, *end_.count);
}

Result<Recurrence> Recurrence::parse(Bytes bytes, const TimeZones& zones) {
  Fields fields(bytes);
  // Everything is checked again although we wrote it: the constructor asserts these, and a damaged
  // record must not end the broker.
  const auto given_version = fields.number<std::uint8_t>();
  if (!bytes.empty() && given_version != version) {
    return fail(Errc::unsupported, fmt::format("a stored recurrence has version {}; this program "
                                               "knows version {}",
                                               given_version, version));
  }
  const auto flags = fields.number<std::uint8_t>();
  if ((flags & ~(cron_flag | until_flag | count_flag)) != 0) return corrupt("unknown flags");
  const auto delivered = fields.number<std::uint64_t>();
  const WallTime run = fields.time();
  Every every;
  std::string_view expression, zone_name;
  if ((flags & cron_flag) != 0) {
    expression = fields.text();
    zone_name = fields.text();
  } else {
    every.period = milliseconds{fields.number<std::int64_t>()};
    every.anchor = fields.time();
  }
  End end;
  if ((flags & until_flag) != 0) end.until = fields.time();
  if ((flags & count_flag) != 0) end.count = fields.number<std::uint64_t>();
  if (!fields.end()) return corrupt("it is truncated or too long");

  if (!is_kept(run) || (end.until && (!is_kept(*end.until) || run > *end.until)))
    return corrupt("a time is out of range");
  if (end.count && delivered >= *end.count)
    return corrupt("it counts more deliveries than allowed");
  std::optional<Rule> rule;
  if ((flags & cron_flag) == 0) {
    if (every.period < min_period || every.period > max_period || !is_kept(every.anchor) ||
        every.anchor > run)
      return corrupt("its period is out of range");
    rule = every;
  } else {
    auto cron = Cron::parse(expression);
    if (!cron || cron->text() != expression) return corrupt("its cron expression is not valid");
    if (zone_name.empty() || zone_name.size() > TimeZone::max_name_bytes)
      return corrupt("its time zone name is empty or too long");
    auto zone = zones.find(zone_name);
    if (!zone) return std::unexpected(std::move(zone.error()));
    rule = InZone{std::move(*cron), std::move(*zone)};
  }
  Recurrence recurrence(std::move(*rule), end, run);
  recurrence.delivered_ = delivered;
  return recurrence;
}

}  // namespace tarry::delay
