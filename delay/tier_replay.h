#pragma once

// TierReplay: gives the journals' pending records to the store, in recovery.
//
//   journal of shard k --begin(k)--> a BucketTier as shard k had it --end()--> BucketStore
//
// Without a broker the journal is whatever log its host has (delay/README.md): one of shard 0 of 1.
//
// The tier knows how far the store has each home (an hour, a month) from before, and skips that; so
// nothing is added or counted twice.  It is one of the number of shards that wrote the journals,
// not of the number that the broker starts with.  One at a time, and when its memory is spent
// it writes what it has.  Nothing is flushed for that as long as RocksDB's memory takes it: the
// journals have it all the same.
//
// Runs in the caller, before the shards' threads do.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/background.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "delay/bucket_tier.h"
#include "storage/bucket_store.h"
#include "storage/recovery.h"

namespace tarry::delay {

class TierReplay final : public storage::PendingReplay {
 public:
  // `memory_bytes`: what the shards will have together.
  // `flush`: BucketTier::Hooks::flush.
  TierReplay(storage::BucketStore& store, WallTime now, std::size_t memory_bytes,
             std::function<Result<>()> flush)
      : store_(store), now_(now), memory_bytes_(memory_bytes), flush_(std::move(flush)) {}

  Result<> begin(std::uint32_t shard, std::uint32_t journals) override;
  Result<> added(storage::JournalPlace at, const storage::PendingAdded& added) override;
  Result<> removed(storage::JournalPlace at, const storage::PendingRemoved& removed) override;
  // All that a record says of pending records, in one call: for a host with a log of its own.
  Result<> record(Lsn lsn, Bytes record);
  Result<> end() override;
  Result<> topic_deleted(const TopicId& topic) override;
  Result<std::vector<TopicId>> topics() override;

 private:
  // Nobody waits for anybody else here.
  class AtOnce final : public Background {
   public:
    void run_and_then(Work work, Work then) override {
      work();
      then();
    }
  };

  Result<> write();
  Result<> write_if_full() { return tier_->is_full() ? write() : Result<>(); }

  storage::BucketStore& store_;
  const WallTime now_;
  const std::size_t memory_bytes_;
  const std::function<Result<>()> flush_;
  AtOnce background_;
  std::optional<Error> failed_;
  std::unique_ptr<BucketTier> tier_;  // Between begin() and end().
};

}  // namespace tarry::delay
