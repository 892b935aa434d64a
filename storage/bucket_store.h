#pragma once

// BucketStore: the upper levels of the overflow wheel, on disk: pending records in chunks of
// buckets of due time.
//
//   a shard's tails --write()--> chunks of its homes --deal()--> chunks of finer buckets
//                                     |                                     |
//                          find(), page(), counts()                   next_piece()
//                                                                 the next ones by due time
//
//   pending = chunks - marks of what is gone + what the shard's memory has
//
// The rows that a shard wrote for a home (bucket.h) are exactly its state after all operations
// before a place in the shard's journal.  Chunks, marks, counters and this place are written
// together; so a replay skips an operation that lies before the place of its home, and neither a
// record nor a counter can come twice.
//
// Invariants
//   - A chunk belongs to one shard of a number of shards (Owner), which alone writes and reads it.
//     After a start with another number of shards adopt() deals the chunks of a home again.
//   - A mark removes a sequence number from all older chunks of its home: those with a smaller
//     place.  So a record that comes back under the same key (it was moved away and back, or it
//     recurs) is pending again.
//   - Chunks are dealt, adopted and rewritten in one write batch that also removes their sources:
//     by their keys, never by a range.  A write batch reaches the disk whole or not at all,
//     in the order of the write batches (atomic_flush; RocksDB's own log is off).
//   - A write larger than step_bytes is made of several write batches; it counts when the last of
//     them is there.  open() removes what an unfinished one left.
//   - Records of dropped topics are invisible, and are left out whenever their chunk is read.
//
// Bounds: a function that deals or loads takes about step_bytes of chunks and says whether there is
// more.  The chunks themselves are blobs; the tables of RocksDB hold only keys and small rows.
//
// Threads: everything but hide_topic() blocks, and runs on a Background; at start on a shard's
// thread too.  Different owners may call at the same time; an owner calls one function at a time,
// but for those that tell of all owners or change none (flush(), page(), count(), counts(),
// totals(), uses(), sizes(), levels(), reclaim(), id_events(), last_events(), pending_ids(),
// hide_topic(), drop_topic()).  Layout: docs/formats/buckets.md.  Errors as Database has them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/metrics.h"
#include "base/result.h"
#include "storage/bucket.h"
#include "storage/bucket_change.h"
#include "storage/chunk.h"
#include "storage/pending.h"

namespace tarry::storage {

class BucketTables;

class BucketStore {
 public:
  using Limits = BucketLimits;

  // make() makes a new, empty one in `directory`, open() opens what make() made.  A directory of
  // a former format (a key for each record) is refused: Errc::unsupported.
  static Result<std::unique_ptr<BucketStore>> make(const std::string& directory,
                                                   const Limits& limits);
  static Result<std::unique_ptr<BucketStore>> open(const std::string& directory,
                                                   const Limits& limits);
  ~BucketStore();
  BucketStore(const BucketStore&) = delete;
  BucketStore& operator=(const BucketStore&) = delete;

  // --- Start.

  // The number of shards that wrote the store last; 0: nobody has.
  Result<std::uint16_t> shards() const;
  // How far each home was written by the journal of `shard`.  Homes that are not there: not at all,
  // or before the last checkpoint.
  Result<std::map<Bucket, JournalPlace>> places(std::uint16_t shard);
  // The homes in which `owner` has chunks.
  Result<std::set<Bucket>> homes(const Owner& owner);
  // The epoch of so many shards: another one than before if it was another number.  The journals of
  // the former epoch are in the store, flushed, before the first call.
  Result<std::uint32_t> epoch(std::uint16_t shards);
  // The homes that have chunks of another number of shards than `shards`.
  Result<std::set<Bucket>> foreign_homes(std::uint16_t shards);

  // --- Writing.

