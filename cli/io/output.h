#pragma once

// Output: what a command writes on stdout.
//
// Invariant: a reader that goes away (`| head`) ends a command quietly, as done; any other
// failure to write is reported once, by end().
//
// It belongs to the command.  One thread.

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "cli/io/style.h"

namespace tarry::cli {

// Buffered; flush() when nothing more comes for a while.
class Output {
 public:
  // Not the owner of `file`.  From now on SIGPIPE is ignored in this process.
  explicit Output(std::FILE* file = stdout);
  Output(std::FILE* file, bool is_terminal, std::size_t width = 0, bool has_colours = false)
      : file_(file), is_terminal_(is_terminal), width_(width), has_colours_(has_colours) {}

  bool is_terminal() const { return is_terminal_; }
  // Columns of the terminal; 0: not known, or it is none.
  std::size_t width() const { return width_; }
  // `text` in a colour, if this is a terminal that may have colours (style.h).
  std::string in(Style style, std::string_view text) const {
    return has_colours_ ? styled(style, text) : std::string(text);
  }
  void write(std::string_view text);
  void line(std::string_view text) {
    write(text);
    write("\n");
  }
  void flush();

  // Whether everything that was written so far has reached the file.
  bool flushed() {
    flush();
    return !is_over();
  }

  // Nobody reads any more, or the disk is full: there is no use in going on.
  bool is_over() const { return error_ != 0; }
  // Flushes, and returns the exit status of a command that otherwise ends with `status`.
  int end(int status);

 private:
  std::FILE* const file_;
  const bool is_terminal_;
  const std::size_t width_;
  const bool has_colours_;
  int error_ = 0;  // The errno of the first write that failed.
};

}  // namespace tarry::cli
