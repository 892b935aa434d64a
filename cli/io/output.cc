#include "cli/io/output.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

#include <fmt/core.h>

#include "cli/io/exit_status.h"

namespace tarry::cli {

namespace {

std::size_t width_of_terminal(int descriptor) {
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 0;
}

}  // namespace

Output::Output(std::FILE* file)
    : file_(file),
      is_terminal_(::isatty(::fileno(file)) == 1),
      width_(is_terminal_ ? width_of_terminal(::fileno(file)) : 0),
      has_colours_(is_terminal_ && colours_allowed()) {
  // `tarry ... | head` would end the process before it can say what it has done.
  std::signal(SIGPIPE, SIG_IGN);
}

void Output::write(std::string_view text) {
  // The first error stays: those that follow are its consequences.
  if (error_ == 0 && std::fwrite(text.data(), 1, text.size(), file_) != text.size()) error_ = errno;
}

void Output::flush() {
  if (error_ == 0 && std::fflush(file_) != 0) error_ = errno;
  // poll() reports that the reader of a pipe is gone even when nothing was written.
  pollfd reader{::fileno(file_), 0, 0};
  if (error_ == 0 && ::poll(&reader, 1, 0) == 1 && (reader.revents & POLLERR) != 0) error_ = EPIPE;
}

int Output::end(int status) {
  flush();
  if (error_ == 0) return status;
  // A reader that has gone wanted no more, which is no failure.
  if (error_ == EPIPE) return status == failed ? failed : done;
  return failure(fmt::format("standard output: {}", std::generic_category().message(error_)));
}

}  // namespace tarry::cli
