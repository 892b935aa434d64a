#include "broker/views/metric_series.h"

#include <exception>
#include <utility>

#include <boost/asio/co_spawn.hpp>

#include "tests/broker/batches.h"
#include "tests/broker/offset_requests.h"

namespace tarry::broker::test {
namespace {

GroupSeries groups_of(World& world, std::size_t max_series) {
  GroupSeries series;
  bool done = false;
  boost::asio::co_spawn(world.shard().executor(),
                        group_series(world.broker(), world.shard(), max_series),
                        [&](std::exception_ptr failed, GroupSeries told) {
                          if (failed) std::rethrow_exception(failed);
                          series = std::move(told);
                          done = true;
                        });
  world.run();
  REQUIRE(done);
  return series;
}

TEST_SUITE("metric series") {
  TEST_CASE("after a start the lag of unused partitions is reported too") {
    World world = small_world();
    create_topic(world, "t", 2);
    for (PartitionIndex p : {0, 1})
      produce(world, "t", p, batch_of(world.clock.wall(), {{"a"}, {"b"}, {"c"}}));
    CHECK(commit(world, "g", "t", 0, 1) == ErrorCode::none);
    CHECK(commit(world, "g", "t", 1, 3) == ErrorCode::none);
    world.stop();
    world.restart();
    const auto series = groups_of(world, 1000);
    REQUIRE(series.lags.size() == 2);
    CHECK(series.lags[0].lag == 2);
    CHECK(series.lags[1].lag == 0);
    CHECK(series.groups == 1);
  }

  TEST_CASE("a group with a long id counts among the others, and its name is no label") {
    World world = small_world();
    create_topic(world, "t", 1);
    const std::string longest(255, 'g'), longer(256, 'h');
    for (const auto& name : {longest, longer})
      CHECK(commit(world, name, "t", 0, 0) == ErrorCode::none);
    const auto series = groups_of(world, 1000);
    CHECK(series.groups == 2);
    REQUIRE(series.members.size() == 1);
    CHECK(series.members[0].group == longest);
    REQUIRE(series.lags.size() == 1);
    CHECK(series.lags[0].group == longest);
  }

  TEST_CASE("groups with more offsets than one step takes are reported completely") {
    World world = small_world();
    constexpr PartitionIndex partitions = 3000;
    create_topic(world, "t", partitions);
    protocol::OffsetCommitRequest request;
    auto& topic = request.topics.emplace_back();
    topic.name = "t";
    for (PartitionIndex p = 0; p < partitions; ++p)
      topic.partitions.emplace_back().partition_index = p;
    for (const char* group : {"g1", "g2", "g3", "g4", "g5"}) {
      request.group_id = group;
      world.call<protocol::OffsetCommitResponse>(request, 8);
    }
    const auto series = groups_of(world, 10);
    CHECK(series.groups == 5);
    CHECK(series.members.size() == 5);
    REQUIRE(series.lags.size() == 10);
    CHECK(series.lags.front().group == "g1");
    CHECK(series.lags.back().partition == 9);
  }
}

}  // namespace
}  // namespace tarry::broker::test
