#pragma once

// EngineOptions: the bounds of a shard's delay engine.
//
// Three kinds: memory (from the settings), the work of one step (so that other tasks of the shard
// have their turns), and what may be in flight to the log (so that one partition's flood keeps no
// other waiting).  The defaults of the last two are measured and not settings; tests make them
// small, so that a few records meet them.
//
// Constant while the engine exists, which has a copy.

#include <chrono>
#include <cstddef>

#include "base/clock.h"

namespace tarry::delay {

struct EngineOptions {
  // For pending records and their locators, and for what is on its way to the disk: the shard's
  // equal share of tarry.delay.memory.bytes.
  std::size_t memory_bytes = 128u << 20;
  // Records that are due later than this may be on disk alone.
  std::chrono::milliseconds lead{120'000};
  // How long an ended id is known.
  std::chrono::milliseconds remember{3'600'000};

  // Limits of one step, so that it takes a few milliseconds at most: records that come near,
  // timers fired or moved, records handed to the sink (2 us each, 3 more when they are done),
  // their bytes.
  std::size_t step_loads = 1024;
  std::size_t step_timers = 4096;
  std::size_t step_records = 1024;
  std::size_t step_bytes = 4u << 20;
  // What is durable is applied in so many slices (DurableChanges), and in so much time.
  std::size_t step_slices = 8;
  std::chrono::milliseconds step_time{2};
  // Limit of one delivery, whatever max.message.bytes allows: other partitions take turns too.
  std::size_t batch_records = 512;
  // How many records of a shard are on the way to the log and not done: so many are applied in one
  // turn when the journal has them.  Partitions where little falls due may take as much again, so
  // that no flood is before their records.
  std::size_t in_flight_records = 8192;
  std::size_t in_flight_bytes = 8u << 20;
  // The same, of one partition.
  std::size_t partition_batches = 16;
  std::size_t partition_bytes = 4u << 20;
  // Larger batches are compressed on the Background.
  std::size_t compressed_inline = 16u << 10;

  // The back-off after a refused delivery, doubled each time.
  std::chrono::milliseconds first_back_off{10};
  std::chrono::milliseconds last_back_off{1'000};

  // The shard's wheel counts milliseconds of monotonic time from here.
  MonoTime wheel_start{};
};

}  // namespace tarry::delay
