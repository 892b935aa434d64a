#include "delay/homes.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/delay/bucket_world.h"

namespace tarry::delay::tier_test {
namespace {

TEST_SUITE("homes") {
  TEST_CASE("tails that were written before a kill are not duplicated by the replay") {
    World world;
    for (Sequence s = 1; s <= 100; ++s)
      world.add(record(s, static_cast<std::int64_t>(s) * 1'000'000));
    world.checkpoint();
    for (Sequence s = 101; s <= 200; ++s)
      world.add(record(s, static_cast<std::int64_t>(s) * 1'000'000));
    world.remove(record(7, 7'000'000));
    // Written and flushed, and killed before the journal's position is noted.
    world.shards[0].tier->write_all([] {});
    world.settle();
    REQUIRE(world.store->flush().has_value());
    world.add(record(201, 1));
    world.crash(1);
    std::uint64_t total = 0;
    world.checkpoint();
    const auto totals = world.store->totals();
    for (const auto& [topic, number] : *totals) total += number;
    CHECK(total == 200);
    world.now += std::chrono::days(10);
    world.deliver_all();
    CHECK(world.pending.empty());
  }

  TEST_CASE("a location that is out of date never gives or removes another record") {
    World world;
    BucketTier& tier = *world.shards[0].tier;
    for (Sequence s = 1; s <= 3; ++s) world.add(record(s, static_cast<std::int64_t>(s) * 60'000));
    world.settle();
    REQUIRE(world.shards[0].wheel.size() == 2);  // The third is behind the horizon.
    for (auto& [key, location] : world.shards[0].wheel) {
      for (const Location wrong : {Location{}, Location{0, 0}, Location{0, 1}, Location{0, 2},
                                   Location{0, 3}, Location{1, 0}, Location{100, 0}}) {
        const auto view = tier.read(key, wrong);
        REQUIRE(view.has_value());
        CHECK(view->key == key);
        CHECK_FALSE(tier.read({key.due, 77}, wrong).has_value());
        location = wrong;  // The last one is used for the removal.
      }
    }
    world.shards[0].wheel.begin()->second = Location{0, 1};  // The other's.
    world.deliver_all();
    world.now = begin + std::chrono::hours(1);
    world.deliver_all();
    CHECK(world.pending.empty());
    CHECK(tier.stats().records == 0);
  }

  TEST_CASE("an hour that is dealt to milliseconds has a bounded number of tails") {
    BucketTier::Options options;
    options.memory_bytes = 6u << 20;
    World world(1, options);
    const auto tails = [&] {
      const auto levels = world.shards.at(0).tier->stats().levels;
      return levels[static_cast<std::size_t>(BucketLevel::tick)].chunks;
    };
    Sequence next = 1;
    // More in one second than may be loaded at once.
    for (int i = 0; i < 27'000; ++i)
      world.add(record(next++, 2 * hour_ms + i % 1'000, std::string(80, 'x')));
    world.checkpoint();
    world.now = begin + std::chrono::milliseconds(2 * hour_ms - 60'000);
    world.settle();
    const auto loaded = tails();
    for (int i = 0; i < 6'000; ++i) world.add(record(next++, 2 * hour_ms + 1'000 + i * 100));
    CHECK(tails() - loaded > 1'000);
    CHECK(tails() - loaded <= 4'096);
    world.now = begin + std::chrono::milliseconds(3 * hour_ms);
    world.deliver_all();
    CHECK(world.pending.empty());
  }

  TEST_CASE("an hour that grows too large to be loaded at once is in finer buckets from then on") {
    BucketTier::Options options;
    options.memory_bytes = 8u << 20;
    BucketStore::Limits limits;
    limits.step_bytes = 200u << 10;
    World world(1, options, limits);
    Sequence next = 1;
    // More than three pieces, due within ten seconds.
    for (int i = 0; i < 10'000; ++i)
      world.add(record(next++, 2 * hour_ms + i * 7'919 % 10'000, std::string(300, 'x')));
    world.checkpoint();
    world.now = begin + std::chrono::milliseconds(2 * hour_ms - 60'000);
    world.settle();
    // The first piece of it alone is dealt, in steps of a fifth.
    CHECK(world.shards.at(0).tier->stats().dealt_steps <= 7);
    world.crash(1);
    world.now = begin + std::chrono::milliseconds(3 * hour_ms);
    world.deliver_all();
    CHECK(world.pending.empty());
  }

  TEST_CASE("homes that are far and ended are forgotten once no replay can tell of them") {
    World world;
    BucketTier& tier = *world.shards[0].tier;
    std::vector<Record> hourly;
    for (Sequence s = 1; s <= 500; ++s)
      hourly.push_back(record(s, static_cast<std::int64_t>(3 + s) * hour_ms));
    for (const auto& one : hourly) world.add(one);
    for (const auto& one : hourly) world.remove(one);
    CHECK(tier.stats().homes >= 500);
    world.checkpoint();
    world.checkpoint();
    CHECK(tier.stats().homes <= 2);
    CHECK(world.store->places(0)->size() <= 2);
    // The same hours are used again, and a crash undoes nothing of it.
    for (auto& one : hourly) one.key.sequence += 1'000;
    for (const auto& one : hourly) world.add(one);
    world.crash(1);
    CHECK(world.find(hourly[400].key, hourly[400].partition).has_value());
    while (!world.pending.empty()) {
      world.now = world.pending.begin()->first.due;
      world.deliver_all();
    }
  }

  TEST_CASE(
      "an hour keeps what is marked in it as long as the month of these records is not dealt") {
    World world;
    // They are due in a month that becomes hours, but is not dealt yet.
    const Record gone = record(1, 370 * day_ms), stays = record(2, 370 * day_ms + 1);
    world.add(gone);
    world.add(stays);
    world.checkpoint();
    world.now = begin + std::chrono::days(60);
    // The lane is held up by a step, so the month is closed and on disk.
    for (int i = 0; i < 3; ++i) (void)world.shards[0].tier->step(world.now);
    world.remove(gone);
    for (int i = 0; i < 4; ++i) world.checkpoint();
    world.crash(1);
    CHECK_FALSE(world.find(gone.key, gone.partition).has_value());
    CHECK(world.find(stays.key, stays.partition).has_value());
  }
}

}  // namespace
}  // namespace tarry::delay::tier_test
