#pragma once

// DriverAlarm: lets scheduling threads wake a driver that sleeps or is going to sleep.
//
// Every shard has an `earliest`, which is not later than any timer in it.  The driver looks at all
// of them, sets its alarm to the least and sleeps until then.  A thread that schedules a timer
// before its shard's earliest lowers that, and sets the alarm earlier if need be.
//
//    a thread that schedules       the driver, before it sleeps
//    1. writes `earliest`          1. writes at_, what its alarm will be
//    2. reads at_: late enough?    2. reads every `earliest` again: late enough?
//
// Each writes first and reads then, and all of these are sequentially consistent.  So at least one
// of the two sees the other's write, and sets the alarm earlier: no wake-up is lost.  While the
// driver is awake at_ is 0, so that no thread sets an alarm for a timer that it will find anyway.
//
// Points::between() is called where another thread may interleave: it does nothing, except in the
// test that tries all orders.

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>

#include "timing/timing_wheel.h"

namespace tarry::timing {

struct NoTestPoints {
  using Mutex = std::mutex;
  static void between() {}
};

// Not later than any timer that waits in a shard; `never` if there is none.  Written under the
// shard's lock, read by any thread.
template <class Points = NoTestPoints>
class Earliest {
 public:
  static constexpr Tick never = std::numeric_limits<Tick>::max();

  Tick get() const {
    Points::between();
    return tick_.load();
  }
  void set(Tick tick) {
    Points::between();
    tick_.store(tick);
  }
  // True when it was later: the driver has to be told, once the shard's lock is released.
  bool lower_to(Tick tick) {
    if (tick >= tick_.load(std::memory_order_relaxed)) return false;
    set(tick);
    return true;
  }

 private:
  std::atomic<Tick> tick_{never};
};

// `set` is called with what the alarm is to be set to, under a lock: one call at a time, the last
// one counts.
template <class Points = NoTestPoints>
class DriverAlarm {
 public:
  // The driver, before it looks at the shards.
  void mark_awake() {
    Points::between();
    at_.store(0);
  }

  // The driver, when it has seen to them; `earliest` asks all of them.  Returns what the alarm is
  // set to.
  template <class AskAll, class Set>
  Tick fall_asleep(AskAll earliest, Set set) {
    const std::lock_guard lock(lock_);
    Tick at = earliest();
    while (true) {
      Points::between();
      at_.store(at);
      const Tick again = earliest();
      if (again >= at) break;
      at = again;
    }
    set(at);
    return at;
  }

  // By a thread that has lowered an `earliest` to `deadline`.
  template <class Set>
  void on_earlier_deadline(Tick deadline, Set set) {
    Points::between();
    if (deadline >= at_.load()) return;
    const std::lock_guard lock(lock_);
    Points::between();
    if (deadline >= at_.load()) return;
    at_.store(deadline);
    set(deadline);
  }

  // Nobody sets an alarm any more until the driver falls asleep.
  template <class Set>
  void silence(Set set) {
    const std::lock_guard lock(lock_);
    at_.store(0);
    set();
  }

 private:
  // The tick that the alarm is set to; 0 while the driver is awake.  Written under lock_, but for
  // that.
  std::atomic<Tick> at_{Earliest<Points>::never};
  typename Points::Mutex lock_;
};

}  // namespace tarry::timing
