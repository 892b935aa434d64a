// Delayed records through the broker: held until they are due, delivered once, in order; cancelled.

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <boost/asio/co_spawn.hpp>

#include <algorithm>
#include <filesystem>
#include <map>

#include "protocol/messages/delete_topics.h"
#include "protocol/messages/init_producer_id.h"
#include "tests/broker/batches.h"
#include "tests/captured_log.h"

namespace tarry::broker::test {
namespace {

using namespace std::chrono_literals;
using Strings = std::vector<std::string>;
using Headers = std::vector<std::pair<std::string, std::string>>;

// Forced, by shard 0; whether it was told so.
std::shared_ptr<bool> begin_to_delete(World& world, const TopicId& id) {
  auto removed = std::make_shared<bool>(false);
  boost::asio::co_spawn(world.shard().executor(), world.broker().topics().remove(id, true),
                        [removed](std::exception_ptr failed, TopicResult<TopicPtr> result) {
                          *removed = !failed && result.has_value();
                        });
  return removed;
}

// Everything that is pending, when every shard has written what it has to the store.
std::vector<storage::PendingRecord> all_pending(World& world) {
  for (std::size_t i = 0; i < world.shard_count(); ++i) world.shard(i).engine().write_all([] {});
  world.pass(2ms);
  std::vector<storage::PendingRecord> out;
  for (storage::PendingQuery query;;) {
    auto page = world.broker().pending().page(query);
    REQUIRE(page.has_value());
    for (auto& record : page->records) out.push_back(std::move(record));
    if (!page->next) return out;
    query.after = page->next;
  }
}

std::uint64_t count_pending(World& world) {
  return world.broker().pending_counts().total();
}

TEST_SUITE("delayed records") {
  TEST_CASE("a delayed record is answered -n, unseen until its time and there in its millisecond") {
    World world;
    create_topic(world, "t");
    const auto due = to_ms(world.clock.wall()) + 3000;
    const auto answer =
        produce(world, "t", 0,
                batch_of(world.clock.wall(), {{"later", {{"x-delay", "3s"}, {"mine", "kept"}}}}));
    CHECK(answer.error_code == ErrorCode::none);
    CHECK(answer.base_offset == -1);
    world.pass(2990ms);
    CHECK(read_all(world, "t").empty());
    world.pass(11ms);
    const auto seen = read_all(world, "t");
    REQUIRE(seen.size() == 1);
    CHECK(seen[0].value == "later");
    CHECK(seen[0].offset == 0);
    CHECK(seen[0].timestamp == due);
    REQUIRE(seen[0].headers.size() == 3);
    CHECK(seen[0].headers[0] == std::pair<std::string, std::string>{"mine", "kept"});
    CHECK(seen[0].headers[1] == std::pair{std::string("x-scheduled-for"), std::to_string(due)});
    CHECK(seen[0].headers[2].first == "x-schedule-handle");
  }

  TEST_CASE(
      "a mixed batch: immediate records have their offsets, delayed ones leave holes and are "
      "delivered later") {
    World world;
    create_topic(world, "t");
    const auto answer = produce(
        world, "t", 0,
        batch_of(world.clock.wall(), {{"now 0"}, {"later", {{"x-delay", "1s"}}}, {"now 2"}}));
    CHECK(answer.base_offset == 0);
    auto seen = read_all(world, "t");
    CHECK(values(seen) == Strings{"now 0", "now 2"});
    CHECK(seen[1].offset == 2);
    world.pass(1100ms);
    seen = read_all(world, "t");
    CHECK(values(seen) == Strings{"now 0", "now 2", "later"});
    CHECK(seen[2].offset == 3);
  }

  TEST_CASE(
      "a header one letter off is logged once per topic, whichever shards have its partitions") {
    World world({.shards = 3});
    create_topic(world, "t", 8);
    create_topic(world, "other", 1);
    CapturedLog log;
    for (int round = 0; round < 2; ++round) {
      for (PartitionIndex p = 0; p < 8; ++p) {
        const auto answer =
            produce(world, "t", p, batch_of(world.clock.wall(), {{"now", {{"X-Dealy", "3s"}}}}));
        CHECK(answer.error_code == ErrorCode::none);
        CHECK(answer.base_offset == round);
      }
    }
    CHECK(log.count("has a header X-Dealy, which is one letter off from x-delay") == 1);
    produce(world, "other", 0, batch_of(world.clock.wall(), {{"now", {{"x-dely", "3s"}}}}));
    CHECK(log.count("for other-0 has a header x-dely") == 1);
    // The header is the producer's: it stays.
    CHECK(read_all(world, "t")[0].headers == Headers{{"X-Dealy", "3s"}});
  }

  TEST_CASE("records with equal due times are delivered in the order in which they came") {
    World world;
    create_topic(world, "t");
    const auto at = std::to_string(to_ms(world.clock.wall()) + 5000);
    Strings expected;
    for (int i = 0; i < 300; ++i) {
      expected.push_back(std::to_string(i));
      produce(world, "t", 0,
              batch_of(world.clock.wall(), {{expected.back(), {{"x-deliver-at", at}}}}));
    }
    world.pass(6s);
    CHECK(values(read_all(world, "t")) == expected);
  }

  TEST_CASE(
      "pending records survive a kill and are delivered on time, once; overdue ones immediately") {
    World world;
    create_topic(world, "t", 4);
    for (PartitionIndex p = 0; p < 4; ++p) {
      produce(world, "t", p,
              batch_of(world.clock.wall(),
                       {{"soon", {{"x-delay", "5s"}}}, {"far", {{"x-delay", "2h"}}}}));
    }
    world.restart(3);
    world.pass(4s);
    for (PartitionIndex p = 0; p < 4; ++p) CHECK(read_all(world, "t", p).empty());
    world.pass(2s);
    for (PartitionIndex p = 0; p < 4; ++p)
      CHECK(values(read_all(world, "t", p)) == Strings{"soon"});
    world.clock.now_wall += 3h;  // The machine was off.
    world.restart(2);
    world.pass(3s);
    for (PartitionIndex p = 0; p < 4; ++p)
      CHECK(values(read_all(world, "t", p)) == Strings{"soon", "far"});
    world.restart(1);
    world.pass(3s);
    for (PartitionIndex p = 0; p < 4; ++p)
      CHECK(values(read_all(world, "t", p)) == Strings{"soon", "far"});
  }

  TEST_CASE(
      "over other numbers of shards, kills and checkpoints each pending record is counted once, "
      "and delivered once") {
    World world;
    create_topic(world, "t", 8);
    std::map<PartitionIndex, Strings> expected;
    int next = 0;
    const auto park = [&] {
      for (PartitionIndex p = 0; p < 8; ++p) {
        const auto value = std::to_string(next++);
        expected[p].push_back(value);
        // Some hours, and a month that is kept as one.
        const auto delay = fmt::format("{}h", next % 5 == 0 ? 24 * 500 + next : next);
        produce(world, "t", p,
                batch_of(world.clock.wall(),
                         {{value, {{"x-delay", delay}}},
                          {"never", {{"x-delay", delay}, {"x-schedule-id", value}}}}));
      }
    };
    const auto cancel = [&](std::size_t which) {
      for (PartitionIndex p = 0; p < 8; ++p) {
        const auto& id = expected[p][which];
        produce(world, "t", p,
                batch_of(world.clock.wall(),
                         {{"", {{"x-schedule-action", "cancel"}, {"x-schedule-id", id}}}}));
      }
    };
    std::size_t round = 0;
    for (const std::size_t shards : {3, 3, 1, 2, 4, 2}) {
      CAPTURE(round);
      park();
      const bool checkpoint = round % 2 == 0;
      if (checkpoint) world.pass(61s);
      world.restart(shards);
      CHECK(count_pending(world) == 8 * (round + 2));
      cancel(round++);  // Its addition is in another journal, or was.
      CHECK(count_pending(world) == 8 * (round));
      world.restart();
      CHECK(count_pending(world) == 8 * (round));
      CHECK(all_pending(world).size() == 8 * (round));
    }
    world.clock.now_wall += std::chrono::hours{24 * 600};  // The machine was off.
    world.restart();
    world.pass(10s);
    for (PartitionIndex p = 0; p < 8; ++p) {
      auto seen = values(read_all(world, "t", p));
      std::ranges::sort(seen);
      std::ranges::sort(expected[p]);
      CHECK(seen == expected[p]);
    }
    CHECK(count_pending(world) == 0);
    CHECK(all_pending(world).empty());
  }

  TEST_CASE(
      "a partition that is out of service keeps its due records for the next start, and the others "
      "of its shard go on") {
    World world({.shards = 1});
    create_topic(world, "t", 2);
    for (PartitionIndex p = 0; p < 2; ++p)
      produce(world, "t", p, batch_of(world.clock.wall(), {{"v", {{"x-delay", "2s"}}}}));
    const TopicPartition damaged{world.shard().topics().find("t")->id, 0};
    CapturedLog log;
    world.shard().partitions().find(damaged)->fence("a test says so");
    world.pass(3s);
    CHECK(log.count("partition t-0 is out of service: a test says so") == 1);
    const auto out = world.shard().partitions().out_of_service(10);
    REQUIRE(out.size() == 1);
    CHECK(out[0].id == damaged);
    CHECK(out[0].reason == "a test says so");
    CHECK(values(read_all(world, "t", 1)) == Strings{"v"});
    CHECK(count_pending(world) == 1);
    CHECK(world.shard().engine().stats().out_of_service == 1);
    CHECK(world.shard().engine().stats().overdue == 1);
    world.restart();
    CHECK(world.shard().partitions().count_out_of_service() == 0);
    world.pass(3s);
    CHECK(values(read_all(world, "t", 0)) == Strings{"v"});
    world.restart();
    world.pass(3s);
    CHECK(values(read_all(world, "t", 0)) == Strings{"v"});
    CHECK(count_pending(world) == 0);
  }

  TEST_CASE(
      "without journal/ the start is refused until there is an empty one, and the records that "
      "come "
      "then are kept as any others") {
    World world;
    create_topic(world, "t", 4);
    const auto at = std::to_string(to_ms(world.clock.wall() + 2h));  // One hour's, all of them.
    const auto park = [&](const std::string& value) {
      for (PartitionIndex p = 0; p < 4; ++p)
        produce(world, "t", p, batch_of(world.clock.wall(), {{value, {{"x-deliver-at", at}}}}));
    };
    for (int i = 0; i < 50; ++i) park("before " + std::to_string(i));
    world.pass(61s);  // A checkpoint has them.
    world.stop();
    const std::string journals = world.directory() + "/data/journal";
    std::filesystem::remove_all(journals);
    const auto refused = world.try_restart();
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().message.contains(journals + " is missing"));
    CHECK_FALSE(std::filesystem::exists(journals));
    std::filesystem::create_directory(journals);
    REQUIRE(world.try_restart().has_value());
    CHECK(count_pending(world) == 200);
    park("behind");  // Nearer to the beginning of its journal than those were.
    CHECK(count_pending(world) == 204);
    world.restart();
    CHECK(count_pending(world) == 204);
    world.pass(3h);
    for (PartitionIndex p = 0; p < 4; ++p) {
      const auto seen = values(read_all(world, "t", p));
      CHECK(seen.size() == 51);
      CHECK(seen.back() == "behind");
    }
    world.restart();
    world.pass(1min);
    CHECK(count_pending(world) == 0);
    for (PartitionIndex p = 0; p < 4; ++p) CHECK(read_all(world, "t", p).size() == 51);
  }

