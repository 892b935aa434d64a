#pragma once

// The rows of config_keys.h for SASL and for who may do what.

#include <vector>

#include "server/config_key.h"

namespace tarry::server {

std::vector<ConfigKey> security_keys();

}  // namespace tarry::server
