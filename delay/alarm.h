#pragma once

// Alarm: when a shard's delay engine takes its next step.
//
//   wake()                         at once, in the next turn of the shard's wheel
//   the next thing to be done      when its time comes, at most a second away
//   nothing                        no timer
//
// Invariants
//   - The alarm is the one timer that the engine keeps in the shard's wheel.  While anything is
//     pending it is set, at most `max_sleep` away, so that a step of the wall clock is noticed
//     (docs/adr/0001).
//   - A step does not begin inside a step.
//
// Belongs to its engine, on its thread.

#include <chrono>
#include <functional>
#include <optional>

#include "base/clock.h"
#include "delay/engine_clock.h"
#include "timing/timing_wheel.h"

namespace tarry::delay {

class Alarm {
 public:
  struct Calls {
    // Does what is due, within bounds; true: there is more to do at once.
    std::function<bool()> step;
    // When there is something to do; empty: never, as it stands.
    std::function<std::optional<MonoTime>(MonoTime now)> next;
  };

  // The shard's wheel counts milliseconds of monotonic time from `wheel_start`.
  Alarm(const EngineClock& time, timing::TimingWheel& wheel, MonoTime wheel_start, Calls calls);

  void start();
  void stop();  // For good.
  // There is work to be done at once.
  void wake() {
    more_ = true;
    set();
  }
  // To be called when there may be other work, or at another time.
  void set();
  // A step, here and now, unless it is inside one.
  void step();

  // While anything is pending a step of the wall clock is noticed within this.
  static constexpr std::chrono::milliseconds max_sleep{1'000};

 private:
  timing::Tick tick_of(MonoTime time) const;

  const EngineClock& time_;
  timing::TimingWheel& wheel_;
  const MonoTime wheel_start_;
  const Calls calls_;
  timing::CallbackTimer timer_;
  bool running_ = false;
  bool stepping_ = false;
  bool more_ = false;  // There is more work to do at once.
};

}  // namespace tarry::delay