  // Returns the keys of the parts, in their order.
  Result<std::vector<ChunkKey>> write(const Owner& owner, const HomeWrite& change);
  // These belong to no home: the last one counts, so replaying them changes nothing in the end.
  Result<> write(std::span<const Forward> forwards, std::span<const IdChange> ids);
  // A checkpoint at `noted` is made: no operation before it is replayed.
  Result<> forget_places(std::uint16_t shard, JournalPlace noted, const std::set<Bucket>& homes);
  // From now on nothing of the topic is visible, and flush() makes that durable.  Reads and writes
  // no file, for the thread of a shard; drop_topic() follows.
  void hide_topic(const TopicId& topic);
  // Forgets what is told of it, and when the last of its records will be gone.
  Result<> drop_topic(const TopicId& topic);
  // Everything written before the call is durable when it returns.
  Result<> flush();
  // How often there was something to flush (store_generation.h).
  std::uint64_t generation() const;
  std::uint64_t unflushed_bytes() const;

  // --- The way down.

  // Loads what is due from `from` on in `home`, not more than about `max_bytes` of chunks, or, if
  // that is not possible, deals a part of what is too large.  `have` are chunks that the
  // caller has in memory, which are neither read nor dealt.  A record that is due before
  // `from` in other chunks is gone, marked already or not: deal() leaves it out, so that no
  // chunk is left behind that nobody will load again, and that would outlive its marks.
  Result<Piece> next_piece(const Owner& owner, const Bucket& home, PendingKey from,
                           std::size_t max_bytes, const ChunkKeys& have);
  // The same for a caller who looks ahead: what is due from `horizon` on is not gone, although it
  // is due before `from`, and will be loaded later.
  Result<Piece> piece_ahead(const Owner& owner, const Bucket& home, PendingKey from,
                            std::size_t max_bytes, const ChunkKeys& have,
                            const PendingKey& horizon);
  // Deals a part of what a load with these arguments would have to deal between `from` and `until`,
  // and loads nothing.  `loaded` is true if nothing there is too large, up to the place that it
  // names; it may stop before `until`.
  Result<Piece> deal_ahead(const Owner& owner, const Bucket& home, PendingKey from, WallTime until,
                           std::size_t max_bytes, const ChunkKeys& have, const PendingKey& horizon);
  // Deals about step_bytes of the chunks of `bucket` to those of the next level; false: there is
  // nothing more in it.  Entries before `from` are gone, as above.
  Result<bool> deal(const Owner& owner, const Bucket& bucket, const ChunkKeys& have,
                    PendingKey from = {WallTime::min(), 0});
  // Deals about step_bytes of the chunks of `home` that belong to another number of shards; false:
  // there are no more.  Called by any shard, before it reads in a foreign home.
  using OwnerOf = std::function<std::uint16_t(const TopicPartition&)>;
  Result<bool> adopt(std::uint16_t shards, const Bucket& home, const OwnerOf& owner_of);
  // Frees what is gone of `home`: looks at about step_bytes of its chunks behind `after`, and
  // rewrites those without it of which at least half is gone.  `have` as above.  Does nothing
  // unless about half of the home's entries may be gone: `gone` of them are known to be.
  struct Swept {
    bool worth = true;             // False: too few are gone.
    std::optional<ChunkKey> next;  // The next call begins there; empty: there is no more.
    std::uint64_t freed = 0;       // Bytes.
  };
  Result<Swept> sweep(const Owner& owner, const Bucket& home, const std::optional<ChunkKey>& after,
                      const ChunkKeys& have, std::uint64_t gone);

  // --- Reading.

