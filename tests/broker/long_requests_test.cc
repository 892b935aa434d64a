// Requests that name very many things, or one thing very often: nobody else waits for their end.

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <boost/asio/post.hpp>

#include "broker/groups/group_offsets.h"
#include "broker/groups/groups.h"
#include "broker/handlers/table.h"
#include "protocol/messages/alter_user_scram_credentials.h"
#include "protocol/messages/create_acls.h"
#include "protocol/messages/create_partitions.h"
#include "protocol/messages/create_topics.h"
#include "protocol/messages/delete_acls.h"
#include "protocol/messages/delete_groups.h"
#include "protocol/messages/delete_topics.h"
#include "protocol/messages/describe_acls.h"
#include "protocol/messages/describe_configs.h"
#include "protocol/messages/describe_groups.h"
#include "protocol/messages/describe_topic_partitions.h"
#include "protocol/messages/describe_user_scram_credentials.h"
#include "protocol/messages/find_coordinator.h"
#include "protocol/messages/list_groups.h"
#include "protocol/messages/list_offsets.h"
#include "protocol/messages/metadata.h"
#include "protocol/messages/offset_commit.h"
#include "protocol/messages/offset_fetch.h"
#include "tests/broker/batches.h"
#include "tests/broker/long_world.h"
#include "tests/broker/offset_requests.h"

