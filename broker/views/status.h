#pragma once

// The status of a broker: snapshots for the admin's pages and metrics.
//
//   shard_statuses()      each shard is asked on its own thread; what its parts count is copied
//   partition_statuses()  the same for partitions, which are opened for it where that is wanted
//
// The copies are of one moment in each shard, not of one moment in all.  Everything here starts
// and ends on the thread of `here`; nothing looks into another shard from outside.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/clock.h"
#include "base/ids.h"
#include "base/metrics.h"
#include "base/result.h"
#include "broker/shard_counters.h"
#include "delay/engine.h"
#include "protocol/error_code.h"
#include "purgatory/purgatory.h"
#include "storage/bucket_store.h"
#include "storage/journal_stats.h"
#include "timing/timing_wheel.h"
#include "timing/wheel_metrics.h"

namespace tarry::broker {

class Broker;
class Shard;

struct ShardStatus {
  std::uint32_t index = 0;
  ShardCounters counters;
  std::uint64_t partitions_open = 0;  // The others have not been used since the start.
  std::uint64_t partitions_out_of_service = 0;
  std::uint64_t log_tail_bytes = 0;  // Memory.
  struct OutOfService {
    TopicPartition partition;
    std::string reason;
    std::uint64_t set_aside = 0;  // Its due records that wait for the next start.
  };
  // The first of them: an answer has a bound.
  static constexpr std::size_t max_out_of_service = 100;
  std::vector<OutOfService> out_of_service;
  std::uint64_t checkpoints_total = 0;
  std::map<protocol::ErrorCode, std::uint64_t> produce_errors;  // Batches, by their error.
  std::map<std::string_view, std::uint64_t> refused_batches;    // By the partitions, by reason.
  std::uint64_t header_slips_total = 0;
  std::uint64_t dead_letters_total = 0;
  Distribution turn_us;                    // Turns of its thread.
  std::uint64_t longest_busy_turn_us = 0;  // In time of the CPU.
  bool has_room = true;                    // False: the disk is full or the directory gone.
  bool stopping = false;                   // On its way down.
  bool failed = false;                     // Its journal could not be written.

  storage::JournalStats journal;

  timing::TimingWheel::Stats wheel;        // The deadlines of requests and of the shard itself.
  timing::Tick wheel_tick = 0;             // Now.
  std::optional<WallTime> wheel_next_due;  // In wall time, as the clock stood.
  delay::Engine::Stats delay;              // With the wheel of what is due soon.
  std::vector<purgatory::KindStats> purgatory;  // By the kind's index.

  // The shard's own figures, its journal's and its engine's with the overflow wheel's.  The others
  // need a label: each of `purgatory` its kind, each level of a wheel both, each error its name,
  // each refusal its reason.
  void report(MetricSink& sink) const;
  void report_produce_errors(MetricSink& sink) const;
  void report_refused_batches(MetricSink& sink) const;
};

// On the shard's thread.
ShardStatus status_of(Shard& shard);

// In the order of their indexes.
boost::asio::awaitable<std::vector<ShardStatus>> shard_statuses(Broker& broker, Shard& here);

struct PartitionStatus {
  std::uint32_t shard = 0;
  bool open = false;  // False: nothing below is known.
  bool fenced = false;
  std::string reason;  // Why it is fenced.
  Offset log_start = 0;
  Offset high_watermark = 0;
  Offset log_end = 0;
  std::uint64_t bytes = 0;
};

// One for each of `partitions`, in their order.  The first `open_up_to` are opened when they are
// not; one that cannot be opened (the log says why) is not open in the answer.
boost::asio::awaitable<std::vector<PartitionStatus>> partition_statuses(
    Broker& broker, Shard& here, std::vector<TopicPartition> partitions, std::size_t open_up_to);

// The memory of the databases: rows that are not written yet, cached blocks and open tables.
struct DatabaseMemory {
  std::uint64_t bytes = 0;

  void report(MetricSink& sink) const;
};
// Asks both databases, with their locks: blocks.
DatabaseMemory database_memory(Broker& broker);

// The disk space of pending records.
using PendingFiles = storage::BucketStore::Sizes;
boost::asio::awaitable<PendingFiles> pending_files(Broker& broker, Shard& here);

// The chunks of pending records in each level of buckets; damage is an error.
boost::asio::awaitable<Result<storage::BucketStore::LevelSizes>> pending_levels(Broker& broker,
                                                                                Shard& here);
// The buckets with records in memory, of all shards.
boost::asio::awaitable<storage::LevelSlots> memory_slots(Broker& broker, Shard& here);

// The sums of the sizes of the broker's files.
struct BytesOnDisk {
  std::uint64_t all = 0;
  std::uint64_t logs = 0;      // Part of `all`: the segments of partitions and their indexes.
  std::uint64_t journals = 0;  // Part of `all`.
};

// Walks through the directories: blocks.
BytesOnDisk bytes_on_disk(const Broker& broker);

}  // namespace tarry::broker
