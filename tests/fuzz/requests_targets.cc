// Groups and delays driven by requests that are all valid, in any order, against a model of what
// clients are promised:
//
//   - a partition's log is what was due at once and what came due, each once, in the order in which
//     it came or came due; ids replace and cancel;
//   - an assignment is the one that the leader of that generation gave, an older generation commits
//     nothing, and a committed offset is the last one that was accepted;
//   - all of that after kill -9 too, with any number of shards.
//
// Each byte of the input is a decision, so libFuzzer finds its way by what the broker does.

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <boost/asio/co_spawn.hpp>

#include "base/assert.h"
#include "base/log.h"
#include "broker/shard.h"
#include "broker/topics/topics.h"
#include "broker/views/delayed_records.h"
#include "protocol/messages/heartbeat.h"
#include "protocol/messages/join_group.h"
#include "protocol/messages/leave_group.h"
#include "protocol/messages/offset_commit.h"
#include "protocol/messages/offset_fetch.h"
#include "protocol/messages/sync_group.h"
#include "tests/broker/batches.h"
#include "tests/broker/offset_requests.h"
#include "tests/fuzz/targets.h"

namespace tarry::fuzz {
namespace {

using namespace std::chrono_literals;
using broker::DelayedControl;
using broker::test::World;
using protocol::ErrorCode;
using std::chrono::milliseconds;

constexpr PartitionIndex partition_count = 2;
constexpr std::size_t client_count = 3;
constexpr std::size_t max_steps = 120;
const std::string topic_name = "t", group_name = "g";

// A model of what the logs of the topic have to be.
class DelayModel {
 public:
  struct Record {
    std::string value;
    WallTime due;
    std::string id;
    std::uint64_t number = 0;  // The order of arrival.
  };

  // All that is due by now has been delivered.
  void time_is(WallTime now) {
    for (auto& partition : partitions_) {
      std::ranges::sort(partition.pending, {},
                        [](const Record& record) { return std::pair(record.due, record.number); });
      const auto end = std::ranges::find_if(partition.pending,
                                            [&](const Record& record) { return record.due > now; });
      for (auto at = partition.pending.begin(); at != end; ++at) partition.log.push_back(at->value);
      partition.pending.erase(partition.pending.begin(), end);
    }
  }
  void add(PartitionIndex index, Record record, WallTime now) {
    if (!record.id.empty()) remove(index, record.id);
    record.number = next_number_++;
    put_back(index, std::move(record), now);
  }
  // A moved record keeps its place among those that are due in the same millisecond.
  void put_back(PartitionIndex index, Record record, WallTime now) {
    auto& partition = at(index);
    if (record.due <= now) {
      partition.log.push_back(record.value);
    } else {
      partition.pending.push_back(std::move(record));
    }
  }
  // The record that was pending under the id.
  std::optional<Record> remove(PartitionIndex index, const std::string& id) {
    auto& pending = at(index).pending;
    const auto found = std::ranges::find(pending, id, &Record::id);
    if (found == pending.end()) return std::nullopt;
    Record record = std::move(*found);
    pending.erase(found);
    return record;
  }
  const std::vector<std::string>& log(PartitionIndex index) { return at(index).log; }
  std::size_t pending() const {
    std::size_t sum = 0;
    for (const auto& partition : partitions_) sum += partition.pending.size();
    return sum;
  }

 private:
  struct Partition {
    std::vector<Record> pending;
    std::vector<std::string> log;
  };
  Partition& at(PartitionIndex index) { return partitions_[static_cast<std::size_t>(index)]; }

  std::array<Partition, partition_count> partitions_;
  std::uint64_t next_number_ = 0;
};

// A member of the group, as far as it knows.
struct Client {
  std::string member_id;
  std::int32_t generation = -1;
  bool is_synced = false;
  std::vector<std::string> to_assign;  // It leads: the members.
  std::shared_ptr<World::Pending> join, sync;
};

class Driver {
 public:
  explicit Driver(Bytes input)
      : input_(input),
        world_({.shards = 1 + input_.below(3), .configure = [](broker::BrokerConfig& config) {
                  config.group_initial_rebalance_delay = 0ms;
                }}) {
    broker::test::create_topic(world_, topic_name, partition_count);
    const auto found = world_.shard().topics().find(topic_name);
    TARRY_ASSERT(found != nullptr, "the topic is there");
  }

