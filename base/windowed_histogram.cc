#include "base/windowed_histogram.h"

#include <algorithm>

namespace tarry {

static_assert(WindowedHistogram::slice == std::chrono::minutes{1}, "slices begin on the minute");

std::size_t WindowedHistogram::slices_passed(MonoTime now) const {
  if (now < slice_end_) return 0;
  const auto passed = static_cast<std::uint64_t>((now - slice_end_) / slice) + 1;
  return static_cast<std::size_t>(std::min<std::uint64_t>(passed, slice_count));
}

void WindowedHistogram::begin_slice(MonoTime now) {
  // Slices that nothing was added to have ended, too: they are empty slices of the ring.
  for (auto passed = slices_passed(now); passed > 0; --passed) {
    // The slice behind the current one is the oldest: its values leave the window, and it becomes
    // the new current one.
    current_ = (current_ + 1) % slice_count;
    before_.add(slices_[current_]);
    slices_[current_] = {};
  }
  slice_end_ = std::chrono::floor<std::chrono::minutes>(now) + slice;
}

Histogram WindowedHistogram::total() const {
  Histogram total = before_;
  for (const auto& values : slices_) total.add(values);
  return total;
}

Histogram WindowedHistogram::recent(MonoTime now) const {
  Histogram recent;
  const std::size_t passed = slices_passed(now);
  // Slices that have ended since the last add() are not in the ring yet.  They are empty, and push
  // as many of the oldest ones out of the window.
  for (std::size_t age = 0; age + passed < slice_count; ++age)
    recent.add(slices_[(current_ + slice_count - age) % slice_count]);
  return recent;
}

}  // namespace tarry
