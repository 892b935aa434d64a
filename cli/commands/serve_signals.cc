#include "cli/commands/serve_signals.h"

#include <csignal>
#include <cstring>

#include "base/log.h"

namespace tarry::cli {
namespace {

sigset_t awaited_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGHUP);
  return signals;
}

// Nothing is initialised yet when it runs: it uses the C library's signals and strings only.
void take_signals(int count, char** words, char** /*environment*/) {
  const auto is_command = [&](const char* name) {
    return count >= 2 && std::strcmp(words[1], name) == 0;
  };
  if (!is_command("serve") && !is_command("relay")) return;
  // Each of these would end the process, SIGPIPE whenever a client goes while it is answered.
  for (const int ignored : {SIGPIPE, SIGUSR1, SIGUSR2}) ::signal(ignored, SIG_IGN);
  if (!is_command("serve")) return;  // The relay takes the others in its own way.
  const sigset_t signals = awaited_signals();
  // All threads inherit the mask, so sigwait() alone takes these.
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

// main() and the initialisers of globals would be too late: until then a process of this size has
// been loading for several milliseconds.
using FirstFunction = void (*)(int, char**, char**);
[[gnu::section(".preinit_array"), gnu::used]] const FirstFunction first_function = take_signals;

}  // namespace

const char* wait_for_end(const std::function<void()>& reload) {
  const sigset_t signals = awaited_signals();
  for (;;) {
    int signal = 0;
    if (::sigwait(&signals, &signal) != 0) continue;
    if (signal == SIGINT) return "SIGINT";
    if (signal == SIGTERM) return "SIGTERM";
    log_info("server",
             "SIGHUP: the certificates are read again; other settings are read only at a start");
    if (reload) reload();
  }
}

}  // namespace tarry::cli
