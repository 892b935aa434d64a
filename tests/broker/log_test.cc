// The effects of a topic's settings on its log: timestamps, retention, durability; look-ups by
// time.

#include <doctest/doctest.h>

#include <filesystem>
#include <new>
#include <utility>

#include "protocol/messages/list_offsets.h"
#include "tests/broker/batches.h"
#include "tests/captured_log.h"

namespace tarry::broker::test {
namespace {

using namespace std::chrono_literals;
using Strings = std::vector<std::string>;

protocol::ListOffsetsResponse::Partition offset_at(World& world, std::int64_t timestamp,
                                                   PartitionIndex partition = 0) {
  protocol::ListOffsetsRequest request;
  auto& topic = request.topics.emplace_back();
  topic.name = "t";
  auto& asked = topic.partitions.emplace_back();
  asked.partition_index = partition;
  asked.timestamp = timestamp;
  return world.call<protocol::ListOffsetsResponse>(request, 9).topics[0].partitions[0];
}

// Has no memory for the next log that is opened to be read.
class ForgetfulDisk final : public storage::Disk {
 public:
  Result<std::unique_ptr<storage::File>> open(const std::string& path,
                                              storage::OpenOptions options) override {
    const bool reads = options.direct && !options.write && path.ends_with(".log");
    if (reads && std::exchange(no_memory, false)) throw std::bad_alloc();
    return machine_.open(path, options);
  }
  Result<std::vector<storage::DirectoryEntry>> list(const std::string& path) override {
    return machine_.list(path);
  }
  Result<> make_directories(const std::string& path) override {
    return machine_.make_directories(path);
  }
  Result<> rename(const std::string& from, const std::string& to) override {
    return machine_.rename(from, to);
  }
  Result<> remove(const std::string& path) override { return machine_.remove(path); }
  Result<> remove_directory(const std::string& path) override {
    return machine_.remove_directory(path);
  }
  Result<> sync_directory(const std::string& path) override {
    return machine_.sync_directory(path);
  }
  Result<std::uint64_t> free_space(const std::string& path) override {
    return machine_.free_space(path);
  }

  bool no_memory = false;

