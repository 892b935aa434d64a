#include "delay/rescue.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/delay/bucket_world.h"

namespace tarry::delay::tier_test {
namespace {

constexpr std::int64_t flood_ms = 10'000;
constexpr int flooded = 0, other = 1, third = 2;

// Most of the records are due in one millisecond, in one partition, and a third of them fits into
// memory.  Nothing of that partition is delivered until the test says so.
struct Flood {
  static BucketTier::Options options() {
    BucketTier::Options options;
    options.memory_bytes = 2u << 20;
    options.write_bytes = 128u << 10;
    return options;
  }

  World world;
  Sequence next = 1;
  std::size_t most = 0;  // Bytes.

  explicit Flood(BucketTier::Options of = options(), BucketStore::Limits bounds = {})
      : world(1, of, bounds) {
    world.stuck.insert(numbered(flooded));
    world.settle();
  }
  BucketTier& tier() { return *world.shards.at(0).tier; }
  std::map<PendingKey, Location>& wheel() { return world.shards.at(0).wheel; }

  Record add(std::int64_t after_ms, int partition, std::size_t bytes = 100) {
    const Record made =
        record(next, after_ms, "body " + std::to_string(next) + std::string(bytes, 'b'), partition);
    ++next;
    world.add(made);
    if (next % 50 == 0) world.settle();
    return made;
  }
  void flood(int records = 6'000) {
    for (int i = 0; i < records; ++i) add(flood_ms, flooded, 300);
    world.settle();
  }
  void go_to(std::int64_t after_ms) {
    world.now = begin + std::chrono::milliseconds(after_ms);
    world.settle();
    world.deliver();
    world.settle();
    most = std::max(most, tier().stats().memory_bytes);
  }
  // What is due in these partitions, and waits.
  std::size_t late(const std::set<int>& partitions = {other, third}) const {
    std::size_t count = 0;
    for (const auto& [key, of] : world.pending)
      count += key.due <= world.now && partitions.contains(of.partition.partition) ? 1 : 0;
    return count;
  }
  // To the end; nothing of these partitions is late meanwhile.
  void check_in_time(std::int64_t from_ms, std::int64_t until_ms) {
    for (std::int64_t ms = from_ms; ms <= until_ms; ms += 50) {
      CAPTURE(ms);
      go_to(ms);
      REQUIRE(late() == 0);
    }
  }
  void end() {
    world.stuck.clear();
    world.deliver_all();
    for (int rounds = 0; !world.pending.empty(); ++rounds) {
      REQUIRE(rounds < 1'000);
      world.now += std::chrono::milliseconds(500);
      world.deliver_all();
    }
    CHECK(wheel().empty());
    world.checkpoint();
    const auto stats = tier().stats();
    CHECK(stats.rescue_bytes == 0);
    CHECK(stats.records == 0);
    CHECK(world.store->totals().value().empty());
    CHECK(world.failed_with == "");
    CHECK(most <= world.options.memory_bytes + world.options.memory_bytes / 4);
  }
};

TEST_SUITE("rescue") {
  TEST_CASE("a flood that does not fit into memory holds up no other partition") {
    Flood all;
    for (int i = 0; i < 100; ++i) all.add(9'900 + i * 20, other);  // On disk.
    all.flood();
    REQUIRE(all.tier().stats().pulled_back > 0);
    all.world.checkpoint();
    all.go_to(6'000);
    for (int i = 0; i < 50; ++i) all.add(9'910 + i * 40, other);  // In tails.
    all.check_in_time(6'000, 10'500);
    CHECK(all.tier().stats().rescues > 0);
    CHECK(all.tier().stats().rescued > 0);
    for (int i = 0; i < 50; ++i)
      all.add(10'400 + i * 20, i % 2 == 0 ? other : third);  // Meanwhile.
    all.check_in_time(10'500, 13'000);
    CHECK(all.world.pending.size() == 6'000);
    // However long the flood waits.
    for (int i = 0; i < 50; ++i) all.add(60'000 + i * 20, other);
    all.check_in_time(59'000, 62'000);
    CHECK(all.world.pending.size() == 6'000);
    all.end();
  }

  TEST_CASE("it holds up nobody either while it is delivered") {
    Flood all;
    for (int i = 0; i < 200; ++i) all.add(9'500 + i * 10, i % 2 == 0 ? other : third);
    all.flood();
    all.go_to(9'000);
    all.check_in_time(9'000, 10'000);
    all.world.stuck.clear();
    // In small pieces of work, and a delivery between any two of them.
    while (!all.world.pending.empty()) {
      all.world.now += std::chrono::milliseconds(1);
      REQUIRE(all.world.now < begin + std::chrono::milliseconds(20'000));
      (void)all.tier().step(all.world.now);
      all.world.background.step();
      all.world.deliver();
    }
    CHECK(all.tier().stats().rescued > 0);
    all.end();
  }

  TEST_CASE("while the lead is short the next flood is dealt out long before it is due") {
    Flood all;
    all.flood();
    REQUIRE(all.tier().stats().pulled_back > 0);
    all.world.stuck.clear();
    for (std::int64_t ms = 9'000; ms <= 11'000; ms += 50) all.go_to(ms);
    REQUIRE(all.world.pending.empty());
    const auto before = all.tier().stats().dealt_steps;
    constexpr std::int64_t next_ms = 11'000 + 25'000;  // The lead does not grow again until then.
    for (int i = 0; i < 6'000; ++i) all.add(next_ms, flooded, 300);
    all.world.checkpoint();
    all.world.settle();
    const auto dealt = all.tier().stats().dealt_steps;
    CHECK(dealt > before);
    all.go_to(next_ms - 500);
    CHECK(all.tier().stats().dealt_steps == dealt);
    all.check_in_time(next_ms - 500, next_ms);
    all.end();
  }

  TEST_CASE("while there is no room for a flush nothing is dealt out ahead") {
    BucketTier::Options options = Flood::options();
    options.flush_bytes = 64u << 10;
    BucketStore::Limits bounds;
    bounds.step_bytes = 256u << 10;
    Flood all(options, bounds);
    all.flood();
    REQUIRE(all.tier().stats().pulled_back > 0);
    all.world.stuck.clear();
    for (std::int64_t ms = 9'000; ms <= 11'000; ms += 50) all.go_to(ms);
    REQUIRE(all.world.pending.empty());
    constexpr std::int64_t next_ms = 11'000 + 25'000;
    all.world.is_disk_full = true;
    for (int i = 0; i < 6'000; ++i) all.add(next_ms, flooded, 300);
    all.world.checkpoint();
    // The first step finds out again that there is none.
    const auto dealt = all.tier().stats().dealt_steps;
    all.world.settle();
    CHECK(all.tier().stats().dealt_steps == dealt);
    all.world.is_disk_full = false;
    all.world.checkpoint();
    CHECK(all.tier().stats().dealt_steps > dealt);
    all.end();
  }

  TEST_CASE("what comes near and what is rescued share the entries of a step") {
    BucketTier::Options options = Flood::options();
    options.step_entries = 64;
    Flood all(options);
    for (int i = 0; i < 400; ++i) all.add(10'010 + i * 2, i % 2 == 0 ? other : third);
    all.flood();
    all.go_to(9'000);
    all.world.stuck.clear();
    all.world.now = begin + std::chrono::milliseconds(flood_ms);
    std::size_t most = 0;
    while (!all.world.pending.empty()) {
      all.world.now += std::chrono::milliseconds(1);
      REQUIRE(all.world.now < begin + std::chrono::milliseconds(30'000));
      const auto before = all.tier().stats();
      (void)all.tier().step(all.world.now);
      const auto after = all.tier().stats();
      most = std::max<std::size_t>(
          most, after.came_near - before.came_near + after.rescued - before.rescued);
      all.world.background.step();
      all.world.deliver();
    }
    CHECK(all.tier().stats().rescued > 0);
    CHECK(most <= 64 + 16);
    all.end();
  }

  TEST_CASE("a partition that has more than its part goes on as what it has leaves") {
    for (const bool on_disk : {true, false}) {
      CAPTURE(on_disk);
      Flood all;
      // A second of them is twice of what one partition may have.
      const auto add_others = [&] {
        for (int i = 0; i < 400; ++i) all.add(10'050 + i * 5, other, 300);
      };
      for (int i = 0; i < 40; ++i) all.add(10'070 + i * 50, third);
      if (on_disk) add_others();
      all.flood();
      if (on_disk) all.world.checkpoint();
      all.go_to(8'000);
      if (!on_disk) add_others();
      all.check_in_time(8'000, 12'500);
      CHECK(all.tier().stats().rescued >= 440);
      CHECK(all.world.pending.size() == 6'000);
      all.end();
    }
  }

  TEST_CASE("however many partitions are stuck beside a flood, the others are in time") {
    Flood all;
    constexpr int first = 10, count = 20;
    for (int i = 0; i < count; ++i) all.world.stuck.insert(numbered(first + i));
    // Four times what may be rescued; none of them comes to its part of that by itself.
    for (std::int64_t ms = 10'050; ms < 14'000; ms += 50)
      for (int i = 0; i < count; ++i) all.add(ms, first + i, 300);
    for (int i = 0; i < 50; ++i) all.add(10'100 + i * 80, i % 2 == 0 ? other : third);
    all.flood();
    all.world.checkpoint();
    all.check_in_time(8'000, 14'500);
    CHECK(all.tier().stats().rescued > 0);
    CHECK(all.world.pending.size() == 6'000 + 79 * count);
    all.end();
  }

  TEST_CASE("a checkpoint does not wait until a rescue has passed over all of a flood") {
    Flood all;
    const Record behind = all.add(10'100, other);
    all.flood(12'000);
    all.world.checkpoint();
    all.go_to(8'000);
    all.add(60'000, other);
    all.world.now = begin + std::chrono::milliseconds(10'200);
    int turns = 0;
    const auto turn = [&] {
      REQUIRE(++turns < 10'000);
      (void)all.tier().step(all.world.now);
      all.world.background.step();
    };
    while (all.tier().stats().rescues == 0) turn();
    bool is_written = false;
    all.tier().write_all([&is_written] { is_written = true; });
    while (!is_written) turn();
    CHECK_FALSE(all.wheel().contains(behind.key));
    all.world.settle();
    CHECK(all.wheel().contains(behind.key));
    all.end();
  }

  TEST_CASE("what is cancelled, moved or replaced while it is rescued is pending no more") {
    for (const bool on_disk : {true, false}) {
      CAPTURE(on_disk);
      Flood all;
      std::vector<Record> others;
      const auto add_others = [&] {
        for (int i = 0; i < 60; ++i) others.push_back(all.add(10'300 + i, other));
      };
      if (on_disk) add_others();
      all.flood();
      if (on_disk) all.world.checkpoint();
      all.go_to(9'000);
      if (!on_disk) add_others();
      all.check_in_time(9'000, 10'100);
      for (const auto& one : others) REQUIRE(all.wheel().contains(one.key));
      REQUIRE(all.tier().stats().rescue_bytes > 0);
      for (int i = 0; i < 60; i += 6) all.world.remove(others[static_cast<std::size_t>(i)]);
      // Sooner, later and much later, and back.
      const auto move = [&](std::size_t i, std::int64_t to) {
        Record& of = others[i];
        all.world.move(of, begin + std::chrono::milliseconds(to));
        of.key.due = begin + std::chrono::milliseconds(to);
      };
      for (std::size_t i = 1; i < 60; i += 6) move(i, 10'150);
      for (std::size_t i = 2; i < 60; i += 6) move(i, 10'900);
      for (std::size_t i = 3; i < 60; i += 6) move(i, 70'000);
      for (std::size_t i = 4; i < 60; i += 6) {
        const auto was = others[i].key.due;
        move(i, 10'900);
        move(i, 10'300 + static_cast<std::int64_t>(i));
        REQUIRE(others[i].key.due == was);
      }
      for (std::size_t i = 5; i < 60; i += 6) {
        all.world.remove(others[i]);
        all.add(10'300 + static_cast<std::int64_t>(i), other);
      }
      for (std::size_t i = 4; i < 60; i += 6)
        CHECK(all.world.find(others[i].key, others[i].partition).has_value());
      for (std::size_t i = 0; i < 60; i += 6)
        CHECK_FALSE(all.world.find(others[i].key, others[i].partition).has_value());
      all.check_in_time(10'110, 12'000);
      CHECK(all.world.pending.size() == 6'000 + 10);
      all.end();
    }
  }

  TEST_CASE("what was rescued and waits is delivered when the flood has gone") {
    Flood all;
    for (int i = 0; i < 60; ++i) all.add(10'300 + i * 10, other);
    all.flood();
    all.check_in_time(9'000, 10'100);
    REQUIRE(all.tier().stats().rescue_bytes > 0);
    all.world.stuck = {numbered(other)};
    all.world.deliver_all();
    CHECK(all.world.pending.size() == 60);
    CHECK(all.tier().stats().rescue_bytes == 0);
    // From where they are now.
    all.world.stuck.clear();
    all.check_in_time(10'110, 12'000);
    CHECK(all.world.pending.empty());
    all.end();
  }

  TEST_CASE("what is rescued of a topic goes with it") {
    Flood all;
    std::vector<Record> others;
    for (int i = 0; i < 60; ++i) others.push_back(all.add(10'300 + i * 10, other));
    for (int i = 0; i < 60; ++i) all.add(10'300 + i * 10, third);
    all.flood();
    all.check_in_time(9'000, 10'100);
    REQUIRE(all.wheel().contains(others[0].key));
    const auto before = all.tier().stats().rescue_bytes;
    const TopicId topic = numbered(other).topic;
    REQUIRE(all.world.store->drop_topic(topic).has_value());
    all.tier().topic_dropped(topic);
    CHECK(all.tier().stats().rescue_bytes < before);
    for (const auto& one : others) {
      CHECK_FALSE(all.tier().read(one.key, all.wheel()[one.key]).has_value());
      all.world.pending.erase(one.key);
      all.wheel().erase(one.key);
    }
    all.check_in_time(10'110, 12'000);
    all.end();
  }

  TEST_CASE("what is rescued cannot be set aside before the horizon has come to it") {
    Flood all;
    all.flood();
    all.check_in_time(9'000, 10'100);
    const Record one = all.add(10'200, other);
    REQUIRE(all.wheel().contains(one.key));
    REQUIRE_FALSE(one.key < all.tier().horizon());
    const auto before = all.tier().stats().rescue_bytes;
    // Otherwise its far chunk might leave memory, and it would be set aside, and counted, twice.
    CHECK_FALSE(all.tier().set_aside(one.key, one.partition, all.wheel()[one.key]));
    CHECK(all.tier().stats().rescue_bytes < before);
    all.wheel().erase(one.key);
    all.end();  // It came again.
  }

  TEST_CASE("a horizon that moves back ends a rescue, and nothing is lost or delivered twice") {
    Flood all;
    for (int i = 0; i < 60; ++i) all.add(10'300 + i * 10, i % 2 == 0 ? other : third);
    all.flood();
    all.check_in_time(9'000, 10'400);
    REQUIRE(all.tier().stats().rescue_bytes > 0);
    const auto before = all.tier().stats().pulled_back;
    all.world.now -= std::chrono::milliseconds(9'000);
    all.tier().set_locator_bytes(all.world.options.memory_bytes);
    all.world.settle();
    REQUIRE(all.tier().stats().pulled_back > before);
    CHECK(all.tier().stats().rescue_bytes == 0);
    all.tier().set_locator_bytes(0);
    all.check_in_time(1'500, 12'000);
    all.end();
  }

  TEST_CASE("a crash in the middle of a rescue loses nothing and doubles nothing") {
    for (const bool noted : {false, true}) {
      Flood all;
      for (int i = 0; i < 60; ++i) all.add(10'000 + i * 10, i % 2 == 0 ? other : third);
      all.flood();
      if (noted) all.world.checkpoint();
      all.check_in_time(9'000, 10'300);
      REQUIRE(all.tier().stats().rescue_bytes > 0);
      CHECK(all.world.pending.size() < 6'060);
      if (noted) all.world.checkpoint();
      all.world.crash(1);  // The replay brings all of it at once.
      all.world.settle();
      all.check_in_time(10'310, 12'000);
      CHECK(all.world.pending.size() == 6'000);
      all.most = 0;
      all.end();
    }
  }

  TEST_CASE("two floods at once leave room for what else is due") {
    Flood all;
    for (int i = 0; i < 60; ++i) all.add(10'000 + i * 10, third);
    for (int i = 0; i < 2'000; ++i) all.add(10'100, other, 300);
    all.flood(4'000);
    all.world.stuck.insert(numbered(other));
    for (std::int64_t ms = 9'000; ms <= 12'000; ms += 50) {
      CAPTURE(ms);
      all.go_to(ms);
      REQUIRE(all.late({third}) == 0);
      CHECK(all.tier().stats().rescue_bytes <= all.world.options.memory_bytes / 8 + (64u << 10));
    }
    CHECK(all.world.pending.size() == 6'000);
    // More of the second one comes while it has its part.
    for (int i = 0; i < 100; ++i) all.add(12'100 + i, i % 2 == 0 ? other : third, 300);
    for (std::int64_t ms = 12'000; ms <= 12'300; ms += 50) {
      all.go_to(ms);
      REQUIRE(all.late({third}) == 0);
    }
    all.end();
  }

  TEST_CASE("however many floods there are at once, one more partition is rescued beside them") {
    Rescue rescue(1u << 20, {});
    Homes homes(1u << 20);
    rescue.begin({begin, 0});
    rescue.advance({begin + std::chrono::seconds(10), 0}, homes, {});
    REQUIRE(rescue.may_go_on());
    constexpr int floods = 12;
    Sequence sequence = 1;
    std::size_t kept = 0;
    for (int i = 0; i < 1'000; ++i) {
      for (int partition = 0; partition < floods; ++partition) {
        const Record one = record(sequence++, 1'000, std::string(300, 'b'), partition);
        kept += rescue.keep(one.view()).has_value() ? 1 : 0;
      }
    }
    CHECK(kept > 500);
    CHECK(kept < sequence - 1);
    CHECK(rescue.stops().size() == floods);
    CHECK(rescue.memory() < (1u << 20));
    const Record last = record(sequence, 2'000, "one more", floods);
    const auto at = rescue.keep(last.view());
    REQUIRE(at.has_value());
    CHECK(rescue.is_settled(last.key, last.partition));
    CHECK(rescue.read(last.key, *at)->record.size() == last.body.size());
    // What the floods have may stay for long, and the time goes on.
    CHECK(rescue.may_go_on());
    (void)rescue.end();
    CHECK(rescue.memory() == 0);
  }

  TEST_CASE(
      "what is stopped goes on from there, in order, and is settled when all is handed over") {
    Rescue rescue(64u << 10, {});
    Homes homes(1u << 20);
    homes.set_hours_end(WallTime::max());
    DroppedTopics dropped(homes);
    rescue.begin({begin, 0});
    std::vector<Record> records;
    for (Sequence i = 1; i <= 200; ++i) {
      records.push_back(
          record(i, 1'000 + static_cast<std::int64_t>(i), std::string(300, 'b'), other));
      REQUIRE(homes.add(JournalPlace{i}, records.back().view()));
    }
    const Record& last = records.back();
    rescue.advance({begin + std::chrono::seconds(10), 0}, homes, {});
    std::vector<PendingKey> handed;
    std::size_t gone = 0, rounds = 0;
    const auto hand_over_all = [&] {
      while (rescue.is_handing()) {
        CHECK_FALSE(rescue.is_settled(last.key, last.partition));
        (void)rescue.hand_over(1, homes, dropped, [&](const PendingView& view, const Location& at) {
          handed.push_back(view.key);
          CHECK(rescue.read(view.key, at)->record.size() == last.body.size());
        });
      }
    };
    hand_over_all();
    for (; !rescue.stops().empty(); ++rounds) {
      REQUIRE(rounds < 100);
      CHECK(rescue.resumable().empty());  // Nothing has left.
      CHECK_FALSE(rescue.is_near(last.key, last.partition));
      CHECK_FALSE(rescue.keep(last.view()).has_value());
      for (; gone < handed.size(); ++gone) rescue.remove(handed[gone], last.partition, {});
      CHECK(rescue.may_resume());
      const auto again = rescue.resumable();
      REQUIRE(again.size() == 1);
      const PendingKey from = again.begin()->second;
      rescue.resume(from, rescue.at(), again, homes, {});
      CHECK(rescue.is_near(last.key, last.partition));
      // It is not settled either if all that it had has left.
      hand_over_all();
    }
    CHECK(rounds > 1);
    REQUIRE(handed.size() == records.size());
    for (std::size_t i = 0; i < handed.size(); ++i) CHECK(handed[i] == records[i].key);
    CHECK(rescue.is_settled(last.key, last.partition));
    for (; gone < handed.size(); ++gone) rescue.remove(handed[gone], last.partition, {});
    CHECK(rescue.memory() == 0);
    CHECK_FALSE(rescue.may_resume());
  }

  TEST_CASE(
      "a partition that flooded goes on when it floods no more, though nothing here has left") {
    bool floods = true;
    Rescue rescue(1u << 20, [&floods](const TopicPartition&) { return floods; });
    Homes homes(1u << 20);
    homes.set_hours_end(WallTime::max());
    DroppedTopics dropped(homes);
    const Record near = record(1, 1'000, "near", flooded), far = record(2, 2'000, "far", flooded);
    rescue.begin({begin + std::chrono::milliseconds(1'500), 0});
    REQUIRE(homes.add(JournalPlace{1}, far.view()));
    rescue.advance({begin + std::chrono::seconds(10), 0}, homes, {});
    std::vector<PendingKey> handed;
    const auto hand_over_all = [&] {
      while (rescue.is_handing())
        (void)rescue.hand_over(1, homes, dropped, [&](const PendingView& view, const Location&) {
          handed.push_back(view.key);
        });
    };
    hand_over_all();
    REQUIRE(rescue.stops().size() == 1);
    rescue.remove(near.key, near.partition, {});
    CHECK_FALSE(rescue.may_resume());
    floods = false;
    // It was near by itself, before the rescue begins.
    rescue.remove(near.key, near.partition, {});
    REQUIRE(rescue.may_resume());
    const auto again = rescue.resumable();
    REQUIRE(again.size() == 1);
    rescue.resume(again.begin()->second, rescue.at(), again, homes, {});
    hand_over_all();
    CHECK(handed == std::vector{far.key});
    CHECK(rescue.is_settled(far.key, far.partition));
    (void)rescue.end();
  }

  TEST_CASE("what stands behind a record that does not fit goes on when that is cancelled") {
    Rescue rescue(64u << 10, {});
    Homes homes(1u << 20);
    homes.set_hours_end(WallTime::max());
    DroppedTopics dropped(homes);
    rescue.begin({begin, 0});
    const Record large = record(1, 1'000, std::string(40u << 10, 'b'), other);
    const Record small = record(2, 2'000, "small", other);
    for (const Record* const one : {&large, &small})
      REQUIRE(homes.add(JournalPlace{one->key.sequence}, one->view()));
    rescue.advance({begin + std::chrono::seconds(10), 0}, homes, {});
    std::vector<PendingKey> handed;
    const auto hand_over_all = [&] {
      while (rescue.is_handing())
        (void)rescue.hand_over(1, homes, dropped, [&](const PendingView& view, const Location&) {
          handed.push_back(view.key);
        });
    };
    hand_over_all();
    REQUIRE(handed.empty());
    REQUIRE(rescue.stops().at(large.partition) == large.key);
    REQUIRE(homes.remove(JournalPlace{3}, large.key, large.partition.topic, {}, {}));
    rescue.remove(large.key, large.partition, {});
    const auto again = rescue.resumable();
    REQUIRE(again.size() == 1);
    rescue.resume(again.begin()->second, rescue.at(), again, homes, {});
    hand_over_all();
    CHECK(handed == std::vector{small.key});
    CHECK(rescue.is_settled(small.key, small.partition));
    (void)rescue.end();
  }

  TEST_CASE("its chunks are filled, and full ones have no more memory than their records") {
    Rescue rescue(16u << 20, {});
    Homes homes(1u << 20);
    rescue.begin({begin, 0});
    rescue.advance({begin + std::chrono::seconds(10), 0}, homes, {});
    constexpr std::size_t records = 5'000, body = 300;
    for (Sequence i = 1; i <= records; ++i)
      REQUIRE(rescue.keep(record(i, 1'000, std::string(body, 'b'), other).view()).has_value());
    CHECK(rescue.memory() < records * body * 5 / 4);
  }

  TEST_CASE(
      "a partition from which records leave as they come needs little for those that have left") {
    constexpr std::size_t max_bytes = 256u << 10, body = 100, at_once = 75;
    Rescue rescue(max_bytes, {});
    Homes homes(1u << 20);
    rescue.begin({begin, 0});
    rescue.advance({begin + std::chrono::seconds(10), 0}, homes, {});
    for (Sequence i = 1; i <= 2'000; ++i) {
      const Record one = record(i, 1'000, std::string(body, 'b'), other);
      REQUIRE(rescue.keep(one.view()).has_value());
      if (i > at_once) rescue.remove(record(i - at_once, 1'000).key, one.partition, {});
      CHECK(rescue.memory() < max_bytes / 8);
    }
    CHECK(rescue.stops().empty());
  }

  TEST_CASE("a rescue ends in one turn, and frees nothing in it, however much it has") {
    constexpr std::size_t partitions = 2'000;
    const auto fill = [](Rescue& rescue) {
      Homes homes(1u << 20);
      rescue.begin({begin, 0});
      rescue.advance({begin + std::chrono::seconds(10), 0}, homes, {});
      for (Sequence i = 1; i <= partitions; ++i)
        REQUIRE(rescue.keep(record(i, 1'000, "body", static_cast<int>(i)).view()).has_value());
    };
    Rescue rescue(16u << 20, {});
    fill(rescue);
    const Rescue::Freed all = rescue.end();
    CHECK(all.size() == partitions);
    CHECK(rescue.memory() == 0);
    // A third of the partitions is of the topic.
    fill(rescue);
    const Rescue::Freed some = rescue.topic_dropped(numbered(1).topic);
    CHECK(some.size() >= partitions / 3);
    CHECK_FALSE(rescue.find(record(1, 1'000).key).has_value());
    CHECK(rescue.find(record(2, 1'000).key).has_value());
  }

  TEST_CASE("a piece that is read counts as memory until it is handed over") {
    // Nothing of it is kept.
    Rescue rescue(1u << 20, [](const TopicPartition&) { return true; });
    Homes homes(1u << 20);
    DroppedTopics dropped(homes);
    rescue.begin({begin, 0});
    rescue.set_reading(100'000);
    CHECK(rescue.memory() == 100'000);
    Rescue::Read read;
    std::size_t bytes = 0;
    for (Sequence i = 1; i <= 2; ++i) {
      const Record one = record(i, 1'000, std::string(1'000, 'b'), other);
      const Bucket hour = storage::bucket_of(BucketLevel::hour, one.key.due);
      const auto chunk = std::make_shared<storage::Chunk>(hour);
      chunk->append(one.view());
      bytes += chunk->memory_bytes();
      read.chunks.push_back({storage::ChunkKey{hour, i, JournalPlace{1}}, chunk, {true}});
    }
    const PendingKey until{begin + std::chrono::seconds(10), 0};
    read.choose({begin, 0}, until, {});
    rescue.advance(until, homes, std::move(read));
    CHECK(rescue.memory() >= bytes);
    CHECK(rescue.memory() < 2 * bytes);
    const auto hand_over_one = [&] {
      return rescue.hand_over(1, homes, dropped, [](const PendingView&, const Location&) {});
    };
    CHECK(hand_over_one() == 0);
    CHECK(rescue.memory() < bytes);
    CHECK(hand_over_one() == 0);
    CHECK(rescue.memory() == 0);
    CHECK_FALSE(rescue.is_handing());
  }

  TEST_CASE("a partition of which much is near already is not rescued") {
    Rescue rescue(1u << 20, [](const TopicPartition& of) { return of == numbered(flooded); });
    const Record near = record(5, 1'000, "flood", flooded), far = record(6, 2'000, "far", other);
    rescue.begin({near.key.due, 3});
    Homes homes(1u << 20);
    homes.set_hours_end(WallTime::max());
    DroppedTopics dropped(homes);
    REQUIRE(homes.add({1, 0}, near.view()));
    REQUIRE(homes.add({1, 1}, far.view()));
    rescue.advance({far.key.due + std::chrono::seconds(1), 0}, homes, {});
    std::vector<PendingKey> handed;
    while (rescue.is_handing()) {
      CHECK_FALSE(rescue.is_settled(far.key, far.partition));
      (void)rescue.hand_over(1, homes, dropped, [&](const PendingView& view, const Location& at) {
        handed.push_back(view.key);
        CHECK(rescue.read(view.key, at)->record.size() == far.body.size());
      });
    }
    CHECK(handed == std::vector{far.key});
    CHECK(rescue.is_settled(far.key, far.partition));
    CHECK_FALSE(rescue.is_near(near.key, near.partition));
    CHECK_FALSE(rescue.keep(near.view()).has_value());
    rescue.remove(far.key, far.partition, {});
    CHECK(rescue.memory() == 0);
    CHECK_FALSE(rescue.find(far.key).has_value());
  }
}

}  // namespace
}  // namespace tarry::delay::tier_test
