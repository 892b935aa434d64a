#pragma once

// Standstill: whether the whole process has stood still: after SIGSTOP, on a machine that was
// paused, or without processor time.
//
//   tick()     a thread of its own, every `tick_interval`
//   longest()  the longest time between two ticks since it was last called, and since the last tick
//
// A call that takes long does not show the reason: either Kafka was slow, and librdkafka's threads
// have gone on fetching meanwhile, or no thread of this process ran.
//
// Any thread.

#include <algorithm>
#include <atomic>
#include <chrono>

#include "base/clock.h"

namespace tarry::relay {

class Standstill {
 public:
  static constexpr std::chrono::milliseconds tick_interval{100};

  explicit Standstill(MonoTime now) : last_(now) {}

  void tick(MonoTime now) {
    note(now - last_.load());
    last_ = now;
  }
  // The thread of tick() may come later than the one that asks when both go on again.
  MonoTime::duration longest(MonoTime now) {
    note(now - last_.load());
    return longest_.exchange({});
  }

 private:
  void note(MonoTime::duration gap) {
    auto known = longest_.load();
    while (known < gap && !longest_.compare_exchange_weak(known, gap)) {
    }
  }

  std::atomic<MonoTime> last_;
  std::atomic<MonoTime::duration> longest_{};
};

}  // namespace tarry::relay
