#pragma once

// `tarry repair`: finds what is damaged in a data directory that no broker uses, and repairs it.

#include "cli/command.h"

namespace tarry::cli {

void add_repair(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
