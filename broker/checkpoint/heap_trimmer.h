#pragma once

// HeapTrimmer: gives memory back to the machine when a load is over.
//
// The memory of a load's tails and buffers is free then, and the allocator would keep it.  Giving
// it back takes milliseconds in which other threads may wait, so it happens once after a load and
// never during one.
//
// Belongs to its shard and its thread; the work is done on the shard's background.

#include <cstddef>

namespace tarry::broker {

class ShardContext;

class HeapTrimmer {
 public:
  explicit HeapTrimmer(ShardContext& shard) : shard_(shard) {}

  // A checkpoint has written so many bytes of logs; `more` are waiting for the next one.
  void checkpoint_made(std::size_t bytes, bool more);

 private:
  ShardContext& shard_;
  std::size_t untrimmed_bytes_ = 0;  // Written since memory was given back.
};

}  // namespace tarry::broker
