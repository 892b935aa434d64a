// tarry bench timers: what it measures, on a small scale.

#include <vector>

#include <doctest/doctest.h>

#include "cli/timer_bench.h"

namespace tarry::cli {
namespace {

TEST_SUITE_BEGIN("timer_bench");

TEST_CASE(
    "the wheel and the map are both measured in every part, and each part is announced before it "
    "begins") {
  std::vector<int> told;
  const auto bench =
      measure_timers({.pending = 500, .budget = 16, .threads = 0}, [&](int part, int parts) {
        CHECK(parts == 8);
        told.push_back(part);
      });
  CHECK(told == std::vector{0, 1, 2, 3, 4, 5, 6, 7});
  REQUIRE(bench.figures.size() == 2);
  CHECK(bench.figures[0].name == "wheel");
  for (const auto& figures : bench.figures) {
    CAPTURE(figures.name);
    CHECK(figures.insert_ns > 0);
    CHECK(figures.hot_pair_ns > 0);
    CHECK(figures.cold_pair_ns > 0);
    CHECK(figures.reschedule_ns > 0);
    CHECK(figures.expiry_ns > 0);
    CHECK(figures.step_us.p50 > 0);
    CHECK(figures.step_us.p50 <= figures.step_us.p99);
    CHECK(figures.step_us.p99 <= figures.step_us.p9999);
    CHECK(figures.step_us.p9999 <= figures.step_us.max);
    CHECK(figures.bytes > 0);
  }
  CHECK(bench.pairs_per_second == 0);
}

TEST_CASE("a single timer is enough to measure") {
  const auto bench = measure_timers({.pending = 1, .threads = 0}, [](int, int) {});
  CHECK(bench.figures.size() == 2);
}

TEST_SUITE_END();

}  // namespace
}  // namespace tarry::cli
