#include "base/log_throttle.h"

#include <utility>

#include <fmt/core.h>

namespace tarry {

std::optional<std::uint64_t> LogThrottle::admit(MonoTime now) {
  if (!begun_ || now - *begun_ >= period) {
    begun_ = now;
    written_ = 0;
  }
  if (written_ >= lines_per_period_) {
    ++unwritten_;
    return std::nullopt;
  }
  ++written_;
  // The line that is written says how many before it were not.
  return std::exchange(unwritten_, 0);
}

std::string LogThrottle::suffix(std::uint64_t unwritten) {
  if (unwritten == 0) return {};
  return fmt::format(" ({} more since the last such line)", unwritten);
}

void LogThrottle::write(LogLevel level, MonoTime now, const char* category, std::string_view line) {
  const auto unwritten = admit(now);
  if (!unwritten) return;
  log_at(level, category, "{}{}", line, suffix(*unwritten));
}

}  // namespace tarry
