#pragma once

// NearIndex: the entries of a NearTier by sequence number.
//
//   segments   [ slots ] [ slots ] [ slots ] ...    each: open addressing, linear probing
//
// It grows by one segment at a time (linear hashing): the next segment in turn is split, and about
// half of its entries go to the new one.  A table that doubles at once would move a million entries
// in the turn of one insert.  While there is one segment, that one doubles.
//
// Invariants
//   - An insert moves the entries of one segment at most.
//   - Every segment has an empty slot, so that each search ends.
//   - From a number's home slot to its own no slot is empty.
//
// Belongs to its NearTier, on its thread.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace tarry::delay {

class NearEntry;

class NearIndex {
 public:
  struct Slot {
    Sequence sequence = 0;
    NearEntry* entry = nullptr;  // Null: the slot is empty.
  };
  static constexpr std::size_t segment_slots = 4'096;
  static constexpr std::size_t segment_bytes = segment_slots * sizeof(Slot);
  // At most three of eight slots are taken, so that of a segment that is not split yet, and has
  // twice as many as those that are, a quarter is empty.
  static constexpr std::size_t bytes_per_entry = (sizeof(Slot) * 8 + 2) / 3;

  // Lines of slots (line_bits) begin where the processor's cache lines do.
  static constexpr std::align_val_t alignment{64};
  struct Free {
    void operator()(Slot* slots) const { ::operator delete[](slots, alignment); }
  };
  struct Segment {
    std::unique_ptr<Slot[], Free> slots;
    std::size_t taken = 0;
  };

  NearIndex() { segments_.push_back(make(first_slots)); }

  // Null: it is not here.
  NearEntry* find(Sequence sequence) const {
    const std::uint64_t hash = hash_of(sequence);
    return slot_in(segments_[segment_of(hash)], hash, sequence).entry;
  }
  // The number stands for this entry from now on.
  void insert(Sequence sequence, NearEntry* entry) {
    const std::uint64_t hash = hash_of(sequence);
    if ((size_ + 1) * 8 > segments_.size() * slots_ * 3) grow();
    // A segment is crowded only if the hash is bad, and is split in its turn.
    while (segments_[segment_of(hash)].taken + 1 >= slots_) grow();
    size_ += put(hash, {sequence, entry});
  }
  // Does nothing if the number stands for another entry.
  void erase(Sequence sequence, const NearEntry* entry);

  void prefetch(Sequence sequence) const {
    const std::uint64_t hash = hash_of(sequence);
    __builtin_prefetch(&segments_[segment_of(hash)].slots[home_of(hash, sequence)], 1);
  }

  std::size_t size() const { return size_; }
  std::size_t bytes() const { return segments_.size() * slots_ * sizeof(Slot); }
  // Becomes empty; the caller frees the segments, as many at a time as it likes.
  std::vector<Segment> take_all() {
    NearIndex empty;
    std::swap(*this, empty);
    return std::move(empty.segments_);
  }

 private:
  static constexpr std::size_t first_slots = 64;
  // Sequence numbers come one after the other, and those next to each other are looked for one
  // after the other: a cache line of them stays together, and the hash spreads the lines.
  static constexpr unsigned line_bits = 2;
  static_assert(sizeof(Slot) << line_bits == static_cast<std::size_t>(alignment));

  static Segment make(std::size_t slots) {
    return {std::unique_ptr<Slot[], Free>(new (alignment) Slot[slots]), 0};
  }
  static std::uint64_t hash_of(Sequence sequence) {
    std::uint64_t hash = (sequence >> line_bits) * 0x9e3779b97f4a7c15u;
    hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93u;
    return hash ^ hash >> 32;
  }
  // Its lower bits; a segment that is not there yet is still a part of the one that it will leave.
  std::size_t segment_of(std::uint64_t hash) const {
    const std::size_t number = static_cast<std::size_t>(hash) & mask_;
    return number < segments_.size() ? number : number & (mask_ >> 1);
  }
  // Other bits than those that choose a segment.
  std::size_t home_of(std::uint64_t hash, Sequence sequence) const {
    const std::uint64_t within = sequence & ((1u << line_bits) - 1);
    return static_cast<std::size_t>(hash >> 40 << line_bits | within) & (slots_ - 1);
  }
  // The slot that has it, or an empty one.
  Slot& slot_in(const Segment& segment, std::uint64_t hash, Sequence sequence) const {
    std::size_t at = home_of(hash, sequence);
    while (segment.slots[at].entry != nullptr && segment.slots[at].sequence != sequence)
      at = (at + 1) & (slots_ - 1);
    return segment.slots[at];
  }
  // Returns how many slots it takes.
  std::size_t put(std::uint64_t hash, const Slot& slot) {
    Segment& segment = segments_[segment_of(hash)];
    Slot& at = slot_in(segment, hash, slot.sequence);
    const std::size_t is_new = at.entry == nullptr ? 1 : 0;
    segment.taken += is_new;
    at = slot;
    return is_new;
  }
  void grow();

  std::vector<Segment> segments_;
  std::size_t slots_ = first_slots;  // In each segment: a power of two.
  // Twice the greatest power of two that is not above the number of segments, less one.
  std::size_t mask_ = 1;
  std::size_t size_ = 0;
};

inline void NearIndex::grow() {
  const bool doubles = segments_.size() == 1 && slots_ < segment_slots;
  const std::size_t count = segments_.size();
  const std::size_t from = doubles ? 0 : count - std::bit_floor(count);
  const std::size_t slots = doubles ? 2 * slots_ : slots_;
  // Nothing has changed if there is no memory for it.
  Segment kept = make(slots);
  if (!doubles) segments_.push_back(make(slots));
  const Segment old = std::exchange(segments_[from], std::move(kept));
  const std::size_t old_slots = std::exchange(slots_, slots);
  mask_ = 2 * std::bit_floor(segments_.size()) - 1;
  for (std::size_t at = 0; at < old_slots; ++at) {
    const Slot& slot = old.slots[at];
    if (slot.entry != nullptr) put(hash_of(slot.sequence), slot);
  }
}

// An entry that was pushed past the hole moves back into it, so that no search ends too early.
inline void NearIndex::erase(Sequence sequence, const NearEntry* entry) {
  const std::uint64_t hash = hash_of(sequence);
  Segment& segment = segments_[segment_of(hash)];
  Slot& found = slot_in(segment, hash, sequence);
  if (found.entry == nullptr || found.entry != entry) return;
  const std::size_t mask = slots_ - 1;
  Slot* const slots = segment.slots.get();
  auto hole = static_cast<std::size_t>(&found - slots);
  // Those behind it are of few lines as a rule, and a line has one hash.
  Sequence line = sequence >> line_bits;
  std::size_t line_home = home_of(hash, line << line_bits);
  for (std::size_t at = (hole + 1) & mask; slots[at].entry != nullptr; at = (at + 1) & mask) {
    const Sequence there = slots[at].sequence;
    if (there >> line_bits != line) {
      line = there >> line_bits;
      line_home = home_of(hash_of(there), line << line_bits);
    }
    const std::size_t home = line_home | (there & ((1u << line_bits) - 1));
    if (((at - home) & mask) >= ((at - hole) & mask)) {
      slots[hole] = slots[at];
      hole = at;
    }
  }
  slots[hole] = {};
  --segment.taken;
  --size_;
}

}  // namespace tarry::delay
