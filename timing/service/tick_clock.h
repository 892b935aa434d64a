#pragma once

// TickClock: the present, and times as the ticks of a wheel.
//
// Tick 0 is when the clock was made.  Deadlines are rounded up and the present is rounded down, so
// that no timer is early.  A time before tick 0 is tick 0; one that is farther away than the
// clock's type can say is its largest.
//
// Constant after construction: any thread, if `clock` may be called by any.

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "timing/timing_wheel.h"

namespace tarry::timing {

class TickClock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::nanoseconds;

  // Without a `clock`: steady_clock.
  TickClock(std::function<TimePoint()> clock, Duration tick)
      : clock_(std::move(clock)), tick_(tick), epoch_(now()) {}

  TimePoint now() const { return clock_ ? clock_() : std::chrono::steady_clock::now(); }
  TimePoint after(Duration delay) const { return add(now(), delay); }

  Tick current_tick() const {
    const TimePoint time = now();
    if (time <= epoch_) return 0;
    return static_cast<std::uint64_t>((time - epoch_).count()) / length();
  }

  // The first tick that is not before `deadline`.
  Tick due_tick(TimePoint deadline) const {
    if (deadline <= epoch_) return 0;
    const auto since = static_cast<std::uint64_t>(deadline.time_since_epoch().count()) -
                       static_cast<std::uint64_t>(epoch_.time_since_epoch().count());
    return since / length() + (since % length() != 0);
  }

  // When a tick begins.
  TimePoint time_of(Tick tick) const {
    const auto longest = static_cast<std::uint64_t>(Duration::max().count());
    return tick > longest / length()
               ? TimePoint::max()
               : add(epoch_, Duration(static_cast<std::int64_t>(tick * length())));
  }

  // Saturates at both ends of what a time_point can say.
  static TimePoint add(TimePoint time, Duration delay) {
    if (delay > Duration::zero() && time > TimePoint::max() - delay) return TimePoint::max();
    if (delay < Duration::zero() && time < TimePoint::min() - delay) return TimePoint::min();
    return time + delay;
  }

 private:
  std::uint64_t length() const { return static_cast<std::uint64_t>(tick_.count()); }

  const std::function<TimePoint()> clock_;
  const Duration tick_;
  const TimePoint epoch_;  // Tick 0.
};

}  // namespace tarry::timing
