#pragma once

// What consumers tell one another through their group (protocol type "consumer"): which topics a
// member subscribes to, and what it is assigned.  The broker carries it as bytes and understands
// it where it must: which topics are in use, and what an operator is shown.
//
//   subscription   version i16, topics [string], user data and more by version
//   assignment     version i16, topics [string, partitions [i32]], user data
//
// Numbers are big-endian, arrays have an i32 count, strings an i16 length.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"

namespace tarry::broker {

constexpr std::string_view consumer_protocol_type = "consumer";

struct AssignedTopic {
  std::string topic;
  std::vector<PartitionIndex> partitions;

  bool operator==(const AssignedTopic&) const = default;
};

// Empty when the bytes are not that: a member may say what it likes.
std::optional<std::vector<std::string>> subscribed_topics(Bytes subscription);
std::optional<std::vector<AssignedTopic>> assigned_partitions(Bytes assignment);

}  // namespace tarry::broker
