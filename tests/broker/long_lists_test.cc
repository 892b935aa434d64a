// Requests with one very long list, or about one very large thing: others have their turn, and what
// changes meanwhile is noticed.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>

#include "broker/context/freed_on_pool.h"
#include "broker/groups/groups.h"
#include "broker/handlers/all.h"
#include "broker/handlers/configs.h"
#include "broker/handlers/table.h"
#include "broker/views/group_status.h"
#include "protocol/messages/alter_configs.h"
#include "protocol/messages/create_topics.h"
#include "protocol/messages/delete_records.h"
#include "protocol/messages/describe_configs.h"
#include "protocol/messages/describe_groups.h"
#include "protocol/messages/describe_topic_partitions.h"
#include "protocol/messages/incremental_alter_configs.h"
#include "protocol/messages/join_group.h"
#include "protocol/messages/leave_group.h"
#include "protocol/messages/list_groups.h"
#include "protocol/messages/metadata.h"
#include "protocol/messages/offset_commit.h"
#include "protocol/messages/offset_delete.h"
#include "protocol/messages/offset_fetch.h"
#include "protocol/messages/sync_group.h"
#include "tests/broker/batches.h"
#include "tests/broker/long_world.h"

namespace tarry::broker::test {
namespace {

// The turns of others while a list of `many` is looked at once.
constexpr int turns_of_many = static_cast<int>(many / 1100);

protocol::OffsetCommitRequest commit_of(std::string_view group, std::string_view topic,
                                        std::int32_t partitions) {
  protocol::OffsetCommitRequest commit;
  commit.group_id = group;
  commit.generation_id_or_member_epoch = -1;
  auto& asked = commit.topics.emplace_back();
  asked.name = topic;
  for (std::int32_t p = 0; p < partitions; ++p) {
    auto& partition = asked.partitions.emplace_back();
    partition.partition_index = p;
    partition.committed_offset = p;
    partition.committed_metadata = "";
  }
  return commit;
}

protocol::OffsetDeleteRequest deletion_of(std::string_view group, std::string_view topic,
                                          std::int32_t partitions) {
  protocol::OffsetDeleteRequest remove;
  remove.group_id = group;
  auto& asked = remove.topics.emplace_back();
  asked.name = topic;
  for (std::int32_t p = 0; p < partitions; ++p) asked.partitions.push_back({p});
  return remove;
}

protocol::JoinGroupRequest join_of(std::string_view group, Bytes metadata) {
  protocol::JoinGroupRequest join;
  join.group_id = group;
  join.session_timeout_ms = 10'000;
  join.rebalance_timeout_ms = 60'000;
  join.protocol_type = "consumer";
  join.protocols.push_back({"range", metadata});
  return join;
}

TEST_SUITE("long lists") {
  TEST_CASE("a filter of very many states is read once for all groups") {
    LongWorld world;
    for (std::size_t i = 0; i < 2000; ++i)
      REQUIRE(world.shard().groups().find_or_make(world.names[i], "/127.0.0.1"));
    protocol::ListGroupsRequest list;
    list.states_filter.assign(5 * many, "Stable");
    CHECK(world.call_long<protocol::ListGroupsResponse>(list, 4, 5 * turns_of_many).groups.empty());
    list.states_filter.emplace_back("EMPTY");
    CHECK(world.call_long<protocol::ListGroupsResponse>(list, 4, 5 * turns_of_many).groups.size() ==
          2000);
    list.types_filter.assign(5 * many, "consumer");
    CHECK(
        world.call_long<protocol::ListGroupsResponse>(list, 5, 10 * turns_of_many).groups.empty());
  }

  TEST_CASE("others have their turn while rules are looked up for very many topics of a group") {
    LongWorld world(with_lookups);
    protocol::OffsetFetchRequest fetch;
    fetch.group_id = "g";
    fetch.topics.emplace();
    for (const auto& name : world.names) fetch.topics->push_back({name, {0}});
    // The topics are looked up, then their rules, then the answer is put together.
    const auto found = world.call_long<protocol::OffsetFetchResponse>(fetch, 7, 5 * turns_of_many);
    REQUIRE(found.topics.size() == many);
    CHECK(found.topics[7].name == "7");
    CHECK(found.topics[7].partitions.at(0).committed_offset == -1);
  }

  TEST_CASE("very many offsets of a group are deleted in steps, and the group with the last") {
    LongWorld world;
    constexpr std::int32_t partitions = 5000;
    create_topic(world, "wide", partitions);
    LongWorld::Steps steps;
    world.change<protocol::OffsetCommitResponse>(commit_of("g", "wide", partitions), 8, steps);
    REQUIRE(world.shard().groups().find("g") != nullptr);
    CHECK(world.shard().groups().find("g")->offsets.all().size() == partitions);
    auto remove = deletion_of("g", "wide", partitions + 1);
    const auto removed = world.change<protocol::OffsetDeleteResponse>(remove, 0, steps);
    CHECK(removed.error_code == ErrorCode::none);
    REQUIRE(removed.topics.size() == 1);
    CHECK(removed.topics[0].partitions[0].error_code == ErrorCode::none);
    CHECK(removed.topics[0].partitions[partitions - 1].error_code == ErrorCode::none);
    CHECK(removed.topics[0].partitions[partitions].error_code ==
          ErrorCode::unknown_topic_or_partition);
    CHECK(steps.pieces >= partitions / 1000);
    CHECK(world.shard().groups().find("g") == nullptr);
    const auto again = world.call<protocol::OffsetDeleteResponse>(remove, 0);
    CHECK(again.error_code == ErrorCode::group_id_not_found);
  }

  TEST_CASE("very many offsets of a deleted topic are forgotten in steps, however few groups") {
    LongWorld world;
    constexpr std::int32_t partitions = 2500;
    create_topic(world, "wide", partitions);
    LongWorld::Steps steps;
    for (const std::string_view group : {"g", "h"})
      world.change<protocol::OffsetCommitResponse>(commit_of(group, "wide", partitions), 8, steps);
    auto& groups = world.shard().groups();
    REQUIRE(groups.find("h") != nullptr);
    const TopicId topic = world.shard().topics().find("wide")->id;
    const auto left = [&] {
      return groups.find("g")->offsets.all().size() + groups.find("h")->offsets.all().size();
    };
    std::string after;
    for (std::size_t expected = 4000; expected > 0; expected -= 1000) {
      CHECK(groups.topic_deleted(topic, after, 256));
      CHECK(left() == expected);
    }
    CHECK(groups.topic_deleted(topic, after, 256));
    CHECK(left() == 0);
    CHECK_FALSE(groups.topic_deleted(topic, after, 256));
  }

  TEST_CASE("if a group has nothing left after a piece, the rest of its offsets are deleted too") {
    LongWorld world;
    create_topic(world, "wide", 5000);
    LongWorld::Steps steps;
    world.change<protocol::OffsetCommitResponse>(commit_of("g", "wide", 10), 8, steps);
    const auto removed =
        world.change<protocol::OffsetDeleteResponse>(deletion_of("g", "wide", 5000), 0, steps);
    CHECK(removed.error_code == ErrorCode::none);
    REQUIRE(removed.topics.size() == 1);
    CHECK(removed.topics[0].partitions[4999].error_code == ErrorCode::none);
  }

  TEST_CASE("if members come while offsets are deleted, what they read is not deleted any more") {
    LongWorld world([](BrokerConfig& config) {
      config.group_initial_rebalance_delay = std::chrono::seconds{0};
    });
    create_topic(world, "wide", 3000);
    LongWorld::Steps steps;
    world.change<protocol::OffsetCommitResponse>(commit_of("g", "wide", 3000), 8, steps);
    world.runs_at_once = false;
    const auto pending = world.begin(deletion_of("g", "wide", 3000), 0);
    world.turn();  // The first piece is on its way to the journal.
    // Version 0 of a subscription: "wide".
    const Buffer metadata = {0, 0, 0, 0, 0, 1, 0, 4, 'w', 'i', 'd', 'e', 0xff, 0xff, 0xff, 0xff};
    const auto joined = world.begin(join_of("g", metadata), 3);
    world.turn();
    world.runs_at_once = true;
    world.run();
    const auto removed = world.read<protocol::OffsetDeleteResponse>(*pending, 0);
    CHECK(removed.error_code == ErrorCode::none);
    REQUIRE(removed.topics.size() == 1);
    CHECK(removed.topics[0].partitions[0].error_code == ErrorCode::none);
    CHECK(removed.topics[0].partitions[2999].error_code == ErrorCode::group_subscribed_to_topic);
    CHECK(world.shard().groups().find("g")->offsets.all().size() == 2000);
    CHECK(world.read<protocol::JoinGroupResponse>(*joined, 3).error_code == ErrorCode::none);
  }

  TEST_CASE("a Produce of very many batches works in steps, and each batch has its place") {
    LongWorld world;
    create_topic(world, "t");
    const Buffer batch = batch_of(world.clock.wall(), {{"v"}});
    auto request = produce_request("t", 0, batch);
    constexpr int batches = 5000;
    request.topic_data[0].partition_data.assign(batches, {0, batch});
    const auto produced =
        world.call_long<protocol::ProduceResponse>(request, 9, 4 * batches / 1100);
    const auto& answers = produced.responses.at(0).partition_responses;
    REQUIRE(answers.size() == batches);
    for (int i = 0; i < batches; ++i) {
      REQUIRE(answers[static_cast<std::size_t>(i)].error_code == ErrorCode::none);
      REQUIRE(answers[static_cast<std::size_t>(i)].base_offset == i);
    }
    // Those that are refused have their turn, too.
    request.acks = 7;
    request.topic_data[0].partition_data.assign(batches, {0, Bytes{}});
    CHECK(world.call_long<protocol::ProduceResponse>(request, 9, 4 * batches / 1100)
              .responses.at(0)
              .partition_responses.back()
              .error_code != ErrorCode::none);
  }

  TEST_CASE("only a Produce of very many batches has to be alone on its connection") {
    LongWorld world;
    const auto works_in_steps = [&](const protocol::ProduceRequest& request, int version) {
      const Buffer frame = protocol::encode_request_frame(7, "test", request, version);
      const auto header = protocol::parse_request_header(Bytes(frame).subspan(4));
      REQUIRE(header.has_value());
      const RequestContext context{world.broker(), world.shard(), world.connection(), *header};
      return find_handler(header->key)->works_in_steps(context);
    };
    const Buffer records(100'000);
    for (const int version : {3, 8, 9, 12}) {
      auto request = produce_request("t", 0, records);
      CHECK_FALSE(works_in_steps(request, version));
      request.topic_data[0].partition_data.resize(499);
      CHECK_FALSE(works_in_steps(request, version));
      request.topic_data[0].partition_data.resize(500);
      CHECK(works_in_steps(request, version));
      request.topic_data.assign(501, {});
      CHECK(works_in_steps(request, version));
    }
  }

  TEST_CASE("a list of very many config keys is read once, and the known ones are answered") {
    LongWorld world;
    create_topic(world, "t");
    protocol::DescribeConfigsRequest request;
    request.resources.push_back({2, "t", std::vector<std::string_view>(5 * many, "no.such.key")});
    request.resources[0].configuration_keys->push_back("retention.ms");
    request.resources.push_back({2, "t", std::vector<std::string_view>{"no.such.key"}});
    request.resources.push_back({2, "t", std::vector<std::string_view>{}});
    const auto described =
        world.call_long<protocol::DescribeConfigsResponse>(request, 4, 5 * turns_of_many);
    REQUIRE(described.results.size() == 3);
    REQUIRE(described.results[0].configs.size() == 1);
    CHECK(described.results[0].configs[0].name == "retention.ms");
    CHECK(described.results[1].configs.empty());
    CHECK(described.results[2].configs.size() > 10);
  }

  TEST_CASE("a topic or broker with more configs than there can be is refused") {
    World world({.shards = 1});
    create_topic(world, "t");
    protocol::AlterConfigsRequest replace;
    replace.resources.push_back({2, "t", {}});
    protocol::IncrementalAlterConfigsRequest change;
    change.resources.push_back({2, "t", {}});
    protocol::CreateTopicsRequest create;
    auto& topic = create.topics.emplace_back();
    topic.name = "new";
    topic.num_partitions = 1;
    topic.replication_factor = 1;
    const auto codes = [&] {
      return std::vector{
          world.call<protocol::AlterConfigsResponse>(replace, 1).responses.at(0).error_code,
          world.call<protocol::IncrementalAlterConfigsResponse>(change, 1)
              .responses.at(0)
              .error_code,
          world.call<protocol::CreateTopicsResponse>(create, 7).topics.at(0).error_code};
    };
    for (std::size_t i = 0; i < max_configs; ++i) {
      replace.resources[0].configs.push_back({"no.such.key", "1"});
      change.resources[0].configs.push_back({"no.such.key", 0, "1"});
      topic.configs.push_back({"no.such.key", "1"});
    }
    CHECK(codes() == std::vector{ErrorCode::invalid_config, ErrorCode::invalid_request,
                                 ErrorCode::invalid_config});
    replace.resources[0].configs.push_back({"no.such.key", "1"});
    change.resources[0].configs.push_back({"no.such.key", 0, "1"});
    topic.configs.push_back({"no.such.key", "1"});
    CHECK(codes() == std::vector(3, ErrorCode::invalid_request));
  }

  TEST_CASE("assignments of a new topic have to be this broker's, each partition once from 0 on") {
    World world({.shards = 1});
    const auto code = [&](std::vector<std::int32_t> partitions, std::int32_t node) {
      protocol::CreateTopicsRequest create;
      create.validate_only = true;
      create.timeout_ms = 1000;
      auto& topic = create.topics.emplace_back();
      topic.name = "new";
      topic.num_partitions = -1;
      topic.replication_factor = -1;
      for (const auto partition : partitions) topic.assignments.push_back({partition, {node}});
      return world.call<protocol::CreateTopicsResponse>(create, 7).topics.at(0).error_code;
    };
    const auto node = world.broker().identity().node_id;
    CHECK(code({1, 0, 2}, node) == ErrorCode::none);
    CHECK(code({0, 2}, node) == ErrorCode::invalid_replica_assignment);
    CHECK(code({0, 0}, node) == ErrorCode::invalid_replica_assignment);
    CHECK(code({0, -1}, node) == ErrorCode::invalid_replica_assignment);
    CHECK(code({0}, node + 1) == ErrorCode::invalid_replica_assignment);
  }

  TEST_CASE("others have their turn while topics are paged through, and no page loses one") {
    LongWorld world(with_lookups);
    constexpr std::size_t topics = 2500;  // A page has 2 000.
    protocol::CreateTopicsRequest create;
    create.timeout_ms = 60'000;
    world.names.resize(topics);
    for (const auto& name : world.names) {
      auto& topic = create.topics.emplace_back();
      topic.name = name;
      topic.num_partitions = 1;
      topic.replication_factor = 1;
    }
    world.call<protocol::CreateTopicsResponse>(create, 7);
    protocol::DescribeTopicPartitionsRequest page;
    // A cursor behind the last partition of its topic: that one takes no place of the page.
    page.cursor = {"1000", 1};
    page.response_partition_limit = 10;
    const auto behind = world.call<protocol::DescribeTopicPartitionsResponse>(page, 0);
    REQUIRE(behind.next_cursor);
    page = {};
    std::vector<std::string> seen;
    std::string cursor;
    do {
      if (!cursor.empty()) page.cursor = {cursor, 0};
      const auto told =
          world.call_long<protocol::DescribeTopicPartitionsResponse>(page, 0, seen.empty() ? 8 : 1);
      for (const auto& topic : told.topics) seen.push_back(topic.name.value_or(""));
      cursor = told.next_cursor ? told.next_cursor->topic_name : "";
    } while (!cursor.empty());
    std::ranges::sort(world.names);
    CHECK(seen == world.names);
  }

  TEST_CASE("others have their turn while one topic of very many partitions is described") {
    LongWorld world;
    create_topic(world, "wide", static_cast<std::int32_t>(many));
    protocol::MetadataRequest metadata;
    metadata.topics.emplace();
    metadata.topics->push_back({{}, "wide"});
    CHECK(world.call_long<protocol::MetadataResponse>(metadata, 9, static_cast<int>(many / 8800))
              .topics.at(0)
              .partitions.size() == many);
    metadata.topics.reset();
    CHECK(world.call_long<protocol::MetadataResponse>(metadata, 9, static_cast<int>(many / 8800))
              .topics.at(0)
              .partitions.size() == many);
  }

  TEST_CASE("a Fetch of very many partitions reads and waits in steps, and each is answered") {
    LongWorld world;
    constexpr std::int32_t partitions = 3000;
    create_topic(world, "t", 2);
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"v"}}));
    auto fetch = fetch_request("t", 1, 0);
    const auto one = fetch.topics[0].partitions[0];
    fetch.topics[0].partitions.assign(partitions, one);
    fetch.topics[0].partitions.back().partition = 0;
    const auto answer =
        world.call_long<protocol::FetchResponse>(fetch, 11, static_cast<int>(partitions / 1100));
    REQUIRE(answer.responses.at(0).partitions.size() == partitions);
    CHECK(answer.responses[0].partitions[0].records.size() == 0);
    CHECK(answer.responses[0].partitions.back().records.size() > 0);

