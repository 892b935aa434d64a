#pragma once

// The rows of config_keys.h for listeners and TLS.

#include <vector>

#include "server/config_key.h"

namespace tarry::server {

std::vector<ConfigKey> listener_keys();
std::vector<ConfigKey> tls_keys();
std::vector<ConfigKey> admin_tls_keys();

// A key that each listener has, as text: `check` says whether a value is allowed.  It is one for
// all of them, and may stand behind "listener.name.NAME." for one.
ConfigKey per_listener_key(std::string_view name, std::string_view fallback,
                           broker::ConfigType type, std::string_view reason,
                           std::function<Result<>(std::string_view)> check);

}  // namespace tarry::server
