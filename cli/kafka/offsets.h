#pragma once

// Offsets of the partitions of one topic, and Kafka's numbers for the two ends of a log.

#include <utility>
#include <vector>

#include "base/ids.h"

namespace tarry::cli {

// The start and the end of a partition, in the place of an offset.
inline constexpr Offset log_start = -2;
inline constexpr Offset log_end = -1;

using PartitionOffsets = std::vector<std::pair<PartitionIndex, Offset>>;

}  // namespace tarry::cli
