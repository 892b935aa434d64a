#pragma once

// ConnectionOrigin: what is known of a client for as long as it is connected.
//
//   accept --> TLS handshake --> ConnectionOrigin --> Connection --> handlers
//                                      ^                  |
//                                      '----- a login ----'
//
// It goes with its connection when that moves to another shard, so everything that the next shard
// has to know of the client belongs in it.  On the thread of the connection's shard.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/ids.h"
#include "broker/context/listener_info.h"

namespace tarry::broker {

// The traffic of a connection.
struct ConnectionUse {
  std::optional<MonoTime> since;  // Its handshake is over.
  std::uint64_t requests = 0;
  std::uint64_t bytes_in = 0;  // Without what TLS adds.
  std::uint64_t bytes_out = 0;
  std::string client_id;  // The id in its last request, cut off after 255 bytes.
};

struct ConnectionOrigin {
  std::shared_ptr<const ListenerInfo> listener;  // Null: an unnamed PLAINTEXT one (tests).
  // The name in the client's certificate after ssl.principal.mapping.rules, "CN=alice,O=Example";
  // empty without TLS or without a certificate.  On an SSL listener the principal is
  // User:<this>, or User:ANONYMOUS if it is empty; on a SASL listener it is of no account.
  std::string tls_principal;
  // The user who has logged in over SASL; empty until then.
  std::string sasl_user;
  std::string sasl_mechanism;  // The mechanism of that login.
  MonoTime logged_in_at{};     // When that was last.
  // Later than this the client has to log in again before it is served.
  std::optional<MonoTime> login_ends;
  ConnectionUse use = {};
  // The number of its principal; unknown_principal: nobody has asked yet.
  PrincipalId principal_id = unknown_principal;
};

}  // namespace tarry::broker
