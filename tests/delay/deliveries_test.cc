#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

using records::Codec;
using Strings = std::vector<std::string>;

// `count` records that are due at the same millisecond, with their numbers as values.
void schedule_many(TestHost& host, const TopicPartition& partition, int count, WallTime due,
                   Codec codec = Codec::none) {
  std::vector<TestRecord> records;
  for (int i = 0; i < count; ++i)
    records.push_back({std::to_string(i), {{"x-deliver-at", std::to_string(to_ms(due))}}});
  REQUIRE(host.produce(partition, records, {.codec = codec}).has_value());
}

Strings numbers(int count) {
  Strings out;
  for (int i = 0; i < count; ++i) out.push_back(std::to_string(i));
  return out;
}

TEST_SUITE("deliveries") {
  TEST_CASE("several batches of a partition are on their way at once, and stand in order") {
    Engine::Options options;
    options.batch_records = 10;
    options.partition_batches = 4;
    TestHost host(options);
    schedule_many(host, orders, 100, host.clock.wall() + milliseconds{1'000});
    host.settle();
    host.clock.pass(milliseconds{1'000});
    host.turn();
    CHECK(host.engine->stats().in_flight == 40);
    CHECK(host.engine->stats().overdue == 100);
    host.sync(1);
    host.turn();
    CHECK(host.engine->stats().in_flight == 40);
    host.settle();
    CHECK(host.values(orders) == numbers(100));
    CHECK(host.engine->stats().in_flight == 0);
  }

  TEST_CASE("no more is delivered than the logs may have in memory alone, until it is written") {
    Engine::Options options;
    options.batch_records = 10;
    options.partition_batches = 1;
    options.unwritten_bytes = 3'000;
    TestHost host(options);
    schedule_many(host, orders, 200, host.clock.wall() + milliseconds{1'000});
    host.pass(milliseconds{1'000});
    const std::size_t first = host.delivered_bytes;
    CHECK(first >= options.unwritten_bytes);
    CHECK(host.engine->stats().unwritten_bytes == first);
    // One batch may go over the bound, and the batches are of nearly one size.
    CHECK(first <= options.unwritten_bytes + 2 * first / host.deliveries);
    host.pass(milliseconds{5'000});
    CHECK(host.delivered_bytes == first);
    // A write that failed has made no room.
    host.engine->log_write_begins();
    host.engine->log_write_ended(false);
    host.settle();
    CHECK(host.delivered_bytes == first);
    // Nor has one that is still under way.
    host.engine->log_write_begins();
    host.settle();
    CHECK(host.delivered_bytes == first);
    host.engine->log_write_ended(true);
    host.settle();
    CHECK(host.delivered_bytes - first >= options.unwritten_bytes);
    CHECK(host.delivered_bytes - first <= options.unwritten_bytes + 2 * first / host.deliveries);
    for (int writes = 0; host.total() > 0; ++writes) {
      REQUIRE(writes < 100);
      host.engine->log_write_begins();
      host.engine->log_write_ended(true);
      host.settle();
    }
    CHECK(host.values(orders) == numbers(200));
  }

  TEST_CASE("no batch overtakes one that was refused, however many are on their way") {
    for (int refused = 0; refused < 6; ++refused) {
      CAPTURE(refused);
      Engine::Options options;
      options.batch_records = 10;
      TestHost host(options);
      int asked = 0;
      host.refuses = [&](const TopicPartition&) { return asked++ == refused; };
      schedule_many(host, orders, 60, host.clock.wall() + milliseconds{1'000});
      host.settle();
      host.clock.pass(milliseconds{1'000});
      host.turn();
      CHECK(host.engine->stats().in_flight == static_cast<std::size_t>(10 * refused));
      host.pass(milliseconds{100});
      CHECK(host.values(orders) == numbers(60));
      CHECK(host.engine->stats().refused_total == 1);
    }
  }

  TEST_CASE("while a batch waits for its partition to be opened, none follows it") {
    Engine::Options options;
    options.batch_records = 10;
    TestHost host(options);
    host.defers = true;
    schedule_many(host, orders, 50, host.clock.wall() + milliseconds{1'000});
    host.settle();
    host.clock.pass(milliseconds{1'000});
    host.turn();
    REQUIRE(host.deferred.size() == 1);
    host.clock.pass(milliseconds{5'000});
    host.turn();
    CHECK(host.deferred.size() == 1);
    host.defers = false;
    host.deferred.front()();
    host.settle();
    CHECK(host.values(orders) == numbers(50));
  }

  TEST_CASE(
      "a record that falls due in a quiet partition is delivered although a flood has filled its "
      "room") {
    Engine::Options options;
    options.batch_records = 10;
    options.in_flight_records = 40;
    TestHost host(options);
    const WallTime due = host.clock.wall() + milliseconds{1'000};
    for (int i = 0; i < 8; ++i) schedule_many(host, partition_of(1, i), 200, due);
    schedule_many(host, others, 3, due + milliseconds{5});
    host.settle();
    host.clock.pass(milliseconds{1'000});
    host.turn();
    CHECK(host.engine->stats().in_flight >= 40);
    CHECK(host.engine->stats().in_flight <= 80);
    const auto before = host.deliveries;
    host.clock.pass(milliseconds{5});
    host.turn();
    CHECK(host.deliveries == before + 1);
    host.sync();
    CHECK(host.values(others) == numbers(3));
    host.settle();
    CHECK(host.total() == 0);
  }

  TEST_CASE("a round that makes much durable at once is applied in several turns") {
    Engine::Options options;
    options.partition_batches = 64;
    options.in_flight_records = 16'384;
    TestHost host(options);
    host.checks_order = false;
    host.checks_store = false;
    const WallTime due = host.clock.wall() + milliseconds{1'000};
    for (int i = 0; i < 10; ++i) schedule_many(host, orders, 1'000, due);
    host.settle();
    host.clock.pass(milliseconds{1'000});
    for (int turns = 0; host.engine->stats().in_flight < 10'000; ++turns) {
      REQUIRE(turns < 1'000);
      host.turn(1);
    }
    host.clock.each_look = milliseconds{1};
    host.sync();
    host.clock.each_look = {};
    // A batch has 512 records, and the turn has time for few of them.
    CHECK(host.engine->stats().in_flight >= 10'000 - 4 * 512);
    CHECK(host.engine->stats().in_flight < 10'000);
    host.settle();
    CHECK(host.engine->stats().in_flight == 0);
    CHECK(host.log(orders).size() == 10'000);
    CHECK(host.total() == 0);
  }

  TEST_CASE("cancels that a round makes durable at once are applied in several turns") {
    TestHost host;
    host.checks_store = false;
    constexpr std::size_t cancels = 2'000;
    std::vector<TestRecord> records;
    for (std::size_t i = 0; i < cancels; ++i)
      records.push_back({"v", {{"x-delay", "1h"}, {"x-schedule-id", std::to_string(i)}}});
    REQUIRE(host.produce(orders, records).has_value());
    host.settle();
    // Before them in the journal is what takes several turns, so that all of them wait.
    schedule_many(host, others, 2'000, host.clock.wall() + std::chrono::hours{1});
    for (std::size_t i = 0; i < cancels; ++i) (void)host.cancel(orders, std::to_string(i));
    for (int turns = 0; host.appended_and_waiting() < 1 + cancels; ++turns) {
      REQUIRE(turns < 100);
      host.turn();
      host.background.run_all();
    }
    host.sync();
    std::uint64_t before = host.engine->stats().cancelled_total;
    CHECK(before == 0);
    int turns = 0;
    for (; before < cancels; ++turns) {
      REQUIRE(turns < 100);
      host.turn(1);
      const std::uint64_t now = host.engine->stats().cancelled_total;
      CHECK(now - before <= 512);
      before = now;
    }
    CHECK(turns >= 4);
    host.settle();
    CHECK(host.total() == 2'000);
  }

  TEST_CASE("a step that has used up its time leaves its other parts to the next ones, in order") {
    TestHost host;
    host.checks_order = false;
    host.checks_store = false;
    const WallTime due = host.clock.wall() + milliseconds{1'000};
    for (int i = 0; i < 3; ++i) schedule_many(host, orders, 1'000, due);
    host.pass(milliseconds{999});
    host.clock.pass(milliseconds{1});
    // Each part of a step takes more than its time.
    host.clock.each_look = milliseconds{10};
    int turns = 0, last = -2;
    for (; host.log(orders).size() < 3'000; ++turns) {
      REQUIRE(turns < 1'000);
      const auto before = host.deliveries;
      host.turn(1);
      CHECK(host.deliveries <= before + 1);
      // A step that delivers does nothing else, so the next one has other things to do.
      if (host.deliveries > before) {
        CHECK(turns > last + 1);
        last = turns;
      }
      host.sync();
    }
    CHECK(turns > 5 * 5);  // Six batches.
    host.clock.each_look = {};
    host.settle();
    CHECK(host.engine->stats().in_flight == 0);
    CHECK(host.total() == 0);
  }

  TEST_CASE("records of one millisecond are in order before it comes: the first leave at once") {
    Engine::Options options;
    options.step_timers = 64;
    TestHost host(options);
    host.checks_order = false;
    host.checks_store = false;  // Long batches are applied in steps.
    const WallTime due = host.clock.wall() + milliseconds{5'000};
    for (int i = 0; i < 10; ++i) schedule_many(host, orders, 1'000, due);
    host.pass(milliseconds{4'999});
    CHECK(host.deliveries == 0);
    CHECK(host.engine->stats().overdue == 0);
    host.clock.pass(milliseconds{1});
    CHECK(host.turn(1) == 1);
    CHECK(host.deliveries > 0);
    host.settle();
    CHECK(host.log(orders).size() == 10'000);
  }

  TEST_CASE("a turn hands over one batch of a burst, so that the journal begins with it") {
    TestHost host;
    host.checks_store = false;
    const WallTime due = host.clock.wall() + milliseconds{1'000};
    schedule_many(host, orders, 1'000, due);
    schedule_many(host, orders, 1'000, due);
    host.pass(milliseconds{999});
    CHECK(host.deliveries == 0);
    host.clock.pass(milliseconds{1});
    CHECK(host.turn(1) == 1);
    CHECK(host.deliveries == 1);
    CHECK(host.appended_and_waiting() == 1);
    host.settle();
    CHECK(host.log(orders).size() == 2'000);
  }

  TEST_CASE("a delivered batch has the codec of the producer's batch, also after a crash") {
    for (const bool crashes : {false, true}) {
      for (int codec = 0; codec < 5; ++codec) {
        CAPTURE(codec);
        TestHost host;
        schedule_many(host, orders, 100, host.clock.wall() + milliseconds{1'000},
                      static_cast<Codec>(codec));
        host.settle();
        if (crashes) host.crash();
        host.pass(milliseconds{1'500});
        CHECK(host.codecs == std::vector<Codec>{static_cast<Codec>(codec)});
        CHECK(host.values(orders) == numbers(100));
      }
    }
  }

  TEST_CASE("a topic's codec is that of all its batches") {
    TestHost host;
    host.topics[orders.topic].codec = Codec::lz4;
    schedule_many(host, orders, 5, host.clock.wall() + milliseconds{1'000}, Codec::gzip);
    schedule_many(host, orders, 5, host.clock.wall() + milliseconds{1'000}, Codec::none);
    host.pass(milliseconds{1'000});
    CHECK(host.codecs == std::vector<Codec>{Codec::lz4});
    CHECK(host.log(orders).size() == 10);
  }

  TEST_CASE("a batch ends where the producer's codec changes") {
    TestHost host;
    const WallTime due = host.clock.wall() + milliseconds{1'000};
    schedule_many(host, orders, 2, due, Codec::gzip);
    schedule_many(host, orders, 2, due, Codec::none);
    schedule_many(host, orders, 2, due, Codec::zstd);
    host.pass(milliseconds{1'000});
    CHECK(host.codecs == std::vector<Codec>{Codec::gzip, Codec::none, Codec::zstd});
    CHECK(host.values(orders) == Strings{"0", "1", "0", "1", "0", "1"});
  }

  TEST_CASE("a large batch is compressed on the Background, and those behind it wait for it") {
    Engine::Options options;
    options.batch_records = 10;
    options.compressed_inline = 500;
    TestHost host(options);
    const WallTime due = host.clock.wall() + milliseconds{1'000};
    schedule_many(host, orders, 20, due, Codec::zstd);
    schedule_many(host, orders, 2, due, Codec::zstd);  // Short enough for the shard.
    host.settle();
    host.clock.pass(milliseconds{1'000});
    host.turn();
    CHECK(host.deliveries == 0);
    CHECK(host.engine->stats().in_flight == 22);
    // They are ready in any order.
    REQUIRE(host.background.step_last());
    host.turn();
    CHECK(host.deliveries == 0);
    REQUIRE(host.background.step());
    host.turn();
    CHECK(host.deliveries == 3);
    host.settle();
    Strings expected = numbers(20);
    expected.push_back("0");
    expected.push_back("1");
    CHECK(host.values(orders) == expected);
  }

  TEST_CASE("a batch whose records are no longer due when it is compressed stays behind") {
    Engine::Options options;
    options.compressed_inline = 0;
    TestHost host(options);
    schedule_many(host, orders, 20, host.clock.wall() + milliseconds{1'000}, Codec::zstd);
    host.settle();
    host.clock.pass(milliseconds{1'000});
    host.turn();
    host.clock.wall_now -= milliseconds{500};
    host.background.run_all();
    host.turn();
    CHECK(host.deliveries == 0);
    host.pass(milliseconds{2'000});
    CHECK(host.values(orders) == numbers(20));
    CHECK(host.engine->stats().early_total == 0);
  }

  TEST_CASE("an owner's cancel finds a record in any of the batches on their way") {
    Engine::Options options;
    options.batch_records = 2;
    TestHost host(options);
    for (int i = 0; i < 8; ++i)
      host.schedule(orders, std::to_string(i), "1s", "id" + std::to_string(i));
    host.settle();
    host.clock.pass(milliseconds{1'000});
    host.turn();
    CHECK(host.engine->stats().in_flight == 8);
    const auto answer = host.cancel(orders, "id5");
    CHECK(!answer->has_value());
    host.settle();
    REQUIRE(answer->has_value());
    CHECK(**answer == ControlOutcome::already_delivered);
    CHECK(host.values(orders) == numbers(8));
  }

  TEST_CASE("a deleted topic's overdue records go in steps, and each is counted once") {
    Engine::Options options;
    options.step_timers = 100;
    TestHost host(options);
    host.checks_order = false;
    host.checks_store = false;  // Long batches are applied in steps.
    host.refuses = [](const TopicPartition&) { return true; };
    schedule_many(host, orders, 1'000, host.clock.wall() + milliseconds{1'000});
    schedule_many(host, orders, 1'000, host.clock.wall() + milliseconds{60'000});
    host.pass(milliseconds{1'001});
    CHECK(host.engine->stats().overdue == 1'000);
    host.deleted.insert(orders.topic);
    host.engine->topic_deleted(orders.topic);
    CHECK(host.engine->stats().near == 2'000);
    std::size_t turns = 0;
    while (host.engine->stats().near != 0 && ++turns < 1'000) {
      const auto before = host.engine->stats().near;
      host.turn(1);
      CHECK(before - host.engine->stats().near <= 100);
    }
    CHECK(host.engine->stats().near == 0);
    host.refuses = nullptr;
    host.pass(milliseconds{60'000});
    CHECK(host.engine->stats().dropped_total == 2'000);
    CHECK(host.values(orders).empty());
    CHECK(host.wheel->empty());
  }
}

}  // namespace
}  // namespace tarry::delay
