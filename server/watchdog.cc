#include "server/watchdog.h"

#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string>

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

}  // namespace

void Watchdog::beat() {
  if (answered_) {
    // A shard has not answered the last question: no sign of life, and no second question.
    if (!answered_->load()) return;
    manager_.tell("WATCHDOG=1");
  }
  answered_ = std::make_shared<std::atomic<bool>>(false);
  ask_([answered = answered_] { answered->store(true); });
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

}  // namespace tarry::server
