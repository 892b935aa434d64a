#include "bench/virtual_clock.h"

#include <dlfcn.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>

#include <cerrno>

namespace tarry::peers {
namespace {

constexpr std::uint64_t begin_ms = 1'000'000;

thread_local bool is_virtual = false;
thread_local std::uint64_t virtual_ms = 0;

// The functions that would be called if this program did not replace them.
template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

VirtualClock::VirtualClock() {
  is_virtual = true;
  virtual_ms = 0;
}
VirtualClock::~VirtualClock() {
  is_virtual = false;
}
void VirtualClock::set(std::uint64_t ms) {
  virtual_ms = ms;
}
std::uint64_t VirtualClock::now_ms() {
  return virtual_ms;
}

}  // namespace tarry::peers

using tarry::peers::begin_ms;
using tarry::peers::is_virtual;
using tarry::peers::real;
using tarry::peers::virtual_ms;

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  if (is_virtual && (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE)) {
    const std::uint64_t ms = begin_ms + virtual_ms;
    time->tv_sec = static_cast<time_t>(ms / 1000);
    time->tv_nsec = static_cast<long>(ms % 1000 * 1'000'000);
    return 0;
  }
  static const auto next = real<int(clockid_t, timespec*)>("clock_gettime");
  return next(clock, time);
}

int epoll_wait(int descriptor, epoll_event* events, int count, int timeout) {
  if (is_virtual) return 0;
  static const auto next = real<int(int, epoll_event*, int, int)>("epoll_wait");
  return next(descriptor, events, count, timeout);
}

int epoll_pwait(int descriptor, epoll_event* events, int count, int timeout,
                const sigset_t* signals) {
  if (is_virtual) return 0;
  static const auto next = real<int(int, epoll_event*, int, int, const sigset_t*)>("epoll_pwait");
  return next(descriptor, events, count, timeout, signals);
}

// Without one Asio asks its own clock whenever the loop turns, which it then is told.
int timerfd_create(int clock, int flags) noexcept {
  if (is_virtual) {
    errno = ENOSYS;
    return -1;
  }
  static const auto next = real<int(int, int)>("timerfd_create");
  return next(clock, flags);
}

}  // extern "C"
