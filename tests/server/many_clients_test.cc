// Clients of every kind at once, on several shards, each in a thread of its own: what requests on
// one shard leave on another, and what connections take with them when they go, is seen by the
// thread sanitizer here, and by whoever counts what was acknowledged.

#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "protocol/header.h"
#include "protocol/messages/create_topics.h"
#include "protocol/messages/delete_records.h"
#include "protocol/messages/delete_topics.h"
#include "protocol/messages/describe_groups.h"
#include "protocol/messages/fetch.h"
#include "protocol/messages/heartbeat.h"
#include "protocol/messages/join_group.h"
#include "protocol/messages/leave_group.h"
#include "protocol/messages/offset_commit.h"
#include "protocol/messages/offset_fetch.h"
#include "protocol/messages/produce.h"
#include "protocol/messages/sync_group.h"
#include "records/batch_builder.h"
#include "server/config_layers.h"
#include "server/server.h"
#include "tests/server/world.h"

namespace tarry::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using protocol::ErrorCode;

constexpr int partitions = 8;
constexpr std::string_view lasting = "lasting";

class BlockingClient {
 public:
  explicit BlockingClient(const HostPort& where) : socket_(context_) {
    socket_.connect({asio::ip::make_address(where.host), where.port});
    socket_.set_option(tcp::no_delay(true));
  }

  template <typename Request>
  void send(const Request& request, int version) {
    asio::write(socket_,
                asio::buffer(protocol::encode_request_frame(++sent_, "many", request, version)));
  }
  // The answer to the oldest request that has none.
  template <typename Response>
  Response receive(int version) {
    std::array<std::uint8_t, 4> size;
    asio::read(socket_, asio::buffer(size));
    Buffer frame(load_be<std::uint32_t>(size.data()));
    asio::read(socket_, asio::buffer(frame));
    const auto header = protocol::parse_response_header(frame, Response::api, version);
    REQUIRE(header.has_value());
    REQUIRE(header->correlation_id == ++received_);
    auto response = protocol::decode_message<Response>(header->body, version);
    REQUIRE(response.has_value());
    return std::move(*response);
  }
  template <typename Response, typename Request>
  Response call(const Request& request, int version) {
    send(request, version);
    return receive<Response>(version);
  }
  // Goes without a word, as a process that is killed.
  void vanish() {
    socket_.set_option(asio::socket_base::linger(true, 0));
    socket_.close();
  }

 private:
  asio::io_context context_;
  tcp::socket socket_;
  std::int32_t sent_ = 0, received_ = 0;
};

protocol::FetchRequest fetch_of(std::string_view topic, const std::vector<int>& from, int min_bytes,
                                int max_wait) {
  protocol::FetchRequest request;
  request.max_wait_ms = max_wait;
  request.min_bytes = min_bytes;
  request.topics.emplace_back().topic = topic;
  for (const int partition : from) {
    auto& asked = request.topics[0].partitions.emplace_back();
    asked.partition = partition;
    asked.partition_max_bytes = 1 << 20;
  }
  return request;
}

// The state that all threads of a test share.
struct Crowd {
  HostPort where;
  std::uint64_t seed;
  std::mutex mutex;
  std::map<int, std::set<std::string>> acknowledged;  // Values, by partition.
};

ErrorCode produce_one(BlockingClient& client, std::string_view topic, int partition,
                      const std::string& value, std::int16_t acks) {
  records::BatchBuilder builder;
  builder.append(WallTime{std::chrono::milliseconds{1'700'000'000'000}}, std::nullopt,
                 as_bytes(value));
  const Buffer batch = builder.finish();
  protocol::ProduceRequest request;
  request.acks = acks;
  request.timeout_ms = 30'000;
  auto& data = request.topic_data.emplace_back();
  data.name = topic;
  data.partition_data.push_back({partition, batch});
  const auto response = client.call<protocol::ProduceResponse>(request, 9);
  return response.responses.at(0).partition_responses.at(0).error_code;
}

