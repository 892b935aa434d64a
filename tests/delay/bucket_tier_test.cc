#include "delay/bucket_tier.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/delay/bucket_world.h"

namespace tarry::delay::tier_test {
namespace {

BucketTier::Options some_options(SeededRandom& random) {
  BucketTier::Options options;
  options.memory_bytes = std::size_t{16} << (10 + random.below(8));
  options.write_bytes = options.memory_bytes / 8;
  options.step_entries = 1 + random.below(300);
  options.write_homes = 1 + random.below(20);
  return options;
}
BucketStore::Limits some_limits(SeededRandom& random) {
  BucketStore::Limits limits;
  limits.step_bytes = std::size_t{4} << (10 + random.below(6));
  limits.write_buffer_bytes = 256u << 10;  // RocksDB flushes when it likes.
  return limits;
}

// Some shards, to which everything happens in any order.
struct RandomTier {
  SeededRandom random;
  BucketTier::Options options = some_options(random);
  BucketStore::Limits limits = some_limits(random);
  World world{static_cast<std::uint16_t>(1 + random.below(3)), options, limits};
  Sequence next = 1;
  std::vector<Record> ended;

  explicit RandomTier(std::uint64_t seed) : random(seed) {}

  std::optional<Record> some_pending() {
    if (world.pending.empty()) return std::nullopt;
    auto at = world.pending.lower_bound({world.now, random.below(next)});
    for (auto n = random.below(20); n > 0 && at != world.pending.end(); --n) ++at;
    if (at == world.pending.end()) at = world.pending.begin();
    return at->second;
  }
  WallTime some_due() {
    static constexpr std::int64_t spans[] = {2'000,      60'000,      hour_ms,     3 * hour_ms,
                                             3 * day_ms, 40 * day_ms, 500 * day_ms};
    const auto kind = random.below(40);
    const auto span = spans[kind < 10   ? 0
                            : kind < 20 ? 1
                            : kind < 27 ? 2
                            : kind < 32 ? 3
                            : kind < 36 ? 4
                            : kind < 39 ? 5
                                        : 6];
    // Often in the same millisecond.
    const auto due = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(span)));
    return world.now + std::chrono::milliseconds(random.below(3) == 0 ? span : due);
  }

  void add_some() {
    for (auto n = 1 + random.below(20); n > 0; --n) {
      Record made;
      made.key = {some_due(), next++};
      made.first = made.key.due;
      made.partition = numbered(static_cast<int>(random.below(7)));
      made.body = "body " + std::to_string(next) + std::string(random.below(300), 'x');
      made.principal = static_cast<PrincipalId>(random.below(4));
      world.add(made);
    }
  }
  void remove_some() {
    for (auto n = 1 + random.below(10); n > 0; --n) {
      const auto gone = some_pending();
      if (!gone) continue;
      world.remove(*gone);
      ended.push_back(*gone);
    }
  }
  void move_one() {
    const auto moved = some_pending();
    if (!moved) return;
    const WallTime due = random.below(3) == 0 ? moved->first : some_due();
    if (due != moved->key.due) world.move(*moved, due);
  }
  // One that is pending is found, and one that is not is not.
  void look_up() {
    if (const auto there = some_pending()) {
      const auto found = world.find(there->key, there->partition);
      REQUIRE(found.has_value());
      CHECK(as_text(found->record) == there->body);
      const auto by_handle =
          world.find({there->first, there->key.sequence}, there->partition, true);
      REQUIRE(by_handle.has_value());
      CHECK(by_handle->key == there->key);
    }
    if (!ended.empty()) {
      const Record& gone = ended[random.below(ended.size())];
      CHECK_FALSE(world.find(gone.key, gone.partition).has_value());
      CHECK_FALSE(world.find({gone.first, gone.key.sequence}, gone.partition, true).has_value());
    }
  }
  void pass_time() {
    static constexpr std::int64_t leaps[] = {1, 100, 10'000, 600'000, hour_ms, day_ms, 25 * day_ms};
    const auto leap = random.below(30);
    world.now += std::chrono::milliseconds(leaps[leap < 24   ? leap / 8
                                                 : leap < 26 ? 3
                                                 : leap < 28 ? 4
                                                 : leap < 29 ? 5
                                                             : 6]);
    for (auto& [number, shard] : world.shards) shard.tier->step(world.now);
    if (random.below(2) == 0) world.deliver();
  }
  void work_a_little() {
    for (auto n = random.below(6); n > 0; --n) {
      for (auto& [number, shard] : world.shards) shard.tier->step(world.now);
      world.background.step();
    }
    world.deliver();
  }

  void step() {
    const auto kind = random.below(100);
    if (kind < 40) {
      add_some();
    } else if (kind < 50) {
      remove_some();
    } else if (kind < 58) {
      move_one();
    } else if (kind < 64) {
      look_up();
    } else if (kind < 80) {
      pass_time();
    } else if (kind < 90) {
      work_a_little();
    } else if (kind < 93) {
      world.deliver_all();
    } else if (kind < 96) {
      world.checkpoint();
    } else if (kind < 98) {
      REQUIRE(world.store->flush().has_value());
    } else {
      world.crash(random.below(3) == 0 ? static_cast<std::uint16_t>(1 + random.below(4))
                                       : world.count);
    }
    REQUIRE(world.failed_with == "");
  }

