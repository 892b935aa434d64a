// Records go in by Produce and come out by Fetch: offsets, durability, waiting, idempotence.

#include <doctest/doctest.h>

#include "broker/handlers/delayed_fetch.h"
#include "broker/views/status.h"
#include "protocol/messages/init_producer_id.h"
#include "protocol/messages/list_offsets.h"
#include "tests/broker/batches.h"
#include "tests/captured_log.h"

namespace tarry::broker::test {
namespace {

using namespace std::chrono_literals;
using Strings = std::vector<std::string>;

TEST_SUITE("produce and fetch") {
  TEST_CASE("records come back with the offsets that were answered, on every shard's partitions") {
    World world;
    create_topic(world, "t", 8);
    for (PartitionIndex p = 0; p < 8; ++p) {
      CAPTURE(p);
      const auto first = produce(world, "t", p, batch_of(world.clock.wall(), {{"a"}, {"b"}}));
      CHECK(first.error_code == ErrorCode::none);
      CHECK(first.base_offset == 0);
      CHECK(produce(world, "t", p, batch_of(world.clock.wall(), {{"c"}}), 1).base_offset == 2);
      const auto seen = read_all(world, "t", p);
      CHECK(values(seen) == Strings{"a", "b", "c"});
      CHECK(seen[2].offset == 2);
    }
  }

  TEST_CASE("a fetch inside a batch returns the whole batch") {
    World world;
    create_topic(world, "t");
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}, {"b"}, {"c"}}));
    CHECK(values(read_all(world, "t", 0, 2)) == Strings{"a", "b", "c"});
  }

  TEST_CASE("a batch for which its request has no time left is checked on the pool, in its place") {
    World world({.shards = 1});
    create_topic(world, "t");
    REQUIRE(read_all(world, "t").empty());  // Opens it.
    Partition* const partition =
        world.shard().partitions().find({world.shard().topics().find("t")->id, 0});
    REQUIRE(partition != nullptr);
    const Buffer first = batch_of(world.clock.wall(), {{"first"}});
    const Buffer second = batch_of(world.clock.wall(), {{"second"}});
    std::vector<ErrorCode> told;
    const auto tell = [&told](const Appended& appended) { told.push_back(appended.error); };
    partition->append(first, true, tell, nullptr, false, {}, false, true);
    partition->append(second, true, tell);
    CHECK(told.empty());
    CHECK(world.background().size() == 1);
    world.run();
    CHECK(told == std::vector(2, ErrorCode::none));
    const auto seen = read_all(world, "t");
    REQUIRE(seen.size() == 2);
    CHECK(seen[0].value == "first");
    CHECK(seen[1].value == "second");
  }

  TEST_CASE("a batch of more than 512 records is not checked on its shard's thread") {
    const auto is_short = [](std::size_t records) {
      const Buffer batch = batch_of(from_ms(1000), std::vector<NewRecord>(records, {"v"}));
      BatchChecks::Job job{};
      job.records = batch;
      return BatchChecks::is_short(job);
    };
    CHECK(is_short(512));
    CHECK_FALSE(is_short(513));
  }

  TEST_CASE("nothing is answered or seen before the journal's round is synced") {
    World world({.shards = 1});
    create_topic(world, "t");
    const auto tp = TopicPartition{world.shard().topics().find("t")->id, 0};
    world.shard().partitions().with(tp, [](auto) {});
    world.run();
    Partition& partition = *world.shard().partitions().find(tp);
    const Buffer batch = batch_of(world.clock.wall(), {{"a"}});
    Appended appended;
    partition.append(batch, true, [&](Appended result) { appended = std::move(result); });
    CHECK(appended.error == ErrorCode::none);
    CHECK(partition.log_end() == 1);
    CHECK(partition.high_watermark() == 0);
    world.run();
    CHECK(partition.high_watermark() == 1);
  }

  TEST_CASE("a fetch waits for data, is woken by the append and not answered before") {
    World world;
    create_topic(world, "t", 4);
    for (PartitionIndex p = 0; p < 4; ++p) {  // Some on the connection's shard, some on the other.
      CAPTURE(p);
      const auto waiting = world.begin(fetch_request("t", p, 0, 10'000), 12);
      world.pass(2s);
      CHECK_FALSE(waiting->answer.has_value());
      produce(world, "t", p, batch_of(world.clock.wall(), {{"late"}}));
      REQUIRE(waiting->answer.has_value());
      CHECK(values(records_in(world.read<protocol::FetchResponse>(*waiting, 12))) ==
            Strings{"late"});
    }
  }

  TEST_CASE("a fetch that stays empty is answered at max_wait and not before") {
    World world;
    create_topic(world, "t", 2);
    const auto waiting = world.begin(fetch_request("t", 1, 0, 500), 12);
    world.pass(499ms);
    CHECK_FALSE(waiting->answer.has_value());
    world.pass(2ms);
    REQUIRE(waiting->answer.has_value());
    CHECK(records_in(world.read<protocol::FetchResponse>(*waiting, 12)).empty());
  }

  TEST_CASE(
      "a fetch over partitions of several shards is answered once its bytes are there in all") {
    World world;
    create_topic(world, "t", 8);
    auto request = fetch_request("t", 0, 0, 10'000, 400);
    for (PartitionIndex p = 1; p < 8; ++p) {
      auto asked = request.topics[0].partitions[0];
      asked.partition = p;
      request.topics[0].partitions.push_back(asked);
    }
    const auto waiting = world.begin(request, 12);
    for (PartitionIndex p = 0; p < 3; ++p) {
      produce(world, "t", p, batch_of(world.clock.wall(), {{std::string(60, 'x')}}));
      CHECK_FALSE(waiting->answer.has_value());
    }
    produce(world, "t", 5, batch_of(world.clock.wall(), {{std::string(60, 'x')}}));
    REQUIRE(waiting->answer.has_value());
    CHECK(records_in(world.read<protocol::FetchResponse>(*waiting, 12)).size() == 4);
  }

  TEST_CASE("a fetch whose client goes is cancelled and leaves nothing behind") {
    World world;
    create_topic(world, "t", 2);
    const auto waiting = world.begin(fetch_request("t", 0, 0, 10'000), 12);
    const auto other = world.begin(fetch_request("t", 1, 0, 10'000), 12);
    world.connection().close();
    world.run();
    CHECK(waiting->answer.has_value());
    CHECK(other->answer.has_value());
    for (std::size_t i = 0; i < 2; ++i)
      CHECK(world.shard(i).purgatory().metrics(fetch_kind).waiting == 0);
  }

  TEST_CASE("an offset outside the log is refused, one at its end is empty") {
    World world;
    create_topic(world, "t");
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}}));
    CHECK(read_all(world, "t", 0, 1).empty());
    const auto response = world.call<protocol::FetchResponse>(fetch_request("t", 0, 2, 1000), 12);
    CHECK(response.responses[0].partitions[0].error_code == ErrorCode::offset_out_of_range);
    CHECK(response.responses[0].partitions[0].records.pieces.empty());
  }

  TEST_CASE("the records of a fetch are never null, also with an error") {
    World world;
    create_topic(world, "t");
    for (const Offset from : {0, 99}) {
      const auto response = world.call<protocol::FetchResponse>(fetch_request("t", 0, from), 12);
      CHECK_FALSE(response.responses[0].partitions[0].records.null);
    }
    const auto response = world.call<protocol::FetchResponse>(fetch_request("nowhere", 0, 0), 12);
    CHECK(response.responses[0].partitions[0].error_code == ErrorCode::unknown_topic_or_partition);
    CHECK_FALSE(response.responses[0].partitions[0].records.null);
  }

  TEST_CASE("maxTimestamp of -1 is recomputed, so that look-ups by time find the record") {
    World world;
    create_topic(world, "t");
    Buffer batch = batch_of(world.clock.wall(), {{"a"}});
    records::set_max_timestamp(batch, from_ms(-1));
    CHECK(produce(world, "t", 0, batch).error_code == ErrorCode::none);
    protocol::ListOffsetsRequest request;
    request.topics.push_back({"t", {}});
    request.topics[0].partitions.emplace_back().timestamp = to_ms(world.clock.wall());
    const auto response = world.call<protocol::ListOffsetsResponse>(request, 5);
    CHECK(response.topics[0].partitions[0].offset == 0);
    CHECK(response.topics[0].partitions[0].timestamp == to_ms(world.clock.wall()));
  }

  TEST_CASE("acknowledged records are there after a kill, with any number of shards") {
    World world;
    create_topic(world, "t", 6);
    for (PartitionIndex p = 0; p < 6; ++p) {
      for (int i = 0; i < 20; ++i)
        produce(world, "t", p, batch_of(world.clock.wall(), {{std::to_string(i)}}));
    }
    for (const std::size_t shards : {2u, 1u, 3u}) {
      CAPTURE(shards);
      world.restart(shards);
      for (PartitionIndex p = 0; p < 6; ++p) CHECK(read_all(world, "t", p).size() == 20);
    }
    CHECK(produce(world, "t", 3, batch_of(world.clock.wall(), {{"next"}})).base_offset == 20);
  }

  TEST_CASE("acknowledged records are there after a checkpoint, a kill and an orderly stop") {
    World world;
    create_topic(world, "t", 2);
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"before"}}));
    world.pass(120s);
    CHECK(world.shard(0).checkpointer().checkpoints_total() +
              world.shard(1).checkpointer().checkpoints_total() >
          0);
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"after"}}));
    world.restart();
    CHECK(values(read_all(world, "t", 0)) == Strings{"before", "after"});
    world.stop();
    world.restart();
    CHECK(values(read_all(world, "t", 0)) == Strings{"before", "after"});
    CHECK(world.broker().recovery().records == 0);
  }

  TEST_CASE("a checkpoint that a round's first record asks for does not vouch for its second") {
    World world(
        {.shards = 1, .configure = [](BrokerConfig& config) { config.tail_bytes = 65536; }});
    create_topic(world, "t", 2);
    const Buffer large = batch_of(world.clock.wall(), {{std::string(50'000, 'x')}});
    const Buffer small = batch_of(world.clock.wall(), {{"small"}});
    auto request = produce_request("t", 0, large);
    request.topic_data[0].partition_data.push_back({1, Bytes(small)});
    world.call<protocol::ProduceResponse>(request, 9);
    CHECK(world.shard().checkpointer().checkpoints_total() > 0);
    world.restart();
    CHECK(values(read_all(world, "t", 0)).size() == 1);
    CHECK(values(read_all(world, "t", 1)) == std::vector<std::string>{"small"});
  }

  TEST_CASE("a stop while a checkpoint and a round are on their way ends, once") {
    World world({.shards = 1});
    create_topic(world, "t");
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"before"}}));
    Partition* const partition = world.shard().partitions().all().begin()->second.get();
    storage::JournalTransaction transaction;
    transaction.add(storage::ProducerIdsGiven{5000});
    REQUIRE(world.shard().commit(std::move(transaction)));
    world.shard().checkpointer().note_dirty(*partition, std::size_t{1} << 30);
    world.stop();
    world.restart();
    CHECK(values(read_all(world, "t")) == std::vector<std::string>{"before"});
  }

  TEST_CASE("a request for a partition queues behind those that are being told that it is open") {
    World world({.shards = 1});
    create_topic(world, "t");
    Shard& shard = world.shard();
    const TopicPartition tp{shard.topics().find("t")->id, 0};
    std::vector<int> order;
    shard.partitions().with(tp, [&](auto) {
      order.push_back(1);
      shard.partitions().with(tp, [&](auto) { order.push_back(3); });
    });
    shard.partitions().with(tp, [&](auto) { order.push_back(2); });
    world.run();
    CHECK(order == std::vector{1, 2, 3});
  }

  TEST_CASE("an idempotent producer's retry is answered as the first time, also after a kill") {
    World world;
    create_topic(world, "t");
    const auto pid =
        world.call<protocol::InitProducerIdResponse>(protocol::InitProducerIdRequest{}, 4);
    REQUIRE(pid.error_code == ErrorCode::none);
    const auto send = [&](std::int32_t sequence, const std::string& value) {
      return produce(world, "t", 0,
                     batch_of(world.clock.wall(), {{value}}, {pid.producer_id, 0, sequence}));
    };
    CHECK(send(0, "a").base_offset == 0);
    CHECK(send(1, "b").base_offset == 1);
    CHECK(send(0, "a").base_offset == 0);
    world.restart();
    CHECK(send(1, "b").base_offset == 1);
    CHECK(send(2, "c").base_offset == 2);
    CHECK(send(9, "gap").error_code == ErrorCode::out_of_order_sequence);
    world.pass(120s);  // A checkpoint: the journal no longer tells.
    world.restart();
    CHECK(send(2, "c").base_offset == 2);
    CHECK(values(read_all(world, "t")) == Strings{"a", "b", "c"});
  }

  TEST_CASE("a producer id is never given out twice, over kills") {
    World world;
    std::set<ProducerId> given;
    for (int round = 0; round < 4; ++round) {
      for (int i = 0; i < 300; ++i) {
        const auto pid =
            world.call<protocol::InitProducerIdResponse>(protocol::InitProducerIdRequest{}, 4);
        CHECK(given.insert(pid.producer_id).second);
      }
      world.restart();
    }
  }

  TEST_CASE("a producer id is never given twice because clients say that they have it") {
    World world;
    create_topic(world, "t");
    std::set<ProducerId> given;
    for (std::int16_t version = 3; version <= 5; ++version) {
      for (const auto epoch : std::initializer_list<std::int16_t>{-1, 0, 7, 32'766}) {
        protocol::InitProducerIdRequest claim;
        claim.producer_id = 0;
        claim.producer_epoch = epoch;
        const auto answer = world.call<protocol::InitProducerIdResponse>(claim, version);
        CHECK(answer.error_code == ErrorCode::none);
        CHECK(answer.producer_epoch == 0);
        CHECK(given.insert(answer.producer_id).second);
        // So nobody's first record passes for another's.
        const Producer producer{answer.producer_id, answer.producer_epoch, 0};
        CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}}, producer)).base_offset ==
              static_cast<Offset>(given.size()) - 1);
      }
    }
  }

  TEST_CASE("a bad batch is refused with Kafka's code and changes nothing") {
    World world;
    create_topic(world, "t", 1, {{"max.message.bytes", "1000"}});
    Buffer bad_crc = batch_of(world.clock.wall(), {{"a"}});
    bad_crc.back() ^= 1;
    CHECK(produce(world, "t", 0, bad_crc).error_code == ErrorCode::corrupt_message);
    Buffer two = batch_of(world.clock.wall(), {{"a"}});
    const Buffer second = two;
    append_bytes(two, second);
    CHECK(produce(world, "t", 0, two).error_code == ErrorCode::invalid_record);
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {{std::string(2000, 'x')}}))
              .error_code == ErrorCode::message_too_large);
    CHECK(produce(world, "t", 0, {}).error_code != ErrorCode::none);
    CHECK(read_all(world, "t").empty());
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {{"good"}})).base_offset == 0);
  }

  TEST_CASE("acks other than -1, 0 and 1 are refused") {
    World world;
    create_topic(world, "t");
    const Buffer batch = batch_of(world.clock.wall(), {{"a"}});
    const auto response =
        world.call<protocol::ProduceResponse>(produce_request("t", 0, batch, 2), 9);
    CHECK(response.responses[0].partition_responses[0].error_code ==
          ErrorCode::invalid_required_acks);
  }

  TEST_CASE(
      "with the acks of a dry run a batch is checked like any other, and is not appended, counted "
      "or logged") {
    World world;
    CapturedLog log;
    create_topic(world, "t", 1, {{"tarry.delay.max.ms", "1000"}});
    const auto answer_to = [&](const NewRecord& record) {
      const Buffer batch = batch_of(world.clock.wall(), {record});
      const auto response =
          world.call<protocol::ProduceResponse>(produce_request("t", 0, batch, -2), 9);
      return response.responses[0].partition_responses[0];
    };
    const auto too_late = answer_to({"a", {{"x-delay", "2h"}}});
    CHECK(too_late.error_code == ErrorCode::invalid_record);
    REQUIRE(too_late.record_errors.size() == 1);
    CHECK(too_late.record_errors[0].batch_index_error_message->find("2h") != std::string::npos);
    CHECK(answer_to({"a", {{"x-delay", "500ms"}}}).error_code == ErrorCode::invalid_required_acks);
    CHECK(answer_to({"a"}).error_code == ErrorCode::invalid_required_acks);
    world.pass(1s);
    CHECK(read_all(world, "t").empty());
    // A client that only asks has lost nothing that an operator should look for.
    CHECK(world.shard().produce_errors.empty());
    CHECK(log.count("INVALID_REQUIRED_ACKS") == 0);
    // Other acks are the mistake of a client.
    world.call<protocol::ProduceResponse>(
        produce_request("t", 0, batch_of(world.clock.wall(), {{"a"}}), 2), 9);
    CHECK(world.shard().produce_errors[ErrorCode::invalid_required_acks].batches == 1);
    CHECK(log.count("INVALID_REQUIRED_ACKS") == 1);
  }

  TEST_CASE(
      "a batch that is refused is counted by its error, and logged with its client and partition") {
    World world;
    CapturedLog log;
    create_topic(world, "t");
    const Buffer bad = batch_of(world.clock.wall(), {{"a", {{"x-delay", "so\non"}}}});
    for (int i = 0; i < 7; ++i)
      CHECK(produce(world, "t", 0, bad).error_code == ErrorCode::invalid_record);
    CHECK(produce(world, "nowhere", 0, bad).error_code == ErrorCode::unknown_topic_or_partition);
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {{"good"}})).base_offset == 0);
    std::map<ErrorCode, std::uint64_t> counts;
    for (std::size_t i = 0; i < world.broker().shard_count(); ++i)
      for (const auto& [error, count] : status_of(world.broker().shard(i)).produce_errors)
        counts[error] += count;
    CHECK(counts == std::map<ErrorCode, std::uint64_t>{{ErrorCode::invalid_record, 7},
                                                       {ErrorCode::unknown_topic_or_partition, 1}});
    const auto text = log.text();
    INFO(text);
    CHECK(log.count("for t-0 failed: INVALID_RECORD: ") == 5);  // In ten seconds.
    CHECK(log.count("so\\x0aon") == 5);
    CHECK(log.count("for nowhere-0 failed: UNKNOWN_TOPIC_OR_PARTITION: ") == 1);
  }

  TEST_CASE("acks=0 is not answered, and an error with it ends the connection") {
    World world;
    create_topic(world, "t");
    const Buffer batch = batch_of(world.clock.wall(), {{"a"}});
    const auto good = world.begin(produce_request("t", 0, batch, 0), 9);
    REQUIRE(good->answer.has_value());
    CHECK(good->answer->frame.empty());
    CHECK(good->answer->close.empty());
    const auto bad = world.begin(produce_request("nowhere", 0, batch, 0), 9);
    REQUIRE(bad->answer.has_value());
    CHECK_FALSE(bad->answer->close.empty());
    CHECK(values(read_all(world, "t")) == Strings{"a"});
  }
}

}  // namespace
}  // namespace tarry::broker::test