void produce_some(Crowd& crowd, std::mt19937_64& random, const std::string& name) {
  BlockingClient client(crowd.where);
  for (int i = 0; i < 60; ++i) {
    const int partition = static_cast<int>(random() % partitions);
    const std::string value = name + "-" + std::to_string(i) + std::string(random() % 300, '.');
    if (produce_one(client, lasting, partition, value, random() % 2 == 0 ? 1 : -1) !=
        ErrorCode::none)
      continue;
    const std::lock_guard lock(crowd.mutex);
    crowd.acknowledged[partition].insert(value);
  }
}

// Waits for one partition or for all of them, and often is gone before the answer.
void fetch_some(Crowd& crowd, std::mt19937_64& random) {
  for (int i = 0; i < 12; ++i) {
    BlockingClient client(crowd.where);
    std::vector<int> from;
    const bool all = random() % 2 == 0;
    for (int p = 0; p < partitions; ++p)
      if (all) from.push_back(p);
    if (!all) from.push_back(static_cast<int>(random() % partitions));
    const int asked = 1 + static_cast<int>(random() % 14);  // More than make a habit, too.
    for (int k = 0; k < asked; ++k)
      client.send(fetch_of(lasting, from, 200'000'000, 1 + static_cast<int>(random() % 20)), 12);
    const int answered = static_cast<int>(random() % static_cast<unsigned>(asked + 1));
    for (int k = 0; k < answered; ++k) {
      const auto response = client.receive<protocol::FetchResponse>(12);
      CHECK(response.responses.at(0).partitions.size() == from.size());
    }
    if (random() % 2 == 0) client.vanish();
  }
}

void join_some(Crowd& crowd, std::mt19937_64& random, const std::string& group) {
  for (int life = 0; life < 4; ++life) {
    BlockingClient client(crowd.where);
    std::string member;
    std::int32_t generation = -1;
    for (int turn = 0; turn < 8; ++turn) {
      protocol::JoinGroupRequest join;
      join.group_id = group;
      join.session_timeout_ms = 150;
      join.rebalance_timeout_ms = 150;
      join.member_id = member;
      join.protocol_type = "consumer";
      join.protocols.push_back({"range", {}});
      const auto joined = client.call<protocol::JoinGroupResponse>(join, 5);
      member = joined.error_code == ErrorCode::unknown_member_id ? "" : joined.member_id;
      if (joined.error_code != ErrorCode::none) continue;
      generation = joined.generation_id;

      protocol::SyncGroupRequest sync;
      sync.group_id = group;
      sync.generation_id = generation;
      sync.member_id = member;
      if (joined.leader == member)
        for (const auto& each : joined.members)
          sync.assignments.push_back({each.member_id, as_bytes("x")});
      const auto synced = client.call<protocol::SyncGroupResponse>(sync, 3);
      if (synced.error_code != ErrorCode::none) continue;

      protocol::OffsetCommitRequest commit;
      commit.group_id = group;
      commit.generation_id_or_member_epoch = generation;
      commit.member_id = member;
      auto& topic = commit.topics.emplace_back();
      topic.name = lasting;
      topic.partitions.emplace_back().partition_index = static_cast<int>(random() % partitions);
      client.call<protocol::OffsetCommitResponse>(commit, 7);
      protocol::HeartbeatRequest heartbeat;
      heartbeat.group_id = group;
      heartbeat.generation_id = generation;
      heartbeat.member_id = member;
      while (random() % 4 != 0)
        if (client.call<protocol::HeartbeatResponse>(heartbeat, 3).error_code != ErrorCode::none)
          break;
      protocol::OffsetFetchRequest offsets;
      offsets.group_id = group;
      CHECK(client.call<protocol::OffsetFetchResponse>(offsets, 5).error_code == ErrorCode::none);
      if (random() % 3 == 0) break;
    }
    if (random() % 3 == 0) {
      client.vanish();
    } else {
      protocol::LeaveGroupRequest leave;
      leave.group_id = group;
      leave.member_id = member;
      client.call<protocol::LeaveGroupResponse>(leave, 2);
    }
  }
}

