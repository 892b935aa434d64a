#pragma once

// How a command ends: its exit status, and the one line on stderr that says what went wrong.
//
//   0  done
//   1  it did not happen
//   2  the command line is wrong

#include <string>

#include "base/log_thread.h"

namespace tarry::cli {

inline constexpr int done = 0;
inline constexpr int failed = 1;
inline constexpr int wrong_usage = 2;

// One line on stderr; `serve` has a log thread, which writes it behind the lines before it.
inline void complain(const std::string& line) {
  write_to_stderr("tarry: " + line);
}
inline int failure(const std::string& why) {
  complain(why);
  return failed;
}
inline int usage_error(const std::string& why) {
  complain(why);
  return wrong_usage;
}

}  // namespace tarry::cli
