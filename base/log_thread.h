#pragma once

// LogThread: while it lives, what goes to stderr is written by a thread of its own.
//
//   log_warn(), write_to_stderr() --> [ queue, at most max_bytes ] --> thread --> write(2)
//                                          '-- full: dropped and counted
//
// A pipe that nobody reads, or a stopped terminal, blocks that thread and no other.  Lines that
// find the queue full are dropped; as soon as lines can be written again, one line says how many
// were dropped, at the place where they are missing.  Without a LogThread each caller writes its
// line itself, and may wait for the reader.
//
// Invariants
//   - Lines are written whole and in the order of the calls.
//   - At most 2 * max_bytes are held: the queue, and the lines that the thread is writing.
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
  // Writes the queued lines, but gives up when nothing could be written for `patience`.
  ~LogThread();
  LogThread(const LogThread&) = delete;
  LogThread& operator=(const LogThread&) = delete;

  static constexpr std::chrono::milliseconds patience{2000};

 private:
  std::shared_ptr<LogQueue> queue_;  // The thread's too: it is left behind when it cannot write.
};

// Waits until all earlier lines are written or dropped.  Returns false when no line could be
// written for `patience`, and true at once when there is no LogThread.  A process that ends by
// _exit() calls it.
bool flush_log(std::chrono::milliseconds patience = LogThread::patience);

// Writes a line that does not belong to the log, after the queued log lines.  `line` has no
// newline.
void write_to_stderr(std::string_view line);

// Does what printable() does for a whole line, in case a value was not passed through it.
// Backslashes stay as they are: those in values that were passed through printable() begin its
// escapes.
std::string escape_control_characters(std::string_view line);

}  // namespace tarry
