#include "cli/stop_limit.h"

#include <poll.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <string>

#include <fmt/core.h>

#include "cli/io/exit_status.h"

namespace tarry::cli {
namespace {

// A signal handler may not format text, so it is made before.
std::array<char, 160> text;
std::size_t text_size = 0;

void end_now(int) {
  // A pipe that nobody reads must not delay the end.
  pollfd writable{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&writable, 1, 1000) != 1) ::_exit(failed);
  if (::write(STDERR_FILENO, text.data(), text_size) < 0) ::_exit(failed);
  ::_exit(failed);
}

}  // namespace

void exit_after(std::chrono::milliseconds limit) {
  const std::string said = fmt::format(
      "tarry: the broker did not stop within {} ms; everything acknowledged is in the journal\n",
      limit.count());
  text_size = said.copy(text.data(), text.size());
  // The kernel's timer does it and no thread: when a stop hangs, nothing of ours can be relied on.
  struct sigaction late {};
  late.sa_handler = end_now;
  ::sigaction(SIGALRM, &late, nullptr);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  const auto rest = std::chrono::duration_cast<std::chrono::microseconds>(limit - seconds);
  itimerval timer{};
  timer.it_value.tv_sec = seconds.count();
  timer.it_value.tv_usec = rest.count();
  ::setitimer(ITIMER_REAL, &timer, nullptr);
}

}  // namespace tarry::cli