  TEST_CASE("a journal of a shard that has never been is refused and named") {
    World world;
    create_topic(world, "t");
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"late", {{"x-delay", "1h"}}}}));
    world.stop();
    const std::string journals = world.directory() + "/data/journal";
    std::filesystem::copy(journals + "/0", journals + "/7",
                          std::filesystem::copy_options::recursive);
    const auto refused = world.try_restart();
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == Errc::corrupt);
    CHECK(refused.error().message.contains(journals + "/7"));
    CHECK(refused.error().message.contains("2 shards"));
    std::filesystem::remove_all(journals + "/7");
    REQUIRE(world.try_restart().has_value());
    world.pass(61min);
    CHECK(values(read_all(world, "t")) == Strings{"late"});
  }

  TEST_CASE("a store of pending records that lost its newest part is refused") {
    World world;
    create_topic(world, "t");
    for (int i = 0; i < 3; ++i) {
      produce(world, "t", 0, batch_of(world.clock.wall(), {{"late", {{"x-delay", "1h"}}}}));
      world.pass(2min);  // Each makes a checkpoint.
    }
    world.stop();
    const std::filesystem::path store = world.directory() + "/data/db/pending";
    for (const auto& file : std::filesystem::directory_iterator(store)) {
      if (!file.path().filename().string().starts_with("MANIFEST")) continue;
      std::filesystem::resize_file(file, file.file_size() - 10);
    }
    const auto refused = world.try_restart();
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == Errc::corrupt);
    CHECK(refused.error().message.contains(store.string()));
  }

  TEST_CASE("a store of pending records that is refused is refused before db/meta is opened") {
    World world;
    create_topic(world, "t");
    world.stop();
    const std::filesystem::path databases = world.directory() + "/data/db";
    std::filesystem::remove(databases / "pending/CURRENT");
    const auto files = [&] {
      std::map<std::string, std::uintmax_t> out;
      for (const auto& file : std::filesystem::directory_iterator(databases / "meta"))
        out[file.path().filename().string()] = file.file_size();
      return out;
    };
    const auto before = files();
    const auto refused = world.try_restart();
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().message.contains((databases / "pending").string()));
    CHECK(files() == before);
  }

  TEST_CASE("the space of delivered records is free after some more checkpoints") {
    World world({.shards = 1});
    create_topic(world, "t");
    SeededRandom random(3);
    for (int i = 0; i < 100; ++i) {
      std::string value(20'000, ' ');  // That LZ4 makes no smaller.
      for (char& c : value) c = static_cast<char>(random.below(256));
      produce(world, "t", 0, batch_of(world.clock.wall(), {{value, {{"x-delay", "90s"}}}}));
    }
    world.pass(75s);
    CHECK(world.broker().pending().sizes().blob_bytes > 1'500'000);
    world.pass(10min);
    CHECK(count_pending(world) == 0);
    for (int i = 0; i < 3; ++i) {  // Each makes a checkpoint.
      produce(world, "t", 0, batch_of(world.clock.wall(), {{"now"}}));
      world.pass(61s);
    }
    CHECK(world.broker().pending().sizes().blob_bytes < 100'000);
  }

  TEST_CASE("a waiting fetch is woken by a delivery") {
    World world;
    create_topic(world, "t", 3);
    for (PartitionIndex p = 0; p < 3; ++p) {
      CAPTURE(p);
      produce(world, "t", p, batch_of(world.clock.wall(), {{"due", {{"x-delay", "2s"}}}}));
      const auto waiting = world.begin(fetch_request("t", p, 0, 60'000), 12);
      world.pass(1900ms);
      CHECK_FALSE(waiting->answer.has_value());
      world.pass(110ms);
      CHECK(waiting->answer.has_value());
    }
  }

  TEST_CASE("an id replaces, a cancel drops, and neither is ever seen") {
    World world;
    create_topic(world, "t");
    const auto park = [&](const std::string& value, Headers headers) {
      const auto answer =
          produce(world, "t", 0, batch_of(world.clock.wall(), {{value, std::move(headers)}}));
      CHECK(answer.error_code == ErrorCode::none);
      CHECK(answer.base_offset == -1);
    };
    park("old", {{"x-delay", "1s"}, {"x-schedule-id", "a"}});
    park("new", {{"x-delay", "2s"}, {"x-schedule-id", "a"}});
    park("dropped", {{"x-delay", "2s"}, {"x-schedule-id", "b"}});
    world.restart();
    park("", {{"x-schedule-action", "cancel"}, {"x-schedule-id", "b"}});
    park("", {{"x-schedule-action", "cancel"}, {"x-schedule-id", "unknown"}});
    world.pass(10s);
    const auto seen = read_all(world, "t");
    CHECK(values(seen) == Strings{"new"});
    CHECK(seen[0].headers[0] == std::pair<std::string, std::string>{"x-schedule-id", "a"});
  }

  TEST_CASE("a retry of a delayed batch adds no record again, even after a kill and a checkpoint") {
    World world;
    create_topic(world, "t");
    const auto pid =
        world.call<protocol::InitProducerIdResponse>(protocol::InitProducerIdRequest{}, 4);
    const auto send = [&](std::int32_t sequence) {
      return produce(
          world, "t", 0,
          batch_of(world.clock.wall(), {{"a", {{"x-delay", "10m"}}}, {"b", {{"x-delay", "10m"}}}},
                   {pid.producer_id, 0, sequence}));
    };
    CHECK(send(0).base_offset == -2);
    CHECK(send(0).base_offset == -2);
    world.restart();
    CHECK(send(0).base_offset == -2);
    world.pass(120s);
    world.restart();
    CHECK(send(0).base_offset == -2);
    CHECK(send(2).base_offset == -2);
    CHECK(count_pending(world) == 4);
    world.pass(11min);
    CHECK(read_all(world, "t").size() == 4);
  }

  TEST_CASE("a retry of a delayed batch is not answered before the batch itself is durable") {
    World world({.shards = 1});
    create_topic(world, "t");
    const auto pid =
        world.call<protocol::InitProducerIdResponse>(protocol::InitProducerIdRequest{}, 4);
    const Buffer batch =
        batch_of(world.clock.wall(), {{"a", {{"x-delay", "10m"}}}}, {pid.producer_id, 0, 0});
    world.runs_at_once = false;
    const auto first = world.begin(produce_request("t", 0, batch), 9);
    const auto retry = world.begin(produce_request("t", 0, batch), 9);
    while (world.turn()) {
    }
    CHECK(!first->answer);
    CHECK(!retry->answer);
    REQUIRE(world.background().size() > 0);  // The round is on its way to the disk.
    world.run();
    REQUIRE(retry->answer);
    const auto answer = world.read<protocol::ProduceResponse>(*retry, 9);
    CHECK(answer.responses[0].partition_responses[0].base_offset == -1);
    CHECK(first->answer);
    CHECK(count_pending(world) == 1);
  }

  TEST_CASE("a topic's default delay applies to records without a delay") {
    World world;
    create_topic(world, "t", 1, {{"tarry.delay.ms", "1000"}});
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}})).base_offset == -1);
    world.pass(1100ms);
    CHECK(values(read_all(world, "t")) == Strings{"a"});
  }

  TEST_CASE("with tarry.delay.enable=false headers are ignored") {
    World world;
    create_topic(world, "t", 1, {{"tarry.delay.enable", "false"}});
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {{"a", {{"x-delay", "nonsense"}}}}))
              .base_offset == 0);
    CHECK(values(read_all(world, "t")) == Strings{"a"});
  }

  TEST_CASE(
      "a header that cannot be understood refuses the batch and names record, header and value") {
    World world;
    create_topic(world, "t");
    for (const auto codec : {records::Codec::none, records::Codec::gzip, records::Codec::snappy,
                             records::Codec::lz4, records::Codec::zstd}) {
      const auto answer = produce(
          world, "t", 0,
          batch_of(world.clock.wall(), {{"fine"}, {"bad", {{"x-delay", "tomorrow"}}}}, {}, codec));
      CHECK(answer.error_code == ErrorCode::invalid_record);
      REQUIRE(answer.record_errors.size() == 1);
      CHECK(answer.record_errors[0].batch_index == 1);
      const auto message = answer.record_errors[0].batch_index_error_message.value_or("");
      CHECK(message.find("x-delay") != std::string::npos);
      CHECK(message.find("tomorrow") != std::string::npos);
    }
    CHECK(read_all(world, "t").empty());
  }

  TEST_CASE("a topic with pending records is not deleted unless forced, and then they never fire") {
    World world;
    create_topic(world, "t");
    produce(world, "t", 0,
            batch_of(world.clock.wall(), {{"a", {{"x-delay", "1h"}}}, {"b", {{"x-delay", "1h"}}}}));
    protocol::DeleteTopicsRequest request;
    request.timeout_ms = 30'000;
    request.topics.push_back({"t", {}});
    const auto response = world.call<protocol::DeleteTopicsResponse>(request, 6);
    CHECK(response.responses[0].error_code == ErrorCode::policy_violation);
    CHECK(response.responses[0].error_message.value_or("").find("2 pending") != std::string::npos);

    const auto id = world.shard().topics().find("t")->id;
    const auto removed = begin_to_delete(world, id);
    world.run();
    CHECK(*removed);
    CHECK(count_pending(world) == 0);
    create_topic(world, "t");
    world.pass(2h);
    CHECK(read_all(world, "t").empty());
    world.restart();
    CHECK(read_all(world, "t").empty());
  }

  TEST_CASE("a checkpoint has a topic's end and that of its pending records, or neither") {
    World world;
    create_topic(world, "t", 8);
    for (PartitionIndex p = 0; p < 8; ++p) {
      produce(world, "t", p, batch_of(world.clock.wall(), {{"a", {{"x-delay", "1h"}}}}));
    }
    const auto id = world.shard().topics().find("t")->id;
    world.background_stands_still = true;
    const auto removed = begin_to_delete(world, id);
    world.run();  // It is in the journal.
    // The topic's end becomes durable, and only shard 0 gets to know it.
    world.stands_still = 1;
    world.background_stands_still = false;
    world.run();
    REQUIRE_FALSE(world.broker().topics().image()->find(id));
    REQUIRE(world.shard(1).topics().find(id));
    const auto checkpoints = world.shard().checkpointer().checkpoints_total();
    world.shard().checkpointer().hurry();
    world.pass(5ms);
    REQUIRE(world.shard().checkpointer().checkpoints_total() == checkpoints + 1);
    REQUIRE_FALSE(*removed);
    CHECK(count_pending(world) == 0);
    world.restart();
    CHECK_FALSE(world.broker().topics().image()->find(id));
    CHECK(count_pending(world) == 0);
    CHECK(all_pending(world).empty());
  }

  TEST_CASE(
      "records that a shard accepts before it knows that the topic is deleted go with the topic") {
    World world;
    create_topic(world, "t", 8);
    const auto id = world.shard().topics().find("t")->id;
    PartitionIndex of_1 = 0;
    while (world.broker().shard_of({id, of_1}).index() != 1) ++of_1;
    produce(world, "t", of_1, batch_of(world.clock.wall(), {{"a", {{"x-delay", "1h"}}}}));
    world.background_stands_still = true;
    const Buffer batch = batch_of(world.clock.wall(), {{"b", {{"x-delay", "1h"}}}});
    const auto parking = world.begin(produce_request("t", of_1, batch), 9, 1);
    const auto removed = begin_to_delete(world, id);
    world.run();
    world.stands_still = 1;
    while (world.background(0).step()) world.turn();
    REQUIRE_FALSE(world.broker().topics().image()->find(id));
    // The store may forget that it has dropped the topic, when nothing of it is left there.
    REQUIRE(world.broker().pending().reclaim(0.5, world.clock.wall()).has_value());
    // Shard 1's journal has the record; the news of the topic waits behind it.
    while (world.background(1).step()) {
    }
    CHECK(world.shard(1).engine().stats().tier.records == 2);
    world.stands_still.reset();
    world.background_stands_still = false;
    world.run();
    CHECK(*removed);
    for (const bool restarted : {false, true}) {
      CAPTURE(restarted);
      if (restarted) world.restart();
      CHECK(count_pending(world) == 0);
      CHECK(all_pending(world).empty());
    }
  }

  TEST_CASE(
      "a delivery to a topic that is deleted meanwhile holds up no other delivery until the next "
      "checkpoint by time") {
    World world({.configure = [](BrokerConfig& config) { config.tail_bytes = 65'536; }});
    create_topic(world, "t", 8);
    const auto id = world.shard().topics().find("t")->id;
    PartitionIndex of_1 = 0;
    while (world.broker().shard_of({id, of_1}).index() != 1) ++of_1;
    produce(world, "t", of_1,
            batch_of(world.clock.wall(), {{std::string(100'000, 'x'), {{"x-delay", "90s"}}}}));
    world.pass(89s);
    world.background_stands_still = true;
    world.pass(2s);  // Its delivery is on the way to the journal of shard 1.
    REQUIRE(world.shard(1).engine().stats().in_flight == 1);
    const auto removed = begin_to_delete(world, id);
    world.turn();
    while (!*removed && world.background(0).step()) world.turn();
    REQUIRE(*removed);
    REQUIRE_FALSE(world.shard(1).topics().find(id));
    REQUIRE(world.shard(1).engine().stats().in_flight == 1);
    const auto checkpoints = world.shard(1).checkpointer().checkpoints_total();
    world.background_stands_still = false;
    world.run();
    CHECK(world.shard(1).engine().stats().in_flight == 0);
    CHECK(world.shard(1).checkpointer().checkpoints_total() > checkpoints);
    CHECK(world.shard(1).engine().stats().unwritten_bytes == 0);
  }

  TEST_CASE("a record that waits for its partition to be opened is not early when the clock goes") {
    World world({.shards = 1});
    create_topic(world, "t");
    const auto batch = batch_of(
        world.clock.wall(),
        {{"b", {{"x-delay", "60s"}}}, {"a", {{"x-delay", "3s"}}}, {"c", {{"x-delay", "59s"}}}});
    produce(world, "t", 0, batch);
    world.clock.now_wall += 60s;
    world.clock.now_mono += 60s;
    world.background_stands_still = true;
    world.restart();
    const TopicPartition tp{world.shard().topics().find("t")->id, 0};
    // They are loaded from the store, and the partition is not opened.
    for (int i = 0; i < 100 && world.shard().engine().stats().in_flight < 3; ++i) {
      world.background().step();
      world.turn();
    }
    REQUIRE(world.shard().engine().stats().in_flight == 3);
    REQUIRE(world.shard().partitions().find(tp) == nullptr);
    world.clock.now_wall -= 57s;
    world.background_stands_still = false;
    world.run();
    REQUIRE(world.shard().partitions().find(tp) != nullptr);
    CHECK(world.shard().partitions().find(tp)->log_end() == 0);
    // One of the three is due now.
    world.pass(20ms);
    CHECK(values(read_all(world, "t")) == Strings{"a"});
    world.pass(55'900ms);
    CHECK(values(read_all(world, "t")) == Strings{"a"});
    world.pass(100ms);
    CHECK(values(read_all(world, "t")) == Strings{"a", "c"});
    world.pass(1s);
    CHECK(values(read_all(world, "t")) == Strings{"a", "c", "b"});
    world.restart();
    world.pass(60s);
    CHECK(values(read_all(world, "t")) == Strings{"a", "c", "b"});
    CHECK(count_pending(world) == 0);
  }

  TEST_CASE("an id that was due on arrival is remembered as delivered, also after a kill") {
    World world({.shards = 1});
    create_topic(world, "t");
    const auto answer = produce(
        world, "t", 0,
        batch_of(world.clock.wall(), {{"now", {{"x-delay", "0"}, {"x-schedule-id", "a"}}}}));
    CHECK(answer.base_offset == 0);
    const TopicPartition tp{world.shard().topics().find("t")->id, 0};
    for (const bool restarted : {false, true}) {
      CAPTURE(restarted);
      if (restarted) world.restart();
      std::optional<delay::ControlOutcome> outcome;
      world.shard().engine().cancel(tp, "a", [&](Result<delay::Controlled> told) {
        if (told) outcome = told->outcome;
      });
      world.pass(5ms);
      CHECK(outcome == delay::ControlOutcome::already_delivered);
    }
    CHECK(values(read_all(world, "t")) == Strings{"now"});
  }

  TEST_CASE(
      "nothing pending and nothing dirty: no timer of a shard is armed for the next ten seconds") {
    World world;
    create_topic(world, "t", 2);
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}}));
    world.pass(200s);
    for (std::size_t i = 0; i < 2; ++i) {
      const auto due = world.shard(i).wheel().next_due();
      if (due) CHECK(*due > world.shard(i).tick() + 10'000);
    }
  }

  TEST_CASE("the largest delayed record that is taken is delivered") {
    World world({.shards = 1, .configure = [](BrokerConfig& config) {
                   config.journal_max_bytes = 40 << 20;
                   config.journal_file_bytes = 1 << 20;
                 }});
    create_topic(world, "t", 1, {{"max.message.bytes", "100000000"}});
    constexpr std::size_t most = 20 << 20;  // The bound of one journal record.
    std::size_t size = most - 40;
    for (;; size -= size > most - 200 ? 4 : 500) {
      const auto answer = produce(
          world, "t", 0,
          batch_of(world.clock.wall(),
                   {{std::string(size, 'x'), {{"x-delay", "1s"}, {"x-schedule-id", "large"}}}}));
      if (answer.error_code == ErrorCode::none) break;
      REQUIRE(answer.error_code == ErrorCode::message_too_large);
      REQUIRE(size > most - 20'000);
    }
    world.pass(5s);
    auto fetch = fetch_request("t", 0, 0);
    const auto response = world.call<protocol::FetchResponse>(fetch, 12);
    const auto seen = records_in(response);
    REQUIRE(seen.size() == 1);
    CHECK(seen[0].value.size() == size);
  }

  // A delivery has the record twice in one journal record: in the log, and pending again.
  TEST_CASE("the largest recurring record that is taken is delivered each time") {
    World world({.shards = 1, .configure = [](BrokerConfig& config) {
                   config.journal_max_bytes = 40 << 20;
                   config.journal_file_bytes = 1 << 20;
                 }});
    create_topic(world, "t", 1, {{"max.message.bytes", "100000000"}});
    constexpr std::size_t most = 10 << 20;  // Half the bound of one journal record.
    std::size_t size = most;
    for (;; size -= 500) {
      const auto answer =
          produce(world, "t", 0,
                  batch_of(world.clock.wall(),
                           {{std::string(size, 'x'),
                             {{"x-every", "1s"}, {"x-count", "2"}, {"x-schedule-id", "large"}}}}));
      if (answer.error_code == ErrorCode::none) break;
      REQUIRE(answer.error_code == ErrorCode::message_too_large);
      REQUIRE(size > most - 20'000);
    }
    CHECK(size < most);
    world.pass(5s);
    for (const Offset offset : {0, 1}) {
      CAPTURE(offset);
      auto fetch = fetch_request("t", 0, offset);
      const auto response = world.call<protocol::FetchResponse>(fetch, 12);
      const auto seen = records_in(response);
      REQUIRE_FALSE(seen.empty());
      CHECK(seen[0].value.size() == size);
    }
    CHECK(world.shard().engine().stats().overdue == 0);
  }

  TEST_CASE("a start is ready when every shard can accept a delayed record, and not before") {
    World world({.shards = 3});
    CHECK(world.ready);
    create_topic(world, "t");
    world.background_stands_still = true;
    world.restart();
    CHECK_FALSE(world.ready);
    world.background_stands_still = false;
    world.run();
    CHECK(world.ready);
    const auto answer =
        produce(world, "t", 0, batch_of(world.clock.wall(), {{"late", {{"x-delay", "1h"}}}}));
    CHECK(answer.error_code == ErrorCode::none);
  }

  TEST_CASE("a start gives each shard one block of sequence numbers") {
    World world({.shards = 1});
    create_topic(world, "t");
    world.restart();
    produce(world, "t", 0, batch_of(world.clock.wall(), {{"late", {{"x-delay", "1h"}}}}));
    const auto pending = all_pending(world);
    REQUIRE(pending.size() == 1);
    CHECK(pending[0].key.sequence == (Sequence{1} << 32) + 1);
  }
}

}  // namespace
}  // namespace tarry::broker::test
