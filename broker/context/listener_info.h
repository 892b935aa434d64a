#pragma once

// ListenerInfo: one of the addresses where clients connect, as handlers know it.
//
//   listeners=INTERNAL://:9092,EXTERNAL://:9093   one ListenerInfo each
//
// Clients are told the address of the listener that they asked, so that one broker can be reached
// by different names from inside and outside a network.
//
// Made before the listeners open, and never changed: all shards share it.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace tarry::broker
