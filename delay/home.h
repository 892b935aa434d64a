#pragma once

// Home: the records of one hour or month (storage/bucket.h) that a shard has in memory.
//
//   Home -- by bucket --> Shelf --> Resident: a chunk, and which of its entries are pending
//
// A resident is the end of a tail, which takes new records until it is sealed; or what was written
// or loaded, of which the disk has a copy under `key`.
//
// Plain data: Homes changes it and states what holds; everybody else reads.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/ids.h"
#include "storage/bucket.h"
#include "storage/bucket_change.h"
#include "storage/chunk.h"
#include "storage/pending.h"

namespace tarry::delay {

struct Resident {
  std::shared_ptr<storage::Chunk> chunk;  // Nobody changes it once it is sealed.
  storage::Bucket home;
  std::uint32_t number = 0;  // Locations name it.
  storage::LiveEntries live;
  std::size_t live_count = 0;
  bool sealed = false;
  bool writing = false;
  bool on_shelf = true;
  std::optional<storage::ChunkKey> key;  // On disk.
  std::vector<Sequence> gone;            // Since it was sealed, and not written.
  storage::LiveEntries aside;            // The ones that were set aside; shorter than `live`: no
  std::size_t aside_count = 0;           //   others were.  And how many of them are pending.
  std::size_t charged = 0;               // The bytes that memory counts for it.
  std::size_t entries_on_disk = 0;       // The entries of its chunk there, as it was written.

  bool is_written() const { return key.has_value(); }
  const storage::Bucket& bucket() const { return chunk->bucket(); }
  bool has(const storage::PendingKey& record, std::size_t at) const {
    return at < live.size() && live[at] && chunk->key_at(at) == record;
  }
  // Whether it has a record before the horizon.
  bool has_near(const storage::PendingKey& horizon) const;
};

// The residents of one bucket.
struct Shelf {
  std::vector<std::shared_ptr<Resident>> residents;
  bool in_order = true;  // Their sequence numbers rise from one to the next.
};

struct Home {
  // So many records of a home are marked before it is swept.
  static constexpr std::uint64_t least_gone = 4'096;

  storage::JournalPlace written;  // It takes no operation from before it.
  std::map<storage::Bucket, Shelf> shelves;
  // Gone, on disk alone, and not written yet.  There may be a million: a hash table would move all
  // of them in the turn in which it grows.
  std::set<Sequence> gone;
  std::vector<storage::ChunkKey> dead;  // On disk until the next write: nothing of them is pending.
  storage::ChunkKeys aside;             // On disk until the next start: nobody loads or deals them.
  // Added less removed since it was written; also of nobody, so that they add up to the topics'.
  storage::PendingUses uses;
  std::size_t unwritten = 0;            // Bytes of its residents that are not on disk,
  std::size_t tails = 0;                //   and how many these are.
  std::size_t marks = 0;                // Charged for what is gone and not written.
  std::uint64_t gone_on_disk = 0;       // Marks written since it was swept,
  std::uint64_t sweep_at = least_gone;  //   and when to look whether that is worth it.
  bool dirty = false;
  bool aside_unwritten = false;  // Records that were set aside wait for its next write.
  bool on_disk = false;          // It may have chunks there that are not in memory.
  bool foreign = false;          // It may have chunks of another number of shards.
  storage::BucketLevel split = storage::BucketLevel::hour;  // The level of new tails.

  // Something is pending in it, as far as is known.
  bool may_have_records() const { return !shelves.empty() || on_disk || foreign; }
  // Nothing of it is pending or has to be written.
  bool is_ended() const;
  // The keys of its chunks that may not be loaded, in no order: to sort them is the work of whoever
  // reads the disk.
  std::vector<storage::ChunkKey> known_keys() const;
};

}  // namespace tarry::delay
