#pragma once

// Homes: the pending records of a shard that are in memory, by the hour or month in which they are
// due, and what memory knows of those on disk.
//
//   add() --> tail --seal()--> being written --written()--> on disk too --evict()--> on disk alone
//               |                  |                            ^                        |
//               '---- remove() ----'-- the chunk ends ----------'------ add_loaded() ----'
//
// Invariants
//   - A record is pending in at most one resident, and live() is the number of those.
//   - A resident stands on the shelf of its bucket and has a number, which locations name, until it
//     leaves memory.
//   - memory() is the sum of what residents, marks and keys of chunks set aside are charged.
//   - What is gone and may be on disk is marked, in its resident or its home, until its home is
//     written.
//   - A home that was written up to a place takes no operation from before it; and no operation
//     belongs to a month that begins before hours_end().
//
// Belongs to its BucketTier, on its thread.  Chunks that are sealed are shared with the Background
// and change no more.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "delay/home.h"
#include "delay/location.h"
#include "storage/bucket_store.h"

namespace tarry::delay {

class Homes {
 public:
  using PendingKey = storage::PendingKey;
  using PendingView = storage::PendingView;
  using Map = std::map<storage::Bucket, Home>;

  // The part of a level of buckets that is in memory.
  struct Level {
    std::size_t records = 0;
    std::size_t bytes = 0;
    std::size_t chunks = 0;
    std::size_t on_disk = 0;      // Entries of those of its chunks that are on disk too.
    std::uint64_t to_disk = 0;    // Records that left memory for the disk,
    std::uint64_t loaded = 0;     //   and that came from there.
    std::uint64_t came_back = 0;  // Near ones that became far again.
  };
  using Levels = std::array<Level, storage::bucket_levels>;

  // An hour with `split_from` bytes that are not written has its new tails in finer buckets.
  explicit Homes(std::size_t split_from) : split_from_(split_from) {}

  const Map& all() const { return homes_; }
  const Home* find(const storage::Bucket& id) const;
  // The first one that may have records, from the hour of `from` on; empty: there is none.
  std::optional<storage::Bucket> next_home(WallTime from) const;

  // --- The store's part, as it becomes known.

  void set_written(const storage::Bucket& id, storage::JournalPlace place);
  void set_on_disk(const storage::Bucket& id) { homes_[id].on_disk = true; }
  void set_foreign(const storage::Bucket& id);
  void adopted(const storage::Bucket& id);
  // All of it that was on disk alone is in memory, or is in other homes.
  void left_disk(const storage::Bucket& id) { homes_.at(id).on_disk = false; }

  // Records that are due later go to months.  Months before it are closed: they are dealt out to
  // hours.
  WallTime hours_end() const { return hours_end_; }
  void set_hours_end(WallTime end);

  // --- Operations, in the order of the journal.

  // The result is empty if the home was written later than `at`, so that the store has the record.
  std::optional<Location> add(storage::JournalPlace at, const PendingView& record);
  // The result is false if the home was written later than `at`.
  bool remove(storage::JournalPlace at, const PendingKey& key, const TopicId& topic,
              const storage::PendingShare& share, const Location& location);
  // The record that is number `index` of a resident is of a dropped topic; no operation tells it.
  void drop(const Resident& resident, std::size_t index);
  // BucketTier::set_aside().
  bool set_aside(const PendingKey& key, const Location& location);

  // --- Reading.

  // The view lives until the next call that changes something.
  std::optional<PendingView> read(const PendingKey& key, const Location& location = {}) const;
  // The record is gone, and the disk may have it still.
  bool is_gone(const PendingKey& key) const {
    return is_marked_in_home(key) || is_marked_in_resident(key);
  }
  // The same of a record that the disk alone had.
  bool is_marked_in_home(const PendingKey& key) const;
  // Chunks of its home are on the disk alone.
  bool may_be_on_disk(const PendingKey& key) const;
  // The home of the key whose chunks belong to no shard yet.
  std::optional<storage::Bucket> foreign_home(const PendingKey& key) const;
  // There are such homes.
  bool any_foreign() const { return foreign_ > 0; }
  void prefetch_offset(const Location& location) const {
    if (const Place at = place_at(location); at.resident != nullptr)
      at.resident->chunk->prefetch_offset(at.index);
  }
  void prefetch(const Location& location, std::size_t bytes) const {
    if (const Place at = place_at(location); at.resident != nullptr)
      at.resident->chunk->prefetch(at.index, bytes);
  }

