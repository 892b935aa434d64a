#pragma once

// ListenerConfig: one of the addresses where clients connect, with everything that holds for it.
//
//   listeners=INTERNAL://:9092,EXTERNAL://:9093               names and addresses
//   advertised.listeners=EXTERNAL://broker.example:9093       what clients are told
//   listener.security.protocol.map=INTERNAL:PLAINTEXT,...     names to protocols
//   ssl.*, sasl.*                                             for every listener
//   listener.name.external.ssl.*, .sasl.*                     for one; takes precedence
//
// Names are compared without regard to case, as in Kafka, and kept in capitals.

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "broker/context/listener_info.h"
#include "server/address.h"

namespace tarry::server {

struct ListenerConfig {
  std::string name = "PLAINTEXT";
  broker::SecurityProtocol protocol = broker::SecurityProtocol::plaintext;
  HostPort listen{"localhost", 9092};
  std::optional<HostPort> advertise;  // Port 0: the one that was found.
  // The ssl.* and sasl.* settings that hold for it, without the prefix; only what was given.
  std::map<std::string, std::string, std::less<>> settings;

  // The prefix of its TLS settings' names: "ssl.", and for the admin "tarry.admin.tls.".
  std::string_view tls_prefix = "ssl.";

  // Empty: not given.
  std::string_view setting(std::string_view key) const;
  // "keystore.location" --> that of ssl.keystore.location.
  std::string_view tls_setting(std::string_view key) const;
  // "listener EXTERNAL: ", and nothing for the admin; what an error about its TLS begins with.
  std::string tls_place() const;
};

// Whether every client has to log in or to show a certificate.
bool authenticates_clients(const ListenerConfig& listener);

// The mechanisms of its logins by which nobody can log in, as warnings that say what to do; such a
// listener may be meant for users that are added later, so it is no error.
std::vector<std::string> idle_mechanisms(const ListenerConfig& listener);

struct NamedAddress {
  std::string name;  // Empty: an address alone.
  HostPort address;
};

// The values of the listeners' keys, each by itself; resolve_listeners() puts them together.
struct ListenerKeys {
  std::vector<NamedAddress> listeners;
  std::vector<NamedAddress> advertised;
  std::map<std::string, broker::SecurityProtocol> protocols;  // listener.security.protocol.map
  std::string inter_broker;                                   // inter.broker.listener.name
  std::map<std::string, std::string, std::less<>> settings;   // For every listener.
  std::map<std::string, std::map<std::string, std::string, std::less<>>> of_listener;
};

// "NAME://HOST:PORT,..." or one "HOST:PORT"; the errors say what is allowed.
Result<std::vector<NamedAddress>> parse_listeners(std::string_view value);
Result<std::vector<NamedAddress>> parse_advertised_listeners(std::string_view value);
// "NAME:PROTOCOL,...", added to the protocols' own names.
Result<std::map<std::string, broker::SecurityProtocol>> parse_protocol_map(std::string_view value);

// The error names key and value.
Result<std::vector<ListenerConfig>> resolve_listeners(const ListenerKeys& keys);

// "external" and "ssl.keystore.key" of "listener.name.external.ssl.keystore.key"; nullopt: the key
// does not begin so.
std::optional<std::pair<std::string_view, std::string_view>> split_listener_key(
    std::string_view key);

// "PLAINTEXT://127.0.0.1:9092,EXTERNAL://0.0.0.0:9093"
std::string listeners_text(std::span<const NamedAddress> listeners);
std::string_view text_of(broker::SecurityProtocol protocol);
std::string in_capitals(std::string_view text);

}  // namespace tarry::server
