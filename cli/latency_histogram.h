#pragma once

// LatencyHistogram: how times in microseconds are distributed, for benchmarks.
//
// Values up to 255 have a bucket each; above, every power of two is cut into 128, so a quantile is
// at most 1 % too large and never too small.  (base/histogram.h is a tenth of the size and coarser,
// for a broker that has many of them.)
//
//   value   0  1 ... 255   256-257 ... 510-511   512-515 ...      up to 2^41 (25 days) and beyond
//   bucket [ ][ ]   [   ] [       ]   [       ] [       ]         4480 of them, 35 KiB
//
// Larger values count in the last bucket, and a quantile that falls there is the largest value of
// all.  A negative value counts as 0; min() tells it.
//
// One thread.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace tarry::cli {

class LatencyHistogram {
 public:
  void add(std::int64_t us) {
    min_ = count_ == 0 ? us : std::min(min_, us);
    max_ = count_ == 0 ? us : std::max(max_, us);
    ++count_;
    ++buckets_[bucket_of(static_cast<std::uint64_t>(std::max<std::int64_t>(us, 0)))];
  }

  // Adds what another one has counted.
  void add(const LatencyHistogram& other) {
    if (other.count_ == 0) return;
    min_ = count_ == 0 ? other.min_ : std::min(min_, other.min_);
    max_ = count_ == 0 ? other.max_ : std::max(max_, other.max_);
    count_ += other.count_;
    for (std::size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
  }

  std::uint64_t count() const { return count_; }
  std::int64_t min() const { return min_; }  // Exact, as max(); 0 when nothing was added.
  std::int64_t max() const { return max_; }

  // The smallest bucket bound that at least `q` (0..1) of the values do not exceed; never above
  // max().  0 when nothing was added.
  std::int64_t quantile(double q) const {
    const auto wanted = std::max<std::uint64_t>(
        1, static_cast<std::uint64_t>(std::ceil(q * static_cast<double>(count_))));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i + 1 < buckets_.size(); ++i) {
      seen += buckets_[i];
      if (seen >= wanted) return std::min(upper_bound(i), max_);
    }
    return max_;
  }

 private:
  static constexpr unsigned max_shift = 33;

  static std::size_t bucket_of(std::uint64_t value) {
    const auto bits = static_cast<unsigned>(std::bit_width(value));
    if (bits <= 8) return value;
    const unsigned shift = bits - 8;
    if (shift > max_shift) return max_shift * 128 + 255;
    return shift * 128 + (value >> shift);
  }
  static std::int64_t upper_bound(std::size_t bucket) {
    if (bucket < 256) return static_cast<std::int64_t>(bucket);
    const std::size_t shift = bucket / 128 - 1;
    return (static_cast<std::int64_t>(bucket - shift * 128 + 1) << shift) - 1;
  }

  std::array<std::uint64_t, max_shift * 128 + 256> buckets_{};
  std::uint64_t count_ = 0;
  std::int64_t min_ = 0;
  std::int64_t max_ = 0;
};

}  // namespace tarry::cli
