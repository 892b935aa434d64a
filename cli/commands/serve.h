#pragma once

// tarry serve: runs a broker until SIGTERM or SIGINT.

#include "cli/command.h"

namespace tarry::cli {

void add_serve(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
