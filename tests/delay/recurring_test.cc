// Recurring records in the engine: each run once, the next one in the same journal record.

#include <doctest/doctest.h>

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

using Strings = std::vector<std::string>;
using std::chrono::hours;
using std::chrono::minutes;

void produce_every(TestHost& host, const std::string& value, const std::string& period,
                   std::vector<TestHeader> more = {}) {
  more.push_back({"x-every", period});
  REQUIRE(host.produce(orders, {{value, std::move(more)}}).has_value());
  host.settle();
}

std::vector<std::int64_t> minutes_of(TestHost& host, WallTime start) {
  std::vector<std::int64_t> out;
  for (const auto& record : host.log(orders)) {
    const auto due = std::stoll(*record.header("x-scheduled-for"));
    out.push_back((due - to_ms(start)) / 60'000);
  }
  return out;
}

using Minutes = std::vector<std::int64_t>;

TEST_SUITE("recurring") {
  TEST_CASE("a record is delivered at each of its times, with one handle, until its count is met") {
    TestHost host;
    const WallTime start = host.clock.wall();
    produce_every(host, "a", "10m", {{"x-count", "3"}});
    const std::string handle = host.pending().begin()->second.handle();
    host.pass(hours{2});
    CHECK(minutes_of(host, start) == Minutes{10, 20, 30});
    for (const auto& record : host.log(orders)) {
      CHECK(record.value == "a");
      CHECK(record.header("x-schedule-handle") == handle);
      CHECK(!record.header("x-every"));
      CHECK(!record.header("x-count"));
    }
    CHECK(host.total() == 0);
    CHECK(host.engine->stats().recurred_total == 2);
  }

  TEST_CASE("a crash at any moment loses no run and delivers none twice") {
    for (std::size_t kept = 0; kept < 2; ++kept) {
      CAPTURE(kept);
      TestHost host;
      const WallTime start = host.clock.wall();
      produce_every(host, "a", "10m", {{"x-schedule-id", "id"}});
      for (int run = 1; run <= 5; ++run) {
        host.clock.pass(minutes{10});
        host.turn();  // In the journal, not durable.
        host.crash(kept);
        host.settle();
      }
      CHECK(minutes_of(host, start) == Minutes{10, 20, 30, 40, 50});
      CHECK(host.total() == 1);
    }
  }

  TEST_CASE(
      "runs missed while the broker was down: the latest is delivered, all of them, or none") {
    struct Expected {
      MissedRuns runs;
      Minutes delivered;
    };
    for (const auto& [runs, delivered] :
         {Expected{MissedRuns::once, {10, 50, 60}}, Expected{MissedRuns::skip, {10, 60}},
          Expected{MissedRuns::all, {10, 20, 30, 40, 50, 60}}}) {
      CAPTURE(static_cast<int>(runs));
      TestHost host;
      const WallTime start = host.clock.wall();
      host.topics[orders.topic].missed.runs = runs;
      produce_every(host, "a", "10m");
      host.pass(minutes{10});
      host.crash(0, minutes{45});
      host.pass(minutes{6});
      CHECK(minutes_of(host, start) == delivered);
      CHECK(host.total() == 1);
    }
  }

  TEST_CASE("a turn looks at a bounded number of missed runs, however many records have some") {
    TestHost host;
    constexpr std::uint32_t kept = 200;
    host.topics[orders.topic].missed.runs = MissedRuns::all;
    host.topics[orders.topic].missed.max = kept;
    const std::vector<TestRecord> records(40, TestRecord{"v", {{"x-cron", "* * * * *"}}});
    REQUIRE(host.produce(orders, records).has_value());
    host.settle();
    host.crash(0, hours{24});
    const std::size_t before = host.batch_sizes().size();
    for (int turns = 0; host.batch_sizes().size() == before; ++turns) {
      REQUIRE(turns < 50);
      host.background.run_all();
      host.turn(1);
    }
    // A record counts as more than one, by the runs that were looked at for it.
    CHECK(host.batch_sizes().size() == before + 1);
    CHECK(host.batch_sizes().back() > 1);
    CHECK(host.batch_sizes().back() <= 12);
  }

  TEST_CASE("a cancel and a replacement hold for all runs that are to come, whenever they come") {
    for (const bool in_flight : {false, true}) {
      for (const bool refused : {false, true}) {
        for (const bool replace : {false, true}) {
          CAPTURE(in_flight);
          CAPTURE(refused);
          CAPTURE(replace);
          TestHost host;
          const WallTime start = host.clock.wall();
          produce_every(host, "a", "10m", {{"x-schedule-id", "id"}});
          host.pass(minutes{10});
          if (in_flight) {
            host.clock.pass(minutes{10});
            host.refuses = [&](const TopicPartition&) { return refused; };
            host.turn();
          }
          if (replace) {
            host.schedule(orders, "b", "35m", "id");
          } else {
            host.cancel_by_record(orders, "id");
          }
          host.settle();
          host.refuses = nullptr;
          host.pass(hours{2});
          const bool second = in_flight && !refused;
          Minutes expected = second ? Minutes{10, 20} : Minutes{10};
          if (replace) expected.push_back(in_flight ? 55 : 45);
          CHECK(minutes_of(host, start) == expected);
          CHECK(host.total() == 0);
        }
      }
    }
  }

  TEST_CASE("an owner's cancel while a run is being delivered ends the runs behind it") {
    TestHost host;
    const WallTime start = host.clock.wall();
    produce_every(host, "a", "10m", {{"x-schedule-id", "id"}});
    host.clock.pass(minutes{10});
    host.turn();
    const auto answer = host.cancel(orders, "id");
    host.settle();
    CHECK(*answer == ControlOutcome::done);
    host.pass(hours{1});
    CHECK(minutes_of(host, start) == Minutes{10});
  }

  TEST_CASE("a run that is moved or delivered now is followed by the next one at its own time") {
    TestHost host;
    const WallTime start = host.clock.wall();
    produce_every(host, "a", "10m", {{"x-schedule-id", "id"}});
    host.move(orders, "id", start + minutes{13});
    host.pass(minutes{20});
    CHECK(minutes_of(host, start) == Minutes{13, 20});
    const auto answer = host.deliver_now(orders, "id");
    host.settle();
    REQUIRE(answer->has_value());
    CHECK((**answer)->offset == 2);
    host.pass(minutes{20});
    CHECK(minutes_of(host, start) == Minutes{13, 20, 20, 40});
  }

  TEST_CASE("a missed run that is being packed when the clock is set back before it waits for it") {
    Engine::Options options;
    options.compressed_inline = 0;  // On the Background, so that it takes a while.
    TestHost host(options);
    const WallTime start = host.clock.wall();
    REQUIRE(host.produce(orders, {{"a", {{"x-every", "10m"}}}}, {.codec = records::Codec::lz4})
                .has_value());
    host.settle();
    host.crash(0, minutes{35});
    for (int i = 0; i < 100 && host.engine->stats().in_flight == 0; ++i) {
      if (i > 0) host.background.step();
      host.turn();
    }
    REQUIRE(host.engine->stats().in_flight == 1);
    host.clock.wall_now -= minutes{10};
    host.pass(std::chrono::seconds{2});
    CHECK(minutes_of(host, start) == Minutes{20});
    host.pass(minutes{5});
    CHECK(minutes_of(host, start) == Minutes{20, 30});
  }

  TEST_CASE("a topic that is deleted takes its recurring records along, also in flight") {
    TestHost host;
    produce_every(host, "a", "10m");
    host.clock.pass(minutes{10});
    host.turn();
    host.deleted.insert(orders.topic);
    host.checks_store = false;
    host.drop(orders.topic);
    host.engine->topic_deleted(orders.topic);
    host.settle();
    host.pass(hours{1});
    CHECK(host.log(orders).size() == 1);
    CHECK(host.engine->stats().near == 0);
  }
}

}  // namespace
}  // namespace tarry::delay
