#pragma once

#include "cli/command.h"

namespace tarry::cli {

// `tarry config get`, `set`
void add_config_commands(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
