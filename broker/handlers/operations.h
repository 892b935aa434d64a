#pragma once

// The operations that a client may do, for answers to include_*_authorized_operations.
//
// The field has a bit for each operation, at the operation's number in Kafka's AclOperation.  There
// is no authorizer, so every client may do every operation of Kafka on a resource of that kind,
// even if a few of these operations are not supported here.

#include <cstdint>
#include <limits>

namespace tarry::broker {

// Kafka's answer if the client did not ask.
inline constexpr auto operations_not_asked = std::numeric_limits<std::int32_t>::min();

enum class AclOperation : std::int8_t {
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
};

template <AclOperation... Operations>
inline constexpr std::int32_t operation_bits = ((1 << static_cast<int>(Operations)) | ...);

inline constexpr std::int32_t topic_operations =
    operation_bits<AclOperation::read, AclOperation::write, AclOperation::create,
                   AclOperation::remove, AclOperation::alter, AclOperation::describe,
                   AclOperation::describe_configs, AclOperation::alter_configs>;

inline constexpr std::int32_t group_operations =
    operation_bits<AclOperation::read, AclOperation::remove, AclOperation::describe,
                   AclOperation::describe_configs, AclOperation::alter_configs>;

inline constexpr std::int32_t cluster_operations =
    operation_bits<AclOperation::create, AclOperation::alter, AclOperation::describe,
                   AclOperation::cluster_action, AclOperation::describe_configs,
                   AclOperation::alter_configs, AclOperation::idempotent_write>;

}  // namespace tarry::broker
