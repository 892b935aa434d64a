#pragma once

// NearTier: the records that are due soon, as locators in a wheel of wall-clock milliseconds.
//
//     far (the BucketTier alone)         near (here too)                    due
//   ------------------------ horizon  [ wheel: due > now ]  --expiry-->  ready, of its partition
//                                     [ early: came out too soon ]
//
// A locator has due time, sequence number and partition: 64 bytes and no body.  The wheel is this
// tier's own and ticks by the wall clock, so that a step of that clock moves no entry
// (docs/adr/0001): a step ahead is one more advance(); after a step back the wheel is ahead of the
// clock, and an entry that leaves it too soon waits in `early`, in order, until it is due.
//
// The caller of insert() bounds the number of entries: when the horizon moves back, sweep() erases
// the entries behind it, a few at a time.  Erasing loses nothing: the BucketTier has everything.
//
// What always holds
//   - An entry becomes ready once, by advance() or in insert(), when `now` has reached its due
//     time and not before.
//   - A sequence number is in the tier at most once, not counting abandoned entries: what was moved
//     while it was ready is found under its new key.
//   - Unless it is_behind(), every entry due at the last advance()'s `now` is ready or further.
//
// Belongs to its engine, on its thread.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "storage/pending.h"
#include "timing/timing_wheel.h"

namespace tarry::delay {

using storage::PendingKey;

class NearTier;

// A partition, by its place in the engine's table.
using PartitionSlot = std::uint32_t;

// One pending record while it is near or on its way out.
class NearEntry final : public timing::Timer {
 public:
  enum class State : std::uint8_t {
    unused,
    waiting,    // In the wheel.
    early,      // Came out of the wheel before its time.
    ready,      // Due; its partition's queue has it.
    abandoned,  // Was ready and is leaving; still in its partition's queue.
    in_flight,  // Handed to the sink.
  };

  NearEntry() = default;

  const PendingKey& key() const { return key_; }
  PartitionSlot partition() const { return partition_; }
  State state() const { return state_; }

 private:
  friend class NearTier;
  void on_expired() override;

  State state_ = State::unused;
  PartitionSlot partition_ = 0;
  PendingKey key_;
  NearTier* tier_ = nullptr;
};

// A locator is the memory that a pending record costs: one cache line.
static_assert(sizeof(NearEntry) <= 64);

class NearTier {
 public:
  explicit NearTier(WallTime now);
  ~NearTier();
  NearTier(const NearTier&) = delete;
  NearTier& operator=(const NearTier&) = delete;

  // Inserts an entry; null if it is here already.  The caller queues it when it is `ready`.
  NearEntry* insert(const PendingKey& key, PartitionSlot partition, WallTime now);

  NearEntry* find(Sequence sequence) const;

  // Erases an entry, whatever its state.  The caller has dropped a ready one from its queue before.
  void erase(NearEntry& entry);

  // Changes of state of a ready entry; the caller keeps its queue in step.
  void set_in_flight(NearEntry& entry) { entry.state_ = NearEntry::State::in_flight; }
  void set_ready(NearEntry& entry) { entry.state_ = NearEntry::State::ready; }
  void set_abandoned(NearEntry& entry) { entry.state_ = NearEntry::State::abandoned; }
  void set_early(NearEntry& entry);  // It is no longer due: the clock was set back.

  // Appends the entries that became due to `ready`, in no order.  `budget` bounds the work; true:
  // there is more to do at this `now`.
  bool advance(WallTime now, std::size_t budget, std::vector<NearEntry*>& ready);

  // When advance() next has something to do.  Empty when nothing waits.
  std::optional<WallTime> next_work() const;

  // The last advance() had more to do: a waiting entry may be due before the ready ones.
  bool is_behind() const { return behind_; }

  std::size_t size() const { return size_; }
  std::size_t waiting() const { return wheel_.size(); }

  // Visits up to `limit` entries, from where it last ended, and erases waiting ones for which
  // `unwanted` is true.  Returns true when this call completes a round over all entries.
  bool sweep(std::size_t limit, const std::function<bool(const NearEntry&)>& unwanted);

  // Visits the waiting entries among up to `limit` places from `cursor` on, which moves on; false:
  // that was the last one.  Between two calls entries come and go: some may be missed, or come
  // twice.
  bool visit(std::size_t& cursor, std::size_t limit,
             const std::function<void(const NearEntry&)>& seen) const;

  timing::TimingWheel::Stats wheel_stats() const { return wheel_.stats(); }
  std::size_t bytes() const;

 private:
  friend class NearEntry;
  struct ByKey {
    bool operator()(const NearEntry* a, const NearEntry* b) const { return a->key() < b->key(); }
  };
  static constexpr std::size_t slab_entries = 1024;

  void expired(NearEntry& entry);
  std::size_t slot_for(Sequence sequence) const;
  void index_insert(NearEntry* entry);
  void index_erase(const NearEntry& entry);
  void grow_index();

  timing::TimingWheel wheel_;
  std::set<NearEntry*, ByKey> early_;

  // Entries never move, for the wheel knows their addresses.  Slabs are kept for reuse until the
  // tier is empty.
  std::deque<std::vector<NearEntry>> slabs_;
  std::vector<NearEntry*> free_;
  std::size_t size_ = 0;
  std::size_t swept_ = 0;  // Where sweep() continues.

  // By sequence number: open addressing, linear probing, a power of two, at most 3/4 full.
  std::vector<NearEntry*> index_;

  bool behind_ = false;

  // While advance() runs.
  WallTime advancing_to_{};
  std::vector<NearEntry*>* ready_ = nullptr;
};

}  // namespace tarry::delay
