#pragma once

// How a command of `tarry` is made: one file each, with one function that main.cc lists.
//
//   void add_status(CLI::App& program, Chosen& chosen) {
//     auto* command = program.add_subcommand("status", "Shows what a broker is doing");
//     auto options = std::make_shared<Options>();
//     command->add_flag("--watch", options->watch, "Shows it again and again");
//     command->callback([options, &chosen] { chosen.run = [options] { return run(*options); }; });
//   }
//
// CLI11 reads the command line; nothing runs before all of it is understood.  What run() returns
// is the exit status: 0 done, 1 it did not happen (and one line on stderr, by complain(), says
// why), 2 usage.  A word that has its place but is wrong (a time that is no time) is usage too:
// return usage_error() from run().
//
// A command that is not there yet is not listed, so it is not in the help.

#include <functional>
#include <string>

#include <fmt/core.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "base/log_thread.h"

namespace tarry::cli {

// The command that the words have chosen.
struct Chosen {
  std::function<int()> run;
};

inline constexpr int done = 0;
inline constexpr int failed = 1;
inline constexpr int wrong_usage = 2;

// One line on stderr.
inline void complain(const std::string& line) {
  write_to_stderr("tarry: " + line);
}
inline int failure(const std::string& why) {
  complain(why);
  return failed;
}
inline int usage_error(const std::string& why) {
  complain(why);
  return wrong_usage;
}

}  // namespace tarry::cli
