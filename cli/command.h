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
// CLI11 reads the command line; nothing runs before all of it is understood.  The return value of
// run() is the exit status (io/exit_status.h).  A word that has its place but is wrong (a time that
// is no time) is wrong usage too: return usage_error() from run().

#include <functional>
#include <string>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

namespace tarry::cli {

// The command that the words have chosen.
struct Chosen {
  std::function<int()> run;
};

}  // namespace tarry::cli
