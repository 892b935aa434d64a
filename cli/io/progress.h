#pragma once

// Progress: how far a command is, on stderr, while it works.
//
// It belongs to the command.  One thread.

#include <chrono>
#include <cstdint>
#include <string>

namespace tarry::cli {

// "12 345 records" on stderr, over and over on one line, when stderr is a terminal and the work has
// lasted a second.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void at(std::uint64_t count);
  void clear();  // Takes the line away; what is printed next is in its place.

 private:
  const std::string what_;
  const bool is_terminal_;
  std::chrono::steady_clock::time_point next_;
  bool shown_ = false;
};

}  // namespace tarry::cli
