// Segments that cannot be deleted when they should be.

#include "broker/checkpoint/retention.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <functional>
#include <set>
#include <vector>

#include <boost/asio/post.hpp>

#include "protocol/messages/delete_topics.h"
#include "protocol/messages/incremental_alter_configs.h"
#include "tests/broker/batches.h"
#include "tests/broker/crowded_disk.h"
#include "tests/captured_log.h"

namespace tarry::broker::test {
namespace {

using namespace std::chrono_literals;

void delete_topic(World& world, std::string_view name) {
  protocol::DeleteTopicsRequest request;
  request.topics.push_back({name, {}});
  request.timeout_ms = 1000;
  const auto response = world.call<protocol::DeleteTopicsResponse>(request, 6);
  REQUIRE(response.responses[0].error_code == ErrorCode::none);
}

protocol::IncrementalAlterConfigsRequest change_of(std::string_view topic, std::string_view key,
                                                   std::string_view value) {
  protocol::IncrementalAlterConfigsRequest request;
  request.resources.push_back({2, topic, {{key, 0, value}}});
  return request;
}

void change_retention(World& world, std::string_view topic, std::string_view key,
                      std::string_view value) {
  const auto response =
      world.call<protocol::IncrementalAlterConfigsResponse>(change_of(topic, key, value), 1);
  REQUIRE(response.responses.at(0).error_code == ErrorCode::none);
}

// Until retention's first work with the files of a partition is on its way to the pool.
void let_retention_begin(World& world) {
  world.background_stands_still = true;
  world.pass(400s);
  // What is there now finds the partitions; what that asks for stays.
  for (auto left = world.background().size(); left > 0; --left) world.background().step();
}

struct Small {
  CrowdedDisk disk;
  World world{{.shards = 1, .disk = &disk}};

  Small() { create_topic(world, "t", 1, {{"segment.bytes", "2000"}, {"retention.bytes", "5000"}}); }

  // Some segments, and as much time as retention needs to look at them.
  void fill() {
    for (int i = 0; i < 20; ++i) {
      produce(world, "t", 0, batch_of(world.clock.wall(), {{std::string(400, 'x')}}));
      if (i % 10 == 9) world.pass(70s);  // Checkpoints write segments, and roll.
    }
    world.pass(400s);
  }

  // As if the world's clock had been the machine's.
  void date_files() const {
    for (const auto& entry :
         std::filesystem::directory_iterator(world.directory() + "/data/logs/t-0")) {
      std::filesystem::last_write_time(entry.path(),
                                       std::chrono::file_clock::from_sys(world.clock.wall()));
    }
  }

  Offset log_start() { return world.shard().partitions().all().begin()->second->log_start(); }

