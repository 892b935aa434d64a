#pragma once

// BucketTables: the RocksDB under BucketStore, as rows, chunks and marks.  For its .cc files alone:
// bucket_store.cc (write, read) and bucket_deal.cc (the way down).
//
// Any thread of the Background.

#include <array>
#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "storage/atomic_snapshot.h"
#include "storage/bucket_change.h"
#include "storage/bucket_rows.h"
#include "storage/rocks.h"

namespace tarry::storage {

using TopicSet = std::set<TopicId>;
class BucketMoment;

// The ids that compaction may drop.  RocksDB's threads ask it.
struct ForgottenIds {
  AtomicSnapshot<TopicSet> dropped;
  std::chrono::milliseconds remember{0};
  std::atomic<std::int64_t> now_ms{0};  // As of the last reclaim().

  // `gone`: what `dropped` was when the compaction began.
  bool is_forgotten(const TopicSet& gone, Bytes key, Bytes value) const;
};

class BucketTables {
 public:
  explicit BucketTables(const BucketLimits& bounds) : limits(bounds) {}

  const BucketLimits limits;
  std::shared_ptr<ForgottenIds> forgotten = std::make_shared<ForgottenIds>();
  std::unique_ptr<Rocks> rocks;
  std::mutex flushing;  // One flush at a time, so that its number is its own.
  std::atomic<std::uint64_t> generation{0};
  // Topics that are hidden and whose end nobody knows yet: their mark says so, or is still to be
  // written, by the next flush at the latest.
  TopicSet hidden;
  std::mutex hiding;   // Held for a moment only: a shard's thread may wait for it.
  std::mutex marking;  // Makes the mark of a known end the last one.
  static constexpr WallTime end_unknown = WallTime::max();
  std::mutex adopting;  // Chunks of another number of shards belong to nobody.
  std::array<std::atomic<std::uint64_t>, bucket_levels> dealt{};  // Records, to each level.
  mutable std::atomic<std::uint64_t> chunks_read{0};              // From the tables, by anybody.
  std::mutex sizing;  // Guards what BucketStore::levels() found last:
  LevelSizes levels;
  MonoTime levels_until = MonoTime::min();  // It is looked at again.

  static Result<std::unique_ptr<BucketTables>> make(const std::string& directory,
                                                    const BucketLimits& limits);
  static Result<std::unique_ptr<BucketTables>> open(const std::string& directory,
                                                    const BucketLimits& limits);
  // Changes nothing; what an unfinished write left is there.  Nobody else has it open.
  static Result<std::unique_ptr<BucketTables>> open_to_read(const std::string& directory);
  enum class Opening { make, open, read };
  static Result<std::unique_ptr<BucketTables>> start(const std::string& directory,
                                                     const BucketLimits& limits, Opening how);
  Result<std::set<Bucket>> homes(const Owner& owner) const;
  Result<> load(bool may_write);
  Result<> forget_dropped(const std::set<Bucket>& homes);
  Result<> mark_hidden();
  Result<> remove_unfinished(std::uint16_t shard, const Bucket& home, PlaceRow found);
  Result<> note_unfinished(rocksdb::WriteBatch& batch, const Owner& owner, const Bucket& home,
                           const std::vector<ChunkKey>& chunks) const;

  std::shared_ptr<const TopicSet> dropped() const { return forgotten->dropped.load(); }
  std::unexpected<Error> bad_row(Bytes key) const;

  using TakeRow = std::function<Result<bool>(const ChunkRow&)>;  // Returns whether to go on.
  // The rows of chunks of the levels from `level` on within [from, until), level by level, each in
  // the order of its keys.  With `as_of`, here and below, as they were then.
  Result<> for_rows(const Owner& owner, BucketLevel level, WallTime from, WallTime until,
                    const TakeRow& take, const BucketMoment* as_of = nullptr) const;
  // The same of one level.
  Result<bool> for_level(const Owner& owner, BucketLevel level, WallTime from, WallTime until,
                         const TakeRow& take, const BucketMoment* as_of = nullptr) const;
  // The rows in `bucket` and in the buckets that it consists of, but for those in `have`, and those
  // of a millisecond that end before `from`; the first ones whose chunks have more than
  // `max_bytes`.
  Result<std::vector<ChunkRow>> rows_within(
      const Owner& owner, const Bucket& bucket, const ChunkKeys& have,
      std::uint64_t max_bytes = std::numeric_limits<std::uint64_t>::max(),
      const PendingKey& from = {WallTime::min(), 0}) const;
  // The owners that have chunks.
  Result<std::vector<Owner>> owners(const BucketMoment* as_of = nullptr) const;
  // The chunks of writes of `owner` in `span` that have begun and do not count yet.
  Result<ChunkKeys> unfinished_in(const Owner& owner, const Bucket& span,
                                  const BucketMoment* as_of) const;

