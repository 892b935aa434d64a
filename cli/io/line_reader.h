#pragma once

// LineReader: reads a file or a pipe line by line, and lets its owner work while nothing comes.
//
// Invariant: memory holds one line, of at most max_line_bytes, and one piece of the file.
//
// It belongs to one command.  One thread.

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tarry::cli {

class LineReader {
 public:
  // More than a Kafka record can hold; without a limit a file without newlines would fill the
  // memory.
  static constexpr std::size_t max_line_bytes = std::size_t{64} << 20;

  // `name` is for errors.  `while_waiting` is called again and again, every few milliseconds, while
  // there is nothing to read.  The descriptor is not closed.
  LineReader(int descriptor, std::string name, std::function<void()> while_waiting = {});

  // The next line without its newline, valid until the next call; empty at the end.  The last one
  // need not have a newline.  An interrupt (interrupt.h) ends it too, and then drops a line that is
  // not whole.
  // Errors: io, too_large.
  Result<std::optional<std::string_view>> next();

 private:
  Result<bool> read_more();  // False at the end.

  const int descriptor_;
  const std::string name_;
  const std::function<void()> while_waiting_;
  std::string buffer_;
  std::size_t from_ = 0;     // The next line begins here in buffer_.
  std::size_t scanned_ = 0;  // No newline before this; >= from_.
  std::size_t lines_ = 0;
  bool at_end_ = false;
};

}  // namespace tarry::cli
