#pragma once

// LogThread: while it lives, what goes to stderr is written by a thread of its own.
//
//   log_warn(), write_to_stderr() --> [ queue, at most max_bytes ] --> thread --> write(2)
//                                          '-- full: dropped and counted
//
// A pipe that nobody reads, or a terminal that is stopped, holds up that thread and nobody else.
// Lines that find the queue full are dropped; as soon as lines can be written again, one line says
// how many were dropped, at the place where they are missing.  Without a LogThread each caller
// writes its line itself, and may wait for the reader.
//
// What always holds
//   - Lines are written whole and in the order of the calls.
//   - At most 2 * max_bytes are held: what is queued, and what the thread is writing.
//   - A line holds no control characters, whoever wrote it: see escape_control_characters().

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace tarry {

class LogQueue;

class LogThread {
 public:
  static constexpr std::size_t default_max_bytes = std::size_t{1} << 20;

  // One at a time in a process.
  explicit LogThread(int descriptor = 2, std::size_t max_bytes = default_max_bytes);
  // Writes what is queued, but gives up when nothing could be written for so long.
  ~LogThread();
  LogThread(const LogThread&) = delete;
  LogThread& operator=(const LogThread&) = delete;

  static constexpr std::chrono::milliseconds patience{2000};

 private:
  std::shared_ptr<LogQueue> queue_;  // The thread's too: it is left behind when it cannot write.
};

// Waits until the lines of before are written or dropped.  False: none could be written for
// `patience`.  True at once without a LogThread.  For a process that ends by _exit().
bool flush_log(std::chrono::milliseconds patience = LogThread::patience);

// A line that is no line of the log, behind those that are; without its newline.
void write_to_stderr(std::string_view line);

// What printable() does, for a whole line in case that a value came without it.  Only backslashes
// stay as they are: those of values that went through printable() begin its escapes.
std::string escape_control_characters(std::string_view line);

}  // namespace tarry
