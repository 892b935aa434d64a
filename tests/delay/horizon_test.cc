#include "delay/horizon.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "delay/homes.h"
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

  TEST_CASE(
      "of a millisecond that comes piece by piece the pieces before are not looked at again") {
    Homes homes(1u << 30);
    homes.set_hours_end(WallTime::max());
    const std::string body(1'000, 'b');
    constexpr Sequence records = 1'000;
    for (Sequence s = 1; s <= records; ++s) {
      const Record one = record(s, 10, body);
      REQUIRE(homes.add({1, 0}, one.view()).has_value());
    }
    DroppedTopics dropped(homes);
    Horizon horizon(std::chrono::minutes(2));
    const WallTime due = record(1, 10).key.due;
    std::size_t handed = 0, looked = 0;
    for (Sequence until = 101; until <= records + 1; until += 100) {
      horizon.advance({due, until}, homes);
      for (; horizon.is_handing(); ++looked)
        handed += horizon.hand_over(1, dropped, [](const PendingView&, const Location&) {}, {});
    }
    CHECK(handed == records);
    CHECK(looked <= 4 * records);  // Ten pieces, and a chunk lies in two of them, or three.
  }
}

}  // namespace
}  // namespace tarry::delay::tier_test
