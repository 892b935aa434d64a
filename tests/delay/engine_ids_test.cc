#include "delay/engine.h"

#include <chrono>
#include <string>
#include <vector>

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

TEST_SUITE("ids") {
  TEST_CASE("the same id again in the partition replaces the pending record") {
    TestHost host;
    host.schedule(orders, "first", "5s", "a");
    host.schedule(others, "elsewhere", "5s", "a");
    host.settle();
    host.schedule(orders, "second", "7s", "a");
    host.pass(milliseconds{10'000});
    CHECK(host.values(orders) == Strings{"second"});
    CHECK(host.values(others) == Strings{"elsewhere"});
    CHECK(host.engine->stats().replaced_total == 1);
  }

  TEST_CASE("a cancel right behind the record finds it, before anything is durable") {
    TestHost host;
    host.schedule(orders, "a", "5s", "id");
    host.cancel_by_record(orders, "id");
    host.schedule(orders, "b", "5s", "id");
    host.schedule(orders, "c", "6s", "id");
    host.pass(milliseconds{10'000});
    CHECK(host.values(orders) == Strings{"c"});
    CHECK(host.engine->stats().cancelled_total == 1);
    CHECK(host.engine->stats().replaced_total == 1);
  }

  TEST_CASE("within one batch the order of records counts") {
    TestHost host;
    const auto schedule = [](std::string value) {
      return TestRecord{std::move(value), {{"x-delay", "5s"}, {"x-schedule-id", "a"}}};
    };
    const TestRecord cancel{"", {{"x-schedule-id", "a"}, {"x-schedule-action", "cancel"}}};
    host.schedule(orders, "zero", "5s", "a");
    REQUIRE(host.produce(orders,
                         {schedule("one"), cancel, cancel, schedule("two"), schedule("three")}));
    host.pass(milliseconds{10'000});
    CHECK(host.values(orders) == Strings{"three"});
    CHECK(host.engine->stats().cancelled_total == 1);
    CHECK(host.engine->stats().cancel_unknown_total == 1);
    CHECK(host.engine->stats().replaced_total == 2);
  }

  TEST_CASE("a record that is due already replaces the pending record with its id") {
    TestHost host;
    host.schedule(orders, "later", "5s", "a");
    host.settle();
    REQUIRE(host.produce(orders, {{"now", {{"x-delay", "0"}, {"x-schedule-id", "a"}}}}));
    host.pass(milliseconds{10'000});
    CHECK(host.values(orders) == Strings{"now"});
  }

  TEST_CASE("an id that was due on arrival is remembered as delivered, also after a crash") {
    TestHost host;
    REQUIRE(
        host.produce(orders, {{"now", {{"x-delay", "0"}, {"x-schedule-id", "a"}}},
                              {"long ago", {{"x-deliver-at", "1000"}, {"x-schedule-id", "b"}}}}));
    const auto at_once = host.cancel(orders, "a");
    CHECK(!at_once->has_value());  // A crash may still take the record away.
    host.settle();
    CHECK(*at_once == ControlOutcome::already_delivered);
    for (const bool crashed : {false, true}) {
      CAPTURE(crashed);
      if (crashed) host.crash();
      CHECK(*host.cancel(orders, "a") == ControlOutcome::already_delivered);
      CHECK(*host.cancel(orders, "b") == ControlOutcome::already_delivered);
      CHECK(*host.cancel(others, "a") == ControlOutcome::unknown);
    }
    host.pass(std::chrono::hours{2});
    CHECK(*host.cancel(orders, "a") == ControlOutcome::unknown);
    CHECK(host.values(orders) == Strings{"now", "long ago"});
    CHECK(host.total() == 0);
  }

  TEST_CASE("a cancel finds the last of several records with one id, due or delayed") {
    const TestRecord due{"due", {{"x-delay", "0"}, {"x-schedule-id", "a"}}};
    const TestRecord later{"later", {{"x-delay", "5s"}, {"x-schedule-id", "a"}}};
    for (const bool together : {false, true}) {
      for (const bool due_last : {false, true}) {
        CAPTURE(together);
        CAPTURE(due_last);
        TestHost host;
        const std::vector<TestRecord> order{due_last ? later : due, due_last ? due : later};
        if (together) {
          REQUIRE(host.produce(orders, order));
        } else {
          for (const auto& record : order) REQUIRE(host.produce(orders, {record}));
        }
        const auto answer = host.cancel(orders, "a");
        host.settle();
        CHECK(*answer == (due_last ? ControlOutcome::already_delivered : ControlOutcome::done));
        host.pass(milliseconds{10'000});
        CHECK(host.values(orders) == Strings{"due"});
        CHECK(host.engine->stats().replaced_total == (due_last ? 1 : 0));
      }
    }
  }

  TEST_CASE("a cancel by a client that comes too late changes nothing and is counted") {
    TestHost host;
    host.schedule(orders, "a", "1s", "id");
    host.settle();
    host.clock.pass(milliseconds{1'000});
    host.turn();  // In flight.
    CHECK(host.engine->stats().in_flight == 1);
    host.cancel_by_record(orders, "id");
    host.settle();
    CHECK(host.values(orders) == Strings{"a"});
    CHECK(host.engine->stats().cancel_late_total == 1);
    CHECK(host.engine->stats().cancelled_total == 0);
  }

  TEST_CASE("cancel answers for ids and handles when it is durable") {
    TestHost host;
    host.schedule(orders, "a", "5s", "id");
    host.schedule(orders, "b", "5s");
    host.settle();
    const std::string handle = storage::encode_handle(host.pending().rbegin()->second.key);
    const auto by_id = host.cancel(orders, "id");
    const auto by_handle = host.cancel(orders, handle);
    const auto again = host.cancel(orders, "id");
    CHECK(!by_id->has_value());
    CHECK(!by_handle->has_value());
    CHECK(!again->has_value());
    host.settle();
    CHECK(*by_id == ControlOutcome::done);
    CHECK(*by_handle == ControlOutcome::done);
    CHECK(*again == ControlOutcome::unknown);
    CHECK(*host.cancel(orders, "nobody") == ControlOutcome::unknown);
    CHECK(*host.cancel(orders, "@nonsense!") == ControlOutcome::unknown);
    CHECK(*host.cancel(others, handle) == ControlOutcome::unknown);
    host.pass(milliseconds{10'000});
    CHECK(host.values(orders).empty());
    CHECK(host.engine->stats().cancelled_total == 2);
  }

  TEST_CASE("a cancel finds a record that is not durable yet, by id and by handle") {
    TestHost host;
    host.schedule(orders, "a", "5s", "id");
    host.schedule(orders, "b", "5s");
    const auto by_id = host.cancel(orders, "id");
    host.sync(2);
    const std::string handle = storage::encode_handle(host.pending().rbegin()->second.key);
    const auto by_handle = host.cancel(orders, handle);
    host.settle();
    CHECK(*by_id == ControlOutcome::done);
    CHECK(*by_handle == ControlOutcome::done);
    host.pass(milliseconds{10'000});
    CHECK(host.values(orders).empty());
  }

  TEST_CASE("cancel waits for the outcome of a delivery in flight") {
    TestHost host;
    host.schedule(orders, "a", "1s", "id");
    host.settle();
    host.clock.pass(milliseconds{1'000});
    host.turn();
    const auto answer = host.cancel(orders, "id");
    CHECK(!answer->has_value());
    host.settle();
    CHECK(*answer == ControlOutcome::already_delivered);
    CHECK(*host.cancel(orders, "id") == ControlOutcome::already_delivered);
    host.pass(std::chrono::hours{2});
    CHECK(*host.cancel(orders, "id") == ControlOutcome::unknown);
  }

  TEST_CASE("a cancel that could not be written leaves the record pending") {
    TestHost host;
    host.schedule(orders, "a", "1s", "id");
    host.settle();
    host.refuses_commits = true;
    bool refused = false;
    host.engine->cancel(orders, "id", [&](Result<Controlled> told) { refused = !told; });
    host.look();
    CHECK(refused);
    host.pass(milliseconds{1'000});
    CHECK(host.values(orders) == Strings{"a"});
  }
}

}  // namespace
}  // namespace tarry::delay
