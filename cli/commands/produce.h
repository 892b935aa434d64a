#pragma once

// tarry produce: sends records, at once or with a delivery time.

#include "cli/command.h"

namespace tarry::cli {

void add_produce(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