  // --- Writing and loading.

  using Sealed = std::vector<std::pair<storage::Bucket, std::shared_ptr<Resident>>>;
  // The records of a home that ended until it was sealed; there may be many.
  struct Removals {
    std::set<Sequence> of_home;
    std::vector<std::vector<Sequence>> of_chunks;
  };
  // From now on nobody changes the home's tails; what is removed from them meanwhile is marked.
  // The marks are `gone` and have to be written, too.
  storage::HomeWrite seal(const storage::Bucket& id, storage::JournalPlace applied, Sealed& sealed,
                          Removals& gone);
  void written(const storage::HomeWrite& change, const Sealed& sealed,
               const std::vector<storage::ChunkKey>& keys);

  // Chunks of the home that are written and have nothing before the horizon are to leave memory,
  // as evict() finds them.  written() and pulled_back() ask for it themselves.
  void begin_eviction(const storage::Bucket& id);
  bool is_evicting() const { return !evictions_.empty(); }
  // Looks at about so many entries; returns what has left, which may take long to be freed.  Not
  // while a piece of a home is being read: what it left out, because memory had it, has to stay.
  std::vector<std::shared_ptr<Resident>> evict(const PendingKey& horizon, std::size_t budget);

  // Whether records are gone that may be in chunks on the disk.
  bool has_gone(const storage::Bucket& id) const;
  struct Loaded {
    std::shared_ptr<const Resident> resident;  // Null: nothing of the chunk is pending.
    std::size_t looked = 0;                    // Its entries, or the marks, that were looked at.
  };
  // Takes a chunk that was loaded from the home.
  Loaded add_loaded(const storage::Bucket& id, storage::LoadedChunk chunk);
  // New tails of the home are at least as fine as `level`.
  void split(const storage::Bucket& id, storage::BucketLevel level);
  // The horizon was moved back from `before`: what is between is far again, and evict() counts it.
  void pulled_back(const PendingKey& before, const PendingKey& horizon);

  // Nothing needs the home's place and its marks any more, once a checkpoint is `noted`.
  bool may_forget(const storage::Bucket& id, const storage::JournalPlace& noted,
                  const PendingKey& horizon) const;
  void forget(const storage::Bucket& id);

  // --- Homes on disk of which much may be gone, and how far they are swept.

  struct Sweep {
    storage::Bucket home;
    std::optional<storage::ChunkKey> after;
    std::vector<storage::ChunkKey> have;
    std::uint64_t gone = 0;
  };
  // The next one, behind the horizon; empty: there is none.
  std::optional<Sweep> next_sweep(const PendingKey& horizon);
  void swept(const storage::Bucket& id, const storage::BucketStore::Swept& swept);
  // Nobody knows how much of what it has on disk is gone.
  void sweep_all_of(const storage::Bucket& id);

  // --- Figures.

  std::size_t memory() const { return memory_; }
  // The memory of the homes themselves, while no record of them is in memory.
  std::size_t homes_bytes() const { return homes_.size() * home_bytes; }
  std::size_t live() const { return live_; }
  const Levels& levels() const { return levels_; }
  std::uint64_t sealed_total() const { return sealed_; }  // Records that went to disk,
  std::uint64_t spared_total() const { return spared_; }  //   and that were gone before.

