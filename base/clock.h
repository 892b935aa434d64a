#pragma once

// Time is an argument: nothing below server/ reads a clock.  Who needs to ask gets a Clock;
// the server's reads the machine's, a simulation's is set by hand.
//
// Two kinds that never mix: wall time is what a record's due time means and
// may step either way; monotonic time is what waiting is measured in and never goes back.

#include <chrono>

namespace tarry {

using WallTime = std::chrono::sys_time<std::chrono::milliseconds>;
using MonoTime = std::chrono::time_point<std::chrono::steady_clock, std::chrono::nanoseconds>;

inline std::int64_t to_ms(WallTime t) {
  return t.time_since_epoch().count();
}
inline WallTime from_ms(std::int64_t ms) {
  return WallTime{std::chrono::milliseconds{ms}};
}

class Clock {
 public:
  virtual ~Clock() = default;
  virtual WallTime wall() const = 0;
  virtual MonoTime mono() const = 0;
};

}  // namespace tarry
