#pragma once

// How a TimerService is driven and bounded, and how its periodic timers repeat.

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>

#include "timing/service/timer_id.h"

namespace tarry::timing {

enum class Repeat {
  never,
  // Due every period from the first deadline on, without drift.  A run that is late by whole
  // periods stands for those that were missed: they are counted, not made up for.
  fixed_rate,
  // Due one period after the last run ended.
  fixed_delay
};

// The thread that calls run_due().
enum class Drive {
  own_thread,  // A thread of the service.
  descriptor,  // The owner, when fd() is readable: from epoll, or timer_service_asio.h.
  manual       // The owner, by next_due() or the `alarm`.  The only one that takes a clock.
};

struct TimerServiceOptions {
  using TimePoint = std::chrono::steady_clock::time_point;

  Drive drive = Drive::own_thread;
  std::chrono::nanoseconds tick = std::chrono::milliseconds(1);  // At least 1 us.
  std::size_t max_pending = 1 << 20;
  unsigned shards = 0;  // Rounded up to a power of two, at most 256.  0: two for each processor.

  // With Drive::manual alone.  `clock` never goes back; steady_clock when there is none.  It is
  // called on any thread and may not call the service.  `alarm` says that run_due() has work at
  // that time, which is earlier than what was said before or follows a run_due(); time_point::max()
  // when there is none.  It is called on any thread, one call at a time, and may not call the
  // service either.
  std::function<TimePoint()> clock{};
  std::function<void(TimePoint)> alarm{};

  // Called on the driver's thread for what a callback threw, in its catch; must not throw.
  // Without it a line goes to stderr.
  std::function<void(TimerId, std::exception_ptr)> on_throw{};
};

}  // namespace tarry::timing
