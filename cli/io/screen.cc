#include "cli/io/screen.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>

#include "base/assert.h"

namespace tarry::cli {
namespace {

// Another screen, no cursor; and back.
constexpr std::string_view enter_text = "\x1b[?1049h\x1b[?25l\x1b[2J";
constexpr std::string_view leave_text = "\x1b[0m\x1b[?25h\x1b[?1049l";

// Globals for the signal handlers, which have no other access.
int terminal_in = -1, terminal_out = -1;
termios terminal_before{}, terminal_during{};
volatile std::sig_atomic_t is_entered = 0, end_wanted = 0, was_resized = 0;

// Signal-safe, as are all functions that they call.
void write_whole(std::string_view text) {
  while (!text.empty()) {
    const auto written = ::write(terminal_out, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}
void enter() {
  ::tcsetattr(terminal_in, TCSANOW, &terminal_during);
  write_whole(enter_text);
  is_entered = 1;
}
void leave() {
  if (is_entered == 0) return;
  is_entered = 0;
  write_whole(leave_text);
  ::tcsetattr(terminal_in, TCSANOW, &terminal_before);
}

void end_by(int signal) {
  leave();
  std::signal(signal, SIG_DFL);
  // The signal is blocked within its handler, and ends the process when that returns.
  ::raise(signal);
}
void on_end(int signal) {
  if (end_wanted != 0) end_by(signal);
  end_wanted = 1;
}
void on_resize(int) {
  was_resized = 1;
}
void on_stop(int) {
  const int error = errno;
  leave();
  // The process stands still in here until it is continued.
  ::raise(SIGSTOP);
  enter();
  was_resized = 1;
  errno = error;
}

constexpr std::array ending{SIGINT, SIGTERM, SIGHUP};
constexpr std::array fatal{SIGQUIT, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

// Without SA_RESTART, so that a wait ends.
void set_handler(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  ::sigemptyset(&action.sa_mask);
  // A fatal signal that comes within its own handler must end the process.
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

Screen::Screen(int input, int output) : input_(input) {
  TARRY_ASSERT(terminal_in < 0, "there is one screen in a process");
  terminal_in = input;
  terminal_out = output;
  ::tcgetattr(input, &terminal_before);
  terminal_during = terminal_before;
  terminal_during.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  // read() never waits; poll() does.
  terminal_during.c_cc[VMIN] = 0;
  terminal_during.c_cc[VTIME] = 0;
  for (const int signal : ending) set_handler(signal, on_end);
  for (const int signal : fatal) set_handler(signal, end_by);
  set_handler(SIGTSTP, on_stop);
  set_handler(SIGWINCH, on_resize);
  std::signal(SIGPIPE, SIG_IGN);
  // For std::exit() from anywhere.
  std::atexit(leave);
  enter();
}

Screen::~Screen() {
  leave();
  for (const int signal : ending) std::signal(signal, SIG_DFL);
  for (const int signal : fatal) std::signal(signal, SIG_DFL);
  std::signal(SIGTSTP, SIG_DFL);
  std::signal(SIGWINCH, SIG_DFL);
  terminal_in = terminal_out = -1;
}

Screen::Size Screen::size() const {
  winsize size{};
  if (::ioctl(terminal_out, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return {80, 24};
  return {size.ws_col, size.ws_row};
}

bool Screen::show(std::string_view text) {
  // From the top, each line over the one that was there, so that nothing flickers.
  std::string out = "\x1b[H";
  for (const char c : text) {
    if (c == '\n') out += "\x1b[K\r";
    out += c;
  }
  out += "\x1b[K\x1b[J";
  write_whole(out);
  return ::isatty(terminal_out) == 1;
}

Screen::Event Screen::wait(std::chrono::milliseconds time, char& key) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (true) {
    if (end_wanted != 0) return Event::ended;
    if (was_resized != 0) {
      was_resized = 0;
      return Event::resized;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return Event::time;
    // A signal may come between the checks above and poll(), so it never waits for long.
    constexpr std::chrono::milliseconds longest{200};
    pollfd typed{input_, POLLIN, 0};
    if (::poll(&typed, 1, static_cast<int>(std::min(left, longest).count())) <= 0) continue;
    const auto got = ::read(input_, &key, 1);
    if (got == 1) return Event::key;
    if (got == 0 || errno != EINTR) return Event::ended;  // The terminal is gone.
  }
}

bool Screen::ended() const {
  return end_wanted != 0;
}

}  // namespace tarry::cli
