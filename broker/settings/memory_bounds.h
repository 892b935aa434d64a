#pragma once

// Bounds of memory that follow from a setting and have none of their own.  The code that enforces
// them and the code that computes how much memory a broker needs (server/memory_bounds) both take
// them from here.

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tarry::broker {

// With less a shard could not keep some tails and what is near at the same time.
inline constexpr std::size_t min_delay_memory = std::size_t{4} << 20;

// A shard's part of tarry.delay.memory.bytes.
constexpr std::size_t delay_memory_of_shard(std::int64_t all_bytes, std::size_t shards) {
  return std::max(static_cast<std::size_t>(all_bytes) / shards, min_delay_memory);
}

// With less, a shard that has much to deliver would wait for the disk with every few batches.
inline constexpr std::size_t min_unwritten_deliveries = std::size_t{32} << 20;

// A log keeps in memory what its segments do not have, so a shard delivers no more while this much
// of what it delivered is not written.  Twice tarry.log.tail.bytes: a checkpoint begins at half of
// it, so that three times as much may come while it writes.
constexpr std::size_t unwritten_deliveries(std::int64_t tail_bytes) {
  return std::max(2 * static_cast<std::size_t>(tail_bytes), min_unwritten_deliveries);
}

}  // namespace tarry::broker
