#pragma once

// DelayQueue: finds the next bucket of the wheel.
//
// A wheel that ticked would visit every bucket; this queue holds only the non-empty ones, so that
// an idle wheel has nothing to do and a jump over a century visits no empty bucket.  It needs
// no heap: a level's buckets lie in the order of their times, and what is on a lower level
// comes before everything on a higher one (TimingWheel's placement sees to both), so the next
// bucket is the first set bit of the lowest level that has one.
//
//    levels_   0 0 0 0 0 1 0 1         levels 0 and 2 have buckets
//    bits_[0]  ....1.....1.1...        one bit a bucket, 256 a level
//    bits_[2]  ..1.............
//
// Owned by the wheel, on its thread.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tarry::timing {

// A bucket's name: its level, and its place among the level's 256.
class BucketId {
 public:
  static constexpr BucketId of(unsigned level, unsigned index) { return {level, index}; }
  constexpr unsigned level() const { return level_; }
  constexpr unsigned index() const { return index_; }
  bool operator==(const BucketId&) const = default;

 private:
  constexpr BucketId(unsigned level, unsigned index) : level_(level), index_(index) {}
  unsigned level_;
  unsigned index_;
};

class DelayQueue {
 public:
  static constexpr unsigned level_count = 8;

  bool empty() const { return levels_ == 0; }
  bool has(unsigned level) const { return (levels_ >> level & 1) != 0; }

  // The next bucket; only when not empty().
  BucketId first() const {
    const auto level = static_cast<unsigned>(std::countr_zero(levels_));
    const Bits& bits = bits_[level];
    unsigned word = 0;
    while (bits[word] == 0) ++word;
    return BucketId::of(level, word * 64 + static_cast<unsigned>(std::countr_zero(bits[word])));
  }

  void insert(BucketId bucket) {
    bits_[bucket.level()][bucket.index() / 64] |= std::uint64_t{1} << bucket.index() % 64;
    levels_ |= 1U << bucket.level();
  }

  void erase(BucketId bucket) {
    Bits& bits = bits_[bucket.level()];
    bits[bucket.index() / 64] &= ~(std::uint64_t{1} << bucket.index() % 64);
    if ((bits[0] | bits[1] | bits[2] | bits[3]) == 0) levels_ &= ~(1U << bucket.level());
  }

  // One bit a bucket: the lowest of the first word is bucket 0.
  using Bits = std::array<std::uint64_t, 4>;
  const Bits& bits_on(unsigned level) const { return bits_[level]; }

  std::size_t buckets_on(unsigned level) const {
    std::size_t count = 0;
    for (const std::uint64_t word : bits_[level]) {
      count += static_cast<std::size_t>(std::popcount(word));
    }
    return count;
  }

 private:
  std::uint32_t levels_ = 0;  // Bit k is set while level k has a bucket.
  std::array<Bits, level_count> bits_{};
};

}  // namespace tarry::timing
