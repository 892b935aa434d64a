#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace tarry {
namespace {

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warn:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
    case LogLevel::off:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

spdlog::logger& logger() {
  static const auto made = [] {
    auto logger = std::make_shared<spdlog::logger>(
        "tarry", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %L %v");
    logger->set_level(spdlog::level::info);
    logger->flush_on(spdlog::level::debug);
    return logger;
  }();
  return *made;
}

}  // namespace

void set_log_level(LogLevel level) {
  logger().set_level(level_of(level));
}
bool log_enabled(LogLevel level) {
  return logger().should_log(level_of(level));
}
void write_log(LogLevel level, const char* category, std::string_view line) {
  logger().log(level_of(level), "{}: {}", category, line);
}

std::string printable(std::string_view text, std::size_t limit) {
  std::string out;
  for (const char c : text.substr(0, limit)) {
    if (c >= 0x20 && c < 0x7f && c != '\\') {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (text.size() > limit) out += "...";
  return out;
}

}  // namespace tarry
