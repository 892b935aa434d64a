#pragma once

// WindowedHistogram: a histogram since the start and of the last minutes.
//
// It is a ring of five histograms of a minute each, and one of all that was before:
//
//   [ before ] <-- [ -4 min ][ -3 min ][ -2 min ][ -1 min ][ this minute ] <-- add(value, now)
//    for ever      '------------------- the window --------------------'
//
// So a spike leaves the window four to five minutes after it, and stays in the total.  A value is
// one increment, nothing is allocated, and reading is what adds up.  It takes 7 KiB, because a
// minute's counts are 32 bits wide.
//
// No clock and no lock: the time is an argument, and one thread has all of it.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/histogram.h"

namespace tarry {

class WindowedHistogram {
 public:
  static constexpr std::size_t slice_count = 5;
  static constexpr std::chrono::minutes slice{1};
  static constexpr std::chrono::minutes window = slice_count * slice;

  // A `now` earlier than the last one counts as no time passed.
  void add(std::uint64_t value, MonoTime now, std::uint64_t times = 1) {
    if (now >= slice_end_) [[unlikely]]
      begin_slice(now);
    slices_[current_].add(value, times);
  }

  Histogram total() const;               // Since the start.
  Histogram recent(MonoTime now) const;  // In the window.
  Distribution distribution(MonoTime now) const { return {total(), recent(now)}; }

 private:
  void begin_slice(MonoTime now);
  // How many slices have ended since the current one began; at most all of them.
  std::size_t slices_passed(MonoTime now) const;

  // The slices in a ring, the current one at current_, the oldest behind it.
  std::array<BasicHistogram<std::uint32_t>, slice_count> slices_;
  std::size_t current_ = 0;
  MonoTime slice_end_{};  // The end of the current slice.
  Histogram before_;      // The slices that have left the ring.
};

}  // namespace tarry
