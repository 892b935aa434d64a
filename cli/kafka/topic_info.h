#pragma once

// TopicInfo: what a broker says about a topic, its partitions and its configs.
// ConfigEntry: one config of a topic, or of the broker itself.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace tarry::cli {

struct PartitionInfo {
  PartitionIndex partition = 0;
  std::int32_t leader = -1;  // -1: none.
  std::vector<std::int32_t> replicas;
  std::vector<std::int32_t> in_sync;
};

struct TopicInfo {
  std::string name;
  std::vector<PartitionInfo> partitions;  // Ascending.
};

struct ConfigEntry {
  std::string name;
  std::optional<std::string> value;  // Empty for a sensitive one.
  std::string source;                // "topic", "broker", "default", ...
  bool is_read_only = false;         // A broker's that only a restart changes.
};

// Names and values to set.
using ConfigList = std::vector<std::pair<std::string, std::string>>;

}  // namespace tarry::cli
