// DeleteRecords, and the DurabilityWait of it: each case that ends its waiting.

#include <doctest/doctest.h>

#include <filesystem>

#include "protocol/messages/delete_records.h"
#include "protocol/messages/delete_topics.h"
#include "protocol/messages/list_offsets.h"
#include "tests/broker/batches.h"

namespace tarry::broker::test {
namespace {

using namespace std::chrono_literals;
using Strings = std::vector<std::string>;

constexpr int newest_version = 2;

protocol::DeleteRecordsRequest delete_request(
    std::initializer_list<std::pair<PartitionIndex, Offset>> partitions,
    std::int32_t timeout_ms = 30'000, std::string_view topic = "t") {
  protocol::DeleteRecordsRequest request;
  request.timeout_ms = timeout_ms;
  auto& asked = request.topics.emplace_back();
  asked.name = topic;
  for (const auto& [partition, offset] : partitions)
    asked.partitions.push_back({partition, offset});
  return request;
}

protocol::DeleteRecordsResponse::Partition delete_before(World& world, Offset offset,
                                                         PartitionIndex partition = 0) {
  const auto response = world.call<protocol::DeleteRecordsResponse>(
      delete_request({{partition, offset}}), newest_version);
  REQUIRE(response.topics.size() == 1);
  return response.topics[0].partitions[0];
}

Offset earliest(World& world, PartitionIndex partition = 0) {
  protocol::ListOffsetsRequest request;
  auto& topic = request.topics.emplace_back();
  topic.name = "t";
  auto& asked = topic.partitions.emplace_back();
  asked.partition_index = partition;
  asked.timestamp = -2;
  return world.call<protocol::ListOffsetsResponse>(request, 9).topics[0].partitions[0].offset;
}

ErrorCode fetch_error(World& world, Offset from, PartitionIndex partition = 0) {
  return world.call<protocol::FetchResponse>(fetch_request("t", partition, from), 12)
      .responses[0]
      .partitions[0]
      .error_code;
}

void fill(World& world, int count, PartitionIndex partition = 0, std::size_t bytes = 1) {
  for (int i = 0; i < count; ++i) {
    const std::string value =
        bytes > 1 ? std::string(bytes, 'x') : std::string(1, static_cast<char>('a' + i));
    produce(world, "t", partition, batch_of(world.clock.wall(), {{value}}));
  }
}

TEST_SUITE("delete records") {
  TEST_CASE("records below the offset are gone: out of range, and the log begins there") {
    World world;
    create_topic(world, "t", 4);
    for (PartitionIndex p = 0; p < 4; ++p) {  // Some on the connection's shard, some on the other.
      CAPTURE(p);
      fill(world, 5, p);
      const auto answer = delete_before(world, 3, p);
      CHECK(answer.error_code == ErrorCode::none);
      CHECK(answer.low_watermark == 3);
      CHECK(earliest(world, p) == 3);
      CHECK(fetch_error(world, 2, p) == ErrorCode::offset_out_of_range);
      CHECK(values(read_all(world, "t", p, 3)) == Strings{"d", "e"});
    }
  }

  TEST_CASE(
      "-1 is the high watermark: no record is left, and the next record has the next offset") {
    World world;
    create_topic(world, "t");
    fill(world, 5);
    CHECK(delete_before(world, -1).low_watermark == 5);
    CHECK(fetch_error(world, 4) == ErrorCode::offset_out_of_range);
    CHECK(read_all(world, "t", 0, 5).empty());
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {{"next"}})).base_offset == 5);
    CHECK(values(read_all(world, "t", 0, 5)) == Strings{"next"});
  }

  TEST_CASE(
      "an offset behind the end, or none, is out of range; one below the start does nothing") {
    World world;
    create_topic(world, "t");
    fill(world, 5);
    CHECK(delete_before(world, 6).error_code == ErrorCode::offset_out_of_range);
    CHECK(delete_before(world, 6).low_watermark == -1);
    CHECK(delete_before(world, -2).error_code == ErrorCode::offset_out_of_range);
    CHECK(earliest(world) == 0);
    CHECK(delete_before(world, 4).low_watermark == 4);
    for (const Offset offset : {0, 2, 4}) {
      const auto answer = delete_before(world, offset);
      CHECK(answer.error_code == ErrorCode::none);
      CHECK(answer.low_watermark == 4);
    }
  }

  TEST_CASE("unknown partitions get an error, beside the others") {
    World world;
    create_topic(world, "t", 4);
    for (PartitionIndex p = 0; p < 4; ++p) fill(world, 2, p);
    const auto response = world.call<protocol::DeleteRecordsResponse>(
        delete_request({{0, 1}, {9, 1}, {1, 2}, {2, 3}, {3, -1}, {-1, 0}}), newest_version);
    const auto& answers = response.topics[0].partitions;
    CHECK(answers[0].low_watermark == 1);
    CHECK(answers[1].error_code == ErrorCode::unknown_topic_or_partition);
    CHECK(answers[2].low_watermark == 2);
    CHECK(answers[3].error_code == ErrorCode::offset_out_of_range);
    CHECK(answers[4].low_watermark == 2);
    CHECK(answers[5].error_code == ErrorCode::unknown_topic_or_partition);
    const auto nowhere = world.call<protocol::DeleteRecordsResponse>(
        delete_request({{0, 1}}, 1000, "nowhere"), newest_version);
    CHECK(nowhere.topics[0].partitions[0].error_code == ErrorCode::unknown_topic_or_partition);
  }

  TEST_CASE("it survives a kill at once, after a checkpoint, twice, and with other shards") {
    World world;
    create_topic(world, "t", 2);
    for (PartitionIndex p = 0; p < 2; ++p) {
      fill(world, 5, p);
      delete_before(world, 3, p);
    }
    const auto check = [&] {
      for (PartitionIndex p = 0; p < 2; ++p) {
        CHECK(earliest(world, p) == 3);
        CHECK(fetch_error(world, 2, p) == ErrorCode::offset_out_of_range);
        CHECK(values(read_all(world, "t", p, 3)) == Strings{"d", "e"});
      }
    };
    world.restart();
    check();
    // Logs that recovery replayed are dirty: a checkpoint of another matter must not forget it.
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"x"}}));
    delete_before(world, 3, 0);
    world.pass(120s);
    world.restart();
    CHECK(earliest(world, 0) == 3);
    CHECK(earliest(world, 1) == 3);
    world.restart(3);
    CHECK(earliest(world, 0) == 3);
    CHECK(values(read_all(world, "t", 1, 3)) == Strings{"d", "e"});
    world.stop();
    world.restart(1);
    CHECK(earliest(world, 1) == 3);
  }

  TEST_CASE("whole segments below it are removed from the disk, and no other") {
    World world({.shards = 1});
    create_topic(world, "t", 1, {{"segment.bytes", "1000"}});
    fill(world, 10, 0, 300);
    world.pass(61s);  // Segments of two batches.
    const auto segments = [&] {
      int count = 0;
      for (const auto& entry :
           std::filesystem::directory_iterator(world.directory() + "/data/logs/t-0"))
        count += entry.path().extension() == ".log" ? 1 : 0;
      return count;
    };
    CHECK(segments() == 5);
    CHECK(delete_before(world, 5).low_watermark == 5);
    world.run();
    CHECK(segments() == 3);
    CHECK(read_all(world, "t", 0, 5).size() == 5);
    world.restart();
    CHECK(earliest(world) == 5);
    CHECK(read_all(world, "t", 0, 5).size() == 5);
    CHECK(delete_before(world, -1).low_watermark == 10);
    world.run();
    CHECK(segments() <= 1);
    world.restart();
    CHECK(earliest(world) == 10);
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {{"next"}})).base_offset == 10);
  }

  TEST_CASE("records that are still pending stay so: they have no offset yet") {
    World world({.shards = 1});
    create_topic(world, "t");
    fill(world, 2);
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"later", {{"x-delay", "10s"}}}}));
    CHECK(delete_before(world, -1).low_watermark == 2);
    world.pass(11s);
    CHECK(values(read_all(world, "t", 0, 2)) == Strings{"later"});
  }
}

