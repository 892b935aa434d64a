#pragma once

// VirtualClock: what event loops of others take for the time, while one is measured.
//
// libevent and libuv ask clock_gettime() for the monotonic clock and then epoll for what has
// happened; virtual_clock.cc stands before both in this program.  While a VirtualClock lives, its
// thread is told the time that was set, and epoll reports at once that nothing has happened: so a
// loop can be led through an hour in a moment, and what is measured is its timers, not its system
// calls.  All other clocks (CPU time, the wall) stay real.

#include <cstdint>

namespace tarry::peers {

class VirtualClock {
 public:
  VirtualClock();
  ~VirtualClock();
  VirtualClock(const VirtualClock&) = delete;
  VirtualClock& operator=(const VirtualClock&) = delete;

  // Milliseconds since a moment of no importance, which is not 0 for the loops' sake.
  static void set(std::uint64_t ms);
  static std::uint64_t now_ms();
};

}  // namespace tarry::peers
