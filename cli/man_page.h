#pragma once

// The man page of a command, in roff's man macros, from what the command itself says.
//
//   tarry-topic(1)   NAME, SYNOPSIS, a section for each command of the group, what they share,
//                    EXAMPLES, EXIT STATUS, ENVIRONMENT, SEE ALSO
//
// The same program always gives the same page: there is no date in it.  Pure.

#include <string>

#include "cli/command.h"

namespace tarry::cli {

// The page of `command`, which is `program` itself or one of its commands.
std::string man_page(const CLI::App& program, const CLI::App& command);

}  // namespace tarry::cli
