#pragma once

// TopicInfo: what a broker says about a topic and its partitions.

#include <cstdint>
#include <string>
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

}  // namespace tarry::cli