// Topics come and go under those who wait for them.
void change_topics(Crowd& crowd, std::mt19937_64& random) {
  BlockingClient client(crowd.where), waiting(crowd.where);
  for (int i = 0; i < 8; ++i) {
    const std::string name = "passing" + std::to_string(random() % 3);
    protocol::CreateTopicsRequest create;
    auto& topic = create.topics.emplace_back();
    topic.name = name;
    topic.num_partitions = 3;
    topic.replication_factor = 1;
    client.call<protocol::CreateTopicsResponse>(create, 5);
    waiting.send(fetch_of(name, {0, 1, 2}, 1000, 200), 12);
    produce_one(client, name, 1, "gone soon", 1);

    protocol::DeleteRecordsRequest records;
    auto& deleted = records.topics.emplace_back();
    deleted.name = name;
    deleted.partitions.push_back({1, -1});
    records.timeout_ms = 10'000;
    client.call<protocol::DeleteRecordsResponse>(records, 1);
    protocol::DeleteTopicsRequest remove;
    remove.topic_names.push_back(name);
    remove.timeout_ms = 10'000;
    client.call<protocol::DeleteTopicsResponse>(remove, 5);
    CHECK(waiting.receive<protocol::FetchResponse>(12).responses.at(0).partitions.size() == 3);
    protocol::DescribeGroupsRequest describe;
    describe.groups = {"one", "two"};
    CHECK(client.call<protocol::DescribeGroupsResponse>(describe, 4).groups.size() == 2);
  }
}

TEST_SUITE("many clients") {
  TEST_CASE("acknowledged records are there, whatever other clients wait, leave and rebalance") {
    const char* given = std::getenv("TARRY_TEST_SEED");
    Crowd crowd;
    crowd.seed = given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    const std::uint64_t seed = crowd.seed;
    CAPTURE(seed);
    const TemporaryDirectory directory;
    auto config = *make_config({});
    config.listeners[0].listen = {"127.0.0.1", 0};
    config.admin.reset();
    config.shards = 3;
    config.broker.data_directory = directory.path() + "/data";
    config.broker.group_min_session_timeout = std::chrono::milliseconds{10};
    config.broker.group_initial_rebalance_delay = std::chrono::milliseconds{5};
    Server server(config, [](const Error& error) { FAIL(error.message); });
    REQUIRE(server.start().has_value());
    crowd.where = server.kafka();

    BlockingClient client(crowd.where);
    protocol::CreateTopicsRequest create;
    auto& topic = create.topics.emplace_back();
    topic.name = lasting;
    topic.num_partitions = partitions;
    topic.replication_factor = 1;
    REQUIRE(client.call<protocol::CreateTopicsResponse>(create, 5).topics.at(0).error_code ==
            ErrorCode::none);

    std::vector<std::thread> threads;
    const auto start = [&](auto work) {
      const std::uint64_t number = threads.size();
      threads.emplace_back([&crowd, number, work] {
        std::mt19937_64 random(crowd.seed + number);
        work(random);
      });
    };
    for (const char* name : {"a", "b"})
      start([&crowd, name](auto& random) { produce_some(crowd, random, name); });
    for (int i = 0; i < 3; ++i) start([&crowd](auto& random) { fetch_some(crowd, random); });
    for (const char* group : {"one", "one", "one", "two", "two"})
      start([&crowd, group](auto& random) { join_some(crowd, random, group); });
    start([&crowd](auto& random) { change_topics(crowd, random); });
    for (auto& thread : threads) thread.join();

    for (const auto& [partition, values] : crowd.acknowledged) {
      CAPTURE(partition);
      std::set<std::string> found;
      const auto response =
          client.call<protocol::FetchResponse>(fetch_of(lasting, {partition}, 1, 1000), 12);
      const auto& records = response.responses.at(0).partitions.at(0).records;
      for (const auto& piece : records.pieces) {
        for (Bytes left = piece.view(); !left.empty();) {
          const auto batch = records::next_batch(left);
          REQUIRE(batch.has_value());
          REQUIRE(records::for_each_record(batch->records(), batch->record_count(),
                                           [&](const records::RecordView& record) {
                                             found.emplace(as_text(record.value.value()));
                                             return true;
                                           })
                      .has_value());
          left = left.subspan(batch->size());
        }
      }
      CHECK(std::ranges::includes(found, values));
    }
    CHECK(server.stop().has_value());
  }
}

}  // namespace
}  // namespace tarry::server
