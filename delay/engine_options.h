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
#include <limits>

#include "base/clock.h"

namespace tarry::delay {

struct EngineOptions {
  // The shard's equal share of tarry.delay.memory.bytes.  Pending records and their locators spend
  // it, and so does what is on its way to the disk.
  std::size_t memory_bytes = 128u << 20;
  // Records that are due later than this may be on disk alone.
  std::chrono::milliseconds lead{120'000};
  // An ended id is known for so long.
  std::chrono::milliseconds remember{3'600'000};

  // These bound one step, so that it takes a few milliseconds at most: the records that come near,
  // the timers that are fired or moved, the records that are handed to the sink (2 us each, and 3
  // more when they are done), and their bytes.
  std::size_t step_loads = 512;
  std::size_t step_timers = 4096;
  // The first batch of a burst is handed to the journal, which writes it, before another one is
  // filled; and the journal's completions wait for one batch meanwhile, not for two.
  std::size_t step_records = 512;
  std::size_t step_bytes = 4u << 20;
  // A step applies durable changes in at most so many slices (DurableChanges), and begins no slice
  // after so much time.
  std::size_t step_slices = 32;
  std::chrono::milliseconds step_time{2};
  // A step has several parts, each of which is bounded as above.  It begins none after so much
  // time; the next step goes on with that one, and what comes to the shard meanwhile is before it.
  std::chrono::milliseconds turn_time{4};
  // A delivery has at most so many records, whatever max.message.bytes allows, because other
  // partitions take turns too.
  std::size_t batch_records = 512;
  // At most so many records of a shard are on their way to the log, because they may all have to be
  // applied in one turn, when the journal has them.  Partitions where little falls due may take as
  // much again, so that no flood is before their records.
  std::size_t in_flight_records = 8192;
  std::size_t in_flight_bytes = 8u << 20;
  // A single partition has less on its way, so that it leaves room for others.
  std::size_t partition_batches = 16;
  std::size_t partition_bytes = 4u << 20;
  // So many bytes of delivered batches may be in logs that have not written them yet, which keep
  // them in memory until then; while there are more, nothing else is handed over.  No bound for a
  // host that does not tell when its logs are written (Engine::log_write_begins()).
  std::size_t unwritten_bytes = std::numeric_limits<std::size_t>::max();
  // A batch with more bytes is compressed on the Background.
  std::size_t compressed_inline = 16u << 10;

  // A partition whose delivery was refused waits for the first back-off, and for twice the last
  // one each time after that, up to the longest.
  std::chrono::milliseconds first_back_off{10};
  std::chrono::milliseconds last_back_off{1'000};

  // The shard's wheel counts milliseconds of monotonic time from here.
  MonoTime wheel_start{};
};

}  // namespace tarry::delay
