// LatencyHistogram: quantiles that are a hundredth too large at most, and never too small.

#include "cli/latency_histogram.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <doctest/doctest.h>

namespace tarry::cli {
namespace {

TEST_SUITE_BEGIN("latency_histogram");

TEST_CASE("a single value is every quantile, exactly, whatever its size") {
  for (const std::int64_t value :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{255}, std::int64_t{256}, std::int64_t{257},
        std::int64_t{511}, std::int64_t{512}, std::int64_t{1} << 40, (std::int64_t{1} << 41) - 1,
        std::int64_t{1} << 41, std::int64_t{1} << 60}) {
    CAPTURE(value);
    LatencyHistogram histogram;
    histogram.add(value);
    for (const double q : {0.0, 0.5, 0.999, 1.0}) CHECK(histogram.quantile(q) == value);
    CHECK(histogram.min() == value);
    CHECK(histogram.max() == value);
  }
}

TEST_CASE("a quantile is never below the sorted list's, and at most a hundredth above it") {
  std::mt19937_64 random(7);
  std::vector<std::int64_t> values;
  LatencyHistogram histogram;
  for (int i = 0; i < 20'000; ++i) {
    values.push_back(static_cast<std::int64_t>(random() >> (24 + random() % 40)));
    histogram.add(values.back());
  }
  std::ranges::sort(values);
  for (const double q : {0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    CAPTURE(q);
    const auto rank = static_cast<std::size_t>(std::ceil(q * static_cast<double>(values.size())));
    const auto exact = values[rank - 1];
    CHECK(histogram.quantile(q) >= exact);
    CHECK(histogram.quantile(q) - exact <= exact / 100);
  }
}

TEST_CASE("two histograms added are the histogram of both, and an empty one changes nothing") {
  LatencyHistogram few, more, none;
  few.add(-5);
  few.add(100);
  more.add(3'000'000);
  few.add(none);
  CHECK(few.count() == 2);
  CHECK(few.quantile(0.5) == 0);
  few.add(more);
  CHECK(few.count() == 3);
  CHECK(few.min() == -5);
  CHECK(few.max() == 3'000'000);
  none.add(more);
  CHECK(none.min() == 3'000'000);
  CHECK(LatencyHistogram().quantile(0.99) == 0);
}

TEST_SUITE_END();

}  // namespace
}  // namespace tarry::cli
