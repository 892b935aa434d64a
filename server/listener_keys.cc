#include "server/listener_keys.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "server/config_values.h"
#include "server/connection_rates.h"
#include "server/listener_config.h"
#include "server/principal_rules.h"
#include "server/tls_settings.h"

namespace tarry::server {
namespace {

using broker::ConfigType;

Result<> set_listeners(Config& config, std::string_view value) {
  auto parsed = parse_listeners(value);
  if (!parsed) return std::unexpected(parsed.error());
  config.listener_keys.listeners = std::move(*parsed);
  return {};
}
Result<> set_advertised_listeners(Config& config, std::string_view value) {
  auto parsed = parse_advertised_listeners(value);
  if (!parsed) return std::unexpected(parsed.error());
  config.listener_keys.advertised = std::move(*parsed);
  return {};
}
Result<> set_protocol_map(Config& config, std::string_view value) {
  auto parsed = parse_protocol_map(value);
  if (!parsed) return std::unexpected(parsed.error());
  config.listener_keys.protocols = std::move(*parsed);
  return {};
}
Result<> set_inter_broker(Config& config, std::string_view value) {
  if (value.contains('\n')) return fail(Errc::invalid, "the name of a listener");
  config.listener_keys.inter_broker = in_capitals(value);
  return {};
}

bool is_one_line(std::string_view value) {
  return std::ranges::none_of(value, [](char c) { return static_cast<unsigned char>(c) < 0x20; });
}
std::function<Result<>(std::string_view)> any_line(std::string what) {
  return [what = std::move(what)](std::string_view value) -> Result<> {
    if (is_one_line(value)) return {};
    return fail(Errc::invalid, what);
  };
}
std::function<Result<>(std::string_view)> pem(std::string what) {
  return [what = std::move(what)](std::string_view value) -> Result<> {
    // A path by mistake would be read as a certificate, and fail much later.
    if (value.empty() || value.contains("-----BEGIN ")) return {};
    return fail(Errc::invalid, what);
  };
}
std::function<Result<>(std::string_view)> one_of(std::vector<std::string_view> words) {
  return [words = std::move(words)](std::string_view value) -> Result<> {
    if (std::ranges::find(words, value) != words.end()) return {};
    std::string text;
    for (std::size_t i = 0; i < words.size(); ++i)
      text += fmt::format("{}{}", i == 0 ? "" : i + 1 == words.size() ? " or " : ", ", words[i]);
    return fail(Errc::invalid, std::move(text));
  };
}
// Kafka refuses both with PEM: it is the key that has a password.
Result<> no_store_password(std::string_view value) {
  if (value.empty()) return {};
  return fail(Errc::invalid,
              "no text (a PEM file has no password, and that of the key is ssl.key.password)");
}
Result<> pem_alone(std::string_view value) {
  if (value == "PEM") return {};
  return fail(Errc::invalid, "PEM (`openssl pkcs12 -in store.p12 -out store.pem` converts others)");
}

ConfigKey admin_tls_key(std::string_view name, ConfigType type, std::string_view reason,
                        std::function<Result<>(std::string_view)> check) {
  const auto set = [name, check = std::move(check)](Config& config,
                                                    std::string_view value) -> Result<> {
    if (auto checked = check(value); !checked) return checked;
    auto& settings = config.admin_tls.settings;
    // A ListenerConfig begins with the prefix of listeners.
    config.admin_tls.tls_prefix = "tarry.admin.tls.";
    settings.erase(std::string(name));
    if (!value.empty()) settings.emplace(name, value);
    return {};
  };
  return {.name = name, .fallback = "", .unit = "", .type = type, .reason = reason, .set = set};
}

}  // namespace

ConfigKey per_listener_key(std::string_view name, std::string_view fallback, ConfigType type,
                           std::string_view reason,
                           std::function<Result<>(std::string_view)> check) {
  const auto set = [name, fallback, check = std::move(check)](Config& config,
                                                              std::string_view value) -> Result<> {
    if (auto checked = check(value); !checked) return checked;
    auto& settings = config.listener_keys.settings;
    // Only what differs from the default is kept, so the default in a higher layer takes back what
    // a lower one gave.
    if (value == fallback) {
      settings.erase(std::string(name));
    } else {
      settings.insert_or_assign(std::string(name), std::string(value));
    }
    return {};
  };
  return {.name = name,
          .fallback = fallback,
          .unit = "",
          .type = type,
          .reason = reason,
          .set = set,
          .is_dynamic = false,
          .is_per_listener = true};
}

std::vector<ConfigKey> listener_keys() {
  const auto check_rate = [](std::string_view value) -> Result<> {
    Config scratch;
    return number(1, max_int, [](Config&, std::int64_t) {})(scratch, value);
  };
  return {
      per_listener_key(
          connection_rate_key, "2147483647", ConfigType::integer,
          "The number of connections per second that clients may make, on all listeners "
          "together; listener.name.NAME.max.connection.creation.rate limits one "
          "listener. Further connections wait until they are accepted.",
          check_rate),
      {"advertised.listeners", "", "", ConfigType::string,
       "The addresses that the broker tells clients to connect to, each under its listener's name; "
       "a client gets the address of the listener to which it is connected. A listener that is not "
       "named here advertises 127.0.0.1 if it is on localhost, the machine's host name if it is on "
       "another address.",
       set_advertised_listeners},
      {"inter.broker.listener.name", "", "", ConfigType::string,
       "No effect, because there is one broker; if it is set, it must name a listener.",
       set_inter_broker},
      {"listener.security.protocol.map",
       "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", "",
       ConfigType::string,
       "The protocol of each listener by its name. The protocols' own names are always known.",
       set_protocol_map},
      {"listeners", "PLAINTEXT://localhost:9092", "", ConfigType::list,
       "The addresses where clients connect, each with a name of its own. localhost means "
       "127.0.0.1 and ::1, an empty host every address of the machine, port 0 a free port. Keys "
       "that begin with ssl. or sasl., and max.connection.creation.rate, can be given for one "
       "listener as listener.name.NAME.KEY, "
       "with NAME in lower case.",
       set_listeners},
  };
}

std::vector<ConfigKey> tls_keys() {
  const auto text = ConfigType::string;
  const auto secret = ConfigType::password;
  std::vector<ConfigKey> keys{
      per_listener_key("ssl.cipher.suites", "", ConfigType::list,
                       "The ciphers that clients may use, under their names in the TLS standards. "
                       "Empty: OpenSSL's defaults.",
                       check_cipher_suites),
      per_listener_key("ssl.client.auth", "none", text,
                       "Whether clients on SSL listeners have to present a certificate: required, "
                       "requested or none. It does not apply to SASL_SSL listeners, unless it is "
                       "set for one as listener.name.NAME.ssl.client.auth.",
                       one_of({"required", "requested", "none"})),
      per_listener_key("ssl.enabled.protocols", "TLSv1.2,TLSv1.3", ConfigType::list,
                       "The versions of TLS that clients may use.", check_enabled_protocols),
      per_listener_key("ssl.key.password", "", secret, "The password of an encrypted private key.",
                       any_line("one line of text")),
      per_listener_key("ssl.keystore.certificate.chain", "", secret,
                       "The broker's certificate in PEM, followed by the certificates of its "
                       "signers.",
                       pem("certificates in PEM, beginning with -----BEGIN CERTIFICATE-----")),
      per_listener_key("ssl.keystore.key", "", secret,
                       "The private key of the broker's certificate in PEM (PKCS #8).",
                       pem("a private key in PEM, beginning with -----BEGIN PRIVATE KEY----- or "
                           "-----BEGIN ENCRYPTED PRIVATE KEY-----")),
      per_listener_key("ssl.keystore.location", "", text,
                       "A PEM file with the broker's private key and its certificates. It is read "
                       "at the start, on SIGHUP, and when a client sets it again.",
                       any_line("the path of a PEM file")),
      per_listener_key("ssl.keystore.password", "", secret,
                       "Must be empty: a PEM file has no password; that of the key is "
                       "ssl.key.password.",
                       no_store_password),
      per_listener_key("ssl.keystore.type", "PEM", text,
                       "The format of the private key and the certificates.", pem_alone),
      per_listener_key("ssl.principal.mapping.rules", "DEFAULT", text,
                       "How the name in a client's certificate becomes its principal: rules as in "
                       "RULE:^CN=(.*?),.*$/$1/L,DEFAULT, the first rule that matches is used.",
                       check_principal_rules),
      per_listener_key("ssl.protocol", "TLSv1.3", text,
                       "The newest version of TLS: TLSv1.3 or TLSv1.2 (ssl.enabled.protocols).",
                       one_of({"TLSv1.3", "TLSv1.2", "TLS"})),
      per_listener_key(
          "ssl.truststore.certificates", "", secret,
          "The certificates, in PEM, of the authorities that sign clients' certificates.",
          pem("certificates in PEM, beginning with -----BEGIN CERTIFICATE-----")),
      per_listener_key(
          "ssl.truststore.location", "", text,
          "A PEM file with the certificates of the authorities that sign clients' certificates.",
          any_line("the path of a PEM file")),
      per_listener_key("ssl.truststore.password", "", secret,
                       "Must be empty: a PEM file with certificates has no password.",
                       no_store_password),
      per_listener_key("ssl.truststore.type", "PEM", text,
                       "The format of the certificates in the trust store.", pem_alone),
  };
  for (auto& key : keys) key.is_dynamic = true;
  return keys;
}

std::vector<ConfigKey> admin_tls_keys() {
  return {
      admin_tls_key("tarry.admin.tls.key.password", ConfigType::password,
                    "The password of the admin's private key, if the key is encrypted.",
                    any_line("one line of text")),
      admin_tls_key("tarry.admin.tls.keystore.certificate.chain", ConfigType::password,
                    "The admin's certificate in PEM, followed by the certificates of its signers.",
                    pem("certificates in PEM, beginning with -----BEGIN CERTIFICATE-----")),
      admin_tls_key("tarry.admin.tls.keystore.key", ConfigType::password,
                    "The private key of the admin's certificate in PEM.",
                    pem("a private key in PEM, beginning with -----BEGIN PRIVATE KEY-----")),
      admin_tls_key("tarry.admin.tls.keystore.location", ConfigType::string,
                    "A PEM file with the admin's private key and certificates; with it the admin "
                    "serves HTTPS only. It is read at the start and on SIGHUP.",
                    any_line("the path of a PEM file")),
  };
}

}  // namespace tarry::server
