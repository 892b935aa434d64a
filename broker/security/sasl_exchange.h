#pragma once

// SaslExchange: how far a client is with its login, from SaslHandshake on.

#include <optional>
#include <string>

#include "broker/security/scram_exchange.h"

namespace tarry::broker {

struct SaslExchange {
  std::string mechanism;
  std::optional<ScramExchange> scram;
};

}  // namespace tarry::broker
