#pragma once

// BucketSlots: which buckets of a level are in use, for a picture of them.
//
//   from        + span     + 2 span                           1024 spans
//   [in use]    [     ]    [in use]    [     ]   ...   [     ] | `later`: there are others
//
// A record before `from` is overdue and counts as in the first.  Pure; any thread.

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "storage/bucket.h"

namespace tarry::storage {

class BucketSlots {
 public:
  // Six weeks of hours.
  static constexpr std::size_t count = 1024;

  BucketSlots() = default;
  BucketSlots(BucketLevel level, WallTime now) : from_(bucket_of(level, now)) {}

  // A bucket of the same level.
  void add(const Bucket& bucket) {
    const auto place = (bucket.start - from_.start) / span_of(from_.level);
    if (place >= static_cast<std::int64_t>(count)) {
      later_ = true;
    } else {
      used_.set(place < 0 ? 0 : static_cast<std::size_t>(place));
    }
  }
  void add_later() { later_ = true; }
  // Adds the slots of another part of the same level, perhaps as of another moment.
  void merge(const BucketSlots& other) {
    for (std::size_t place = 0; place < count; ++place) {
      if (!other.used_[place]) continue;
      const auto after = span_of(from_.level) * static_cast<std::int64_t>(place);
      add({from_.level, other.from_.start + after});
    }
    later_ |= other.later_;
  }

  WallTime from() const { return from_.start; }
  const std::bitset<count>& used() const { return used_; }
  // There may be others, after those that are shown.
  bool later() const { return later_; }

 private:
  Bucket from_;
  std::bitset<count> used_;
  bool later_ = false;
};

using LevelSlots = std::array<BucketSlots, bucket_levels>;

// All empty.
inline LevelSlots level_slots(WallTime now) {
  LevelSlots slots;
  for (std::size_t level = 0; level < bucket_levels; ++level)
    slots[level] = {static_cast<BucketLevel>(level), now};
  return slots;
}

}  // namespace tarry::storage
