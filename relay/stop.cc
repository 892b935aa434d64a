#include "relay/stop.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

namespace tarry::relay {

Stop::Stop(std::function<bool()> is_asked, std::function<void()> force, Time limit)
    : is_asked_(std::move(is_asked)),
      force_(std::move(force)),
      limit_(limit),
      watching_([this](const std::stop_token& ended) { watch(ended); }) {}

void Stop::watch(const std::stop_token& ended) {
  using Steady = std::chrono::steady_clock;
  std::mutex mutex;
  std::condition_variable_any woken;
  std::unique_lock lock(mutex);
  std::optional<Steady::time_point> asked;
  while (!ended.stop_requested()) {
    if (!asked && is_asked_()) asked = Steady::now();
    // The limit is read each time: the first assignment may be complete just now.
    if (asked && Steady::now() - *asked >= limit_.load()) return force_();
    woken.wait_for(lock, ended, look_again, [] { return false; });
  }
}

}  // namespace tarry::relay