  void run() {
    for (std::size_t step = 0; step < max_steps && !input_.empty(); ++step) {
      const WallTime before = world_.clock.wall();
      const bool passes = take_step();
      TARRY_ASSERT(passes || world_.clock.wall() == before, "no request has to wait");
      model_.time_is(world_.clock.wall());
      take_answers();
      TARRY_ASSERT(!world_.failure.has_value(), "the broker goes on");
    }
    check_logs();
    check_offsets();
    world_.pass(2h);
    model_.time_is(world_.clock.wall());
    TARRY_ASSERT(model_.pending() == 0, "everything comes due");
    check_logs();
  }

 private:
  // Whether time may pass meanwhile.
  bool take_step() {
    switch (input_.below(16)) {
      case 0:
      case 1:
      case 2:
        produce();
        return false;
      case 3:
      case 4:
        control();
        return false;
      case 5:
        world_.pass(milliseconds(1 + input_.u8()));
        return true;
      case 6:
        world_.pass(100ms * (1 + input_.u8()));
        return true;
      case 7:
        check_logs();
        return false;
      case 8:
        check_offsets();
        return false;
      case 9:
        restart();
        return true;
      case 10:
      case 11:
      case 12:
      case 13:
        go_on(client());
        return false;
      case 14:
        heartbeat(client());
        return false;
      default:
        leave(client());
        return false;
    }
  }

  Client& client() { return clients_[input_.below(client_count)]; }
  std::size_t home() { return input_.below(world_.shard_count()); }
  PartitionIndex partition() { return static_cast<PartitionIndex>(input_.below(partition_count)); }
  // One of few, so that they meet.
  std::string id() { return std::string(1, static_cast<char>('a' + input_.below(4))); }

  // --- Delays

