#pragma once

// ServiceNotices: what the broker tells the service manager that started it, in the order of its
// life: recovering, ready, alive, stopping.
//
//   starting() -- EXTEND_TIMEOUT_USEC ... --> ready() -- WATCHDOG=1 ... --> stopping() -- ...
//
// While the broker recovers or stops, it asks the manager every few seconds for more time and says
// how long it has taken; recovery at most for an hour, so that one that hangs is ended in the end.
//
// On the main thread; what is repeated is sent on that of a Pulse.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/pulse.h"
#include "server/service_manager.h"
#include "server/watchdog.h"

namespace tarry::server {

class ServiceNotices {
 public:
  // `plea_interval`: how often it asks for more time.
  ServiceNotices(ServiceManager manager, std::optional<std::chrono::microseconds> watchdog,
                 std::chrono::milliseconds plea_interval = std::chrono::seconds{5})
      : manager_(std::move(manager)), watchdog_(watchdog), plea_interval_(plea_interval) {}
  ServiceNotices(const ServiceNotices&) = delete;
  ServiceNotices& operator=(const ServiceNotices&) = delete;

  void starting();
  // `status` is what `systemctl status` shows.  Everything that `ask` uses outlives this object, or
  // at least stopping().
  void ready(std::string_view status, Watchdog::Ask ask);
  void stopping(std::string_view why);

 private:
  void ask_for_time(std::string what, std::int64_t max_times);

  const ServiceManager manager_;
  const std::optional<std::chrono::microseconds> watchdog_;
  const std::chrono::milliseconds plea_interval_;
  std::optional<Pulse> pulse_;
};

}  // namespace tarry::server
