#pragma once

// tarry status: what a broker is doing.

#include "cli/command.h"

namespace tarry::cli {

void add_status(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
