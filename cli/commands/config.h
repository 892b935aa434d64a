#pragma once

// tarry config get and set: the settings of a topic or a broker, and the quotas of users and
// clients, over the Kafka protocol.
//
// It knows no setting by name: names, sources and refusals come from the broker that is asked, so
// it also serves brokers of other versions, and Kafka's.  On the main thread.

#include "cli/command.h"

namespace tarry::cli {

void add_config_commands(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
