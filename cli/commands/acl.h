#pragma once

// tarry acl: adds, lists and deletes rules of who may do what, over the Kafka protocol.

#include "cli/command.h"

namespace tarry::cli {

void add_acl_commands(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
