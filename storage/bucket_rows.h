#pragma once

// The keys and small rows of db/pending in its third format (docs/formats/buckets.md), and how
// RocksDB merges those that are sums.  For the .cc files of BucketStore alone.
//
// Pure; any thread.

#include <rocksdb/merge_operator.h>
#include <rocksdb/slice.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "storage/bucket_change.h"

namespace tarry::storage {

namespace bucket_family {
enum : std::size_t { format, chunks, rows, counts, ids };
}

// Rows of the family `rows`, by their first byte.
namespace row {
inline constexpr char chunk = 'c';       // c owner chunk-key -> what a chunk is: ChunkRow
inline constexpr char place = 'p';       // p shard home -> PlaceRow
inline constexpr char gone = 'g';        // g home place shard -> marks
inline constexpr char forward = 'f';     // f first due, sequence -> due
inline constexpr char dropped = 'd';     // d topic -> end of its last home
inline constexpr char generation = 'n';  // n -> u64: how often the store was flushed
inline constexpr char layout = 'l';      // l -> epoch, number of shards
}  // namespace row

struct ChunkRow {
  ChunkKey key;
  Sequence last = 0;
  std::uint32_t entries = 0;
  std::uint32_t bytes = 0;
};

struct PlaceRow {
  JournalPlace place;                // The home is written up to here.
  std::uint16_t shards = 1;          // Its owner's number of shards.
  std::vector<ChunkKey> unfinished;  // A write of them has begun, and is not finished.
};

void put(Buffer& out, const Bucket& bucket);
void put(Buffer& out, const JournalPlace& place);

// The key of a chunk's value in `chunks`, and of its row.
Buffer chunk_key(const Owner& owner, const ChunkKey& key);
Buffer chunk_row_key(const Owner& owner, const ChunkKey& key);
Buffer chunk_row_value(const ChunkRow& row);
std::optional<std::pair<Owner, ChunkRow>> decode_chunk_row(Bytes key, Bytes value);
// The key at which the rows of the chunks of `bucket` begin.
Buffer chunk_rows_from(const Owner& owner, const Bucket& bucket);

Buffer home_key(char kind, std::uint16_t shard, const Bucket& home);
std::optional<std::pair<std::uint16_t, Bucket>> decode_home_key(Bytes key);
Buffer place_value(const PlaceRow& row);
std::optional<PlaceRow> decode_place(Bytes value);

Buffer gone_key(const Bucket& home, const JournalPlace& place, std::uint16_t shard);
Buffer gone_rows_from(const Bucket& home);
inline constexpr std::size_t gone_key_bytes = 1 + 9 + 16 + 2;
std::uint16_t gone_shard(Bytes key);
std::uint32_t gone_epoch(Bytes key);
Buffer gone_value(std::vector<Sequence> gone);

Buffer forward_key(const PendingKey& handle);
Buffer count_key(const TopicId& topic, const Bucket& home);
std::optional<Bucket> decode_count_key(Bytes key);
Buffer total_key(const TopicId& topic);
// The pending records of a topic by a principal, and their bytes: rows behind the topic's total.
enum class UseKind : std::uint8_t { records = 'r', bytes = 'b' };
Buffer use_key(const TopicId& topic, PrincipalId principal, UseKind kind);
struct UseKey {
  PrincipalId principal;
  UseKind kind;
};
std::optional<UseKey> decode_use_key(Bytes key);
Buffer id_row_key(const TopicPartition& partition, std::string_view id);
void put_id_row_key(Buffer& out, const TopicPartition& partition, std::string_view id);

Buffer encode_events(std::span<const ScheduleEvent> events);
void put_events(Buffer& out, std::span<const ScheduleEvent> events);
std::optional<std::vector<ScheduleEvent>> decode_events(Bytes value);
// The last one alone.
std::optional<ScheduleEvent> decode_last_event(Bytes value);

// The marks of removed records, of some homes.  A home may have millions, so those of certain
// records may be asked for alone.
class Marks {
 public:
  using Wanted = std::vector<Sequence>;  // Rising.

  Marks() = default;  // The marks of all records.
  explicit Marks(Wanted wanted) : wanted_(std::move(wanted)) {}

  // Adds those of a row; false if it is damaged.
  bool add(Bytes key, Bytes value);
  void finish();  // After the last one.
  bool is_gone(Sequence sequence, const JournalPlace& chunk) const {
    const auto at = std::ranges::lower_bound(marks_, sequence, {}, &Mark::sequence);
    return at != marks_.end() && at->sequence == sequence && chunk < at->place;
  }
  bool empty() const { return marks_.empty(); }
  std::size_t size() const { return marks_.size(); }

 private:
  struct Mark {
    Sequence sequence;
    JournalPlace place;
  };
  std::optional<Wanted> wanted_;  // Until finish().
  std::vector<Mark> marks_;       // By sequence number, each once: the youngest.
};

std::shared_ptr<rocksdb::MergeOperator> count_merge();
std::shared_ptr<rocksdb::MergeOperator> id_merge();

}  // namespace tarry::storage
