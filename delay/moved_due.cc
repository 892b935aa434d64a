#include "delay/moved_due.h"

#include <chrono>
#include <cstdint>
#include <variant>

#include <fmt/format.h>

#include "base/time_text.h"
#include "delay/schedule.h"

namespace tarry::delay {

Result<WallTime> moved_due(WallTime due, const NewDue& change, WallTime expires) {
  if (const auto* by = std::get_if<std::chrono::milliseconds>(&change)) {
    std::int64_t sum = 0;
    // A client chooses both, so their sum may be anything.
    if (__builtin_add_overflow(to_ms(due), by->count(), &sum))
      return fail(Errc::invalid, "the new due time cannot be stored");
    due = from_ms(sum);
  } else {
    due = std::get<WallTime>(change);
  }
  if (due < first_due_allowed || due > last_due_allowed) {
    return fail(Errc::invalid,
                fmt::format("the new due time {} is not between {} and {}", format_time(due),
                            format_time(first_due_allowed), format_time(last_due_allowed)));
  }
  if (due >= expires) {
    return fail(Errc::invalid,
                fmt::format("the record expires at {} (x-expire-at), before it would be due",
                            format_time(expires)));
  }
  return due;
}

}  // namespace tarry::delay
