#pragma once

// Histogram: how a number of milliseconds is distributed, in buckets that grow with the value.
//
// Values up to 7 have a bucket each; above, every power of two is cut into eight, so that a
// quantile is at most an eighth too large, whatever its size.  What is beyond 2^32 ms, which is
// 49 days, counts in the last bucket.  Fixed memory, O(1) to add; one thread.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace tarry::purgatory {

class Histogram {
 public:
  static constexpr std::size_t bucket_count = 240;

  void add(std::uint64_t value) {
    ++buckets_[bucket_of(value)];
    ++count_;
    sum_ += value;
    max_ = std::max(max_, value);
  }

  // What another one has counted, too.
  void add(const Histogram& other) {
    for (std::size_t i = 0; i < bucket_count; ++i) buckets_[i] += other.buckets_[i];
    count_ += other.count_;
    sum_ += other.sum_;
    max_ = std::max(max_, other.max_);
  }

  std::uint64_t count() const { return count_; }
  std::uint64_t sum() const { return sum_; }
  std::uint64_t max() const { return max_; }  // Exact; 0 when nothing was added.

  // The smallest bucket bound that at least `q` (0..1) of the values do not exceed; never above
  // max().  0 when nothing was added.
  std::uint64_t quantile(double q) const {
    const auto wanted = std::max<std::uint64_t>(
        1, static_cast<std::uint64_t>(std::ceil(q * static_cast<double>(count_))));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < bucket_count; ++i) {
      seen += buckets_[i];
      if (seen >= wanted) return std::min(upper_bound(i), max_);
    }
    return max_;
  }
  std::uint64_t p50() const { return quantile(0.50); }
  std::uint64_t p99() const { return quantile(0.99); }

  // For exporters: how many values fell into bucket i, and the largest value that belongs there.
  std::uint64_t in_bucket(std::size_t i) const { return buckets_[i]; }
  static constexpr std::uint64_t upper_bound(std::size_t i) {
    if (i < 8) return i;
    return ((8 + i % 8 + 1) << (i / 8 - 1)) - 1;
  }

 private:
  static constexpr std::size_t bucket_of(std::uint64_t value) {
    if (value < 8) return value;
    value = std::min<std::uint64_t>(value, 0xffff'ffff);
    const auto top = static_cast<unsigned>(std::bit_width(value)) - 1;  // 3..31.
    return (top - 2) * 8 + (value >> (top - 3) & 7);
  }

  std::array<std::uint64_t, bucket_count> buckets_{};
  std::uint64_t count_ = 0;
  std::uint64_t sum_ = 0;
  std::uint64_t max_ = 0;
};

}  // namespace tarry::purgatory