 private:
  static constexpr std::size_t home_bytes = sizeof(Map::value_type) + 4 * sizeof(void*);
  struct Place {                   // The place of an entry in memory.
    Resident* resident = nullptr;  // Null: it is not in memory.
    std::size_t index = 0;
  };
  // The home of a due time, made where there is none, and the place up to which it is written.
  struct Recent {
    storage::Bucket id{};
    Home* home = nullptr;
    storage::JournalPlace written;
  };
  // Records come and go by the thousand in one hour, or in those of a month, so hours are kept that
  // were asked for; each in the place that follows from its number.
  struct Kept {
    Recent recent;
    std::uint64_t number = 0;  // Whether it holds: recent_number_.
  };
  static constexpr std::size_t kept_homes = 1'024;
  // The search of a home for chunks that may leave memory, and how far it is.
  struct Eviction {
    std::optional<storage::Bucket> shelf = std::nullopt;  // Empty: it has not begun.
    std::size_t at = 0;                                   // The next resident on that shelf.
    bool again = false;  // It was asked for once more after it had begun.
    std::optional<PendingKey> near_before = std::nullopt;  // Counts what was near before this.
  };

  // --- homes.cc
  Recent home_for(WallTime due);
  void forget_recent() {
    ++recent_number_;
    recent_use_ = {};
  }
  storage::PendingUse& use_of(Home& home, const TopicId& topic, PrincipalId principal);
  static storage::BucketLevel tail_level(const storage::Bucket& id, const Home& home);
  static void split_tails(Home& home);
  void number(const std::shared_ptr<Resident>& resident);
  Resident& tail(Home& home, Shelf& shelf, const storage::Bucket& home_id,
                 const storage::Bucket& bucket);
  void charge(Home& home, Resident& resident);
  void mark(Home& home);
  void kill(const Place& place);
  void let_go(Home& home, Resident& resident);
  void take_off_shelf(Home& home, Resident& resident);
  void leave(Resident& resident);
  void set_down(Resident& resident);
  Place place_at(const Location& location) const;
  Place locate(const PendingKey& key) const;
  Place locate(const PendingKey& key, const Location& location, Place& last) const;
  static Place covering(const Shelf& shelf, const PendingKey& key);
  bool is_marked_in_resident(const PendingKey& key) const;
  Level& level_of(const Resident& resident) {
    return levels_[static_cast<std::size_t>(resident.chunk->bucket().level)];
  }

  // --- homes_disk.cc
  bool evict_from(Home& home, Eviction& eviction, const PendingKey& horizon, std::size_t& budget,
                  std::vector<std::shared_ptr<Resident>>& left);
  std::size_t leave_out_gone(const storage::Bucket& id, storage::LoadedChunk& loaded) const;
  std::size_t count_back(const Resident& resident, const PendingKey& before,
                         const PendingKey& horizon);

  const std::size_t split_from_;
  Map homes_;
  // All are forgotten when a home goes, is written, or months become hours.
  std::vector<Kept> recent_ = std::vector<Kept>(kept_homes);
  std::uint64_t recent_number_ = 1;
  // The use that was last asked for, as most records are of one; null: none.  It is forgotten when
  // a home goes or its uses do.
  struct RecentUse {
    const Home* home = nullptr;
    std::pair<TopicId, PrincipalId> of;
    storage::PendingUse* use = nullptr;
  };
  RecentUse recent_use_;
  WallTime hours_end_ = WallTime::min();
  std::size_t memory_ = 0;
  std::size_t live_ = 0;
  std::size_t foreign_ = 0;  // Homes that are foreign.
  // The residents by their numbers; null: the number is free.
  std::vector<std::shared_ptr<Resident>> numbered_;
  std::vector<std::uint32_t> free_numbers_;
  // The place at which a record was last read and removed: requests without a location often come
  // in the order in which the records came.
  mutable Place last_read_;
  Place last_removed_;
  std::map<storage::Bucket, std::optional<storage::ChunkKey>> sweeps_;
  std::map<storage::Bucket, Eviction> evictions_;
  Levels levels_;
  std::uint64_t sealed_ = 0;
  std::uint64_t spared_ = 0;
};

}  // namespace tarry::delay
