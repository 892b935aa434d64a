#pragma once

// tarry bench: what things cost on this machine.

#include "cli/command.h"

namespace tarry::cli {

void add_bench(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
