// DelayedProduce and DelayedCreateTopics: each case that ends their waiting; and what holds for all
// that a broker parks.

#include <doctest/doctest.h>

#include "protocol/messages/delete_topics.h"
#include "protocol/messages/init_producer_id.h"
#include "tests/broker/batches.h"

namespace tarry::broker::test {
namespace {

using namespace std::chrono_literals;
using purgatory::Kind;
using Strings = std::vector<std::string>;

std::uint64_t waiting(World& world, Kind kind) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < world.broker().shard_count(); ++i)
    sum += world.shard(i).purgatory().metrics(kind).waiting;
  return sum;
}

// Opens them all, so that nothing but the journal is waited for.
void open_partitions(World& world, PartitionIndex count) {
  for (PartitionIndex p = 0; p < count; ++p) {
    const TopicPartition tp{world.shard().topics().find("t")->id, p};
    world.broker().shard_of(tp).with_partition(tp, [](auto) {});
  }
  world.run();
}

protocol::ProduceRequest produce_to_all(PartitionIndex count, Bytes batch, std::int32_t timeout) {
  auto request = produce_request("t", 0, batch);
  request.timeout_ms = timeout;
  for (PartitionIndex p = 1; p < count; ++p)
    request.topic_data[0].partition_data.push_back({p, batch});
  return request;
}

