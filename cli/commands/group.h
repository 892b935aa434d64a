#pragma once

// tarry group: lists, shows, resets and deletes consumer groups, over the Kafka protocol.

#include "cli/command.h"

namespace tarry::cli {

void add_group_commands(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
