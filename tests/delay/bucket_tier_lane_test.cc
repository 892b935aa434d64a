#include "delay/bucket_tier.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "tests/delay/bucket_world.h"

namespace tarry::delay::tier_test {
namespace {

TEST_SUITE("bucket tier lane") {
  TEST_CASE("a record that is cancelled while its hour is loaded does not come near") {
    World world;
    const Record far = record(1, 5 * hour_ms);
    world.add(far);
    world.add(record(2, 5 * hour_ms));
    world.checkpoint();
    world.now = far.key.due;
    while (world.background.size() == 0) world.shards[0].tier->step(world.now);
    world.remove(far);
    world.settle();
    CHECK(world.shards[0].wheel.size() == 1);
    world.deliver_all();
    CHECK(world.pending.empty());
  }

  TEST_CASE("while a flush of the store is slow as much gathers there again, and no more") {
    BucketTier::Options options;
    options.memory_bytes = 4u << 20;
    options.flush_bytes = 2u << 20;
    World world(1, options);
    BucketTier& tier = *world.shards.at(0).tier;
    Sequence last = 0;
    const auto add_next = [&] {
      ++last;
      world.add(
          record(last, 30 * day_ms + static_cast<std::int64_t>(last), std::string(30'000, 'x')));
      world.settle();
    };
    bool was_slow = false;
    world.during_flush = [&] {
      was_slow = true;
      for (int i = 0; i < 1'000; ++i) add_next();  // 30 MB.
      CHECK(world.store->unflushed_bytes() > options.flush_bytes);
      // Beside that a piece, and what RocksDB allocates ahead.
      CHECK(world.store->unflushed_bytes() <
            2 * options.flush_bytes + options.write_bytes + (3u << 20));
      CHECK(tier.is_full());  // Producers wait.
      CHECK_FALSE(tier.is_short());
    };
    while (!was_slow) {
      REQUIRE(last < 1'000);
      add_next();
    }
    world.settle();
    CHECK_FALSE(tier.is_full());
    world.checkpoint();
    CHECK(world.failed_with.empty());
    CHECK(world.pending.size() == last);
    CHECK(world.find(record(1, 30 * day_ms + 1).key, numbered(0)).has_value());
  }

  TEST_CASE("a load that waits for memory does not wait for a slow flush of the store, too") {
    BucketTier::Options options;
    options.memory_bytes = 4u << 20;
    options.flush_bytes = 2u << 20;
    World world(1, options);
    auto& shard = world.shards.at(0);
    Sequence last = 0;
    const auto add = [&](std::int64_t after_ms) {
      ++last;
      world.add(record(last, after_ms + static_cast<std::int64_t>(last), std::string(30'000, 'x')));
      world.settle();
    };
    constexpr std::size_t soon = 30;
    for (std::size_t i = 0; i < soon; ++i) add(hour_ms);
    world.checkpoint();
    bool was_slow = false;
    world.during_flush = [&] {
      was_slow = true;
      for (int i = 0; i < 400; ++i) add(30 * day_ms);  // 12 MB.
      CHECK(world.store->unflushed_bytes() >= 2 * options.flush_bytes);
      CHECK(shard.tier->is_full());
      CHECK(shard.wheel.empty());
      world.now = begin + std::chrono::milliseconds(hour_ms - 60'000);
      world.settle();
      CHECK(shard.wheel.size() == soon);
    };
    while (!was_slow) {
      REQUIRE(last < 1'000);
      add(30 * day_ms);
    }
    world.settle();
    world.now = begin + std::chrono::milliseconds(hour_ms + 60'000);
    world.deliver_all();
    CHECK(world.pending.size() == last - soon);
    CHECK(world.failed_with.empty());
  }

  TEST_CASE("records adopted from another number of shards ask for flushes of the store") {
    BucketTier::Options options;
    options.memory_bytes = 4u << 20;
    options.flush_bytes = 2u << 20;
    World world(2, options);
    for (Sequence n = 1; n <= 300; ++n) {  // 9 MB of one hour.
      world.add(record(n, 30 * day_ms + static_cast<std::int64_t>(n), std::string(30'000, 'x'),
                       static_cast<int>(n % 2)));
      world.settle();
    }
    world.checkpoint();
    world.crash(1);
    REQUIRE(world.store->unflushed_bytes() < options.flush_bytes);
    bool asked = false;
    world.during_flush = [&] { asked = true; };
    // Nothing else writes: the hour is far.
    CHECK(world.find(record(1, 30 * day_ms + 1).key, numbered(1)).has_value());
    CHECK(asked);
    CHECK(world.failed_with.empty());
  }

  TEST_CASE("an hour of which most was cancelled is loaded in steps, and nothing cancelled is") {
    World world;
    BucketTier& tier = *world.shards[0].tier;
    const auto one = [](Sequence s) {
      return record(s, 2 * hour_ms + static_cast<std::int64_t>(s), std::string(300, 'x'));
    };
    constexpr Sequence records = 20'000;
    for (Sequence s = 1; s <= records; ++s) world.add(one(s));
    world.checkpoint();
    REQUIRE(tier.stats().records == 0);  // All of it is on the disk, which knows of no cancel.
    for (Sequence s = 1; s <= records; ++s)
      if (s % 10 != 0) world.remove(one(s));

    world.now = begin + std::chrono::milliseconds(2 * hour_ms - 60'000);
    std::size_t turns = 0;
    const auto turn = [&](const auto& work) {
      const auto before = tier.stats().looked_for;
      const bool more = work();
      const auto looked = tier.stats().looked_for - before;
      CHECK(looked <= world.options.step_entries + 1'000);  // And the rest of a chunk.
      turns += looked > 0;
      return more;
    };
    bool changed = false, written = false;
    for (bool more = true; more;) {
      more = turn([&] { return tier.step(world.now); });
      more |= turn([&] { return world.background.step(); });
      if (turns < 4 || std::exchange(changed, true)) continue;
      // A part of the hour is in memory.  A checkpoint waits for the rest of it.
      REQUIRE(world.shards[0].wheel.empty());
      REQUIRE(tier.stats().records > 0);
      for (const Sequence s : {10u, 20u, 19'990u, 20'000u}) world.remove(one(s));
      tier.write_all([&written] { written = true; });
    }
    CHECK(turns >= records / (world.options.step_entries + 1'000));
    CHECK(written);
    CHECK(tier.stats().loads == 1);
    CHECK(world.shards[0].wheel.size() == records / 10 - 4);
    world.now = begin + std::chrono::milliseconds(2 * hour_ms + 30'000);
    world.deliver_all();
    CHECK(world.pending.empty());
    CHECK(tier.stats().records == 0);
    world.checkpoint();
    world.checkpoint();
    CHECK(world.store->homes({0, 1})->empty());
    CHECK(world.store->totals()->empty());
  }

  TEST_CASE("a load looks for the few records that are gone, and not for each of the hour") {
    World world;
    BucketTier& tier = *world.shards[0].tier;
    for (Sequence s = 1; s <= 20'000; ++s)
      world.add(record(s, 2 * hour_ms + static_cast<std::int64_t>(s)));
    world.checkpoint();
    for (const Sequence s : {7u, 19'999u})
      world.remove(record(s, 2 * hour_ms + static_cast<std::int64_t>(s)));
    world.now = begin + std::chrono::milliseconds(2 * hour_ms - 60'000);
    world.settle();
    CHECK(world.shards[0].wheel.size() == 19'998);
    CHECK(tier.stats().looked_for > 0);
    CHECK(tier.stats().looked_for < 200);
    world.now = begin + std::chrono::milliseconds(2 * hour_ms + 30'000);
    world.deliver_all();
    CHECK(world.pending.empty());
  }

  TEST_CASE("a turn looks at a bounded number of homes, and a checkpoint writes all of them") {
    BucketTier::Options options;
    options.write_homes = 100'000;
    World world(1, options);
    BucketTier& tier = *world.shards.at(0).tier;
    Sequence next = 1;
    constexpr int homes = 5'000;
    const auto add = [&](int month) {
      const Record of = record(next++, 30 * day_ms * (24 + month));
      storage::PendingAdded added;
      added.partition = of.partition;
      added.sequence = of.key.sequence;
      added.due = of.key.due;
      added.accepted = begin;
      added.record = as_bytes(of.body);
      tier.add({world.shards.at(0).lsn += 100, 0}, added);
    };
    const auto checkpoint = [&] {
      bool is_written = false;
      tier.write_all([&] { is_written = true; });
      for (bool more = true; more;) {
        const auto before = tier.stats().homes_seen;
        more = tier.step(world.now);
        CHECK(tier.stats().homes_seen - before <= 4'096);
        more |= world.background.step();
      }
      CHECK(is_written);
    };
    for (int month = 0; month < homes; ++month) add(month);
    checkpoint();
    CHECK(tier.stats().records == 0);
    CHECK(world.store->homes({0, 1}).value().size() == homes);
    // The last one of them alone is another one's than before.
    add(homes - 1);
    checkpoint();
    CHECK(tier.stats().records == 0);
    const auto first = tier.earliest();
    REQUIRE(first.has_value());
    CHECK(first->due <= record(1, 30 * day_ms * 24).key.due);
    CHECK(!first->exact);
    tier.noted({world.shards.at(0).lsn + 100, 0});
    world.settle();
  }

  TEST_CASE(
      "turns that look at three homes write what memory cannot hold, and forget what has ended") {
    BucketTier::Options options;
    options.homes_a_turn = 3;
    options.memory_bytes = 256 << 10;
    World world(1, options);
    BucketTier& tier = *world.shards.at(0).tier;
    Sequence next = 1;
    for (int i = 0; i < 400; ++i)
      world.add(record(next++, (3 + i % 40) * hour_ms + i, std::string(1'000, 'x')));
    CHECK(tier.stats().memory_bytes > options.memory_bytes);
    for (bool more = true; more;) {
      const auto before = tier.stats().homes_seen;
      more = tier.step(world.now);
      CHECK(tier.stats().homes_seen - before <= 3);
      more |= world.background.step();
    }
    CHECK(tier.stats().written > 100);
    CHECK(tier.stats().memory_bytes < options.memory_bytes * 3 / 4);
    CHECK(tier.stats().homes >= 40);
    while (!world.pending.empty()) {
      world.now = world.pending.begin()->first.due;
      world.deliver_all();
    }
    world.now += std::chrono::hours(2);
    for (int i = 0; i < 3; ++i) world.checkpoint();
    CHECK(tier.stats().homes <= 3);
    CHECK(world.store->places(0)->size() <= 3);
  }

  TEST_CASE("a checkpoint that looks for what to write does not wait for an hour that is dealt") {
    BucketTier::Options options;
    options.homes_a_turn = 2;
    options.memory_bytes = 1 << 20;
    BucketStore::Limits limits;
    limits.step_bytes = 1'000;
    World world(1, options, limits);
    BucketTier& tier = *world.shards.at(0).tier;
    Sequence next = 1;
    for (int i = 0; i < 100; ++i) {
      for (int j = 0; j < 20; ++j)
        world.add(record(next++, 5 * hour_ms + (i * 7'919 + j * 104'729) % hour_ms,
                         std::string(500, 'x')));
      if (i < 60) world.add(record(next++, (100 + i) * hour_ms));
      world.checkpoint();
    }
    world.add(record(next++, 159 * hour_ms + 1));  // This one is in the last of sixty homes.
    world.now = begin + std::chrono::milliseconds(5 * hour_ms - 60'000);
    bool written = false;
    const auto step = [&] {
      tier.step(world.now);
      world.background.step();
    };
    while (tier.stats().dealt_steps == 0) step();
    const auto before = tier.stats().dealt_steps;
    tier.write_all([&written] { written = true; });
    while (!written) step();
    // One before each of its two pieces of work: the home, and what belongs to none.
    CHECK(tier.stats().dealt_steps - before <= 3);
    world.settle();
    CHECK(tier.stats().dealt_steps - before > 20);
  }

  TEST_CASE(
      "a record that comes while its month becomes hours is there after a kill, and is there "
      "once") {
    World world;
    world.add(record(1, 375 * day_ms));
    world.add(record(4, 375 * day_ms));
    world.settle();
    world.now += std::chrono::days(40);
    while (world.background.size() == 0) world.shards[0].tier->step(world.now);
    world.add(record(2, 375 * day_ms));
    world.remove(record(1, 375 * day_ms));
    world.add(record(3, 375 * day_ms));
    world.settle();
    // The month is dealt out; what came meanwhile is in memory alone.
    const WallTime due = record(4, 375 * day_ms).key.due;
    CHECK(*world.store->homes({0, 1}) ==
          std::set<storage::Bucket>{storage::bucket_of(BucketLevel::hour, due)});
    REQUIRE(world.store->flush().has_value());
    world.crash(1);
    CHECK(world.find(record(2, 375 * day_ms).key, numbered(0)).has_value());
    CHECK_FALSE(world.find(record(1, 375 * day_ms).key, numbered(0)).has_value());
    world.checkpoint();
    CHECK(world.find(record(4, 375 * day_ms).key, numbered(0)).has_value());
    CHECK(world.store->totals()->at(numbered(0).topic) == 3);
    world.now = record(1, 375 * day_ms).key.due;
    world.deliver_all();
    CHECK(world.pending.empty());
  }
}

}  // namespace
}  // namespace tarry::delay::tier_test
