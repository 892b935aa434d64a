#include "server/listener_config.h"

#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "base/ascii_case.h"
#include "base/list_text.h"
#include "base/log.h"

namespace tarry::server {
namespace {

using broker::SecurityProtocol;

// Each is a socket, and its settings are read for every one.
constexpr std::size_t max_listeners = 32;

constexpr std::array<std::pair<std::string_view, SecurityProtocol>, 4> protocol_names{
    {{"PLAINTEXT", SecurityProtocol::plaintext},
     {"SSL", SecurityProtocol::ssl},
     {"SASL_PLAINTEXT", SecurityProtocol::sasl_plaintext},
     {"SASL_SSL", SecurityProtocol::sasl_ssl}}};

constexpr std::string_view allowed_listeners =
    "NAME://HOST:PORT, with commas between several, as in "
    "PLAINTEXT://localhost:9092,EXTERNAL://:9093, PORT from 0 to 65535";
constexpr std::string_view allowed_map =
    "NAME:PROTOCOL, with commas between several, each name once, PROTOCOL one of PLAINTEXT, SSL, "
    "SASL_PLAINTEXT and SASL_SSL";

std::vector<std::string_view> split_list(std::string_view list) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto comma = std::min(list.find(','), list.size());
    parts.push_back(trimmed(list.substr(0, comma)));
    if (comma == list.size()) return parts;
    list.remove_prefix(comma + 1);
  }
}

bool is_listener_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

Result<std::vector<NamedAddress>> parse_addresses(std::string_view value) {
  const auto refuse = [] { return fail(Errc::invalid, std::string(allowed_listeners)); };
  std::vector<NamedAddress> parsed;
  for (auto part : split_list(value)) {
    NamedAddress one;
    if (const auto end = part.find("://"); end != std::string_view::npos) {
      if (!is_listener_name(part.substr(0, end))) return refuse();
      // Names are compared in capitals, because in keys they stand in small letters.
      one.name = in_capitals(part.substr(0, end));
      part.remove_prefix(end + 3);
    }
    auto address = parse_host_port(part);
    if (!address) return refuse();
    one.address = std::move(*address);
    parsed.push_back(std::move(one));
  }
  // An address alone means the only listener.
  if (parsed.size() > max_listeners ||
      (parsed.size() > 1 && std::ranges::any_of(parsed, &std::string::empty, &NamedAddress::name)))
    return refuse();
  std::vector<std::string_view> names;
  for (const auto& one : parsed) {
    if (std::ranges::find(names, one.name) != names.end()) {
      return fail(Errc::invalid,
                  fmt::format("each name once ({} is given twice); a further address needs a "
                              "name of its own, and its protocol in "
                              "listener.security.protocol.map",
                              one.name));
    }
    names.push_back(one.name);
  }
  return parsed;
}

// IPv4 and IPv6 have ports of their own.
bool is_ipv6(const HostPort& address) {
  return address.host.contains(':');
}

std::string names_of(const std::vector<ListenerConfig>& listeners) {
  std::string names;
  for (const auto& each : listeners) names += (names.empty() ? "" : ", ") + each.name;
  return names;
}

ListenerConfig* find_listener(std::vector<ListenerConfig>& listeners, std::string_view name) {
  const auto found = std::ranges::find(listeners, name, &ListenerConfig::name);
  return found == listeners.end() ? nullptr : &*found;
}

Result<> put_advertised(const ListenerKeys& keys, std::vector<ListenerConfig>& listeners) {
  for (const auto& [name, address] : keys.advertised) {
    // An address without a name belongs to the only listener, whatever that is called.
    auto* const listener =
        name.empty() && listeners.size() == 1 ? &listeners[0] : find_listener(listeners, name);
    if (listener == nullptr) {
      return fail(Errc::invalid,
                  fmt::format("advertised.listeners={}: there is no listener {}; give one of {} "
                              "(listeners)",
                              listeners_text(keys.advertised),
                              name.empty() ? "without a name" : name, names_of(listeners)));
    }
    listener->advertise = address;
  }
  return {};
}

}  // namespace

std::string in_capitals(std::string_view text) {
  std::string capitals(text);
  for (char& c : capitals) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return capitals;
}

std::string_view text_of(SecurityProtocol protocol) {
  for (const auto& [name, value] : protocol_names) {
    if (value == protocol) return name;
  }
  return {};
}

std::string listeners_text(std::span<const NamedAddress> listeners) {
  std::string text;
  for (const auto& each : listeners) {
    if (!text.empty()) text += ',';
    if (!each.name.empty()) text += each.name + "://";
    text += each.address.text();
  }
  return text;
}

std::string_view ListenerConfig::setting(std::string_view key) const {
  const auto found = settings.find(key);
  return found == settings.end() ? std::string_view() : std::string_view(found->second);
}

std::string_view ListenerConfig::tls_setting(std::string_view key) const {
  return setting(fmt::format("{}{}", tls_prefix, key));
}

std::string ListenerConfig::tls_place() const {
  return tls_prefix == "ssl." ? fmt::format("listener {}: ", name) : std::string();
}

bool authenticates_clients(const ListenerConfig& listener) {
  return has_sasl(listener.protocol) ||
         (has_tls(listener.protocol) && listener.tls_setting("client.auth") == "required");
}

