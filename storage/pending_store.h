#pragma once

// PendingStore: all pending records of all partitions, on disk, in due order.
//
//   journal --durable--> apply(PendingAdded, PendingRemoved)        many shards write
//                           |
//                  +--------v---------+   window()  the next locators in due order
//                  |  entries          |  read()    their bodies, when they are due
//                  |  (due, sequence)  |  list()    pages for people
//                  +-------------------+
//                  |  ids              |  find_id() pending, ended, or unknown
//                  |  (partition, id)  |    trace()   what has happened to it
//                  +-------------------+
//                  |  moves            |    current_key()  where a record is that was moved
//                  |  (first key)      |
//                  +-------------------+
//                  |  counts           |  pending_of(), total(): exact, without a scan
//                  +-------------------+
//
// One RocksDB key a record: (due, sequence) names it, for sequence numbers are never given out
// twice.  The layout is in docs/formats/db.md and is private to this class, so that it can become
// chunks of due time later.
//
// Invariants
//   - apply() is atomic and idempotent: a replayed record changes nothing, or passes through the
//     same states as before and ends in the last.  The counts change only when an entry was really
//     added or removed.
//   - An id's row belongs to the record with the largest sequence that carried the id, even if the
//     store has only ever seen its PendingRemoved.  The engine replaces records: it sends
//     PendingRemoved(replaced) for the old one in the same journal record.
//   - A record that was moved keeps its sequence number; its row of `moves` is there as long as it
//   is
//     pending with another due time than its first.
//   - Entries of a dropped topic are invisible from then on; sweep() frees them little by little.
//   - Every read has a bound on the entries that it looks at, and entries of dropped topics count:
//     a million of them may precede the first one that is wanted.
//   - Iterators have both bounds, and the lower one moves up with what has left: without it a
//     drain crawls over its own tombstones (13 000 records a second instead of 640 000).
//
// Threads: any; writes take a lock for the time of a write to RocksDB's memory (microseconds, but
// a stall when buffers are full).  Reads may go to the disk; only the engine's are done inline.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "storage/journal_record.h"

namespace tarry::storage {

class Database;

// The key of a pending record; its order is the order of delivery.
struct PendingKey {
  WallTime due;
  Sequence sequence = 0;

  auto operator<=>(const PendingKey&) const = default;
};

// The part of a pending record that the engine keeps in memory: everything except the body.
struct PendingLocator {
  PendingKey key;
  TopicPartition partition;
  WallTime expires;
  std::uint32_t bytes = 0;  // The body's size.
  bool has_id = false;
};

struct PendingRecord {
  PendingKey key;
  TopicPartition partition;
  WallTime accepted;
  WallTime expires;
  std::string id;  // Empty: none.
  Buffer record;   // PendingAdded::record.
  WallTime first_due;

  // The key that it had first: its handle for ever.
  PendingKey first_key() const { return {first_due, key.sequence}; }
};

struct PendingQuery {
  std::optional<TopicId> topic = std::nullopt;
  std::optional<PartitionIndex> partition = std::nullopt;
  WallTime from = WallTime::min();
  WallTime until = WallTime::max();  // Exclusive.
  std::string id = {};               // A pattern with * and ?; empty: any, with id or without.
  std::size_t limit = 100;           // Records in a page.
  std::optional<PendingKey> after = std::nullopt;  // PendingPage::next of the page before.
};

struct PendingPage {
  std::vector<PendingRecord> records;  // In due order.
  std::optional<PendingKey> next;      // Empty: there is no more.
};

struct PendingWindow {
  std::vector<PendingLocator> locators;  // In due order.
  std::optional<PendingKey> next;        // Where the next window begins; empty: there is no more.
};

struct PendingFirst {
  bool known = true;            // If not, there is more to look at: ask again.
  std::optional<WallTime> due;  // Empty: nothing is pending.
};

// The state of an id.
struct IdPending {
  PendingKey key;
};
struct IdEnded {
  RemovalReason how;
  WallTime at;
  PendingKey key;
};
struct IdUnknown {};
using IdState = std::variant<IdPending, IdEnded, IdUnknown>;

// An event in the life of an id.
struct IdEvent {
  enum class Kind : std::uint8_t { scheduled, delivered, cancelled, replaced, expired, moved };
  Kind kind = Kind::scheduled;
  WallTime at;
  WallTime due;        // From then on; of an end: which it had.
  Offset offset = -1;  // Of what was delivered; -1: not known.

  bool operator==(const IdEvent&) const = default;
};
// The number of events that an id remembers; the oldest are forgotten.
inline constexpr std::size_t max_id_events = 32;

class PendingStore {
 public:
  struct Limits {
    std::chrono::milliseconds remember{3'600'000};  // tarry.delay.remember.ms: ends of ids.
    // The bounds of one page: a query that matches little returns a cursor instead of scanning
    // everything.
    std::size_t scanned_per_page = 100'000;
    std::size_t bytes_per_page = 8u << 20;
  };

  // `pending` outlives the store.
  static Result<std::unique_ptr<PendingStore>> open(Database& pending, const Limits& limits);
  static Result<std::unique_ptr<PendingStore>> open(Database& pending);
  ~PendingStore();

  // PendingAdded and PendingRemoved, in the order of the journal record that holds them; other
  // operations are passed over.  Call it with what is durable only.
  Result<> apply(std::span<const Operation> operations);

  // Drops all records of a topic that is deleted by force; they are never delivered.
  Result<> drop_topic(const TopicId& topic);

  // Returns the locators with from <= (due, sequence) and due < until, in order, without bodies.
  // It looks at `limit` entries, so it may return fewer, or none, although there are more.
  Result<PendingWindow> window(PendingKey from, WallTime until, std::size_t limit);

  // Returns one for each key, empty where nothing is pending under it (any more).
  Result<std::vector<std::optional<PendingRecord>>> read(std::span<const PendingKey> keys);
  Result<std::optional<PendingRecord>> get(PendingKey key);

  // Where the record is that had `first` as its first key; `first` itself when it was not moved.
  Result<PendingKey> current_key(PendingKey first);

  // What has happened to the id, in the order in which it happened: as far as it is remembered.
  Result<std::vector<IdEvent>> trace(const TopicPartition& partition, std::string_view id,
                                     WallTime now);

  Result<IdState> find_id(const TopicPartition& partition, std::string_view id, WallTime now);

  Result<PendingPage> list(const PendingQuery& query);

  std::vector<TopicId> topics() const;  // For which something is pending.
  std::uint64_t pending_of(const TopicId& topic) const;
  std::uint64_t total() const;
  // When the earliest record is due.  It looks at no more entries than a page does.
  Result<PendingFirst> next_due();

  // Frees up to `limit` entries of dropped topics, and lets the next compaction remove ended ids
  // that are older than `remember`.  Returns true when there is more to do.  Called at checkpoints.
  Result<bool> sweep(WallTime now, std::size_t limit);

 private:
  struct Impl;
  explicit PendingStore(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

// A record's handle, by which people and programs name a pending record, with an id or without.  It
// is made of the first due time and the sequence number, reversibly, in '@' and letters and digits.
std::string encode_handle(PendingKey first);
std::optional<PendingKey> parse_handle(std::string_view text);

}  // namespace tarry::storage
