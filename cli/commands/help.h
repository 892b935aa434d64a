#pragma once

#include "cli/command.h"

namespace tarry::cli {

// `tarry help`, `tarry version`
void add_help(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
