#pragma once

// read_recurrence(): the recurrence that a record's headers ask for, or the reason why they are
// invalid.
//
//   x-every    a duration of at least 100 ms      one of these two
//   x-cron     an expression (delay/cron.h)
//   x-cron-tz  an IANA name; only with x-cron; without it UTC
//   x-until    a time; no run is due after it     with one of the two
//   x-count    1 to 10^12 deliveries in all       with one of the two
//
// The first delivery:
//                                 x-every                x-cron
//   no x-delay, x-deliver-at      one period from now    the first match from now on
//   a time T ahead                T                      the first match at or after T
//   a time T that has passed      now                    the first match from now on
// The runs of x-every are T and whole periods after it, also if T has passed; without T, whole
// periods from now.  tarry.delay.ms does not count for a recurring record; tarry.delay.max.ms
// bounds its first due time.
//
// Not to be combined: x-every with x-cron; the others without one of these; and
//   x-expire-at        x-until says when to stop; one run that could not be delivered in time would
//                      otherwise end all that follow
//   x-schedule-action  cancel schedules nothing
// An x-schedule-id is welcome and not needed: the handle stays the same from run to run.
//
// Invariant: an invalid header is an error that names header and value.  The first due time
// is not before `now`, so that no run is missed before its record was accepted.
//
// Pure; any thread.

#include <chrono>
#include <expected>
#include <optional>
#include <string>

#include "base/clock.h"
#include "delay/header_value.h"
#include "delay/recurrence.h"
#include "delay/time_zones.h"

namespace tarry::delay {

inline constexpr std::uint64_t max_count = 1'000'000'000'000;

// The headers of a record as given, empty if it has none of that name.
struct RecurrenceHeaders {
  std::optional<HeaderValue> every, cron, cron_tz, until, count;
  // Looked at for conflicts alone.
  std::optional<HeaderValue> expire_at, action;

  // Whether the record asks for recurring delivery, rightly or not.
  bool any() const { return every || cron || cron_tz || until || count; }
};

// `start` is the time that x-delay or x-deliver-at says; `now` that of arrival.  The pending run of
// the result, Recurrence::run(), is the first due time.
std::expected<Recurrence, std::string> read_recurrence(
    const RecurrenceHeaders& given, std::optional<WallTime> start, WallTime now,
    std::optional<std::chrono::milliseconds> max_delay, const TimeZones& zones);

}  // namespace tarry::delay
