#pragma once

// LogThrottle: keeps an event that clients can cause over and over from filling the log.
//
//   LogThrottle bad_frames_{20};
//   bad_frames_.warn(clock.mono(), "server", fmt::format("connection from {} ended: {}", ...));
//
// Each kind of event has its own LogThrottle.  The first lines of a period are written and the
// others are counted; the next line that is written says how many were left out.
//
// Belongs to one thread.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/log.h"

namespace tarry {

class LogThrottle {
 public:
  static constexpr std::chrono::seconds period{10};

  explicit LogThrottle(unsigned lines_per_period = 1) : lines_per_period_(lines_per_period) {}

  // When a line may be written now, returns how many were left out since the last one; else empty.
  std::optional<std::uint64_t> admit(MonoTime now);
  // The end of a line that admit() allowed: empty, or how many were left out.
  static std::string suffix(std::uint64_t unwritten);
  void warn(MonoTime now, const char* category, std::string_view line) {
    write(LogLevel::warn, now, category, line);
  }
  void info(MonoTime now, const char* category, std::string_view line) {
    write(LogLevel::info, now, category, line);
  }
  void error(MonoTime now, const char* category, std::string_view line) {
    write(LogLevel::error, now, category, line);
  }

 private:
  void write(LogLevel level, MonoTime now, const char* category, std::string_view line);

  const unsigned lines_per_period_;
  std::optional<MonoTime> begun_;  // The period; none: nothing was written yet.
  unsigned written_ = 0;           // In it; written_ <= lines_per_period_.
  std::uint64_t unwritten_ = 0;    // Since the last line.
};

}  // namespace tarry
