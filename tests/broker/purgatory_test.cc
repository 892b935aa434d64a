// DurabilityWait and DelayedTopicChange (of new topics): each case that ends their waiting; and
// what holds for all that a broker parks.

#include <doctest/doctest.h>

#include "broker/handlers/delayed_fetch.h"
#include "broker/handlers/delayed_topic_change.h"
#include "protocol/messages/delete_topics.h"
#include "protocol/messages/init_producer_id.h"
#include "tests/broker/batches.h"

namespace tarry::broker::test {
namespace {

using namespace std::chrono_literals;
using Strings = std::vector<std::string>;

PartitionIndex on_shard(World& world, std::size_t index, std::string_view topic = "t") {
  for (PartitionIndex p = 0;; ++p) {
    const auto known = world.shard().topics().find(topic);
    REQUIRE(p < known->partitions);
    if (world.broker().shard_of({known->id, p}).index() == index) return p;
  }
}

// Opens them all, so that nothing but the journal is waited for.
void open_partitions(World& world, PartitionIndex count) {
  for (PartitionIndex p = 0; p < count; ++p) {
    const TopicPartition tp{world.shard().topics().find("t")->id, p};
    world.broker().shard_of(tp).partitions().with(tp, [](auto) {});
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
    CHECK(count_waiting(world, kind_named("produce")) ==
          2);  // One a shard, however many partitions.
    world.background_stands_still = false;
    world.run();
    REQUIRE(pending->answer.has_value());
    const auto answer = world.read<protocol::ProduceResponse>(*pending, 9);
    for (const auto& each : answer.responses[0].partition_responses) {
      CHECK(each.error_code == ErrorCode::none);
      CHECK(each.base_offset == 0);
    }
    CHECK(count_waiting(world, kind_named("produce")) == 0);
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
    CHECK(world.shard().purgatory().metrics(kind_named("produce")).expired == 1);

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

  TEST_CASE("expired: one shard's batch is durable by then, only the other's is timed out") {
    for (const std::size_t slow : {0, 1}) {
      CAPTURE(slow);
      World world;
      create_topic(world, "t", 8);
      open_partitions(world, 8);
      const PartitionIndex there = on_shard(world, 1 - slow), late = on_shard(world, slow);
      const Buffer batch = batch_of(world.clock.wall(), {{"a"}});
      auto request = produce_request("t", there, batch);
      request.timeout_ms = 500;
      request.topic_data[0].partition_data.push_back({late, batch});
      world.background_stands_still = true;
      const auto pending = world.begin(request, 9);
      world.background(1 - slow).run_all();
      world.pass(499ms);
      CHECK_FALSE(pending->answer.has_value());
      CHECK(count_waiting(world, kind_named("produce")) == 1);
      world.pass(1ms);
      REQUIRE(pending->answer.has_value());
      const auto answer = world.read<protocol::ProduceResponse>(*pending, 9);
      const auto& answers = answer.responses[0].partition_responses;
      CHECK(answers[0].error_code == ErrorCode::none);
      CHECK(answers[0].base_offset == 0);
      CHECK(answers[1].error_code == ErrorCode::request_timed_out);
      CHECK(answers[1].base_offset == -1);
      CHECK(world.shard(1 - slow).purgatory().metrics(kind_named("produce")).satisfied == 1);
      CHECK(world.shard(slow).purgatory().metrics(kind_named("produce")).expired == 1);
      world.background_stands_still = false;
      world.run();
    }
  }

  TEST_CASE("expired: of one shard's batches only those are timed out that no finished round has") {
    for (const std::string durability : {"fsync", "os"}) {
      CAPTURE(durability);
      World world({.shards = 1});
      create_topic(world, "t", 2, {{"tarry.durability", durability}});
      open_partitions(world, 2);
      // The second batch is long to look at, so it comes a round later than the first.
      const Buffer first = batch_of(world.clock.wall(), {{"a"}});
      std::string noise(100'000, ' ');  // Does not pack.
      SeededRandom random(1);
      for (auto& c : noise) c = static_cast<char>(random.u64());
      const Buffer second = batch_of(world.clock.wall(), {{noise}}, {}, records::Codec::zstd);
      world.background_stands_still = true;
      auto request = produce_request("t", 0, first);
      request.timeout_ms = 100;
      request.topic_data[0].partition_data.push_back({1, second});
      const auto pending = world.begin(request, 9);
      REQUIRE(world.background().size() == 2);
      world.background().run_all();  // One looks at the batch, one is the round of the other.
      const TopicPartition tp{world.shard().topics().find("t")->id, 1};
      world.turn();
      CHECK(world.shard().partitions().find(tp)->log_end() == 1);
      CHECK(count_waiting(world, kind_named("produce")) == 1);
      world.pass(100ms);
      REQUIRE(pending->answer.has_value());
      const auto answer = world.read<protocol::ProduceResponse>(*pending, 9);
      const auto& answers = answer.responses[0].partition_responses;
      CHECK(answers[0].error_code == ErrorCode::none);
      CHECK(answers[0].base_offset == 0);
      CHECK(answers[1].error_code == ErrorCode::request_timed_out);
      world.background_stands_still = false;
      world.run();
    }
  }

  TEST_CASE("expired: what was refused at once is answered as that, beside what is not durable") {
    World world({.shards = 1});
    create_topic(world, "t", 2, {{"tarry.durability", "os"}});
    open_partitions(world, 2);
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
    CHECK(count_waiting(world, kind_named("produce")) == 2);
    world.connection().close();
    world.run();
    CHECK(count_waiting(world, kind_named("produce")) == 0);
    CHECK(pending->answer.has_value());  // Its frame and all that it held are let go.
    for (std::size_t i = 0; i < 2; ++i)
      CHECK(world.shard(i).purgatory().metrics(kind_named("produce")).cancelled == 1);
    // Appended records stay.
    world.background_stands_still = false;
    world.run();
    for (PartitionIndex p = 0; p < 8; ++p) CHECK(read_all(world, "t", p).size() == 1);
  }

  TEST_CASE(
      "cancelled: the broker stops: it is answered as not durable, nobody waits for timeout") {
    for (const std::size_t where : {0, 1}) {
      CAPTURE(where);
      World world;
      create_topic(world, "t", 8);
      open_partitions(world, 8);
      const PartitionIndex p = on_shard(world, where);
      const Buffer batch = batch_of(world.clock.wall(), {{"a"}});
      auto request = produce_request("t", p, batch);
      request.timeout_ms = 3'600'000;
      world.background_stands_still = true;
      const auto pending = world.begin(request, 9);
      CHECK(world.shard(where).purgatory().metrics(kind_named("produce")).waiting == 1);
      bool stopped = false;
      world.broker().stop([&] { stopped = true; });
      for (int i = 0; i < 1000 && !pending->answer; ++i) {
        world.pass(1ms);
        world.background(1 - where).run_all();  // The shards stop one after the other.
      }
      CHECK_FALSE(stopped);
      CHECK(world.shard(where).purgatory().metrics(kind_named("produce")).cancelled == 1);
      const auto answer = world.read<protocol::ProduceResponse>(*pending, 9);
      CHECK(answer.responses[0].partition_responses[0].error_code == ErrorCode::request_timed_out);
      world.background_stands_still = false;
      for (int i = 0; i < 1000 && !stopped; ++i) world.pass(1ms);
      CHECK(stopped);
      // It is as with every answer of that kind: the batch is there all the same.
      world.restart();
      CHECK(values(read_all(world, "t", p)) == Strings{"a"});
    }
  }

  TEST_CASE("a batch that is in the journal before its topic is deleted is answered as durable") {
    World world;
    create_topic(world, "t", 8);
    open_partitions(world, 8);
    world.background_stands_still = true;
    const Buffer batch = batch_of(world.clock.wall(), {{"a"}});
    const auto pending = world.begin(produce_to_all(8, batch, 3'600'000), 9);
    protocol::DeleteTopicsRequest request;
    request.timeout_ms = 30'000;
    request.topics.push_back({"t", {}});
    const auto deleted = world.begin(request, 6);
    // The topic is gone, and the round of the other shard is still on its way.
    for (int i = 0; i < 100 && !deleted->answer; ++i) {
      world.background(0).run_all();
      world.run();
    }
    CHECK(world.read<protocol::DeleteTopicsResponse>(*deleted, 6).responses[0].error_code ==
          ErrorCode::none);
    CHECK_FALSE(world.shard(1).topics().find("t"));
    CHECK_FALSE(pending->answer.has_value());
    CHECK(world.shard(0).purgatory().metrics(kind_named("produce")).satisfied == 1);
    CHECK(world.shard(1).purgatory().metrics(kind_named("produce")).waiting == 1);
    world.background_stands_still = false;
    world.run();
    const auto answer = world.read<protocol::ProduceResponse>(*pending, 9);
    REQUIRE(answer.responses[0].partition_responses.size() == 8);
    for (const auto& each : answer.responses[0].partition_responses) {
      CHECK(each.error_code == ErrorCode::none);
      CHECK(each.base_offset == 0);
    }
    CHECK(count_waiting(world, kind_named("produce")) == 0);
  }

  TEST_CASE("a batch whose partition is gone before it is taken is answered as of no topic") {
    World world;
    create_topic(world, "t", 8);
    const PartitionIndex p = on_shard(world, 1);
    const Buffer batch = batch_of(world.clock.wall(), {{"a"}});
    world.background_stands_still = true;
    const auto pending = world.begin(produce_request("t", p, batch), 9);
    CHECK(world.background(1).size() == 1);  // Its log is to be opened.
    protocol::DeleteTopicsRequest request;
    request.timeout_ms = 30'000;
    request.topics.push_back({"t", {}});
    const auto deleted = world.begin(request, 6);
    for (int i = 0; i < 100 && !deleted->answer; ++i) {
      world.background(0).run_all();
      world.run();
    }
    CHECK(deleted->answer.has_value());
    CHECK_FALSE(pending->answer.has_value());
    world.background_stands_still = false;
    world.run();
    const auto answer = world.read<protocol::ProduceResponse>(*pending, 9);
    CHECK(answer.responses[0].partition_responses[0].error_code ==
          ErrorCode::unknown_topic_or_partition);
    CHECK(answer.responses[0].partition_responses[0].base_offset == -1);
    CHECK(world.shard(1).partitions().all().empty());
  }

  TEST_CASE("a batch that comes while its topic is being deleted is answered as of no topic") {
    World world;
    create_topic(world, "t", 8);
    open_partitions(world, 8);
    world.background_stands_still = true;
    protocol::DeleteTopicsRequest request;
    request.timeout_ms = 30'000;
    request.topics.push_back({"t", {}});
    const auto deleted = world.begin(request, 6);
    const Buffer batch = batch_of(world.clock.wall(), {{"a"}});
    const auto pending = world.begin(produce_to_all(8, batch, 3'600'000), 9);
    REQUIRE(pending->answer.has_value());
    const auto answer = world.read<protocol::ProduceResponse>(*pending, 9);
    for (const auto& each : answer.responses[0].partition_responses)
      CHECK(each.error_code == ErrorCode::unknown_topic_or_partition);
    CHECK_FALSE(deleted->answer.has_value());
    world.background_stands_still = false;
    world.run();
    CHECK(deleted->answer.has_value());
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
    CHECK(world.shard(1).purgatory().metrics(create_topics_kind).waiting == 1);
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
    CHECK(world.shard().purgatory().metrics(create_topics_kind).expired == 1);
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
    CHECK(count_waiting(world, create_topics_kind) == 0);
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
    CHECK(count_waiting(world, fetch_kind) == 8);
    world.connection().close();
    // Here at once, before anything else runs; on the other shard when it has been told.
    CHECK(world.shard(0).purgatory().metrics(fetch_kind).waiting == 0);
    CHECK(count_waiting(world, fetch_kind) > 0);
    world.run();
    CHECK(count_waiting(world, fetch_kind) == 0);
    for (const auto& one : all) CHECK(one->answer.has_value());
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK_FALSE(world.shard(i).purgatory().has_completions());
      for (const auto& [tp, partition] : world.shard(i).partitions().all())
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
      CHECK_FALSE(world.shard().partitions().find(quiet)->fetches.empty());
      produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}}));
      CHECK(pending->answer.has_value());
      CHECK(world.shard().partitions().find(quiet)->fetches.empty());
    }
    CHECK(count_waiting(world, fetch_kind) == 0);
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
