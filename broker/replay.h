#pragma once

// Replay: gives the journals' batches to the partitions that they belong to, in recovery.
//
// A partition is opened when its first record comes.  The batches of one that is out of service are
// saved in a file in the data directory's kept/, for the operator.
//
// Runs in the caller, before the shards' threads do.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>

#include "base/ids.h"
#include "base/result.h"
#include "broker/shard.h"
#include "storage/catalog.h"
#include "storage/file.h"
#include "storage/recovery.h"

namespace tarry::broker {

class Replay final : public storage::LogReplay {
 public:
  Replay(const BrokerContext& broker, std::span<const std::unique_ptr<Shard>> shards,
         storage::Catalog& catalog)
      : broker_(broker), shards_(shards), catalog_(catalog) {}

  Result<Offset> cut(const TopicPartition& tp, Offset base) override;
  Result<> append(const TopicPartition& tp, Bytes batches, WallTime appended) override;
  Result<> producer_answered(const storage::ProducerAnswered& answered) override;
  Result<> start_moved(const TopicPartition& tp, Offset start) override;
  void fence(const TopicPartition& tp, const std::string& why) override;
  Result<> keep(const TopicPartition& tp, Bytes batches) override;

  // Makes the saved batches durable before the checkpoint that releases them in the journal.
  Result<> sync_kept();

 private:
  struct Kept {
    std::string path;
    std::unique_ptr<storage::File> file;
    std::uint64_t bytes = 0;
  };

  std::string kept_directory() const { return broker_.config.data_directory + "/kept"; }
  Shard& shard_of(const TopicPartition& tp) { return *shards_[broker_.shard_index_of(tp)]; }
  Result<Partition*> open(const TopicPartition& tp);

  const BrokerContext& broker_;
  const std::span<const std::unique_ptr<Shard>> shards_;
  storage::Catalog& catalog_;
  std::unordered_map<TopicPartition, Kept> kept_;  // The entries of fenced partitions.
};

}  // namespace tarry::broker
