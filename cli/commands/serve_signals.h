#pragma once

// The signals of `tarry serve`.  None of them ends the process without a line in the log: from the
// first function that the process runs, before its libraries and globals are initialised, SIGTERM,
// SIGINT and SIGHUP are blocked until wait_for_end() takes them, and SIGPIPE, SIGUSR1 and SIGUSR2
// are ignored.  That function is an entry of the program's DT_PREINIT_ARRAY (System V ABI,
// "Initialization and Termination Functions"), so it works wherever this file is linked in.  For
// `tarry relay`, which stops by itself on SIGTERM and SIGINT, the three are ignored as well; the
// other commands keep the signals as they were.
//
// Threads inherit both.  A child process would inherit both too; `serve` starts none.

#include <functional>

namespace tarry::cli {

// Waits for SIGTERM or SIGINT and returns the name.  SIGHUP comes from logrotate, from `systemctl
// reload` and from a terminal that is closed; none of them means that the broker should stop, so
// `reload` is called.
const char* wait_for_end(const std::function<void()>& reload = {});

}  // namespace tarry::cli
