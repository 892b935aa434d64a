#pragma once

// The messages of consumers to one another through their group (protocol type "consumer"): which
// topics a member subscribes to, and what it is assigned.  A broker carries it as bytes, so that
// any client can make them anything, and understands it where it must: which topics are in use, and
// what an operator is shown.
//
//   subscription   version i16, topics [string], user data and more by version
//   assignment     version i16, topics [string, partitions [i32]], user data
//
// Numbers are big-endian, arrays have an i32 count, strings an i16 length.
//
// Format: Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment, versions 0 to 3.
// Pure.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"

namespace tarry::protocol {

constexpr std::string_view consumer_protocol_type = "consumer";

struct AssignedTopic {
  std::string topic;
  std::vector<PartitionIndex> partitions;

  bool operator==(const AssignedTopic&) const = default;
};

// Empty when the bytes are not that, or have names or partitions that no topic has.  Bytes
// behind the topics are not looked at.  The subscription is viewed.
std::optional<std::vector<std::string_view>> subscribed_topics(Bytes subscription);
std::optional<std::vector<AssignedTopic>> assigned_partitions(Bytes assignment);

}  // namespace tarry::protocol
