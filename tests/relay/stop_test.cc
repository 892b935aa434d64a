#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <future>

#include "relay/stop.h"

namespace tarry::relay {

using namespace std::chrono_literals;

TEST_CASE("a stop that does not come to its end is forced, once") {
  std::promise<void> forced;
  std::atomic<int> times = 0;
  const auto force = [&] {
    if (++times == 1) forced.set_value();
  };
  {
    const Stop stop([] { return true; }, force, 1ms);
    forced.get_future().get();
  }
  CHECK(times == 1);
}

TEST_CASE("a stop that was not asked for, and one that ends in its time, are not forced") {
  std::atomic<bool> is_asked = false, was_forced = false;
  std::promise<void> looked;
  std::atomic<int> looks = 0;
  {
    Stop stop(
        [&] {
          // After the first look that found it asked for.
          if (is_asked && ++looks == 1) looked.set_value();
          return is_asked.load();
        },
        [&] { was_forced = true; }, 0ms);
    stop.allow(1h);
    is_asked = true;
    looked.get_future().get();
    CHECK(stop.is_asked());
  }
  CHECK_FALSE(was_forced);
}

}  // namespace tarry::relay
