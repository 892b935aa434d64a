#pragma once

// FarTier: the pending records that are not near, and the horizon up to which records are near.
//
//          now             horizon                          now + window
//   --------|-----------------|- - - - - - - - - - - - - - - - - -|----------------->  due
//     near: everything of ours  to be loaded next                   far: the store alone
//     before the horizon
//
// The horizon is a (due, sequence): everything of ours before it is near, being delivered, or held
// back for its partition (below); everything from it on is in the store alone.  load() moves it
// forward by a bounded step, a window of locators without bodies; pull_back() moves it back when
// near has no more room.  At the start it is before everything, so overdue records are loaded
// first.
//
// A partition that cannot keep up (fenced, or a million due at once) must not fill near and so
// block the others.  After hold_back() its entries from a key on are in the store alone; refill()
// loads them, in the same kind of steps, when its queue has become short.
//
// Reads are done inline, in steps of at most a thousand locators (about a millisecond when they
// come from memory): no record can be added or cancelled while one runs, so the horizon
// is exact.
//
// Belongs to its engine, on its thread.

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "base/clock.h"
#include "base/result.h"
#include "delay/near_tier.h"
#include "storage/pending_store.h"

namespace tarry::delay {

class FarTier {
 public:
  // The entries found, in due order.
  using Take = std::function<void(const storage::PendingLocator&)>;

  FarTier(storage::PendingStore& store, std::size_t step) : store_(store), step_(step) {}

  const PendingKey& horizon() const { return horizon_; }

  // Reads the next step before `until` and moves the horizon behind it.  `take` is called for every
  // entry, also of partitions that are not ours or held back; returns false when the horizon has
  // reached `until`.
  Result<bool> load(WallTime until, const Take& take);

  // From now on entries at `horizon` or later are far.
  void pull_back(const PendingKey& horizon);

  // A record was added behind the horizon.
  void parked(const PendingKey& key);

  // An entry was removed, near or far.
  void left(const PendingKey& key) { first_.erase(key); }
  // A whole topic was removed: the known first entry may have belonged to it.
  void look_again();

  // The first entry of ours at or behind the horizon; empty: there is none, or it is not known.
  std::optional<WallTime> first_far() const {
    return first_.empty() ? std::nullopt : std::optional(first_.begin()->due);
  }
  bool first_far_known() const { return !first_.empty() || searched_until_.due == WallTime::max(); }
  // One step of the search for it.  `ours` tells whether an entry is this engine's.
  Result<> search_first(const std::function<bool(const storage::PendingLocator&)>& ours);

  // Per partition.
  void hold_back(PartitionSlot partition, const PendingKey& from);
  // Where held back entries of the partition begin; empty: none are.
  std::optional<PendingKey> held_from(PartitionSlot partition) const;
  std::size_t holds() const { return held_.size(); }  // Partitions.
  // The next of them after `after`, in a circle; only if there are any.
  PartitionSlot next_held(PartitionSlot after) const {
    const auto next = held_.upper_bound(after);
    return next != held_.end() ? next->first : held_.begin()->first;
  }
  // Reads a step of the entries held back for `partition`; `take` is called for each.
  Result<> refill(PartitionSlot partition, const Take& take);
  void forget(PartitionSlot partition) { held_.erase(partition); }

 private:
  static PendingKey behind(const PendingKey& key) { return {key.due, key.sequence + 1}; }

  // The search for the first one begins with so many entries; each search that fails doubles it.
  static constexpr std::size_t first_look = 16;

  storage::PendingStore& store_;
  const std::size_t step_;
  PendingKey horizon_{WallTime::min(), 0};

  // All our entries from the horizon to `searched_until_`, at most a step.  When the first one
  // leaves, the next is known, or the search continues where it ended: a search from the horizon
  // would pass over all entries that have left since, each time.
  std::set<PendingKey> first_;
  PendingKey searched_until_{WallTime::min(), 0};  // Never before the horizon.
  std::size_t look_ = first_look;

  std::map<PartitionSlot, PendingKey> held_;  // All before the horizon.
};

}  // namespace tarry::delay