 private:
  storage::PosixDisk machine_;
};

TEST_SUITE("a topic's log") {
  TEST_CASE("a look-up by time finds the first record, not batch, that is not older, or none") {
    World world;
    create_topic(world, "t");
    const auto start = to_ms(world.clock.wall());
    for (int i = 0; i < 3; ++i) {
      produce(world, "t", 0, batch_of(from_ms(start + 100 * i), {{"a"}, {"b"}}));
    }
    CHECK(offset_at(world, -2).offset == 0);
    CHECK(offset_at(world, -1).offset == 6);
    CHECK(offset_at(world, start + 1).offset == 2);
    CHECK(offset_at(world, start + 100).timestamp == start + 100);
    CHECK(offset_at(world, -3).offset == 4);
    const auto none = offset_at(world, start + 1'000'000);
    CHECK(none.error_code == ErrorCode::none);
    CHECK(none.offset == -1);
    CHECK(none.timestamp == -1);
    CHECK(offset_at(world, -1, 7).error_code == ErrorCode::unknown_topic_or_partition);
    CHECK(offset_at(world, -99).error_code == ErrorCode::invalid_request);
  }

  TEST_CASE("with LogAppendTime a record's time is that of its append, and the answer says it") {
    World world;
    create_topic(world, "t", 1, {{"message.timestamp.type", "LogAppendTime"}});
    const auto answer = produce(world, "t", 0, batch_of(from_ms(5), {{"a"}}));
    CHECK(answer.log_append_time_ms == to_ms(world.clock.wall()));
    CHECK(read_all(world, "t")[0].timestamp == to_ms(world.clock.wall()));
  }

  TEST_CASE("a timestamp too far ahead is refused, as message.timestamp.after.max.ms says") {
    World world;
    create_topic(world, "t");
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall() + 2h, {{"a"}})).error_code ==
          ErrorCode::invalid_timestamp);
  }

  TEST_CASE(
      "retention by size and by time takes whole segments, and fetches say where the log begins") {
    World world({.shards = 1});
    create_topic(world, "t", 1, {{"segment.bytes", "2000"}, {"retention.bytes", "5000"}});
    for (int i = 0; i < 40; ++i) {
      produce(world, "t", 0, batch_of(world.clock.wall(), {{std::string(400, 'x')}}));
      if (i % 10 == 9) world.pass(70s);  // Checkpoints write segments, and roll.
    }
    world.pass(400s);
    world.pass(400s);
    const auto start = offset_at(world, -2).offset;
    CHECK(start > 0);
    CHECK(start < 40);
    CHECK(read_all(world, "t", 0, start).size() == 40 - static_cast<std::size_t>(start));
    const auto early = world.call<protocol::FetchResponse>(fetch_request("t", 0, 0), 12);
    CHECK(early.responses[0].partitions[0].error_code == ErrorCode::offset_out_of_range);
    world.restart();
    CHECK(offset_at(world, -2).offset == start);
    CHECK(offset_at(world, -1).offset == 40);
  }

  TEST_CASE(
      "records that are overdue at a start are not removed by retention before anyone could read "
      "them") {
    World world({.shards = 1});
    create_topic(world, "t", 1, {{"retention.ms", "60000"}});
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"late", {{"x-delay", "1s"}}}}));
    world.clock.now_wall += 48h;
    world.restart();
    world.pass(50s);
    CHECK(values(read_all(world, "t")) == Strings{"late"});
  }

  TEST_CASE("with tarry.durability=os a record is answered and seen, and there after a kill") {
    World world;
    create_topic(world, "t", 2, {{"tarry.durability", "os"}});
    for (PartitionIndex p = 0; p < 2; ++p) {
      CHECK(produce(world, "t", p, batch_of(world.clock.wall(), {{"a"}})).base_offset == 0);
      CHECK(produce(world, "t", p, batch_of(world.clock.wall(), {{"b", {{"x-delay", "1s"}}}}))
                .base_offset == -1);
    }
    world.restart();
    world.pass(2s);
    for (PartitionIndex p = 0; p < 2; ++p)
      CHECK(values(read_all(world, "t", p)) == Strings{"a", "b"});
  }

  TEST_CASE("with tarry.durability=os a retry is answered as the first time, without a sync") {
    World world({.shards = 1});
    create_topic(world, "t", 1, {{"tarry.durability", "os"}});
    for (int tries = 0; tries < 2; ++tries) {
      const auto answer =
          produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}}, {4711, 0, 0}));
      CHECK(answer.error_code == ErrorCode::none);
      CHECK(answer.base_offset == 0);
    }
  }

  TEST_CASE("a retry waits for what the first one waits for, whatever the topic says by then") {
    World world({.shards = 1});
    create_topic(world, "t", 1, {{"tarry.durability", "os"}});
    const TopicPartition tp{world.shard().topics().find("t")->id, 0};
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}}, {4711, 0, 0}));
    Partition& partition = *world.shard().partitions().find(tp);
    const auto next = batch_of(world.clock.wall(), {{"b"}}, {4711, 0, 1});
    world.background_stands_still = true;
    const auto first = world.begin(produce_request("t", 0, next), 9);
    while (world.background().size() > 0 && !first->answer) {  // It is written, and not synced.
      world.background().step();
      world.turn();
    }
    REQUIRE(first->answer.has_value());
    auto durable = std::make_shared<TopicConfig>(partition.config());
    durable->durability = Durability::fsync;
    partition.set_config(durable);
    const auto between = world.begin(produce_request("t", 0, next), 9);
    CHECK(between->answer.has_value());
    world.background_stands_still = false;
    world.run();
    const auto behind = world.begin(produce_request("t", 0, next), 9);
    CHECK(behind->answer.has_value());
    for (const auto& pending : {first, between, behind}) {
      if (!pending->answer) continue;
      const auto answer = world.read<protocol::ProduceResponse>(*pending, 9);
      CHECK(answer.responses[0].partition_responses[0].error_code == ErrorCode::none);
      CHECK(answer.responses[0].partition_responses[0].base_offset == 1);
    }
  }

  TEST_CASE("a read that finds no memory fails its request, and the partition still works") {
    ForgetfulDisk disk;
    World world({.shards = 1, .disk = &disk});
    create_topic(world, "t");
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}}));
    world.stop();
    world.restart();  // The records that it had in memory are on the disk now.
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"b"}}));
    disk.no_memory = true;
    CHECK_THROWS_AS(world.call<protocol::FetchResponse>(fetch_request("t", 0, 0), 12),
                    std::bad_alloc);
    CHECK_FALSE(disk.no_memory);
    CHECK(values(read_all(world, "t")) == Strings{"a", "b"});
  }

  TEST_CASE(
      "a log that somebody has moved to another topic's name is not deleted, and both topics go on "
      "when it is moved back") {
    World world({.shards = 1});
    for (const auto* name : {"a", "b"}) {
      create_topic(world, name);
      produce(world, name, 0, batch_of(world.clock.wall(), {{std::string("of ") + name}}));
    }
    world.stop();
    const auto logs = world.directory() + "/data/logs/", kept = world.directory() + "/kept";
    std::filesystem::rename(logs + "b-0", kept);
    std::filesystem::rename(logs + "a-0", logs + "b-0");
    {
      CapturedLog log;
      REQUIRE(world.try_restart());
      CHECK(produce(world, "b", 0, batch_of(world.clock.wall(), {{"more"}})).error_code ==
            ErrorCode::kafka_storage_error);
      CHECK(log.count("b-0: is a log of the topic a, which exists") > 0);
    }
    world.stop();
    std::filesystem::rename(logs + "b-0", logs + "a-0");
    std::filesystem::rename(kept, logs + "b-0");
    REQUIRE(world.try_restart());
    CHECK(values(read_all(world, "a")) == Strings{"of a"});
    CHECK(values(read_all(world, "b")) == Strings{"of b"});
  }

  TEST_CASE("a segment that is damaged where nobody vouches for it fences its partition alone") {
    World world({.shards = 1});
    create_topic(world, "t", 2);
    for (PartitionIndex p = 0; p < 2; ++p) {
      produce(world, "t", p, batch_of(world.clock.wall(), {{"a"}}));
      produce(world, "t", p, batch_of(world.clock.wall(), {{"b"}}));
    }
    world.stop();
    const auto file = world.directory() + "/data/logs/t-0/00000000000000000000.log";
    const auto size = std::filesystem::file_size(file);
    std::filesystem::resize_file(file, size - 3);
    world.restart();
    const auto response = world.call<protocol::FetchResponse>(fetch_request("t", 0, 0), 12);
    CHECK(response.responses[0].partitions[0].error_code == ErrorCode::kafka_storage_error);
    CHECK(std::filesystem::file_size(file) == size - 3);  // The bytes stay for the operator.
    CHECK(values(read_all(world, "t", 1)) == Strings{"a", "b"});
  }

  TEST_CASE(
      "batches that the journal has for a partition that recovery fences are kept in a file") {
    World world({.shards = 1});
    create_topic(world, "t", 2);
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}}));
    world.pass(120s);
    REQUIRE(world.shard().checkpointer().checkpoints_total() > 0);
    Buffer expected;
    for (const char* value : {"b", "c"}) {
      Buffer batch = batch_of(world.clock.wall(), {{value}});
      produce(world, "t", 0, batch);
      records::set_base_offset(batch, value[0] - 'a');
      records::set_leader_epoch(batch, 0);
      append_bytes(expected, batch);
    }
    const auto file = world.directory() + "/data/logs/t-0/00000000000000000000.log";
    std::filesystem::resize_file(file, std::filesystem::file_size(file) - 3);
    world.restart();
    const auto kept = world.directory() + "/data/kept/t." +
                      world.shard().topics().find("t")->id.text() + "-0-00000000000000000001.log";
    for (int starts = 0; starts < 2; ++starts) {
      storage::PosixDisk disk;
      const auto bytes = storage::read_file(disk, kept, 1 << 20);
      REQUIRE(bytes.has_value());
      CHECK(*bytes == expected);
      produce(world, "t", 1, batch_of(world.clock.wall(), {{"other"}}));
      world.pass(120s);
      world.restart();
    }
    const auto response = world.call<protocol::FetchResponse>(fetch_request("t", 0, 0), 12);
    CHECK(response.responses[0].partitions[0].error_code == ErrorCode::kafka_storage_error);
  }
}

}  // namespace
}  // namespace tarry::broker::test
