#include "delay/histogram.h"

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

using std::chrono::microseconds;

TEST_SUITE("histogram") {
  TEST_CASE("quantiles are within 7 % of what they stand for, from a microsecond to an hour") {
    for (std::int64_t us = 1; us < 3'600'000'000; us = us * 13 / 10 + 1) {
      LagHistogram lag;
      lag.add(microseconds{us}, 99);
      lag.add(microseconds{4'000'000'000});
      const auto p50 = lag.quantile(0.5).count();
      CHECK(p50 >= us);
      CHECK(static_cast<double>(p50) <= static_cast<double>(us) * 1.07);
      CHECK(lag.max() == microseconds{4'000'000'000});
    }
  }

  TEST_CASE("an empty histogram has quantiles of 0, and a negative lag counts as 0") {
    LagHistogram lag;
    CHECK(lag.quantile(0.99) == microseconds{0});
    lag.add(std::chrono::nanoseconds{-5'000'000});
    CHECK(lag.quantile(0.99) == microseconds{0});
    lag.add(std::chrono::hours{24 * 365});
    CHECK(lag.quantile(0.99) == std::chrono::hours{24 * 365});
  }

  TEST_CASE("two added are one that counted what both did") {
    LagHistogram one, other, both;
    for (std::int64_t us = 1; us < 1'000'000; us = us * 2 + 1) {
      one.add(microseconds{us});
      other.add(microseconds{us * 3}, 2);
      both.add(microseconds{us});
      both.add(microseconds{us * 3}, 2);
    }
    one.add(other);
    CHECK(one.count() == both.count());
    CHECK(one.sum() == both.sum());
    CHECK(one.max() == both.max());
    for (const double share : {0.0, 0.1, 0.5, 0.9, 0.99, 1.0})
      CHECK(one.quantile(share) == both.quantile(share));
  }
}

}  // namespace
}  // namespace tarry::delay
