#pragma once

// PartitionHost: the services of its shard that a partition needs beside the ShardContext.
//
// The Shard implements it, so that a partition neither knows the parts of its shard nor is known
// to stand on all of them.  Everything runs on the shard's thread.

#include <cstddef>
#include <functional>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"

namespace tarry::delay {
class Engine;
}

namespace tarry::broker {

class BatchChecks;
class Partition;
class TopicNotes;

class PartitionHost {
 public:
  virtual delay::Engine& engine() = 0;
  virtual BatchChecks& checks() = 0;
  virtual TopicNotes& notes() = 0;

  // Writes records of partition `from` to the topic of its dead letters.  `done` comes later, never
  // inside the call: when they are durable, or with the reason why they are not.
  virtual void write_dead_letters(const TopicPartition& from, Buffer batch,
                                  std::move_only_function<void(Result<>)> done) = 0;

  // It is open from now on.
  virtual void opened(Partition& partition) = 0;
  // It is out of service until the next start.
  virtual void went_out_of_service(const Partition& partition) = 0;
  // A log has `records` more.
  virtual void appended(std::uint64_t records) noexcept = 0;
  // Its log has something that its segments, or its directory, do not have yet.
  virtual void log_is_dirty(Partition& partition, std::size_t bytes) = 0;
  // Whole segments may be below its log start now.
  virtual void log_start_moved(Partition& partition) = 0;

 protected:
  ~PartitionHost() = default;
};

}  // namespace tarry::broker
