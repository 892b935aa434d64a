// The committed offsets of one group, below the protocol: durable, in order, bounded, expiring.

#include <algorithm>
#include <memory>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/core.h>

#include "broker/groups/group_offsets.h"
#include "storage/offset_store.h"
#include "tests/broker/batches.h"
#include "tests/captured_log.h"

namespace tarry::broker::test {
namespace {

using namespace std::chrono_literals;

TopicPartition place(World& world, std::string_view topic, PartitionIndex partition = 0) {
  return {world.shard().topics().find(topic)->id, partition};
}

CommittedOffset at(World& world, Offset offset, std::string metadata = "") {
  return {offset, 5, world.clock.wall(), storage::never_expires, std::move(metadata)};
}

// Commits and waits until it is durable.
void commit(World& world, GroupOffsets& offsets, const TopicPartition& where,
            CommittedOffset what) {
  GroupOffsets::Commits commits;
  commits.emplace_back(where, std::move(what));
  REQUIRE(offsets.commit(std::move(commits)).has_value());
  world.run();
  REQUIRE(offsets.find(where) != nullptr);
}

// The record of `group` that the next start would find.
std::string stored(World& world, std::string_view group) {
  std::string out;
  const auto loaded = world.broker().offset_store().load(
      [&](const TopicId& id) { return world.shard().topics().find(id) != nullptr; },
      [&](const storage::OffsetStore::StoredGroup& found) -> Result<> {
        if (found.id != group) return {};
        for (const auto& o : found.offsets)
          out += fmt::format("{}:{}/{} ", o.partition.partition, o.offset, o.metadata);
        return {};
      });
  REQUIRE(loaded.has_value());
  return out;
}

struct Fixture {
  explicit Fixture(std::function<void(BrokerConfig&)> configure = [](BrokerConfig&) {})
      : world({.shards = 1, .configure = std::move(configure)}) {
    create_topic(world, "a", 3);
    create_topic(world, "b", 3);
    offsets.emplace(world.shard(), budget, "g", [this] { ++on_empty; });
  }
  OffsetBudget budget;
  World world;
  int on_empty = 0;
  std::optional<GroupOffsets> offsets;
};

// Of partitions of the topic "a", in one record.
void commit_many(Fixture& f, PartitionIndex count) {
  GroupOffsets::Commits commits;
  for (PartitionIndex p = 0; p < count; ++p)
    commits.emplace_back(place(f.world, "a", p), at(f.world, p));
  REQUIRE(f.offsets->commit(std::move(commits)).has_value());
  f.world.run();
  REQUIRE(f.offsets->all().size() == static_cast<std::size_t>(count));
}

TEST_SUITE("offsets") {
  TEST_CASE("an offset is shown when it is durable and not before, and is kept as it was given") {
    Fixture f;
    const auto a0 = place(f.world, "a");
    GroupOffsets::Commits commits;
    commits.emplace_back(a0, at(f.world, 10, "m\xff"));
    const auto lsn = f.offsets->commit(std::move(commits));
    REQUIRE(lsn.has_value());
    CHECK(f.offsets->find(a0) == nullptr);
    CHECK_FALSE(f.offsets->empty());
    f.world.run();
    REQUIRE(f.offsets->find(a0) != nullptr);
    CHECK(f.offsets->find(a0)->offset == 10);
    CHECK(f.offsets->find(a0)->leader_epoch == 5);
    CHECK(f.offsets->find(a0)->metadata == "m\xff");
    CHECK(stored(f.world, "g") == "0:10/m\xff ");
  }

  TEST_CASE("the last of the commits in one round counts, even with a smaller offset") {
    Fixture f;
    const auto a0 = place(f.world, "a");
    for (const Offset offset : {10, 30, 20}) {
      GroupOffsets::Commits commits;
      commits.emplace_back(a0, at(f.world, offset));
      REQUIRE(f.offsets->commit(std::move(commits)).has_value());
    }
    f.world.run();
    CHECK(f.offsets->find(a0)->offset == 20);
    CHECK(stored(f.world, "g") == "0:20/ ");
  }

  TEST_CASE("removed offsets are gone from memory and disk; unknown ones are ignored") {
    Fixture f;
    commit(f.world, *f.offsets, place(f.world, "a", 0), at(f.world, 1));
    commit(f.world, *f.offsets, place(f.world, "a", 1), at(f.world, 2));
    CHECK(f.offsets->remove({place(f.world, "b")}).value() == 0);
    REQUIRE(f.offsets->remove({place(f.world, "b"), place(f.world, "a", 0)}).has_value());
    f.world.run();
    CHECK(f.offsets->all().size() == 1);
    CHECK(stored(f.world, "g") == "1:2/ ");
    CHECK(f.on_empty == 0);
    REQUIRE(f.offsets->remove({place(f.world, "a", 1)}).has_value());
    f.world.run();
    CHECK(f.offsets->empty());
    CHECK(f.on_empty == 1);
    CHECK(f.budget.bytes == 0);
  }

  TEST_CASE("a group may go while its commit is on its way") {
    Fixture f;
    GroupOffsets::Commits commits;
    commits.emplace_back(place(f.world, "a"), at(f.world, 1));
    REQUIRE(f.offsets->commit(std::move(commits)).has_value());
    f.offsets.reset();
    f.world.run();
    CHECK(f.budget.bytes == 0);
    CHECK(stored(f.world, "g") == "0:1/ ");  // Whoever removes the group says so behind it.
  }

  TEST_CASE("the offsets of a deleted topic go with it, also those on their way") {
    Fixture f;
    const auto a0 = place(f.world, "a"), b0 = place(f.world, "b");
    commit(f.world, *f.offsets, a0, at(f.world, 1));
    commit(f.world, *f.offsets, b0, at(f.world, 2));
    GroupOffsets::Commits late;
    late.emplace_back(a0, at(f.world, 9));
    std::vector<TopicPtr> rest;
    for (const auto& topic : f.world.shard().topics().by_name())
      if (topic->name != "a") rest.push_back(topic);
    REQUIRE(f.offsets->commit(std::move(late)).has_value());
    f.world.shard().set_topics(std::make_shared<const storage::TopicsImage>(rest));
    f.offsets->topic_deleted(a0.topic, 100);
    f.world.run();
    CHECK(f.offsets->find(a0) == nullptr);
    CHECK(f.offsets->all().size() == 1);
    CHECK(stored(f.world, "g") == "0:2/ ");
  }

  TEST_CASE(
      "a group whose only topic goes before its first commit is durable is told it is empty") {
    Fixture f;
    GroupOffsets::Commits commits;
    const auto a0 = place(f.world, "a");
    commits.emplace_back(a0, at(f.world, 1));
    REQUIRE(f.offsets->commit(std::move(commits)).has_value());
    f.world.shard().set_topics(std::make_shared<const storage::TopicsImage>());
    f.offsets->topic_deleted(a0.topic, 100);
    CHECK(f.on_empty == 0);
    f.world.run();
    CHECK(f.offsets->empty());
    CHECK(f.on_empty == 1);
    CHECK(f.budget.bytes == 0);
  }

  TEST_CASE("a commit over the budget is refused, and accepted when others have gone") {
    Fixture f([](BrokerConfig& config) { config.group_offsets_bytes = 8000; });
    const auto a0 = place(f.world, "a"), a1 = place(f.world, "a", 1);
    commit(f.world, *f.offsets, a0, at(f.world, 1, std::string(2500, 'm')));
    const auto try_one = [&] {
      GroupOffsets::Commits commits;
      commits.emplace_back(a1, at(f.world, 2, std::string(2500, 'm')));
      return f.offsets->commit(std::move(commits));
    };
    CHECK(try_one().error() == ErrorCode::coordinator_not_available);
    REQUIRE(f.offsets->remove({a0}).has_value());
    f.world.run();
    CHECK(try_one().has_value());
    f.world.run();
    CHECK(f.offsets->find(a1)->offset == 2);
    f.offsets.reset();
    CHECK(f.budget.bytes == 0);
  }

  TEST_CASE(
      "groups that fill the budget leave room for others, and for commits to offsets that were "
      "committed before") {
    Fixture f([](BrokerConfig& config) { config.group_offsets_bytes = 1 << 20; });
    const auto a0 = place(f.world, "a"), a1 = place(f.world, "a", 1), b0 = place(f.world, "b");
    commit(f.world, *f.offsets, a0, at(f.world, 1, "mine"));
    std::list<GroupOffsets> greedy;
    std::size_t refused = 0;
    for (int i = 0; i < 100; ++i) {
      auto& group =
          greedy.emplace_back(f.world.shard(), f.budget, fmt::format("greedy{}", i), [] {});
      for (const auto& where : {a0, a1, b0}) {
        GroupOffsets::Commits commits;
        commits.emplace_back(where, at(f.world, 1, std::string(30'000, 'm')));
        const auto taken = group.commit(std::move(commits));
        if (!taken) CHECK(taken.error() == ErrorCode::coordinator_not_available);
        if (!taken) ++refused;
        f.world.run();
      }
    }
    CHECK(refused > 200);
    // Another place of mine, a new group's first, and the same place again.
    commit(f.world, *f.offsets, a1, at(f.world, 2, "mine"));
    commit(f.world, greedy.emplace_back(f.world.shard(), f.budget, "new", [] {}), a0,
           at(f.world, 3, "new"));
    commit(f.world, *f.offsets, a0, at(f.world, 4, "mine"));
    CHECK(f.offsets->find(a0)->offset == 4);
  }

  TEST_CASE("one group alone may have nearly half of the budget, and the log names what stops it") {
    Fixture f([](BrokerConfig& config) { config.group_offsets_bytes = 512 << 10; });
    for (const char* topic : {"a", "b"})
      for (PartitionIndex partition = 0; partition < 3; ++partition)
        commit(f.world, *f.offsets, place(f.world, topic, partition),
               at(f.world, 1, std::string(35'000, 'm')));
    CHECK(f.budget.bytes > 210'000);
    CapturedLog log;
    GroupOffsets::Commits commits;
    commits.emplace_back(place(f.world, "a"), at(f.world, 1, std::string(45'000, 'm')));
    CHECK(f.offsets->commit(std::move(commits)).error() == ErrorCode::coordinator_not_available);
    CHECK(log.count("and no client may use more than it leaves free") == 1);
  }

  TEST_CASE("a simple consumer's offset expires a retention after its own commit") {
    Fixture f([](BrokerConfig& config) { config.offsets_retention = 1h; });
    const auto a0 = place(f.world, "a"), a1 = place(f.world, "a", 1);
    CHECK_FALSE(f.offsets->next_expiry());
    commit(f.world, *f.offsets, a0, at(f.world, 1));
    f.world.pass(30min);
    commit(f.world, *f.offsets, a1, at(f.world, 2));
    f.world.pass(20min);
    commit(f.world, *f.offsets, a0, at(f.world, 3));  // Now a1 is the first to go.
    f.world.pass(40min - 1ms);
    CHECK(f.offsets->all().size() == 2);
    f.world.pass(1ms);
    CHECK(f.offsets->find(a1) == nullptr);
    CHECK(f.offsets->find(a0)->offset == 3);
    f.world.pass(20min);
    CHECK(f.offsets->empty());
    CHECK(f.on_empty == 1);
    CHECK_FALSE(f.offsets->next_expiry());  // Nothing can expire: no timer.
    CHECK(stored(f.world, "g").empty());
  }

  TEST_CASE("while a group is in use only offsets of topics that it is not subscribed to expire") {
    Fixture f([](BrokerConfig& config) { config.offsets_retention = 1h; });
    const auto a0 = place(f.world, "a"), b0 = place(f.world, "b");
    f.offsets->set_expiry({OffsetExpiry::Since::commit, {}, {"a"}});
    commit(f.world, *f.offsets, a0, at(f.world, 1));
    CHECK_FALSE(f.offsets->next_expiry());
    commit(f.world, *f.offsets, b0, at(f.world, 2));
    f.world.pass(2h);
    CHECK(f.offsets->find(b0) == nullptr);
    CHECK(f.offsets->find(a0) != nullptr);
    f.offsets->set_expiry({OffsetExpiry::Since::never, {}, {}});
    f.world.pass(2h);
    CHECK(f.offsets->find(a0) != nullptr);
    // Empty from now on: the commit's age does not count.
    f.offsets->set_expiry({OffsetExpiry::Since::moment, f.world.clock.wall(), {}});
    f.world.pass(1h - 1ms);
    CHECK(f.offsets->find(a0) != nullptr);
    f.world.pass(1ms);
    CHECK(f.offsets->empty());
  }

  TEST_CASE("a time that the client gave stands for the retention") {
    Fixture f([](BrokerConfig& config) { config.offsets_retention = 24h; });
    const auto a0 = place(f.world, "a");
    auto short_lived = at(f.world, 1);
    short_lived.expires = f.world.clock.wall() + 5s;
    commit(f.world, *f.offsets, a0, short_lived);
    f.world.pass(5s - 1ms);
    CHECK(f.offsets->find(a0) != nullptr);
    f.world.pass(1ms);
    CHECK(f.offsets->find(a0) == nullptr);
  }

  TEST_CASE("offsets that expire one after the other are checked once an interval") {
    Fixture f([](BrokerConfig& config) {
      config.offsets_retention = 1h;
      config.offsets_retention_check = 10min;
    });
    for (PartitionIndex p = 0; p < 3; ++p) {
      commit(f.world, *f.offsets, place(f.world, "a", p), at(f.world, 1));
      f.world.pass(1min);
    }
    f.world.pass(57min);
    CHECK(f.offsets->all().size() == 2);
    f.world.pass(10min - 1ms);
    CHECK(f.offsets->all().size() == 2);
    f.world.pass(1ms);
    CHECK(f.offsets->empty());
  }

  TEST_CASE("very many offsets that expire together go in pieces, and others have their turn") {
    Fixture f([](BrokerConfig& config) { config.offsets_retention = 1min; });
    commit_many(f, 5000);
    f.world.pass(1min - 1ms);
    CHECK(f.offsets->all().size() == 5000);
    f.world.pass(1ms);
    CHECK(f.offsets->all().size() == 4000);
    f.world.pass(10s);
    CHECK(f.offsets->empty());
    CHECK(f.on_empty == 1);
    CHECK(stored(f.world, "g").empty());
  }

  TEST_CASE("offsets of very many groups that expire together do so some groups at a time") {
    Fixture f([](BrokerConfig& config) { config.offsets_retention = 1min; });
    constexpr std::size_t count = 200;
    std::vector<std::unique_ptr<GroupOffsets>> groups;
    for (std::size_t i = 0; i < count; ++i) {
      auto& group = *groups.emplace_back(
          std::make_unique<GroupOffsets>(f.world.shard(), f.budget, fmt::format("g{}", i), [] {}));
      GroupOffsets::Commits commits;
      commits.emplace_back(place(f.world, "a"), at(f.world, 1));
      REQUIRE(group.commit(std::move(commits)).has_value());
    }
    f.world.run();
    const auto left = [&] {
      return static_cast<std::size_t>(
          std::ranges::count_if(groups, [](const auto& group) { return !group->empty(); }));
    };
    REQUIRE(left() == count);
    f.world.pass(1min);
    CHECK(left() == count - OffsetBudget::expire_together);
    f.world.pass(10ms);
    CHECK(left() == count - 2 * OffsetBudget::expire_together);
    f.world.pass(20ms);
    CHECK(left() == 0);
  }

  TEST_CASE("which of very many offsets expires first is looked for in steps") {
    Fixture f([](BrokerConfig& config) { config.offsets_retention = 1h; });
    commit_many(f, 5000);
    auto early = at(f.world, 1);
    early.expires = f.world.clock.wall() + 5s;
    const auto last = place(f.world, "a", 4999);
    commit(f.world, *f.offsets, last, early);
    f.offsets->retention_changed();
    // Of the first ones alone.
    CHECK(f.offsets->next_expiry() == f.world.clock.wall() + 1h);
    f.world.turn();
    CHECK(f.offsets->next_expiry() == f.world.clock.wall() + 5s);
    // Meanwhile the state changes: nothing of it expires any more.
    f.offsets->retention_changed();
    f.offsets->set_expiry({OffsetExpiry::Since::never, {}, {}});
    f.world.turn();
    CHECK_FALSE(f.offsets->next_expiry().has_value());
    // Or the group goes.
    f.offsets->set_expiry({});
    f.offsets.reset();
    f.world.turn();
  }

  TEST_CASE("the offsets of a deleted topic go in pieces, and the last one tells the group") {
    Fixture f;
    commit_many(f, 5);
    const TopicId topic = place(f.world, "a").topic;
    CHECK(f.offsets->topic_deleted(topic, 3) == 3);
    CHECK(f.offsets->all().size() == 2);
    CHECK(f.on_empty == 0);
    CHECK(f.offsets->topic_deleted(topic, 3) == 2);
    CHECK(f.on_empty == 1);
    CHECK(f.offsets->topic_deleted(topic, 3) == 0);
    CHECK(stored(f.world, "g").empty());
  }

  TEST_CASE("a commit that is made while an old one expires is kept") {
    Fixture f([](BrokerConfig& config) { config.offsets_retention = 1h; });
    const auto a0 = place(f.world, "a");
    commit(f.world, *f.offsets, a0, at(f.world, 1));
    f.world.pass(1h - 1ms);
    // The timer fires while the commit is not durable.
    GroupOffsets::Commits commits;
    f.world.clock.now_wall += 1ms;
    f.world.clock.now_mono += 1ms;
    commits.emplace_back(a0, at(f.world, 2));
    REQUIRE(f.offsets->commit(std::move(commits)).has_value());
    f.world.shard().wheel().advance(f.world.shard().tick());
    f.world.run();
    f.world.pass(10s);
    REQUIRE(f.offsets->find(a0) != nullptr);
    CHECK(f.offsets->find(a0)->offset == 2);
    CHECK(stored(f.world, "g") == "0:2/ ");
  }
}

}  // namespace
}  // namespace tarry::broker::test
