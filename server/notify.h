#pragma once

// The broker's messages to the service manager that started it: ready, stopping, still recovering,
// alive. The protocol is systemd's (sd_notify(3)): datagrams of NAME=VALUE lines to the Unix socket
// that $NOTIFY_SOCKET names.  Without that variable nobody listens, and nothing here does anything.

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace tarry::server {

class ServiceManager {
 public:
  ServiceManager() = default;  // Nobody listens.
  // The path of a socket; `@name` is one in Linux's abstract namespace.
  explicit ServiceManager(std::string socket_path) : socket_path_(std::move(socket_path)) {}

  static ServiceManager from_environment();

  bool listens() const { return !socket_path_.empty(); }
  // Sends lines such as "READY=1\nSTATUS=...".  A failure is logged: the broker works without a
  // manager, but one that was never told READY=1 will end it.
  void tell(std::string_view lines) const;

 private:
  std::string socket_path_;
};

// How long the manager waits for a sign of life before it ends the process; none: it does not
// watch.  `watched_process` names the process that is meant; empty: any.
std::optional<std::chrono::microseconds> watchdog_period(std::string_view period_us,
                                                         std::string_view watched_process,
                                                         pid_t own_process);
std::optional<std::chrono::microseconds> watchdog_period_from_environment();

// Calls `turn` once in each `interval`, on a thread of its own, which has the name `thread_name`,
// the first time after one interval. The destructor waits for a turn that is running.
class Pulse {
 public:
  Pulse(std::chrono::milliseconds interval, std::function<void()> turn,
        std::string thread_name = "tarry-notify");

 private:
  std::jthread thread_;
};

// Signs of life.  One is sent only after every thread that serves clients has answered, so that the
// manager restarts a broker of which a part hangs.
//
//   a turn:    ask ──> each shard answers
//   the next:  all have answered: WATCHDOG=1, and ask again; else nothing
//
// Shards only set a flag: the manager is told on the thread that takes the turns.
class Watchdog {
 public:
  using Ask = std::function<void(std::function<void()> all_answered)>;

  // `all_answered` may be called on any thread, and after the Watchdog's end.
  Watchdog(ServiceManager manager, Ask ask) : manager_(std::move(manager)), ask_(std::move(ask)) {}

  void turn();

 private:
  const ServiceManager manager_;
  const Ask ask_;
  std::shared_ptr<std::atomic<bool>> answered_;  // The last question; null: none was asked yet.
};

// The notices of one process, in the order of its life.  While the broker recovers or stops, it
// asks the manager every few seconds for more time and says how long it has taken; recovery at most
// for an hour, so that one that hangs is ended in the end.
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
