#pragma once

// GroupInfo: what a broker says about a consumer group, its members and its committed offsets.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace tarry::cli {

struct GroupMember {
  std::string id;
  std::string client;
  std::string host;                                              // "/127.0.0.1"
  std::optional<std::string> instance;                           // group.instance.id
  std::vector<std::pair<std::string, PartitionIndex>> assigned;  // Topic and partition, ascending.
};

struct GroupInfo {
  std::string name;
  std::string state;        // Kafka's: "Stable", "Empty"; "Dead" for a group that does not exist.
  std::string assignor;     // Empty until the members have agreed on one.
  std::string coordinator;  // HOST:PORT
  std::vector<GroupMember> members;  // By id.

  bool is_active() const { return !members.empty(); }
};

struct GroupListing {
  std::string name;
  std::string state;
};

struct CommittedOffset {
  std::string topic;
  PartitionIndex partition = 0;
  std::optional<Offset> offset;  // Empty where the group has committed nothing.
};

}  // namespace tarry::cli
