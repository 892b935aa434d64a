// Partitions that are out of service: what they have due waits for the next start, and nobody waits
// for them.

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

using namespace std::chrono_literals;

Engine::Options little_memory() {
  Engine::Options options;
  options.memory_bytes = 200'000;
  return options;
}

// Schedules `count` records of 500 bytes, ten in a batch; they go to the disk where memory is
// short.
void park_many(TestHost& host, const TopicPartition& partition, int count, const char* delay) {
  const std::string body(500, 'b');
  for (int n = 0; n < count; n += 10) {
    std::vector<TestRecord> records;
    for (int i = 0; i < 10; ++i)
      records.push_back({std::to_string(n + i) + body, {{"x-delay", delay}}});
    bool accepted = false;
    for (int tries = 0; tries < 1'000 && !accepted; ++tries) {
      accepted = host.produce(partition, records).has_value();
      host.settle();
    }
    REQUIRE(accepted);
  }
}

TEST_SUITE("out of service") {
  TEST_CASE(
      "due records of a partition that is out of service take no memory from the others, and are "
      "delivered once after the next start") {
    TestHost host(little_memory());
    host.out_of_service.insert(orders);
    park_many(host, orders, 2'000, "60000");  // Five times the memory.
    park_many(host, others, 200, "90000");
    host.pass(61s);
    CHECK(host.engine->stats().out_of_service > 0);
    host.pass(30s);
    CHECK(host.log(others).size() == 200);
    CHECK(host.log(orders).empty());
    CHECK(host.pending().size() == 2'000);
    const auto stats = host.engine->stats();
    CHECK(stats.out_of_service == 2'000);
    CHECK(stats.overdue == 2'000);
    CHECK(stats.near == 0);
    CHECK(stats.tier.memory_bytes < 50'000);
    REQUIRE(stats.next_due);
    CHECK(*stats.next_due == host.pending().begin()->second.key.due);

    SUBCASE("after a checkpoint") {
      host.checkpoint();
      host.settle();
    }
    SUBCASE("from the journal") {}
    host.crash();
    host.pass(20s);
    CHECK(host.log(orders).size() == 2'000);
    CHECK(host.pending().empty());
    CHECK(host.engine->stats().overdue == 0);
  }

  TEST_CASE("a partition that is out of service is offered one delivery") {
    TestHost host;
    host.out_of_service.insert(orders);
    for (int n = 0; n < 20; ++n)
      host.schedule(orders, std::to_string(n), std::to_string(100 + 100 * n));
    host.pass(5s);
    CHECK(host.deliveries == 1);
    CHECK(host.engine->stats().refused_total == 1);
    CHECK(host.engine->stats().out_of_service == 20);
    host.crash();
    host.pass(5s);
    CHECK(host.log(orders).size() == 20);
  }

  TEST_CASE(
      "questions about records of a partition that is out of service are not answered wrongly") {
    TestHost host;
    host.schedule(orders, "a", "100000", "id");
    host.schedule(orders, "b", "3600000", "later");
    host.schedule(others, "c", "3600000", "id");
    host.sync();
    const std::string handle = host.pending().begin()->second.handle();
    host.out_of_service.insert(orders);
    const auto waits = host.deliver_now(orders, "id");
    host.pass(2s);
    host.checkpoint();  // It leaves memory.
    host.settle();
    REQUIRE(waits->has_value());
    REQUIRE(!waits->value().has_value());
    CHECK(waits->value().error().code == Errc::fenced);
    CHECK(host.engine->stats().out_of_service == 1);
    for (const std::string& name : {std::string("id"), std::string("later"), handle}) {
      std::optional<Result<Controlled>> told;
      host.engine->cancel(orders, name, [&](auto answer) { told = std::move(answer); });
      host.settle();
      REQUIRE(told);
      REQUIRE(!told->has_value());
      CHECK(told->error().code == Errc::fenced);
    }
    std::optional<Result<Looked>> looked;
    host.engine->look_handle(handle, [&](auto answer) { looked = std::move(answer); });
    host.settle();
    REQUIRE(looked);
    REQUIRE(!looked->has_value());
    CHECK(looked->error().code == Errc::fenced);
    // The others' are as always.
    const auto cancelled = host.cancel(others, "id");
    host.settle();
    CHECK(*cancelled == ControlOutcome::done);
    CHECK(host.pending().size() == 2);
    host.crash();
    host.pass(1s);
    CHECK(host.values(orders) == std::vector<std::string>{"a"});
  }

  TEST_CASE("a topic with a partition that is out of service is deleted with its records") {
    TestHost host(little_memory());
    host.out_of_service.insert(orders);
    park_many(host, orders, 500, "60000");
    host.pass(62s);
    CHECK(host.engine->stats().out_of_service == 500);
    for (int step = 0; step < 3; ++step) host.delete_topic(orders.topic, step);
    host.pass(5s);
    CHECK(host.engine->stats().out_of_service == 0);
    CHECK(host.engine->stats().overdue == 0);
    host.crash();
    host.pass(5s);
    CHECK(host.log(orders).empty());
    CHECK(host.total() == 0);
  }
}

}  // namespace
}  // namespace tarry::delay
