// A group under random schedules of joins, leaves, deaths, failing writes and restarts, against
// what must always hold: in a generation nobody has a partition that another one has, everybody has
// what that generation's leader gave, and whatever has happened, clients that go on get a
// generation with all partitions soon.
//
// A run is decided by its seed, which a failure prints.

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/core.h>

#include "group_world.h"

namespace tarry::broker::test {
namespace {

constexpr int partitions = 7;

// A consumer: asks, and does what the answer tells it, as the clients do.
struct Client {
  enum class Doing { nothing, wants_to_join, joining, wants_to_sync, syncing, reading };

  int number = 0;
  int version = 3;
  std::string instance;  // Empty: none.
  bool two_protocols = false;
  Doing doing = Doing::wants_to_join;
  std::string member_id;
  std::int32_t generation = -1;
  std::set<int> reads;
  Join join;
  Sync sync;
  timing::Tick heard = 0;

  std::string owner() const { return instance.empty() ? member_id : "i:" + instance; }
};

std::string text_of(const std::set<int>& numbers) {
  std::string out;
  for (const int number : numbers) out += static_cast<char>('0' + number);
  return out;
}

class Simulation {
 public:
  explicit Simulation(std::uint64_t seed) : dice_(seed) {
    if (dice_.below(2) == 0) world_.limits.group_initial_rebalance_delay = 0ms;
  }

  void disturb(int steps) {
    for (int i = 0; i < steps; ++i) {
      const auto what = dice_.below(100);
      if (what < 55) {
        if (!clients_.empty()) step(*clients_[dice_.below(clients_.size())]);
      } else if (what < 70) {
        world_.pass(std::chrono::milliseconds{dice_.below(2500)});
      } else if (what < 82) {
        if (dice_.below(12) == 0 && !world_.storing.empty()) {
          world_.store_has_failed(ErrorCode::coordinator_not_available);
        } else {
          world_.store_is_durable();
        }
      } else if (what < 90) {
        if (clients_.size() < 8) begin_client();
      } else if (what < 98) {
        if (!clients_.empty()) end_client(dice_.below(clients_.size()));
      } else {
        restart();
      }
      check_group();
    }
  }

  // Nothing happens any more but what clients do by themselves.
  void calm_down() {
    const auto until = world_.tick() + 400'000;
    while (!everything_is_read()) {
      if (world_.tick() >= until) {
        FAIL(fmt::format("stuck: {} in generation {}, {} members, {} expected, {} clients",
                         name_of(world_.state()), world_.group().generation(),
                         world_.group().members().size(), world_.group().pending_members(),
                         clients_.size()));
      }
      world_.store_is_durable();
      for (auto& client : clients_) step(*client);
      world_.pass(250ms);
      check_group();
    }
  }

 private:
  void begin_client() {
    auto client = std::make_unique<Client>();
    client->number = next_number_++;
    client->version = std::array{1, 3, 4, 5, 9}[dice_.below(5)];
    client->two_protocols = dice_.below(2) == 0;
    if (client->version >= 5 && dice_.below(2) == 0) {
      client->instance = fmt::format("static{}", dice_.below(3));  // Sometimes two at a time.
    }
    clients_.push_back(std::move(client));
  }

  void end_client(std::size_t index) {
    Client& client = *clients_[index];
    switch (dice_.below(4)) {
      case 0:  // In order; static members do not say that they leave.
        if (!client.member_id.empty() && client.instance.empty()) world_.leave(client.member_id);
        hang_up(client);
        break;
      case 1:
      case 2:
        hang_up(client);
        break;
      default:  // The machine is gone, and its connection does not know.
        if (client.join) abandoned_joins_.push_back(client.join);
        if (client.sync) abandoned_syncs_.push_back(client.sync);
    }
    clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(index));
  }
  void hang_up(Client& client) {
    if (client.join) client.join->cancel();
    if (client.sync) client.sync->cancel();
    world_.run();
    client.join.reset();
    client.sync.reset();
  }

  void restart() {
    abandoned_joins_.clear();
    abandoned_syncs_.clear();
    for (auto& client : clients_) {
      if (client->doing == Client::Doing::joining) client->doing = Client::Doing::wants_to_join;
      if (client->doing == Client::Doing::syncing) client->doing = Client::Doing::wants_to_join;
      client->join.reset();
      client->sync.reset();
    }
    world_.restart();
  }

  void step(Client& client) {
    switch (client.doing) {
      case Client::Doing::nothing:
        return;
      case Client::Doing::wants_to_join: {
        Says says;
        says.member_id = client.member_id;
        says.instance_id = client.instance;
        says.version = client.version;
        says.session = 10s;
        says.rebalance = 20s;
        says.client = fmt::format("c{}", client.number);
        if (client.two_protocols) says.protocols = {{"sticky", "s"}, {"range", "r"}};
        client.reads.clear();
        client.join = world_.join(says);
        client.doing = Client::Doing::joining;
        return;
      }
      case Client::Doing::joining:
        if (client.join->has_answer()) joined(client);
        return;
      case Client::Doing::wants_to_sync:
        client.sync =
            world_.sync(client.member_id, client.generation, assignments_, client.instance);
        client.doing = Client::Doing::syncing;
        return;
      case Client::Doing::syncing:
        if (client.sync->has_answer()) synced(client);
        return;
      case Client::Doing::reading:
        if (world_.tick() < client.heard + 2000) return;
        client.heard = world_.tick();
        const auto code = world_.heartbeat(client.member_id, client.generation, client.instance);
        if (code != ErrorCode::none) react(client, code);
    }
  }

