#pragma once

// Recovery: applies the records after each journal's checkpoint again, so that the state is that of
// the last acknowledged record.
//
//   journal/0   catalog's operations            pass 1: which topics exist at the end
//   journal/0   everything else, in order       pass 2: only of topics that exist
//   journal/1   the same
//   ...         also journals of shards that no longer exist (another --shards)
//
//     TopicCreated ... BrokerConfigsSet   Catalog
//     PendingAdded, PendingRemoved        PendingReplay: the caller's pending records
//     LogAppended, ProducerAnswered,      LogReplay: the caller's logs
//     LogStartMoved
//     GroupStored, GroupRemoved,          OffsetStore
//     OffsetsCommitted, OffsetsRemoved
//
// Pending records of a topic that does not exist at the end are dropped, whichever journal they
// came from.  They are kept above storage/ (delay/bucket_tier.h), so the caller takes them, each
// with its place in its journal: it skips those that it has from before.
//
// A log may be ahead of the checkpoint, its last batches perhaps half written.  The first
// LogAppended of a log says where the journal takes over: batches before its base offset were
// synced by the checkpoint, later ones are in the journal.  So the log is cut there and the
// journal's batches are appended again (except those that retention has removed).  A log that ends
// before that offset has lost batches that a checkpoint had synced: it is fenced, and the rest of
// the broker starts.
//
// Another number of shards.  A partition's or a group's records may then stand in two journals, and
// nothing says which is older: an old journal's PendingAdded, replayed after a new one's
// PendingRemoved, would come alive again.  So before anything is appended under the new number
// everything that was replayed is made durable elsewhere and the old journals end:
//
//   auto recovered = recover(...);
//   if (recovered->other_shards(n) || pending.shards() != n) {
//     <write and sync all logs, save producer states>;
//     settle(..., *recovered, n);
//     pending.epoch(n), pending.flush();
//   }
//   Journal::open(..., recovered->journal(shard));
//
// The directories show which number it was: they are 0 to n-1, or settle() is called (again).
// Calling it without need is harmless.  The pending records know the number too (BucketStore):
// their places are of the old journals until settle() has ended these, and only then of the new.
//
// Blocks; one thread, at start.  Errors name what is wrong: a damaged journal, an operation of a
// later version, a disk that fails.  Replaying twice changes nothing, so a crash in here is
// harmless.

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "storage/bucket.h"
#include "storage/journal_record.h"
#include "storage/journal_recovery.h"

namespace tarry::storage {

class BucketStore;
class Catalog;
class Database;
class OffsetStore;

// The caller's logs and what belongs to them.  Errc::corrupt and Errc::fenced from cut() and
// append() fence that partition; any other error ends the recovery.
class LogReplay {
 public:
  virtual ~LogReplay() = default;

  // The journal has this log from `base` on: opens it, cuts everything from there on, and returns
  // where it ends then: less than `base` when it was shorter, more when what followed `base` is
  // not kept any more and the log begins later.  Once for each log, first.
  virtual Result<Offset> cut(const TopicPartition& partition, Offset base) = 0;

  // Whole batches that begin where the log ends.  Calls ProducerStates::replay_batches() too.
  virtual Result<> append(const TopicPartition& partition, Bytes batches, WallTime appended) = 0;

  // ProducerStates::replay().
  virtual Result<> producer_answered(const ProducerAnswered& answered) = 0;

  // Everything below `start` is deleted (LogStartMoved).
  virtual Result<> start_moved(const TopicPartition& partition, Offset start) = 0;

  // The partition cannot be used until the operator has looked; its bytes are kept.
  virtual void fence(const TopicPartition& partition, const std::string& why) = 0;

  // Batches that the journal has for a fenced partition, in order.  The next checkpoint releases
  // them from the journal, so the caller must store them elsewhere, durably, before it opens the
  // journal.
  virtual Result<> keep(const TopicPartition& partition, Bytes batches) = 0;
};

// The caller's pending records.  Any error ends the recovery.
class PendingReplay {
 public:
  virtual ~PendingReplay() = default;

  // All calls until end() come from the journal of `shard`; the last journal that was found is
  // that of `journals` - 1.
  virtual Result<> begin(std::uint32_t shard, std::uint32_t journals) = 0;
  // Called for topics that exist at the end of all journals, in the journal's order.  The bytes
  // that the operations view live until the call ends.
  virtual Result<> added(JournalPlace at, const PendingAdded& added) = 0;
  virtual Result<> removed(JournalPlace at, const PendingRemoved& removed) = 0;
  // Everything since begin() is in the store when it returns, if not durable.
  virtual Result<> end() = 0;

  // Drops the topic's records.  Before all others, or after them.
  virtual Result<> topic_deleted(const TopicId& topic) = 0;
  // The topics that have records.
  virtual Result<std::vector<TopicId>> topics() = 0;
};

struct Recovered {
  std::vector<std::pair<std::uint32_t, RecoveredJournal>> journals;  // In order of their shards.
  std::uint64_t records = 0;  // Journal records read, and their bytes.
  std::uint64_t bytes = 0;
  std::uint64_t fenced = 0;  // Partitions.

  bool other_shards(std::uint32_t shards) const;        // Not `shards`, with anything to replay.
  RecoveredJournal journal(std::uint32_t shard) const;  // For a new shard, one that begins at 0.
};

// `catalog` is loaded, the stores are open.
Result<Recovered> recover(Disk& disk, const std::string& journal_root, Catalog& catalog,
                          PendingReplay& pending, OffsetStore& offsets, LogReplay& logs);

// After the logs were written and synced: flushes both databases, notes every journal's end as its
// checkpoint and retires the journals of shards >= `shards`.
Result<> settle(Disk& disk, const std::string& journal_root, Database& meta, BucketStore& pending,
                std::uint32_t shards, Recovered& recovered);

// The first offset of `batches` and the offset after the last.  Errc::corrupt when they are not
// whole batches with offsets that go up.
Result<std::pair<Offset, Offset>> offsets_of(Bytes batches);  // {base, end}

}  // namespace tarry::storage
