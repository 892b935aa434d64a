#include "delay/lookups.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "tests/delay/bucket_world.h"

namespace tarry::delay::tier_test {
namespace {

TEST_SUITE("lookups") {
  TEST_CASE("a moved record is found by its handle wherever it is, until it is gone") {
    World world;
    const Record first = record(1, 40 * day_ms);
    world.add(first);
    world.checkpoint();
    world.move(first, begin + std::chrono::hours(100));
    CHECK(world.find(first.key, numbered(0), true)->key.due == begin + std::chrono::hours(100));
    world.checkpoint();
    CHECK(world.find(first.key, numbered(0), true)->key.due == begin + std::chrono::hours(100));
    CHECK_FALSE(world.find(first.key, numbered(0)).has_value());
    // And back to where it was.
    world.move(Record(world.pending.begin()->second), first.key.due);
    world.checkpoint();
    CHECK(world.find(first.key, numbered(0), true).has_value());
    CHECK(world.find(first.key, numbered(0)).has_value());
    world.remove(Record(world.pending.begin()->second));
    CHECK_FALSE(world.find(first.key, numbered(0), true).has_value());
    world.checkpoint();
    CHECK_FALSE(world.find(first.key, numbered(0), true).has_value());
  }

  TEST_CASE("a record that is cancelled while the disk is asked for it is not found") {
    World world;
    const Record far = record(1, 5 * hour_ms);
    world.add(far);
    world.checkpoint();
    int answers = 0;
    world.shards[0].tier->find(far.key, [&](const auto& result) {
      ++answers;
      CHECK_FALSE(result->has_value());
    });
    world.shards[0].tier->step(world.now);
    CHECK(answers == 0);  // It is being read.
    world.remove(far);
    world.settle();
    CHECK(answers == 1);
  }

  TEST_CASE("a far record that is gone is not found on the disk while its chunk is in memory too") {
    World world;
    const Record far = record(2, 1'800'000);
    world.add(record(1, 60'000));  // Keeps their chunk in memory.
    world.add(far);
    world.settle();
    world.checkpoint();
    world.add(record(3, 1'800'000));
    world.checkpoint();  // Nothing of this chunk is near: that hour is on disk, too.
    CHECK(world.shards[0].wheel.size() == 1);
    CHECK(world.shards[0].tier->stats().records == 2);
    CHECK(world.find(far.key, far.partition).has_value());
    world.remove(far);
    CHECK_FALSE(world.find(far.key, far.partition).has_value());
    CHECK_FALSE(world.find(far.key, far.partition, true).has_value());
    world.checkpoint();
    CHECK_FALSE(world.find(far.key, far.partition).has_value());
    world.now += std::chrono::hours(1);
    world.deliver_all();
    CHECK(world.pending.empty());
  }

  TEST_CASE(
      "a record that is moved again while its handle is looked up is found where it is then") {
    World world;
    const Record far = record(1, 5 * hour_ms);
    world.add(far);
    world.checkpoint();
    Record moved = far;
    moved.key.due += std::chrono::hours(1);
    world.move(far, moved.key.due);
    // Its hour is written, and memory still knows that it was moved.
    BucketTier& tier = *world.shards[0].tier;
    bool written = false;
    tier.write_all([&] { written = true; });
    for (int steps = 0; tier.stats().records > 0; ++steps) {
      REQUIRE(steps < 100);
      tier.step(world.now);
      world.background.step();
    }
    REQUIRE_FALSE(written);
    std::optional<storage::PendingRecord> found;
    tier.find_handle(far.key, [&](auto result) { found = std::move(result.value()); });
    REQUIRE_FALSE(found.has_value());  // It is being read.
    world.move(moved, moved.key.due + std::chrono::hours(1));
    world.settle();
    REQUIRE(found.has_value());
    CHECK(found->key.due == moved.key.due + std::chrono::hours(1));
  }

  TEST_CASE("look-ups that wait for the disk are bounded") {
    World world;
    world.add(record(1, 3 * hour_ms));
    world.checkpoint();
    BucketTier& tier = *world.shards[0].tier;
    std::size_t refused = 0, found = 0;
    for (std::size_t i = 0; i < 70'000; ++i) {
      tier.find(record(1, 3 * hour_ms).key, [&](auto answer) {
        if (answer)
          ++found;
        else
          ++refused;
      });
    }
    CHECK(refused > 0);
    CHECK(refused < 10'000);
    world.settle();
    CHECK(found == 70'000 - refused);
  }

  TEST_CASE("a turn answers a bounded number of look-ups, and all of them are true when told") {
    World world;
    constexpr std::size_t answers_of_a_turn = 128;
    const Record far = record(1, 3 * hour_ms), gone = record(2, 3 * hour_ms);
    world.add(far);
    world.add(gone);
    world.checkpoint();
    BucketTier& tier = *world.shards[0].tier;
    std::size_t found = 0, missed = 0, events = 0;
    bool is_gone = false;
    for (int i = 0; i < 1'000; ++i) {
      tier.find(far.key, [&](auto answer) { found += answer->has_value(); });
      tier.find(gone.key, [&](auto answer) {
        CHECK(answer->has_value() == !is_gone);
        missed += !answer->has_value();
      });
      tier.find_id(far.partition, "nobody", [&](auto answer) { events += answer->empty(); });
    }
    const auto told = [&] { return found + missed + events; };
    std::size_t before = 0, turns = 0;
    bool written = false;
    const auto turn = [&](const auto& work) {
      const bool more = work();
      CHECK(told() - before <= answers_of_a_turn);
      turns += told() > before;
      before = told();
      if (is_gone || turns < 3) return more;
      // In the middle of the answers: those that follow know of it, whatever is written meanwhile.
      is_gone = true;
      world.remove(gone);
      tier.write_all([&written] { written = true; });
      return true;
    };
    for (bool more = true; more;) {
      more = turn([&] { return tier.step(world.now); });
      more |= turn([&] { return world.background.step(); });
    }
    CHECK(written);
    CHECK(found == 1'000);
    CHECK(events == 1'000);
    CHECK(missed > 500);
    CHECK(turns >= 2'500 / answers_of_a_turn);
  }

  TEST_CASE(
      "look-ups of large records bring some megabytes into memory at once, and all are found") {
    World world;
    const std::string body(1u << 20, 'b');
    for (Sequence s = 1; s <= 40; ++s) world.add(record(s, 3 * hour_ms, body));
    world.checkpoint();
    BucketTier& tier = *world.shards[0].tier;
    std::size_t found = 0;
    for (Sequence s = 1; s <= 40; ++s) {
      tier.find(record(s, 3 * hour_ms).key, [&](auto answer) {
        REQUIRE(answer->has_value());
        CHECK((*answer)->record.size() == body.size());
        ++found;
      });
    }
    // The first is on its way alone.
    for (std::size_t before = 0; found < 40; before = found) {
      (void)tier.step(world.now);
      REQUIRE(world.background.step());
      CHECK(found - before <= 9);
      CHECK(found > before);
    }
  }
}

}  // namespace
}  // namespace tarry::delay::tier_test
