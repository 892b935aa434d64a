#pragma once

// Horizon: the key up to which all pending records of a shard are in memory.  It hands them to the
// wheel.
//
//   due time ------ settled_before() ============ at() -------------------------->
//       handed to the wheel    |   being handed over    |   far
//
// It runs a lead of time ahead of the clock.  The lead is halved when near records spend the
// memory, and grows again when there is room.
//
// Invariant: every pending record before settled_before() was handed over once since it was added
// or loaded, or add() said where it is.
//
// Belongs to its BucketTier, on its thread.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "delay/dropped_topics.h"
#include "delay/home.h"
#include "delay/homes.h"
#include "delay/location.h"
#include "storage/pending.h"

namespace tarry::delay {

class Horizon {
 public:
  using PendingKey = storage::PendingKey;
  using PendingView = storage::PendingView;

  // `lead`: the longest.
  explicit Horizon(std::chrono::milliseconds lead, const PendingKey& at = {storage::before_all, 0});

  const PendingKey& at() const { return at_; }
  PendingKey settled_before() const {
    return handing_.empty() ? at_ : std::min(at_, handing_from_);
  }
  bool is_handing() const { return !handing_.empty(); }

  std::chrono::milliseconds lead() const { return lead_; }
  // Near records have spent the memory, and the lead has not grown again.
  bool is_short() const { return lead_ < longest_lead_; }
  // Memory has room again.
  void lengthen_lead(WallTime now);
  // Halves the lead, and moves back to it; returns where it was, or nothing if it is not ahead of
  // it.
  std::optional<PendingKey> pull_back(WallTime now);
  // The level of buckets for what lies behind a horizon that was moved back.
  storage::BucketLevel split_level() const;

  // Moves to `until`: everything before it that is pending is in memory.
  void advance(const PendingKey& until, const Homes& homes);
  // Hands so many entries over; returns how many of them were pending. `soon` may be empty.
  std::size_t hand_over(std::size_t budget, const DroppedTopics& dropped,
                        const std::function<void(const PendingView&, const Location&)>& near,
                        const std::function<void(Sequence)>& soon);

 private:
  const std::chrono::milliseconds longest_lead_;
  PendingKey at_;
  std::chrono::milliseconds lead_;  // Less than the longest while memory is short,
  WallTime lead_from_{};            //   and not more before this.
  // Chunks with entries from handing_from_ to the horizon that are to be handed over, and how many
  // entries each had when the horizon moved.
  std::deque<std::pair<std::shared_ptr<const Resident>, std::size_t>> handing_;
  PendingKey handing_from_;
  std::size_t handed_ = 0;  // Entries of the first one.
};

}  // namespace tarry::delay
