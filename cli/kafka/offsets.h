#pragma once

// Offsets of the partitions of one topic, and Kafka's numbers for the two ends of a log.

#include <utility>
#include <vector>

#include "base/ids.h"

namespace tarry::cli {

// Where a partition's next fetch begins, when not at an offset.
inline constexpr Offset log_start = -2;
inline constexpr Offset log_end = -1;

using PartitionOffsets = std::vector<std::pair<PartitionIndex, Offset>>;

}  // namespace tarry::cli