    fetch.topics[0].partitions.back().partition = 1;
    fetch.max_wait_ms = 5000;
    const auto waiting = world.begin(fetch, 11);
    CHECK_FALSE(waiting->answer);
    produce(world, "t", 1, batch_of(world.clock.wall(), {{"v"}}));
    REQUIRE(waiting->answer);
    CHECK(world.read<protocol::FetchResponse>(*waiting, 11).responses.at(0).partitions.size() ==
          partitions);
  }

  TEST_CASE("others have their turn while very many members leave and very many logs are cut") {
    LongWorld world;
    create_topic(world, "t");
    REQUIRE(world.shard().groups().find_or_make("g", "/127.0.0.1"));
    protocol::LeaveGroupRequest leave;
    leave.group_id = "g";
    for (const auto& name : world.names) leave.members.push_back({name, {}, {}});
    CHECK(
        world.call_long<protocol::LeaveGroupResponse>(leave, 3, 3 * turns_of_many).members.size() ==
        many);
    protocol::DeleteRecordsRequest cut;
    cut.timeout_ms = 1000;
    auto& topic = cut.topics.emplace_back();
    topic.name = "t";
    topic.partitions.assign(many, {0, -1});
    // Looked up, cut, and answered.
    CHECK(world.call_long<protocol::DeleteRecordsResponse>(cut, 1, 6 * turns_of_many)
              .topics.at(0)
              .partitions.at(many - 1)
              .low_watermark == 0);
  }

  TEST_CASE("others have their turn while members leave, each of whom may have offered very much") {
    LongWorld world;
    const Buffer metadata(10);
    std::vector<std::shared_ptr<World::Pending>> joins;
    for (int i = 0; i < 200; ++i) joins.push_back(world.begin(join_of("g", metadata), 3));
    world.pass(std::chrono::seconds{7});  // The others prolong the first rebalance.
    std::vector<std::string> ids;
    for (const auto& join : joins)
      ids.emplace_back(world.read<protocol::JoinGroupResponse>(*join, 3).member_id);
    protocol::LeaveGroupRequest leave;
    leave.group_id = "g";
    for (const auto& id : ids) leave.members.push_back({id, {}, {}});
    const auto left = world.call_long<protocol::LeaveGroupResponse>(leave, 3, 15);
    REQUIRE(left.members.size() == ids.size());
    for (const auto& member : left.members) CHECK(member.error_code == ErrorCode::none);
    const auto* const group = world.shard().groups().find("g");
    CHECK((group == nullptr || group->members().empty()));
  }

  TEST_CASE("a group that changes while its members are copied is described as it is then") {
    LongWorld world;
    const Buffer metadata(2 << 20);
    const auto first = world.begin(join_of("g", metadata), 3);
    const auto second = world.begin(join_of("g", metadata), 3);
    world.pass(std::chrono::seconds{7});  // The second one prolongs the first rebalance.
    const auto joined = world.read<protocol::JoinGroupResponse>(*first, 3);
    const auto other = world.read<protocol::JoinGroupResponse>(*second, 3);
    for (const auto* member : {&joined, &other}) {
      protocol::SyncGroupRequest sync;
      sync.group_id = "g";
      sync.member_id = member->member_id;
      sync.generation_id = member->generation_id;
      world.begin(sync, 3);
    }
    world.run();
    protocol::DescribeGroupsRequest describe;
    describe.groups = {"g"};
    const auto whole = world.call<protocol::DescribeGroupsResponse>(describe, 5);
    REQUIRE(whole.groups.at(0).members.size() == 2);
    CHECK(whole.groups[0].group_state == "Stable");
    CHECK(whole.groups[0].members[1].member_metadata.size() == metadata.size());

    world.runs_at_once = false;
    const auto pending = world.begin(describe, 5);
    bool left = false;
    boost::asio::post(world.shard().executor(), [&] {
      const Group::Leaving who{other.member_id, std::nullopt};
      left = world.shard().groups().leave("g", {&who, 1}).has_value() && !pending->answer;
    });
    world.run();
    CHECK(left);
    const auto changed = world.read<protocol::DescribeGroupsResponse>(*pending, 5);
    REQUIRE(changed.groups.size() == 1);
    CHECK(changed.groups[0].group_state == "PreparingRebalance");
    CHECK(changed.groups[0].members.size() == 1);
  }

  TEST_CASE("a group's status tells very many offsets in the order of topics and partitions") {
    LongWorld world;
    create_topic(world, "b", 1500);
    create_topic(world, "a", 1500);
    LongWorld::Steps steps;
    world.change<protocol::OffsetCommitResponse>(commit_of("g", "b", 1500), 8, steps);
    world.change<protocol::OffsetCommitResponse>(commit_of("g", "a", 1500), 8, steps);
    std::optional<GroupStatus> status;
    boost::asio::co_spawn(
        world.shard().executor(), group_status(world.broker(), world.shard(), "g", 0),
        [&](std::exception_ptr, std::optional<GroupStatus> s) { status = std::move(s); });
    world.run();
    REQUIRE(status);
    REQUIRE(status->offsets.size() == 3000);
    for (std::size_t i = 0; i < 3000; ++i) {
      REQUIRE(status->offsets[i].topic == (i < 1500 ? "a" : "b"));
      REQUIRE(status->offsets[i].partition.partition == static_cast<PartitionIndex>(i % 1500));
    }
  }

  TEST_CASE("the memory of a request is freed on the pool if it is very much, and at once if not") {
    LongWorld world;
    world.runs_at_once = false;
    const auto alive = std::make_shared<int>();
    const auto need = [&](std::size_t count, std::size_t moved_away) {
      std::vector<std::shared_ptr<int>> some(count, alive);
      std::vector<std::shared_ptr<int>> others(count, alive);
      const FreedOnPool freed(world.shard(), some, others);
      if (moved_away > 0) const auto elsewhere = std::move(others);
    };
    need(500, 0);
    CHECK(alive.use_count() == 1);
    need(501, 501);
    CHECK(alive.use_count() == 1);
    CHECK(world.background().size() == 0);
    const Ledger& ledger = world.shard().ledger();
    CHECK(ledger.used() == 0);
    need(501, 0);
    CHECK(alive.use_count() == 1 + 2 * 501);
    CHECK(ledger.used() > 2 * 501 * sizeof(alive));
    world.background().step();
    CHECK(alive.use_count() == 1);
    CHECK(ledger.used() == 0);
    world.background().no_memory = true;
    need(501, 0);
    CHECK(alive.use_count() == 1);
    CHECK(world.background().size() == 0);
    // A pool that does nothing holds no more than clients may make the broker hold.
    std::size_t before = 0;
    while (world.background().size() < 10'000) {
      need(50'000, 0);
      if (world.background().size() == before) break;
      before = world.background().size();
    }
    CHECK(before > 0);
    CHECK(before < 10'000);
    CHECK(ledger.room() < 2 * 50'000 * 256);
    world.background().run_all();
    CHECK(ledger.used() == 0);
  }

  TEST_CASE(
      "an answer that needs much room for what its request names waits for memory, and a small one "
      "does not") {
    LongWorld world;
    Charge held(world.shard().ledger(), nullptr);
    held.set(world.shard().ledger().room());
    protocol::MetadataRequest metadata;
    metadata.topics.emplace();
    metadata.topics->push_back({{}, ""});
    CHECK(world.call<protocol::MetadataResponse>(metadata, 1).topics.size() == 1);
    metadata.topics->assign(many, {{}, ""});  // Two bytes each.
    const auto pending = world.begin(metadata, 1);
    CHECK_FALSE(pending->answer.has_value());
    world.pass(std::chrono::seconds(2));
    REQUIRE(pending->answer.has_value());
    CHECK(pending->answer->close.contains("no memory became free"));
    held.set(0);
    CHECK(world.call<protocol::MetadataResponse>(metadata, 1).topics.size() == 1);
    CHECK(world.shard().ledger().used() == 0);
  }

  TEST_CASE("a large request is decoded and answered on the pool, a small one on its shard") {
    LongWorld world;
    world.runs_at_once = false;
    protocol::DescribeGroupsRequest describe;
    describe.groups.assign(10, "g");
    const auto small = world.begin(describe, 5);
    world.turn();
    CHECK(small->answer);
    describe.groups.assign(many, "some group");
    const auto large = world.begin(describe, 5);
    world.turn();
    CHECK(world.background().size() == 1);
    world.background().step();
    world.turn();
    CHECK_FALSE(large->answer);
    CHECK(world.background().size() == 1);
    world.background().step();
    world.turn();
    CHECK(world.read<protocol::DescribeGroupsResponse>(*large, 5).groups.size() == many);
  }
}

}  // namespace
}  // namespace tarry::broker::test