  // By their names on the disk.
  std::vector<Offset> segments() const {
    std::vector<Offset> bases;
    for (const auto& entry :
         std::filesystem::directory_iterator(world.directory() + "/data/logs/t-0")) {
      if (entry.path().extension() != ".log") continue;
      const std::string name = entry.path().stem().string();
      Offset base = 0;
      std::from_chars(name.data(), name.data() + name.size(), base);
      bases.push_back(base);
    }
    std::ranges::sort(bases);
    return bases;
  }
};

TEST_SUITE("retention") {
  TEST_CASE("a walk through open partitions shows some in each step, and all of them at its end") {
    World world({.shards = 1});
    create_topic(world, "t", 60);
    auto& partitions = world.shard().partitions();
    const TopicId topic = world.shard().topics().find("t")->id;
    const auto open = [&](PartitionIndex from, PartitionIndex until) {
      for (PartitionIndex p = from; p < until; ++p) partitions.with({topic, p}, [](const auto&) {});
      world.run();
    };
    open(0, 20);
    std::set<PartitionIndex> seen;
    std::size_t shown = 0;
    std::size_t work = 0;
    const auto look = [&](Partition& partition) {
      ++shown;
      seen.insert(partition.id().partition);
      return work;
    };
    Partitions::Walk walk;
    bool more = true;
    for (int steps = 0; more; ++steps) {
      REQUIRE(steps < 100);
      shown = 0;
      more = partitions.walk(walk, 8, look);
      CHECK(shown < 16);
    }
    CHECK(seen.size() == 20);
    // Those that make work are fewer in a step, and the map may grow while others have their turn.
    work = 8;
    seen.clear();
    walk = {};
    shown = 0;
    CHECK(partitions.walk(walk, 8, look));
    CHECK(shown < 8);
    open(20, 60);
    while (partitions.walk(walk, 8, look)) {
    }
    for (PartitionIndex p = 0; p < 20; ++p) CHECK(seen.contains(p));
  }

  TEST_CASE("others have their turn while retention looks at very many open partitions") {
    World world({.shards = 1,
                 .configure = [](BrokerConfig& config) { config.producer_id_expiration = 60s; }});
    Shard& shard = world.shard();
    std::vector<Partition*> all;
    bool some_were_left = false;
    int turns = 0;
    std::function<void()> watch = [&] {
      const auto left = static_cast<std::size_t>(
          std::ranges::count_if(all, [](const Partition* each) { return each->may_expire(); }));
      some_were_left = some_were_left || (left > 0 && left < all.size());
      if (left > 0 && ++turns < 100) boost::asio::post(shard.executor(), watch);
    };
    // In the same advance of the wheel as retention's own timer, which runs since the start.
    timing::CallbackTimer beside([&] { watch(); });
    shard.wheel().schedule(beside, shard.tick_after(shard.config().retention_check));
    constexpr PartitionIndex count = 600;
    create_topic(world, "t", count);
    const TopicId topic = shard.topics().find("t")->id;
    for (PartitionIndex p = 0; p < count; ++p)
      shard.partitions().with({topic, p}, [](const auto&) {});
    world.run();
    for (const auto& [tp, partition] : shard.partitions().all()) all.push_back(partition.get());
    REQUIRE(all.size() == count);
    // Their producers are all that expires: a delayed record is in no segment.
    const Buffer batch = batch_of(world.clock.wall(), {{"v", {{"x-delay", "10h"}}}}, {7, 0, 0});
    for (Partition* const partition : all) partition->append(batch, true, [](const auto&) {});
    world.run();
    REQUIRE(std::ranges::all_of(all, [](const Partition* each) { return each->may_expire(); }));
    world.pass(400s);
    CHECK(some_were_left);
    CHECK(std::ranges::none_of(all, [](const Partition* each) { return each->may_expire(); }));
  }

  TEST_CASE("a partition that was empty when retention looked still loses its old segments") {
    Small small;
    CHECK(read_all(small.world, "t").empty());  // Opens it.
    small.world.pass(1h);
    small.fill();
    small.world.pass(400s);
    CHECK(small.log_start() > 0);
  }

  TEST_CASE("a partition that nobody uses after a restart loses its old segments, too") {
    Small small;
    create_topic(small.world, "empty", 1);
    small.fill();
    REQUIRE(small.segments().size() > 2);
    small.world.restart();
    REQUIRE(small.world.shard().partitions().all().empty());
    change_retention(small.world, "t", "retention.bytes", "1");
    small.world.pass(400s);
    CHECK(small.segments().size() == 1);
    // It is not left open, and one without segments is not opened at all.
    CHECK(small.world.shard().partitions().all().empty());
    CHECK_FALSE(std::filesystem::exists(small.world.directory() + "/data/logs/empty-0"));
    CHECK(read_all(small.world, "t", 0, small.segments().front()).size() ==
          20 - static_cast<std::size_t>(small.segments().front()));
  }

  TEST_CASE("a partition that nobody uses is looked at again when its retention is shortened") {
    Small small;
    small.fill();
    small.world.restart();
    small.world.pass(400s);
    REQUIRE(small.segments().size() > 2);
    change_retention(small.world, "t", "retention.bytes", "1");
    small.world.pass(400s);
    CHECK(small.segments().size() == 1);
    CHECK(small.world.shard().partitions().all().empty());
  }

  TEST_CASE("a partition that nobody uses loses its segments when time makes them old") {
    Small small;
    small.fill();
    change_retention(small.world, "t", "retention.ms", "7200000");
    small.date_files();
    small.world.restart();
    small.world.pass(1h);
    REQUIRE(small.segments().size() > 2);
    small.world.pass(2h);
    CHECK(small.segments().size() == 1);
    CHECK(small.world.shard().partitions().all().empty());
  }

  TEST_CASE("a setting that changes while retention looks at what nobody uses has its own look") {
    Small small;
    change_retention(small.world, "t", "retention.ms", "-1");  // Time asks for no other look.
    small.fill();
    small.world.restart();
    let_retention_begin(small.world);
    const auto change = small.world.begin(change_of("t", "retention.bytes", "1"), 1);
    // The look was asked for before, and comes last.
    while (!change->answer && small.world.background().size() > 1) {
      small.world.background().step_last();
      small.world.turn();
    }
    REQUIRE(change->answer);
    small.world.pass(400s);  // Its look comes while the first one is under way.
    small.world.background_stands_still = false;
    small.world.run();
    REQUIRE(small.segments().size() > 2);
    small.world.pass(400s);
    CHECK(small.segments().size() == 1);
    CHECK(small.world.shard().partitions().all().empty());
  }

  TEST_CASE("what nobody uses is looked at again when no file could be opened at the first look") {
    Small small;
    small.fill();
    small.world.restart();
    change_retention(small.world, "t", "retention.bytes", "1");
    CapturedLog log;
    small.disk.without_files = true;
    small.world.pass(1000s);
    small.disk.without_files = false;
    REQUIRE(small.segments().size() > 2);
    CHECK(log.count("old segments of partitions that nobody uses") == 1);
    small.world.pass(400s);
    CHECK(small.segments().size() == 1);
  }

  TEST_CASE("what nobody uses is looked for again when its directory could not be read") {
    Small small;
    small.fill();
    small.world.restart();
    change_retention(small.world, "t", "retention.bytes", "1");
    small.disk.without_lists = true;
    small.world.pass(400s);
    small.disk.without_lists = false;
    REQUIRE(small.segments().size() > 2);
    small.world.pass(400s);
    CHECK(small.segments().size() == 1);
  }

  TEST_CASE(
      "a request for a partition that retention is looking at waits, and then finds it open") {
    Small small;
    small.fill();
    small.world.restart();
    change_retention(small.world, "t", "retention.bytes", "1");
    let_retention_begin(small.world);
    const auto fetch = small.world.begin(fetch_request("t", 0, 0), 12);
    CHECK_FALSE(fetch->answer);
    small.world.background_stands_still = false;
    small.world.run();
    CHECK(fetch->answer);
    CHECK(small.segments().size() == 1);
    REQUIRE(small.world.shard().partitions().all().size() == 1);
    CHECK(small.log_start() == small.segments().front());
  }

  TEST_CASE("a topic that is deleted while retention looks at its files leaves none") {
    Small small;
    small.fill();
    small.world.restart();
    let_retention_begin(small.world);
    protocol::DeleteTopicsRequest request;
    request.topics.push_back({"t", {}});
    request.timeout_ms = 1000;
    const auto deletion = small.world.begin(request, 6);
    // The look was asked for before, and comes last.
    while (!deletion->answer && small.world.background().size() > 1) {
      small.world.background().step_last();
      small.world.turn();
    }
    CHECK(deletion->answer);
    small.world.background_stands_still = false;
    small.world.run();
    CHECK_FALSE(std::filesystem::exists(small.world.directory() + "/data/logs/t-0"));
  }

  TEST_CASE(
      "what nobody uses is looked for again when the data directory is away at the first look") {
    Small small;
    small.fill();
    small.world.restart();
    const auto data = small.world.directory() + "/data", away = small.world.directory() + "/away";
    change_retention(small.world, "t", "retention.bytes", "1");
    std::filesystem::rename(data, away);
    small.world.broker().look_at_disk();
    small.world.pass(400s);
    REQUIRE(small.world.broker().lost_directory());
    std::filesystem::rename(away, data);
    small.world.broker().look_at_disk();
    small.world.pass(700s);
    CHECK(small.segments().size() == 1);
  }

  TEST_CASE("a topic that kept everything loses segments when its retention is shortened") {
    Small small;
    change_retention(small.world, "t", "retention.bytes", "-1");
    change_retention(small.world, "t", "retention.ms", "-1");
    small.fill();
    small.world.pass(1h);  // Retention has seen that nothing will ever go.
    REQUIRE(small.segments().front() == 0);
    REQUIRE(small.segments().size() > 2);
    change_retention(small.world, "t", "retention.bytes", "1");
    small.world.pass(400s);
    CHECK(small.segments().size() == 1);
  }

  TEST_CASE("segments that cannot be deleted go when they can be, without a restart") {
    Small small;
    CapturedLog log;
    small.disk.without_deletions = true;
    small.fill();
    const Offset first = small.log_start();
    REQUIRE(first > 0);
    CHECK(small.segments().front() == 0);
    CHECK(log.count("cannot be deleted") == 1);
    small.fill();
    REQUIRE(small.log_start() > first);
    CHECK(small.segments().front() == 0);
    CHECK(log.count("cannot be deleted") == 1);
    small.disk.without_deletions = false;
    small.world.pass(15s);
    CHECK(small.segments().front() == small.log_start());
    CHECK(log.count("deleted again") == 1);
    small.world.restart();
    CHECK(read_all(small.world, "t", 0, small.segments().front()).size() ==
          40 - static_cast<std::size_t>(small.segments().front()));
  }

  TEST_CASE("while segments cannot be deleted later ones stay too: a restart finds no hole") {
    Small small;
    small.disk.without_deletions = true;
    small.fill();
    REQUIRE(small.log_start() > 0);
    small.disk.without_deletions = false;
    small.world.run();
    small.fill();
    small.disk.without_deletions = true;
    small.fill();
    REQUIRE(small.segments().front() < small.log_start());
    const Offset kept = small.segments().front();
    small.world.restart();
    CHECK(read_all(small.world, "t", 0, kept).size() == 60 - static_cast<std::size_t>(kept));
  }

  TEST_CASE("a topic that is deleted while its segments cannot be takes nothing of its successor") {
    Small small;
    small.disk.without_deletions = true;
    small.fill();
    REQUIRE(small.log_start() > 0);
    delete_topic(small.world, "t");
    create_topic(small.world, "t");
    produce(small.world, "t", 0, batch_of(small.world.clock.wall(), {{"new"}}));
    small.world.pass(70s);  // It has a segment of offset 0, as the one before it.
    small.disk.without_deletions = false;
    small.world.pass(60s);
    small.world.restart();
    CHECK(values(read_all(small.world, "t")) == std::vector<std::string>{"new"});
  }
}

}  // namespace
}  // namespace tarry::broker::test
