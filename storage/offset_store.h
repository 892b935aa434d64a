#pragma once

// OffsetStore: consumer groups and their committed offsets, as the journals have them.
//
//   a shard's journal --durable--> apply(operation) --> db/meta: groups, offsets
//                                                          |
//   at the start, when all journals are replayed           '--> load(): every group, once
//
// While the broker runs, a group and its offsets are looked up in the memory of the shard that has
// it; this is what the next start finds.  So the store reads only in load().
//
// The store never has to decide which of two states of a group is newer: a group's records stand in
// one shard's journal, in order, and when --shards changes all journals are replayed and their ends
// noted as checkpoints (recovery.h, settle()) before a new shard's journal takes the first record.
//
// Invariants
//   - apply() twice changes nothing the second time, and replay in order ends where it ended
//     before, also when the database is ahead of the journal's checkpoint.
//   - A group that is removed takes its offsets along.
//   - Offsets are kept under a topic's id. load() drops the offsets of deleted topics.
//
// Threads: any; each group's operations come one after the other, but for its record, which may
// be applied while offsets of the group are.  Writes go to RocksDB's memory and do not wait; load()
// blocks.

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "storage/journal_record.h"

namespace tarry::storage {

class Database;

// A group's row as RocksDB takes it, made by OffsetStore::prepare().  Any thread, one at a time.
class PreparedGroup {
 public:
  ~PreparedGroup();

  // The group's record, which lives as long as this: the journal is given the same bytes.
  Bytes value() const;

 private:
  friend class OffsetStore;
  struct Row;
  explicit PreparedGroup(std::unique_ptr<Row> row);

  std::unique_ptr<Row> row_;
};

class OffsetStore {
 public:
  // `meta` outlives the store.
  explicit OffsetStore(Database& meta) : meta_(meta) {}

  // Takes GroupStored, GroupRemoved, OffsetsCommitted and OffsetsRemoved, and leaves the rest
  // alone.  Call it with what is durable only.
  Result<> apply(const Operation& operation);

  // The same for a GroupStored of megabytes, in two steps: prepare() copies them, where that holds
  // nobody; apply() then copies them once, and not twice.
  std::shared_ptr<PreparedGroup> prepare(const GroupStored& stored) const;
  Result<> apply(PreparedGroup& prepared);

  // One group as it was stored.  Its views end with the call that gives it.
  struct StoredGroup {
    std::string_view id;
    std::optional<Bytes> value;            // Empty: nothing but offsets (a simple consumer's).
    std::vector<CommittedOffset> offsets;  // In the order of topic ids and partitions.
  };
  using TakeGroup = std::function<Result<>(const StoredGroup&)>;

  // Gives every group to `take`, in the order of their keys; an error that it returns ends it.
  // `exists` says whether a topic is still there: rows of others are removed.
  Result<> load(const std::function<bool(const TopicId&)>& exists, const TakeGroup& take);

 private:
  Database& meta_;
};

}  // namespace tarry::storage
