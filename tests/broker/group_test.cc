#include "broker/groups/group.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "group_world.h"
#include "storage/journal.h"
#include "tests/captured_log.h"

namespace tarry::broker::test {
namespace {

const purgatory::KindMetrics& joins(GroupWorld& world) {
  return world.purgatory().metrics(join_kind);
}
const purgatory::KindMetrics& syncs(GroupWorld& world) {
  return world.purgatory().metrics(sync_kind);
}
const purgatory::KindMetrics& heartbeats(GroupWorld& world) {
  return world.purgatory().metrics(heartbeat_kind);
}

ErrorCode error_of(const Join& join) {
  REQUIRE(join->has_answer());
  return join->answer()->error_code;
}
ErrorCode error_of(const Sync& sync) {
  REQUIRE(sync->has_answer());
  return sync->answer()->error_code;
}

Says as(const std::string& member_id) {
  Says says;
  says.member_id = member_id;
  return says;
}
Says as_static(const std::string& instance, const std::string& member_id = {}) {
  Says says;
  says.instance_id = instance;
  says.member_id = member_id;
  says.version = 5;
  return says;
}

std::string member_id_of(const Join& join) {
  REQUIRE(join->has_answer());
  return join->answer()->member_id;
}

}  // namespace

TEST_SUITE("group") {
  // --- Empty -> PreparingRebalance -> CompletingRebalance

  TEST_CASE("a group's first member waits for the initial delay, and leads") {
    GroupWorld world;
    CHECK(world.state() == GroupState::empty);
    const auto join = world.join("a");
    CHECK(world.state() == GroupState::preparing_rebalance);
    world.pass(2999ms);
    CHECK_FALSE(join->has_answer());
    world.pass(1ms);
    CHECK(error_of(join) == ErrorCode::none);
    CHECK(world.state() == GroupState::completing_rebalance);
    const auto& answer = *join->answer();
    CHECK(answer.generation_id == 1);
    CHECK(answer.leader == answer.member_id);
    CHECK(answer.member_id.starts_with("client-") == false);  // It is named "a".
    CHECK(answer.member_id.starts_with("a-"));
    CHECK(answer.protocol_type == "consumer");
    CHECK(answer.protocol_name == "range");
    CHECK(answer.members.size() == 1);
  }

  TEST_CASE("with no initial delay the first member is answered at once") {
    GroupWorld world;
    world.limits.group_initial_rebalance_delay = 0ms;
    CHECK(error_of(world.join("a")) == ErrorCode::none);
  }

  TEST_CASE(
      "the initial delay begins anew while newcomers come, and ends with the rebalance timeout") {
    GroupWorld world;
    Says says;
    says.rebalance = 8s;
    std::vector<Join> all{world.join(says)};
    for (int i = 0; i < 3; ++i) {
      world.pass(2s);
      all.push_back(world.join(says));
      CHECK_FALSE(all.front()->has_answer());
    }
    world.pass(1999ms);  // 7.999 s after the first; without the bound it would be 9 s.
    CHECK_FALSE(all.front()->has_answer());
    world.pass(1ms);
    for (const auto& each : all) CHECK(error_of(each) == ErrorCode::none);
    CHECK(world.group().members().size() == 4);
  }

  TEST_CASE("only the leader gets the list of members") {
    GroupWorld world;
    Says says;
    says.protocols = {{"range", "meta-a"}};
    const auto a = world.join(says);
    says.protocols = {{"range", "meta-b"}};
    const auto b = world.join(says);
    world.pass(6s);
    CHECK(a->answer()->leader == a->answer()->member_id);
    CHECK(b->answer()->leader == a->answer()->member_id);
    CHECK(b->answer()->members.empty());
    std::set<std::string> told;
    for (const auto& member : a->answer()->members) {
      told.emplace(as_text(member.metadata));
      // Nothing is copied for the answer, however much all members say together.
      CHECK(member.metadata.data() ==
            world.group().members().at(member.member_id).protocols.front().metadata.data());
    }
    CHECK(told == std::set<std::string>{"meta-a", "meta-b"});
  }

  // --- CompletingRebalance -> Stable

  TEST_CASE("assignments are given when they are durable, and not before") {
    GroupWorld world;
    const auto a = world.join("a"), b = world.join("b");
    world.pass(6s);
    const auto id_a = member_id_of(a), id_b = member_id_of(b);
    const auto waits = world.sync(id_b, 1);
    const auto leads = world.sync(id_a, 1, {{id_a, "for a"}, {id_b, "for b"}, {"nobody", "x"}});
    CHECK(world.state() == GroupState::completing_rebalance);
    CHECK_FALSE(waits->has_answer());
    CHECK_FALSE(leads->has_answer());
    REQUIRE(world.storing.size() == 1);
    CHECK(world.storing.front().first.members.size() == 2);
    world.store_is_durable();
    CHECK(world.state() == GroupState::stable);
    CHECK(as_text(leads->answer()->assignment) == "for a");
    CHECK(as_text(waits->answer()->assignment) == "for b");
    // Shared, for there may be megabytes.
    CHECK(waits->answer()->assignment.data() == world.group().members().at(id_b).assignment.data());
    CHECK(waits->answer()->protocol_name == "range");
  }

  TEST_CASE("a member that the leader does not name gets an empty assignment") {
    GroupWorld world;
    const auto a = world.join("a"), b = world.join("b");
    world.pass(6s);
    const auto waits = world.sync(member_id_of(b), 1);
    world.sync(member_id_of(a), 1, {{member_id_of(a), "all"}});
    world.store_is_durable();
    CHECK(error_of(waits) == ErrorCode::none);
    CHECK(waits->answer()->assignment.empty());
  }

  TEST_CASE("a follower that asks late, in a stable group, gets its assignment") {
    GroupWorld world;
    const auto a = world.join("a"), b = world.join("b");
    world.pass(6s);
    world.sync(member_id_of(a), 1, {{member_id_of(b), "late"}});
    world.store_is_durable();
    CHECK(as_text(world.sync(member_id_of(b), 1)->answer()->assignment) == "late");
  }

  TEST_CASE("when the journal refuses the assignments all are to join again") {
    GroupWorld world;
    const auto a = world.join("a");
    world.pass(3s);
    const auto sync = world.sync(member_id_of(a), 1, {});
    world.store_has_failed(ErrorCode::coordinator_not_available);
    CHECK(error_of(sync) == ErrorCode::coordinator_not_available);
    CHECK(world.state() == GroupState::preparing_rebalance);
    const auto again = world.join(as(member_id_of(a)));
    CHECK(error_of(again) == ErrorCode::none);
    CHECK(again->answer()->generation_id == 2);
  }

  TEST_CASE("assignments that become durable after a rebalance has begun are given to nobody") {
    GroupWorld world;
    const auto a = world.join("a");
    world.pass(3s);
    const auto sync = world.sync(member_id_of(a), 1, {{member_id_of(a), "old"}});
    const auto b = world.join("b");
    CHECK(world.state() == GroupState::preparing_rebalance);
    CHECK(error_of(sync) == ErrorCode::rebalance_in_progress);
    world.store_is_durable();
    CHECK(world.state() == GroupState::preparing_rebalance);
    const auto again = world.join(as(member_id_of(a)));
    CHECK(error_of(again) == ErrorCode::none);
    const auto next = world.sync(member_id_of(a), 2, {});
    world.store_is_durable();
    CHECK(next->answer()->assignment.empty());
  }

  TEST_CASE("assignments that become durable late are not taken for those of the next generation") {
    GroupWorld world;
    const auto a = world.join("a");
    world.pass(3s);
    const auto id_a = member_id_of(a);
    world.sync(id_a, 1, {{id_a, "old"}});
    const auto b = world.join("b");
    world.join(as(id_a));
    REQUIRE(b->has_answer());
    REQUIRE(world.state() == GroupState::completing_rebalance);
    const auto waits = world.sync(member_id_of(b), 2);
    world.store_is_durable();  // The first generation's.
    CHECK(world.state() == GroupState::completing_rebalance);
    CHECK_FALSE(waits->has_answer());
    world.settle(id_a);
    CHECK(as_text(waits->answer()->assignment) == member_id_of(b));
  }

  TEST_CASE("an assignment of the previous generation is not valid in the next") {
    GroupWorld world;
    const auto ids = world.stable(2);
    const auto leader = world.group().leader();
    const auto& other = ids[0] == leader ? ids[1] : ids[0];
    const auto first = world.join(as(leader)), second = world.join(as(other));
    REQUIRE(second->has_answer());
    world.sync(leader, 2, {{leader, "everything"}});
    world.store_is_durable();
    CHECK(world.sync(other, 2)->answer()->assignment.empty());
  }

  // --- Stable -> PreparingRebalance

  TEST_CASE("a stable group rebalances when a member comes") {
    GroupWorld world;
    const auto a = world.stable_alone();
    const auto b = world.join("b");
    CHECK(world.state() == GroupState::preparing_rebalance);
    CHECK_FALSE(b->has_answer());
    CHECK(world.heartbeat(a, 1) == ErrorCode::rebalance_in_progress);
    const auto again = world.join(as(a));  // All are in now: nothing is waited for.
    CHECK(again->answer()->generation_id == 2);
    CHECK(b->answer()->generation_id == 2);
    CHECK(joins(world).expired == 0);
  }

  TEST_CASE("a stable group rebalances when a member leaves, is lost, or offers something else") {
    GroupWorld world;
    auto ids = world.stable(3);
    CHECK(world.leave(ids[2]) == ErrorCode::none);
    CHECK(world.state() == GroupState::preparing_rebalance);
    auto a = world.join(as(ids[0])), b = world.join(as(ids[1]));
    CHECK(a->answer()->generation_id == 2);
    world.settle(world.group().leader());

    Says other = as(ids[1]);
    other.protocols = {{"range", "other topics"}};
    b = world.join(other);
    CHECK(world.state() == GroupState::preparing_rebalance);
    a = world.join(as(ids[0]));
    CHECK(b->answer()->generation_id == 3);
    world.settle(world.group().leader());

    for (int i = 0; i < 12; ++i) {
      world.pass(1s);
      world.heartbeat(ids[0], 3);
    }
    CHECK(world.state() == GroupState::preparing_rebalance);
    CHECK(world.group().members().size() == 1);
    CHECK(heartbeats(world).expired == 1);
  }

  TEST_CASE(
      "the leader's joining again is a rebalance, and a follower's without a change is answered "
      "with the generation") {
    GroupWorld world;
    const auto ids = world.stable(2);
    const auto& leader = world.group().leader();
    const auto& other = leader == ids[0] ? ids[1] : ids[0];
    const auto told = world.join(as(other));
    CHECK(world.state() == GroupState::stable);
    CHECK(error_of(told) == ErrorCode::none);
    CHECK(told->answer()->generation_id == 1);
    CHECK(told->answer()->members.empty());
    CHECK(told->answer()->leader == leader);
    const auto again = world.join(as(leader));
    CHECK(world.state() == GroupState::preparing_rebalance);
    CHECK_FALSE(again->has_answer());
  }

  TEST_CASE("a rebalance timeout below the initial delay does not shorten it") {
    GroupWorld world;
    Says says;
    says.rebalance = 100ms;
    const auto first = world.join(says);
    world.pass(2s);
    const auto second = world.join(says);  // It came, but there is no time left to wait on for.
    world.pass(999ms);
    CHECK_FALSE(first->has_answer());
    world.pass(1ms);
    CHECK(error_of(first) == ErrorCode::none);
    CHECK(error_of(second) == ErrorCode::none);
    CHECK(world.group().members().size() == 2);
  }

  // --- PreparingRebalance ->

  TEST_CASE("a member that does not rejoin within the rebalance timeout is removed") {
    GroupWorld world;
    Says says;
    says.rebalance = 5s;
    says.session = 20s;
    const auto ids = world.stable(3, says);
    const auto expired = joins(world).expired;
    says.member_id = ids[0];
    const auto a = world.join(says);  // The leader: a rebalance.
    says.member_id = ids[1];
    const auto b = world.join(says);
    world.pass(4999ms);
    CHECK_FALSE(a->has_answer());
    world.pass(1ms);
    CHECK(error_of(a) == ErrorCode::none);
    CHECK(error_of(b) == ErrorCode::none);
    CHECK(world.group().members().size() == 2);
    CHECK(world.heartbeat(ids[2], 1) == ErrorCode::unknown_member_id);
    CHECK(joins(world).expired == expired + 2);
    CHECK(joins(world).late_ms.total().max() == 0);
  }

  TEST_CASE("very many members that do not rejoin are removed in steps, and the others go on") {
    GroupWorld world;
    Says says;
    says.rebalance = 5s;
    says.session = 20s;
    says.protocols.clear();
    for (int i = 0; i < 20; ++i) says.protocols.emplace_back("protocol-" + std::to_string(i), "");
    world.stable(200, says);
    says.member_id = world.group().leader();
    const auto back = world.join(says);
    world.pass(5000ms);
    int steps = 0;
    for (auto before = world.group().members().size(); !back->has_answer(); ++steps) {
      REQUIRE(steps < 100);
      world.pass(1ms);
      const auto now = world.group().members().size();
      CHECK(before - now < 60);  // With their protocols, a thousand things or so.
      before = now;
    }
    CHECK(steps >= 4);
    CHECK(error_of(back) == ErrorCode::none);
    CHECK(world.group().members().size() == 1);
    CHECK(world.group().leader() == says.member_id);
    CHECK(back->answer()->generation_id == 2);
  }

  TEST_CASE("a rebalance waits for the longest rebalance timeout of all members, in it or not") {
    for (const bool longest_is_absent : {true, false}) {
      CAPTURE(longest_is_absent);
      GroupWorld world;
      Says there, absent;
      there.session = absent.session = 30s;
      there.rebalance = longest_is_absent ? 5s : 9s;
      absent.rebalance = longest_is_absent ? 9s : 5s;
      const auto a = world.join(there), b = world.join(absent);
      world.pass(6s);
      world.settle(member_id_of(a));
      there.member_id = member_id_of(a);
      const auto waits = world.join(there);  // The leader: a rebalance.
      world.pass(8999ms);
      CHECK_FALSE(waits->has_answer());
      CHECK(world.group().members().size() == 2);
      world.pass(1ms);
      CHECK(error_of(waits) == ErrorCode::none);
      CHECK(waits->answer()->members.size() == 1);
      CHECK(world.heartbeat(member_id_of(b), 1) == ErrorCode::unknown_member_id);
    }
  }

  TEST_CASE("a generation is waited for as long, by members that have sent SyncGroup") {
    GroupWorld world;
    Says short_one, long_one;
    short_one.session = long_one.session = 30s;
    short_one.rebalance = 5s;
    long_one.rebalance = 9s;
    const auto a = world.join(short_one), b = world.join(long_one);
    world.pass(5s);
    REQUIRE(b->has_answer());
    const auto waits = world.sync(member_id_of(b), 1);
    world.pass(8999ms);
    CHECK_FALSE(waits->has_answer());
    world.pass(1ms);
    CHECK(error_of(waits) == ErrorCode::rebalance_in_progress);
  }

  TEST_CASE("a member that gives only one timeout, as in JoinGroup 0, has it for both") {
    GroupWorld world;
    Says one;
    one.version = 0;
    one.session = 7s;
    one.rebalance = -1ms;
    Says other;
    other.session = 30s;
    other.rebalance = 1s;
    const auto a = world.join(one), b = world.join(other);
    world.pass(6s);
    world.settle(member_id_of(a));
    CHECK(world.group().members().find(member_id_of(a))->second.rebalance_timeout == 7s);
    one.member_id = member_id_of(a);
    const auto waits = world.join(one);
    world.pass(6999ms);
    CHECK_FALSE(waits->has_answer());
    world.pass(1ms);
    CHECK(error_of(waits) == ErrorCode::none);
    CHECK(world.group().members().size() == 1);
    world.settle(one.member_id);
    world.pass(6999ms);
    CHECK(world.group().members().size() == 1);
    world.pass(1ms);
    CHECK(world.group().members().empty());
  }

  TEST_CASE("a group whose last member has gone is empty in a new generation, and stored as that") {
    GroupWorld world;
    const auto a = world.stable_alone();
    CHECK(world.leave(a) == ErrorCode::none);
    CHECK(world.state() == GroupState::empty);
    CHECK(world.group().generation() == 2);
    CHECK(world.group().leader().empty());
    REQUIRE(world.storing.size() == 1);
    CHECK(world.storing.front().first.members.empty());
    CHECK(world.unused > 0);
    world.store_is_durable();
    world.restart();
    CHECK(world.state() == GroupState::empty);
    CHECK(world.group().generation() == 2);
  }

  TEST_CASE("a rebalance waits for a client that was given a member id") {
    GroupWorld world;
    const auto a = world.stable_alone();
    Says b;
    b.version = 4;
    const auto first = world.join(b);
    CHECK(error_of(first) == ErrorCode::member_id_required);
    CHECK(world.state() == GroupState::stable);  // It may never come.
    const auto again = world.join(as(a));
    CHECK(world.state() == GroupState::preparing_rebalance);
    CHECK_FALSE(again->has_answer());
    b.member_id = member_id_of(first);
    const auto second = world.join(b);
    CHECK(error_of(second) == ErrorCode::none);
    CHECK(error_of(again) == ErrorCode::none);
    CHECK(second->answer()->member_id == b.member_id);
  }

  TEST_CASE("a client that was given a member id and does not come is forgotten with its session") {
    GroupWorld world;
    Says b;
    b.version = 4;
    b.session = 7s;
    const auto first = world.join(b);
    CHECK(world.group().pending_members() == 1);
    world.pass(6999ms);
    CHECK(world.group().pending_members() == 1);
    world.pass(1ms);
    CHECK(world.group().pending_members() == 0);
    CHECK(world.unused == 1);
    b.member_id = member_id_of(first);
    CHECK(error_of(world.join(b)) == ErrorCode::unknown_member_id);
  }

  TEST_CASE("a rebalance waits for an expected member until its session ends, no longer") {
    GroupWorld world;
    const auto a = world.stable_alone();
    const auto expired = joins(world).expired;
    Says b;
    b.version = 4;
    b.session = 7s;
    CHECK(error_of(world.join(b)) == ErrorCode::member_id_required);
    const auto waits = world.join(as(a));
    world.pass(6999ms);
    CHECK_FALSE(waits->has_answer());
    world.pass(1ms);
    CHECK(error_of(waits) == ErrorCode::none);
    CHECK(waits->answer()->generation_id == 2);
    CHECK(joins(world).expired == expired);  // It is not the rebalance timeout, which is 60 s.
    CHECK(world.group().members().size() == 1);
  }

  TEST_CASE("a rebalance does not wait for an expected member that leaves") {
    GroupWorld world;
    const auto a = world.stable_alone();
    Says b;
    b.version = 4;
    const auto expected = member_id_of(world.join(b));
    const auto waits = world.join(as(a));
    CHECK_FALSE(waits->has_answer());
    CHECK(world.leave(expected) == ErrorCode::none);
    CHECK(error_of(waits) == ErrorCode::none);
  }

  // --- CompletingRebalance -> PreparingRebalance

  TEST_CASE("a member that leaves while the generation completes: the others are to join again") {
    for (const bool leader_leaves : {true, false}) {
      CAPTURE(leader_leaves);
      GroupWorld world;
      const auto a = world.join("a"), b = world.join("b"), c = world.join("c");
      world.pass(6s);
      REQUIRE(world.state() == GroupState::completing_rebalance);
      const auto leaves = member_id_of(leader_leaves ? a : b), stays = member_id_of(c);
      const auto waits = world.sync(stays, 1);
      CHECK_FALSE(waits->has_answer());
      CHECK(world.leave(leaves) == ErrorCode::none);
      CHECK(world.state() == GroupState::preparing_rebalance);
      CHECK(error_of(waits) == ErrorCode::rebalance_in_progress);
      CHECK(world.heartbeat(stays, 1) == ErrorCode::rebalance_in_progress);
      const auto left = member_id_of(leader_leaves ? b : a);
      const auto first = world.join(as(stays)), second = world.join(as(left));
      CHECK(error_of(first) == ErrorCode::none);
      CHECK(second->answer()->generation_id == 2);
      CHECK(world.group().members().size() == 2);
      world.settle(world.group().leader());
    }
  }

  TEST_CASE("a member that is lost while the generation completes: the others are to join again") {
    for (const bool leader_is_lost : {true, false}) {
      CAPTURE(leader_is_lost);
      GroupWorld world;
      Says says;
      const auto a = world.join(says), b = world.join(says), c = world.join(says);
      world.pass(6s);
      REQUIRE(world.state() == GroupState::completing_rebalance);
      const auto stays = member_id_of(c), left = member_id_of(leader_is_lost ? b : a);
      const auto waits = world.sync(stays, 1);
      world.pass(6s);
      CHECK(world.heartbeat(left, 1) == ErrorCode::none);
      world.pass(3999ms);
      CHECK(world.state() == GroupState::completing_rebalance);
      CHECK_FALSE(waits->has_answer());
      world.pass(1ms);  // The session of the third: 10 s.  The rebalance timeout is 60 s.
      CHECK(world.state() == GroupState::preparing_rebalance);
      CHECK(error_of(waits) == ErrorCode::rebalance_in_progress);
      CHECK(world.heartbeat(left, 1) == ErrorCode::rebalance_in_progress);
      CHECK(heartbeats(world).expired >= 1);
      const auto first = world.join(as(stays)), second = world.join(as(left));
      CHECK(error_of(first) == ErrorCode::none);
      CHECK(second->answer()->generation_id == 2);
      CHECK(world.group().members().size() == 2);
      world.settle(world.group().leader());
    }
  }

  TEST_CASE(
      "a leader that does not bring assignments is removed, and the waiting members join again") {
    GroupWorld world;
    Says says;
    says.rebalance = 5s;
    says.session = 30s;
    const auto a = world.join(says), b = world.join(says);
    world.pass(5s);
    REQUIRE(a->has_answer());
    const auto waits = world.sync(member_id_of(b), 1);
    world.pass(4999ms);
    CHECK_FALSE(waits->has_answer());
    CHECK(world.heartbeat(member_id_of(a), 1) == ErrorCode::none);  // It lives, and does not sync.
    world.pass(1ms);
    CHECK(error_of(waits) == ErrorCode::rebalance_in_progress);
    CHECK(syncs(world).expired == 1);
    CHECK(world.group().members().size() == 1);
    says.member_id = member_id_of(b);
    const auto again = world.join(says);
    CHECK(again->answer()->leader == member_id_of(b));
  }

  TEST_CASE("a follower that does not ask for its assignment is removed from the stable group") {
    GroupWorld world;
    Says says;
    says.rebalance = 5s;
    says.session = 30s;
    const auto a = world.join(says), b = world.join(says);
    world.pass(5s);
    world.sync(member_id_of(a), 1, {});
    world.store_is_durable();
    CHECK(world.state() == GroupState::stable);
    world.pass(5001ms);
    CHECK(world.state() == GroupState::preparing_rebalance);
    CHECK(world.sync(member_id_of(b), 1)->answer()->error_code == ErrorCode::unknown_member_id);
  }

  TEST_CASE("very many followers that do not ask for their assignment are removed in steps") {
    GroupWorld world;
    Says says;
    says.rebalance = 5s;
    says.session = 20s;
    says.protocols.clear();
    for (int i = 0; i < 20; ++i) says.protocols.emplace_back("protocol-" + std::to_string(i), "");
    std::vector<Join> joins;
    for (int i = 0; i < 200; ++i) joins.push_back(world.join(says));
    while (!joins.front()->has_answer()) world.pass(1ms);
    const std::string leader = world.group().leader();
    const auto led = world.sync(leader, 1, {{leader, "all"}});
    world.store_is_durable();
    REQUIRE(world.state() == GroupState::stable);
    world.pass(5000ms);
    CHECK(world.state() == GroupState::stable);
    CHECK(world.group().members().size() == 200);
    int steps = 0;
    for (std::size_t before = 200; before > 1; ++steps) {
      REQUIRE(steps < 100);
      world.pass(1ms);
      const auto now = world.group().members().size();
      CHECK(before - now < 60);
      before = now;
    }
    CHECK(steps >= 4);
    CHECK(world.heartbeat(leader, 1) == ErrorCode::rebalance_in_progress);
    // It is not waited for longer than until it joins.
    says.member_id = leader;
    const auto back = world.join(says);
    CHECK(error_of(back) == ErrorCode::none);
    CHECK(back->answer()->generation_id == 2);
  }

  TEST_CASE("a member that missed the answer to its join gets it once more") {
    GroupWorld world;
    const auto a = world.join("a"), b = world.join("b");
    world.pass(6s);
    const auto again = world.join(as(member_id_of(b)));
    CHECK(world.state() == GroupState::completing_rebalance);
    CHECK(again->answer()->generation_id == 1);
    CHECK(again->answer()->members.empty());
    const auto leader = world.join(as(member_id_of(a)));
    CHECK(leader->answer()->members.size() == 2);
    Says other = as(member_id_of(b));
    other.protocols = {{"range", "news"}};
    CHECK_FALSE(world.join(other)->has_answer());
    CHECK(world.state() == GroupState::preparing_rebalance);
  }

  TEST_CASE("a store that takes longer than the rebalance timeout is waited for") {
    GroupWorld world;
    Says says;
    says.rebalance = 100ms;
    const auto a = world.join(says), b = world.join(says);
    world.pass(3s);
    const auto waits = world.sync(member_id_of(b), 1);  // Parked while the leader still owes.
    world.pass(99ms);
    const auto leads = world.sync(member_id_of(a), 1, {{member_id_of(b), "yours"}});
    world.pass(4999ms);
    CHECK_FALSE(waits->has_answer());
    CHECK_FALSE(leads->has_answer());
    world.store_is_durable();
    CHECK(error_of(leads) == ErrorCode::none);
    CHECK(as_text(waits->answer()->assignment) == "yours");
    CHECK(world.state() == GroupState::stable);
    world.pass(5s);  // Nothing of the waiting is left over.
    CHECK(world.state() == GroupState::stable);
  }

  TEST_CASE("if the store is late, members get COORDINATOR_NOT_AVAILABLE, and all join again") {
    GroupWorld world;
    Says says;
    says.rebalance = 60s;
    const auto a = world.join(says), b = world.join(says);
    world.pass(6s);
    const auto waits = world.sync(member_id_of(b), 1);
    const auto leads = world.sync(member_id_of(a), 1, {});
    world.pass(world.limits.offsets_commit_timeout - 1ms);
    CHECK_FALSE(waits->has_answer());
    world.pass(1ms);
    CHECK(error_of(waits) == ErrorCode::coordinator_not_available);
    CHECK(error_of(leads) == ErrorCode::coordinator_not_available);
    CHECK(world.state() == GroupState::preparing_rebalance);
    CHECK(world.group().members().size() == 2);
    says.member_id = member_id_of(a);
    const auto again = world.join(says);
    says.member_id = member_id_of(b);
    world.join(says);
    CHECK(error_of(again) == ErrorCode::none);
    const auto second = world.sync(member_id_of(a), 2, {});
    world.store_is_durable();
    CHECK(error_of(second) == ErrorCode::none);
  }

  TEST_CASE("a store is late even if all members that waited for it have left") {
    GroupWorld world;
    const auto a = world.join("a");
    world.pass(3s);
    {
      const auto goes = world.sync(member_id_of(a), 1, {});
      goes->cancel();
      world.run();
    }
    world.pass(world.limits.offsets_commit_timeout + 1ms);
    CHECK(world.state() == GroupState::preparing_rebalance);
  }

  TEST_CASE(
      "a client that asks after the rebalance timeout is not a member, whatever the journal does") {
    GroupWorld world;
    Says says;
    says.rebalance = 100ms;
    const auto a = world.join(says), b = world.join(says);
    world.pass(3s);
    const auto leads = world.sync(member_id_of(a), 1, {});
    world.pass(101ms);
    CHECK(error_of(leads) == ErrorCode::rebalance_in_progress);
    CHECK(error_of(world.sync(member_id_of(b), 1)) == ErrorCode::unknown_member_id);
  }

  // --- Dead

  TEST_CASE("a group that is removed refuses everybody") {
    GroupWorld world;
    Says says;
    says.version = 4;
    world.join(says);
    world.group().die();
    CHECK(world.state() == GroupState::dead);
    CHECK(world.group().pending_members() == 0);
    CHECK(error_of(world.join("a")) == ErrorCode::coordinator_not_available);
    CHECK(error_of(world.sync("a", 1)) == ErrorCode::coordinator_not_available);
    CHECK(world.heartbeat("a", 1) == ErrorCode::coordinator_not_available);
    CHECK(world.leave("a") == ErrorCode::coordinator_not_available);
    CHECK(world.group().check_commit(-1, "", {}) == ErrorCode::coordinator_not_available);
  }

  // --- Checks of members' requests

  TEST_CASE("heartbeats are answered by member, generation and state, in this order") {
    GroupWorld world;
    CHECK(world.heartbeat("x", 0) == ErrorCode::unknown_member_id);
    const auto join = world.join("a");
    world.pass(3s);
    const auto a = member_id_of(join);
    CHECK(world.heartbeat(a, 0) == ErrorCode::illegal_generation);
    CHECK(world.heartbeat("x", 0) == ErrorCode::unknown_member_id);
    CHECK(world.heartbeat(a, 1, "i") == ErrorCode::unknown_member_id);
    CHECK(world.heartbeat(a, 1) == ErrorCode::none);  // CompletingRebalance
    world.settle(a);
    CHECK(world.heartbeat(a, 1) == ErrorCode::none);
    const auto b = world.join("b");
    CHECK(world.heartbeat(a, 1) == ErrorCode::rebalance_in_progress);
    CHECK(world.heartbeat(a, 2) == ErrorCode::illegal_generation);
  }

  TEST_CASE("syncs are answered by member, generation, protocol and state") {
    GroupWorld world;
    CHECK(error_of(world.sync("x", 1)) == ErrorCode::unknown_member_id);
    const auto a = world.stable_alone();
    CHECK(error_of(world.sync(a, 0)) == ErrorCode::illegal_generation);
    CHECK(error_of(world.sync(a, 1)) == ErrorCode::none);
    protocol::SyncGroupRequest request;
    request.member_id = a;
    request.generation_id = 1;
    request.protocol_type = "connect";
    DelayedSync wrong_type;
    world.group().sync(request, {}, wrong_type);
    CHECK(wrong_type.answer()->error_code == ErrorCode::inconsistent_group_protocol);
    request.protocol_type = "consumer";
    request.protocol_name = "sticky";
    DelayedSync wrong_name;
    world.group().sync(request, {}, wrong_name);
    CHECK(wrong_name.answer()->error_code == ErrorCode::inconsistent_group_protocol);
    const auto b = world.join("b");
    CHECK(error_of(world.sync(a, 1)) == ErrorCode::rebalance_in_progress);
  }

  TEST_CASE(
      "offsets are committed by members of the generation, and by nobody while it completes") {
    GroupWorld world;
    auto& group = world.group();
    CHECK(group.check_commit(-1, "", {}) == ErrorCode::none);
    CHECK(group.check_commit(0, "x", {}) == ErrorCode::unknown_member_id);
    const auto join = world.join("a");
    world.pass(3s);
    const auto a = member_id_of(join);
    CHECK(group.check_commit(1, a, {}) == ErrorCode::rebalance_in_progress);
    world.settle(a);
    CHECK(group.check_commit(1, a, {}) == ErrorCode::none);
    CHECK(group.check_commit(0, a, {}) == ErrorCode::illegal_generation);
    CHECK(group.check_commit(1, "x", {}) == ErrorCode::unknown_member_id);
    CHECK(group.check_commit(-1, "", {}) == ErrorCode::unknown_member_id);
    const auto b = world.join("b");
    CHECK(group.check_commit(1, a, {}) == ErrorCode::none);  // Before it joins again.
  }

  TEST_CASE("leaving is answered for each member, and is one rebalance") {
    GroupWorld world;
    const auto ids = world.stable(3);
    const std::vector<Group::Leaving> leaving{{ids[0], {}}, {"x", {}}, {ids[1], {}}};
    const auto codes = world.group().leave(leaving);
    CHECK(codes == std::vector{ErrorCode::none, ErrorCode::unknown_member_id, ErrorCode::none});
    const auto c = world.join(as(ids[2]));
    CHECK(c->answer()->generation_id == 2);
    CHECK(c->answer()->leader == ids[2]);
  }

  TEST_CASE("a client that was given a member id may leave before it joins") {
    GroupWorld world;
    Says says;
    says.version = 4;
    const auto id = member_id_of(world.join(says));
    CHECK(world.leave(id) == ErrorCode::none);
    CHECK(world.group().pending_members() == 0);
    CHECK(world.leave(id) == ErrorCode::unknown_member_id);
  }

  // --- Protocols

  TEST_CASE("the protocol is the one that most members prefer among those that all have") {
    GroupWorld world;
    Says says;
    says.protocols = {{"sticky", "s1"}, {"range", "r1"}, {"own", "o1"}};
    const auto a = world.join(says);
    says.protocols = {{"range", "r2"}, {"sticky", "s2"}};
    const auto b = world.join(says);
    const auto c = world.join(says);
    world.pass(6s);
    CHECK(a->answer()->protocol_name == "range");
    for (const auto& member : a->answer()->members) {
      CHECK(as_text(member.metadata).starts_with("r"));
    }
  }

  TEST_CASE("a client without a protocol in common with all members is refused") {
    GroupWorld world;
    const auto a = world.stable_alone();
    Says says;
    says.protocols = {{"sticky", ""}};
    CHECK(error_of(world.join(says)) == ErrorCode::inconsistent_group_protocol);
    says.protocols = {{"range", ""}};
    says.type = "connect";
    CHECK(error_of(world.join(says)) == ErrorCode::inconsistent_group_protocol);
    says.type = "";
    CHECK(error_of(world.join(says)) == ErrorCode::inconsistent_group_protocol);
    says.type = "consumer";
    says.protocols = {};
    CHECK(error_of(world.join(says)) == ErrorCode::inconsistent_group_protocol);
    // A member that offers more than anybody has is refused too; looking at them takes its time.
    for (int i = 0; i < 100; ++i) says.protocols.push_back({"p" + std::to_string(i), ""});
    says.protocols.push_back({"range", ""});
    CHECK(error_of(world.join(says)) == ErrorCode::inconsistent_group_protocol);
    CHECK(world.state() == GroupState::stable);
    // Alone it may change its mind.
    says.protocols = {{"sticky", ""}};
    says.member_id = a;
    const auto changed = world.join(says);
    CHECK(changed->answer()->protocol_name == "sticky");
  }

  // --- Static members

  TEST_CASE("a static member that comes back in a stable group continues without a rebalance") {
    GroupWorld world;
    const auto a = world.join(as_static("i1")), b = world.join(as_static("i2"));
    world.pass(6s);
    CHECK(member_id_of(a).starts_with("i1-"));
    world.settle(world.group().leader());
    const bool a_leads = world.group().leader() == member_id_of(a);
    const auto follower = a_leads ? b : a;
    const std::string instance = a_leads ? "i2" : "i1";

    const auto back = world.join(as_static(instance));
    CHECK_FALSE(back->has_answer());  // Not before a restart would know it.
    CHECK(world.heartbeat(member_id_of(follower), 1, instance) == ErrorCode::fenced_instance_id);
    world.store_is_durable();
    CHECK(error_of(back) == ErrorCode::none);
    CHECK(back->answer()->generation_id == 1);
    CHECK(member_id_of(back) != member_id_of(follower));
    CHECK(world.state() == GroupState::stable);
    // It has what it had before.
    CHECK(as_text(world.sync(member_id_of(back), 1, {}, instance)->answer()->assignment) ==
          member_id_of(follower));
    CHECK(error_of(world.sync(member_id_of(follower), 1, {}, instance)) ==
          ErrorCode::fenced_instance_id);
    CHECK(world.leave(member_id_of(follower), instance) == ErrorCode::fenced_instance_id);
    world.restart();
    CHECK(world.heartbeat(member_id_of(back), 1, instance) == ErrorCode::none);
  }

  TEST_CASE(
      "a static leader that comes back is told to skip the assignment, or that it is not the "
      "leader") {
    GroupWorld world;
    auto says = as_static("i1");
    const auto first = world.stable_alone(says);
    says.version = 9;
    const auto second = world.join(says);
    world.store_is_durable();
    CHECK(second->answer()->skip_assignment);
    CHECK(second->answer()->leader == member_id_of(second));
    CHECK(second->answer()->members.size() == 1);
    says.version = 8;
    const auto third = world.join(says);
    world.store_is_durable();
    CHECK_FALSE(third->answer()->skip_assignment);
    CHECK(third->answer()->leader == member_id_of(second));
    CHECK(third->answer()->members.empty());
    CHECK(world.group().leader() == member_id_of(third));
    CHECK(world.state() == GroupState::stable);
  }

  TEST_CASE("a static member whose new id the journal refuses is told so, and may come again") {
    GroupWorld world;
    auto says = as_static("i1");
    says.session = 30s;
    const auto first = world.stable_alone(says);
    const auto refused = world.join(says);
    CHECK_FALSE(refused->has_answer());
    world.store_has_failed(ErrorCode::coordinator_not_available);
    CHECK(error_of(refused) == ErrorCode::coordinator_not_available);
    // The others have not noticed.
    CHECK(world.state() == GroupState::stable);
    CHECK(world.group().generation() == 1);
    CHECK(world.group().members().size() == 1);
    CHECK(world.storing.empty());
    const auto back = world.join(says);
    world.store_is_durable();
    CHECK(error_of(back) == ErrorCode::none);
    CHECK(back->answer()->generation_id == 1);
    const auto id = member_id_of(back);
    CHECK(as_text(world.sync(id, 1, {}, "i1")->answer()->assignment) == first);
    world.restart();
    CHECK(world.heartbeat(id, 1, "i1") == ErrorCode::none);
  }

  TEST_CASE("a static member whose new id is late is told so, unless a rebalance has begun") {
    for (const bool rebalances : {false, true}) {
      CAPTURE(rebalances);
      GroupWorld world;
      const auto first = world.join(as_static("i1")), other = world.join("other");
      world.pass(6s);
      world.settle(member_id_of(first));
      const auto back = world.join(as_static("i1"));
      world.pass(world.limits.offsets_commit_timeout - 1ms);
      CHECK_FALSE(back->has_answer());
      Join newcomer;
      if (rebalances) newcomer = world.join("newcomer");
      world.pass(1ms);
      if (!rebalances) {
        CHECK(error_of(back) == ErrorCode::coordinator_not_available);
        continue;
      }
      CHECK_FALSE(back->has_answer());
      const auto again = world.join(as(member_id_of(other)));
      CHECK(error_of(back) == ErrorCode::none);
      CHECK(back->answer()->generation_id == 2);
    }
  }

  TEST_CASE("after a restart a static member whose new id the journal refused has its old one") {
    GroupWorld world;
    const auto says = as_static("i1");
    const auto first = world.stable_alone(says);
    const auto refused = world.join(says);
    world.store_has_failed(ErrorCode::coordinator_not_available);
    CHECK(world.heartbeat(first, 1, "i1") == ErrorCode::fenced_instance_id);
    world.restart();
    CHECK(world.heartbeat(first, 1, "i1") == ErrorCode::none);
    CHECK(as_text(world.sync(first, 1, {}, "i1")->answer()->assignment) == first);
  }

  TEST_CASE(
      "a static member that was refused so and does not come again is lost with its session") {
    GroupWorld world;
    const auto says = as_static("i1");
    world.stable_alone(says);
    const auto refused = world.join(says);
    world.pass(5s);
    world.store_has_failed(ErrorCode::coordinator_not_available);
    world.pass(9999ms);
    CHECK(world.state() == GroupState::stable);
    world.pass(1ms);
    CHECK(world.state() == GroupState::empty);
    CHECK(world.group().members().empty());
  }

  TEST_CASE("a static member that comes back offering another protocol is a rebalance") {
    GroupWorld world;
    auto says = as_static("i1");
    says.protocols = {{"range", ""}, {"sticky", ""}};
    world.stable_alone(says);
    says.protocols = {{"sticky", ""}};
    const auto back = world.join(says);
    CHECK(error_of(back) == ErrorCode::none);  // All are in.
    CHECK(back->answer()->generation_id == 2);
    CHECK(back->answer()->protocol_name == "sticky");
  }

  TEST_CASE("a parked member is fenced when another client comes with its instance id") {
    GroupWorld world;
    const auto a = world.join(as_static("i1"));
    const auto b = world.join(as_static("i1"));
    CHECK(error_of(a) == ErrorCode::fenced_instance_id);
    CHECK(world.group().members().size() == 1);
    world.pass(6s);
    CHECK(error_of(b) == ErrorCode::none);
    const auto waits = world.sync(member_id_of(b), 1, {}, "i1");
    const auto c = world.join(as_static("i1"));
    CHECK(error_of(waits) == ErrorCode::fenced_instance_id);
    world.store_is_durable();
    CHECK(error_of(c) == ErrorCode::none);
    CHECK(c->answer()->generation_id == 2);
  }

  TEST_CASE(
      "a static member that is away during a rebalance keeps its place until its session ends") {
    GroupWorld world;
    auto says = as_static("i1");
    says.session = 30s;
    says.rebalance = 5s;
    const auto a = world.stable_alone(says);
    auto other = as_static("i2");
    other.rebalance = 5s;
    const auto b = world.join(other);
    world.pass(5s);
    CHECK(error_of(b) == ErrorCode::none);
    CHECK(b->answer()->leader == member_id_of(b));  // The member that is there leads.
    CHECK(b->answer()->members.size() == 2);
    CHECK(world.heartbeat(a, 1, "i1") == ErrorCode::illegal_generation);
    world.settle(member_id_of(b));
    for (int i = 0; i < 40; ++i) {
      world.pass(1s);
      world.heartbeat(member_id_of(b), 2, "i2");
    }
    CHECK(world.group().members().size() == 1);
  }

  TEST_CASE("an operator's tool can remove a static member by its instance id only") {
    GroupWorld world;
    world.stable_alone(as_static("i1"));
    CHECK(world.leave("", "nobody") == ErrorCode::unknown_member_id);
    CHECK(world.leave("", "i1") == ErrorCode::none);
    CHECK(world.state() == GroupState::empty);
  }

  TEST_CASE("a member id of another instance is fenced, of none unknown") {
    GroupWorld world;
    const auto a = world.stable_alone(as_static("i1"));
    CHECK(error_of(world.join(as_static("i1", "i1-other"))) == ErrorCode::fenced_instance_id);
    CHECK(error_of(world.join(as_static("i2", a))) == ErrorCode::unknown_member_id);
  }

  // --- Sessions, and clients that go

  TEST_CASE("a heartbeat moves the session, and a member whose request waits does not expire") {
    GroupWorld world;
    Says says;
    says.session = 6s;
    const auto ids = world.stable(2, says);
    for (int i = 0; i < 10; ++i) {
      world.pass(5s);
      for (const auto& id : ids) CHECK(world.heartbeat(id, 1) == ErrorCode::none);
    }
    says.member_id = world.group().leader();
    const auto waits = world.join(says);
    const auto other = ids[0] == says.member_id ? ids[1] : ids[0];
    for (int i = 0; i < 8; ++i) {
      world.pass(5s);
      CHECK(world.heartbeat(other, 1) == ErrorCode::rebalance_in_progress);
    }
    CHECK_FALSE(waits->has_answer());
    CHECK(world.group().members().size() == 2);
    world.pass(6s);  // The other one is silent now.
    CHECK(error_of(waits) == ErrorCode::none);
    CHECK(world.group().members().size() == 1);
  }

  TEST_CASE(
      "a client that disconnects while its join is parked no longer counts as joined, and stays "
      "for its session") {
    GroupWorld world;
    Says says;
    says.session = 6s;
    const auto ids = world.stable(2, says);
    const auto leader = world.group().leader();
    const auto other = ids[0] == leader ? ids[1] : ids[0];
    says.member_id = leader;
    auto gone = world.join(says);
    gone->cancel();
    world.run();
    CHECK(joins(world).cancelled == 1);
    gone.reset();
    says.member_id = other;
    const auto waits = world.join(says);
    CHECK_FALSE(waits->has_answer());
    CHECK(world.group().members().size() == 2);
    world.pass(6s);
    CHECK(error_of(waits) == ErrorCode::none);
    CHECK(world.group().members().size() == 1);
  }

  TEST_CASE("a client that disconnects before it gets its member id leaves no member behind") {
    GroupWorld world;
    const auto a = world.join("a");
    auto gone = world.join("b");
    gone->cancel();
    world.run();
    CHECK(world.group().members().size() == 1);
    gone.reset();
    world.pass(6s);
    CHECK(a->answer()->members.size() == 1);
  }

  TEST_CASE(
      "a member whose sync is parked does not expire, and its session begins again when it is "
      "answered") {
    GroupWorld world;
    Says says;
    says.session = 6s;
    const auto a = world.join(says), b = world.join(says);
    world.pass(6s);
    const auto leader = member_id_of(a), waits_for_it = member_id_of(b);
    const auto waits = world.sync(waits_for_it, 1);
    for (int i = 0; i < 5; ++i) {
      world.pass(5s);
      CHECK(world.heartbeat(leader, 1) == ErrorCode::none);
    }
    CHECK_FALSE(waits->has_answer());
    CHECK(world.group().members().size() == 2);
    CHECK(heartbeats(world).expired == 0);  // Its time was up more than once, and prolonged.
    world.pass(4s);
    const auto leads = world.sync(leader, 1, {{waits_for_it, "yours"}});
    world.store_is_durable();
    CHECK(as_text(waits->answer()->assignment) == "yours");
    world.pass(5999ms);
    CHECK(world.group().members().size() == 2);
    CHECK(world.heartbeat(leader, 1) == ErrorCode::none);
    world.pass(1ms);  // It is silent since it was answered.
    CHECK(world.group().members().size() == 1);
    CHECK(world.group().members().contains(leader));
  }

  TEST_CASE("the session of a member whose sync was refused begins again") {
    GroupWorld world;
    Says says;
    says.session = 6s;
    const auto a = world.join(says), b = world.join(says);
    world.pass(6s);
    const auto waits = world.sync(member_id_of(b), 1);
    world.pass(4s);
    CHECK(world.leave(member_id_of(a)) == ErrorCode::none);
    CHECK(error_of(waits) == ErrorCode::rebalance_in_progress);
    world.pass(5999ms);
    CHECK(world.group().members().size() == 1);
    world.pass(1ms);
    CHECK(world.group().members().empty());
  }

  TEST_CASE("a member that repeats its sync is answered there") {
    GroupWorld world;
    const auto a = world.join("a"), b = world.join("b");
    world.pass(6s);
    const auto id = member_id_of(b);
    const auto old = world.sync(id, 1), now = world.sync(id, 1);
    CHECK(error_of(old) == ErrorCode::rebalance_in_progress);
    CHECK(old->answer()->assignment.empty());
    CHECK_FALSE(now->has_answer());
    world.sync(member_id_of(a), 1, {{id, "for b"}});
    world.store_is_durable();
    CHECK(error_of(now) == ErrorCode::none);
    CHECK(as_text(now->answer()->assignment) == "for b");
    CHECK(world.state() == GroupState::stable);
  }

  TEST_CASE("a leader that asks again while its assignments are written assigns only once") {
    GroupWorld world;
    const auto a = world.join("a");
    world.pass(3s);
    const auto id = member_id_of(a);
    const auto old = world.sync(id, 1, {{id, "first"}});
    const auto now = world.sync(id, 1, {{id, "second"}});
    CHECK(error_of(old) == ErrorCode::rebalance_in_progress);
    CHECK(world.storing.size() == 1);
    world.store_is_durable();
    CHECK(as_text(now->answer()->assignment) == "first");
  }

  TEST_CASE("a member that is removed while its join is parked is told that it is not a member") {
    GroupWorld world;
    const auto ids = world.stable(3);
    REQUIRE(world.group().leader() == ids[0]);
    const auto waits = world.join(as(ids[0]));
    CHECK_FALSE(waits->has_answer());
    CHECK(world.leave(ids[0]) == ErrorCode::none);
    CHECK(error_of(waits) == ErrorCode::unknown_member_id);
    CHECK(joins(world).waiting == 0);
    CHECK(world.group().members().size() == 2);
    // It is not counted as in: the rebalance goes on without it.
    CHECK(world.state() == GroupState::preparing_rebalance);
    const auto b = world.join(as(ids[1]));
    CHECK_FALSE(b->has_answer());
    const auto c = world.join(as(ids[2]));
    CHECK(error_of(b) == ErrorCode::none);
    CHECK(error_of(c) == ErrorCode::none);
  }

  TEST_CASE("a member that is removed while its sync is parked is told that it is not a member") {
    GroupWorld world;
    const auto a = world.join("a"), b = world.join("b");
    world.pass(6s);
    const auto waits = world.sync(member_id_of(b), 1);
    CHECK_FALSE(waits->has_answer());
    CHECK(world.leave(member_id_of(b)) == ErrorCode::none);
    CHECK(error_of(waits) == ErrorCode::unknown_member_id);
    CHECK(syncs(world).waiting == 0);
    CHECK(world.group().members().size() == 1);
  }

  TEST_CASE("a parked member is told the same when an operator removes it by its instance id") {
    GroupWorld world;
    const auto a = world.join(as_static("i1")), b = world.join(as_static("i2"));
    CHECK(world.leave("", "i2") == ErrorCode::none);
    CHECK(error_of(b) == ErrorCode::unknown_member_id);
    world.pass(6s);
    CHECK(a->answer()->members.size() == 1);
    const auto waits = world.sync(member_id_of(a), 1, {}, "i1");
    CHECK_FALSE(waits->has_answer());
    CHECK(world.leave("", "i1") == ErrorCode::none);
    CHECK(error_of(waits) == ErrorCode::unknown_member_id);
    CHECK(world.state() == GroupState::empty);
  }

  TEST_CASE("a client that disconnects while its sync is parked counts as synced") {
    GroupWorld world;
    const auto a = world.join("a");
    world.pass(3s);
    auto gone = world.sync(member_id_of(a), 1, {});
    gone->cancel();
    world.run();
    CHECK(syncs(world).cancelled == 1);
    gone.reset();
    world.store_is_durable();
    CHECK(world.state() == GroupState::stable);
    CHECK(world.heartbeat(member_id_of(a), 1) == ErrorCode::none);
  }

  TEST_CASE("a member that asks again on another connection is answered there") {
    GroupWorld world;
    const auto ids = world.stable(2);
    const auto old = world.join(as(world.group().leader()));
    const auto now = world.join(as(world.group().leader()));
    CHECK(error_of(old) == ErrorCode::rebalance_in_progress);
    CHECK_FALSE(now->has_answer());
    const auto other = ids[0] == world.group().leader() ? ids[1] : ids[0];
    world.join(as(other));
    CHECK(error_of(now) == ErrorCode::none);
  }

  TEST_CASE("a member that is lost in mid-rebalance is not waited for") {
    GroupWorld world;
    const auto ids = world.stable(2);
    const auto waits = world.join(as(world.group().leader()));
    const auto other = ids[0] == world.group().leader() ? ids[1] : ids[0];
    CHECK(world.leave(other) == ErrorCode::none);
    CHECK(error_of(waits) == ErrorCode::none);
  }

  // --- Bounds

  TEST_CASE("a group takes no more members than group.max.size") {
    GroupWorld world;
    world.limits.group_max_size = 2;
    const auto a = world.join("a");
    Says b;
    b.version = 4;
    b.member_id = member_id_of(world.join(b));
    const auto c = world.join("c");
    CHECK(error_of(world.join("d")) == ErrorCode::group_max_size_reached);
    // An id is no place.
    CHECK(error_of(world.join(b)) == ErrorCode::group_max_size_reached);
    world.pass(6s);
    CHECK(error_of(a) == ErrorCode::none);
    CHECK(error_of(c) == ErrorCode::none);
  }

  TEST_CASE("clients that take member ids and do not come back lock nobody out") {
    GroupWorld world;
    world.limits.group_max_size = 10;
    Says hostile;
    hostile.version = 4;
    hostile.client = "hostile";
    hostile.session = 1800s;
    for (int i = 0; i < 100; ++i)
      CHECK(error_of(world.join(hostile)) == ErrorCode::member_id_required);
    CHECK(world.group().pending_members() == 10);
    Says healthy;
    healthy.version = 4;
    healthy.client = "a";
    healthy.member_id = member_id_of(world.join(healthy));
    for (int i = 0; i < 100; ++i) world.join(hostile);
    const auto joined = world.join(healthy);
    CHECK(world.group().pending_members() == 9);
    // Nobody waits for them longer than for a client that is under way.
    world.pass(10s);
    CHECK(world.group().pending_members() == 0);
    CHECK(error_of(joined) == ErrorCode::none);
  }

  TEST_CASE(
      "a hundred members that expire at once are twenty lines in the log, and the number of the "
      "others") {
    GroupWorld world;
    std::vector<Join> joins;
    for (int i = 0; i < 100; ++i) joins.push_back(world.join("c"));
    world.pass(10s);
    world.settle(world.group().leader());
    joins.clear();
    CapturedLog log;
    world.pass(11s);
    CHECK(world.group().members().empty());
    CHECK(log.count("no heartbeat from member") == 20);
    world.pass(10s);
    world.join("d");  // Its client goes, and it does not rejoin.
    world.pass(10s);
    CHECK(log.count("(80 more since the last such line)") == 1);
  }

  TEST_CASE("the metadata of a group's members is bounded, together") {
    GroupWorld world;
    world.limits.group_max_bytes = 10'000;
    Says says;
    says.protocols = {{"range", std::string(6'000, 'x')}};
    const auto a = world.stable_alone(says);
    CHECK(error_of(world.join(says)) == ErrorCode::group_max_size_reached);
    says.member_id = a;
    says.protocols = {{"range", std::string(20'000, 'x')}};
    CHECK(error_of(world.join(says)) == ErrorCode::group_max_size_reached);
    says.protocols = {{"range", std::string(8'000, 'x')}};
    CHECK(error_of(world.join(says)) == ErrorCode::none);
    const auto sync = world.sync(a, 2, {{a, std::string(20'000, 'x')}});
    CHECK(error_of(sync) == ErrorCode::unknown_server_error);
    CHECK(world.state() == GroupState::preparing_rebalance);
  }

  TEST_CASE(
      "members and assignments fit into one record of the journal together, however small that is, "
      "and what would not is refused with the setting in the log") {
    GroupWorld world;
    CapturedLog log;
    world.limits.journal_max_bytes = 2 << 20;
    const auto record = storage::record_limit(2 << 20, storage::Reserve::keep);
    const std::string too_long(record / 2, 'x'), allowed(record / 5 * 2, 'x');
    Says says;
    says.protocols = {{"range", too_long}};
    CHECK(error_of(world.join(says)) == ErrorCode::group_max_size_reached);
    CHECK(log.count("(a quarter of tarry.journal.max.bytes)") == 1);
    says.protocols = {{"range", allowed}};
    const auto a = says.member_id = world.stable_alone(says);
    world.join(says);
    CHECK(error_of(world.sync(a, 2, {{a, too_long}})) == ErrorCode::unknown_server_error);
    CHECK(log.count("(a quarter of tarry.journal.max.bytes)") == 2);
    world.join(says);
    const auto sync = world.sync(a, 3, {{a, allowed}});
    REQUIRE_FALSE(world.storing.empty());
    CHECK(encode_group(world.storing.front().first).size() < record);
    world.store_is_durable();
    CHECK(error_of(sync) == ErrorCode::none);
    CHECK(world.state() == GroupState::stable);
  }

  TEST_CASE("a group that let its members in takes assignments as large as they are") {
    GroupWorld world;
    world.limits.group_max_bytes = 10'000;
    Says says;
    says.protocols = {{"range", std::string(9'000, 'x')}};
    says.member_id = world.stable_alone(says);
    CHECK(error_of(world.join(says)) == ErrorCode::none);
    const auto sync = world.sync(says.member_id, 2, {{says.member_id, std::string(9'000, 'x')}});
    world.store_is_durable();
    CHECK(error_of(sync) == ErrorCode::none);
    CHECK(world.state() == GroupState::stable);
  }

  TEST_CASE(
      "all memory that members take is reported to the host, and given back when they leave") {
    GroupWorld world;
    Says says;
    says.protocols = {{"range", std::string(3'000, 'x')}};
    const auto a = world.stable_alone(says);
    const auto without = world.member_bytes - world.group().members().at(a).assignment.size();
    CHECK(without > 3'000);
    says.member_id = a;
    says.protocols = {{"range", std::string(5'000, 'x')}};
    world.join(says);
    const auto sync = world.sync(a, 2, {{a, std::string(700, 'x')}});
    world.store_is_durable();
    CHECK(error_of(sync) == ErrorCode::none);
    CHECK(world.member_bytes == without + 2'000 + 700);
    CHECK(world.leave(a) == ErrorCode::none);
    CHECK(world.member_bytes == 0);
    auto fixed = as_static("i1");
    world.stable_alone(fixed);
    world.join(fixed);  // It comes back under another id.
    world.restart();
    CHECK(world.member_bytes > 0);
    CHECK(world.leave("", "i1") == ErrorCode::none);
    CHECK(world.member_bytes == 0);
  }

  TEST_CASE("metadata counts with the memory that holds it, and no metadata costs nothing") {
    const auto bytes_with = [](const std::string& metadata) {
      GroupWorld world;
      Says says;
      says.protocols = {{"range", metadata}};
      world.stable_alone(says);
      return world.member_bytes;
    };
    const std::size_t none = bytes_with("");
    CHECK(bytes_with("x") >= none + 1 + sizeof(Buffer));
    CHECK(bytes_with("xy") == bytes_with("x") + 1);
  }

  TEST_CASE("a member id that was given out takes memory until it expires, and needs room for it") {
    GroupWorld world;
    Says says;
    says.version = 4;
    CHECK(error_of(world.join(says)) == ErrorCode::member_id_required);
    const std::size_t one = world.member_bytes;
    CHECK(one > 2'000);  // With the group, which is there for it.
    says.member_id = member_id_of(world.join(says));
    CHECK(world.member_bytes > one);
    world.pass(10s);
    CHECK(world.member_bytes == 0);
    CHECK(error_of(world.join(says)) == ErrorCode::unknown_member_id);
    says.member_id.clear();
    world.room = one + 100;
    says.member_id = member_id_of(world.join(says));
    Says other;
    other.version = 4;
    CHECK(error_of(world.join(other)) == ErrorCode::coordinator_not_available);
    CHECK(world.group().pending_members() == 1);
    // It joins, and is counted as a member only.
    world.room = std::numeric_limits<std::size_t>::max();
    const auto joined = world.join(says);
    CHECK(world.group().pending_members() == 0);
    CHECK(world.member_bytes < one);
    CHECK(world.leave(says.member_id) == ErrorCode::none);
    CHECK(world.member_bytes == 0);
    world.join(other);
    world.restart();  // Another group in its place.
    CHECK(world.member_bytes == 0);
  }

  TEST_CASE("a member for which other groups have left no room is told to come again") {
    GroupWorld world;
    Says says;
    says.protocols = {{"range", std::string(3'000, 'x')}};
    const auto a = world.stable_alone(says);
    world.room = 5'000;
    CHECK(error_of(world.join(says)) == ErrorCode::coordinator_not_available);
    says.member_id = a;  // A member that is there already may stay.
    CHECK(error_of(world.join(says)) == ErrorCode::none);
    const auto sync = world.sync(a, 2, {{a, std::string(4'000, 'x')}});
    CHECK(error_of(sync) == ErrorCode::coordinator_not_available);
    CHECK(world.state() == GroupState::preparing_rebalance);
    says.member_id.clear();
    world.room = 50'000;
    CHECK_FALSE(world.join(says)->answer().has_value());
  }

  // --- Restart

  TEST_CASE("after a restart members continue with their generation, with new sessions") {
    GroupWorld world;
    auto says = as_static("i1");
    const auto a = world.stable_alone(says);
    world.pass(8s);
    world.restart();
    CHECK(world.state() == GroupState::stable);
    CHECK(world.group().generation() == 1);
    CHECK(world.group().leader() == a);
    world.pass(8s);
    CHECK(world.heartbeat(a, 1, "i1") == ErrorCode::none);
    CHECK(as_text(world.sync(a, 1, {}, "i1")->answer()->assignment) == a);
    world.pass(10s);
    CHECK(world.state() == GroupState::empty);
  }

  TEST_CASE("after a restart a generation that was not stored is not known") {
    GroupWorld world;
    const auto a = world.stable_alone();
    auto again = world.join(as(a));
    CHECK(again->answer()->generation_id == 2);
    again.reset();
    world.restart();
    CHECK(world.heartbeat(a, 2) == ErrorCode::illegal_generation);
    CHECK(world.heartbeat(a, 1) == ErrorCode::none);
  }

  TEST_CASE("a group whose emptiness could not be stored stores it again, until somebody joins") {
    GroupWorld world;
    CHECK(world.leave(world.stable_alone()) == ErrorCode::none);
    for (int i = 0; i < 3; ++i) {
      world.store_has_failed(ErrorCode::coordinator_not_available);
      CHECK(world.storing.empty());
      world.pass(10s);
    }
    world.store_is_durable();
    world.pass(100s);
    CHECK(world.storing.empty());
    world.restart();
    CHECK(world.state() == GroupState::empty);

    const auto next = world.stable_alone();
    CHECK(world.leave(next) == ErrorCode::none);
    world.store_has_failed(ErrorCode::coordinator_not_available);
    world.stable_alone();
    world.pass(9s);  // Within its session.
    CHECK(world.storing.empty());
    CHECK(world.state() == GroupState::stable);
  }

  TEST_CASE("a record that contradicts itself is refused") {
    GroupWorld world;
    world.stable_alone();
    GroupRecord record = *world.durable;
    record.leader = "nobody";
    Group& fresh = (world.durable.reset(), world.restart(), world.group());
    CHECK(fresh.restore(record).error().code == Errc::corrupt);
    record.leader = record.members.front().id;
    record.protocol_name = "sticky";
    CHECK(fresh.restore(record).error().code == Errc::corrupt);
    record.members.clear();
    CHECK(fresh.restore(record).error().code == Errc::corrupt);  // A leader of nobody.
    record.leader.clear();
    CHECK(fresh.restore(record).has_value());
  }
}

}  // namespace tarry::broker::test
