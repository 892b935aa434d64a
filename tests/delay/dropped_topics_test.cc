#include "delay/dropped_topics.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "tests/delay/bucket_world.h"

namespace tarry::delay::tier_test {
namespace {

TEST_SUITE("dropped topics") {
  TEST_CASE("records of a dropped topic leave memory and are not handed over") {
    World world;
    for (int i = 0; i < 600; ++i)
      world.add(record(static_cast<Sequence>(i + 1), 1'000 + i * 600'000, "body", i % 3));
    world.settle();
    const TopicId topic = numbered(1).topic;
    REQUIRE(world.store->drop_topic(topic).has_value());
    world.shards[0].tier->topic_dropped(topic);
    std::erase_if(world.pending, [&](const auto& p) { return p.second.partition.topic == topic; });
    std::erase_if(world.shards[0].wheel,
                  [&](const auto& near) { return !world.pending.contains(near.first); });
    world.settle();
    CHECK(world.shards[0].tier->stats().records == 400);
    world.checkpoint();
    world.now += std::chrono::days(20);
    world.deliver_all();
    CHECK(world.pending.empty());
    CHECK(world.shards[0].tier->stats().records == 0);
  }

  TEST_CASE("a step frees a bounded number of a dropped topic's records") {
    World world;
    for (Sequence s = 1; s <= 20'000; ++s)
      world.add(record(s, static_cast<std::int64_t>(s % 60'000), "body"));
    world.settle();
    BucketTier& tier = *world.shards[0].tier;
    REQUIRE(tier.stats().records == 20'000);
    REQUIRE(world.store->drop_topic(numbered(0).topic).has_value());
    tier.topic_dropped(numbered(0).topic);
    std::size_t before = 20'000, steps = 0;
    for (; before > 0; ++steps) {
      REQUIRE(steps < 100);
      (void)tier.step(world.now);
      const std::size_t now = tier.stats().records;
      CHECK(before - now <= world.options.step_entries);
      before = now;
      world.background.run_all();
    }
    CHECK(steps >= 20'000 / world.options.step_entries);
    world.pending.clear();
    world.shards[0].wheel.clear();
  }

  TEST_CASE("a dropped topic is forgotten when nothing of it can be left, and no sooner") {
    World world;
    for (Sequence s = 1; s <= 300; ++s)
      world.add(record(s, static_cast<std::int64_t>(s) * 40'000, "body", static_cast<int>(s % 3)));
    world.checkpoint();
    BucketTier& tier = *world.shards[0].tier;
    // Its first hour is being loaded when the topic goes: the store has not heard of it.
    world.now += std::chrono::minutes(59) + std::chrono::seconds(30);
    const auto before = tier.stats().loads;
    for (int steps = 0; tier.stats().loads == before; ++steps) {
      REQUIRE(steps < 100);
      tier.step(world.now);
      world.background.step();
    }
    REQUIRE(world.store->drop_topic(numbered(0).topic).has_value());
    tier.topic_dropped(numbered(0).topic);
    std::erase_if(world.pending,
                  [](const auto& each) { return each.second.partition == numbered(0); });
    CHECK(tier.stats().dropped_topics == 1);
    world.settle();
    tier.noted({world.shards[0].lsn, 0});  // A checkpoint that was begun before.
    CHECK(tier.stats().dropped_topics == 1);
    world.checkpoint();
    CHECK(tier.stats().dropped_topics == 0);
    std::erase_if(world.shards[0].wheel,
                  [&](const auto& near) { return !world.pending.contains(near.first); });
    world.now = begin + std::chrono::hours(5);
    world.deliver_all();
    CHECK(world.pending.empty());
    CHECK(tier.stats().records == 0);
  }
}

}  // namespace
}  // namespace tarry::delay::tier_test
