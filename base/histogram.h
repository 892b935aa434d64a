#pragma once

// Histogram: how whole numbers (milliseconds, microseconds) are distributed, in buckets that grow
// with the value.
//
// Values up to 7 have a bucket each; above, every power of two is cut into eight, so that a
// quantile is at most an eighth too large, whatever its size, and never too small:
//
//   value    0  1 ... 7   8  9 ... 15   16-17 ... 30-31   32-35 ...      up to 2^32 and beyond
//   bucket  [ ][ ]   [ ] [ ][ ]   [  ] [     ]   [     ] [     ]         240 of them
//
// Larger values (2^32 is 49 days of milliseconds, 71 minutes of microseconds) count in the last
// bucket, and a quantile that falls there is the largest value of all.
//
// Nothing is allocated, and no lock is taken: one thread has all of it.  It takes 2 KiB.

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace tarry {

template <typename Count>
class BasicHistogram {
 public:
  static constexpr std::size_t bucket_count = 240;

  void add(std::uint64_t value, std::uint64_t times = 1) {
    buckets_[bucket_of(value)] += static_cast<Count>(times);
    count_ += times;
    sum_ += value * times;
    max_ = std::max(max_, value);
  }

  // Adds what another one has counted.
  template <typename Other>
  void add(const BasicHistogram<Other>& other) {
    if (other.count() == 0) return;
    for (std::size_t i = 0; i < bucket_count; ++i)
      buckets_[i] += static_cast<Count>(other.in_bucket(i));
    count_ += other.count();
    sum_ += other.sum();
    max_ = std::max(max_, other.max());
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
    for (std::size_t i = 0; i + 1 < bucket_count; ++i) {
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

  // For Prometheus, the same bounds for ever and for every histogram: 1, 2 and 5, and where a power
  // of two ends (7, 15, 31 ...).  They are ends of buckets, so the counts are exact.  Calls
  // `visit(bound, values up to it)` in rising order; all values is the caller's +Inf.
  template <typename Visit>
  void for_each_exported(Visit visit) const {
    std::uint64_t up_to = 0;
    for (std::size_t i = 0; i + 1 < bucket_count; ++i) {
      up_to += buckets_[i];
      if (i == 1 || i == 2 || i == 5 || i % 8 == 7) visit(upper_bound(i), up_to);
    }
  }

 private:
  static constexpr std::size_t bucket_of(std::uint64_t value) {
    if (value < 8) return value;
    value = std::min<std::uint64_t>(value, 0xffff'ffff);
    const auto top = static_cast<unsigned>(std::bit_width(value)) - 1;  // 3..31.
    return (top - 2) * 8 + (value >> (top - 3) & 7);
  }

  std::array<Count, bucket_count> buckets_{};
  std::uint64_t count_ = 0;
  std::uint64_t sum_ = 0;
  std::uint64_t max_ = 0;
};

using Histogram = BasicHistogram<std::uint64_t>;

// A time as a histogram of microseconds counts it; one that is negative is 0.
inline std::uint64_t whole_microseconds(std::chrono::nanoseconds time) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, time.count() / 1000));
}

// The values of a WindowedHistogram (windowed_histogram.h) at one moment.
struct Distribution {
  Histogram total;   // Since the start.
  Histogram recent;  // In the window.

  void add(const Distribution& other) {
    total.add(other.total);
    recent.add(other.recent);
  }
};

}  // namespace tarry
