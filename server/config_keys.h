#pragma once

// The table of everything that may be set: the rows of all subjects, sorted.

#include <span>
#include <string_view>

#include "server/config_key.h"

namespace tarry::server {

// In the order of their names, Kafka's first.
std::span<const ConfigKey> config_keys();
const ConfigKey* find_config_key(std::string_view name);  // Null: there is no such key.
// The same for a name that may begin with "listener.name.NAME.", and behind that, if it is one of
// SASL, with a mechanism: listener.name.external.plain.sasl.jaas.config.
const ConfigKey* find_setting_key(std::string_view name);

}  // namespace tarry::server
