#pragma once

// tarry explain: what a broker would make of a record with these headers.

#include "cli/command.h"

namespace tarry::cli {

void add_explain(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