  void produce() {
    const PartitionIndex to = partition();
    const WallTime now = world_.clock.wall();
    std::vector<broker::test::NewRecord> records;
    std::vector<std::pair<DelayModel::Record, bool>> expected;  // And whether it is a cancel.
    for (std::size_t count = 1 + input_.below(4); count > 0; --count) {
      DelayModel::Record record;
      record.value = fmt::format("v{}", next_value_++);
      const unsigned how = input_.u8();
      if (how % 2 == 1) record.id = id();
      broker::test::NewRecord sent{record.value};
      if (!record.id.empty()) sent.headers.emplace_back("x-schedule-id", record.id);
      const bool is_cancel = !record.id.empty() && how % 16 == 15;
      // Far, near, in the same millisecond as others, and past.
      const std::array delays{0ms, 5ms, 1000ms, 60'000ms, 3'600'000ms - 1ms};
      record.due = now + delays[how / 16 % delays.size()] + milliseconds(input_.below(3));
      if (is_cancel) {
        sent.headers.emplace_back("x-schedule-action", "cancel");
      } else if (how / 16 == 15) {
        record.due = now;  // No header: an id alone schedules nothing, and replaces nothing.
        record.id.clear();
      } else {
        sent.headers.emplace_back("x-deliver-at", std::to_string(to_ms(record.due)));
      }
      expected.emplace_back(std::move(record), is_cancel);
      records.push_back(std::move(sent));
    }
    const Buffer batch = broker::test::batch_of(now, records);
    const auto told = broker::test::produce(world_, topic_name, to, batch, home());
    TARRY_ASSERT(told.error_code == ErrorCode::none, "a valid batch is accepted");
    for (auto& [record, is_cancel] : expected) {
      if (is_cancel) {
        model_.remove(to, record.id);
      } else {
        model_.add(to, std::move(record), now);
      }
    }
  }

  void control() {
    const PartitionIndex of = partition();
    const std::string name = id();
    const unsigned what = input_.u8();
    DelayedControl control{static_cast<DelayedControl::Kind>(what % 3)};
    const milliseconds by(input_.u8());
    const WallTime now = world_.clock.wall();
    if (control.kind == DelayedControl::Kind::move) control.due = now + by;
    std::optional<Result<std::vector<broker::PartitionControlled>>> told;
    const std::size_t at = home();
    const auto topic = world_.shard(at).topics().find(topic_name);
    boost::asio::co_spawn(
        world_.shard(at).executor(),
        broker::control_delayed(world_.broker(), world_.shard(at), topic, name, of, control),
        [&told](const std::exception_ptr& failed, auto answer) {
          TARRY_ASSERT(failed == nullptr, "nothing is thrown");
          told = std::move(answer);
        });
    world_.run();
    TARRY_ASSERT(told.has_value(), "an order is answered when it is durable");
    TARRY_ASSERT(told->has_value(), "an order that is valid is not refused");
    auto record = model_.remove(of, name);
    bool is_done = false;
    for (const auto& each : **told)
      is_done = is_done || each.told.outcome == broker::ControlOutcome::done;
    TARRY_ASSERT(is_done == record.has_value(),
                 "done is said of what was pending, and of nothing else");
    if (!record || control.kind == DelayedControl::Kind::cancel) return;
    record->due = control.kind == DelayedControl::Kind::move ? now + by : now;
    model_.put_back(of, std::move(*record), now);
  }

  void check_logs() {
    for (PartitionIndex p = 0; p < partition_count; ++p) {
      const auto seen = broker::test::values(broker::test::read_all(world_, topic_name, p));
      if (seen == model_.log(p)) continue;
      std::string text;
      for (const auto& value : seen) text += " " + value;
      text += " instead of";
      for (const auto& value : model_.log(p)) text += " " + value;
      fmt::print(stderr, "partition {} has{}\n", p, text);
      TARRY_ASSERT(false, "a log is what was due, once and in order");
    }
  }

  void restart() {
    world_.restart(1 + input_.below(3));
    world_.run();
    for (auto& each : clients_) {
      each.join.reset();
      each.sync.reset();
    }
    newest_ = newest_synced_;
  }

  // --- The group

  // As a consumer does: joins, syncs, commits.
  void go_on(Client& who) {
    if (who.member_id.empty() || who.generation < 0) {
      join(who);
    } else if (!who.is_synced) {
      sync(who);
    } else {
      commit(who);
    }
  }

  void join(Client& who) {
    if (who.join || who.sync) return;
    protocol::JoinGroupRequest request;
    request.group_id = group_name;
    request.member_id = who.member_id;
    request.session_timeout_ms = 10'000;
    request.rebalance_timeout_ms = 20'000;
    request.protocol_type = "consumer";
    request.protocols.push_back({"range", {}});
    who.join = world_.begin(request, 9, home());
  }

  void sync(Client& who) {
    if (who.join || who.sync || who.generation < 0) return;
    protocol::SyncGroupRequest request;
    request.group_id = group_name;
    request.generation_id = who.generation;
    request.member_id = who.member_id;
    request.protocol_type = "consumer";
    request.protocol_name = "range";
    std::vector<std::string> shares;
    for (const auto& member : who.to_assign)
      shares.push_back(fmt::format("{}:{}:{}", who.generation, member, next_value_++));
    for (std::size_t i = 0; i < shares.size(); ++i) {
      request.assignments.push_back({who.to_assign[i], as_bytes(shares[i])});
      given_[{who.generation, who.to_assign[i]}].push_back(shares[i]);
    }
    who.sync = world_.begin(request, 5, home());
  }

  void take_answers() {
    for (auto& each : clients_) {
      if (each.join && each.join->answer) joined(each);
      if (each.sync && each.sync->answer) synced(each);
    }
  }
  // A generation that has not got its assignments is forgotten by a restart, as in Kafka, and when
  // all of its members are gone; then its number is given again.
  void joined(Client& who) {
    const auto pending = std::exchange(who.join, nullptr);
    const auto told = world_.read<protocol::JoinGroupResponse>(*pending, 9);
    who.generation = -1;
    who.is_synced = false;
    who.to_assign.clear();
    if (told.error_code == ErrorCode::unknown_member_id) who.member_id.clear();
    if (told.error_code == ErrorCode::member_id_required) who.member_id = told.member_id;
    if (told.error_code != ErrorCode::none) return;
    who.member_id = told.member_id;
    who.generation = told.generation_id;
    for (const auto& other : clients_)
      TARRY_ASSERT(&other == &who || other.member_id != who.member_id, "a member's id is its own");
    TARRY_ASSERT(told.generation_id >= newest_synced_, "generations go up");
    newest_ = told.generation_id;
    const auto [leader, is_new] = leaders_.try_emplace(newest_, told.leader);
    const bool is_same = is_new || leader->second == told.leader;
    TARRY_ASSERT(is_same || newest_ > newest_synced_, "a generation has one leader");
    leader->second = told.leader;
    if (told.leader == told.member_id && !told.skip_assignment)
      for (const auto& member : told.members) who.to_assign.push_back(member.member_id);
  }
  void synced(Client& who) {
    const auto pending = std::exchange(who.sync, nullptr);
    const auto told = world_.read<protocol::SyncGroupResponse>(*pending, 5);
    if (told.error_code == ErrorCode::unknown_member_id) who.member_id.clear();
    if (told.error_code != ErrorCode::none) {
      who.generation = -1;
      return;
    }
    who.is_synced = true;
    newest_synced_ = std::max(newest_synced_, who.generation);
    if (told.assignment.empty()) return;  // The leader has given it nothing.
    const auto& given = given_[{who.generation, who.member_id}];
    TARRY_ASSERT(std::ranges::find(given, as_text(told.assignment)) != given.end(),
                 "an assignment is what the leader of that generation gave to that member");
  }

  void heartbeat(Client& who) {
    if (who.join || who.sync || who.member_id.empty()) return;
    protocol::HeartbeatRequest request;
    request.group_id = group_name;
    request.member_id = who.member_id;
    request.generation_id = who.generation;
    const auto told = world_.call<protocol::HeartbeatResponse>(request, 4, home()).error_code;
    TARRY_ASSERT(told != ErrorCode::none || who.generation == newest_,
                 "no older generation is alive");
    if (told == ErrorCode::unknown_member_id) who.member_id.clear();
    if (told != ErrorCode::none) who.generation = -1;  // It joins again.
  }

  void commit(Client& who) {
    if (who.join || who.sync || who.member_id.empty() || who.generation < 0) return;
    const PartitionIndex of = partition();
    const auto offset = static_cast<Offset>(input_.u8());
    const broker::test::Who by{.generation = who.generation, .member = who.member_id};
    const auto told = broker::test::commit(world_, group_name, topic_name, of, offset, "", by);
    if (told != ErrorCode::none) {
      who.is_synced = false;
      return;
    }
    TARRY_ASSERT(who.generation == newest_, "no older generation commits");
    committed_[of] = offset;
  }

  void check_offsets() {
    std::string expected;
    for (const auto& [of, offset] : committed_)
      expected += fmt::format("{}-{}:{}/4/ ", topic_name, of, offset);
    const auto seen = broker::test::fetch_all(world_, group_name, home());
    if (seen != expected) fmt::print(stderr, "committed: {}instead of {}\n", seen, expected);
    TARRY_ASSERT(seen == expected, "a committed offset is the last one that was accepted");
  }

  void leave(Client& who) {
    if (who.join || who.sync || who.member_id.empty()) return;
    protocol::LeaveGroupRequest request;
    request.group_id = group_name;
    request.members.push_back({who.member_id, {}, {}});
    world_.call<protocol::LeaveGroupResponse>(request, 5, home());
    who.member_id.clear();
    who.generation = -1;
  }

  Input input_;
  World world_;
  DelayModel model_;
  std::array<Client, client_count> clients_;
  std::uint64_t next_value_ = 0;
  std::int32_t newest_ = -1, newest_synced_ = -1;
  std::map<std::int32_t, std::string> leaders_;
  std::map<std::pair<std::int32_t, std::string>, std::vector<std::string>> given_;
  std::map<PartitionIndex, Offset> committed_;
};

}  // namespace

void fuzz_requests(Bytes input) {
  set_log_level(LogLevel::error);
  Driver(input).run();
}

}  // namespace tarry::fuzz
