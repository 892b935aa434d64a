#pragma once

// Schedule: the schedule that a record's headers ask for, or the reason why they are invalid.
//
//   x-deliver-at       a time        when: one of these two, or the topic's default delay
//   x-delay            a duration
//   x-schedule-id      1-249 bytes   its name in its partition; alone it schedules nothing
//   x-schedule-action  cancel        drop the pending record with that id
//   x-expire-at        a time        drop it if it cannot be delivered before this
//   x-every x-cron x-cron-tz x-until x-count    recurring delivery: recurrence_headers.h
//
// A value of 8 bytes whose first byte is 0 is a big-endian number of milliseconds, anything else
// is text (base/time_text.h).  Names are matched without regard to ASCII case.
//
// A due time lies in the years 2000 to 9999.  A number outside was probably given in another unit
// than milliseconds, and the error says which time that would be.  Only an x-deliver-at that is too
// small to be seconds (0 to 946684799) means "now".  An x-expire-at has no such exception, because
// the record would be dropped.
//
// Invariant: an invalid header is an error that names header and value.  No value is
// clamped, guessed or ignored, and no record with one is delivered at once instead.
//
// Pure; any thread.

#include <cstddef>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/clock.h"
#include "delay/header_names.h"
#include "delay/recurrence.h"
#include "delay/sink.h"
#include "records/record_batch.h"

namespace tarry::delay {

inline constexpr std::size_t max_schedule_id_bytes = 249;

// The due times that may be asked for: from 2000-01-01T00:00:00Z to 9999-12-31T23:59:59.999Z.
inline constexpr WallTime first_due_allowed{std::chrono::milliseconds{946'684'800'000}};
inline constexpr WallTime last_due_allowed{std::chrono::milliseconds{253'402'300'799'999}};

struct Schedule {
  enum class Kind {
    none,       // No schedule: goes to the log as it is.
    immediate,  // Due already: goes to the log at once, rewritten as on delivery.
    delayed,
    expired,  // Cannot be delivered before its x-expire-at: dropped and counted.
    cancel,   // Drops the pending record with `id`; is never delivered itself.
    invalid,  // Has an error, and is the host's to put elsewhere: a hole in its batch.
  };
  Kind kind = Kind::none;
  WallTime due{};                                  // Not of none and cancel.
  WallTime expires = storage::never_expires;       // After `due`.
  std::string_view id;                             // Views the record; empty: none.
  std::shared_ptr<const Recurrence> recurrence{};  // Null: it is delivered once.

  // Accepting it takes its id from the record that has it.
  bool takes_id() const {
    return !id.empty() &&
           (kind == Kind::immediate || kind == Kind::delayed || kind == Kind::cancel);
  }
};

// The names that a search in `records` (uncompressed) comes upon: those of headers that schedule,
// and names that begin with "x-" and are one letter off from one of these.  It also finds them in
// a body.  Much cheaper than reading records, and it ends with the first that schedules.
enum class NamesFound { none, slips, scheduling };
NamesFound search_names(Bytes records);

// The header that schedules from which `name` is one letter off; empty: there is none.
std::string_view nearly_named(std::string_view name);

// The reasons to refuse a record's headers: labels of /metrics.
namespace reason {
inline constexpr std::string_view unreadable_value = "unreadable_value";
inline constexpr std::string_view out_of_range = "due_time_out_of_range";  // Another unit, mostly.
inline constexpr std::string_view delay_too_long = "delay_too_long";       // tarry.delay.max.ms
inline constexpr std::string_view bad_id = "bad_schedule_id";
inline constexpr std::string_view bad_action = "bad_schedule_action";
inline constexpr std::string_view given_twice = "header_given_twice";
inline constexpr std::string_view conflict = "conflicting_headers";
inline constexpr std::string_view bad_recurrence = "bad_recurrence";  // x-every, x-cron, ...
inline constexpr std::string_view in_transaction = "delay_in_transaction";
}  // namespace reason

struct ScheduleError {
  std::string_view reason;  // One of these.
  std::string message;      // For the producer: names header and value.
};

// The schedule of `record`.  A delay counts from `arrived`, in wall time; a record that is due by
// `believed` (clock_step_filter.h, never later) is immediate.
std::expected<Schedule, ScheduleError> read_schedule(const records::RecordView& record,
                                                     const TopicDelay& topic, WallTime arrived,
                                                     WallTime believed);

// Whether delivery removes the header `name`: all of the above but x-schedule-id.
bool is_taken_out(std::string_view name);

}  // namespace tarry::delay
