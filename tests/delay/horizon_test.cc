#include "delay/horizon.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/delay/bucket_world.h"

namespace tarry::delay::tier_test {
namespace {

TEST_SUITE("horizon") {
  TEST_CASE("near records that spend the budget go back to the disk and are delivered in time") {
    BucketTier::Options options;
    options.memory_bytes = 1u << 20;
    options.write_bytes = 128u << 10;
    World world(1, options);
    world.settle();
    const std::string body(300, 'b');
    std::size_t most = 0;
    for (Sequence s = 1; s <= 10'000; ++s) {  // All due in the minute after the next one.
      world.add(record(s, 60'000 + static_cast<std::int64_t>(s * 7'919 % 60'000), body));
      if (s % 50 == 0) world.settle();
      most = std::max(most, world.shards[0].tier->stats().memory_bytes);
    }
    CHECK(world.shards[0].tier->stats().pulled_back > 0);
    CHECK(most <= options.memory_bytes + options.memory_bytes / 4);
    for (int ms = 0; !world.pending.empty(); ms += 500) {
      REQUIRE(ms <= 120'000);
      world.now = begin + std::chrono::milliseconds(ms);
      world.deliver_all();
    }
  }
}

}  // namespace
}  // namespace tarry::delay::tier_test
