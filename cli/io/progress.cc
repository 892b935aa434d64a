#include "cli/io/progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include <fmt/core.h>

#include "cli/io/number_text.h"

namespace tarry::cli {

using namespace std::chrono_literals;

Progress::Progress(std::string what)
    : what_(std::move(what)),
      is_terminal_(::isatty(STDERR_FILENO) == 1),
      next_(std::chrono::steady_clock::now() + 1s) {}

void Progress::at(std::uint64_t count) {
  if (!is_terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  // Five times a second: it may be called for each record.
  if (now < next_) return;
  next_ = now + 200ms;
  shown_ = true;
  // The rest of the line is erased, because the text may have become shorter.
  fmt::print(stderr, "\r{} {}\x1b[K", grouped(count), what_);
  std::fflush(stderr);
}

void Progress::clear() {
  if (std::exchange(shown_, false)) fmt::print(stderr, "\r\x1b[K");
}

}  // namespace tarry::cli
