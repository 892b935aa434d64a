#pragma once

#include "cli/command.h"

namespace tarry::cli {

// `tarry doctor`
void add_doctor(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
