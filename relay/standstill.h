#pragma once

// Standstill: whether the whole process has stood still, as after SIGSTOP, in a machine that was
// paused, or without a turn on its processors.
//
//   tick()     a thread of its own, every `tick_interval`
//   longest()  the longest time between two ticks since it was asked last, and since the last one
//
// A call that takes long does not show whether Kafka was slow, in which case librdkafka's threads
// have gone on fetching, or nobody of this process was there.
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
