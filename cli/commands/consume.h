#pragma once

// tarry consume: reads records of a topic.

#include "cli/command.h"

namespace tarry::cli {

void add_consume(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
