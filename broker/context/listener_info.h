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
#include <string>
#include <vector>

namespace tarry::broker {

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
  // The sasl.* settings that hold for this listener, by their names without "listener.name.NAME.":
  // "sasl.enabled.mechanisms", "plain.sasl.jaas.config".  Only what was given.
  std::map<std::string, std::string> sasl_settings;
};

struct ConnectionOrigin {
  std::shared_ptr<const ListenerInfo> listener;  // Null: an unnamed PLAINTEXT one (tests).
  // The name in the client's certificate after ssl.principal.mapping.rules, "CN=alice,O=Example";
  // empty without TLS or without a certificate.  On an SSL listener the principal is
  // User:<this>, or User:ANONYMOUS if it is empty; on a SASL listener it is of no account.
  std::string tls_principal;
  // The user who has logged in over SASL; empty until then.
  std::string sasl_user;
};

}  // namespace tarry::broker
