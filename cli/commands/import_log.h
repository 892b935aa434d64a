#pragma once

// `tarry import-log`: takes the topics of an Apache Kafka broker that does not run from its log
// directories.

#include "cli/command.h"

namespace tarry::cli {

void add_import_log(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
