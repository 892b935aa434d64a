#pragma once

// ListenerInfo and ConnectionOrigin: what a connection knows of the listener that accepted it.
//
//   listeners=INTERNAL://:9092,EXTERNAL://:9093   one ListenerInfo each, constant from the start
//        |
//   accept --> TLS handshake --> ConnectionOrigin --> Connection --> handlers
//
// Clients are told the address of the listener that they asked, so that one broker can be reached
// by different names from inside and outside a network.
//
// A ListenerInfo is shared by all shards and never changes.  A ConnectionOrigin goes with its
// connection when that moves to another shard; everything that has to be known of a client for as
// long as it is connected belongs in it.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"

namespace tarry::broker {

class TokenLogins;

enum class SecurityProtocol { plaintext, ssl, sasl_plaintext, sasl_ssl };

constexpr bool has_tls(SecurityProtocol protocol) {
  return protocol == SecurityProtocol::ssl || protocol == SecurityProtocol::sasl_ssl;
}
constexpr bool has_sasl(SecurityProtocol protocol) {
  return protocol == SecurityProtocol::sasl_plaintext || protocol == SecurityProtocol::sasl_ssl;
}

struct ListenerInfo {
  std::string name = "PLAINTEXT";  // In capitals.
  SecurityProtocol protocol = SecurityProtocol::plaintext;
  // The address that its clients are told; an empty host: that of the BrokerIdentity.
  std::string advertised_host;
  std::int32_t advertised_port = 0;
  // sasl.enabled.mechanisms in capitals, without those that Tarry does not have; empty without
  // SASL.
  std::vector<std::string> mechanisms;
  // The settings of logins that hold for this listener, by their names without
  // "listener.name.NAME.": "sasl.enabled.mechanisms", "plain.sasl.jaas.config",
  // "connections.max.reauth.ms".  Only what was given.
  std::map<std::string, std::string> sasl_settings;

  std::shared_ptr<TokenLogins> token_logins;  // Null: no OAUTHBEARER.

  // The setting of a mechanism if there is one ("plain.sasl.jaas.config"), else the one for all;
  // empty: not given.
  std::string_view sasl_setting(std::string_view mechanism, std::string_view key) const;
};

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
