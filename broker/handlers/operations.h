#pragma once

// The operations that a client may do, for answers to include_*_authorized_operations.
//
// The field has a bit for each operation, at the operation's number in Kafka's AclOperation.  These
// are all that a resource of that kind knows; handlers/authorize.h leaves those that the client may
// do.

#include <cstdint>
#include <limits>

#include "broker/security/acl.h"

namespace tarry::broker {

// Kafka's answer if the client did not ask.
inline constexpr auto operations_not_asked = std::numeric_limits<std::int32_t>::min();

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
