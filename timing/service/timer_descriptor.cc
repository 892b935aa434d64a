#include "timing/service/timer_descriptor.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <system_error>

#include "base/assert.h"

namespace tarry::timing {

TimerDescriptor::~TimerDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

void TimerDescriptor::open() {
  fd_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  if (fd_ < 0) throw std::system_error(errno, std::system_category(), "timerfd_create");
}

void TimerDescriptor::set(std::chrono::steady_clock::time_point at) {
  itimerspec alarm{};
  if (at != std::chrono::steady_clock::time_point::max()) {
    // All zeros would disarm it.
    const auto since_boot = std::max<std::int64_t>(at.time_since_epoch().count(), 1);
    alarm.it_value.tv_sec = static_cast<std::time_t>(since_boot / 1'000'000'000);
    alarm.it_value.tv_nsec = static_cast<long>(since_boot % 1'000'000'000);
  }
  const int set = ::timerfd_settime(fd_, TFD_TIMER_ABSTIME, &alarm, nullptr);
  TARRY_ASSERT(set == 0, "a timerfd takes every time that is not negative");
}

}  // namespace tarry::timing
