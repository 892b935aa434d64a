#pragma once

// tarry topic: topics over the Kafka protocol: create, list, describe, alter, delete.

#include "cli/command.h"

namespace tarry::cli {

void add_topic(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
