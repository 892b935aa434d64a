#include "server/notify.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <stop_token>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"
#include "server/thread_name.h"

namespace tarry::server {
namespace {

std::string environment_text(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

template <typename Number>
std::optional<Number> whole_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// 0, or the errno of what failed.
int send_datagram(const std::string& path, std::string_view bytes) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return ENAMETOOLONG;
  std::memcpy(address.sun_path, path.data(), path.size());
  // The abstract namespace: the name follows a zero byte.
  if (path.front() == '@') address.sun_path[0] = '\0';
  const auto address_size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());

  const int descriptor = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return errno;
  // A manager that does not read must not hold up the broker's start or stop.
  const timeval patience{.tv_sec = 2, .tv_usec = 0};
  ::setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  const auto sent = ::sendto(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL,
                             reinterpret_cast<const sockaddr*>(&address), address_size);
  const int failure = sent < 0 ? errno : 0;
  ::close(descriptor);
  return failure;
}

// The time that one request for more time asks for: three may be late or lost.
constexpr int pleas_ahead = 4;

}  // namespace

ServiceManager ServiceManager::from_environment() {
  return ServiceManager(environment_text("NOTIFY_SOCKET"));
}

void ServiceManager::tell(std::string_view lines) const {
  if (!listens()) return;
  if (const int failure = send_datagram(socket_path_, lines); failure != 0) {
    log_warn("server", "the service manager did not receive the message {}: NOTIFY_SOCKET={}: {}",
             printable(lines), printable(socket_path_), std::strerror(failure));
  }
}

std::optional<std::chrono::microseconds> watchdog_period(std::string_view period_us,
                                                         std::string_view watched_process,
                                                         pid_t own_process) {
  if (!watched_process.empty() && whole_number<pid_t>(watched_process) != own_process)
    return std::nullopt;
  const auto period = whole_number<std::int64_t>(period_us);
  if (!period || *period <= 0) return std::nullopt;
  return std::chrono::microseconds(*period);
}

std::optional<std::chrono::microseconds> watchdog_period_from_environment() {
  return watchdog_period(environment_text("WATCHDOG_USEC"), environment_text("WATCHDOG_PID"),
                         ::getpid());
}

Pulse::Pulse(std::chrono::milliseconds interval, std::function<void()> turn,
             std::string thread_name)
    : thread_([interval, turn = std::move(turn),
               thread_name = std::move(thread_name)](const std::stop_token& stop) {
        name_this_thread(thread_name);
        std::mutex mutex;
        std::condition_variable_any wake;
        std::unique_lock lock(mutex);
        while (!wake.wait_for(lock, stop, interval, [&] { return stop.stop_requested(); })) turn();
      }) {}

void Watchdog::turn() {
  if (answered_) {
    // A shard has not answered the last question: no sign of life, and no second question.
    if (!answered_->load()) return;
    manager_.tell("WATCHDOG=1");
  }
  answered_ = std::make_shared<std::atomic<bool>>(false);
  ask_([answered = answered_] { answered->store(true); });
}

void ServiceNotices::starting() {
  constexpr auto longest = std::chrono::hours{1};
  if (manager_.listens()) ask_for_time("recovering", longest / plea_interval_);
}

void ServiceNotices::ready(std::string_view status, Watchdog::Ask ask) {
  // Waits for its thread: no plea for time may follow READY=1.
  pulse_.reset();
  manager_.tell(fmt::format("READY=1\nSTATUS={}", status));
  if (!manager_.listens() || !watchdog_) return;
  // A sign takes two turns, one to ask and one to tell, so a period has two signs at least.
  pulse_.emplace(std::chrono::duration_cast<std::chrono::milliseconds>(*watchdog_ / 4),
                 [dog = std::make_shared<Watchdog>(manager_, std::move(ask))] { dog->turn(); });
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
