#pragma once

// SaslExchange: the state of a client's login, from SaslHandshake on.
//
// A login may be bounded in time (KIP-368).  The client is told for how long it holds, and logs in
// again on the same connection, as the same user by the same mechanism; its other requests go on
// before and after.  One that does not is closed at its next request.

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

#include "base/clock.h"

#include "broker/security/scram_exchange.h"

namespace tarry::broker {

struct SaslExchange {
  std::string mechanism;
  std::optional<ScramExchange> scram;
  // A token was refused.  The client is told so in OAUTHBEARER's own way, and its next message,
  // whatever that is, ends the login.
  bool token_refused = false;
};

// A client logs in again no earlier than so, as in Kafka.
inline constexpr std::chrono::seconds min_login_interval{1};

// More than anybody wants, and a number of nanoseconds that can be added to a time.
inline constexpr std::chrono::hours max_login_lifetime{24 * 3650};

// How long a login is valid: until its credential expires, and no longer than
// connections.max.reauth.ms if that is not 0.  Nullopt: for as long as the client is connected.
inline std::optional<std::chrono::milliseconds> login_lifetime(std::chrono::milliseconds max,
                                                               std::optional<WallTime> expires,
                                                               WallTime now) {
  if (!expires && max.count() <= 0) return std::nullopt;
  std::chrono::milliseconds lifetime = max_login_lifetime;
  if (max.count() > 0) lifetime = std::min(lifetime, max);
  if (expires) lifetime = std::min(lifetime, *expires - now);
  return std::max(lifetime, std::chrono::milliseconds{0});
}

}  // namespace tarry::broker
