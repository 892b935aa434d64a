#pragma once

// The values that go from a shard to the BucketStore and back.
//
//   BucketTier --HomeWrite, Forward, IdChange--> BucketStore
//   BucketTier <--------Piece, LevelSizes------- BucketStore
//
// The two sides are on different threads and share nothing that changes: a value is built, moved
// over and not touched again by its maker.  Chunks, which are large, are shared and constant; the
// marks of their entries that are still pending (LiveEntries) are copied beside them.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "storage/bucket.h"
#include "storage/bucket_slots.h"
#include "storage/chunk.h"

namespace tarry::storage {

// A shard of so many.
struct Owner {
  std::uint16_t shard = 0;
  std::uint16_t shards = 1;

  auto operator<=>(const Owner&) const = default;
};

// A chunk's place on disk, without its owner.
struct ChunkKey {
  Bucket bucket;
  Sequence first = 0;  // Its smallest sequence number.
  JournalPlace place;  // Everything in it is from before this place; dealt ones: of the youngest.

  auto operator<=>(const ChunkKey&) const = default;
};
using ChunkKeys = std::set<ChunkKey>;

// The pending records of a topic by a principal, and their bytes.
using PendingUses = std::map<std::pair<TopicId, PrincipalId>, PendingUse>;

// One change of a home, up to `place` in the journal.
struct HomeWrite {
  struct Part {
    std::shared_ptr<const Chunk> chunk;
    LiveEntries live;  // At least one is.
  };
  Bucket home;
  JournalPlace place;
  std::vector<Part> parts;
  std::vector<ChunkKey> dead;              // Chunks of which nothing is pending any more.
  std::vector<Sequence> gone;              // Marks, for older chunks that are not in `dead`.
  std::map<TopicId, std::int64_t> counts;  // Added less removed since the last one.
  PendingUses uses;                        // The same of each principal that is known.
};

// The current key of a record that was moved, by its handle; empty: it is gone.
struct Forward {
  PendingKey handle;
  std::optional<PendingKey> now;
};

// An event of an id, in its order.
struct ScheduleEvent {
  enum class Kind : std::uint8_t {
    scheduled = 0,  // For the first time, or again: moved, or the next occurrence.
    delivered = 1,
    cancelled = 2,
    replaced = 3,
    expired = 4,
    moved = 5,  // From `key`; `scheduled` follows.
  };
  Kind kind = Kind::scheduled;
  WallTime at{};
  PendingKey key;    // The key of the record.
  WallTime first{};  // Its handle's due time.
  // The offset of a delivered record.  An event of one that is pending has its share there, so that
  // an id tells it without a look at the record; -1: the record is of nobody.
  Offset offset = -1;

  static Offset offset_of(const PendingShare& share) {
    if (share.principal == unknown_principal) return -1;
    return static_cast<Offset>(std::uint64_t{share.principal} << 32 | share.bytes);
  }
  bool is_pending() const { return kind == Kind::scheduled || kind == Kind::moved; }
  PendingShare share() const {
    if (!is_pending() || offset == -1) return {};
    const auto packed = static_cast<std::uint64_t>(offset);
    return {static_cast<PrincipalId>(packed >> 32), static_cast<std::uint32_t>(packed)};
  }
  bool operator==(const ScheduleEvent&) const = default;
};
// The number of events that an id remembers; the oldest are forgotten.
inline constexpr std::size_t max_id_events = 32;

// Events of an id, oldest first.  It views them: they come by the ten thousand.
struct IdChange {
  TopicPartition partition;
  std::string_view id;
  std::span<const ScheduleEvent> events;
};

struct LoadedChunk {
  ChunkKey key;
  std::shared_ptr<const Chunk> chunk;
  LiveEntries live;  // None: the caller removes it with the next write of its home.
};

// The result of next_piece().
struct Piece {
  bool loaded = false;  // If not, it has dealt a part of what is too large: call it again.
  // The records before `until` are those that were asked for: all of `chunks` that lie before it,
  // and those in chunks that the caller has.
  PendingKey until;
  std::vector<LoadedChunk> chunks;
  BucketLevel level = BucketLevel::hour;  // The level of the buckets that were small enough.
};

// The contents of a level of buckets.
struct LevelSize {
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;
  std::uint64_t chunks = 0;
  std::uint64_t downgrades = 0;  // Records that were dealt to it, since the start.
  BucketSlots slots = {};        // The slots with chunks.
};
using LevelSizes = std::array<LevelSize, bucket_levels>;

struct BucketLimits {
  std::chrono::milliseconds remember{3'600'000};  // tarry.delay.remember.ms: ends of ids.
  std::size_t step_bytes = 8u << 20;
  std::size_t scanned_per_page = 100'000;  // Entries that a page looks at.
  std::size_t bytes_per_page = 8u << 20;
  std::size_t write_buffer_bytes = 256u << 20;  // As Database::Limits.
  std::size_t block_cache_bytes = 8u << 20;
  int max_open_files = 256;
};

}  // namespace tarry::storage
