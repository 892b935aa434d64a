#pragma once

// TimerDescriptor: a timerfd, readable from the time on that it was last set to.
//
// It counts CLOCK_MONOTONIC, as steady_clock does.  set() may be called on any thread, one call at
// a time.

#include <chrono>

namespace tarry::timing {

class TimerDescriptor {
 public:
  TimerDescriptor() = default;  // Owns none.
  TimerDescriptor(const TimerDescriptor&) = delete;
  TimerDescriptor& operator=(const TimerDescriptor&) = delete;
  ~TimerDescriptor();

  void open();  // Throws std::system_error.

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }  // -1 when none is open.

  // time_point::max(): never.  Takes back the readiness of a time that has passed.
  void set(std::chrono::steady_clock::time_point at);

 private:
  int fd_ = -1;
};

}  // namespace tarry::timing
