#include "base/log_throttle.h"

#include <doctest/doctest.h>

namespace tarry {
namespace {

using namespace std::chrono_literals;

TEST_SUITE("log throttle") {
  TEST_CASE("the first lines of a period are written, and the next one says how many were not") {
    LogThrottle throttle(2);
    MonoTime now{1h};
    CHECK(throttle.admit(now) == 0);
    CHECK(throttle.admit(now + 1s) == 0);
    CHECK(throttle.admit(now + 2s) == std::nullopt);
    CHECK(throttle.admit(now + 9999ms) == std::nullopt);
    now += LogThrottle::period;
    CHECK(throttle.admit(now) == 2);
    CHECK(throttle.admit(now) == 0);
    CHECK(throttle.admit(now) == std::nullopt);
  }

  TEST_CASE("the first line is written at any time, also at that of a clock that has just begun") {
    LogThrottle throttle;
    CHECK(throttle.admit(MonoTime{}) == 0);
    CHECK(throttle.admit(MonoTime{}) == std::nullopt);
  }
}

}  // namespace
}  // namespace tarry
