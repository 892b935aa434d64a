#pragma once

// tarry dump: shows what is in files and messages, offline.

#include "cli/command.h"

namespace tarry::cli {

void add_dump(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
