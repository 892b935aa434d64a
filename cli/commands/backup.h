#pragma once

// tarry backup: a consistent copy of a running broker.

#include "cli/command.h"

namespace tarry::cli {

void add_backup(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
