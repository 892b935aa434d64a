#pragma once

// GroupWorld: one group under time that a test sets, without a broker.
//
//   GroupWorld world;
//   auto a = world.join("a");                 // Version 3: joins at once.
//   world.pass(3s);                           // The initial delay.
//   CHECK(a->answer()->generation_id == 1);
//   auto synced = world.sync(*a, {{a, "0"}});
//   world.store_is_durable();
//
// The group's writes wait until the test says that they are durable, or have failed.

#include <chrono>
#include <deque>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "base/random.h"
#include "broker/groups/group.h"

namespace tarry::broker::test {

using namespace std::chrono_literals;
using protocol::ErrorCode;

class CountingRandom final : public Random {
 public:
  explicit CountingRandom(std::uint64_t seed = 1) : state_(seed) {}
  std::uint64_t u64() override {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(u64() % n); }

 private:
  std::uint64_t state_;
};

// A JoinGroup or SyncGroup of a client, which goes when this goes.
using Join = std::shared_ptr<DelayedJoin>;
using Sync = std::shared_ptr<DelayedSync>;

// The fields of a client's JoinGroup.
struct Says {
  std::string member_id = {};
  std::string instance_id = {};  // Empty: none.
  int version = 3;
  std::chrono::milliseconds session = 10s;
  std::chrono::milliseconds rebalance = 60s;
  std::vector<std::pair<std::string, std::string>> protocols = {{"range", ""}};
  std::string type = "consumer";
  std::string client = "client";
};

class GroupWorld final : private GroupHost {
 public:
  GroupWorld() { make(); }

  std::size_t room = std::numeric_limits<std::size_t>::max();  // For all that the members take.
  std::size_t member_bytes = 0;                                // As the group has told.
  BrokerConfig limits;                                         // Before the first request.
  Group& group() { return *group_; }
  const Group& group() const { return *group_; }
  GroupState state() const { return group_->state(); }
  CountingRandom dice{7};

  // --- Requests

  Join join(const Says& says) {
    protocol::JoinGroupRequest request;
    request.group_id = "g";
    request.session_timeout_ms = static_cast<std::int32_t>(says.session.count());
    request.rebalance_timeout_ms = static_cast<std::int32_t>(says.rebalance.count());
    request.member_id = says.member_id;
    if (!says.instance_id.empty()) request.group_instance_id = says.instance_id;
    request.protocol_type = says.type;
    for (const auto& [name, metadata] : says.protocols) {
      request.protocols.push_back({name, as_bytes(metadata)});
    }
    auto reply = std::make_shared<DelayedJoin>();
    Group::JoinContext context;
    context.client_id = says.client;
    context.client_host = "/127.0.0.1";
    context.needs_known_id = says.version >= 4;
    context.can_skip = says.version >= 9;
    group_->join(request, context, *reply);
    reply->begin(purgatory_, now_);
    run();
    return reply;
  }
  Join join(const std::string& client) {
    Says says;
    says.client = client;
    return join(says);
  }

  using Assignments = std::vector<std::pair<std::string, std::string>>;  // Member id, bytes.
  Sync sync(const std::string& member_id, std::int32_t generation, const Assignments& given = {},
            const std::string& instance_id = {}) {
    protocol::SyncGroupRequest request;
    request.group_id = "g";
    request.generation_id = generation;
    request.member_id = member_id;
    if (!instance_id.empty()) request.group_instance_id = instance_id;
    for (const auto& [id, bytes] : given) request.assignments.push_back({id, as_bytes(bytes)});
    auto reply = std::make_shared<DelayedSync>();
    group_->sync(request, assignments_of(request), *reply);
    reply->begin(purgatory_, now_);
    run();
    return reply;
  }
  ErrorCode heartbeat(const std::string& member_id, std::int32_t generation,
                      const std::string& instance_id = {}) {
    std::optional<std::string_view> instance;
    if (!instance_id.empty()) instance = instance_id;
    const auto code = group_->heartbeat(generation, member_id, instance);
    run();
    return code;
  }
  ErrorCode leave(const std::string& member_id, const std::string& instance_id = {}) {
    Group::Leaving leaving{member_id, std::nullopt};
    if (!instance_id.empty()) leaving.instance_id = instance_id;
    const auto codes = group_->leave(std::span(&leaving, 1));
    run();
    return codes.front();
  }

