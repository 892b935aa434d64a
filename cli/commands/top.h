#pragma once

#include "cli/command.h"

namespace tarry::cli {

// `tarry top`
void add_top(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