  // The marks that apply to chunks of `bucket`; `marks` says of which records.
  Result<Marks> marks_of(const Bucket& bucket, Marks marks = {},
                         const BucketMoment* as_of = nullptr) const;
  // Whether there are any.
  Result<bool> has_marks(const Bucket& bucket, const BucketMoment* as_of = nullptr) const;
  // The keys of the marks of a home, of those that are wanted by their shard and epoch.
  using IsMark = std::function<bool(std::uint16_t shard, std::uint32_t epoch)>;
  Result<std::vector<Buffer>> mark_keys(const Bucket& home, const IsMark& wanted) const;
  // Anybody's, in `home` or in the month that is dealt to it.
  Result<bool> has_chunks(const Bucket& home) const;
  // 0 before the first one.
  struct Layout {
    std::uint32_t epoch = 0;
    std::uint16_t shards = 0;
  };
  Result<Layout> layout() const;

  Result<Chunk> read(const Owner& owner, const ChunkKey& key,
                     const BucketMoment* as_of = nullptr) const;
  // The entries of the chunk that are pending.
  LiveEntries live_of(const Chunk& chunk, const JournalPlace& place, const Marks& marks,
                      const TopicSet& dropped) const;
  // The chunks with these keys, which lie in `bucket` or in what it consists of.  The marks, if
  // there are any, are read once, those of the chunks' records alone: so all of it is as much as
  // the chunks.
  struct OwnedKey {
    Owner owner;
    ChunkKey key;
  };
  Result<std::vector<LoadedChunk>> load_chunks(const Bucket& bucket, std::span<const OwnedKey> keys,
                                               const BucketMoment* as_of = nullptr) const;

  void put_chunk(rocksdb::WriteBatch& batch, const Owner& owner, const ChunkKey& key,
                 const Chunk& chunk, const Buffer& encoded, std::size_t entries) const;
  void delete_chunk(rocksdb::WriteBatch& batch, const Owner& owner, const ChunkKey& key) const;
  void add_count(rocksdb::WriteBatch& batch, const Buffer& key, std::int64_t change) const;

 private:
  using Take = std::function<Result<bool>(Bytes key, Bytes value)>;  // Returns whether to go on.
  // The rows in [from, until) of the family `rows`; false: it was not to go on to the end.
  Result<bool> for_each(const Buffer& from, const Buffer& until, const BucketMoment* as_of,
                        const Take& take) const;
  // The rows of the marks that apply to chunks of `bucket`.
  Result<bool> for_marks(const Bucket& bucket, const BucketMoment* as_of, const Take& take) const;
};

// The tables as they are when it is made: chunks that are dealt, adopted or written later are read
// where they were.  RocksDB keeps what it sees, so it lives no longer than one answer takes.
class BucketMoment {
 public:
  explicit BucketMoment(const BucketTables& tables)
      : dropped_(tables.dropped()),  // First: a mark may be forgotten, with the last of its chunks.
        db_(*tables.rocks->db),
        snapshot_(db_.GetSnapshot()) {}
  ~BucketMoment() { db_.ReleaseSnapshot(snapshot_); }
  BucketMoment(const BucketMoment&) = delete;
  BucketMoment& operator=(const BucketMoment&) = delete;

  const TopicSet& dropped() const { return *dropped_; }
  const rocksdb::Snapshot* snapshot() const { return snapshot_; }

 private:
  const std::shared_ptr<const TopicSet> dropped_;
  rocksdb::DB& db_;
  const rocksdb::Snapshot* const snapshot_;
};

}  // namespace tarry::storage
