#include "server/security_keys.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "base/list_text.h"
#include "broker/security/plain_users.h"
#include "server/listener_keys.h"

namespace tarry::server {
namespace {

using broker::BrokerConfig;
using broker::ConfigType;

// GSSAPI is Kafka's default, and means none here.
Result<> check_mechanisms(std::string_view value) {
  constexpr std::array<std::string_view, 5> known = {"GSSAPI", "PLAIN", "SCRAM-SHA-256",
                                                     "SCRAM-SHA-512", "OAUTHBEARER"};
  while (!value.empty()) {
    const auto name = take_element(value, ',');
    if (std::ranges::find(known, name) == known.end())
      return fail(Errc::invalid, "a list of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER");
  }
  return {};
}

Result<> check_jaas(std::string_view value) {
  if (value.empty()) return {};
  // The error of a line with a password in it does not show where it is wrong.
  const auto line = broker::parse_jaas_line(value);
  if (!line) {
    return fail(Errc::invalid,
                "a line as in org.apache.kafka.common.security.plain.PlainLoginModule required "
                "user_alice=\"secret\";");
  }
  for (const auto* known : {"PlainLoginModule", "ScramLoginModule", "OAuthBearerLoginModule"})
    // Each stands in a package of its own.
    if (line->module.ends_with(known)) return {};
  return fail(Errc::invalid,
              "a line of PlainLoginModule, ScramLoginModule or OAuthBearerLoginModule");
}

Result<> set_authorizer(Config& config, std::string_view value) {
  constexpr std::array<std::string_view, 4> known = {
      "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
      "kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer", ""};
  if (std::ranges::find(known, value) == known.end()) {
    return fail(Errc::invalid, fmt::format("one of Kafka's authorizers, such as {}", known[0]));
  }
  config.broker.authorizer.enabled = !value.empty();
  return {};
}

Result<> set_super_users(Config& config, std::string_view value) {
  auto& users = config.broker.authorizer.super_users;
  users.clear();
  while (!value.empty()) {
    // As in Kafka, because a name in a certificate has commas.
    const auto user = take_element(value, ';');
    if (!user.empty() && !user.starts_with("User:"))
      return fail(Errc::invalid, "a list separated by semicolons, as in User:alice;User:bob");
    if (!user.empty()) users.emplace(user);
  }
  return {};
}

Result<> set_allow_without_rule(Config& config, std::string_view value) {
  if (value != "true" && value != "false") return fail(Errc::invalid, "true or false");
  config.broker.authorizer.allow_without_rule = value == "true";
  return {};
}

Result<> check_key_file(std::string_view value) {
  if (value.empty() || (value.starts_with("file:///") && !value.contains('\n'))) return {};
  return fail(Errc::invalid, "the URL of a file, as in file:///etc/tarry/jwks.json");
}

Result<> check_clock_skew(std::string_view value) {
  const auto seconds = parse_whole_number(value);
  if (seconds && *seconds >= 0 && *seconds <= 86'400) return {};
  return fail(Errc::invalid, "a whole number of seconds from 0 to 86400");
}

Result<> check_claim(std::string_view value) {
  if (!value.empty() && !value.contains('\n')) return {};
  return fail(Errc::invalid, "the name of a claim");
}

Result<> check_one_line(std::string_view value) {
  if (!value.contains('\n')) return {};
  return fail(Errc::invalid, "one line of text");
}

Result<> check_token_handler(std::string_view value) {
  if (value.empty() || (value.starts_with("org.apache.kafka.common.security.oauthbearer.") &&
                        value.ends_with("OAuthBearerValidatorCallbackHandler")))
    return {};
  return fail(Errc::invalid,
              "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler");
}

std::vector<ConfigKey> token_keys() {
  return {
      per_listener_key("sasl.oauthbearer.clock.skew.seconds", "30", ConfigType::integer,
                       "How far the clocks of the broker and of the tokens' signers may differ.",
                       check_clock_skew),
      per_listener_key("sasl.oauthbearer.expected.audience", "", ConfigType::list,
                       "A token has to name one of these audiences (aud). Empty: any.",
                       check_one_line),
      per_listener_key("sasl.oauthbearer.expected.issuer", "", ConfigType::string,
                       "The issuer (iss) that a token has to name. Empty: any.", check_one_line),
      per_listener_key("sasl.oauthbearer.jwks.endpoint.url", "", ConfigType::string,
                       "The file with the public keys of the tokens' signers (JWKS), as in "
                       "file:///etc/tarry/jwks.json; OAUTHBEARER needs it. The broker reads it "
                       "again when it has changed, and on SIGHUP.",
                       check_key_file),
      per_listener_key("sasl.oauthbearer.scope.claim.name", "scope", ConfigType::string,
                       "The claim with a token's scopes. It must be a string or a list of strings; "
                       "the broker does not use it.",
                       check_claim),
      per_listener_key("sasl.oauthbearer.sub.claim.name", "sub", ConfigType::string,
                       "The claim with the name of a token's user.", check_claim),
      per_listener_key("sasl.server.callback.handler.class", "", ConfigType::string,
                       "No effect: tokens are always checked as Kafka's "
                       "OAuthBearerValidatorCallbackHandler checks them.",
                       check_token_handler),
  };
}

ConfigKey login_lifetime_key() {
  auto key = per_listener_key(
      "connections.max.reauth.ms", "0", ConfigType::long_,
      "How long a login is valid. Afterwards a client has to log in again on its connection, which "
      "clients do by themselves. It may be given for one mechanism of one listener as "
      "listener.name.NAME.scram-sha-512.connections.max.reauth.ms. 0: as long as the client is "
      "connected.",
      [](std::string_view value) -> Result<> {
        const auto number = parse_whole_number(value);
        if (number && *number >= 0) return {};
        return fail(Errc::invalid, "a whole number that is not negative");
      });
  key.unit = "ms";
  return key;
}

}  // namespace

std::vector<ConfigKey> security_keys() {
  std::vector<ConfigKey> keys = {
      {"allow.everyone.if.no.acl.found", "false", "", ConfigType::boolean,
       "Whether a topic or group that has no rule at all is open to everybody.",
       set_allow_without_rule},
      {"authorizer.class.name", "", "", ConfigType::string,
       "Access rules (ACLs) are on if this names one of Kafka's authorizers. Empty: everybody may "
       "do everything.",
       set_authorizer},
      login_lifetime_key(),
      {"connection.failed.authentication.delay.ms", "100", "ms", ConfigType::integer,
       "How long the broker delays the answer to a failed login; each further failure from the "
       "same address within a minute doubles the delay, up to 32 times this value.",
       broker_time(&BrokerConfig::failed_login_delay, 0)},
      per_listener_key("sasl.enabled.mechanisms", "GSSAPI", ConfigType::list,
                       "How clients of SASL listeners may log in: PLAIN, SCRAM-SHA-256, "
                       "SCRAM-SHA-512, OAUTHBEARER. GSSAPI means none.",
                       check_mechanisms),
      per_listener_key("sasl.jaas.config", "", ConfigType::password,
                       "PLAIN's users, given for one listener as "
                       "listener.name.NAME.plain.sasl.jaas.config, in one line that ends with a "
                       "semicolon: org.apache.kafka.common.security.plain.PlainLoginModule "
                       "required user_alice=\"secret\"; defines the user alice.",
                       check_jaas),
      {"super.users", "", "", ConfigType::string,
       "Principals that may do everything, as in User:alice;User:CN=bob,O=Example.",
       set_super_users},
  };
  std::ranges::move(token_keys(), std::back_inserter(keys));
  return keys;
}

}  // namespace tarry::server