std::vector<std::string> idle_mechanisms(const ListenerConfig& listener) {
  if (!has_sasl(listener.protocol)) return {};
  std::vector<std::string> warnings;
  bool has_mechanism = false;
  for (auto rest = listener.setting("sasl.enabled.mechanisms"); !rest.empty();) {
    const auto name = in_capitals(take_element(rest, ','));
    if (name.empty() || name == "GSSAPI") continue;
    has_mechanism = true;
    if (name != "PLAIN" || listener.setting("plain.sasl.jaas.config").contains("user_")) continue;
    std::string prefix = listener.name;
    std::ranges::transform(prefix, prefix.begin(), ascii_lower);
    warnings.push_back(
        fmt::format("listener {}: nobody can log in by PLAIN: give its users in "
                    "listener.name.{}.plain.sasl.jaas.config",
                    listener.name, prefix));
  }
  if (!has_mechanism) {
    warnings.push_back(
        fmt::format("listener {}: nobody can log in: sasl.enabled.mechanisms is GSSAPI, Kafka's "
                    "default, which Tarry does not have; give PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 "
                    "or OAUTHBEARER",
                    listener.name));
  }
  return warnings;
}

Result<std::vector<NamedAddress>> parse_listeners(std::string_view value) {
  auto parsed = parse_addresses(value);
  if (!parsed) return parsed;
  for (auto& one : *parsed) {
    if (one.name.empty()) one.name = "PLAINTEXT";
  }
  for (auto a = parsed->begin(); a != parsed->end(); ++a) {
    for (auto b = parsed->begin(); b != a; ++b) {
      // Port 0 is another free port for each of them.
      if (a->address.port == 0 || a->address.port != b->address.port) continue;
      // As in Kafka, a port stands twice only where one address is IPv4 and the other IPv6.
      if (is_ipv6(a->address) != is_ipv6(b->address) && !a->address.host.empty() &&
          !b->address.host.empty())
        continue;
      return fail(Errc::invalid, fmt::format("each port once (both {} and {} have {})", b->name,
                                             a->name, a->address.port));
    }
  }
  return parsed;
}

Result<std::vector<NamedAddress>> parse_advertised_listeners(std::string_view value) {
  if (value.empty()) return std::vector<NamedAddress>();
  auto parsed = parse_addresses(value);
  if (!parsed) return parsed;
  for (const auto& one : *parsed) {
    if (one.address.host.empty() || one.address.host == "0.0.0.0" || one.address.host == "::") {
      return fail(Errc::invalid,
                  "NAME://HOST:PORT with a host that clients can reach (port 0: the listener's), "
                  "with commas between several");
    }
  }
  return parsed;
}

Result<std::map<std::string, SecurityProtocol>> parse_protocol_map(std::string_view value) {
  std::map<std::string, SecurityProtocol> map;
  if (!value.empty()) {
    for (const auto part : split_list(value)) {
      const auto colon = part.find(':');
      const auto name = trimmed(part.substr(0, colon));
      const auto protocol = colon == std::string_view::npos
                                ? std::string()
                                : in_capitals(trimmed(part.substr(colon + 1)));
      const auto found = std::ranges::find(protocol_names, protocol,
                                           &std::pair<std::string_view, SecurityProtocol>::first);
      if (!is_listener_name(name) || found == protocol_names.end() ||
          !map.emplace(in_capitals(name), found->second).second)
        return fail(Errc::invalid, std::string(allowed_map));
    }
  }
  // emplace() replaces nothing, so a name that the map gives keeps its protocol.
  for (const auto& [name, protocol] : protocol_names) map.emplace(std::string(name), protocol);
  return map;
}

Result<std::vector<ListenerConfig>> resolve_listeners(const ListenerKeys& keys) {
  std::vector<ListenerConfig> listeners;
  for (const auto& [name, address] : keys.listeners) {
    if (!keys.protocols.contains(name)) {
      return fail(Errc::invalid,
                  fmt::format("listeners={}: the protocol of {} is not known; add {}:PLAINTEXT, "
                              "SSL, SASL_PLAINTEXT or SASL_SSL to listener.security.protocol.map",
                              listeners_text(keys.listeners), name, name));
    }
    ListenerConfig listener{.name = name,
                            .protocol = keys.protocols.at(name),
                            .listen = address,
                            .advertise = {},
                            .settings = keys.settings,
                            .tls_prefix = "ssl."};
    // As in Kafka, only the key with the listener's prefix asks for certificates on SASL_SSL.
    if (has_sasl(listener.protocol)) listener.settings.erase("ssl.client.auth");
    // After the settings of all listeners, over which they take precedence.
    if (const auto own = keys.of_listener.find(name); own != keys.of_listener.end()) {
      for (const auto& [key, value] : own->second) listener.settings.insert_or_assign(key, value);
    }
    listeners.push_back(std::move(listener));
  }
  if (auto put = put_advertised(keys, listeners); !put) return std::unexpected(put.error());
  // A misspelt listener's name would otherwise leave its settings without effect, and nobody would
  // notice.
  for (const auto& [name, settings] : keys.of_listener) {
    if (find_listener(listeners, name) != nullptr) continue;
    return fail(Errc::invalid,
                fmt::format("listener.name.{}.{}: there is no listener of this "
                            "name; give one of {} (listeners)",
                            printable(name), settings.begin()->first, names_of(listeners)));
  }
  if (!keys.inter_broker.empty() && find_listener(listeners, keys.inter_broker) == nullptr) {
    return fail(Errc::invalid, fmt::format("inter.broker.listener.name={}: there is no listener of "
                                           "this name; give one of {} (listeners)",
                                           keys.inter_broker, names_of(listeners)));
  }
  return listeners;
}

std::optional<std::pair<std::string_view, std::string_view>> split_listener_key(
    std::string_view key) {
  constexpr std::string_view prefix = "listener.name.";
  if (!key.starts_with(prefix)) return std::nullopt;
  key.remove_prefix(prefix.size());
  const auto dot = key.find('.');
  if (dot == std::string_view::npos || !is_listener_name(key.substr(0, dot))) return std::nullopt;
  return std::pair(key.substr(0, dot), key.substr(dot + 1));
}

}  // namespace tarry::server
