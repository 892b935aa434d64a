#pragma once

// Sequences: the sequence numbers that an engine may give to pending records.
//
// Invariant: a number is given out once, and numbers rise.  More are asked for when half of
// the last block is used, once until they come.
//
// Belongs to its engine, on its thread.

#include <algorithm>
#include <cstdint>
#include <deque>

#include "base/assert.h"
#include "base/ids.h"
#include "delay/sink.h"

namespace tarry::delay {

// Some sequence numbers, in rising order.
class SequenceRun {
 public:
  struct Block {
    Sequence next;
    Sequence end;
  };
  void add(const Block& block) { blocks_.push_back(block); }
  Sequence next() {
    TARRY_ASSERT(!blocks_.empty(), "as many sequence numbers are taken as there are");
    Block& block = blocks_.front();
    const Sequence sequence = block.next++;
    if (block.next == block.end) blocks_.pop_front();
    return sequence;
  }

 private:
  std::deque<Block> blocks_;
};

class Sequences {
 public:
  explicit Sequences(Sink& sink) : sink_(sink) {}

  void give(Sequence first, Sequence end) {
    TARRY_ASSERT(first < end, "a block has sequence numbers");
    TARRY_ASSERT(blocks_.empty() || blocks_.back().end <= first, "blocks come in rising order");
    blocks_.push_back({first, end});
    last_block_size_ = end - first;
    requested_ = false;
  }
  void refused() { requested_ = false; }

  std::uint64_t left() const {
    std::uint64_t left = 0;
    for (const auto& block : blocks_) left += block.end - block.next;
    return left;
  }
  // So many of those left, for somebody else to give out.
  SequenceRun take(std::uint64_t count) {
    SequenceRun run;
    while (count > 0) {
      SequenceRun::Block& block = blocks_.front();
      const std::uint64_t some = std::min(count, block.end - block.next);
      run.add({block.next, block.next + some});
      count -= some;
      block.next += some;
      if (block.next == block.end) blocks_.pop_front();
    }
    return run;
  }
  void request_if_low() {
    if (requested_ || left() > last_block_size_ / 2) return;
    requested_ = true;
    sink_.request_sequences();
  }

 private:
  Sink& sink_;
  std::deque<SequenceRun::Block> blocks_;  // The one in use in front.
  std::uint64_t last_block_size_ = 0;
  bool requested_ = false;
};

}  // namespace tarry::delay
