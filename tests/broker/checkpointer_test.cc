// A full disk: what is written behind the journal waits, nothing is lost, and it goes on by itself.

#include "broker/checkpoint/checkpointer.h"

#include <filesystem>
#include <functional>
#include <string>

#include <doctest/doctest.h>
#include <boost/asio/post.hpp>

#include "broker/checkpoint/dirty_logs.h"
#include "broker/checkpoint/shortage_retry.h"
#include "broker/settings/memory_bounds.h"
#include "broker/views/status.h"
#include "protocol/messages/delete_topics.h"
#include "storage/bucket_store.h"
#include "storage/producer_states.h"
#include "tests/broker/batches.h"
#include "tests/broker/crowded_disk.h"
#include "tests/broker/offset_requests.h"
#include "tests/captured_log.h"

namespace tarry::broker::test {
namespace {

using namespace std::chrono_literals;
using Strings = std::vector<std::string>;

// In this turn, as far as the journal's round that is gathered.
ErrorCode append(Partition& partition, Bytes batch) {
  auto error = ErrorCode::unknown_server_error;
  partition.append(batch, true, [&](const Appended& appended) { error = appended.error; });
  return error;
}

std::uint64_t checkpoints(World& world) {
  return world.shard().checkpointer().checkpoints_total();
}

TEST_SUITE("checkpointer") {
  TEST_CASE("a flood of more than may wait for the disk is delivered while checkpoints write it") {
    World world(
        {.shards = 1, .configure = [](BrokerConfig& config) { config.tail_bytes = 65'536; }});
    create_topic(world, "t");
    const std::string large(1'000'000, 'x');
    constexpr std::size_t records = 40;
    static_assert(records * 1'000'000 > min_unwritten_deliveries);
    for (std::size_t i = 0; i < records; ++i) {
      REQUIRE(produce(world, "t", 0, batch_of(world.clock.wall(), {{large, {{"x-delay", "90s"}}}}))
                  .error_code == ErrorCode::none);
    }
    world.pass(95s);
    CHECK(world.shard().engine().stats().delivered_total == records);
    CHECK(world.shard().engine().stats().overdue == 0);
    world.pass(61s);  // The interval of checkpoints is over.
    CHECK(world.shard().engine().stats().unwritten_bytes == 0);
  }

  TEST_CASE(
      "while the disk has no room for a flush of RocksDB none is tried, and it is made later") {
    CrowdedDisk disk;
    World world({.shards = 1, .disk = &disk});
    create_topic(world, "t");
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"late", {{"x-delay", "90s"}}}}));
    disk.free = 1000;
    world.pass(60s);  // The interval of checkpoints is over.
    CHECK(checkpoints(world) == 0);
    CHECK_FALSE(world.shard().has_room());
    CHECK_FALSE(world.failure.has_value());
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}})).error_code ==
          ErrorCode::kafka_storage_error);
    world.pass(60s);
    CHECK(values(read_all(world, "t")) == Strings{"late"});  // The reserve is for deliveries.
    disk.free = std::uint64_t{1} << 40;
    world.pass(2s);
    CHECK(checkpoints(world) > 0);
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}})).base_offset == 1);
    world.restart();
    CHECK(values(read_all(world, "t")) == Strings{"late", "a"});
  }

  TEST_CASE("very many logs that have nothing to write are passed over in steps") {
    World world({.shards = 1});
    Shard& shard = world.shard();
    constexpr PartitionIndex count = 2100;
    create_topic(world, "t", count);
    const TopicId topic = shard.topics().find("t")->id;
    for (PartitionIndex p = 0; p < count; ++p)
      shard.partitions().with({topic, p}, [](const auto&) {});
    world.run();
    ShortageRetry shortage(shard, [] {});
    DirtyLogs dirty(shard, shard.partitions(), shortage);
    for (const auto& [tp, partition] : shard.partitions().all()) dirty.note(*partition, 0);
    bool ended = false;
    int turns = 0;
    std::function<void()> another = [&] {
      if (ended) return;
      ++turns;
      boost::asio::post(shard.executor(), another);
    };
    dirty.flush([&](const Result<>& flushed) { ended = flushed.has_value(); });
    CHECK_FALSE(ended);  // A thousand of them so far.
    another();
    world.run();
    CHECK(ended);
    CHECK(turns >= 2);
  }

  TEST_CASE("a log that finds no memory while it is written is written when there is some") {
    CrowdedDisk disk;
    World world({.shards = 1, .disk = &disk});
    create_topic(world, "t");
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}}));
    disk.without_memory = 2;
    world.pass(65s);  // The interval of checkpoints is over, and so are two tries.
    CHECK(disk.without_memory == 0);
    CHECK_FALSE(world.failure.has_value());
    CHECK(checkpoints(world) == 1);
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {{"b"}})).base_offset == 1);
    world.restart();
    CHECK(values(read_all(world, "t")) == Strings{"a", "b"});
  }

  TEST_CASE(
      "the log line about a full disk names the space that a checkpoint needs beside the reserve, "
      "and comes once") {
    CrowdedDisk disk;
    World world({.shards = 1,
                 .configure = [](BrokerConfig& config) { config.disk_reserve_bytes = 1000; },
                 .disk = &disk});
    CapturedLog log;
    create_topic(world, "t");
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"late", {{"x-delay", "90s"}}}}));
    disk.free = 500;
    world.pass(60s);
    CHECK(log.count("500 bytes are free, tarry.disk.reserve.bytes is 1000") == 1);
    disk.free = 2000;  // Enough for the reserve, and not for a checkpoint.
    world.pass(60s);
    CHECK_FALSE(world.shard().has_room());
    const auto text = log.text();
    const auto line = text.substr(text.find("no space for a checkpoint"));
    CHECK(line.find("but the flush of the databases needs") < line.find('\n'));
    CHECK(line.find("tarry.disk.reserve.bytes is 1000") < line.find('\n'));
    CHECK(log.count("no space for a checkpoint") == 1);
  }

  TEST_CASE("a full disk keeps nobody from freeing the space of pending records that are gone") {
    CrowdedDisk disk;
    World world({.shards = 1,
                 .configure = [](BrokerConfig& config) { config.disk_reserve_bytes = 64 << 20; },
                 .disk = &disk});
    CapturedLog log;
    create_topic(world, "t");
    produce(world, "t", 0,
            batch_of(world.clock.wall(),
                     {{"soon", {{"x-delay", "603s"}}}, {"far", {{"x-delay", "40d"}}}}));
    world.pass(61s);  // The interval of checkpoints is over.
    REQUIRE(checkpoints(world) > 0);
    // Less than the reserve, and enough for a checkpoint.
    disk.free = 16 << 20;
    world.broker().look_at_disk();
    world.pass(549s);  // Ten minutes after the start space is freed, with the next checkpoint.
    CHECK(values(read_all(world, "t")) == Strings{"soon"});
    CHECK_FALSE(world.shard().has_room());
    CHECK(log.count("cannot be freed") == 0);
  }

  TEST_CASE("space is not freed without the room for the flush with which that begins") {
    CrowdedDisk disk;
    World world({.shards = 1,
                 .configure = [](BrokerConfig& config) { config.disk_reserve_bytes = 64 << 20; },
                 .disk = &disk});
    CapturedLog log;
    create_topic(world, "t");
    world.pass(61s);  // The interval of checkpoints is over.
    REQUIRE(checkpoints(world) > 0);
    // As other shards write, which are not at their checkpoints.
    storage::BucketStore& pending = *world.shard().broker_context().pending;
    std::vector<storage::Forward> rows(100'000);
    Sequence last = 0;
    for (auto& row : rows) {
      row.handle = {world.clock.wall(), ++last};
      row.now = row.handle;
    }
    REQUIRE(pending.write(rows, {}).has_value());
    const auto unflushed = pending.unflushed_bytes();
    REQUIRE(unflushed > (1 << 20));
    // More than the tables take, and less than the flush does beside them.
    disk.free = pending.sizes().table_bytes + (8 << 20) + unflushed;
    world.broker().look_at_disk();
    world.pass(549s);  // Ten minutes after the start.
    CHECK(log.count("cannot be freed") == 1);
    CHECK(pending.unflushed_bytes() >= unflushed);
    disk.make_room();
  }

  TEST_CASE("what is alive may be rewritten into the reserve when as much again stays free") {
    constexpr std::uint64_t mib = 1 << 20, reserve = 64 * mib;
    const auto room = [](std::uint64_t alive) {
      return room_for_rewriting({.blob_bytes = alive + 100 * mib, .garbage_bytes = 100 * mib},
                                reserve);
    };
    CHECK(room(0) < reserve);
    CHECK(room(mib) == room(0) + 2 * mib);
    CHECK(room(reserve) == room(0) + 2 * reserve);
    CHECK(room(1000 * mib) == room(0) + 1000 * mib + reserve);
  }

  TEST_CASE("while the disk is full space is freed without a checkpoint, which may not be wanted") {
    CrowdedDisk disk;
    World world({.shards = 1,
                 .configure = [](BrokerConfig& config) { config.disk_reserve_bytes = 64 << 20; },
                 .disk = &disk});
    CapturedLog log;
    create_topic(world, "t");
    world.pass(61s);  // The interval of checkpoints is over, and nothing is left to be written.
    const auto before = checkpoints(world);
    REQUIRE(before > 0);
    disk.free = 1000;
    world.broker().look_at_disk();
    world.pass(549s);
    CHECK(checkpoints(world) == before);
    // It was tried, once in ten minutes, for all that there is too little even for that.
    CHECK(log.count("cannot be freed") == 1);
  }

  TEST_CASE(
      "when another program fills the disk, each shard refuses records from the broker's next look "
      "on, although none of them had anything to do; when all is well no shard is woken") {
    CrowdedDisk disk;
    World world({.shards = 3,
                 .configure = [](BrokerConfig& config) { config.disk_reserve_bytes = 1000; },
                 .disk = &disk});
    CapturedLog log;
    const auto shards_with_room = [&] {
      std::size_t count = 0;
      for (std::size_t i = 0; i < world.shard_count(); ++i) count += world.shard(i).has_room();
      return count;
    };
    const auto asked = disk.asked;
    world.broker().look_at_disk();
    CHECK(disk.asked == asked + 1);
    CHECK_FALSE(world.turn());
    disk.free = 999;
    world.broker().look_at_disk();
    CHECK(disk.asked == asked + 2);
    // Before the pool has done anything, because it may be busy.
    world.turn();
    CHECK(shards_with_room() == 0);
    world.run();
    world.pass(5s);
    world.broker().look_at_disk();
    world.run();
    CHECK(shards_with_room() == 0);
    CHECK(log.count("999 bytes are free, tarry.disk.reserve.bytes is 1000") == 3);
    disk.make_room();
    world.broker().look_at_disk();
    world.pass(2s);
    CHECK(shards_with_room() == 3);
    world.broker().look_at_disk();
    CHECK_FALSE(world.turn());
  }

  TEST_CASE("a full disk with log.dirs alone refuses records, and the log names that directory") {
    CrowdedDisk disk;
    std::string logs;
    World world({.shards = 1,
                 .configure =
                     [&logs](BrokerConfig& config) {
                       config.disk_reserve_bytes = 1000;
                       config.log_directory = logs = config.data_directory + "-elsewhere";
                     },
                 .disk = &disk});
    CapturedLog log;
    create_topic(world, "t");
    disk.roomy = "/data";
    disk.free = 999;
    const auto asked = disk.asked;
    world.broker().look_at_disk();
    // While log.dirs hangs, the watch of the data directory goes on: only the shard waits for it.
    CHECK(disk.asked == asked + 1);
    world.run();
    const auto refused = produce(world, "t", 0, batch_of(world.clock.wall(), {{"x"}}));
    CHECK(refused.error_message.value_or("").starts_with("disk full"));
    CHECK(log.count("no space in " + logs + ": 999 bytes are free") == 1);
    // The shard's own look finds the same: it does not take the other disk for this one.
    world.pass(5s);
    CHECK_FALSE(world.shard().has_room());
    CHECK(log.count("there is space on the disk again") == 0);
    // Room for the data directory alone, after neither had any, is not enough.
    disk.roomy.clear();
    world.broker().look_at_disk();
    world.run();
    disk.roomy = "/data";
    world.broker().look_at_disk();
    world.run();
    CHECK_FALSE(world.shard().has_room());
    CHECK(log.count("there is space on the disk again") == 0);
    disk.make_room();
    world.broker().look_at_disk();
    world.pass(2s);
    CHECK(world.shard().has_room());
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {{"x"}})).base_offset == 0);
  }

  TEST_CASE(
      "a broker whose data directory is moved away refuses records and makes no checkpoint, and "
      "goes on where it was when the directory is back") {
    World world({.shards = 2});
    CapturedLog log;
    create_topic(world, "t");
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"before"}}));
    const auto data = world.directory() + "/data", away = world.directory() + "/away";
    std::filesystem::rename(data, away);
    for (int looks = 0; looks < 3; ++looks) {
      world.broker().look_at_disk();
      world.run();
    }
    CHECK(world.broker().lost_directory());
    CHECK(log.count("was removed: .lock is not there; the broker accepts no records") == 1);
    const auto refused = produce(world, "t", 0, batch_of(world.clock.wall(), {{"lost"}}));
    CHECK(refused.error_code == ErrorCode::kafka_storage_error);
    CHECK(refused.error_message->find("data directory was removed") != std::string::npos);
    CHECK_FALSE(status_of(world.shard(0)).has_room);
    CHECK_FALSE(status_of(world.shard(1)).has_room);
    world.pass(120s);  // The interval of checkpoints is over.
    CHECK(checkpoints(world) == 0);
    CHECK_FALSE(world.failure.has_value());
    std::filesystem::rename(away, data);
    world.broker().look_at_disk();
    world.run();
    CHECK_FALSE(world.broker().lost_directory());
    CHECK(log.count("is back: the broker accepts records") == 1);
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {{"after"}})).base_offset == 1);
    world.restart();
    CHECK(values(read_all(world, "t")) == Strings{"before", "after"});
  }

  TEST_CASE(
      "a data directory that comes back makes no room while the disk of log.dirs alone is full") {
    CrowdedDisk disk;
    std::string logs;
    World world({.shards = 1,
                 .configure =
                     [&logs](BrokerConfig& config) {
                       config.disk_reserve_bytes = 1000;
                       config.log_directory = logs = config.data_directory + "-elsewhere";
                     },
                 .disk = &disk});
    CapturedLog log;
    const auto data = world.directory() + "/data", away = world.directory() + "/away";
    std::filesystem::rename(data, away);
    world.broker().look_at_disk();
    world.run();
    REQUIRE_FALSE(world.shard().has_room());
    disk.roomy = "/data";
    disk.free = 999;
    std::filesystem::rename(away, data);
    world.broker().look_at_disk();
    // Not before the pool has looked at log.dirs either.
    world.turn();
    CHECK_FALSE(world.broker().lost_directory());
    CHECK_FALSE(world.shard().has_room());
    world.run();
    CHECK_FALSE(world.shard().has_room());
    CHECK(log.count("no space in " + logs + ": 999 bytes are free") == 1);
    disk.make_room();
    world.broker().look_at_disk();
    world.pass(2s);
    CHECK(world.shard().has_room());
  }

  TEST_CASE(
      "a partition that is not open yet gets no new log while the data directory is away, and what "
      "is due in it is delivered when the directory is back") {
    World world({.shards = 1});
    create_topic(world, "t");
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"before"}}));
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"later", {{"x-delay", "3s"}}}}));
    world.restart();
    const auto data = world.directory() + "/data", away = world.directory() + "/away";
    std::filesystem::rename(data, away);
    world.broker().look_at_disk();
    world.run();
    REQUIRE(world.broker().lost_directory());
    world.pass(10s);
    CHECK_FALSE(std::filesystem::exists(data));
    std::filesystem::rename(away, data);
    world.broker().look_at_disk();
    world.pass(5s);
    CHECK(values(read_all(world, "t")) == Strings{"before", "later"});
    world.restart();
    CHECK(values(read_all(world, "t")) == Strings{"before", "later"});
  }

  TEST_CASE(
      "while the data directory is away nothing is journaled: no delivery, no committed offset, no "
      "topic; what is due is delivered when it is back") {
    World world({.shards = 1});
    create_topic(world, "t");
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"before"}}));
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"later", {{"x-delay", "3s"}}}}));
    CHECK(commit(world, "g", "t", 0, 1) == ErrorCode::none);
    world.pass(1s);  // The journal has noted that it is idle.
    const auto data = world.directory() + "/data", away = world.directory() + "/away";
    std::filesystem::rename(data, away);
    world.broker().look_at_disk();
    world.run();
    const auto end = world.shard().journal().end_lsn();
    world.pass(10s);
    CHECK(values(read_all(world, "t")) == Strings{"before"});
    CHECK(commit(world, "g", "t", 0, 2) != ErrorCode::none);
    protocol::CreateTopicsRequest more;
    more.topics.push_back({"more", 1, 1, {}, {}});
    const auto made = world.call<protocol::CreateTopicsResponse>(more, 7);
    CHECK(made.topics.at(0).error_code != ErrorCode::none);
    CHECK(made.topics.at(0).error_message.value_or("").find("data directory was removed") !=
          std::string::npos);
    CHECK(world.shard().journal().end_lsn() == end);
    std::filesystem::rename(away, data);
    world.broker().look_at_disk();
    world.pass(60s);
    CHECK(values(read_all(world, "t")) == Strings{"before", "later"});
    CHECK(commit(world, "g", "t", 0, 2) == ErrorCode::none);
    world.restart();
    CHECK(values(read_all(world, "t")) == Strings{"before", "later"});
  }

  TEST_CASE("a log is not made where its data directory was, before the broker has noticed") {
    World world({.shards = 1});
    create_topic(world, "t");
    const auto data = world.directory() + "/data", away = world.directory() + "/away";
    std::filesystem::rename(data, away);
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}})).error_code ==
          ErrorCode::kafka_storage_error);
    CHECK_FALSE(std::filesystem::exists(data));
    std::filesystem::rename(away, data);
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}})).base_offset == 0);
  }

  TEST_CASE("a shard that has failed takes no records, however much room there is on the disk") {
    World world({.shards = 1});
    create_topic(world, "t");
    world.shard().journal_failed({Errc::io, "the disk is gone"});
    CHECK(world.failure.has_value());
    for (int looks = 0; looks < 3; ++looks) {
      world.shard().free_space().look();
      world.pass(2s);
      CHECK_FALSE(world.shard().has_room());
    }
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}})).error_code ==
          ErrorCode::kafka_storage_error);
  }

  TEST_CASE("a position that a full disk does not take is noted when there is room") {
    CrowdedDisk disk;
    World world({.shards = 1, .disk = &disk});
    create_topic(world, "t");
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}}));
    disk.full_for = ".tmp";
    world.pass(60s);
    CHECK(checkpoints(world) == 0);
    CHECK_FALSE(world.failure.has_value());
    disk.full_for.clear();
    world.pass(2s);
    CHECK(checkpoints(world) > 0);
    world.restart();
    CHECK(values(read_all(world, "t")) == Strings{"a"});
  }

  TEST_CASE("however much there is to write, a checkpoint that fails is tried once a second") {
    for (const bool full : {true, false}) {
      CrowdedDisk disk;
      World world({.shards = 1,
                   .configure =
                       [](BrokerConfig& config) {
                         config.journal_file_bytes = 64 << 10;
                         config.journal_max_bytes = 64 << 20;
                       },
                   .disk = &disk});
      create_topic(world, "t");
      produce(world, "t", 0, batch_of(world.clock.wall(), {{"first"}}));
      Partition& partition = *world.shard().partitions().all().begin()->second;
      const Buffer batch = batch_of(world.clock.wall(), {{std::string(50'000, 'x')}});
      if (full) disk.free = 1000;
      // More than a quarter of the journal: a checkpoint is wanted whenever it is asked.
      for (int i = 0; i < 350; ++i) REQUIRE(append(partition, batch) == ErrorCode::none);
      disk.without_files = !full;
      world.run();  // Ends: nothing is tried again in the next turn.
      world.pass(10s);
      const int before = disk.asked + disk.refused;
      world.pass(10s);
      CHECK(disk.asked + disk.refused > before);
      CHECK(disk.asked + disk.refused - before <= 60);
      CHECK(checkpoints(world) == 0);
      disk.free = std::uint64_t{1} << 40;
      disk.without_files = false;
      world.pass(3s);
      CHECK(checkpoints(world) > 0);
      CHECK_FALSE(world.failure.has_value());
    }
  }

  TEST_CASE(
      "a fetch from the disk that finds no descriptor is refused, and the partition serves on") {
    CrowdedDisk disk;
    World world({.shards = 1, .disk = &disk});
    create_topic(world, "t");
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}}));
    world.stop();
    world.restart();
    REQUIRE(values(read_all(world, "t")) == Strings{"a"});  // From the disk, as the next one.
    disk.without_files = true;
    const auto refused = world.call<protocol::FetchResponse>(fetch_request("t", 0, 0), 12);
    CHECK(refused.responses[0].partitions[0].error_code == ErrorCode::kafka_storage_error);
    CHECK(disk.refused > 0);
    disk.without_files = false;
    CHECK(values(read_all(world, "t")) == Strings{"a"});
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {{"b"}})).error_code ==
          ErrorCode::none);
  }

  TEST_CASE("a checkpoint that can open no file waits, records are taken, and nothing is lost") {
    CrowdedDisk disk;
    World world({.shards = 1, .disk = &disk});
    create_topic(world, "t");
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"late", {{"x-delay", "300s"}}}}));
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}}));
    disk.without_files = true;
    world.pass(61s);  // The interval of checkpoints is over.
    const int refused = disk.refused;
    CHECK(refused > 0);
    world.pass(30s);
    CHECK(checkpoints(world) == 0);
    CHECK(disk.refused - refused >= 20);  // Every second,
    CHECK(disk.refused - refused <= 40);  // and not more often.
    CHECK_FALSE(world.failure.has_value());
    CHECK(world.shard().has_room());
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {{"b"}})).base_offset == 1);
    disk.without_files = false;
    world.pass(2s);
    CHECK(checkpoints(world) > 0);
    world.pass(300s);
    world.restart();
    CHECK(values(read_all(world, "t")) == Strings{"a", "b", "late"});
  }

  TEST_CASE(
      "without dirty logs too a checkpoint waits for files before RocksDB is asked to flush") {
    CrowdedDisk disk;
    World world({.shards = 1, .disk = &disk});
    create_topic(world, "t");
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"late", {{"x-delay", "90s"}}}}));
    disk.without_files = true;
    world.pass(61s);
    CHECK(checkpoints(world) == 0);
    CHECK_FALSE(world.failure.has_value());
    disk.without_files = false;
    world.pass(2s);
    CHECK(checkpoints(world) > 0);
    world.pass(60s);
    CHECK(values(read_all(world, "t")) == Strings{"late"});
  }

  TEST_CASE("a checkpoint gives the rows of producers to the database on the pool") {
    World world({.shards = 1});
    create_topic(world, "t");
    REQUIRE(produce(world, "t", 0, batch_of(world.clock.wall(), {{"v"}}, {7, 0, 0})).error_code ==
            ErrorCode::none);
    const TopicPartition tp = world.shard().partitions().all().begin()->first;
    storage::Database& meta = *world.shard().broker_context().meta;
    const auto before = checkpoints(world);
    world.background_stands_still = true;
    world.shard().checkpointer().run_now();
    CHECK(world.background().size() == 1);
    CHECK(storage::load_producer_states(meta, tp)->empty());
    world.background_stands_still = false;
    world.run();
    CHECK(storage::load_producer_states(meta, tp)->size() == 1);
    CHECK(checkpoints(world) == before + 1);
  }

  TEST_CASE("rows of producers that a checkpoint writes after their topic's deletion do not stay") {
    World world({.shards = 1});
    create_topic(world, "t");
    REQUIRE(produce(world, "t", 0, batch_of(world.clock.wall(), {{"v"}}, {7, 0, 0})).error_code ==
            ErrorCode::none);
    const TopicPartition tp = world.shard().partitions().all().begin()->first;
    storage::Database& meta = *world.shard().broker_context().meta;
    world.runs_at_once = false;
    world.shard().checkpointer().run_now();
    REQUIRE(world.background().size() == 1);
    protocol::DeleteTopicsRequest request;
    request.topics.push_back({"t", {}});
    request.timeout_ms = 1000;
    const auto deleting = world.begin(request, 6);
    for (int i = 0; i < 100 && !deleting->answer; ++i) {
      world.turn();
      // The checkpoint's work stays where it is.
      while (world.background().size() > 1) world.background().step_last();
    }
    REQUIRE(deleting->answer.has_value());
    world.runs_at_once = true;
    world.run();
    CHECK(storage::load_producer_states(meta, tp)->empty());
  }

  TEST_CASE("a stop that can open no file ends without its checkpoint, in seconds") {
    CrowdedDisk disk;
    World world({.shards = 1, .disk = &disk});
    create_topic(world, "t");
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}}));
    disk.without_files = true;
    bool stopped = false;
    world.broker().stop([&] { stopped = true; });
    world.pass(5s);
    CHECK_FALSE(stopped);
    world.pass(10s);
    CHECK(stopped);
    CHECK_FALSE(world.failure.has_value());
    disk.without_files = false;
    world.restart();
    CHECK(values(read_all(world, "t")) == Strings{"a"});
  }

  TEST_CASE("a stop makes its checkpoint when files can be opened in time") {
    CrowdedDisk disk;
    World world({.shards = 1, .disk = &disk});
    create_topic(world, "t");
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}}));
    disk.without_files = true;
    bool stopped = false;
    world.broker().stop([&] { stopped = true; });
    world.pass(5s);
    disk.without_files = false;
    world.pass(1s);
    CHECK(stopped);
    CHECK(checkpoints(world) == 1);
    world.restart();
    CHECK(values(read_all(world, "t")) == Strings{"a"});
  }

  // A journal whose files take one of these each, and no room for another file.
  struct Stuck {
    CrowdedDisk disk;
    World world{{.shards = 1,
                 .configure =
                     [](BrokerConfig& config) {
                       config.journal_file_bytes = 64 << 10;
                       config.journal_max_bytes = 64 << 20;
                     },
                 .disk = &disk}};
    bool stopped = false;

    Stuck() {
      create_topic(world, "t");
      produce(world, "t", 0, batch_of(world.clock.wall(), {{"first"}}));
      disk.fill();
      const Buffer batch = batch_of(world.clock.wall(), {{std::string(50'000, 'x')}});
      Partition& partition = *world.shard().partitions().all().begin()->second;
      for (int i = 0; i < 4; ++i) REQUIRE(append(partition, batch) == ErrorCode::none);
      world.run();
      REQUIRE_FALSE(world.shard().journal().is_idle());
      world.broker().stop([this] { stopped = true; });
    }
  };

  TEST_CASE(
      "a journal without space for its next file is a full disk to all, until there is space") {
    CrowdedDisk disk;
    World world{{.shards = 1,
                 .configure =
                     [](BrokerConfig& config) {
                       config.journal_file_bytes = 64 << 10;
                       config.journal_max_bytes = 64 << 20;
                     },
                 .disk = &disk}};
    CapturedLog log;
    create_topic(world, "t");
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"first"}}));
    CHECK(status_of(world.shard()).has_room);
    disk.fill();
    const Buffer batch = batch_of(world.clock.wall(), {{std::string(50'000, 'x')}});
    Partition& partition = *world.shard().partitions().all().begin()->second;
    for (int i = 0; i < 4; ++i) REQUIRE(append(partition, batch) == ErrorCode::none);
    world.run();
    CHECK_FALSE(status_of(world.shard()).has_room);
    CHECK(log.count("no space") > 0);
    world.pass(5s);
    CHECK_FALSE(status_of(world.shard()).has_room);
    const auto refused = produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}}));
    CHECK(refused.error_code == ErrorCode::kafka_storage_error);
    CHECK(refused.error_message->starts_with("disk full"));
    disk.make_room();
    world.pass(3s);  // Nobody asks meanwhile.
    CHECK(status_of(world.shard()).has_room);
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}})).error_code ==
          ErrorCode::none);
  }

  TEST_CASE("a stop ends although the journal finds no room for its gathered records") {
    Stuck stuck;
    stuck.world.pass(30s);
    CHECK(stuck.stopped);
    CHECK_FALSE(stuck.world.failure.has_value());
    stuck.disk.make_room();
    stuck.world.restart();
    CHECK(read_all(stuck.world, "t").size() < 5);  // Not acknowledged, so not missed.
  }

  TEST_CASE("a stop that finds room in time writes the journal's gathered records") {
    Stuck stuck;
    stuck.world.pass(100ms);
    CHECK_FALSE(stuck.stopped);
    stuck.disk.make_room();
    stuck.world.pass(2s);
    CHECK(stuck.stopped);
    stuck.world.restart();
    CHECK(read_all(stuck.world, "t").size() == 5);
  }

  TEST_CASE("how much of the disk is free is looked at again after some megabytes, not minutes") {
    CrowdedDisk disk;
    World world({.shards = 1,
                 .configure = [](BrokerConfig& config) { config.disk_reserve_bytes = 100 << 20; },
                 .disk = &disk});
    create_topic(world, "t");
    disk.free = 50 << 20;
    const Buffer batch = batch_of(world.clock.wall(), {{std::string(900'000, 'x')}});
    int taken = 0;
    while (taken < 100 && produce(world, "t", 0, batch).error_code == ErrorCode::none) ++taken;
    CHECK(taken < 20);
  }

  TEST_CASE(
      "a checkpoint comes when a quarter of the journal is dirty, not when its time is over") {
    World world({.shards = 1, .configure = [](BrokerConfig& config) {
                   config.journal_max_bytes = 64 << 20;
                   config.tail_bytes = std::int64_t{1} << 30;
                 }});
    create_topic(world, "t");
    const Buffer batch = batch_of(world.clock.wall(), {{std::string(900'000, 'x')}});
    for (int i = 0; i < 20; ++i) produce(world, "t", 0, batch);
    CHECK(checkpoints(world) > 0);
  }

  TEST_CASE("a log keeps nothing on the disk that the journal may still lose") {
    World world({.shards = 1});
    create_topic(world, "t", 1, {{"tarry.durability", "os"}});
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}}));
    Partition& partition = *world.shard().partitions().all().begin()->second;
    const Buffer batch = batch_of(world.clock.wall(), {{"b"}});
    REQUIRE(append(partition, batch) == ErrorCode::none);
    world.turn();
    REQUIRE(world.background().step());  // Written, and the sync waits.
    REQUIRE(partition.high_watermark() == 2);
    world.shard().checkpointer().note_dirty(partition, std::size_t{1} << 30);
    world.turn();
    REQUIRE(world.background().size() == 2);
    REQUIRE(world.background().step_last());  // The checkpoint's flush is faster than the sync.
    CHECK(partition.flushed_end() == 1);
    world.run();
    world.pass(120s);  // It is not forgotten.
    CHECK(partition.flushed_end() == 2);
    world.restart();
    CHECK(values(read_all(world, "t")) == Strings{"a", "b"});
  }

  TEST_CASE("a broker on a full disk says so before it touches anything") {
    CrowdedDisk disk;
    World world({.shards = 1, .disk = &disk});
    create_topic(world, "t");
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}}));
    disk.free = 1000;
    const auto refused = world.try_restart();
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == Errc::no_space);
    CHECK(refused.error().message.find("1000 bytes") != std::string::npos);
    CHECK(refused.error().message.find(world.directory()) != std::string::npos);
    disk.free = std::uint64_t{1} << 40;
    REQUIRE(world.try_restart().has_value());
    CHECK(values(read_all(world, "t")) == Strings{"a"});
  }
}

}  // namespace
}  // namespace tarry::broker::test
