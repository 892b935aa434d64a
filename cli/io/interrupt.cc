#include "cli/io/interrupt.h"

#include <csignal>

namespace tarry::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;
volatile std::sig_atomic_t hung_up = 0;

}  // namespace

void end_in_order_on_signals() {
  interrupted = 0;
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = 1; };
  // Another signal of the same kind finds the default action.  Without SA_RESTART the first one
  // ends a read() or poll() that waits.
  action.sa_flags = SA_RESETHAND;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

bool was_interrupted() {
  return interrupted != 0;
}

void note_hangups() {
  struct sigaction action {};
  action.sa_handler = [](int) { hung_up = 1; };
  action.sa_flags = SA_RESTART;  // A call that waits goes on waiting.
  ::sigaction(SIGHUP, &action, nullptr);
}

bool take_hangup() {
  if (hung_up == 0) return false;
  hung_up = 0;
  return true;
}

}  // namespace tarry::cli