TEST_SUITE("delayed produce") {
  TEST_CASE("satisfied: its round is synced, on all shards that it has partitions on") {
    World world;
    create_topic(world, "t", 8);
    open_partitions(world, 8);
    world.background_stands_still = true;
    const Buffer batch = batch_of(world.clock.wall(), {{"a"}});
    const auto pending = world.begin(produce_to_all(8, batch, 30'000), 9);
    world.pass(5s);
    CHECK_FALSE(pending->answer.has_value());
    CHECK(waiting(world, Kind::produce) == 2);  // One a shard, however many partitions.
    world.background_stands_still = false;
    world.run();
    REQUIRE(pending->answer.has_value());
    const auto answer = world.read<protocol::ProduceResponse>(*pending, 9);
    for (const auto& each : answer.responses[0].partition_responses) {
      CHECK(each.error_code == ErrorCode::none);
      CHECK(each.base_offset == 0);
    }
    CHECK(waiting(world, Kind::produce) == 0);
  }

  TEST_CASE("expired: REQUEST_TIMED_OUT at timeout_ms; a retry is then told what became of it") {
    World world;
    create_topic(world, "t", 8);
    open_partitions(world, 8);
    const auto pid =
        world.call<protocol::InitProducerIdResponse>(protocol::InitProducerIdRequest{}, 4);
    const Buffer batch =
        batch_of(world.clock.wall(), {{"a"}, {"b"}}, {pid.producer_id, pid.producer_epoch, 0});
    world.background_stands_still = true;
    const auto pending = world.begin(produce_to_all(8, batch, 500), 9);
    world.pass(499ms);
    CHECK_FALSE(pending->answer.has_value());
    world.pass(1ms);
    REQUIRE(pending->answer.has_value());
    const auto answer = world.read<protocol::ProduceResponse>(*pending, 9);
    for (const auto& each : answer.responses[0].partition_responses) {
      CHECK(each.error_code == ErrorCode::request_timed_out);
      CHECK(each.base_offset == -1);
    }
    CHECK(world.shard().purgatory().metrics(Kind::produce).expired == 1);

    // A retry while it is still not durable waits for the same round, and is no second append.
    const auto retry = world.begin(produce_to_all(8, batch, 30'000), 9);
    world.pass(1s);
    CHECK_FALSE(retry->answer.has_value());
    world.background_stands_still = false;
    world.run();
    REQUIRE(retry->answer.has_value());
    const auto told = world.read<protocol::ProduceResponse>(*retry, 9);
    for (const auto& each : told.responses[0].partition_responses) {
      CHECK(each.error_code == ErrorCode::none);
      CHECK(each.base_offset == 0);
    }
    for (PartitionIndex p = 0; p < 8; ++p)
      CHECK(values(read_all(world, "t", p)) == Strings{"a", "b"});
  }

  TEST_CASE("expired: what is durable by then is answered as such, beside what is not") {
    World world({.shards = 1});
    create_topic(world, "t", 2, {{"tarry.durability", "os"}});
    open_partitions(world, 2);
    // Refused at once, so nothing of it is waited for; the other is not durable in time.
    const Buffer good = batch_of(world.clock.wall(), {{"a"}});
    Buffer bad = good;
    bad.back() ^= 1;
    auto request = produce_request("t", 0, good);
    request.timeout_ms = 100;
    request.topic_data[0].partition_data.push_back({1, bad});
    world.background_stands_still = true;
    const auto pending = world.begin(request, 9);
    world.pass(100ms);
    REQUIRE(pending->answer.has_value());
    const auto answer = world.read<protocol::ProduceResponse>(*pending, 9);
    CHECK(answer.responses[0].partition_responses[0].error_code == ErrorCode::request_timed_out);
    CHECK(answer.responses[0].partition_responses[1].error_code == ErrorCode::corrupt_message);
    world.background_stands_still = false;
    world.run();
  }

  TEST_CASE("cancelled: the client goes, and nothing waits for it on any shard") {
    World world;
    create_topic(world, "t", 8);
    open_partitions(world, 8);
    world.background_stands_still = true;
    const Buffer batch = batch_of(world.clock.wall(), {{"a"}});
    const auto pending = world.begin(produce_to_all(8, batch, 3'600'000), 9);
    CHECK(waiting(world, Kind::produce) == 2);
    world.connection().close();
    world.run();
    CHECK(waiting(world, Kind::produce) == 0);
    CHECK(pending->answer.has_value());  // Its frame and all that it held are let go.
    for (std::size_t i = 0; i < 2; ++i)
      CHECK(world.shard(i).purgatory().metrics(Kind::produce).cancelled == 1);
    // What was appended stays so.
    world.background_stands_still = false;
    world.run();
    for (PartitionIndex p = 0; p < 8; ++p) CHECK(read_all(world, "t", p).size() == 1);
  }

  TEST_CASE(
      "a topic that is deleted meanwhile does not end it: it is answered when it is durable") {
    World world;
    create_topic(world, "t", 8);
    open_partitions(world, 8);
    world.background_stands_still = true;
    const Buffer batch = batch_of(world.clock.wall(), {{"a"}});
    const auto pending = world.begin(produce_to_all(8, batch, 3'600'000), 9);
    protocol::DeleteTopicsRequest request;
    request.topics.push_back({"t", {}});
    const auto deleted = world.begin(request, 6);
    world.background_stands_still = false;
    world.pass(1ms);
    CHECK(pending->answer.has_value());
    CHECK(deleted->answer.has_value());
    CHECK(waiting(world, Kind::produce) == 0);
  }
}

TEST_SUITE("delayed create topics") {
  protocol::CreateTopicsRequest create_request(std::initializer_list<std::string_view> names,
                                               std::int32_t timeout_ms) {
    protocol::CreateTopicsRequest request;
    request.timeout_ms = timeout_ms;
    for (const auto name : names) {
      auto& topic = request.topics.emplace_back();
      topic.name = name;
      topic.num_partitions = 4;
      topic.replication_factor = 1;
    }
    return request;
  }

  TEST_CASE("satisfied: each is durable, known to every shard, or refused") {
    World world({.shards = 3});
    create_topic(world, "old");
    world.background_stands_still = true;
    const auto pending = world.begin(create_request({"a", "old", "b"}, 30'000), 7, 1);
    world.pass(1s);
    CHECK_FALSE(pending->answer.has_value());
    CHECK(world.shard(1).purgatory().metrics(Kind::create_topics).waiting == 1);
    world.background_stands_still = false;
    world.run();
    REQUIRE(pending->answer.has_value());
    const auto answer = world.read<protocol::CreateTopicsResponse>(*pending, 7);
    CHECK(answer.topics[0].error_code == ErrorCode::none);
    CHECK(answer.topics[0].num_partitions == 4);
    CHECK(answer.topics[1].error_code == ErrorCode::topic_already_exists);
    CHECK(answer.topics[2].error_code == ErrorCode::none);
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(world.shard(i).topics().find("a"));
      CHECK(world.shard(i).topics().find("b"));
    }
    world.restart();
    CHECK(world.shard(2).topics().find("b"));
  }

  TEST_CASE("expired: REQUEST_TIMED_OUT at its timeout; what was under way may appear, no other") {
    World world;
    world.background_stands_still = true;
    const auto pending = world.begin(create_request({"a", "b", "."}, 500), 7);
    world.pass(499ms);
    CHECK_FALSE(pending->answer.has_value());
    world.pass(1ms);
    REQUIRE(pending->answer.has_value());
    const auto answer = world.read<protocol::CreateTopicsResponse>(*pending, 7);
    for (const auto& topic : answer.topics) {
      CHECK(topic.error_code == ErrorCode::request_timed_out);
      CHECK(topic.error_message.has_value());
    }
    CHECK(world.shard().purgatory().metrics(Kind::create_topics).expired == 1);
    world.background_stands_still = false;
    world.run();
    CHECK(world.shard(1).topics().find("a"));
    CHECK_FALSE(world.shard(1).topics().find("b"));
    create_topic(world, "b");
  }

  TEST_CASE("cancelled: the client goes; nothing waits, and nothing further is begun for it") {
    World world;
    world.background_stands_still = true;
    const auto pending = world.begin(create_request({"a", "b"}, 3'600'000), 7, 1);
    world.connection(1).close();
    world.run();
    CHECK(pending->answer.has_value());
    CHECK(waiting(world, Kind::create_topics) == 0);
    world.background_stands_still = false;
    world.run();
    CHECK_FALSE(world.shard().topics().find("b"));
  }
}

TEST_SUITE("what a broker parks") {
  TEST_CASE(
      "a client that goes while several requests wait is answered for none, and holds nothing") {
    World world;
    create_topic(world, "t", 8);
    open_partitions(world, 8);
    std::vector<std::shared_ptr<World::Pending>> all;
    for (PartitionIndex p = 0; p < 8; ++p)
      all.push_back(world.begin(fetch_request("t", p, 0, 3'600'000), 12));
    CHECK(waiting(world, Kind::fetch) == 8);
    world.connection().close();
    // Here at once, before anything else runs; on the other shard when it has been told.
    CHECK(world.shard(0).purgatory().metrics(Kind::fetch).waiting == 0);
    CHECK(waiting(world, Kind::fetch) > 0);
    world.run();
    CHECK(waiting(world, Kind::fetch) == 0);
    for (const auto& one : all) CHECK(one->answer.has_value());
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK_FALSE(world.shard(i).purgatory().has_completions());
      for (const auto& [tp, partition] : world.shard(i).partitions())
        CHECK(partition->fetches.empty());
    }
  }

  TEST_CASE("a quiet partition keeps nothing of fetches that others answered") {
    World world({.shards = 1});
    create_topic(world, "t", 2);
    open_partitions(world, 2);
    auto request = fetch_request("t", 0, 0, 3'600'000);
    request.topics[0].partitions.push_back(request.topics[0].partitions[0]);
    request.topics[0].partitions[1].partition = 1;  // Nothing ever comes there.
    const TopicPartition quiet{world.shard().topics().find("t")->id, 1};
    for (int i = 0; i < 50; ++i) {
      request.topics[0].partitions[0].fetch_offset = i;
      const auto pending = world.begin(request, 12);
      CHECK_FALSE(world.shard().open_partition(quiet)->fetches.empty());
      produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}}));
      CHECK(pending->answer.has_value());
      CHECK(world.shard().open_partition(quiet)->fetches.empty());
    }
    CHECK(waiting(world, Kind::fetch) == 0);
  }

  TEST_CASE("the wall clock's jumps neither expire nor hold what waits") {
    World world;
    create_topic(world, "t", 2);
    const auto pending = world.begin(fetch_request("t", 0, 0, 1000), 12);
    world.clock.now_wall += 24h;
    world.pass(500ms);
    CHECK_FALSE(pending->answer.has_value());
    world.clock.now_wall -= 72h;
    world.pass(499ms);
    CHECK_FALSE(pending->answer.has_value());
    world.pass(1ms);
    CHECK(pending->answer.has_value());
  }
}

}  // namespace
}  // namespace tarry::broker::test
