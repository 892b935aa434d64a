#include "delay/engine.h"

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

TEST_SUITE("time") {
  TEST_CASE("with nothing pending no timer runs, and afterwards neither") {
    TestHost host;
    host.settle();
    CHECK(host.wheel->empty());
    host.schedule(orders, "a", "5s");
    host.settle();
    CHECK(!host.wheel->empty());
    host.pass(milliseconds{5'000});
    CHECK(host.values(orders) == Strings{"a"});
    CHECK(host.wheel->empty());
  }

  TEST_CASE("nor does one for what was far ahead and is cancelled") {
    TestHost host;
    host.schedule(orders, "a", "30d", "a");
    host.schedule(orders, "b", "40d", "b");
    host.pass(milliseconds{5'000});
    const auto answer = host.cancel(orders, "a");
    host.settle();
    CHECK(*answer == ControlOutcome::done);
    CHECK(!host.wheel->empty());
    host.cancel_by_record(orders, "b");
    host.settle();
    CHECK(host.wheel->empty());
  }

  TEST_CASE("while a load waits for memory a timer runs, and it goes on when there is room again") {
    Engine::Options options;
    options.memory_bytes = 200'000;
    options.lead = milliseconds{20'000};
    TestHost host(options);
    host.checks_order = false;
    for (int i = 0; i < 20; ++i) host.schedule(others, "far " + std::to_string(i), "1h");
    host.settle();
    host.checkpoint();
    host.settle();
    for (int i = 0; i < 140; ++i) host.schedule(orders, std::string(1'000, 'x'), "1s");
    host.settle();
    host.defers = true;  // They are on their way, and stay in memory.
    host.pass(milliseconds{2'000});
    REQUIRE(!host.deferred.empty());
    host.clock.pass(std::chrono::hours{1} - milliseconds{12'000});
    host.settle();
    CHECK(host.engine->stats().tier.loads == 0);
    REQUIRE(host.wheel->next_due().has_value());
    host.pass(milliseconds{1'500});
    CHECK(host.engine->stats().tier.loads == 0);
    host.defers = false;
    for (auto& deliver : std::exchange(host.deferred, {})) deliver();
    host.pass(milliseconds{15'000});
    CHECK(host.engine->stats().tier.loads > 0);
    CHECK(host.log(others).size() == 20);
    CHECK(host.log(orders).size() == 140);
  }

  TEST_CASE("nor does one for what was far ahead in a topic that is deleted") {
    TestHost host;
    host.schedule(orders, "a", "30d", "a");
    host.pass(milliseconds{5'000});
    CHECK(!host.wheel->empty());
    host.engine->topic_deleted(orders.topic);
    host.drop(orders.topic);
    host.settle();
    CHECK(host.wheel->empty());
  }

  // Each time is two steps of the shard's wheel: the alarm overflows to its second level.
  TEST_CASE("the first due time is reported, however far ahead the others are") {
    TestHost host;
    host.topics[orders.topic].max_delay = std::chrono::hours{24 * 2'000};
    host.schedule(orders, "a", "1000d");
    host.schedule(orders, "b", "1200d");
    host.schedule(orders, "c", "5m");
    host.settle();
    CHECK(host.engine->stats().next_due == host.clock.wall() + std::chrono::minutes{5});
  }

  TEST_CASE("a record that is due far ahead wakes the shard once a second, and not more often") {
    TestHost host;
    host.schedule(orders, "a", "30d");
    host.pass(milliseconds{1'000});
    std::size_t steps = 0;
    for (int i = 0; i < 100; ++i) {
      host.clock.pass(milliseconds{100});
      steps += host.turn();
    }
    CHECK(steps <= 2 * 11);
    CHECK(host.engine->stats().near == 0);
  }

  TEST_CASE(
      "a clock that is set ahead delivers within a second, by more than a minute a second later") {
    TestHost host;
    host.schedule(orders, "a", "50s");
    host.schedule(orders, "b", "2h");
    host.settle();
    host.clock.wall_now += milliseconds{50'000};
    host.pass(milliseconds{1'000});
    CHECK(host.values(orders) == Strings{"a"});
    host.clock.wall_now += std::chrono::hours{2};
    host.pass(milliseconds{900});
    CHECK(host.values(orders) == Strings{"a"});
    host.pass(milliseconds{1'200});
    CHECK(host.values(orders) == Strings{"a", "b"});
  }

  TEST_CASE("a clock that is set back delays pending records, and none is early") {
    TestHost host;
    host.schedule(orders, "a", "10s");
    host.pass(milliseconds{9'000});
    host.clock.wall_now -= std::chrono::hours{1};
    host.schedule(orders, "b", "5s");
    host.pass(milliseconds{5'000});
    CHECK(host.values(orders) == Strings{"b"});
    host.pass(std::chrono::hours{1});
    CHECK(host.values(orders) == Strings{"b", "a"});
  }

  TEST_CASE(
      "a delay that is asked for right after a jump ahead counts from the clock on the wall") {
    TestHost host;
    host.schedule(orders, "a", "1s");
    host.settle();
    host.clock.wall_now += std::chrono::hours{2};
    host.schedule(others, "b", "5s");
    host.pass(milliseconds{4'999});
    CHECK(host.values(others).empty());
    host.pass(milliseconds{1});
    CHECK(host.values(others) == Strings{"b"});
  }

  TEST_CASE("lag is measured from due to durable") {
    TestHost host;
    host.schedule(orders, "a", "1s");
    host.settle();
    host.clock.pass(milliseconds{1'000});
    host.turn();
    host.clock.pass(milliseconds{7});
    host.settle();
    const auto lag = host.engine->stats().lag_us.recent;
    CHECK(lag.count() == 1);
    CHECK(lag.max() == 7'000);
    CHECK(lag.p50() == 7'000);
    CHECK(host.engine->stats().early_total == 0);
  }
}

}  // namespace
}  // namespace tarry::delay
