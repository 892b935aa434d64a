#include "delay/engine.h"

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

TEST_SUITE("memory") {
  TEST_CASE("records that are due beyond the window stay on disk and are delivered in time") {
    TestHost host;
    for (int i = 0; i < 50; ++i)
      host.schedule(orders, std::to_string(i), std::to_string(20 + i) + "m");
    host.settle();
    CHECK(host.engine->stats().near == 0);
    host.pass(std::chrono::seconds{19 * 60 + 30});
    const auto near = host.engine->stats().near;
    CHECK(near > 0);
    CHECK(near < 5);
    host.pass(std::chrono::minutes{60});
    CHECK(host.log(orders).size() == 50);
    CHECK(host.engine->stats().lag_us.total.max() <= 1'000);
  }

  TEST_CASE(
      "near records stay within their budget, however many are added, and none is late because of "
      "it") {
    Engine::Options options;
    options.memory_bytes = 2'000'000;
    options.step_loads = 32;
    options.batch_records = 16;
    TestHost host(options);
    host.checks_order = false;  // Looking at all that is pending, for each batch, takes minutes.
    // From the far to the near, which is the worst order.
    const std::string value(400, 'v');
    for (int i = 8'000; i > 0; --i) {
      host.schedule(orders, value, std::to_string(1'000 + i * 10));
      if (i % 50 == 0) host.settle();
      CHECK(host.engine->stats().tier.memory_bytes <= 1'800'000);
    }
    host.pass(milliseconds{1'000 + 80'000});
    CHECK(host.log(orders).size() == 8'000);
    CHECK(host.engine->stats().lag_us.total.max() <= 1'000);
  }

  TEST_CASE("a partition that is stuck holds up no other while there is memory") {
    Engine::Options options;
    options.step_loads = 32;
    options.batch_records = 16;
    TestHost host(options);
    host.refuses = [](const TopicPartition& partition) { return partition == orders; };
    for (int i = 0; i < 2'000; ++i) {
      host.schedule(orders, std::to_string(i), "1s");
      if (i % 10 == 0) host.schedule(others, std::to_string(i), "3s");
      if (i % 100 == 0) host.settle();
    }
    host.pass(milliseconds{4'000});
    CHECK(host.log(others).size() == 200);
    host.refuses = nullptr;
    host.pass(milliseconds{2'000});
    CHECK(host.log(orders).size() == 2'000);
  }

  TEST_CASE("a partition that is stuck holds up no other when it has spent the memory") {
    Engine::Options options;
    options.memory_bytes = 2'000'000;
    options.step_loads = 64;
    options.batch_records = 64;
    TestHost host(options);
    host.refuses = [](const TopicPartition& partition) { return partition == orders; };
    const std::string value(300, 'v');
    const std::string at = std::to_string(to_ms(host.clock.wall()) + 20'000);
    const TestRecord record{value, {{"x-deliver-at", at}}};
    for (int i = 0; i < 100; ++i) {
      host.schedule(others, std::to_string(i), std::to_string(19'950 + i * 20));
      REQUIRE(host.produce(orders, std::vector<TestRecord>(60, record)));
      host.settle();
    }
    for (int i = 0; i < 20; ++i) host.schedule(others, "id", "21s", "id" + std::to_string(i));
    host.pass(milliseconds{18'000});
    for (int ms = 0; ms < 6'000; ms += 10) {
      host.pass(milliseconds{10});
      if (ms == 2'500) {
        // Near and far at once.
        for (int i = 0; i < 10; ++i) host.cancel_by_record(others, "id" + std::to_string(i));
        (void)host.move(others, "id10", host.clock.wall() + milliseconds{1'000});
        for (int i = 0; i < 50; ++i)
          host.schedule(others, std::to_string(i), std::to_string(500 + i * 20));
      }
    }
    CHECK(host.engine->stats().tier.rescued > 0);
    CHECK(host.log(others).size() == 100 + 50 + 10);
    CHECK(host.engine->stats().lag_us.total.max() <= 20'000);
    CHECK(host.log(orders).empty());
    CHECK(host.pending().size() == 6'000);
    host.refuses = nullptr;
    host.checks_order = false;  // Looking at all that is pending, for each batch, takes minutes.
    host.pass(milliseconds{10'000});
    CHECK(host.log(orders).size() == 6'000);
    host.settle();
    CHECK(host.total() == 0);
    CHECK(host.engine->stats().tier.rescue_bytes == 0);
    CHECK(host.engine->stats().near == 0);
  }

  TEST_CASE("a damaged record that is rescued counts once, although it comes near twice") {
    Engine::Options options;
    options.memory_bytes = 2'000'000;
    options.step_loads = 64;
    options.batch_records = 64;
    TestHost host(options);
    host.refuses = [](const TopicPartition& partition) { return partition == orders; };
    const std::string value(300, 'v');
    const std::string at = std::to_string(to_ms(host.clock.wall()) + 20'000);
    const TestRecord record{value, {{"x-deliver-at", at}}};
    for (int i = 0; i < 100; ++i) {
      REQUIRE(host.produce(orders, std::vector<TestRecord>(60, record)));
      host.settle();
    }
    host.schedule(others, "whole", "20500");
    host.schedule(others, "damaged", "20600", "damaged");
    host.settle();
    host.controls.damages = [](const storage::PendingAdded& added) {
      return added.id == "damaged";
    };
    host.crash();
    host.pass(milliseconds{22'000});
    CHECK(host.engine->stats().tier.rescued > 0);
    CHECK(host.values(others) == Strings{"whole"});
    CHECK(host.log(orders).empty());
    CHECK(host.engine->stats().damaged_total <= 1);
    host.refuses = nullptr;
    host.checks_order = false;  // Looking at all that is pending, for each batch, takes minutes.
    host.pass(milliseconds{10'000});
    CHECK(host.log(orders).size() == 6'000);
    CHECK(host.engine->stats().damaged_total == 1);
    CHECK(host.pending().size() == 1);
  }

  TEST_CASE(
      "a hundred thousand records due in one millisecond are delivered in bounded steps, and "
      "others between them") {
    TestHost host;
    host.checks_order = false;  // Looking at all that is pending, for each batch, takes minutes.
    host.checks_store = false;  // Durable changes are applied in steps, and wait for them.
    const std::string due = std::to_string(to_ms(host.clock.wall()) + 60'000);
    const TestRecord record{"a", {{"x-deliver-at", due}}};
    for (int i = 0; i < 100; ++i) {
      REQUIRE(host.produce(orders, std::vector<TestRecord>(1'000, record)));
    }
    host.schedule(others, "b", "60s");
    host.settle();
    host.clock.pass(milliseconds{60'000});
    std::size_t turns = 0, before_other = 0;
    while (host.log(orders).size() < 100'000 && turns < 100'000) {
      const auto delivered = host.engine->stats().delivered_total;
      const auto in_flight = host.engine->stats().in_flight;
      host.wheel->advance(host.wheel->now() + 1, 4'096);
      CHECK(host.engine->stats().in_flight - in_flight <= 2'048);
      host.sync(host.appended_and_waiting());
      if (host.log(others).empty()) before_other = host.log(orders).size();
      ++turns;
      CHECK(host.engine->stats().delivered_total - delivered <= 4 * 2'048);
    }
    CHECK(host.log(orders).size() == 100'000);
    CHECK(before_other <= 4 * 2'048);
    host.settle();
    CHECK(host.total() == 0);
  }
}

}  // namespace
}  // namespace tarry::delay
