#pragma once

// NearTier: the records that are due soon, as locators in a wheel of wall-clock milliseconds.
//
//     far (the BucketTier alone)         near (here too)             a moment before it is due
//   ------------------------ horizon  [ wheel: waiting ]  --advance()-->  queued, in its partition
//
// A locator has due time, sequence number, partition and where the body is: 64 bytes.  The wheel is
// this tier's own and ticks by the wall clock, so that a step of that clock moves no entry
// (docs/adr/0001): a step ahead is one more advance(); after a step back the wheel is ahead of the
// clock, and what it would be too late for is queued at once.
//
// Entries leave the wheel before they are due, so that a million of one millisecond are in order
// when it comes.  The owner of the queue keeps them until then.
//
// The caller of insert() bounds the number of entries: when the horizon moves back, sweep() erases
// the entries behind it, a few at a time.  Erasing loses nothing: the BucketTier has everything.
//
// Invariants
//   - An entry leaves the wheel once, by advance() or in insert().
//   - Entries that are due before complete_before() are queued or further.
//   - A sequence number is in the tier at most once, not counting abandoned entries: what was moved
//     while it was queued is found under its new key.
//
// Belongs to its engine, on its thread.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "delay/location.h"
#include "delay/near_index.h"
#include "storage/pending.h"
#include "timing/timing_wheel.h"

namespace tarry::delay {

using storage::PendingKey;

class NearTier;

// A partition, by its place in the engine's table.
using PartitionSlot = std::uint32_t;

// One pending record while it is near or on its way out.
class alignas(64) NearEntry final : public timing::Timer {
 public:
  enum class State : std::uint8_t {
    unused,
    waiting,    // In the wheel.
    queued,     // Its partition's queue has it.
    abandoned,  // Was queued and is leaving; still in its partition's queue.
    in_flight,  // On its way to the log.
  };

  NearEntry() = default;

  const PendingKey& key() const { return key_; }
  PartitionSlot partition() const { return partition_; }
  const Location& location() const { return location_; }
  State state() const { return state_; }

 private:
  friend class NearTier;
  void on_expired() override;

  State state_ = State::unused;
  PartitionSlot partition_ = 0;
  PendingKey key_;
  Location location_;
  union {
    NearTier* tier_ = nullptr;
    NearEntry* next_free_;  // While it is unused.
  };
};

// A locator is the memory that a pending record costs: one cache line.
static_assert(sizeof(NearEntry) == 64);

class NearTier {
 public:
  explicit NearTier(WallTime now);
  ~NearTier();
  NearTier(const NearTier&) = delete;
  NearTier& operator=(const NearTier&) = delete;

  // Inserts an entry; null if it is here already.  The caller puts it into a queue if it is
  // `queued`: it is too late for the wheel.
  NearEntry* insert(const PendingKey& key, PartitionSlot partition, const Location& location = {});

  NearEntry* find(Sequence sequence) const { return index_.find(sequence); }

  // Erases an entry, whatever its state.  The caller has dropped a queued one from its queue
  // before.
  void erase(NearEntry& entry);

  // It will be inserted soon: what that needs comes near the processor meanwhile.
  void prefetch(Sequence sequence) const { index_.prefetch(sequence); }
  // The same of one that will be erased.
  void prefetch(const NearEntry& entry, Sequence sequence) const {
    __builtin_prefetch(&entry, 1);
    prefetch(sequence);
  }

  // Changes of state of a queued entry; the caller keeps its queue in step.
  void set_in_flight(NearEntry& entry) { entry.state_ = NearEntry::State::in_flight; }
  void set_queued(NearEntry& entry) { entry.state_ = NearEntry::State::queued; }
  void set_abandoned(NearEntry& entry) { entry.state_ = NearEntry::State::abandoned; }

  // Takes the entries that are due by `until` out of the wheel, in no order of one millisecond.
  // `budget` bounds the work; true: there is more to do.
  bool advance(WallTime until, std::size_t budget, std::vector<NearEntry*>& queued);
  WallTime complete_before() const;
  // The first due time in the wheel, or a time before it.  Empty when nothing waits.
  std::optional<WallTime> next_due() const;

  std::size_t size() const { return size_; }
  std::size_t waiting() const { return wheel_.size(); }

  // Visits the entries that wait or are queued among up to `limit` places from `cursor` on, which
  // moves on; false: that was the last one.  Between two calls entries come and go: some may be
  // missed, or come twice.
  bool visit(std::size_t& cursor, std::size_t limit,
             const std::function<void(const NearEntry&)>& seen) const;

  // Visits up to `limit` entries, from where it last ended, and erases waiting ones for which
  // `unwanted` is true.  Returns true when this call completes a round over all entries.
  bool sweep(std::size_t limit, const std::function<bool(const NearEntry&)>& unwanted);

  // The memory of a burst is given back when the burst is over, and to free all of it takes long:
  // so many pieces of it, of some 64 KiB each, go with a call.  True: there are more.
  bool free_ended(std::size_t pieces);
  bool has_ended() const { return !ended_slabs_.empty() || !ended_segments_.empty(); }

  timing::TimingWheel::Stats wheel_stats() const { return wheel_.stats(); }
  std::size_t bytes() const;

 private:
  friend class NearEntry;
  using Slab = std::vector<NearEntry>;
  static constexpr std::size_t slab_entries = 1024;
  // So many slabs stay when the tier becomes empty.
  static constexpr std::size_t slabs_kept = 64;

  void add_slab();
  void end_burst();

  timing::TimingWheel wheel_;

  // Entries never move, for the wheel knows their addresses.  Slabs are kept for reuse until the
  // tier is empty.
  std::deque<Slab> slabs_;
  NearEntry* free_ = nullptr;  // The first unused entry; each knows the next one.
  std::size_t size_ = 0;
  std::size_t swept_ = 0;  // sweep() continues there.
  NearIndex index_;
  // Left by a burst that is over, to be reclaimed.
  std::deque<Slab> ended_slabs_;
  std::vector<NearIndex::Segment> ended_segments_;

  bool behind_ = false;                        // The wheel has more that is due by its time.
  std::vector<NearEntry*>* queued_ = nullptr;  // While advance() runs.
};

}  // namespace tarry::delay
