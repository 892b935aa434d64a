#pragma once

// ClockStepFilter: the wall clock, without jumps ahead that may be mistakes.
//
//   wall clock     ...100  101  102 | 7 300 103 ...           a jump of two hours
//   believed       ...100  101  102 | 103 ... 1 102 | 7 301 103 ...
//                                     \__ 1 second _/
//
// Due times are wall time and a wall clock can be set.  A step back, or ahead by up to a minute,
// is believed at once: it is an ordinary correction.  A jump ahead by more would make everything
// pending due, for good, if it was a mistake; so the old time runs on for a second by the monotonic
// clock, and only a jump that is still there then is believed.  Both are logged.
//
// Invariant: now() is never later than the wall clock in the same observation, so a record
// that is due by now() is due by the wall clock.
//
// It also knows the wall clock more finely than in milliseconds: observations show when a
// millisecond begins, and mono_of() uses that, so that a wake-up is not half a millisecond late.
//
// Belongs to one thread.

#include <chrono>
#include <optional>

#include "base/clock.h"

namespace tarry::delay {

class ClockStepFilter {
 public:
  static constexpr std::chrono::milliseconds max_accepted_jump{60'000};
  static constexpr std::chrono::milliseconds confirmation_time{1'000};

  // Reads the clocks, and returns the new now().
  WallTime observe(const Clock& clock);

  WallTime now() const { return now_; }  // As of the last observe().

  // When the wall clock will show `due`, unless it is set; at most a year ahead.
  MonoTime mono_of(WallTime due) const;
  // The believed wall time at `mono`, finer than a millisecond.
  std::chrono::nanoseconds since(WallTime due, MonoTime mono) const;

  // While a jump is in doubt: when to observe again.
  std::optional<MonoTime> confirms_at() const;

 private:
  MonoTime mono_at_now() const {
    return MonoTime(std::chrono::nanoseconds(now_.time_since_epoch()) - offset_);
  }

  bool started_ = false;
  WallTime now_{};
  MonoTime mono_{};                     // The monotonic time of the last observation.
  std::chrono::nanoseconds offset_{0};  // Believed wall minus monotonic time.
  std::optional<MonoTime> jump_since_;  // A jump was first seen then.
};

}  // namespace tarry::delay
