#pragma once

// LagHistogram: how late, in microseconds, from 1 us to an hour and beyond, within 6 %.
//
// Sixteen buckets for each power of two: 4 KiB, one increment a value, no allocation.

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tarry::delay {

class LagHistogram {
 public:
  void add(std::chrono::nanoseconds lag, std::uint64_t times = 1) {
    const auto us = static_cast<std::uint64_t>(std::max<std::int64_t>(0, lag.count() / 1000));
    counts_[bucket_of(us)] += times;
    count_ += times;
    sum_ += us * times;
    max_ = std::max(max_, us);
  }
  // What another one has counted, too.
  void add(const LagHistogram& other) {
    for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    count_ += other.count_;
    sum_ += other.sum_;
    max_ = std::max(max_, other.max_);
  }

  std::uint64_t count() const { return count_; }
  std::chrono::microseconds sum() const { return us(sum_); }
  std::chrono::microseconds max() const { return us(max_); }

  // The value below which a share (0..1) of all lies, rounded up to its bucket's end.
  std::chrono::microseconds quantile(double share) const {
    const auto rank = static_cast<std::uint64_t>(share * static_cast<double>(count_));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (seen > rank || (seen == count_ && seen != 0)) return us(std::min(max_, last_of(i)));
    }
    return us(0);
  }

 private:
  static constexpr unsigned bits = 4;  // 2^bits buckets for a power of two.
  static constexpr std::size_t steps = std::size_t{1} << bits;

  static std::chrono::microseconds us(std::uint64_t value) {
    return std::chrono::microseconds{static_cast<std::int64_t>(value)};
  }
  static std::size_t bucket_of(std::uint64_t value) {
    if (value < steps) return value;
    const auto shift = static_cast<unsigned>(std::bit_width(value)) - 1 - bits;
    return std::min(last_bucket, (shift + 1) * steps + ((value >> shift) - steps));
  }
  static std::uint64_t last_of(std::size_t bucket) {
    if (bucket < steps) return bucket;
    if (bucket == last_bucket) return ~std::uint64_t{0};
    const auto shift = bucket / steps - 1;
    return ((bucket % steps + steps + 1) << shift) - 1;
  }

  static constexpr std::size_t last_bucket = 29 * steps - 1;  // 2^32 us and beyond.

  std::array<std::uint64_t, last_bucket + 1> counts_{};
  std::uint64_t count_ = 0;
  std::uint64_t sum_ = 0;
  std::uint64_t max_ = 0;
};

}  // namespace tarry::delay
