#pragma once

// tarry completion and tarry man: scripts for bash, zsh and fish, and the man pages; and what those
// scripts ask at each press of Tab.
//
// completion.h decides which words can follow; here is the command around it.  An answer must come
// while a person waits and must not disturb the line, so a broker that does not answer leaves names
// out, and nothing is written to stderr.  On the main thread.

#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"

namespace tarry::cli {

// `tarry completion`, and `tarry man`, which is for packages and not in the help.
void add_completion(CLI::App& program, Chosen& chosen);

// `tarry __complete [--line LINE | -- WORD...]`, which the shells' scripts run: prints what can
// stand in the place of the last word, and returns the exit status.  Empty: the words say something
// else.
std::optional<int> answer_completion(const CLI::App& program,
                                     const std::vector<std::string>& words);

}  // namespace tarry::cli
