#pragma once

// tarry help and tarry version: the help of any command, from the tree of commands itself
// (command_tree.h), so that no text is written twice.
//
// Needs neither a broker nor a data directory.  On the main thread, as every command.

#include "cli/command.h"

namespace tarry::cli {

void add_help(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
