#pragma once

// BrokerContext: the parts that all shards of a broker share, for code below the Broker.
//
// The Broker fills it in before it makes its shards; from then on it is constant.  Everything that
// it points to outlives the shards and may be used on any thread, as its own header says.

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/ids.h"
#include "base/random.h"
#include "base/result.h"
#include "broker/context/ledger.h"
#include "broker/context/once_per_topic.h"
#include "broker/settings/broker_config.h"
#include "storage/bucket_store.h"
#include "storage/database.h"
#include "storage/file.h"
#include "storage/offset_store.h"
#include "storage/pending_counts.h"

namespace tarry::broker {

struct BrokerContext {
  BrokerConfig config;  // As at the start; a shard's own is up to date.
  const Clock* clock = nullptr;
  Random* random = nullptr;
  storage::Disk* disk = nullptr;
  storage::Database* meta = nullptr;
  storage::BucketStore* pending = nullptr;  // It blocks: for a Background.
  storage::PendingCounts* pending_counts = nullptr;
  storage::OffsetStore* offset_store = nullptr;
  std::shared_ptr<MemoryPool> memory;    // For what clients make the shards hold.
  OncePerTopic* slips_logged = nullptr;  // Header names one letter off (partitions/topic_notes.h).
  std::size_t shard_count = 0;

  // The journal or a store could not be written: nothing can be promised any more, and the process
  // ends.  Any thread.
  std::function<void(const Error&)> on_failure;

  // The shard that a partition or a group belongs to.
  std::size_t shard_index_of(const TopicPartition& tp) const {
    return shard_index_of(tp, shard_count);
  }
  // With so many shards.
  static std::size_t shard_index_of(const TopicPartition& tp, std::size_t shards) {
    return std::hash<TopicPartition>{}(tp) % shards;
  }
  std::size_t shard_index_of_group(std::string_view id) const {
    return crc32c(as_bytes(id)) % shard_count;
  }
};

}  // namespace tarry::broker
