#pragma once

// NearTier: what is due soon, as locators in a wheel of wall-clock milliseconds.
//
//     far (the store alone)              near (here too)                    due
//   ------------------------ horizon  [ wheel: due > now ]  --expiry-->  ready, of its partition
//                                     [ early: came out too soon ]
//
// A locator says when, which and where: 64 bytes and no body.  The wheel is this tier's own and
// ticks by the wall clock, so that a step of that clock re-files nothing (docs/adr/0001): a step
// ahead is one more advance(); after a step back the wheel is ahead of the clock, and what leaves
// it too soon waits in `early`, in order, until its time has come.
//
// Entries are bounded in number by whoever inserts them: when there are too many, horizon_for()
// proposes where the far future should begin from now on (by a sample), and sweep() lets go what
// lies behind, little by little.  Letting go loses nothing: the store has everything.
//
// What always holds
//   - An entry becomes ready once, by advance() or in insert(), when `now` has reached its due
//     time and not before.
//   - A sequence number is here once.
//   - Unless it is_behind(), all that is due at the last advance()'s `now` is ready or further.
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
#include "storage/pending_store.h"
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
    abandoned,  // Was ready and is leaving; its partition's queue has it still.
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

// A locator is what a pending record costs in memory: one cache line.
static_assert(sizeof(NearEntry) <= 64);

class NearTier {
 public:
  explicit NearTier(WallTime now);
  ~NearTier();
  NearTier(const NearTier&) = delete;
  NearTier& operator=(const NearTier&) = delete;

  // Files an entry; null when it is here already.  The caller queues it when it is `ready`.
  NearEntry* insert(const PendingKey& key, PartitionSlot partition, WallTime now);

  NearEntry* find(Sequence sequence) const;

  // Takes an entry out, whatever its state.  Who queued a ready one has forgotten it before.
  void erase(NearEntry& entry);

  // Changes of state once it is ready; who queues it knows.
  void set_in_flight(NearEntry& entry) { entry.state_ = NearEntry::State::in_flight; }
  void set_ready(NearEntry& entry) { entry.state_ = NearEntry::State::ready; }
  void set_abandoned(NearEntry& entry) { entry.state_ = NearEntry::State::abandoned; }
  void set_early(NearEntry& entry);  // Its time has gone again: the clock was set back.

  // Appends what has become due to `ready`, in no order.  `budget` bounds the work; true: there is
  // more to do at this `now`.
  bool advance(WallTime now, std::size_t budget, std::vector<NearEntry*>& ready);

  // When advance() next has something to do.  Empty when nothing waits.
  std::optional<WallTime> next_work() const;

  // The last advance() had more to do: something that waits may be due before what is ready.
  bool is_behind() const { return behind_; }

  std::size_t size() const { return size_; }
  std::size_t waiting() const { return wheel_.size(); }

  // A key such that about `keep` (0..1) of those in the wheel lie before it.
  std::optional<PendingKey> horizon_for(double keep);

  // Looks at up to `limit` entries, goes on where it stood, and erases those that wait and for
  // which `unwanted` says so.  True when a whole round over all entries has ended with this call.
  bool sweep(std::size_t limit, const std::function<bool(const NearEntry&)>& unwanted);

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
  std::size_t swept_ = 0;  // Where sweep() goes on.

  // By sequence number: open addressing, linear probing, a power of two, at most 3/4 full.
  std::vector<NearEntry*> index_;

  bool behind_ = false;

  // While advance() runs.
  WallTime advancing_to_{};
  std::vector<NearEntry*>* ready_ = nullptr;
};

}  // namespace tarry::delay
