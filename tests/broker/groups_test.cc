// Consumer groups through the handlers: two shards, real journals, restarts.

#include "broker/groups/groups.h"

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <boost/asio/co_spawn.hpp>

#include "broker/views/group_status.h"
#include "protocol/messages/delete_groups.h"
#include "protocol/messages/describe_groups.h"
#include "protocol/messages/find_coordinator.h"
#include "protocol/messages/heartbeat.h"
#include "protocol/messages/join_group.h"
#include "protocol/messages/leave_group.h"
#include "protocol/messages/sync_group.h"
#include "tests/broker/offset_requests.h"
#include "tests/captured_log.h"
#include "world.h"

namespace tarry::broker::test {
namespace {

using namespace std::chrono_literals;
using protocol::ErrorCode;
using protocol::FindCoordinatorRequest;
using protocol::FindCoordinatorResponse;
using protocol::HeartbeatRequest;
using protocol::HeartbeatResponse;
using protocol::JoinGroupRequest;
using protocol::JoinGroupResponse;
using protocol::LeaveGroupRequest;
using protocol::LeaveGroupResponse;
using protocol::SyncGroupRequest;
using protocol::SyncGroupResponse;

JoinGroupRequest join_request(std::string_view group, std::string_view member_id = {}) {
  JoinGroupRequest request;
  request.group_id = group;
  request.member_id = member_id;
  request.session_timeout_ms = 10'000;
  request.rebalance_timeout_ms = 60'000;
  request.protocol_type = "consumer";
  request.protocols.push_back({"range", {}});
  return request;
}

ErrorCode heartbeat(World& world, std::string_view group, std::string_view member_id,
                    std::int32_t generation, std::size_t home = 0) {
  HeartbeatRequest request;
  request.group_id = group;
  request.member_id = member_id;
  request.generation_id = generation;
  return world.call<HeartbeatResponse>(request, 4, home).error_code;
}

std::vector<std::string> names_of_shard(World& world, std::size_t shard, std::size_t count,
                                        const std::string& prefix = "group") {
  std::vector<std::string> names;
  for (int i = 0; names.size() < count; ++i) {
    std::string name = prefix + std::to_string(i);
    if (&world.broker().shard_of_group(name) == &world.shard(shard)) names.push_back(name);
  }
  return names;
}

// The leader of a group, which is alone in it, gives itself this.
SyncGroupRequest sync_request(std::string_view group, const JoinGroupResponse& joined,
                              std::string_view assignment) {
  SyncGroupRequest request;
  request.group_id = group;
  request.member_id = joined.member_id;
  request.generation_id = joined.generation_id;
  request.assignments.push_back({joined.member_id, as_bytes(assignment)});
  return request;
}

// A group with one member, stable in generation 1; its id.
std::string stable_group(World& world, std::string_view group, std::size_t home = 0) {
  const auto joined = world.call<JoinGroupResponse>(join_request(group), 3, home);
  REQUIRE(joined.error_code == ErrorCode::none);
  SyncGroupRequest sync;
  sync.group_id = group;
  sync.member_id = joined.member_id;
  sync.generation_id = joined.generation_id;
  sync.assignments.push_back({joined.member_id, as_bytes("everything")});
  const auto synced = world.call<SyncGroupResponse>(sync, 3, home);
  REQUIRE(synced.error_code == ErrorCode::none);
  REQUIRE(as_text(synced.assignment) == "everything");
  return joined.member_id;
}

}  // namespace

TEST_SUITE("groups") {
  TEST_CASE("every group's coordinator is this broker, in all versions") {
    World world;
    for (int version = 0; version <= 6; ++version) {
      CAPTURE(version);
      FindCoordinatorRequest request;
      request.key = "g";
      request.coordinator_keys = {"g", "h"};
      const auto found = world.call<FindCoordinatorResponse>(request, version);
      if (version < 4) {
        CHECK(found.error_code == ErrorCode::none);
        CHECK(found.node_id == 1);
        CHECK(found.host == "127.0.0.1");
        CHECK(found.port == 9092);
      } else {
        REQUIRE(found.coordinators.size() == 2);
        CHECK(found.coordinators[1].key == "h");
        CHECK(found.coordinators[1].node_id == 1);
        CHECK(found.coordinators[1].port == 9092);
      }
    }
  }

  TEST_CASE("transactions and share groups have no coordinator, and the answer says so") {
    World world;
    FindCoordinatorRequest request;
    request.key = "t";
    request.key_type = 1;
    const auto transaction = world.call<FindCoordinatorResponse>(request, 2);
    CHECK(transaction.error_code == ErrorCode::transactional_id_authorization_failed);
    CHECK(transaction.error_message == "transactions are not supported");
    CHECK(transaction.node_id == -1);
    request.key_type = 2;
    request.coordinator_keys = {"s"};
    const auto share = world.call<FindCoordinatorResponse>(request, 6);
    CHECK(share.coordinators.at(0).error_code == ErrorCode::invalid_request);
  }

  TEST_CASE("members of one group meet, whichever shards their connections are on") {
    World world;
    const auto a = world.begin(join_request("g"), 3, 0);
    const auto b = world.begin(join_request("g"), 3, 1);
    world.pass(6s);
    const auto first = world.read<JoinGroupResponse>(*a, 3);
    const auto second = world.read<JoinGroupResponse>(*b, 3);
    CHECK(first.generation_id == 1);
    CHECK(second.generation_id == 1);
    CHECK(first.members.size() + second.members.size() == 2);
    CHECK(first.leader == second.leader);
  }

  TEST_CASE("a group without a name, and sessions that are too short or too long, are refused") {
    World world;
    CHECK(world.call<JoinGroupResponse>(join_request(""), 3).error_code ==
          ErrorCode::invalid_group_id);
    CHECK(heartbeat(world, "", "m", 1) == ErrorCode::invalid_group_id);
    auto request = join_request("g");
    request.session_timeout_ms = 5'999;
    CHECK(world.call<JoinGroupResponse>(request, 3).error_code ==
          ErrorCode::invalid_session_timeout);
    request.session_timeout_ms = 1'800'001;
    CHECK(world.call<JoinGroupResponse>(request, 3).error_code ==
          ErrorCode::invalid_session_timeout);
    CHECK(world.call<JoinGroupResponse>(join_request("g", "gone"), 3).error_code ==
          ErrorCode::unknown_member_id);
    CHECK(heartbeat(world, "g", "m", 1) == ErrorCode::unknown_member_id);
    SyncGroupRequest sync;
    sync.group_id = "g";
    CHECK(world.call<SyncGroupResponse>(sync, 3).error_code == ErrorCode::unknown_member_id);
    CHECK(world.broker().shard_of_group("g").groups().all().empty());
  }

  TEST_CASE("from version 4 on a member is given its id first") {
    World world;
    const auto first = world.call<JoinGroupResponse>(join_request("g"), 4);
    CHECK(first.error_code == ErrorCode::member_id_required);
    CHECK(first.member_id.starts_with("test-"));
    CHECK(first.member_id.size() == std::string("test-").size() + 36);
    const auto second = world.call<JoinGroupResponse>(join_request("g", first.member_id), 4);
    CHECK(second.error_code == ErrorCode::none);
    CHECK(second.member_id == first.member_id);
  }

  TEST_CASE("an error's protocol name is null from version 7 on, and empty before") {
    World world;
    CHECK(world.call<JoinGroupResponse>(join_request(""), 6).protocol_name == "");
    CHECK_FALSE(world.call<JoinGroupResponse>(join_request(""), 7).protocol_name.has_value());
  }

  TEST_CASE("members leave in batches, and each gets its own result") {
    World world;
    const auto member = stable_group(world, "g");
    LeaveGroupRequest request;
    request.group_id = "g";
    request.members.push_back({member, std::nullopt, "done"});
    request.members.push_back({"x", std::nullopt, std::nullopt});
    const auto left = world.call<LeaveGroupResponse>(request, 5, 1);
    CHECK(left.error_code == ErrorCode::none);
    REQUIRE(left.members.size() == 2);
    CHECK(left.members[0].member_id == member);
    CHECK(left.members[0].error_code == ErrorCode::none);
    CHECK(left.members[1].error_code == ErrorCode::unknown_member_id);
    request.member_id = member;
    CHECK(world.call<LeaveGroupResponse>(request, 1).error_code == ErrorCode::unknown_member_id);
    request.group_id = "no such group";
    CHECK(world.call<LeaveGroupResponse>(request, 3).members.at(1).error_code ==
          ErrorCode::unknown_member_id);
  }

  TEST_CASE("after kill -9 a member continues with its generation, also with other shards") {
    WorldOptions options;
    options.configure = [](BrokerConfig& config) { config.group_initial_rebalance_delay = 0ms; };
    World world(std::move(options));
    std::vector<std::string> groups, members;
    for (int i = 0; i < 6; ++i) {
      groups.push_back("group" + std::to_string(i));
      members.push_back(stable_group(world, groups.back(), static_cast<std::size_t>(i) % 2));
    }
    for (const std::size_t shards : {2, 3, 1}) {
      world.restart(shards);
      for (std::size_t i = 0; i < groups.size(); ++i) {
        CHECK(heartbeat(world, groups[i], members[i], 1) == ErrorCode::none);
        SyncGroupRequest sync;
        sync.group_id = groups[i];
        sync.member_id = members[i];
        sync.generation_id = 1;
        CHECK(as_text(world.call<SyncGroupResponse>(sync, 3).assignment) == "everything");
      }
    }
  }

  TEST_CASE("after kill -9 a member that has left does not come back") {
    World world;
    const auto member = stable_group(world, "g");
    LeaveGroupRequest request;
    request.group_id = "g";
    request.member_id = member;
    CHECK(world.call<LeaveGroupResponse>(request, 2).error_code == ErrorCode::none);
    world.pass(10ms);
    world.restart();
    const auto* group = world.broker().shard_of_group("g").groups().find("g");
    REQUIRE(group != nullptr);
    CHECK(group->is(GroupState::empty));
    CHECK(group->generation() == 2);
    CHECK(heartbeat(world, "g", member, 2) == ErrorCode::unknown_member_id);
  }

  TEST_CASE("a client that hangs up cancels its join at once, also on another shard") {
    World world;
    for (std::size_t home = 0; home < 2; ++home) {
      CAPTURE(home);
      auto& shard = world.broker().shard_of_group("g");
      const auto waits = world.begin(join_request("g"), 3, home);
      CHECK(shard.purgatory().metrics(join_kind).waiting == 1);
      world.connection(home).close();
      world.run();
      CHECK(shard.purgatory().metrics(join_kind).waiting == 0);
      CHECK(shard.purgatory().metrics(join_kind).cancelled == home + 1);
      // It was not told its member id: nobody is left of it.
      CHECK(shard.groups().find("g")->members().empty());
      world.pass(61s);
    }
  }

  TEST_CASE("a group that nobody stored and nobody is in is forgotten at once") {
    World world;
    const auto first = world.call<JoinGroupResponse>(join_request("g"), 4);
    auto& groups = world.broker().shard_of_group("g").groups();
    CHECK(groups.all().size() == 1);
    world.pass(10s);
    CHECK(groups.all().empty());
  }

  TEST_CASE("a stored group that nobody uses goes some time later, for good") {
    World world;
    const auto member = stable_group(world, "g");
    auto& groups = world.broker().shard_of_group("g").groups();
    world.pass(10s);  // Its session.
    REQUIRE(groups.find("g") != nullptr);
    CHECK(groups.find("g")->is(GroupState::empty));
    world.pass(601s);
    CHECK(groups.find("g") == nullptr);
    world.restart();
    CHECK(world.broker().shard_of_group("g").groups().find("g") == nullptr);
  }

  TEST_CASE("members that stay when their clients have gone take a part of the clients' memory") {
    World world(
        {.shards = 1, .configure = [](BrokerConfig& config) { config.memory_bytes = 16 << 20; }});
    const std::string long_text(500'000, 'x');
    const auto join_with_text = [&](const std::string& group) {
      auto request = join_request(group);
      request.protocols = {{"range", as_bytes(long_text)}};
      request.session_timeout_ms = 300'000;
      return world.call<JoinGroupResponse>(request, 3).error_code;
    };
    int taken = 0;
    for (int i = 0; i < 20; ++i) {
      const auto error = join_with_text(std::to_string(i));
      if (error == ErrorCode::none) ++taken;
      if (error != ErrorCode::none) CHECK(error == ErrorCode::coordinator_not_available);
    }
    // The limit is 4 MiB: with the fifth this client would have more than it leaves for others.
    CHECK(taken == 4);
    CHECK(world.shard().groups().member_bytes() >= 2'000'000);
    CHECK(world.shard().ledger().used() >= 2'000'000);
    stable_group(world, "small");
    world.pass(310s);  // Their sessions end.
    CHECK(world.shard().groups().member_bytes() == 0);
    CHECK(join_with_text("later") == ErrorCode::none);
  }

  TEST_CASE("a client with members in very many groups keeps no other client from a group") {
    // 256 KiB for the members on each shard.
    World world({.configure = [](BrokerConfig& config) {
      config.memory_bytes = 2 << 20;
      config.group_initial_rebalance_delay = 0ms;
    }});
    std::set<ErrorCode> errors;
    for (const auto& name : names_of_shard(world, 0, 600)) {
      auto request = join_request(name);
      request.session_timeout_ms = 1'800'000;
      errors.insert(world.call<JoinGroupResponse>(request, 3, 1).error_code);
    }
    CHECK(errors == std::set{ErrorCode::none, ErrorCode::coordinator_not_available});
    CHECK(world.shard().groups().member_bytes() > 100 << 10);
    CHECK(world.shard().groups().member_bytes() <= 128 << 10);
    stable_group(world, names_of_shard(world, 0, 1, "mine")[0]);
  }

  TEST_CASE(
      "a client has one part of what groups may take, whatever addresses it chooses in a /64") {
    const auto owner = [](const char* peer) { return owner_of(Connection(peer)); };
    CHECK(owner("[2001:db8:0:1::1]:40000") == owner("[2001:db8:0:1:ffff::2]:40001"));
    CHECK(owner("[2001:db8:0:1::1]:40000") != owner("[2001:db8:0:2::1]:40000"));
    CHECK(owner("10.0.0.1:40000") == owner("10.0.0.1:40001"));
    CHECK(owner("10.0.0.1:40000") != owner("10.0.0.2:40000"));
    // Who has logged in is one client, from wherever.
    ConnectionOrigin origin;
    auto listener = std::make_shared<ListenerInfo>();
    listener->protocol = SecurityProtocol::sasl_plaintext;
    origin.listener = std::move(listener);
    origin.sasl_user = "alice";
    CHECK(owner_of(Connection("10.0.0.1:1", origin)) ==
          owner_of(Connection("[2001:db8::1]:1", origin)));
  }

  TEST_CASE("what is known of each client that has asked for a group counts as clients' memory") {
    World world({.shards = 1});
    Groups& groups = world.shard().groups();
    const std::size_t before = world.shard().ledger().used();
    const auto ask = [&](int client) {
      const auto name = std::to_string(client);
      const auto group = groups.find_or_make(name, name + std::string(200, 'u'));
      REQUIRE(group.has_value());
      groups.drop_if_unused(**group);
      world.run();
    };
    for (int client = 0; client < 1000; ++client) ask(client);
    CHECK(groups.all().empty());
    CHECK(world.shard().ledger().used() > before + 1000 * 200);
    // Those that have no group any more are forgotten together.
    ask(1000);
    CHECK(world.shard().ledger().used() > before + 200);
    CHECK(world.shard().ledger().used() < before + 1000);
  }

  TEST_CASE(
      "member ids that are given out in very many groups take a part of the clients' memory") {
    World world(
        {.shards = 1, .configure = [](BrokerConfig& config) { config.memory_bytes = 16 << 20; }});
    std::size_t given = 0;
    for (int i = 0; i < 2000; ++i) {
      const auto error =
          world.call<JoinGroupResponse>(join_request(std::to_string(i)), 4).error_code;
      if (error == ErrorCode::member_id_required) ++given;
      if (error != ErrorCode::member_id_required)
        REQUIRE(error == ErrorCode::coordinator_not_available);
    }
    CHECK(given > 500);
    CHECK(given < 1000);
    CHECK(world.shard().groups().all().size() == given);
    CHECK(world.shard().groups().member_bytes() <= 4 << 20);
    world.pass(11s);
    CHECK(world.shard().groups().member_bytes() == 0);
    CHECK(world.shard().groups().all().empty());
  }

  TEST_CASE("a group id of 1 025 bytes is refused, and the log says what the limit is") {
    World world({.shards = 1});
    CHECK(world.call<JoinGroupResponse>(join_request(std::string(1024, 'g')), 4).error_code ==
          ErrorCode::member_id_required);
    CapturedLog log;
    const std::string longer(1025, 'g');
    CHECK(world.call<JoinGroupResponse>(join_request(longer), 4).error_code ==
          ErrorCode::invalid_group_id);
    CHECK(heartbeat(world, longer, "m", 1) == ErrorCode::invalid_group_id);
    CHECK(log.count("a group id of 1025 bytes is refused; the limit is 1024: ggg") == 1);
    CHECK(world.shard().groups().all().size() == 1);
  }

  TEST_CASE("the names of groups take their part of the room for committed offsets") {
    World world({.shards = 1, .configure = [](BrokerConfig& config) {
                   config.group_offsets_bytes = 256 << 10;
                 }});
    create_topic(world, "a", 1);
    std::vector<std::string> made;
    for (int i = 0; i < 100; ++i) {
      const std::string name = std::string(1000, 'n') + std::to_string(i);
      const auto error = commit(world, name, "a", 0, 1);
      if (error != ErrorCode::none) CHECK(error == ErrorCode::coordinator_not_available);
      if (error == ErrorCode::none) made.push_back(name);
    }
    CHECK(made.size() > 20);
    CHECK(made.size() < 64);
    CHECK(world.shard().groups().all().size() == made.size());
    CHECK(world.shard().groups().offset_bytes() > 4000 * made.size());
    CHECK(world.shard().groups().offset_bytes() <= 256 << 10);
    for (const auto& name : made) CHECK(remove_group(world, name) == ErrorCode::none);
    CHECK(world.shard().groups().offset_bytes() == 0);
    CHECK(commit(world, std::string(1000, 'm'), "a", 0, 1) == ErrorCode::none);
  }

  TEST_CASE(
      "no more groups are made than tarry.max.groups, and one client leaves as many to others as "
      "it has") {
    // Three for each shard.
    World world({.configure = [](BrokerConfig& config) { config.max_groups = 6; }});
    const auto names = names_of_shard(world, 0, 5);
    const auto join = [&](const std::string& name, std::size_t home) {
      return world.call<JoinGroupResponse>(join_request(name), 4, home).error_code;
    };
    CHECK(join(names[0], 0) == ErrorCode::member_id_required);
    CHECK(join(names[1], 0) == ErrorCode::member_id_required);
    CHECK(join(names[2], 0) == ErrorCode::coordinator_not_available);
    CHECK(join(names[3], 1) == ErrorCode::member_id_required);
    CHECK(join(names[4], 1) == ErrorCode::coordinator_not_available);
    CHECK(join(names[0], 1) == ErrorCode::member_id_required);  // It is there.
    world.pass(11s);  // The ids that were given out expire, and with them the groups.
    CHECK(world.shard().groups().all().empty());
    CHECK(join(names[4], 1) == ErrorCode::member_id_required);
  }

  TEST_CASE("a client that fills the room for offsets leaves as much of it to others") {
    constexpr std::size_t limit = 64 << 10;
    World world({.configure = [](BrokerConfig& config) { config.group_offsets_bytes = limit; }});
    create_topic(world, "a", 5);
    auto& groups = world.shard().groups();
    const auto commit_by = [&](std::size_t home, std::string_view group, PartitionIndex partition,
                               std::size_t bytes) {
      const std::string metadata(bytes, 'm');
      const auto request = commit_request(group, "a", partition, 1, metadata);
      return world.call<protocol::OffsetCommitResponse>(request, 8, home)
          .topics.at(0)
          .partitions.at(0)
          .error_code;
    };
    const auto mine = names_of_shard(world, 0, 3), others = names_of_shard(world, 0, 100, "other");
    CHECK(commit_by(0, mine[0], 0, 10) == ErrorCode::none);
    std::set<ErrorCode> errors;
    for (const auto& name : others) errors.insert(commit_by(1, name, 0, 700));
    CHECK(errors == std::set{ErrorCode::none, ErrorCode::coordinator_not_available});
    CHECK(groups.offset_bytes() > limit / 3);
    CHECK(groups.offset_bytes() < limit / 2);
    const auto grow = [&] {
      for (PartitionIndex partition = 0; partition < 5; ++partition)
        CHECK(commit_by(0, mine[0], partition, 700) == ErrorCode::none);
      CHECK(commit_by(0, mine[1], 0, 700) == ErrorCode::none);
    };
    grow();
    // Nobody has used the groups since; then they count for who does.
    world.restart();
    const std::size_t before = world.shard().groups().offset_bytes();
    CHECK(commit_by(0, mine[2], 0, 3000) == ErrorCode::none);
    grow();
    CHECK(commit_by(1, others[0], 0, 700) == ErrorCode::none);
    CHECK(world.shard().groups().offset_bytes() > before);
    CHECK(remove_group(world, mine[0]) == ErrorCode::none);
    CHECK(world.shard().groups().offset_bytes() < before);
  }

  TEST_CASE("a request that is refused, or asks for an id, takes no group from its client") {
    World world;
    create_topic(world, "a", 1);
    const auto name = names_of_shard(world, 0, 1)[0];
    const auto member = stable_group(world, name);
    world.restart();
    const GroupEntry& group = *world.shard().groups().find(name);
    auto hostile = join_request(name);
    hostile.protocol_type = "other";
    CHECK(world.call<JoinGroupResponse>(hostile, 3, 1).error_code ==
          ErrorCode::inconsistent_group_protocol);
    CHECK(world.call<JoinGroupResponse>(join_request(name), 4, 1).error_code ==
          ErrorCode::member_id_required);
    CHECK(group.share().is_nobodys);
    CHECK(commit(world, name, "a", 0, 1, "", {1, member}) == ErrorCode::none);
    CHECK_FALSE(group.share().is_nobodys);
    CHECK(group.share().groups == 1);
    CHECK(group.share().offset_bytes > 0);
  }

  TEST_CASE(
      "a group counts for its leader's client from each generation on, and without members "
      "for the last that committed") {
    World world;
    create_topic(world, "a", 1);
    const auto names = names_of_shard(world, 0, 3);
    const auto commit_by = [&](std::size_t home, const std::string& group) {
      return world.call<protocol::OffsetCommitResponse>(commit_request(group, "a", 0, 1), 8, home)
          .topics.at(0)
          .partitions.at(0)
          .error_code;
    };
    const auto member = stable_group(world, names[0]);
    CHECK(commit_by(0, names[1]) == ErrorCode::none);
    world.restart();
    const auto share_of = [&](std::size_t i) {
      return &world.shard().groups().find(names[i])->share();
    };
    CHECK(commit_by(0, names[2]) == ErrorCode::none);
    const GroupShare* const mine = share_of(2);
    CHECK(commit_by(1, names[1]) == ErrorCode::none);
    const GroupShare* const others = share_of(1);
    CHECK(others != mine);
    CHECK_FALSE(others->is_nobodys);
    CHECK(commit_by(0, names[1]) == ErrorCode::none);
    CHECK(share_of(1) == mine);

    const auto hostile = world.begin(join_request(names[0]), 3, 1);
    world.run();
    CHECK(share_of(0) != mine);
    CHECK_FALSE(share_of(0)->is_nobodys);
    const auto again = world.call<JoinGroupResponse>(join_request(names[0], member), 3);
    CHECK(again.leader == member);
    CHECK(world.read<JoinGroupResponse>(*hostile, 3).error_code == ErrorCode::none);
    CHECK(share_of(0) == mine);
    CHECK(mine->groups == 3);
    CHECK(mine->member_bytes == world.shard().groups().member_bytes());
  }

  TEST_CASE("names that an old data directory brings keep nobody from committing") {
    std::int64_t limit = 1 << 20;
    World world({.shards = 1,
                 .configure = [&](BrokerConfig& config) { config.group_offsets_bytes = limit; }});
    create_topic(world, "a", 2);
    const auto name_of = [](int i) { return std::string(1000, 'n') + std::to_string(i); };
    for (int i = 0; i < 10; ++i) CHECK(commit(world, name_of(i), "a", 0, 1) == ErrorCode::none);
    limit = 32 << 10;  // The names alone take more.
    world.restart();
    for (int i = 0; i < 10; ++i) CHECK(commit(world, name_of(i), "a", 0, 2) == ErrorCode::none);
    CHECK(commit(world, name_of(0), "a", 1, 2) == ErrorCode::none);
    CapturedLog log;
    CHECK(commit(world, name_of(10), "a", 0, 1) == ErrorCode::coordinator_not_available);
    CHECK(log.count("group names and committed offsets take") == 1);
  }

  TEST_CASE("a group whose first commit is refused is dropped, however large the commit") {
    World world({.shards = 1,
                 .configure = [](BrokerConfig& config) { config.group_offsets_bytes = 4096; }});
    create_topic(world, "a", 2001);
    auto request = commit_request("g", "a", 0, 1);
    for (PartitionIndex partition = 1; partition < 2001; ++partition) {
      auto place = request.topics[0].partitions[0];
      place.partition_index = partition;
      request.topics[0].partitions.push_back(place);
    }
    const auto answer = world.call<protocol::OffsetCommitResponse>(request, 8);
    CHECK(answer.topics.at(0).partitions.at(2000).error_code != ErrorCode::none);
    world.run();
    CHECK(world.shard().groups().find("g") == nullptr);
  }

  TEST_CASE("a broker that stops answers waiting members, and keeps them") {
    World world;
    const auto member = stable_group(world, "g");
    const auto waits = world.begin(join_request("g"), 3);
    bool stopped = false;
    world.broker().stop([&] { stopped = true; });
    for (int i = 0; i < 1000 && !stopped; ++i) world.pass(1ms);
    CHECK(stopped);
    REQUIRE(waits->answer.has_value());
    CHECK(world.read<JoinGroupResponse>(*waits, 3).error_code ==
          ErrorCode::coordinator_not_available);
    world.pass(120s);
    world.restart();
    CHECK(heartbeat(world, "g", member, 1) == ErrorCode::none);
  }

  TEST_CASE("cancelled: the broker stops while a sync waits, which is told to come again") {
    World world({.shards = 1});
    const auto a = world.begin(join_request("g"), 3), b = world.begin(join_request("g"), 3);
    world.pass(6s);
    const auto joined = world.read<JoinGroupResponse>(*b, 3);
    REQUIRE(joined.leader != joined.member_id);
    SyncGroupRequest sync;
    sync.group_id = "g";
    sync.member_id = joined.member_id;
    sync.generation_id = 1;
    const auto waits = world.begin(sync, 3);
    world.pass(1s);
    CHECK_FALSE(waits->answer.has_value());
    CHECK(world.shard().purgatory().metrics(sync_kind).waiting == 1);
    bool stopped = false;
    world.background_stands_still = true;
    world.broker().stop([&] { stopped = true; });
    world.pass(1ms);
    CHECK(world.shard().purgatory().metrics(sync_kind).cancelled == 1);
    CHECK(world.read<SyncGroupResponse>(*waits, 3).error_code ==
          ErrorCode::coordinator_not_available);
    // The member stays: when the broker is back it is to find itself in its group.
    CHECK(world.shard().groups().find("g")->members().size() == 2);
    world.background_stands_still = false;
    for (int i = 0; i < 1000 && !stopped; ++i) world.pass(1ms);
    CHECK(stopped);
  }

  TEST_CASE("a parked member is told when another connection removes it from the group") {
    World world;
    const auto first = world.begin(join_request("g"), 3, 0);
    const auto second = world.begin(join_request("g"), 3, 1);
    world.pass(6s);
    const auto a = world.read<JoinGroupResponse>(*first, 3);
    const auto b = world.read<JoinGroupResponse>(*second, 3);
    const auto& follower = a.leader == a.member_id ? b : a;
    const auto leave = [&](std::string_view member, std::size_t home) {
      LeaveGroupRequest request;
      request.group_id = "g";
      request.members.push_back({member, std::nullopt, std::nullopt});
      const auto left = world.call<LeaveGroupResponse>(request, 5, home);
      CHECK(left.error_code == ErrorCode::none);
      CHECK(left.members.at(0).error_code == ErrorCode::none);
    };
    SyncGroupRequest sync;
    sync.group_id = "g";
    sync.member_id = follower.member_id;
    sync.generation_id = 1;
    const auto syncing = world.begin(sync, 3, 0);
    CHECK_FALSE(syncing->answer.has_value());
    leave(follower.member_id, 1);
    CHECK(world.read<SyncGroupResponse>(*syncing, 3).error_code == ErrorCode::unknown_member_id);

    // The leader is waited for, so who comes waits; it is told who it is at once.
    const auto told = world.call<JoinGroupResponse>(join_request("g"), 4, 0);
    REQUIRE(told.error_code == ErrorCode::member_id_required);
    const auto joining = world.begin(join_request("g", told.member_id), 4, 0);
    CHECK_FALSE(joining->answer.has_value());
    leave(told.member_id, 1);
    CHECK(world.read<JoinGroupResponse>(*joining, 4).error_code == ErrorCode::unknown_member_id);
  }

  TEST_CASE("JoinGroup 0 has one timeout: its session's is the rebalance's too") {
    World world;
    auto request = join_request("g");
    request.session_timeout_ms = 8'000;
    const auto joined = world.call<JoinGroupResponse>(request, 0);
    CHECK(joined.error_code == ErrorCode::none);
    const auto* group = world.broker().shard_of_group("g").groups().find("g");
    REQUIRE(group != nullptr);
    const auto& member = group->members().at(joined.member_id);
    CHECK(member.session_timeout == 8s);
    CHECK(member.rebalance_timeout == 8s);
    const auto later = world.call<JoinGroupResponse>(join_request("h"), 1);
    const auto* other = world.broker().shard_of_group("h").groups().find("h");
    REQUIRE(other != nullptr);
    CHECK(other->members().at(later.member_id).session_timeout == 10s);
    CHECK(other->members().at(later.member_id).rebalance_timeout == 60s);
  }

  TEST_CASE(
      "assignments of megabytes are made a row on the pool, go to the journal in one piece, and "
      "are there") {
    World world = small_world(1);
    const auto joined = world.call<JoinGroupResponse>(join_request("wide"), 3);
    REQUIRE(joined.error_code == ErrorCode::none);
    const std::string assignment(3 << 20, 'a');
    auto sync = sync_request("wide", joined, assignment);
    const std::size_t held = world.shard().ledger().used();
    world.runs_at_once = false;
    const auto pending = world.begin(sync, 3);
    const auto& journal = world.shard().journal();
    const Lsn before = journal.end_lsn();
    // The pool decodes the request, copies its assignments, and makes the group's row; what the
    // shard does between them is short.
    std::size_t pieces = 0;
    for (int turns = 0; turns < 10 && journal.end_lsn() == before; ++turns) {
      if (world.background().step()) ++pieces;
      if (journal.end_lsn() == before) world.turn();
    }
    CHECK(pieces == 3);
    CHECK(journal.end_lsn() - before > assignment.size());
    // Nobody's request owes the row, which is there until the store has it; then the member's
    // assignment is what is left.
    CHECK(world.shard().ledger().used() > held + assignment.size());
    world.runs_at_once = true;
    world.run();
    CHECK(world.shard().ledger().used() >= held + assignment.size());
    CHECK(world.shard().ledger().used() < held + 2 * assignment.size());
    const auto synced = world.read<SyncGroupResponse>(*pending, 3);
    CHECK(synced.error_code == ErrorCode::none);
    CHECK(synced.assignment.size() == assignment.size());
    world.restart();
    const GroupEntry* const group = world.shard().groups().find("wide");
    REQUIRE(group != nullptr);
    CHECK(group->is(GroupState::stable));
    CHECK(group->members().at(joined.member_id).assignment.size() == assignment.size());
  }

  TEST_CASE(
      "the megabytes that a member says are copied on the pool, and told to its leader there") {
    World world = small_world(1);
    const std::string says(3 << 20, 's');
    auto request = join_request("wide");
    request.protocols.front().metadata = as_bytes(says);
    world.runs_at_once = false;
    const auto pending = world.begin(request, 3);
    // Decoded and copied; copied for the answer, and encoded.
    std::size_t pieces = 0;
    for (int turns = 0; turns < 10 && !pending->answer; ++turns) {
      if (world.background().step()) ++pieces;
      world.turn();
    }
    CHECK(pieces == 4);
    world.runs_at_once = true;
    world.run();
    const auto joined = world.read<JoinGroupResponse>(*pending, 3);
    REQUIRE(joined.members.size() == 1);
    CHECK(joined.members[0].metadata.size() == says.size());
  }

  TEST_CASE("a member that asks in a few bytes for megabytes is answered by way of the pool") {
    World world = small_world(1);
    const auto joined = world.call<JoinGroupResponse>(join_request("wide"), 3);
    REQUIRE(joined.error_code == ErrorCode::none);
    const std::string assignment(3 << 20, 'a');
    auto sync = sync_request("wide", joined, assignment);
    REQUIRE(world.call<SyncGroupResponse>(sync, 3).error_code == ErrorCode::none);
    // Once more, as a follower asks.
    sync.assignments.clear();
    world.runs_at_once = false;
    const auto pending = world.begin(sync, 3);
    world.turn();
    CHECK_FALSE(pending->answer.has_value());
    CHECK(world.background().size() == 1);
    world.runs_at_once = true;
    world.run();
    CHECK(world.read<SyncGroupResponse>(*pending, 3).assignment.size() == assignment.size());
  }

  TEST_CASE("a member's megabytes are copied for DescribeGroups on the pool") {
    World world = small_world(1);
    const auto joined = world.call<JoinGroupResponse>(join_request("wide"), 3);
    REQUIRE(joined.error_code == ErrorCode::none);
    const std::string assignment(3 << 20, 'a');
    REQUIRE(world.call<SyncGroupResponse>(sync_request("wide", joined, assignment), 3).error_code ==
            ErrorCode::none);
    protocol::DescribeGroupsRequest describe;
    describe.groups = {"wide"};
    world.runs_at_once = false;
    const auto pending = world.begin(describe, 5);
    // Copied, then encoded.
    std::size_t pieces = 0;
    for (int turns = 0; turns < 10 && !pending->answer; ++turns) {
      if (world.background().step()) ++pieces;
      world.turn();
    }
    CHECK(pieces == 2);
    world.runs_at_once = true;
    world.run();
    const auto told = world.read<protocol::DescribeGroupsResponse>(*pending, 5);
    REQUIRE(told.groups.size() == 1);
    REQUIRE(told.groups[0].members.size() == 1);
    CHECK(told.groups[0].members[0].member_assignment.size() == assignment.size());
  }

  TEST_CASE(
      "a long assignment is read on the pool for the admin, and partitions that do not exist are "
      "not noted") {
    World world = small_world(1);
    create_topic(world, "t", 2);
    const auto joined = world.call<JoinGroupResponse>(join_request("wide"), 3);
    REQUIRE(joined.error_code == ErrorCode::none);
    constexpr std::int32_t partitions = 50'000;
    Buffer assignment;
    append_be(assignment, std::int16_t{0});  // Its version,
    append_be(assignment, std::int32_t{1});  //   topics, and a name.
    append_be(assignment, std::int16_t{1});
    append_bytes(assignment, as_bytes("t"));
    append_be(assignment, partitions);
    for (std::int32_t i = 0; i < partitions; ++i) append_be(assignment, i);
    const auto sync = sync_request("wide", joined, as_text(assignment));
    REQUIRE(world.call<SyncGroupResponse>(sync, 3).error_code == ErrorCode::none);
    std::optional<GroupStatus> status;
    boost::asio::co_spawn(
        world.shard().executor(), group_status(world.broker(), world.shard(), "wide", 0),
        [&](std::exception_ptr, std::optional<GroupStatus> s) { status = std::move(s); });
    world.turn();
    CHECK(world.background().size() == 1);
    world.run();
    REQUIRE(status);
    REQUIRE(status->members.size() == 1);
    REQUIRE(status->members[0].assigned.size() == 1);
    CHECK(status->members[0].assigned[0].partitions.size() == partitions);
    REQUIRE(status->offsets.size() == 2);
    CHECK(status->offsets[1].member == joined.member_id);
  }

  TEST_CASE("a group whose record is on its way to the journal is deleted behind it") {
    World world = small_world(1);
    const auto joined = world.call<JoinGroupResponse>(join_request("wide"), 3);
    REQUIRE(joined.error_code == ErrorCode::none);
    const std::string assignment(3 << 20, 'a');
    const auto sync = sync_request("wide", joined, assignment);
    world.runs_at_once = false;
    const auto synced = world.begin(sync, 3);
    // Decoded and copied; the pool has still to make the group's row.
    std::size_t pieces = 0;
    for (int turns = 0; turns < 10 && pieces < 2; ++turns) {
      if (world.background().step()) ++pieces;
      world.turn();
    }
    REQUIRE(world.background().size() == 1);
    LeaveGroupRequest leave;
    leave.group_id = "wide";
    leave.member_id = joined.member_id;
    const auto left = world.begin(leave, 2);
    world.turn();
    CHECK(world.read<LeaveGroupResponse>(*left, 2).error_code == ErrorCode::none);
    protocol::DeleteGroupsRequest remove;
    remove.groups_names = {"wide"};
    const auto removed = world.begin(remove, 2);
    const auto late = world.begin(remove, 2);
    world.turn();
    CHECK(count_waiting(world, delete_groups_kind) == 2);
    CHECK(world.shard().groups().find("wide")->is(GroupState::empty));
    world.runs_at_once = true;
    world.run();
    CHECK(synced->answer.has_value());
    CHECK(world.read<protocol::DeleteGroupsResponse>(*removed, 2).results.at(0).error_code ==
          ErrorCode::none);
    CHECK(world.read<protocol::DeleteGroupsResponse>(*late, 2).results.at(0).error_code ==
          ErrorCode::group_id_not_found);
    CHECK(count_waiting(world, delete_groups_kind) == 0);
    world.restart();
    CHECK(world.shard().groups().find("wide") == nullptr);
  }

  TEST_CASE("a stored group that is used again before its removal stays, until its next end") {
    World world = small_world(1);
    create_topic(world, "t");
    const auto leave_alone = [&](std::string_view member) {
      LeaveGroupRequest leave;
      leave.group_id = "g";
      leave.member_id = member;
      REQUIRE(world.call<LeaveGroupResponse>(leave, 2).error_code == ErrorCode::none);
      world.run();
    };
    leave_alone(stable_group(world, "g"));
    auto& groups = world.shard().groups();
    REQUIRE(groups.find("g") != nullptr);
    CHECK(groups.find("g")->awaits_removal);
    // Somebody is back when its time has come.
    const auto member = stable_group(world, "g");
    const auto wait = world.shard().config().offsets_retention_check;
    for (auto waited = 0ms; waited <= wait; waited += 5s) {
      world.pass(5s);
      REQUIRE(heartbeat(world, "g", member, 3) == ErrorCode::none);
    }
    REQUIRE(groups.find("g") != nullptr);
    CHECK_FALSE(groups.find("g")->awaits_removal);
    leave_alone(member);
    CHECK(groups.find("g")->awaits_removal);
    world.pass(wait);
    CHECK(groups.find("g") == nullptr);
  }

  TEST_CASE("the pool stores a group's megabytes, and no checkpoint begins before that is done") {
    World world = small_world(1);
    const auto joined = world.call<JoinGroupResponse>(join_request("wide"), 3);
    REQUIRE(joined.error_code == ErrorCode::none);
    const std::string assignment(3 << 20, 'a');
    const auto sync = sync_request("wide", joined, assignment);
    Shard& shard = world.shard();
    const auto before = shard.checkpointer().checkpoints_total();
    world.runs_at_once = false;
    const auto synced = world.begin(sync, 3);
    for (int pieces = 0; pieces < 100 && !shard.is_applying(); ++pieces) {
      if (!world.background().step()) world.turn();
    }
    REQUIRE(shard.is_applying());
    // It is durable, and its members are not told yet.
    CHECK(shard.groups().find("wide")->is(GroupState::completing_rebalance));
    shard.checkpointer().run_now();
    CHECK_FALSE(shard.checkpointer().busy());
    world.runs_at_once = true;
    world.run();
    CHECK_FALSE(shard.is_applying());
    CHECK(world.read<SyncGroupResponse>(*synced, 3).error_code == ErrorCode::none);
    CHECK(shard.checkpointer().checkpoints_total() == before + 1);
    world.restart();  // Nothing of it is in the journal any more.
    const GroupEntry* const group = world.shard().groups().find("wide");
    REQUIRE(group != nullptr);
    CHECK(group->is(GroupState::stable));
    CHECK(group->members().at(joined.member_id).assignment.size() == assignment.size());
  }

  TEST_CASE("a stop waits for the megabytes of a group, and the next start finds them") {
    World world = small_world(1);
    const auto joined = world.call<JoinGroupResponse>(join_request("wide"), 3);
    REQUIRE(joined.error_code == ErrorCode::none);
    const std::string assignment(3 << 20, 'a');
    const auto sync = sync_request("wide", joined, assignment);
    world.runs_at_once = false;
    const auto synced = world.begin(sync, 3);
    for (int pieces = 0; pieces < 100 && !world.shard().is_applying(); ++pieces) {
      if (!world.background().step()) world.turn();
    }
    REQUIRE(world.shard().is_applying());
    world.runs_at_once = true;
    world.stop();
    world.restart();
    REQUIRE(world.shard().groups().find("wide") != nullptr);
    CHECK(world.shard().groups().find("wide")->is(GroupState::stable));
  }

  TEST_CASE("a short record of a group does not wait for the megabytes of another one") {
    World world = small_world(1);
    const auto wide = world.call<JoinGroupResponse>(join_request("wide"), 3);
    REQUIRE(wide.error_code == ErrorCode::none);
    const auto other = world.call<JoinGroupResponse>(join_request("other"), 3);
    REQUIRE(other.error_code == ErrorCode::none);
    const std::string megabytes(3 << 20, 'a'), few("b");
    world.runs_at_once = false;
    const auto long_sync = sync_request("wide", wide, megabytes);
    const auto short_sync = sync_request("other", other, few);
    const auto first = world.begin(long_sync, 3);
    const auto second = world.begin(short_sync, 3);
    const auto& journal = world.shard().journal();
    const Lsn before = journal.end_lsn();
    for (int pieces = 0; pieces < 10 && journal.end_lsn() == before; ++pieces) {
      // Both requests go on in here when the pool has copied their assignments, the long one first.
      while (world.background().step()) {
      }
      if (journal.end_lsn() == before) world.turn();
    }
    CHECK(journal.end_lsn() - before > 0);
    CHECK(journal.end_lsn() - before < megabytes.size());
    world.runs_at_once = true;
    world.run();
    CHECK(world.read<SyncGroupResponse>(*first, 3).error_code == ErrorCode::none);
    CHECK(world.read<SyncGroupResponse>(*second, 3).error_code == ErrorCode::none);
  }

  TEST_CASE(
      "beyond 64 MB of groups' records on their way to the journal a leader is to come again") {
    World world = small_world(1);
    constexpr std::size_t count = 22;  // Of 3 MiB each.
    const std::string megabytes(3 << 20, 'a');
    std::vector<std::string> groups;
    for (std::size_t i = 0; i < count; ++i) groups.push_back("wide" + std::to_string(i));
    std::vector<JoinGroupResponse> joined;
    for (const auto& group : groups) {
      joined.push_back(world.call<JoinGroupResponse>(join_request(group), 3));
      REQUIRE(joined.back().error_code == ErrorCode::none);
    }
    CapturedLog log;
    world.runs_at_once = false;
    std::vector<std::shared_ptr<World::Pending>> pending;
    for (std::size_t i = 0; i < count; ++i) {
      pending.push_back(world.begin(sync_request(groups[i], joined[i], megabytes), 3));
    }
    // The requests go on in here, when the pool has decoded them and copied their assignments.
    const auto& journal = world.shard().journal();
    const Lsn before = journal.end_lsn();
    for (int pieces = 0; pieces < 10 && journal.end_lsn() == before; ++pieces) {
      while (world.background().step()) {
      }
      if (journal.end_lsn() == before) world.turn();
    }
    world.runs_at_once = true;
    world.run();
    CHECK(log.count("are on their way to the journal") == 1);
    CHECK(world.read<SyncGroupResponse>(*pending.front(), 3).error_code == ErrorCode::none);
    CHECK(world.read<SyncGroupResponse>(*pending.back(), 3).error_code ==
          ErrorCode::coordinator_not_available);
  }

  TEST_CASE("a group of 500 members rebalances in one round of the journal") {
    World world;
    std::vector<std::shared_ptr<World::Pending>> joins;
    for (std::size_t i = 0; i < 500; ++i) {
      joins.push_back(world.begin(join_request("g"), 3, i % 2));
    }
    world.pass(6s);
    for (std::size_t i = 0; i < joins.size(); ++i) {
      const auto joined = world.read<JoinGroupResponse>(*joins[i], 3);
      CHECK(joined.generation_id == 1);
      if (joined.leader == joined.member_id) CHECK(joined.members.size() == 500);
    }
  }
}

}  // namespace tarry::broker::test