  // The first member of a group that is stable with it alone, in its first generation.
  std::string stable_alone(Says says = {}) {
    auto joined = join(says);
    pass(limits.group_initial_rebalance_delay);
    REQUIRE(joined->has_answer());
    REQUIRE(joined->answer()->error_code == ErrorCode::none);
    const std::string id = joined->answer()->member_id;
    settle(id);
    return id;
  }
  // The generation's leader assigns everybody his own id; the others ask too.
  void settle(const std::string& leader) {
    Assignments all;
    for (const auto& [id, member] : group_->members()) all.emplace_back(id, id);
    auto first = sync(leader, group_->generation(), all);
    store_is_durable();
    REQUIRE(state() == GroupState::stable);
    CHECK(first->answer()->error_code == ErrorCode::none);
    for (const auto& [id, bytes] : all) {
      if (id == leader) continue;
      CHECK(as_text(sync(id, group_->generation())->answer()->assignment) == id);
    }
  }
  // Members a, b, ... of one generation, which is stable.
  std::vector<std::string> stable(std::size_t count, Says says = {}) {
    std::vector<Join> joins;
    for (std::size_t i = 0; i < count; ++i) joins.push_back(join(says));
    pass(limits.group_initial_rebalance_delay);
    pass(limits.group_initial_rebalance_delay);
    std::vector<std::string> ids;
    for (const auto& each : joins) {
      REQUIRE(each->has_answer());
      ids.push_back(each->answer()->member_id);
    }
    settle(group_->leader());
    return ids;
  }

  // --- Time, and the journal

  void run() {
    for (bool busy = true; busy;) {
      busy = purgatory_.run_completions(now_) > 0;
      const auto progress = wheel_.advance(now_);
      busy = busy || progress.fired > 0 || progress.more;
    }
  }
  void pass(std::chrono::milliseconds time) {
    const auto until = now_ + static_cast<timing::Tick>(time.count());
    run();
    while (now_ < until) {
      now_ = std::min(until, std::max(now_ + 1, wheel_.next_due().value_or(until)));
      run();
    }
  }
  // All that was given to be stored until now is there, or the first has failed.
  void store_is_durable() {
    while (!storing.empty()) {
      auto [record, then] = std::move(storing.front());
      storing.pop_front();
      durable = std::move(record);
      then(ErrorCode::none);
      run();
    }
  }
  void store_has_failed(ErrorCode code) {
    REQUIRE(!storing.empty());
    auto then = std::move(storing.front().second);
    storing.pop_front();
    then(code);
    run();
  }
  // As after kill -9: what is durable is there.  Replies that wait are to be let go before.
  void restart() {
    storing.clear();
    make();
    if (durable) REQUIRE(group_->restore(*durable).has_value());
    run();
  }

  std::deque<std::pair<GroupRecord, Stored>> storing;
  std::optional<GroupRecord> durable;
  std::size_t unused = 0;  // How often on_unused() was called.
  purgatory::Purgatory& purgatory() override { return purgatory_; }
  timing::Tick tick() const override { return now_; }

 private:
  void make() {
    GroupHost& host = *this;
    group_ = std::make_unique<Group>(host, "g");
  }

  const BrokerConfig& config() const override { return limits; }
  timing::TimingWheel& wheel() override { return wheel_; }
  timing::Tick tick_after(std::chrono::milliseconds wait) const override {
    return now_ + static_cast<timing::Tick>(wait.count());
  }
  WallTime wall() const override { return from_ms(static_cast<std::int64_t>(now_)); }
  Random& random() override { return dice; }
  bool stopping() const override { return false; }
  GroupLines& lines() override { return lines_; }
  void store(Group&, const GroupRecordView& record, Stored then) override {
    auto copy = decode_group(encode_group(record));
    REQUIRE(copy.has_value());
    storing.emplace_back(std::move(*copy), std::move(then));
  }
  bool has_member_room(const Group&, const GroupShare&, std::size_t more) override {
    return member_bytes + more <= room;
  }
  void member_bytes_changed(std::size_t before, std::size_t now) override {
    member_bytes += now - before;
  }
  void state_changed(Group&) override {}
  void on_unused(Group&) override { ++unused; }

  GroupLines lines_;
  timing::Tick now_ = 1000;
  timing::TimingWheel wheel_{1000};
  purgatory::Purgatory purgatory_{wheel_};
  std::unique_ptr<Group> group_;
};

}  // namespace tarry::broker::test
