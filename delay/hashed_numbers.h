#pragma once

// HashedNumbers: finds by a hash which element of a list has a key.  The list and its keys are the
// owner's; an element is known here by its number, the place in the list.
//
//   slots   [ hash, number ] ...    open addressing, linear probing: one cache line tells that a
//                                   key is unknown
//
// Clients choose the keys, so their hash should have a key that nobody knows (base/keyed_hash.h).
//
// Invariant: at most two of three slots are taken, so that each search ends.  The owner gives room
// before it takes a slot, by reserve() once or by make_room() each time.
//
// Belongs to whoever has the list, on its thread.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tarry::delay {

class HashedNumbers {
 public:
  using Number = std::uint32_t;
  using Hash = std::uint32_t;

  class Slot {
   public:
    bool is_empty() const { return next_number_ == 0; }
    Number number() const { return next_number_ - 1; }
    void take(Hash hash, Number number) {
      hash_ = hash;
      next_number_ = number + 1;
    }

   private:
    friend class HashedNumbers;
    Hash hash_ = 0;
    Number next_number_ = 0;  // 0: the slot is empty.
  };

  // For so many numbers at most, which take half of the slots.  Before the first one.
  void reserve(std::size_t max_numbers) { slots_.resize(std::bit_ceil(2 * max_numbers)); }
  // For one number more than the `numbers` that have slots.
  void make_room(std::size_t numbers) {
    if ((numbers + 1) * 3 > slots_.size() * 2) grow();
  }

  // The slot of the number with this hash for which is_same(number), or the empty one for it. There
  // must be slots.
  template <typename IsSame>
  Slot& slot(Hash hash, const IsSame& is_same) {
    return slots_[place_of(hash, is_same)];
  }
  template <typename IsSame>
  const Slot& slot(Hash hash, const IsSame& is_same) const {
    return slots_[place_of(hash, is_same)];
  }

  std::size_t slots() const { return slots_.size(); }
  std::size_t memory_bytes() const { return slots_.capacity() * sizeof(Slot); }
  // The most slots that a search passes.
  std::size_t longest_search() const {
    std::size_t longest = 0, run = 0;
    // A run of taken slots may go on at the beginning.
    for (std::size_t i = 0; i < 2 * slots_.size(); ++i) {
      run = slots_[i % slots_.size()].is_empty() ? 0 : run + 1;
      longest = std::max(longest, run);
    }
    return longest;
  }

 private:
  static constexpr std::size_t first_slots = 16;

  template <typename IsSame>
  std::size_t place_of(Hash hash, const IsSame& is_same) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = hash & mask;
    const auto is_other = [&](const Slot& slot) {
      return slot.hash_ != hash || !is_same(slot.number());
    };
    while (!slots_[at].is_empty() && is_other(slots_[at])) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<Slot> larger(slots_.empty() ? first_slots : 2 * slots_.size());
    const std::size_t mask = larger.size() - 1;
    for (const Slot& slot : slots_) {
      if (slot.is_empty()) continue;
      std::size_t at = slot.hash_ & mask;
      while (!larger[at].is_empty()) at = (at + 1) & mask;
      larger[at] = slot;
    }
    slots_ = std::move(larger);
  }

  std::vector<Slot> slots_;  // A power of two, or none.
};

}  // namespace tarry::delay
