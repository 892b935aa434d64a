#pragma once

// Watchdog: signs of life for the service manager.
//
// One is sent only after every thread that serves clients has answered, so that the manager
// restarts a broker of which a part hangs.
//
//   a beat:    ask ──> each shard answers
//   the next:  all have answered: WATCHDOG=1, and ask again; else nothing
//
// Shards only set a flag: the manager is told on the thread of the beats (pulse.h).

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "server/service_manager.h"

namespace tarry::server {

class Watchdog {
 public:
  using Ask = std::function<void(std::function<void()> all_answered)>;

  // `all_answered` may be called on any thread, and after the Watchdog's end.
  Watchdog(ServiceManager manager, Ask ask) : manager_(std::move(manager)), ask_(std::move(ask)) {}

  void beat();

 private:
  const ServiceManager manager_;
  const Ask ask_;
  std::shared_ptr<std::atomic<bool>> answered_;  // The last question; null: none was asked yet.
};

// How long the manager waits for a sign of life before it ends the process; none: it does not
// watch.  `watched_process` names the process that is meant; empty: any.
std::optional<std::chrono::microseconds> watchdog_period(std::string_view period_us,
                                                         std::string_view watched_process,
                                                         pid_t own_process);
std::optional<std::chrono::microseconds> watchdog_period_from_environment();

}  // namespace tarry::server
