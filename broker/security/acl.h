#pragma once

// AclBinding: one rule, as Kafka has them.
//
//   User:alice  from *  may READ  topic orders         (literal)
//   User:alice  from *  may WRITE topics orders.*      (prefixed)
//   User:*      from 10.0.0.7  may not DELETE  topic * (literal *: every topic)
//
// The numbers are Kafka's, on the wire and in the store.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tarry::broker {

enum class AclResource : std::int8_t {
  unknown = 0,
  any = 1,
  topic = 2,
  group = 3,
  cluster = 4,
  transactional_id = 5,
  delegation_token = 6,
  user = 7,
};
enum class AclPattern : std::int8_t { unknown = 0, any = 1, match = 2, literal = 3, prefixed = 4 };
enum class AclPermission : std::int8_t { unknown = 0, any = 1, deny = 2, allow = 3 };
enum class AclOperation : std::int8_t {
  unknown = 0,
  any = 1,
  all = 2,
  read = 3,
  write = 4,
  create = 5,
  remove = 6,  // Kafka's DELETE.
  alter = 7,
  describe = 8,
  cluster_action = 9,
  describe_configs = 10,
  alter_configs = 11,
  idempotent_write = 12,
  create_tokens = 13,
  describe_tokens = 14,
  two_phase_commit = 15,
};

inline constexpr std::string_view cluster_resource_name = "kafka-cluster";
// Between a topic's name, which never has one, and what is done to its pending records:
// "orders/schedule", "orders/cancel", and "orders/pending" to read them.
inline constexpr char action_separator = '/';
inline constexpr std::string_view reading_action = "pending";

std::string_view name(AclResource resource);    // "TOPIC"
std::string_view name(AclOperation operation);  // "READ"

struct AclBinding {
  AclResource resource = AclResource::topic;
  AclPattern pattern = AclPattern::literal;
  AclOperation operation = AclOperation::read;
  AclPermission permission = AclPermission::allow;
  std::string name;       // The name of the resource.
  std::string principal;  // "User:alice", "User:*"
  std::string host;       // "10.0.0.7", "*"

  auto operator<=>(const AclBinding&) const = default;

  // The reason why it cannot be a rule; empty: it can.
  std::string refusal_reason() const;

  // The key under which it is kept, and back.
  std::string key() const;
  static std::optional<AclBinding> of_key(std::string_view key);
};

struct AclFilter {
  AclResource resource = AclResource::any;
  AclPattern pattern = AclPattern::any;
  AclOperation operation = AclOperation::any;
  AclPermission permission = AclPermission::any;
  std::optional<std::string> name, principal, host;  // None: all.

  std::string refusal_reason() const;
  bool selects(const AclBinding& binding) const;
};

}  // namespace tarry::broker
