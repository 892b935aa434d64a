// ListOffsets over several shards: each partition's answer in its place.  Look-ups by time are in
// log_test.cc.

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "protocol/messages/list_offsets.h"
#include "tests/broker/batches.h"

namespace tarry::broker::test {
namespace {

constexpr std::int64_t latest = -1;
constexpr int asked_version = 9;

protocol::ListOffsetsRequest latest_of(const std::vector<PartitionIndex>& partitions) {
  protocol::ListOffsetsRequest request;
  auto& topic = request.topics.emplace_back();
  topic.name = "t";
  for (const auto partition : partitions) {
    auto& asked = topic.partitions.emplace_back();
    asked.partition_index = partition;
    asked.timestamp = latest;
  }
  return request;
}

std::vector<Offset> offsets_of(const protocol::ListOffsetsResponse& response) {
  std::vector<Offset> out;
  for (const auto& partition : response.topics.at(0).partitions) out.push_back(partition.offset);
  return out;
}

// Partition p has p records.
struct Lists : World {
  static constexpr PartitionIndex count = 6;

  Lists() : World({.shards = 3}) {
    create_topic(*this, "t", count);
    for (PartitionIndex p = 0; p < count; ++p) {
      for (PartitionIndex i = 0; i < p; ++i)
        produce(*this, "t", p, batch_of(clock.wall(), {{"x"}}));
    }
  }
};

TEST_SUITE("list offsets") {
  TEST_CASE_FIXTURE(Lists, "every answer stands in the place of its question, on any shard") {
    auto request = latest_of({5, 0, 77, 3, 4, -1, 1, 2, 3});
    request.topics[0].partitions[3].current_leader_epoch = 1;
    auto& unknown = request.topics.emplace_back();
    unknown.name = "no such topic";
    unknown.partitions.emplace_back();
    const auto response = call<protocol::ListOffsetsResponse>(request, asked_version);
    CHECK(offsets_of(response) == std::vector<Offset>{5, 0, -1, -1, 4, -1, 1, 2, 3});
    const auto& answers = response.topics[0].partitions;
    for (const std::size_t i : {2, 5})
      CHECK(answers[i].error_code == ErrorCode::unknown_topic_or_partition);
    CHECK(answers[3].error_code == ErrorCode::unknown_leader_epoch);
    CHECK(answers[0].error_code == ErrorCode::none);
    CHECK(answers[0].leader_epoch == 0);
    REQUIRE(response.topics.size() == 2);
    CHECK(response.topics[1].name == "no such topic");
    CHECK(response.topics[1].partitions[0].error_code == ErrorCode::unknown_topic_or_partition);
  }

  TEST_CASE_FIXTURE(Lists, "answers that a slow disk keeps back stand in their places too") {
    stop();
    restart();  // All logs are closed now, and opening one takes the pool.
    background_stands_still = true;
    const auto pending = begin(latest_of({0, 1, 2, 3, 4, 5}), asked_version);
    // The last shard first, one log after the other.
    for (std::size_t on = shard_count(); on-- > 0;) {
      CHECK_FALSE(pending->answer);
      while (background(on).step()) turn();
    }
    background_stands_still = false;
    run();
    CHECK(offsets_of(read<protocol::ListOffsetsResponse>(*pending, asked_version)) ==
          std::vector<Offset>{0, 1, 2, 3, 4, 5});
  }
}

}  // namespace
}  // namespace tarry::broker::test
