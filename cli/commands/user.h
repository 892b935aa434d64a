#pragma once

// tarry user: adds, lists and deletes the users of SCRAM, over the Kafka protocol.

#include "cli/command.h"

namespace tarry::cli {

void add_user_commands(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