  void joined(Client& client) {
    const auto answer = *std::exchange(client.join, nullptr)->answer();
    client.member_id = answer.member_id;
    if (answer.error_code != ErrorCode::none) return react(client, answer.error_code);
    client.generation = answer.generation_id;
    client.doing = Client::Doing::wants_to_sync;
    assignments_.clear();
    if (answer.leader == answer.member_id && !answer.skip_assignment) {
      REQUIRE_FALSE(answer.members.empty());
      std::vector<std::set<int>> shares(answer.members.size());
      for (int p = 0; p < partitions; ++p) shares[dice_.below(shares.size())].insert(p);
      for (std::size_t i = 0; i < shares.size(); ++i) {
        assignments_.emplace_back(answer.members[i].member_id, text_of(shares[i]));
        given_[client.generation].insert(text_of(shares[i]));
      }
    }
    // At once, so that nobody else's assignments come in between.
    step(client);
  }

  void synced(Client& client) {
    const auto answer = *std::exchange(client.sync, nullptr)->answer();
    if (answer.error_code != ErrorCode::none) return react(client, answer.error_code);
    client.reads.clear();
    for (const std::uint8_t digit : answer.assignment) client.reads.insert(digit - '0');
    if (!client.reads.empty() && !given_[client.generation].contains(text_of(client.reads))) {
      FAIL(fmt::format("in generation {} {} got {}, which no leader gave", client.generation,
                       client.owner(), text_of(client.reads)));
    }
    for (const int partition : client.reads) {
      const auto [at, is_new] = owners_.try_emplace({client.generation, partition}, client.owner());
      if (!is_new && at->second != client.owner()) {
        FAIL(fmt::format("in generation {} partition {} is {}'s and {}'s", client.generation,
                         partition, at->second, client.owner()));
      }
    }
    client.heard = world_.tick();
    client.doing = Client::Doing::reading;
  }

  void react(Client& client, ErrorCode code) {
    client.reads.clear();
    client.doing = Client::Doing::wants_to_join;
    switch (code) {
      case ErrorCode::unknown_member_id:
        client.member_id.clear();
        break;
      case ErrorCode::fenced_instance_id:
        // Its process ends, and whoever watches over it starts another one: under a name of its
        // own, or two would fence one another for ever.
        client.member_id.clear();
        client.instance = fmt::format("static-again{}", client.number);
        break;
      case ErrorCode::member_id_required:
      case ErrorCode::rebalance_in_progress:
      case ErrorCode::illegal_generation:
      case ErrorCode::coordinator_not_available:
        break;
      default:
        FAIL(fmt::format("a client was told {}", protocol::name(code)));
    }
  }

  bool everything_is_read() const {
    if (clients_.empty()) return world_.state() == GroupState::empty;
    if (world_.state() != GroupState::stable) return false;
    std::set<int> read;
    for (const auto& client : clients_) {
      if (client->doing != Client::Doing::reading) return false;
      if (client->generation != world_.group().generation()) return false;
      read.insert(client->reads.begin(), client->reads.end());
    }
    return read.size() == partitions && world_.group().members().size() == clients_.size();
  }

  void check_group() {
    const Group& group = world_.group();
    const bool none = group.is(GroupState::empty) || group.is(GroupState::dead);
    if (none) CHECK(group.members().empty());
    if (group.is(GroupState::stable) || group.is(GroupState::completing_rebalance)) {
      CHECK_FALSE(group.members().empty());
      CHECK(group.members().contains(group.leader()));
      CHECK_FALSE(group.protocol_name().empty());
    }
  }

  CountingRandom dice_;
  GroupWorld world_;
  std::vector<std::unique_ptr<Client>> clients_;
  int next_number_ = 0;
  GroupWorld::Assignments assignments_;  // The assignments of the leader that syncs next.
  std::vector<Join> abandoned_joins_;
  std::vector<Sync> abandoned_syncs_;
  std::map<std::int32_t, std::set<std::string>> given_;         // By generation, restarts or not.
  std::map<std::pair<std::int32_t, int>, std::string> owners_;  // For ever, restarts or not.
};

}  // namespace

TEST_SUITE("group_simulation") {
  TEST_CASE(
      "in no schedule two members have a partition in one generation, and no group is stuck") {
    for (std::uint64_t seed = 1; seed <= 150; ++seed) {
      CAPTURE(seed);
      Simulation simulation(seed);
      for (int round = 0; round < 3; ++round) {
        simulation.disturb(150);
        simulation.calm_down();
      }
    }
  }
}

}  // namespace tarry::broker::test
