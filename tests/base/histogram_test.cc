#include "base/histogram.h"
#include "base/windowed_histogram.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace tarry {
namespace {

using namespace std::chrono_literals;

TEST_SUITE("histogram") {
  TEST_CASE("every value lies in the bucket that its bounds say, to the ends of the range") {
    std::vector<std::uint64_t> values{0, 1, 7, 8, 9, 15, 16, 17, 18, 1000, 0xffff'ffff};
    for (unsigned shift = 3; shift < 32; ++shift) {
      const std::uint64_t power = std::uint64_t{1} << shift;
      values.insert(values.end(), {power - 1, power, power + 1});
    }
    for (const std::uint64_t value : values) {
      CAPTURE(value);
      Histogram histogram;
      histogram.add(value);
      std::size_t bucket = 0;
      while (histogram.in_bucket(bucket) == 0) ++bucket;
      CHECK(value <= Histogram::upper_bound(bucket));
      if (bucket > 0) CHECK(value > Histogram::upper_bound(bucket - 1));
      CHECK(histogram.p50() == value);
      CHECK(histogram.max() == value);
    }
    Histogram histogram;
    histogram.add(~std::uint64_t{0});
    CHECK(histogram.in_bucket(Histogram::bucket_count - 1) == 1);
    CHECK(Histogram::upper_bound(Histogram::bucket_count - 1) == 0xffff'ffff);
  }

  TEST_CASE("a quantile is too large by an eighth at most, and never too small") {
    Histogram histogram;
    for (std::uint64_t i = 1; i <= 10'000; ++i) histogram.add(i);
    CHECK(histogram.p50() >= 5000);
    CHECK(histogram.p50() <= 5625);
    CHECK(histogram.p99() >= 9900);
    CHECK(histogram.p99() <= 10'000);
    CHECK(histogram.sum() == 50'005'000);
    for (std::uint64_t value = 1; value < 3'600'000'000; value = value * 13 / 10 + 1) {
      CAPTURE(value);
      Histogram two;
      two.add(value, 99);
      two.add(4'000'000'000);
      CHECK(two.p50() >= value);
      CHECK(two.p50() <= value + value / 8);
      CHECK(two.max() == 4'000'000'000);
    }
  }

  TEST_CASE(
      "the quantiles of nothing are 0, and beyond the last bucket they are the largest value") {
    Histogram histogram;
    CHECK(histogram.p99() == 0);
    CHECK(histogram.quantile(1) == 0);
    histogram.add(0);
    CHECK(histogram.p99() == 0);
    constexpr std::uint64_t year_us = 365ull * 86'400 * 1'000'000;
    histogram.add(year_us);
    CHECK(histogram.p99() == year_us);
  }

  TEST_CASE("a negative time counts as 0, and a part of a microsecond as none") {
    CHECK(whole_microseconds(-5ms) == 0);
    CHECK(whole_microseconds(999ns) == 0);
    CHECK(whole_microseconds(7ms) == 7'000);
  }

  TEST_CASE("two added histograms equal one that counted both, whatever they count in") {
    Histogram low, both;
    BasicHistogram<std::uint32_t> high;
    for (std::uint64_t i = 1; i <= 1000; ++i) {
      low.add(i);
      high.add(i * 1000, 2);
      both.add(i);
      both.add(i * 1000, 2);
    }
    low.add(high);
    for (std::size_t i = 0; i < Histogram::bucket_count; ++i)
      CHECK(low.in_bucket(i) == both.in_bucket(i));
    CHECK(low.count() == both.count());
    CHECK(low.sum() == both.sum());
    CHECK(low.max() == both.max());
    for (const double share : {0.0, 0.1, 0.5, 0.9, 0.99, 1.0})
      CHECK(low.quantile(share) == both.quantile(share));
  }

  TEST_CASE("each exported bucket counts exactly the values up to its bound, in rising order") {
    std::vector<std::uint64_t> values{0, 1, 2, 3, 5, 6, 7, 8, 15, 16, 999, 1023, 1024, 1ull << 40};
    Histogram histogram;
    for (const auto value : values) histogram.add(value);
    std::vector<std::uint64_t> bounds;
    histogram.for_each_exported([&](std::uint64_t bound, std::uint64_t up_to) {
      CAPTURE(bound);
      CHECK(std::cmp_equal(
          up_to, std::ranges::count_if(values, [&](auto value) { return value <= bound; })));
      if (!bounds.empty()) CHECK(bound > bounds.back());
      bounds.push_back(bound);
    });
    CHECK(bounds.size() == 32);
    CHECK(bounds.front() == 1);
    CHECK(bounds.back() == (1ull << 31) - 1);
  }
}

TEST_SUITE("windowed histogram") {
  constexpr MonoTime start{12'345s};  // Not at the border of a minute.

  TEST_CASE("a spike is in the window for four minutes at least and for five at most") {
    for (const auto within_minute : {0ms, 1ms, 14'999ms, 59'999ms}) {
      CAPTURE(within_minute.count());
      WindowedHistogram lag;
      const MonoTime spike = std::chrono::floor<std::chrono::minutes>(start) + within_minute;
      lag.add(9'000, spike);
      CHECK(lag.recent(spike).max() == 9'000);
      CHECK(lag.recent(spike + 4min).count() == 1);
      CHECK(lag.recent(spike + 5min).count() == 0);
      CHECK(lag.recent(spike + 5min).max() == 0);
      CHECK(lag.total().max() == 9'000);
    }
  }

  TEST_CASE("values that come all the time leave minute by minute, and the total keeps them all") {
    WindowedHistogram values;
    for (int second = 0; second < 3600; ++second) {
      const MonoTime now = start + std::chrono::seconds{second};
      values.add(static_cast<std::uint64_t>(second), now);
      const auto recent = values.recent(now).count();
      if (second < 240) CHECK(recent == static_cast<std::uint64_t>(second) + 1);
      if (second >= 300) {
        CHECK(recent > 240);
        CHECK(recent <= 300);
      }
    }
    CHECK(values.total().count() == 3600);
    CHECK(values.total().sum() == 3599ull * 3600 / 2);
    CHECK(values.total().max() == 3599);
  }

  TEST_CASE("after a long silence the window has only later values") {
    WindowedHistogram values;
    values.add(1, start);
    values.add(2, start + 1min);
    values.add(3, start + 24h);
    CHECK(values.recent(start + 24h).count() == 1);
    CHECK(values.recent(start + 24h).max() == 3);
    CHECK(values.total().count() == 3);
  }

  TEST_CASE("a time that goes back counts as no time passed") {
    WindowedHistogram values;
    values.add(1, start + 10min);
    values.add(2, start);
    CHECK(values.recent(start).count() == 2);
    CHECK(values.recent(start + 10min).count() == 2);
    CHECK(values.recent(start + 15min).count() == 0);
    CHECK(values.total().count() == 2);
  }

  TEST_CASE("random values at random times are in the window as a list of them says") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    WindowedHistogram values;
    std::vector<std::pair<MonoTime, std::uint64_t>> model;
    MonoTime now = start;
    for (int step = 0; step < 5'000; ++step) {
      now += std::chrono::milliseconds{random() % (random() % 8 == 0 ? 400'000 : 2'000)};
      const std::uint64_t value = random() % 100'000;
      values.add(value, now);
      model.emplace_back(now, value);
      const MonoTime asked = now + std::chrono::milliseconds{random() % 400'000};
      // The minute of `asked` and the four before it.
      const MonoTime begin = std::chrono::floor<std::chrono::minutes>(asked) - 4min;
      std::uint64_t count = 0, sum = 0;
      for (auto at = model.rbegin(); at != model.rend() && at->first >= begin; ++at) {
        ++count;
        sum += at->second;
      }
      const auto recent = values.recent(asked);
      REQUIRE(recent.count() == count);
      REQUIRE(recent.sum() == sum);
    }
    CHECK(values.total().count() == 5'000);
  }
}

}  // namespace
}  // namespace tarry