  // The store counts by topic and by principal what is pending.
  void check_counts() {
    world.deliver_all();
    world.checkpoint();
    std::map<TopicId, std::uint64_t> expected;
    storage::PendingUses uses;
    for (const auto& [key, one] : world.pending) {
      ++expected[one.partition.topic];
      if (one.principal != unknown_principal)
        uses[{one.partition.topic, one.principal}].add(
            {1, static_cast<std::int64_t>(one.body.size())});
    }
    CHECK(*world.store->totals() == expected);
    CHECK(*world.store->uses() == uses);
  }
  void deliver_the_rest() {
    while (!world.pending.empty()) {
      world.now = world.pending.begin()->first.due +
                  std::chrono::milliseconds(random.below(static_cast<std::uint64_t>(hour_ms)));
      world.deliver_all();
    }
    world.checkpoint();
    CHECK(world.store->totals()->empty());
    CHECK(world.store->uses()->empty());
  }
};

TEST_SUITE("bucket tier") {
  TEST_CASE(
      "a record that is accepted and delivered between two checkpoints never reaches the store") {
    World world;
    for (Sequence s = 1; s <= 1'000; ++s) world.add(record(s, static_cast<std::int64_t>(s)));
    world.settle();
    world.now = begin + std::chrono::seconds(2);
    world.deliver_all();
    CHECK(world.pending.empty());
    world.checkpoint();
    const auto stats = world.shards[0].tier->stats();
    CHECK(stats.written == 0);
    CHECK(stats.spared == 1'000);
    CHECK(stats.memory_bytes == 0);
    CHECK(world.store->homes({0, 1})->empty());
    CHECK(world.store->totals()->empty());
  }

  TEST_CASE("the slots are the hours that have a record in memory, and a look at them is bounded") {
    World world;
    world.add(record(1, 3 * hour_ms));
    world.add(record(2, 3 * hour_ms + 5));
    world.add(record(3, 7 * hour_ms));
    const auto& tier = *world.shards[0].tier;
    const auto hours = [&](std::size_t max_looked) {
      return tier.slots(begin, max_looked)[static_cast<std::size_t>(BucketLevel::hour)];
    };
    CHECK(hours(100).used().count() == 2);
    CHECK(hours(100).used()[3]);
    CHECK(hours(100).used()[7]);
    CHECK_FALSE(hours(100).later());
    CHECK(hours(3).used().count() == 1);
    CHECK(hours(3).later());
    world.checkpoint();
    CHECK(hours(100).used().none());
  }

  TEST_CASE("a far record leaves memory with a checkpoint and comes back before it is due") {
    World world;
    world.add(record(1, 3 * hour_ms));
    world.checkpoint();
    CHECK(world.shards[0].tier->stats().memory_bytes == 0);
    CHECK(world.shards[0].wheel.empty());
    CHECK(world.shards[0].tier->next_load() ==
          begin + std::chrono::hours(3) - world.options.lead / 2);
    world.now = begin + std::chrono::hours(3) - std::chrono::seconds(50);
    world.settle();
    CHECK(world.shards[0].wheel.size() == 1);
    world.now += std::chrono::seconds(50);
    world.deliver_all();
    CHECK(world.pending.empty());
    world.checkpoint();
    world.checkpoint();
    CHECK(world.store->homes({0, 1})->empty());
    CHECK(world.store->totals()->empty());
    world.now += std::chrono::hours(2);
    world.settle();
    world.checkpoint();
    world.settle();
    CHECK(world.store->places(0)->empty());
  }

  TEST_CASE("the next occurrence is in the record of the delivery, and is there once") {
    World world;
    world.add(record(1, 1'000));
    world.checkpoint();
    for (int round = 1; round <= 5; ++round) {
      const Record now = world.pending.begin()->second;
      world.now = now.key.due;
      world.settle();
      REQUIRE(world.shards[0].wheel.contains(now.key));
      world.move(now, now.key.due + std::chrono::hours(1));  // Delivered, and pending again.
      if (round % 2 == 0) world.checkpoint();
      if (round % 3 == 0) world.crash(1);
      CHECK(world.pending.size() == 1);
      CHECK(world.find(now.key, numbered(0)) == std::nullopt);
      const auto found = world.find(record(1, 1'000).key, numbered(0), true);
      REQUIRE(found.has_value());
      CHECK(found->key == world.pending.begin()->first);
    }
  }

  TEST_CASE("homes count as memory, and due records are loaded although homes use all of it") {
    BucketTier::Options options;
    options.memory_bytes = 1u << 20;
    World world(1, options);
    for (Sequence s = 1; s <= 8'000; ++s)
      world.add(record(s, static_cast<std::int64_t>(s) * hour_ms));
    world.checkpoint();
    BucketTier& tier = *world.shards[0].tier;
    CHECK(tier.is_full());
    CHECK(tier.stats().memory_bytes == 0);
    world.now = begin + std::chrono::hours(5);
    while (!world.pending.empty() && world.pending.begin()->first.due <= world.now) {
      world.settle();
      world.deliver();
    }
    CHECK(world.pending.size() == 7'995);
  }

  TEST_CASE("months come last, although their level is the first: in memory, on disk, on a page") {
    World world;
    const Record later = record(1, 500 * day_ms), sooner = record(2, 364 * day_ms);
    const Record soonest = record(3, 2 * hour_ms), last = record(4, 900 * day_ms);
    for (const auto& one : {later, sooner, last, soonest}) world.add(one);
    const BucketTier& tier = *world.shards.at(0).tier;
    REQUIRE(tier.earliest().has_value());
    CHECK(tier.earliest()->due == soonest.key.due);
    CHECK(tier.earliest()->exact);
    world.checkpoint();
    REQUIRE(tier.earliest().has_value());
    CHECK(tier.earliest()->due == storage::bucket_of(BucketLevel::hour, soonest.key.due).start);
    const auto page = world.store->page({});
    REQUIRE(page.has_value());
    std::vector<Sequence> order;
    for (const auto& one : page->records) order.push_back(one.key.sequence);
    CHECK(order == std::vector<Sequence>{3, 2, 1, 4});
    for (const auto& one : {soonest, sooner, later, last}) {
      CHECK(world.pending.begin()->first == one.key);
      world.now = one.key.due - std::chrono::milliseconds(1);
      world.deliver_all();
      CHECK(world.pending.begin()->first == one.key);
      world.now = one.key.due;
      world.deliver_all();
      CHECK_FALSE(world.pending.contains(one.key));
    }
  }

  TEST_CASE("a record that is due in more than a year waits in a month, and is dealt out in time") {
    World world;
    for (int i = 1; i <= 40; ++i)
      world.add(record(static_cast<Sequence>(i), i * 30 * day_ms + i * hour_ms));
    world.checkpoint();
    std::size_t months = 0;
    const auto homes = world.store->homes({0, 1});
    for (const auto& home : *homes) months += home.level == BucketLevel::month;
    CHECK(months == 29);
    for (int i = 1; i <= 40; ++i) {
      world.now = begin + std::chrono::milliseconds(i * 30 * day_ms + i * hour_ms - 1);
      world.deliver_all();
      CHECK(world.pending.size() == static_cast<std::size_t>(41 - i));
      world.now += std::chrono::milliseconds(1);
      world.deliver_all();
      CHECK(world.pending.size() == static_cast<std::size_t>(40 - i));
      if (i % 3 == 0) world.checkpoint();
      if (i % 7 == 0) world.crash(1);
    }
  }

  TEST_CASE("memory stays within its budget when all is due in one hour, and all leaves in order") {
    BucketTier::Options options;
    options.memory_bytes = 1u << 20;
    options.write_bytes = 128u << 10;
    World world(1, options, {.step_bytes = 200u << 10});
    SeededRandom random(5);
    const std::string body(300, 'b');
    std::size_t most = 0;
    for (Sequence s = 1; s <= 20'000; ++s) {
      // Six megabytes in one hour, two of them in one second of it.
      const auto due =
          s % 3 == 0 ? 2 * hour_ms + 1'800'000 + static_cast<std::int64_t>(random.below(1'000))
                     : 2 * hour_ms + static_cast<std::int64_t>(random.below(hour_ms));
      world.add(record(s, due, body));
      if (s % 50 == 0) world.settle();
      most = std::max(most, world.shards[0].tier->stats().memory_bytes);
    }
    CHECK(most <= options.memory_bytes);
    world.checkpoint();
    for (world.now += std::chrono::minutes(119); !world.pending.empty();
         world.now += std::chrono::seconds(20)) {
      world.deliver_all();
      most = std::max(most, world.shards[0].tier->stats().memory_bytes);
    }
    CHECK(most <= options.memory_bytes + options.memory_bytes / 4);
    CHECK(world.shards[0].tier->stats().dealt_steps > 10);
  }

  TEST_CASE("the pending records are always those of a simple model") {
    const char* const given = std::getenv("TARRY_SEED");
    const int first = given != nullptr ? std::atoi(given) : 1;
    const char* const runs = std::getenv("TARRY_RUNS");
    const int count = given != nullptr ? 1 : runs != nullptr ? std::atoi(runs) : tries(2);
    for (int seed = first; seed < first + count; ++seed) {
      CAPTURE(seed);
      RandomTier run(static_cast<std::uint64_t>(seed));
      for (int step = 0; step < tries(1'500); ++step) run.step();
      run.check_counts();
      run.deliver_the_rest();
    }
  }
}

}  // namespace
}  // namespace tarry::delay::tier_test
