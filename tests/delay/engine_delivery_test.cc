#include "delay/engine.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

TEST_SUITE("delivery") {
  TEST_CASE(
      "the headers that schedule a record are removed, its id stays, and two headers are added") {
    TestHost host;
    const WallTime due = host.clock.wall() + milliseconds{1'000};
    REQUIRE(host.produce(orders, {{"v",
                                   {{"a", "1"},
                                    {"x-delay", "1s"},
                                    {"x-schedule-id", "mine"},
                                    {"x-scheduled-for", "forged"},
                                    {"x-expire-at", std::to_string(to_ms(due) + 500)},
                                    {"x-schedule-handle", "forged"},
                                    {"null", std::nullopt}},
                                   "key"}}));
    host.settle();
    const auto key = host.pending().begin()->second.key;
    host.pass(milliseconds{1'000});
    REQUIRE(host.log(orders).size() == 1);
    const ReadRecord& record = host.log(orders)[0];
    CHECK(record.key == "key");
    CHECK(record.value == "v");
    CHECK(record.timestamp == due);
    CHECK(record.headers ==
          std::vector<TestHeader>{{"a", "1"},
                                  {"x-schedule-id", "mine"},
                                  {"null", std::nullopt},
                                  {"x-scheduled-for", std::to_string(to_ms(due))},
                                  {"x-schedule-handle", storage::encode_handle(key)}});
  }

  TEST_CASE("each record of a batch has its own due time and handle, whatever the one before has") {
    TestHost host;
    for (const char* const delay : {"1s", "1s", "2s", "1s", "2s", "3s"})
      host.schedule(orders, delay, delay);
    host.settle();
    // One that was moved has the due time of some and the handle's time of others.
    const std::string moved = host.pending().begin()->second.handle();
    const WallTime second = host.pending().begin()->second.key.due + milliseconds{1'000};
    const auto answer = host.move(orders, moved, second);
    host.settle();
    REQUIRE(answer->has_value());
    std::map<std::string, std::string> due_by_handle;
    for (const auto& [sequence, pending] : host.pending())
      due_by_handle[pending.handle()] = std::to_string(to_ms(pending.key.due));
    REQUIRE(due_by_handle.size() == 6);
    REQUIRE(due_by_handle.contains(moved));
    host.clock.pass(milliseconds{3'000});
    host.settle();
    REQUIRE(host.log(orders).size() == 6);
    for (const auto& record : host.log(orders)) {
      const auto handle = record.header("x-schedule-handle");
      REQUIRE(due_by_handle.contains(handle.value()));
      CHECK(record.header("x-scheduled-for") == due_by_handle[*handle]);
      due_by_handle.erase(*handle);
    }
  }

  TEST_CASE("tarry.delay.timestamp says which time a delivered record has") {
    for (const auto which :
         {DeliveredTimestamp::due, DeliveredTimestamp::original, DeliveredTimestamp::delivery}) {
      TestHost host;
      host.topics[orders.topic].timestamp = which;
      const WallTime sent = host.clock.wall();
      host.schedule(orders, "a", "1s");
      host.settle();
      host.clock.pass(milliseconds{1'500});
      host.settle();
      REQUIRE(host.log(orders).size() == 1);
      const WallTime expected = which == DeliveredTimestamp::due ? sent + milliseconds{1'000}
                                : which == DeliveredTimestamp::original
                                    ? sent
                                    : sent + milliseconds{1'500};
      CHECK(host.log(orders)[0].timestamp == expected);
    }
  }

  TEST_CASE("a topic with LogAppendTime has the time of delivery") {
    TestHost host;
    host.topics[orders.topic].log_append_time = true;
    host.schedule(orders, "a", "1s");
    host.settle();
    host.clock.pass(milliseconds{1'500});
    host.settle();
    CHECK(host.log(orders).at(0).timestamp == host.clock.wall());
  }

  TEST_CASE("no record is added to the store before its journal record is durable") {
    TestHost host;
    host.schedule(orders, "a", "10ms");
    host.clock.pass(milliseconds{1'000});
    host.turn();
    CHECK(host.deliveries == 0);
    CHECK(host.total() == 0);
    host.settle();
    CHECK(host.values(orders) == Strings{"a"});
  }

  TEST_CASE("equal due times leave in the order of their arrival, others by due time") {
    TestHost host;
    const std::string due = std::to_string(to_ms(host.clock.wall()) + 500);
    std::vector<std::string> expected;
    for (int i = 0; i < 300; ++i) {
      REQUIRE(host.produce(orders, {{std::to_string(i), {{"x-deliver-at", due}}}}));
      expected.push_back(std::to_string(i));
    }
    host.schedule(orders, "first", "100ms");
    expected.insert(expected.begin(), "first");
    host.pass(milliseconds{500});
    CHECK(host.values(orders) == expected);
  }

  TEST_CASE("batches stay within max.message.bytes, and a larger record gets its own batch") {
    TestHost host;
    host.topics[orders.topic].max_message_bytes = 4'096;
    for (int i = 0; i < 40; ++i) host.schedule(orders, std::string(300, 'a'), "1s");
    host.schedule(orders, std::string(20'000, 'b'), "1s");
    for (int i = 0; i < 5; ++i) host.schedule(orders, std::string(300, 'c'), "1s");
    host.pass(milliseconds{1'000});
    CHECK(host.log(orders).size() == 46);
    std::size_t largest = 0;
    for (const std::size_t size : host.batch_sizes()) largest = std::max(largest, size);
    CHECK(largest <= 4'096 / 300);
    CHECK(largest >= 8);
  }

  TEST_CASE("a refused delivery is tried again after a back-off, and nobody else waits") {
    TestHost host;
    host.refuses = [](const TopicPartition& partition) { return partition == orders; };
    for (int i = 0; i < 5; ++i) {
      host.schedule(orders, "o" + std::to_string(i), "1s");
      host.schedule(others, "x" + std::to_string(i), "1s");
    }
    host.pass(milliseconds{5'000});
    CHECK(host.log(others).size() == 5);
    CHECK(host.log(orders).empty());
    const auto refused = host.engine->stats().refused_total;
    CHECK(refused >= 5);
    CHECK(refused <= 15);  // 10, 20, 40 ... 1 000 ms.
    host.refuses = nullptr;
    host.pass(milliseconds{1'000});
    CHECK(host.values(orders) == Strings{"o0", "o1", "o2", "o3", "o4"});
  }

  TEST_CASE("a record that cannot be delivered before its x-expire-at is removed and counted") {
    TestHost host;
    const std::string expiry = std::to_string(to_ms(host.clock.wall()) + 2'000);
    REQUIRE(host.produce(orders, {{"mortal", {{"x-delay", "1s"}, {"x-expire-at", expiry}}},
                                  {"eternal", {{"x-delay", "1s"}}}}));
    host.refuses = [](const TopicPartition&) { return true; };
    host.pass(milliseconds{3'000});
    CHECK(host.engine->stats().expired_total == 1);  // The partition need not take anything for it.
    host.refuses = nullptr;
    host.pass(milliseconds{1'000});
    CHECK(host.values(orders) == Strings{"eternal"});
    CHECK(host.engine->stats().expired_total == 1);
    CHECK(host.total() == 0);
  }

  TEST_CASE("records that expired while the broker was down are not delivered") {
    TestHost host;
    const std::string expiry = std::to_string(to_ms(host.clock.wall()) + 2'000);
    REQUIRE(host.produce(orders, {{"mortal", {{"x-delay", "1s"}, {"x-expire-at", expiry}}}}));
    host.settle();
    host.crash(0, milliseconds{10'000});
    host.settle();
    CHECK(host.values(orders).empty());
    CHECK(host.engine->stats().expired_total == 1);
  }

  TEST_CASE("pending records of a deleted topic are removed and counted") {
    TestHost host;
    host.schedule(orders, "a", "1s");
    host.schedule(orders, "b", "2s");
    host.settle();
    host.deleted.insert(orders.topic);
    host.pass(milliseconds{3'000});
    CHECK(host.values(orders).empty());
    CHECK(host.engine->stats().dropped_total == 2);
    CHECK(host.total() == 0);
  }

  TEST_CASE("deleting a topic removes its entries at once") {
    TestHost host;
    for (int i = 0; i < 100; ++i) host.schedule(orders, "a", std::to_string(1 + i) + "s");
    host.schedule(others, "b", "2s");
    host.settle();
    CHECK(host.engine->stats().near == 101);
    host.deleted.insert(orders.topic);
    host.engine->topic_deleted(orders.topic);
    host.turn();
    CHECK(host.engine->stats().near == 1);
    host.pass(milliseconds{2'000});
    CHECK(host.values(others) == Strings{"b"});
    CHECK(host.values(orders).empty());
  }
}

}  // namespace
}  // namespace tarry::delay
