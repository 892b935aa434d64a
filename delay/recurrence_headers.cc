#include "delay/recurrence_headers.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/time_text.h"
#include "delay/header_names.h"

namespace tarry::delay {
namespace {

using std::chrono::milliseconds;

template <typename T>
using Read = std::expected<T, std::string>;

struct Named {
  std::string_view name;
  const std::optional<HeaderValue>& value;
};

// The error of headers that do not go together, whatever their values say.
std::optional<std::string> conflict_in(const RecurrenceHeaders& given) {
  const Named every{header::every, given.every}, cron{header::cron, given.cron};
  const auto refuse = [](const Named& one, const Named& other, std::string_view advice) {
    return fmt::format("{}: {} cannot be combined with {}: {}; {}", one.name, shown(*one.value),
                       other.name, shown(*other.value), advice);
  };
  if (given.every && given.cron) return refuse(every, cron, "give one of them");
  if (given.every && given.cron_tz) {
    return refuse(Named{header::cron_tz, given.cron_tz}, every,
                  "a time zone belongs to x-cron; a period is the same in all of them");
  }
  const bool recurs = given.every || given.cron;
  if (given.cron_tz && !recurs)
    return header_error(header::cron_tz, *given.cron_tz, "needs an x-cron");
  for (const Named& end : {Named{header::until, given.until}, Named{header::count, given.count}}) {
    if (end.value && !recurs)
      return header_error(end.name, *end.value, "needs an x-every or an x-cron");
  }
  const Named& rule = given.every ? every : cron;
  if (given.action) {
    return refuse(Named{header::schedule_action, given.action}, rule,
                  "to replace a schedule, send it again with the same x-schedule-id");
  }
  if (given.expire_at) {
    return refuse(Named{header::expire_at, given.expire_at}, rule,
                  "x-until says when recurring delivery ends");
  }
  return std::nullopt;
}

Read<Recurrence::End> end_in(const RecurrenceHeaders& given) {
  Recurrence::End end;
  if (given.until) {
    const auto until = time_in(header::until, *given.until);
    if (!until) return std::unexpected(until.error());
    if (*until > last_due) {
      return std::unexpected(
          header_error(header::until, *given.until,
                       "is after the year 9999; it is in milliseconds, not in microseconds"));
    }
    end.until = *until;
  }
  if (given.count) {
    const auto count = count_in(header::count, *given.count, max_count);
    if (!count) return std::unexpected(count.error());
    end.count = *count;
  }
  return end;
}

struct First {
  Recurrence::Rule rule;
  WallTime run;
};

std::string begins_too_late(std::string_view name, const HeaderValue& value) {
  return fmt::format("{}: {} would begin after the year 9999", name, shown(value));
}

Read<First> first_of_every(const HeaderValue& value, std::optional<WallTime> start, WallTime now) {
  const auto period = duration_in(header::every, value);
  if (!period) return std::unexpected(period.error());
  if (*period < Recurrence::min_period) {
    return std::unexpected(header_error(header::every, value,
                                        fmt::format("is shorter than {}, the shortest period",
                                                    format_duration(Recurrence::min_period))));
  }
  if (*period > Recurrence::max_period)
    return std::unexpected(
        header_error(header::every, value, "is longer than 100 years, the longest period"));
  // The relay counts from the producer's timestamp, which may be any number: the sum could
  // overflow.
  if (!start && now > last_due - *period)
    return std::unexpected(begins_too_late(header::every, value));
  if (!start) return First{Recurrence::Every{*period, now + *period}, now + *period};
  if (*start >= now) return First{Recurrence::Every{*period, *start}, *start};
  // The last time of the series before now: as good an anchor as `start`, which may be long ago.
  // (Unsigned: the difference of two times may not fit otherwise.)
  const auto passed =
      static_cast<std::uint64_t>(to_ms(now)) - static_cast<std::uint64_t>(to_ms(*start));
  const milliseconds rest{
      static_cast<std::int64_t>(passed % static_cast<std::uint64_t>(period->count()))};
  // The first delivery is immediate, as that of any record whose due time has passed. The others
  // are at the times of the series.
  return First{Recurrence::Every{*period, now - rest}, now};
}

Read<First> first_of_cron(const RecurrenceHeaders& given, std::optional<WallTime> start,
                          WallTime now, const TimeZones& zones) {
  const HeaderValue& value = *given.cron;
  if (!value) return std::unexpected(header_error(header::cron, value, "is not a cron expression"));
  auto cron = Cron::parse(as_text(*value));
  if (!cron) {
    return std::unexpected(
        header_error(header::cron, value, "is not a cron expression: " + cron.error()));
  }
  auto zone = TimeZone::utc();
  if (given.cron_tz) {
    if (!*given.cron_tz)
      return std::unexpected(header_error(header::cron_tz, *given.cron_tz, "is not a time zone"));
    auto found = zones.find(as_text(**given.cron_tz));
    if (!found)
      return std::unexpected(fmt::format("{}: {}", header::cron_tz, found.error().message));
    zone = std::move(*found);
  }
  // next() gives a later time than its argument, and a run at this very moment counts too.
  const auto first = cron->next(std::max(start.value_or(now), now) - milliseconds{1}, *zone);
  if (!first)
    return std::unexpected(
        header_error(header::cron, value, "does not fire before the year 10000"));
  return First{Recurrence::InZone{std::move(*cron), std::move(zone)}, *first};
}

}  // namespace

std::expected<Recurrence, std::string> read_recurrence(const RecurrenceHeaders& given,
                                                       std::optional<WallTime> start, WallTime now,
                                                       std::optional<milliseconds> max_delay,
                                                       const TimeZones& zones) {
  if (auto conflict = conflict_in(given)) return std::unexpected(std::move(*conflict));
  const auto end = end_in(given);
  if (!end) return std::unexpected(end.error());
  auto first = given.every ? first_of_every(*given.every, start, now)
                           : first_of_cron(given, start, now, zones);
  if (!first) return std::unexpected(std::move(first.error()));

  const std::string_view name = given.every ? header::every : header::cron;
  const HeaderValue& value = given.every ? *given.every : *given.cron;
  if (first->run > last_due) return std::unexpected(begins_too_late(name, value));
  if (end->until && first->run > *end->until) {
    return std::unexpected(
        header_error(header::until, *given.until,
                     fmt::format("is before the first delivery, which would be at {}",
                                 format_time(first->run))));
  }
  if (max_delay && first->run - now > *max_delay) {
    return std::unexpected(header_error(
        name, value,
        fmt::format("has its first delivery at {}, further in the future than this topic's "
                    "tarry.delay.max.ms={} allows",
                    format_time(first->run), max_delay->count())));
  }
  return Recurrence(std::move(first->rule), *end, first->run);
}

}  // namespace tarry::delay
