#pragma once

// What a member of a consumer group is assigned, as its leader gave it:
//
//   version i16 >= 0
//   topics i32, each: name string, partitions i32, each: partition i32
//   userdata bytes, or nothing
//
// Brokers pass these bytes on unread, so any client can make them anything.
//
// Format: Kafka's ConsumerProtocolAssignment, versions 0 to 3.  Pure.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"

namespace tarry::cli {

using AssignedPartitions = std::vector<std::pair<std::string, PartitionIndex>>;

// Empty bytes are no partitions.  None: they are no assignment to its last byte, or one with names
// that no topic has.
std::optional<AssignedPartitions> read_assignment(Bytes assignment);

}  // namespace tarry::cli