namespace tarry::broker::test {
namespace {

TEST_SUITE("long requests") {
  TEST_CASE("others have their turn while a request names very many groups") {
    LongWorld world;
    protocol::DescribeGroupsRequest describe;
    describe.groups.assign(world.names.begin(), world.names.end());
    CHECK(world.read<protocol::DescribeGroupsResponse>(*world.begin_long(describe, 5), 5)
              .groups.size() == many);
    protocol::DeleteGroupsRequest remove;
    remove.groups_names = describe.groups;
    CHECK(world.read<protocol::DeleteGroupsResponse>(*world.begin_long(remove, 2), 2)
              .results.size() == many);
    protocol::FindCoordinatorRequest find;
    find.coordinator_keys = describe.groups;
    CHECK(world.read<protocol::FindCoordinatorResponse>(*world.begin_long(find, 4), 4)
              .coordinators.size() == many);
    protocol::OffsetFetchRequest fetch;
    for (const auto& name : world.names) fetch.groups.emplace_back().group_id = name;
    CHECK(world.read<protocol::OffsetFetchResponse>(*world.begin_long(fetch, 8), 8).groups.size() ==
          many);
  }

  TEST_CASE("others have their turn while very many groups are listed, and removed together") {
    LongWorld world;
    create_topic(world, "t");
    for (const auto& name : world.names) {
      if (!world.shard().groups().find_or_make(name, "/127.0.0.1")) FAIL("a group cannot be made");
    }
    // In steps of 250 groups: they are copied, merged, and put into the answer.
    constexpr int steps_of_list = 3 * static_cast<int>(many / 300);
    CHECK(world
              .read<protocol::ListGroupsResponse>(
                  *world.begin_long(protocol::ListGroupsRequest{}, 4, steps_of_list), 4)
              .groups.size() == many);
    protocol::DeleteGroupsRequest remove;
    remove.groups_names.assign(world.names.begin(), world.names.end());
    remove.groups_names.emplace_back("7");  // Once more.
    LongWorld::Steps steps;
    const auto removed = world.change<protocol::DeleteGroupsResponse>(remove, 2, steps);
    REQUIRE(removed.results.size() == many + 1);
    CHECK(removed.results[7].error_code == ErrorCode::none);
    CHECK(removed.results[many - 1].error_code == ErrorCode::none);
    CHECK(removed.results[many].error_code == ErrorCode::group_id_not_found);
    CHECK(world.shard().groups().all().empty());
    // Not a round for each, and not all in one.
    CHECK(steps.pieces >= static_cast<int>(many / 256));
    CHECK(steps.pieces < static_cast<int>(many / 64));
  }

  TEST_CASE("others have their turn while very many groups are found to be unused") {
    LongWorld world;
    auto& groups = world.shard().groups();
    for (const auto& name : world.names) {
      const auto made = groups.find_or_make(name, "/127.0.0.1");
      if (!made) FAIL("a group cannot be made");
      groups.drop_if_unused(**made);
    }
    int turns = 0;
    std::function<void()> another = [&] {
      if (groups.all().empty()) return;
      ++turns;
      boost::asio::post(world.shard().executor(), another);
    };
    another();
    world.run();
    CHECK(groups.all().empty());
    CHECK(turns >= static_cast<int>(many / 300));
  }

  TEST_CASE("others have their turn while very many requests that have waited are answered") {
    LongWorld world;
    create_topic(world, "t");
    world.runs_at_once = false;
    constexpr std::size_t count = 5000;
    std::vector<std::shared_ptr<World::Pending>> waiting;
    for (std::size_t i = 0; i < count; ++i)
      waiting.push_back(world.begin(commit_request("g", "t", 0, 1), 8));
    world.turn();
    REQUIRE(count_waiting(world, offset_commit_kind) == count);
    REQUIRE(world.background().step());  // The journal's round that has them all.
    int turns = 0;
    std::function<void()> another = [&] {
      if (waiting.back()->answer || turns > 1000) return;
      ++turns;
      boost::asio::post(world.shard().executor(), another);
    };
    another();
    world.turn();
    CHECK(waiting.back()->answer.has_value());
    CHECK(turns >= 70);  // Sixty-four are answered in each.
    CHECK(turns < 200);
    world.runs_at_once = true;
    world.run();
  }

  TEST_CASE("a group that is named twice is removed once") {
    LongWorld world;
    REQUIRE(world.shard().groups().find_or_make("g", "/127.0.0.1"));
    protocol::DeleteGroupsRequest remove;
    remove.groups_names = {"g", "g"};
    const auto removed = world.call<protocol::DeleteGroupsResponse>(remove, 2);
    CHECK(removed.results.at(0).error_code == ErrorCode::none);
    CHECK(removed.results.at(1).error_code == ErrorCode::group_id_not_found);
  }

  TEST_CASE("a group whose removal is under way is not there for others, once that is durable") {
    LongWorld world;
    REQUIRE(world.shard().groups().find_or_make("g", "/127.0.0.1"));
    protocol::DeleteGroupsRequest remove;
    remove.groups_names = {"g"};
    world.background_stands_still = true;
    const auto first = world.begin(remove, 2);
    const auto second = world.begin(remove, 2);
    world.run();
    CHECK_FALSE(first->answer.has_value());
    CHECK_FALSE(second->answer.has_value());
    world.background_stands_still = false;
    world.run();
    CHECK(world.read<protocol::DeleteGroupsResponse>(*first, 2).results.at(0).error_code ==
          ErrorCode::none);
    CHECK(world.read<protocol::DeleteGroupsResponse>(*second, 2).results.at(0).error_code ==
          ErrorCode::group_id_not_found);
  }

  TEST_CASE("the groups of all shards are removed at the same time") {
    World world({.shards = 2});
    protocol::DeleteGroupsRequest remove;
    const std::vector<std::string> names{"a", "b", "c", "d", "e", "f", "g", "h"};
    std::set<const Shard*> shards;
    for (const auto& name : names) {
      Shard& shard = world.broker().shard_of_group(name);
      REQUIRE(shard.groups().find_or_make(name, "/127.0.0.1"));
      shards.insert(&shard);
      remove.groups_names.emplace_back(name);
    }
    REQUIRE(shards.size() == 2);
    world.background_stands_still = true;
    const auto removing = world.begin(remove, 2);
    world.run();
    // One journal waits for its disk, and so does the other.
    CHECK(count_waiting(world, delete_groups_kind) == 2);
    world.background_stands_still = false;
    world.run();
    const auto removed = world.read<protocol::DeleteGroupsResponse>(*removing, 2);
    REQUIRE(removed.results.size() == names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
      CHECK(removed.results[i].group_id == names[i]);
      CHECK(removed.results[i].error_code == ErrorCode::none);
    }
  }

  TEST_CASE("others have their turn while very many rules are added, told and removed") {
    LongWorld world(with_rules);
    protocol::CreateAclsRequest create;
    for (const auto& name : world.names)
      create.creations.push_back({2, name, 3, "User:a", "*", 3, 3});
    LongWorld::Steps steps;
    const auto made = world.change<protocol::CreateAclsResponse>(create, 3, steps);
    CHECK(made.results.size() == many);
    CHECK(made.results.back().error_code == ErrorCode::none);
    CHECK(steps.turns >= static_cast<int>(many / 1100));
    CHECK(steps.pieces >= static_cast<int>(many / 256));

    protocol::DescribeAclsRequest all;
    all.resource_type_filter = all.pattern_type_filter = all.operation = all.permission_type = 1;
    const auto told = world.change<protocol::DescribeAclsResponse>(all, 3, steps);
    CHECK(told.resources.size() == many);
    CHECK(steps.turns >= static_cast<int>(3 * many / 1100));

    // Filters that select nothing look at every rule, too.
    protocol::DeleteAclsRequest remove;
    for (int i = 0; i < 50; ++i)
      remove.filters.push_back({2, "no topic", 3, std::nullopt, std::nullopt, 1, 1});
    CHECK(world.change<protocol::DeleteAclsResponse>(remove, 3, steps).filter_results.size() == 50);
    CHECK(steps.turns >= static_cast<int>(50 * many / 16 / 1100));

    remove.filters.assign(6, {2, std::nullopt, 3, std::nullopt, std::nullopt, 1, 1});
    const auto too_many = world.change<protocol::DeleteAclsResponse>(remove, 3, steps);
    CHECK(too_many.filter_results.at(5).error_code == ErrorCode::invalid_request);
    CHECK(too_many.filter_results.at(0).matching_acls.empty());
    remove.filters.resize(2);
    const auto gone = world.change<protocol::DeleteAclsResponse>(remove, 3, steps);
    CHECK(gone.filter_results.at(1).matching_acls.size() == many);
    CHECK(steps.pieces >= static_cast<int>(many / 256));
    CHECK(world.broker().security(world.shard()).image->rules().empty());
  }

  TEST_CASE("others have their turn while very many users are added and told") {
    LongWorld world(with_rules);
    constexpr std::size_t some = 5000;
    world.names.resize(some);
    const std::string salted(32, 'x');
    protocol::AlterUserScramCredentialsRequest alter;
    for (const auto& name : world.names)
      alter.upsertions.push_back(
          {name, 1, 4096, as_bytes(std::string_view("salt")), as_bytes(salted)});
    LongWorld::Steps steps;
    const auto altered = world.change<protocol::AlterUserScramCredentialsResponse>(alter, 0, steps);
    CHECK(altered.results.size() == some);
    CHECK(altered.results.back().error_code == ErrorCode::none);
    CHECK(steps.turns >= static_cast<int>(5 * some / 1100));
    CHECK(steps.pieces >= static_cast<int>(some / 256));

    protocol::DescribeUserScramCredentialsRequest describe;
    CHECK(world.change<protocol::DescribeUserScramCredentialsResponse>(describe, 0, steps)
              .results.size() == some);
    CHECK(steps.turns >= static_cast<int>(some / 1100));
    describe.users.emplace();
    for (const auto& name : world.names) describe.users->push_back({name});
    const auto told =
        world.change<protocol::DescribeUserScramCredentialsResponse>(describe, 0, steps);
    REQUIRE(told.results.size() == some);
    CHECK(told.results[0].credential_infos.size() == 1);
    CHECK(steps.turns >= static_cast<int>(2 * some / 1100));
  }

  TEST_CASE("others have their turn while a request names very many topics") {
    LongWorld world;
    protocol::MetadataRequest metadata;
    metadata.topics.emplace();
    metadata.allow_auto_topic_creation = false;
    protocol::DeleteTopicsRequest remove;
    remove.timeout_ms = 30'000;
    protocol::DescribeConfigsRequest configs;
    protocol::CreatePartitionsRequest grow;
    protocol::DescribeTopicPartitionsRequest partitions;
    protocol::ListOffsetsRequest list;
    protocol::OffsetCommitRequest commit;
    commit.group_id = "g";
    commit.generation_id_or_member_epoch = -1;
    for (const auto& name : world.names) {
      metadata.topics->push_back({{}, name});
      remove.topics.push_back({name, {}});
      configs.resources.push_back({2, name, {}});
      grow.topics.emplace_back().name = name;
      partitions.topics.push_back({name});
      list.topics.emplace_back().name = name;
      commit.topics.emplace_back().name = name;
    }
    CHECK(world.read<protocol::MetadataResponse>(*world.begin_long(metadata, 9), 9).topics.size() ==
          many);
    CHECK(world.read<protocol::DeleteTopicsResponse>(*world.begin_long(remove, 6), 6)
              .responses.size() == many);
    CHECK(world.read<protocol::DescribeConfigsResponse>(*world.begin_long(configs, 4), 4)
              .results.size() == many);
    CHECK(world.read<protocol::CreatePartitionsResponse>(*world.begin_long(grow, 3), 3)
              .results.size() == many);
    CHECK(world.read<protocol::DescribeTopicPartitionsResponse>(*world.begin_long(partitions, 0), 0)
              .topics.size() == many);
    CHECK(world.read<protocol::ListOffsetsResponse>(*world.begin_long(list, 6), 6).topics.size() ==
          many);
    CHECK(
        world.read<protocol::OffsetCommitResponse>(*world.begin_long(commit, 8), 8).topics.size() ==
        many);
  }

  TEST_CASE(
      "others have their turn while a topic of many partitions is deleted, and its name is free "
      "afterwards") {
    LongWorld world;
    protocol::CreateTopicsRequest create;
    create.timeout_ms = 30'000;
    auto& wide = create.topics.emplace_back();
    wide.name = "wide";
    wide.num_partitions = static_cast<std::int32_t>(many);
    wide.replication_factor = 1;
    const auto code = [&](auto answer) { return answer.topics.at(0).error_code; };
    const auto made = world.begin(create, 5);
    world.run();
    CHECK(code(world.read<protocol::CreateTopicsResponse>(*made, 5)) == protocol::ErrorCode::none);
    protocol::DeleteTopicsRequest remove;
    remove.timeout_ms = 30'000;
    remove.topic_names.emplace_back("wide");
    world.runs_at_once = false;
    const auto removed = world.begin(remove, 5);
    // The journal's work is picked by hand, so whoever wants a turn again and again wants so many.
    int wanted = 0, turns = 0;
    std::function<void()> another = [&] {
      if (!world.shard().topics().find("wide") && !removed->answer) ++turns;
      if (wanted-- > 0) boost::asio::post(world.shard().executor(), another);
    };
    for (int rounds = 0; !removed->answer && rounds < 1'000; ++rounds) {
      wanted = 200;
      another();
      world.turn();
      world.background().step();
    }
    world.runs_at_once = true;
    world.run();
    CHECK(turns > static_cast<int>(many / 256 / 2));
    CHECK(world.read<protocol::DeleteTopicsResponse>(*removed, 5).responses.at(0).error_code ==
          protocol::ErrorCode::none);
    wide.num_partitions = 1;
    const auto again = world.begin(create, 5);
    world.run();
    CHECK(code(world.read<protocol::CreateTopicsResponse>(*again, 5)) == protocol::ErrorCode::none);
  }

  TEST_CASE("a list of many names goes to another shard in pieces, not name by name") {
    World world({.shards = 2});
    std::vector<std::string> names;
    for (std::size_t i = 0; i < many; ++i) names.push_back(std::to_string(i));
    const auto run_shard = [&](std::size_t index) {
      auto& context =
          boost::asio::query(world.shard(index).executor(), boost::asio::execution::context);
      auto& loop = static_cast<boost::asio::io_context&>(context);
      loop.restart();
      loop.poll();
    };
    // Going there and back takes a turn.
    const auto turns_of = [&](const auto& request, int version) {
      world.runs_at_once = false;
      const auto pending = world.begin(request, version, 1);
      std::size_t turns = 0;
      for (; !pending->answer && turns < many; ++turns) {
        run_shard(1);
        run_shard(0);
        world.background(1).step();  // The request is decoded there, and its answer encoded.
      }
      world.runs_at_once = true;
      world.run();
      return turns;
    };
    const std::size_t few = many / 40;
    protocol::DescribeGroupsRequest describe;
    describe.groups.assign(names.begin(), names.end());
    CHECK(turns_of(describe, 5) < few);
    protocol::DeleteGroupsRequest remove;
    remove.groups_names = describe.groups;
    CHECK(turns_of(remove, 2) < few);
    protocol::OffsetFetchRequest fetch;
    for (const auto& name : names) fetch.groups.emplace_back().group_id = name;
    CHECK(turns_of(fetch, 8) < few);
    protocol::CreateTopicsRequest create;
    create.validate_only = true;
    create.timeout_ms = 60'000;
    for (const auto& name : names) {
      auto& topic = create.topics.emplace_back();
      topic.name = name;
      topic.num_partitions = 1;
      topic.replication_factor = 1;
    }
    CHECK(turns_of(create, 5) < few);
  }

  TEST_CASE("a client that goes has the rest of its list not answered") {
    LongWorld world;
    world.hang_up = true;
    protocol::DescribeGroupsRequest describe;
    describe.groups.assign(world.names.begin(), world.names.end());
    const auto answer =
        world.read<protocol::DescribeGroupsResponse>(*world.begin_long(describe, 5), 5);
    CHECK(answer.groups.size() < many / 2);
  }

  TEST_CASE("a name that comes a hundred thousand times is refused or answered once") {
    LongWorld world;
    create_topic(world, "t");
    constexpr std::size_t times = 100'000;
    protocol::CreateTopicsRequest create;
    protocol::CreatePartitionsRequest grow;
    protocol::MetadataRequest metadata;
    metadata.topics.emplace();
    for (std::size_t i = 0; i < times; ++i) {
      create.topics.emplace_back().name = "x";
      grow.topics.emplace_back().name = "t";
      metadata.topics->push_back({{}, "t"});
    }
    const auto created = world.call<protocol::CreateTopicsResponse>(create, 7);
    REQUIRE(created.topics.size() == 1);
    CHECK(created.topics[0].error_code == ErrorCode::invalid_request);
    const auto grown = world.call<protocol::CreatePartitionsResponse>(grow, 3);
    REQUIRE(grown.results.size() == times);
    CHECK(grown.results[0].error_code == ErrorCode::invalid_request);
    CHECK(world.call<protocol::MetadataResponse>(metadata, 9).topics.size() == 1);
  }

  TEST_CASE("an answer about configs is bounded, however often one topic is named") {
    LongWorld world;
    create_topic(world, "t");
    protocol::DescribeConfigsRequest request;
    request.include_synonyms = true;
    for (std::size_t i = 0; i < 20'000; ++i) request.resources.push_back({2, "t", {}});
    const auto pending = world.begin(request, 4);
    REQUIRE(pending->answer.has_value());
    CHECK(pending->answer->close.empty());
    std::size_t bytes = 0;
    for (const auto& piece : pending->answer->frame) bytes += piece.size();
    CHECK(bytes > 10'000'000);
    CHECK(bytes < 30'000'000);  // All of them would have twice as many.
  }

  TEST_CASE("if one commit names a partition twice, the last offset counts") {
    LongWorld world;
    create_topic(world, "t");
    protocol::OffsetCommitRequest commit;
    commit.group_id = "g";
    commit.generation_id_or_member_epoch = -1;
    auto& topic = commit.topics.emplace_back();
    topic.name = "t";
    for (Offset offset = 1; offset <= 3; ++offset) {
      auto& partition = topic.partitions.emplace_back();
      partition.committed_offset = offset;
      partition.committed_metadata = "";
    }
    const auto committed = world.call<protocol::OffsetCommitResponse>(commit, 8);
    REQUIRE(committed.topics[0].partitions.size() == 3);
    protocol::OffsetFetchRequest fetch;
    fetch.group_id = "g";
    const auto found = world.call<protocol::OffsetFetchResponse>(fetch, 7);
    REQUIRE(found.topics.size() == 1);
    CHECK(found.topics[0].partitions[0].committed_offset == 3);
  }

  TEST_CASE("a request that names more than is allowed ends its connection, records may be more") {
    protocol::DescribeGroupsRequest describe;
    const std::string name(1000, 'g');
    for (int i = 0; i < 9000; ++i) describe.groups.push_back(name);
    const auto why = [](const auto& request, int version) {
      const Buffer frame = protocol::encode_request_frame(7, "test", request, version);
      const auto header = protocol::parse_request_header(Bytes(frame).subspan(4));
      REQUIRE(header.has_value());
      return refusal_reason(*header);
    };
    CHECK(why(describe, 5).find("the limit is 8388608") != std::string::npos);
    describe.groups.resize(8000);
    CHECK(why(describe, 5).empty());
    CHECK(why(produce_request("t", 0, Buffer(9 << 20)), 9).empty());
  }

  TEST_CASE("a Produce request with more batches than a producer sends ends its connection") {
    LongWorld world;
    create_topic(world, "t");
    auto request = produce_request("t", 0, {});
    request.topic_data[0].partition_data.resize(60'000);
    const auto pending = world.begin(request, 9);
    REQUIRE(pending->answer.has_value());
    CHECK(pending->answer->close.find("the limit is 50000") != std::string::npos);
  }
}

}  // namespace
}  // namespace tarry::broker::test
