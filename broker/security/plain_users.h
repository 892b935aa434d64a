#pragma once

// PlainUsers: the users of SASL/PLAIN, as a listener's jaas line has them.
//
//   listener.name.external.plain.sasl.jaas.config=
//     org.apache.kafka.common.security.plain.PlainLoginModule required
//     username="broker" password="secret" user_alice="alice-secret" user_bob="bob-secret";
//
// Read as Kafka reads it: every user_NAME is a user; username and password are what a broker would
// use towards other brokers, and mean nothing here.

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tarry::broker {

struct JaasLine {
  std::string module;
  std::map<std::string, std::string> options;
};

// One entry: `module flag option="value"...;`.  The error never holds a password.
Result<JaasLine> parse_jaas_line(std::string_view text);

// Passwords under the users' names.
using PlainUsers = std::map<std::string, std::string, std::less<>>;
Result<PlainUsers> parse_plain_users(std::string_view jaas_line);

// "\0alice\0alice-secret" --> "alice"; empty: it is refused.
std::string check_plain(const PlainUsers& users, std::string_view token);

}  // namespace tarry::broker
