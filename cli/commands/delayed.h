#pragma once

// tarry delayed: pending records: list, get, cancel.

#include "cli/command.h"

namespace tarry::cli {

void add_delayed(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
