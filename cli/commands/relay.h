#pragma once

// tarry relay: the delays beside a Kafka cluster.

#include "cli/command.h"

namespace tarry::cli {

void add_relay(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