TEST_SUITE("delayed delete records") {
  TEST_CASE(
      "satisfied: the new start is durable; before that it is neither answered nor in force") {
    World world;
    create_topic(world, "t", 4);
    for (PartitionIndex p = 0; p < 4; ++p) {
      fill(world, 5, p);
      world.background_stands_still = true;
      const auto waiting = world.begin(delete_request({{p, 3}}), newest_version);
      world.pass(1s);
      CHECK_FALSE(waiting->answer.has_value());
      const auto reading = world.begin(fetch_request("t", p, 0), 12);
      CHECK(records_in(world.read<protocol::FetchResponse>(*reading, 12)).size() == 5);
      world.background_stands_still = false;
      world.run();
      REQUIRE(waiting->answer.has_value());
      CHECK(world.read<protocol::DeleteRecordsResponse>(*waiting, newest_version)
                .topics[0]
                .partitions[0]
                .low_watermark == 3);
    }
  }

  TEST_CASE("expired: REQUEST_TIMED_OUT at its timeout, and the start still moves later") {
    World world;
    create_topic(world, "t", 4);
    for (PartitionIndex p = 0; p < 4; ++p) {
      fill(world, 5, p);
      world.background_stands_still = true;
      const auto waiting = world.begin(delete_request({{p, 3}, {p, 9}}, 500), newest_version);
      world.pass(499ms);
      CHECK_FALSE(waiting->answer.has_value());
      world.pass(1ms);
      REQUIRE(waiting->answer.has_value());
      const auto answer = world.read<protocol::DeleteRecordsResponse>(*waiting, newest_version);
      CHECK(answer.topics[0].partitions[0].error_code == ErrorCode::request_timed_out);
      CHECK(answer.topics[0].partitions[0].low_watermark == -1);
      CHECK(answer.topics[0].partitions[1].error_code == ErrorCode::offset_out_of_range);
      world.background_stands_still = false;
      world.run();
      CHECK(earliest(world, p) == 3);
    }
  }

  TEST_CASE("cancelled: the client goes, and nothing waits for it on any shard") {
    World world;
    create_topic(world, "t", 4);
    for (PartitionIndex p = 0; p < 4; ++p) fill(world, 5, p);
    world.background_stands_still = true;
    const auto waiting =
        world.begin(delete_request({{0, 3}, {1, 3}, {2, 3}, {3, 3}}), newest_version);
    CHECK(world.shard(0).purgatory().metrics(kind_named("delete_records")).waiting +
              world.shard(1).purgatory().metrics(kind_named("delete_records")).waiting ==
          2);  // On each shard at once.
    world.connection().close();
    world.run();
    CHECK(waiting->answer.has_value());
    for (std::size_t i = 0; i < 2; ++i)
      CHECK(world.shard(i).purgatory().metrics(kind_named("delete_records")).waiting == 0);
    world.background_stands_still = false;
    world.run();
    for (PartitionIndex p = 0; p < 4; ++p) CHECK(earliest(world, p) == 3);
  }

  TEST_CASE("cancelled: the broker stops: REQUEST_TIMED_OUT at once, and the start moves later") {
    World world({.shards = 1});
    create_topic(world, "t");
    fill(world, 5);
    world.background_stands_still = true;
    const auto waiting = world.begin(delete_request({{0, 3}}, 3'600'000), newest_version);
    CHECK(world.shard().purgatory().metrics(kind_named("delete_records")).waiting == 1);
    bool stopped = false;
    world.broker().stop([&] { stopped = true; });
    world.pass(1ms);
    CHECK_FALSE(stopped);
    CHECK(world.shard().purgatory().metrics(kind_named("delete_records")).cancelled == 1);
    const auto answer = world.read<protocol::DeleteRecordsResponse>(*waiting, newest_version);
    CHECK(answer.topics[0].partitions[0].error_code == ErrorCode::request_timed_out);
    CHECK(answer.topics[0].partitions[0].low_watermark == -1);
    world.background_stands_still = false;
    for (int i = 0; i < 1000 && !stopped; ++i) world.pass(1ms);
    CHECK(stopped);
    world.restart();
    CHECK(earliest(world) == 3);
  }

  TEST_CASE("a start that is durable before its topic's deletion is answered as moved") {
    World world;
    create_topic(world, "t", 4);
    for (PartitionIndex p = 0; p < 4; ++p) fill(world, 5, p);
    world.background_stands_still = true;
    const auto waiting =
        world.begin(delete_request({{0, 3}, {1, 3}, {2, 3}, {3, 3}}), newest_version);
    protocol::DeleteTopicsRequest request;
    request.timeout_ms = 30'000;
    request.topics.push_back({"t", {}});
    const auto deleted = world.begin(request, 6);
    world.background_stands_still = false;
    world.run();
    CHECK(deleted->answer.has_value());
    const auto answer = world.read<protocol::DeleteRecordsResponse>(*waiting, newest_version);
    for (const auto& each : answer.topics[0].partitions) {
      CHECK(each.error_code == ErrorCode::none);
      CHECK(each.low_watermark == 3);
    }
  }

  TEST_CASE("a topic that is gone before its new start is durable is answered as unknown") {
    World world;
    create_topic(world, "t", 8);
    const auto id = world.shard().topics().find("t")->id;
    PartitionIndex home = 0, away = 0;
    while (world.broker().shard_of({id, home}).index() != 0) ++home;
    while (world.broker().shard_of({id, away}).index() != 1) ++away;
    fill(world, 5, home);
    fill(world, 5, away);
    world.background_stands_still = true;
    // Shard 0 goes on while the topic goes, the other one's journal stands still.
    const auto waiting = world.begin(delete_request({{away, 3}, {home, 3}}), newest_version);
    protocol::DeleteTopicsRequest request;
    request.timeout_ms = 30'000;
    request.topics.push_back({"t", {}});
    const auto deleted = world.begin(request, 6);
    for (int i = 0; i < 100 && !deleted->answer; ++i) {
      world.background(0).run_all();
      world.run();
    }
    CHECK(world.read<protocol::DeleteTopicsResponse>(*deleted, 6).responses[0].error_code ==
          ErrorCode::none);
    CHECK_FALSE(waiting->answer.has_value());
    world.background_stands_still = false;
    world.run();
    const auto answer = world.read<protocol::DeleteRecordsResponse>(*waiting, newest_version);
    const auto& answers = answer.topics[0].partitions;
    CHECK(answers[0].error_code == ErrorCode::unknown_topic_or_partition);
    CHECK(answers[0].low_watermark == -1);
    // The other one's start was durable before.
    CHECK(answers[1].error_code == ErrorCode::none);
    CHECK(answers[1].low_watermark == 3);
  }
}

}  // namespace
}  // namespace tarry::broker::test