  // One for each key; empty where nothing is pending under it on disk.  Once the records have
  // `max_bytes`, the numbers of the other keys go to `left`.
  Result<std::vector<std::optional<PendingRecord>>> find(
      const Owner& owner, std::span<const PendingKey> keys,
      std::size_t max_bytes = std::numeric_limits<std::size_t>::max(),
      std::vector<std::size_t>* left = nullptr);
  Result<std::optional<PendingKey>> forward(PendingKey handle);
  // The last events of an id, oldest first.
  Result<std::vector<ScheduleEvent>> id_events(const TopicPartition& partition,
                                               std::string_view id);
  // The last one of each of several ids; empty where the id is unknown.
  Result<std::vector<std::optional<ScheduleEvent>>> last_events(
      const TopicPartition& partition, std::span<const std::string_view> ids);
  // The ids of a partition that begin with `prefix` and are pending, as far as that is written, in
  // the order of their bytes.  Looks at no more than `rows` rows, and takes those that it has
  // looked at from that number; empty: it was too small.
  Result<std::optional<std::vector<std::string>>> pending_ids(const TopicPartition& partition,
                                                              std::string_view prefix,
                                                              std::size_t& rows);
  // The records on disk of `owner` that fit, in due order.  Reads one bucket after the other and
  // keeps the smallest ones of each.
  Result<PendingPage> page(const Owner& owner, const PendingQuery& query);
  // The same of all owners, as of one moment.
  Result<PendingPage> page(const PendingQuery& query);
  // How many records on disk there are in each stretch of `by`, from `from` on; of the query topic,
  // partition, hidden topics and the times count.  Looks at about `scanned_per_page` entries, and
  // returns where to go on; empty: there is no more.
  using StretchCounts = std::map<WallTime, std::uint64_t>;  // By its beginning, from 1970.
  struct Counted {
    StretchCounts counts;
    std::map<TopicId, StretchCounts> topics;  // The same of each topic, where that is asked for.
    std::optional<WallTime> next;             // The beginning of a bucket.
  };
  Result<Counted> count(const PendingQuery& query, WallTime from, std::chrono::milliseconds by,
                        bool by_topic = false);
  // The number of records pending in each home, as far as it is written.
  Result<std::map<Bucket, std::uint64_t>> counts(const TopicId& topic);
  Result<std::map<TopicId, std::uint64_t>> totals();
  // The pending records and bytes of each known principal, as far as they are written.
  Result<PendingUses> uses();

  // --- Space.

  struct Sizes {
    std::uint64_t blob_bytes = 0;     // The size of blob files.
    std::uint64_t garbage_bytes = 0;  // In them, known to be dead.
    std::uint64_t table_bytes = 0;    // The size of everything else.
    std::uint64_t chunks = 0;         // About.

    void report(MetricSink& sink) const;
  };
  Sizes sizes() const;
  // The contents of each level of buckets, of all owners: also what is gone and not freed yet, and
  // what a shard has in memory too.  Looks at the row of every chunk; if there are many, every ten
  // seconds at most.
  using LevelSizes = storage::LevelSizes;
  Result<LevelSizes> levels(MonoTime now, WallTime wall);
  // Frees blob files of which nothing is left, and rewrites the others when more than
  // `garbage_share` of all is dead.  The first writes tables alone, at most as much as they have;
  // how much is dead is known only then, and before the second `room_to_rewrite` is asked, if it is
  // given: its error is the result.  Takes long; for a thread that has time.
  Result<> reclaim(double garbage_share, WallTime now,
                   const std::function<Result<>(const Sizes&)>& room_to_rewrite = {});
  std::uint64_t memory_bytes() const;
  // Chunks that were read since the start, for whatever reason: a bound of what an answer costs.
  std::uint64_t chunks_read() const;
  const std::string& directory() const;

  BucketTables& tables() { return *tables_; }  // For tests.

 private:
  explicit BucketStore(std::unique_ptr<BucketTables> tables);
  enum class Reads : std::uint8_t { chunks, nothing };
  Result<Piece> piece(const Owner& owner, const Bucket& home, PendingKey from,
                      std::size_t max_bytes, const ChunkKeys& have, const PendingKey& gone_before,
                      Reads reads);

  const std::unique_ptr<BucketTables> tables_;
};

}  // namespace tarry::storage
