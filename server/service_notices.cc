#include "server/service_notices.h"

#include <limits>
#include <memory>
#include <utility>

#include <fmt/core.h>

namespace tarry::server {
namespace {

// The time that one request for more time asks for: three may be late or lost.
constexpr int pleas_ahead = 4;

}  // namespace

void ServiceNotices::starting() {
  constexpr auto longest = std::chrono::hours{1};
  if (manager_.listens()) ask_for_time("recovering", longest / plea_interval_);
}

void ServiceNotices::ready(std::string_view status, Watchdog::Ask ask) {
  // Waits for its thread: no plea for time may follow READY=1.
  pulse_.reset();
  manager_.tell(fmt::format("READY=1\nSTATUS={}", status));
  if (!manager_.listens() || !watchdog_) return;
  // A sign takes two beats, one to ask and one to tell, so a period has two signs at least.
  pulse_.emplace(std::chrono::duration_cast<std::chrono::milliseconds>(*watchdog_ / 4),
                 [dog = std::make_shared<Watchdog>(manager_, std::move(ask))] { dog->beat(); });
}

void ServiceNotices::stopping(std::string_view why) {
  pulse_.reset();
  manager_.tell(fmt::format("STOPPING=1\nSTATUS=stopping ({})", why));
  // `serve` itself limits how long it stops.
  if (manager_.listens()) ask_for_time("stopping", std::numeric_limits<std::int64_t>::max());
}

void ServiceNotices::ask_for_time(std::string what, std::int64_t max_times) {
  const std::chrono::microseconds extended = plea_interval_ * pleas_ahead;
  pulse_.emplace(
      plea_interval_, [this, extended, what = std::move(what), max_times, times = 0]() mutable {
        if (times == max_times) return;
        ++times;
        const auto taken = std::chrono::floor<std::chrono::seconds>(plea_interval_ * times);
        // WATCHDOG=1: some versions of systemd watch a service that stops, too.
        manager_.tell(fmt::format("EXTEND_TIMEOUT_USEC={}\nWATCHDOG=1\nSTATUS={} for {} s",
                                  extended.count(), what, taken.count()));
      });
}

}  // namespace tarry::server
