#pragma once

// EngineClock: the time by which a shard's delay engine works.
//
// Invariants
//   - now() is never later than the wall clock in the same observation (clock_step_filter.h).
//   - running_since() is never later than now().  A record that was due before it was missed, as if
//     nobody had been here: before the start, or while the clock jumped ahead.

#include <chrono>
#include <optional>

#include "base/clock.h"
#include "delay/clock_step_filter.h"

namespace tarry::delay {

class EngineClock {
 public:
  explicit EngineClock(const Clock& clock) : clock_(clock) { wall_.observe(clock_); }

  // Runs that become due from now on are delivered, however late.
  void start();
  // Reads the clocks, and notices what has happened to them since the last step.
  WallTime begin_step();

  WallTime observe() { return wall_.observe(clock_); }
  WallTime now() const { return wall_.now(); }  // As of the last observation.
  WallTime wall() const { return clock_.wall(); }
  MonoTime mono() const { return clock_.mono(); }
  WallTime running_since() const { return running_since_; }

  // ClockStepFilter's.
  MonoTime mono_of(WallTime due) const { return wall_.mono_of(due); }
  std::chrono::nanoseconds since(WallTime due, MonoTime mono) const {
    return wall_.since(due, mono);
  }
  std::optional<MonoTime> confirms_at() const { return wall_.confirms_at(); }

 private:
  const Clock& clock_;
  ClockStepFilter wall_;
  WallTime running_since_{};
  WallTime last_now_{};  // The time of the last step.
  MonoTime last_mono_{};
};

}  // namespace tarry::delay
