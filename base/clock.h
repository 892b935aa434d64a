#pragma once

// Time is an argument: nothing below server/ reads a clock.  Code that needs the time gets a Clock;
// the server's Clock reads the machine's clock, a simulation's is set by hand.
//
// There are two kinds of time and they never mix.  A record's due time is wall time, which may step
// in either direction.  Waiting is measured in monotonic time, which never goes back.

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
