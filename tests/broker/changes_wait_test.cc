// Waits for the journal by others than producers: changes of topics and groups, offsets,
// producer ids.  Each is a delayed operation of its own kind: it ends when it is durable, at its
// deadline, and when its client goes, on whichever shard it waits.

#include <doctest/doctest.h>

#include "broker/groups/group_offsets.h"
#include "broker/handlers/delayed_topic_change.h"
#include "protocol/messages/create_partitions.h"
#include "protocol/messages/delete_topics.h"
#include "protocol/messages/incremental_alter_configs.h"
#include "protocol/messages/init_producer_id.h"
#include "protocol/messages/metadata.h"
#include "protocol/messages/offset_delete.h"
#include "tests/broker/offset_requests.h"

namespace tarry::broker::test {
namespace {

using namespace std::chrono_literals;

protocol::DeleteTopicsRequest delete_request(std::vector<std::string_view> names, int timeout) {
  protocol::DeleteTopicsRequest request;
  for (const auto name : names) request.topics.push_back({name, {}});
  request.timeout_ms = timeout;
  return request;
}

TEST_SUITE("changes that wait") {
  TEST_CASE(
      "DeleteTopics: REQUEST_TIMED_OUT at its timeout; what was under way may be made, no other") {
    World world;
    create_topic(world, "a");
    create_topic(world, "b");
    world.background_stands_still = true;
    const auto pending = world.begin(delete_request({"a", "b", "no"}, 500), 6);
    world.pass(499ms);
    CHECK_FALSE(pending->answer.has_value());
    CHECK(count_waiting(world, delete_topics_kind) == 1);
    world.pass(1ms);
    REQUIRE(pending->answer.has_value());
    const auto answer = world.read<protocol::DeleteTopicsResponse>(*pending, 6);
    CHECK(answer.responses[0].error_code == ErrorCode::request_timed_out);
    CHECK(answer.responses[1].error_code == ErrorCode::request_timed_out);
    CHECK(answer.responses[2].error_code == ErrorCode::unknown_topic_or_partition);
    world.background_stands_still = false;
    world.run();
    CHECK_FALSE(world.shard().topics().find("a"));
    CHECK(world.shard().topics().find("b"));
  }

  TEST_CASE(
      "DeleteTopics: a topic that is named twice is deleted once, with an error for the second") {
    World world;
    create_topic(world, "a");
    const auto answer =
        world.call<protocol::DeleteTopicsResponse>(delete_request({"a", "a"}, 30'000), 6);
    CHECK(answer.responses[0].error_code == ErrorCode::none);
    CHECK(answer.responses[1].error_code == ErrorCode::invalid_request);
    CHECK_FALSE(world.shard().topics().find("a"));
  }

  TEST_CASE("CreatePartitions: REQUEST_TIMED_OUT at its timeout") {
    World world;
    create_topic(world, "a");
    world.background_stands_still = true;
    protocol::CreatePartitionsRequest request;
    request.timeout_ms = 500;
    auto& asked = request.topics.emplace_back();
    asked.name = "a";
    asked.count = 3;
    const auto pending = world.begin(request, 3);
    world.pass(499ms);
    CHECK_FALSE(pending->answer.has_value());
    CHECK(count_waiting(world, create_partitions_kind) == 1);
    world.pass(1ms);
    REQUIRE(pending->answer.has_value());
    CHECK(world.read<protocol::CreatePartitionsResponse>(*pending, 3).results[0].error_code ==
          ErrorCode::request_timed_out);
    world.background_stands_still = false;
    world.run();
  }

  TEST_CASE("AlterConfigs waits without a deadline, and may be made after its client has gone") {
    World world;
    create_topic(world, "a");
    world.background_stands_still = true;
    protocol::IncrementalAlterConfigsRequest request;
    auto& asked = request.resources.emplace_back();
    asked.resource_type = 2;
    asked.resource_name = "a";
    auto& config = asked.configs.emplace_back();
    config.name = "retention.ms";
    config.value = "86400000";
    const auto pending = world.begin(request, 1, 1);
    world.pass(1h);
    CHECK_FALSE(pending->answer.has_value());
    CHECK(count_waiting(world, alter_configs_kind) == 1);
    world.connection(1).close();
    world.run();
    CHECK(pending->answer.has_value());
    CHECK(count_waiting(world, alter_configs_kind) == 0);
    world.background_stands_still = false;
    world.run();
    CHECK(world.shard().topics().find("a")->configs.at("retention.ms") == "86400000");
  }

  TEST_CASE("Metadata that creates a topic says LEADER_NOT_AVAILABLE when that takes too long") {
    World world;
    world.background_stands_still = true;
    protocol::MetadataRequest request;
    request.topics.emplace().emplace_back().name = "new";
    request.allow_auto_topic_creation = true;
    const auto pending = world.begin(request, 9);
    world.pass(29s);
    CHECK_FALSE(pending->answer.has_value());
    world.pass(1s);
    REQUIRE(pending->answer.has_value());
    CHECK(world.read<protocol::MetadataResponse>(*pending, 9).topics[0].error_code ==
          ErrorCode::leader_not_available);
    world.background_stands_still = false;
    world.run();
    CHECK(world.call<protocol::MetadataResponse>(request, 9).topics[0].error_code ==
          ErrorCode::none);
  }

  TEST_CASE("InitProducerId waits for its block of ids, but not for ever") {
    World world;
    world.background_stands_still = true;
    const auto pending = world.begin(protocol::InitProducerIdRequest{}, 4, 1);
    world.pass(29s);
    CHECK_FALSE(pending->answer.has_value());
    CHECK(count_waiting(world, kind_named("init_producer_id")) == 1);
    world.pass(1s);
    REQUIRE(pending->answer.has_value());
    CHECK(world.read<protocol::InitProducerIdResponse>(*pending, 4).error_code ==
          ErrorCode::coordinator_not_available);
    world.background_stands_still = false;
    world.run();
    std::set<ProducerId> given;
    for (int i = 0; i < 2500; ++i) {
      const auto answer =
          world.call<protocol::InitProducerIdResponse>(protocol::InitProducerIdRequest{}, 4);
      REQUIRE(answer.error_code == ErrorCode::none);
      REQUIRE(given.insert(answer.producer_id).second);
    }
  }

  TEST_CASE(
      "a request that waits for a group's shard ends when its client goes, and at its timeout") {
    World world = small_world(3);
    create_topic(world, "t");
    REQUIRE(commit(world, "g", "t", 0, 1) == ErrorCode::none);
    REQUIRE(commit(world, "other", "t", 0, 1) == ErrorCode::none);
    protocol::OffsetDeleteRequest forget;
    forget.group_id = "g";
    auto& topic = forget.topics.emplace_back();
    topic.name = "t";
    topic.partitions.emplace_back().partition_index = 0;
    protocol::DeleteGroupsRequest remove;
    remove.groups_names = {"other"};
    world.background_stands_still = true;
    // From each shard: one of them is the group's own.
    for (std::size_t home = 0; home < 3; ++home) {
      CAPTURE(home);
      const auto pending = world.begin(commit_request("g", "t", 0, 2), 9, home);
      world.run();
      CHECK_FALSE(pending->answer.has_value());
      CHECK(count_waiting(world, offset_commit_kind) == 1);
      CHECK(count_waiting(world, kind_named("produce")) == 0);
      world.connection(home).close();
      world.run();
      CHECK(pending->answer.has_value());
      CHECK(count_waiting(world, offset_commit_kind) == 0);
    }
    world.background_stands_still = false;
    world.run();
    world.restart();
    world.background_stands_still = true;
    const auto forgotten = world.begin(forget, 0);
    const auto removed = world.begin(remove, 2);
    world.run();
    CHECK(count_waiting(world, offset_delete_kind) == 1);
    CHECK(count_waiting(world, delete_groups_kind) == 1);
    world.pass(4'999ms);
    CHECK_FALSE(forgotten->answer.has_value());
    CHECK_FALSE(removed->answer.has_value());
    world.pass(1ms);
    REQUIRE(removed->answer.has_value());
    REQUIRE(forgotten->answer.has_value());
    CHECK(world.read<protocol::DeleteGroupsResponse>(*removed, 2).results[0].error_code ==
          ErrorCode::coordinator_not_available);
    world.background_stands_still = false;
    world.run();
    CHECK(world.call<protocol::DeleteGroupsResponse>(remove, 2).results[0].error_code ==
          ErrorCode::group_id_not_found);
  }
}

TEST_SUITE("fetch limits") {
  TEST_CASE("more partitions than anybody has end the connection") {
    World world;
    create_topic(world, "t");
    auto request = fetch_request("t", 0, 0, 1000, 1);
    request.topics[0].partitions.resize(50'001, request.topics[0].partitions[0]);
    const auto pending = world.begin(request, 12);
    world.run();
    REQUIRE(pending->answer.has_value());
    CHECK(pending->answer->close.find("50001 partitions") != std::string::npos);
  }

  TEST_CASE(
      "a fetch of 0 bytes of a partition waits too, for the one batch that is always returned") {
    World world;
    create_topic(world, "t");
    auto request = fetch_request("t", 0, 0, 1000, 1);
    request.topics[0].partitions[0].partition_max_bytes = 0;
    const auto late = world.begin(request, 12);
    world.pass(999ms);
    CHECK_FALSE(late->answer.has_value());
    world.pass(1ms);
    CHECK(late->answer.has_value());
    const auto pending = world.begin(request, 12);
    world.run();
    CHECK_FALSE(pending->answer.has_value());
    const Buffer batch = batch_of(world.clock.wall(), {{"a"}});
    world.call<protocol::ProduceResponse>(produce_request("t", 0, batch), 9);
    REQUIRE(pending->answer.has_value());
    CHECK(world.read<protocol::FetchResponse>(*pending, 12)
              .responses[0]
              .partitions[0]
              .records.size() == batch.size());
  }
}

}  // namespace
}  // namespace tarry::broker::test
