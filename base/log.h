#pragma once

// The log for the operator: one line for each event, on stderr, with the folder's name as category.
//
//   log_warn("storage", "partition {} is fenced: {}", name, why);
//
// A line names the thing and its value.  Text that came from the network goes through printable(),
// so that no client can forge a log line; control characters are never written.

#include <string>
#include <string_view>

#include <fmt/core.h>

namespace tarry {

enum class LogLevel { debug, info, warn, error, off };

void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);
void write_log(LogLevel level, const char* category, std::string_view line);

// Returns at most `limit` bytes of `text`.  Control characters, backslashes and bytes that are not
// UTF-8 are written as \xNN.
std::string printable(std::string_view text, std::size_t limit = 256);

template <typename... Args>
void log_at(LogLevel level, const char* category, fmt::format_string<Args...> format,
            Args&&... args) {
  if (log_enabled(level))
    write_log(level, category, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_debug(const char* category, fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::debug, category, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_info(const char* category, fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::info, category, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_warn(const char* category, fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::warn, category, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_error(const char* category, fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::error, category, format, std::forward<Args>(args)...);
}

}  // namespace tarry
