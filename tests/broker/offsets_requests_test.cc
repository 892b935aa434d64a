// Committed offsets and groups as clients and the operator's tools ask for them.

#include <memory>
#include <string_view>

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <boost/asio/co_spawn.hpp>

#include "broker/groups/groups.h"
#include "broker/views/group_status.h"
#include "protocol/messages/delete_topics.h"
#include "protocol/messages/describe_groups.h"
#include "protocol/messages/join_group.h"
#include "protocol/messages/leave_group.h"
#include "protocol/messages/list_groups.h"
#include "protocol/messages/offset_delete.h"
#include "protocol/messages/sync_group.h"
#include "tests/broker/offset_requests.h"

namespace tarry::broker::test {
namespace {

using namespace std::chrono_literals;

Buffer subscription(std::initializer_list<std::string_view> topics) {
  Buffer out;
  append_be(out, std::int16_t{0});
  append_be(out, static_cast<std::int32_t>(topics.size()));
  for (const auto topic : topics) {
    append_be(out, static_cast<std::int16_t>(topic.size()));
    append_bytes(out, as_bytes(topic));
  }
  append_be(out, std::int32_t{-1});
  return out;
}

Buffer assignment(std::string_view topic, std::initializer_list<PartitionIndex> partitions) {
  Buffer out;
  append_be(out, std::int16_t{0});
  append_be(out, std::int32_t{1});
  append_be(out, static_cast<std::int16_t>(topic.size()));
  append_bytes(out, as_bytes(topic));
  append_be(out, static_cast<std::int32_t>(partitions.size()));
  for (const auto partition : partitions) append_be(out, partition);
  append_be(out, std::int32_t{-1});
  return out;
}

// One member joins alone and assigns itself partition 0 of `topic`; returns its id.
struct Joined {
  std::string member;
  std::int32_t generation = 0;
  Who who() const { return {generation, member, {}}; }
};
Joined join(World& world, std::string_view group, std::string_view topic,
            std::string_view type = "consumer", bool sync = true) {
  const Buffer offers = subscription({topic});
  protocol::JoinGroupRequest request;
  request.group_id = group;
  request.session_timeout_ms = 30'000;
  request.rebalance_timeout_ms = 30'000;
  request.protocol_type = type;
  request.protocols.push_back({"range", offers});
  const auto joined = world.call<protocol::JoinGroupResponse>(request, 3);
  REQUIRE(joined.error_code == ErrorCode::none);
  if (sync) {
    const Buffer given = assignment(topic, {0});
    protocol::SyncGroupRequest all;
    all.group_id = group;
    all.generation_id = joined.generation_id;
    all.member_id = joined.member_id;
    all.assignments.push_back({joined.member_id, given});
    REQUIRE(world.call<protocol::SyncGroupResponse>(all, 1).error_code == ErrorCode::none);
  }
  return {joined.member_id, joined.generation_id};
}

void leave(World& world, std::string_view group, std::string_view member) {
  protocol::LeaveGroupRequest request;
  request.group_id = group;
  request.member_id = member;
  REQUIRE(world.call<protocol::LeaveGroupResponse>(request, 1).error_code == ErrorCode::none);
}

protocol::DescribeGroupsResponse::Group describe(World& world, std::string_view group,
                                                 int version = 5) {
  protocol::DescribeGroupsRequest request;
  request.groups.push_back(group);
  const auto response = world.call<protocol::DescribeGroupsResponse>(request, version);
  REQUIRE(response.groups.size() == 1);
  return response.groups[0];
}

// One more than are written at once.
constexpr std::int32_t partitions_in_steps = 2'001;

// Commits offset 5 for all of them, and runs until the first piece is on its way to the journal.
std::shared_ptr<World::Pending> begin_commit_in_steps(World& world, std::string_view group,
                                                      std::string_view topic, Who who) {
  auto request = commit_request(group, topic, 0, 5, "", who);
  auto& places = request.topics[0].partitions;
  for (std::int32_t i = 1; i < partitions_in_steps; ++i) {
    const auto first = places[0];
    places.push_back(first);
    places.back().partition_index = i;
  }
  world.run();  // The first piece has a round of the journal for itself.
  world.runs_at_once = false;
  auto pending = world.begin(request, 9);
  const auto on_its_way = [&] {
    const auto* const known = world.shard().groups().find(group);
    return known != nullptr && !known->offsets.empty();
  };
  world.turn();
  // A long request may be decoded on the pool.
  for (int i = 0; i < 10 && !on_its_way() && world.background().step(); ++i) world.turn();
  REQUIRE(on_its_way());
  REQUIRE_FALSE(pending->answer.has_value());
  return pending;
}

ErrorCode end_commit_in_steps(World& world, const World::Pending& pending) {
  world.runs_at_once = true;
  world.run();
  REQUIRE(pending.answer.has_value());
  return world.read<protocol::OffsetCommitResponse>(pending, 9)
      .topics[0]
      .partitions[partitions_in_steps - 1]
      .error_code;
}

TEST_SUITE("offsets by requests") {
  TEST_CASE(
      "a simple consumer's commit is answered when it is durable, and is there after a kill") {
    World world = small_world();
    create_topic(world, "a", 3);
    CHECK(fetch_all(world, "g").empty());
    CHECK(commit(world, "g", "a", 1, 42, "note") == ErrorCode::none);
    for (std::size_t home = 0; home < 2; ++home)
      CHECK(fetch_all(world, "g", home) == "a-1:42/4/note ");
    world.restart();
    CHECK(fetch_all(world, "g") == "a-1:42/4/note ");
    CHECK(commit(world, "g", "a", 2, 7) == ErrorCode::none);
    CHECK(commit(world, "g", "a", 1, 41) == ErrorCode::none);  // Back is a way too.
    world.restart();
    CHECK(fetch_all(world, "g") == "a-1:41/4/ a-2:7/4/ ");
    world.stop();
    world.restart();
    CHECK(fetch_all(world, "g") == "a-1:41/4/ a-2:7/4/ ");
  }

  TEST_CASE("with another --shards, back and forth, every group has its newest offsets") {
    World world = small_world(2);
    create_topic(world, "a", 3);
    std::int64_t round = 0;
    for (const std::size_t shards : {3, 1, 2, 5, 2}) {
      for (int g = 0; g < 8; ++g) {
        const std::string id = fmt::format("group {}", g);
        CHECK(commit(world, id, "a", 0, 100 * round + g) == ErrorCode::none);
        // Its second commit may stand behind a checkpoint, the first before it.
        if (g == 3) world.pass(61s);
        CHECK(commit(world, id, "a", 1, 100 * round + g + 50) == ErrorCode::none);
      }
      world.restart(shards);
      for (int g = 0; g < 8; ++g) {
        CHECK(fetch_all(world, fmt::format("group {}", g)) ==
              fmt::format("a-0:{}/4/ a-1:{}/4/ ", 100 * round + g, 100 * round + g + 50));
      }
      ++round;
    }
  }

  TEST_CASE("only an offset that cannot be committed is refused; the others are committed") {
    World world = small_world();
    create_topic(world, "a", 1);
    auto request = commit_request("g", "a", 0, 5);
    request.topics[0].partitions.push_back({1, 5, -1, -1, ""});
    request.topics[0].partitions.push_back({-1, 5, -1, -1, ""});
    const std::string at_most(4096, 'm'), too_long(4097, 'm');
    request.topics[0].partitions.push_back({0, 6, -1, -1, too_long});
    request.topics.push_back({"nowhere", {}, {{0, 5, -1, -1, ""}}});
    const auto response = world.call<protocol::OffsetCommitResponse>(request, 9);
    REQUIRE(response.topics.size() == 2);
    const auto& a = response.topics[0].partitions;
    CHECK(a[0].error_code == ErrorCode::none);
    CHECK(a[1].error_code == ErrorCode::unknown_topic_or_partition);
    CHECK(a[2].error_code == ErrorCode::unknown_topic_or_partition);
    CHECK(a[3].error_code == ErrorCode::offset_metadata_too_large);
    CHECK(response.topics[1].partitions[0].error_code == ErrorCode::unknown_topic_or_partition);
    CHECK(fetch_all(world, "g") == "a-0:5/4/ ");
    CHECK(commit(world, "g", "a", 0, 6, at_most) == ErrorCode::none);
    CHECK(fetch_all(world, "g") == fmt::format("a-0:6/4/{} ", at_most));
    CHECK(commit(world, "g", "a", 0, 7, std::nullopt) == ErrorCode::none);
    CHECK(fetch_all(world, "g") == "a-0:7/4/ ");
  }

  TEST_CASE("a group's id may be empty for offsets, and its length is limited") {
    World world = small_world();
    create_topic(world, "a", 1);
    CHECK(commit(world, "", "a", 0, 5) == ErrorCode::none);
    world.restart();
    CHECK(fetch_all(world, "") == "a-0:5/4/ ");
    CHECK(remove_group(world, "") == ErrorCode::none);
    const std::string longest(1024, 'g'), longer(1025, 'g'), no_string(32'768, 'g');
    CHECK(commit(world, longest, "a", 0, 5) == ErrorCode::none);
    CHECK(commit(world, longer, "a", 0, 5) == ErrorCode::invalid_group_id);
    CHECK(world.broker().shard_of_group(longer).groups().find(longer) == nullptr);
    // As in Kafka: that is no string of the protocol.
    const auto refused = world.begin(commit_request(no_string, "a", 0, 5), 9);
    REQUIRE(refused->answer.has_value());
    CHECK(refused->answer->close.contains("a string of 32768 bytes"));
    world.restart();
    CHECK(fetch_all(world, longest) == "a-0:5/4/ ");
  }

  TEST_CASE("every version commits and fetches with the fields that it has") {
    World world = small_world();
    create_topic(world, "a", 2);
    for (int version = 2; version <= 9; ++version) {
      CAPTURE(version);
      CHECK(commit(world, "g", "a", 0, version, "m", {}, version) == ErrorCode::none);
      const int epoch = version >= 6 ? 4 : -1;
      CHECK(fetch_all(world, "g") == fmt::format("a-0:{}/{}/m ", version, epoch));
    }
    for (int version = 1; version <= 7; ++version) {
      CAPTURE(version);
      protocol::OffsetFetchRequest request;
      request.group_id = "g";
      request.require_stable = true;
      request.topics.emplace().push_back({"a", {1, 0}});
      request.topics->push_back({"nowhere", {3}});
      auto response = world.call<protocol::OffsetFetchResponse>(request, version);
      CHECK(response.error_code == ErrorCode::none);
      REQUIRE(response.topics.size() == 2);
      const auto& none = response.topics[0].partitions[0];
      CHECK((none.committed_offset == -1 && none.metadata == "" &&
             none.error_code == ErrorCode::none));
      const auto& nine = response.topics[0].partitions[1];
      CHECK((nine.committed_offset == 9 && nine.metadata == "m"));
      CHECK(nine.committed_leader_epoch == (version >= 5 ? 4 : -1));
      CHECK(response.topics[1].partitions[0].committed_offset == -1);
      if (version >= 2) {  // No list is all of them.
        request.topics.reset();
        response = world.call<protocol::OffsetFetchResponse>(request, version);
        REQUIRE(response.topics.size() == 1);
        CHECK(response.topics[0].partitions.size() == 1);
      }
      request.topics.emplace();
      CHECK(world.call<protocol::OffsetFetchResponse>(request, version).topics.empty());
    }
    for (int version = 8; version <= 9; ++version) {
      CAPTURE(version);
      protocol::OffsetFetchRequest request;
      request.groups.push_back({"g", {}, -1, {}});
      request.groups.push_back({"unknown", {}, -1, {}});
      request.groups.push_back({"g", {}, -1, {{{"a", {}, {1}}}}});
      const auto response = world.call<protocol::OffsetFetchResponse>(request, version);
      REQUIRE(response.groups.size() == 3);
      CHECK(response.groups[0].topics[0].partitions[0].committed_offset == 9);
      CHECK(response.groups[1].group_id == "unknown");
      CHECK(response.groups[1].error_code == ErrorCode::none);
      CHECK(response.groups[1].topics.empty());
      CHECK(response.groups[2].topics[0].partitions[0].committed_offset == -1);
    }
  }

  TEST_CASE("a short request does not get gigabytes of metadata") {
    World world = small_world();
    create_topic(world, "a", 1);
    CHECK(commit(world, "g", "a", 0, 5, std::string(4096, 'm')) == ErrorCode::none);
    protocol::OffsetFetchRequest request;
    const std::vector<std::int32_t> again(20'000, 0);
    request.groups.push_back({"g", {}, -1, {{{"a", {}, {0}}}}});
    request.groups.push_back({"g", {}, -1, {{{"a", {}, again}}}});
    request.groups.push_back({"g", {}, -1, {}});
    auto response = world.call<protocol::OffsetFetchResponse>(request, 8);
    CHECK(response.groups[0].error_code == ErrorCode::none);
    CHECK(response.groups[1].error_code == ErrorCode::invalid_request);
    CHECK(response.groups[1].topics.empty());
    CHECK(response.groups[2].error_code == ErrorCode::invalid_request);
    protocol::OffsetFetchRequest old;
    old.group_id = "g";
    old.topics.emplace().push_back({"a", again});
    response = world.call<protocol::OffsetFetchResponse>(old, 7);
    CHECK(response.error_code == ErrorCode::invalid_request);
    CHECK(response.topics.empty());
  }

  TEST_CASE("a member commits for its generation and nobody else does") {
    World world = small_world();
    create_topic(world, "a", 2);
    const auto member = join(world, "g", "a");
    CHECK(commit(world, "g", "a", 0, 1, "", member.who()) == ErrorCode::none);
    CHECK(commit(world, "g", "a", 0, 2, "", {member.generation + 1, member.member, {}}) ==
          ErrorCode::illegal_generation);
    CHECK(commit(world, "g", "a", 0, 2, "", {member.generation, "stranger", {}}) ==
          ErrorCode::unknown_member_id);
    CHECK(commit(world, "g", "a", 0, 2) == ErrorCode::unknown_member_id);
    CHECK(commit(world, "none", "a", 0, 2, "", {3, "m", {}}) == ErrorCode::illegal_generation);
    CHECK(fetch_all(world, "g") == "a-0:1/4/ ");
    // It is no group just because somebody was refused.
    CHECK(describe(world, "none").group_state == "Dead");
    world.restart();  // It goes on with its generation.
    CHECK(commit(world, "g", "a", 0, 3, "", member.who()) == ErrorCode::none);
    leave(world, "g", member.member);
    CHECK(commit(world, "g", "a", 0, 4, "", member.who()) == ErrorCode::unknown_member_id);
    CHECK(commit(world, "g", "a", 0, 5) == ErrorCode::none);  // The operator sets it back.
    CHECK(fetch_all(world, "g") == "a-0:5/4/ ");
  }

  TEST_CASE("a long commit does not bring a group back that is deleted between its pieces") {
    World world = small_world(1);
    create_topic(world, "a", partitions_in_steps);
    const auto committing = begin_commit_in_steps(world, "g", "a", {});
    protocol::DeleteGroupsRequest remove;
    remove.groups_names.emplace_back("g");
    const auto removing = world.begin(remove, 2);
    world.turn();
    REQUIRE(world.shard().groups().find("g")->is(GroupState::dead));
    CHECK(end_commit_in_steps(world, *committing) == ErrorCode::coordinator_not_available);
    CHECK(world.read<protocol::DeleteGroupsResponse>(*removing, 2).results[0].error_code ==
          ErrorCode::none);
    CHECK(describe(world, "g").group_state == "Dead");
    world.restart();
    CHECK(describe(world, "g").group_state == "Dead");
    CHECK(fetch_all(world, "g").empty());
  }

  TEST_CASE("a long commit ends when its member leaves between two pieces") {
    World world = small_world(1);
    create_topic(world, "a", partitions_in_steps);
    const auto member = join(world, "g", "a");
    const auto committing = begin_commit_in_steps(world, "g", "a", member.who());
    protocol::LeaveGroupRequest gone;
    gone.group_id = "g";
    gone.member_id = member.member;
    const auto leaving = world.begin(gone, 1);
    world.turn();
    REQUIRE(world.shard().groups().find("g")->is(GroupState::empty));
    CHECK(end_commit_in_steps(world, *committing) == ErrorCode::unknown_member_id);
    CHECK(leaving->answer.has_value());
    CHECK(world.shard().groups().find("g")->offsets.all().size() == 2'000);
  }

  TEST_CASE("a commit keeps its member in the group") {
    World world = small_world();
    create_topic(world, "a", 2);
    const auto member = join(world, "g", "a");
    for (int i = 0; i < 5; ++i) {
      world.pass(25s);  // Its session is of 30 s.
      CHECK(commit(world, "g", "a", 0, i, "", member.who()) == ErrorCode::none);
    }
    world.pass(31s);
    CHECK(commit(world, "g", "a", 0, 9, "", member.who()) == ErrorCode::unknown_member_id);
  }

  TEST_CASE("offsets expire after the group is empty, and the group goes with them") {
    World world = small_world();
    create_topic(world, "a", 2);
    const auto member = join(world, "g", "a");
    CHECK(commit(world, "g", "a", 0, 1, "", member.who()) == ErrorCode::none);
    CHECK(commit(world, "simple", "a", 0, 2) == ErrorCode::none);
    for (int i = 0; i < 250; ++i) {  // In use for two hours; what is simple ends after one.
      world.pass(29s);
      CHECK(commit(world, "g", "a", 1, i, "", member.who()) == ErrorCode::none);
    }
    CHECK(fetch_all(world, "simple").empty());
    CHECK(describe(world, "simple").group_state == "Dead");
    CHECK(fetch_all(world, "g") == "a-0:1/4/ a-1:249/4/ ");
    leave(world, "g", member.member);
    world.pass(30min);
    world.restart();  // The time goes on meanwhile.
    world.pass(29min);
    CHECK(fetch_all(world, "g") == "a-0:1/4/ a-1:249/4/ ");
    world.pass(2min);
    CHECK(fetch_all(world, "g").empty());
    world.pass(11min);
    CHECK(describe(world, "g").group_state == "Dead");
    world.restart();
    CHECK(describe(world, "g").group_state == "Dead");
    CHECK(fetch_all(world, "g").empty());
  }

  TEST_CASE("an old client may say for how long its offset is kept") {
    World world = small_world();
    create_topic(world, "a", 2);
    auto request = commit_request("g", "a", 0, 5);
    request.retention_time_ms = 60'000;
    CHECK(
        world.call<protocol::OffsetCommitResponse>(request, 2).topics[0].partitions[0].error_code ==
        ErrorCode::none);
    world.pass(59s);
    CHECK(fetch_all(world, "g") == "a-0:5/-1/ ");
    world.pass(2s);
    CHECK(fetch_all(world, "g").empty());
    request.retention_time_ms = std::numeric_limits<std::int64_t>::max();
    world.call<protocol::OffsetCommitResponse>(request, 2);
    world.pass(24h);
    CHECK(fetch_all(world, "g") == "a-0:5/-1/ ");
  }

  TEST_CASE("offsets of a deleted topic are gone, and a new topic of the same name has none") {
    World world = small_world();
    create_topic(world, "a", 2);
    create_topic(world, "b", 2);
    CHECK(commit(world, "g", "a", 0, 5) == ErrorCode::none);
    CHECK(commit(world, "g", "b", 0, 6) == ErrorCode::none);
    protocol::DeleteTopicsRequest request;
    request.timeout_ms = 30'000;
    request.topics.push_back({"a", {}});
    CHECK(world.call<protocol::DeleteTopicsResponse>(request, 6).responses[0].error_code ==
          ErrorCode::none);
    CHECK(fetch_all(world, "g") == "b-0:6/4/ ");
    create_topic(world, "a", 2);
    CHECK(fetch_all(world, "g") == "b-0:6/4/ ");
    world.restart(3);
    CHECK(fetch_all(world, "g") == "b-0:6/4/ ");
  }

  TEST_CASE("OffsetDelete deletes offsets of topics that no member reads") {
    World world = small_world();
    create_topic(world, "a", 2);
    create_topic(world, "b", 2);
    protocol::OffsetDeleteRequest request;
    request.group_id = "g";
    request.topics.push_back({"a", {{0}, {1}, {2}}});
    request.topics.push_back({"b", {{0}}});
    request.topics.push_back({"nowhere", {{0}}});
    const auto ask = [&] { return world.call<protocol::OffsetDeleteResponse>(request, 0); };
    CHECK(ask().error_code == ErrorCode::group_id_not_found);

    const auto member = join(world, "g", "a");
    CHECK(commit(world, "g", "a", 0, 1, "", member.who()) == ErrorCode::none);
    CHECK(commit(world, "g", "b", 0, 2, "", member.who()) == ErrorCode::none);
    auto response = ask();
    CHECK(response.error_code == ErrorCode::none);
    REQUIRE(response.topics.size() == 3);
    CHECK(response.topics[0].partitions[0].error_code == ErrorCode::group_subscribed_to_topic);
    CHECK(response.topics[0].partitions[2].error_code == ErrorCode::unknown_topic_or_partition);
    CHECK(response.topics[1].partitions[0].error_code == ErrorCode::none);
    CHECK(response.topics[2].partitions[0].error_code == ErrorCode::unknown_topic_or_partition);
    CHECK(fetch_all(world, "g") == "a-0:1/4/ ");
    leave(world, "g", member.member);
    response = ask();
    CHECK(response.topics[0].partitions[0].error_code == ErrorCode::none);
    CHECK(response.topics[0].partitions[1].error_code == ErrorCode::none);  // Was not there.
    CHECK(fetch_all(world, "g").empty());
    world.restart();
    CHECK(fetch_all(world, "g").empty());

    join(world, "connect", "a", "connect");
    request.group_id = "connect";
    response = ask();
    CHECK(response.error_code == ErrorCode::non_empty_group);
    CHECK(response.topics.empty());
  }

  TEST_CASE("DeleteGroups takes groups without members, with their offsets, for good") {
    World world = small_world();
    create_topic(world, "a", 2);
    CHECK(remove_group(world, "g") == ErrorCode::group_id_not_found);
    const auto member = join(world, "g", "a");
    CHECK(commit(world, "g", "a", 0, 1, "", member.who()) == ErrorCode::none);
    CHECK(remove_group(world, "g") == ErrorCode::non_empty_group);
    leave(world, "g", member.member);
    CHECK(remove_group(world, "g") == ErrorCode::none);
    CHECK(fetch_all(world, "g").empty());
    CHECK(describe(world, "g").group_state == "Dead");
    CHECK(commit(world, "simple", "a", 0, 1) == ErrorCode::none);
    CHECK(remove_group(world, "simple") == ErrorCode::none);
    world.restart();
    CHECK(describe(world, "g").group_state == "Dead");
    CHECK(fetch_all(world, "g").empty());
    CHECK(fetch_all(world, "simple").empty());
    CHECK(commit(world, "g", "a", 0, 9) == ErrorCode::none);  // It can be made again.
    CHECK(fetch_all(world, "g") == "a-0:9/4/ ");
    world.restart(1);
    CHECK(fetch_all(world, "g") == "a-0:9/4/ ");
  }

  TEST_CASE("DescribeGroups shows state, members and assignments, and Dead for an unknown group") {
    World world = small_world();
    create_topic(world, "a", 2);
    for (int version = 0; version <= 6; ++version) {
      CAPTURE(version);
      const auto dead = describe(world, "nobody", version);
      CHECK(dead.group_id == "nobody");
      CHECK(dead.group_state == "Dead");
      CHECK(dead.error_code == (version >= 6 ? ErrorCode::group_id_not_found : ErrorCode::none));
    }
    const auto member = join(world, "g", "a");
    const auto stable = describe(world, "g");
    CHECK(stable.group_state == "Stable");
    CHECK(stable.protocol_type == "consumer");
    CHECK(stable.protocol_data == "range");
    REQUIRE(stable.members.size() == 1);
    CHECK(stable.members[0].member_id == member.member);
    CHECK(stable.members[0].client_id == "test");
    CHECK(stable.members[0].member_metadata == subscription({"a"}));
    CHECK(stable.members[0].member_assignment == assignment("a", {0}));
    CHECK(stable.authorized_operations == std::numeric_limits<std::int32_t>::min());
    join(world, "joining", "a", "consumer", false);
    const auto joining = describe(world, "joining");
    CHECK(joining.group_state == "CompletingRebalance");
    CHECK(joining.members[0].member_metadata.empty());
    leave(world, "g", member.member);
    const auto empty = describe(world, "g");
    CHECK(empty.group_state == "Empty");
    CHECK(empty.protocol_type == "consumer");
    CHECK(empty.members.empty());
    protocol::DescribeGroupsRequest request;
    request.groups = {"g", "joining"};
    request.include_authorized_operations = true;
    const auto both = world.call<protocol::DescribeGroupsResponse>(request, 5);
    CHECK(both.groups[0].authorized_operations == 3400);  // As Kafka 4.3.1 answers.
    CHECK(both.groups[1].group_id == "joining");
    // A group that is not there has them too, as long as that is no error.
    request.groups = {"nobody"};
    CHECK(
        world.call<protocol::DescribeGroupsResponse>(request, 5).groups[0].authorized_operations ==
        3400);
    CHECK(
        world.call<protocol::DescribeGroupsResponse>(request, 6).groups[0].authorized_operations ==
        std::numeric_limits<std::int32_t>::min());
  }

  TEST_CASE("ListGroups lists the groups of every shard, of the states and types that are asked") {
    World world = small_world(3);
    create_topic(world, "a", 2);
    const auto list = [&](std::vector<std::string_view> states, std::vector<std::string_view> types,
                          int version = 5) {
      protocol::ListGroupsRequest request;
      request.states_filter = std::move(states);
      request.types_filter = std::move(types);
      const auto response = world.call<protocol::ListGroupsResponse>(request, version);
      CHECK(response.error_code == ErrorCode::none);
      std::string out;
      for (const auto& g : response.groups)
        out +=
            fmt::format("{}/{}/{}/{} ", g.group_id, g.protocol_type, g.group_state, g.group_type);
      return out;
    };
    CHECK(list({}, {}).empty());
    join(world, "c", "a");
    for (const auto* id : {"b", "a", "d"}) CHECK(commit(world, id, "a", 0, 1) == ErrorCode::none);
    const std::string simple = "a//Empty/classic b//Empty/classic ";
    CHECK(list({}, {}) == simple + "c/consumer/Stable/classic d//Empty/classic ");
    CHECK(list({}, {}, 0) == "a/// b/// c/consumer// d/// ");
    CHECK(list({"stable"}, {}) == "c/consumer/Stable/classic ");
    CHECK(list({"Stable", "Empty"}, {}, 4) == "a//Empty/ b//Empty/ c/consumer/Stable/ d//Empty/ ");
    CHECK(list({"Nonsense"}, {}).empty());
    CHECK(list({}, {"Classic"}) == simple + "c/consumer/Stable/classic d//Empty/classic ");
    CHECK(list({}, {"consumer"}).empty());
  }

  TEST_CASE("the operator sees which member has which partition, and its lag") {
    World world = small_world(3);
    create_topic(world, "a", 3);
    for (int i = 0; i < 10; ++i) produce(world, "a", 0, batch_of(world.clock.wall(), {{"v"}}));
    const auto member = join(world, "g", "a");
    CHECK(commit(world, "g", "a", 1, 0, "x", member.who()) == ErrorCode::none);
    const auto status_of = [&](std::string id) {
      std::optional<std::optional<GroupStatus>> status;
      boost::asio::co_spawn(
          world.shard(1).executor(), group_status(world.broker(), world.shard(1), std::move(id)),
          [&](std::exception_ptr, std::optional<GroupStatus> s) { status = std::move(s); });
      world.run();
      REQUIRE(status.has_value());
      return *status;
    };
    CHECK_FALSE(status_of("nobody").has_value());
    auto status = status_of("g");
    REQUIRE(status.has_value());
    CHECK(status->summary.state == "Stable");
    CHECK(status->summary.members == 1);
    CHECK(status->summary.offsets == 1);
    CHECK(status->protocol_name == "range");
    REQUIRE(status->members.size() == 1);
    CHECK(status->members[0].is_leader);
    CHECK(status->members[0].subscribed == std::vector<std::string>{"a"});
    CHECK(status->members[0].assigned == std::vector<protocol::AssignedTopic>{{"a", {0}}});
    REQUIRE(status->offsets.size() == 2);
    // Partition 0 is assigned, and nothing is committed for it.
    CHECK(status->offsets[0].partition.partition == 0);
    CHECK(status->offsets[0].member == member.member);
    CHECK_FALSE(status->offsets[0].committed);
    CHECK(status->offsets[0].high_watermark == 10);
    CHECK(status->offsets[0].lag == 10);
    CHECK(status->offsets[1].committed == 0);
    CHECK(status->offsets[1].metadata == "x");
    CHECK(status->offsets[1].member.empty());
    CHECK(status->offsets[1].lag == 0);
    CHECK(commit(world, "g", "a", 0, 4, "", member.who()) == ErrorCode::none);
    status = status_of("g");
    CHECK(status->offsets[0].lag == 6);
  }

  TEST_CASE("a commit that cannot become durable is answered in time, and to be tried again") {
    World world = small_world(1);
    create_topic(world, "a", 1);
    const auto request = commit_request("g", "a", 0, 5);
    // Nothing runs: the journal's round does not end.
    world.background_stands_still = true;
    const auto waiting = world.begin(request, 9);
    world.pass(4999ms);
    CHECK_FALSE(waiting->answer.has_value());
    world.pass(1ms);
    REQUIRE(waiting->answer.has_value());
    CHECK(world.read<protocol::OffsetCommitResponse>(*waiting, 9)
              .topics[0]
              .partitions[0]
              .error_code == ErrorCode::coordinator_not_available);
    world.background_stands_still = false;
    world.run();
    CHECK(fetch_all(world, "g") == "a-0:5/4/ ");
  }
}

}  // namespace
}  // namespace tarry::broker::test
