// A member after a stall of its own, and when its clock jumps: what was cancelled meanwhile does
// not leave.

#include <doctest/doctest.h>

#include <chrono>
#include <utility>
#include <vector>

#include "tests/relay/one_member.h"

namespace tarry::relay {

TEST_CASE(
    "a cancellation behind a producer's open transaction counts after a stall, and the status "
    "names "
    "the transaction that hides it") {
  OneMember one;
  const Source source{"o.delayed", 0};
  const KafkaModel::Log log{"o.delayed", 0};
  one.steps(20);
  one.send(source, "a", {{"x-delay", "3000"}, {"x-schedule-id", "i"}});
  one.send(source, "b", {{"x-delay", "3000"}});
  one.steps(5);
  const int open = one.kafka.begin("of a producer");
  one.kafka.append(log, one.record("c", {}), open);
  one.send(source, "", {{"x-schedule-id", "i"}, {"x-schedule-action", "cancel"}});
  one.kafka.now += milliseconds(600);
  one.steps(400);
  CHECK(one.in("o") == "");
  CHECK(one.member.status().stalled.starts_with(
      "o.delayed-0: a producer's transaction is open at offset 2"));
  one.kafka.decide(open, KafkaModel::State::committed);
  one.steps(50);
  CHECK(one.in("o") == "c b");
  CHECK(one.member.status().stalled == "");
  CHECK(one.member.is_ready());
}

TEST_CASE("after a stall of its own a member delivers nothing before it has read the source") {
  OneMember one;
  one.steps(20);
  one.send({"o.delayed", 0}, "a", {{"x-delay", "3000"}, {"x-schedule-id", "i"}});
  one.steps(5);
  one.kafka.now += milliseconds(2'900);
  // More than one poll brings, and behind it a cancellation that was there in time.
  for (int i = 0; i < 100; ++i) one.send({"o.delayed", 0}, "x", {{"x-delay", "1h"}});
  one.send({"o.delayed", 0}, "", {{"x-schedule-id", "i"}, {"x-schedule-action", "cancel"}});
  one.kafka.now += milliseconds(2'000);
  one.steps(50);
  CHECK(one.in("o") == "");
  CHECK(one.member.is_ready());
}

TEST_CASE("a member that has a stall in each step delivers, and still nothing that was cancelled") {
  for (const auto delivery : {Delivery::exactly_once, Delivery::at_least_once}) {
    OneMember one({{"o.delayed", 0}}, Limits{}.pending_bytes, nullptr, nullptr, 1, delivery);
    one.steps(20);
    const Source source{"o.delayed", 0};
    one.send(source, "a", {{"x-delay", "10000"}});
    one.send(source, "b", {{"x-delay", "10000"}, {"x-schedule-id", "i"}});
    int told = 0;
    for (int i = 0; i < 80; ++i) {
      one.kafka.now += milliseconds(600);
      // Records come without a pause, more than one poll brings.
      for (int k = 0; k < 20 && i < 40; ++k) one.send(source, "x", {{"x-delay", "1h"}});
      if (i == 5) one.send(source, "", {{"x-schedule-id", "i"}, {"x-schedule-action", "cancel"}});
      if (i == 30) {
        one.send(source, "c", {{"x-delay", "1h"}, {"x-schedule-id", "k"}});
        std::vector<OrderRequest> orders;
        orders.push_back(
            {source, {Order::Kind::deliver, "k"}, MonoTime::max(), [&](const OrderResult& answer) {
               told += answer && answer->outcome == delay::ControlOutcome::done;
             }});
        one.member.give(std::move(orders));
      }
      one.step();
    }
    CHECK(one.in("o") == "a c");
    CHECK(told == 1);
    CHECK_FALSE(one.member.is_ready());
    one.steps(100);
    CHECK(one.member.is_ready());
  }
}

TEST_CASE("a stall between a fetch and the plan of its records counts as any other") {
  OneMember one;
  one.steps(20);
  one.send({"o.delayed", 0}, "a", {{"x-delay", "3000"}, {"x-schedule-id", "i"}});
  one.steps(5);
  one.cluster.behind_fetch = [&] {
    one.kafka.now += milliseconds(1'000);
    one.send({"o.delayed", 0}, "", {{"x-schedule-id", "i"}, {"x-schedule-action", "cancel"}});
    one.kafka.now += milliseconds(4'000);
  };
  one.steps(50);
  CHECK(one.in("o") == "");
  CHECK(one.member.is_ready());
}

TEST_CASE("a jump of the clock that is reverted within a second delivers nothing") {
  OneMember one;
  one.steps(20);
  one.send({"o.delayed", 0}, "a", {{"x-delay", "1h"}});
  one.steps(5);
  one.set_clock(std::chrono::hours(2));
  one.steps(20);
  CHECK(one.in("o") == "");
  one.set_clock(-std::chrono::hours(2));
  one.steps(100);
  CHECK(one.in("o") == "");
  CHECK(one.member.is_ready());
  CHECK(one.member.status().pending() == 1);
}

TEST_CASE(
    "a jump of the clock that lasts is followed, and the last of the runs in it is delivered") {
  OneMember one({{"o.delayed", 0}, {"r.delayed", 0}});
  one.steps(20);
  one.send({"o.delayed", 0}, "a", {{"x-delay", "1h"}});
  one.send({"r.delayed", 0}, "r", {{"x-every", "10m"}});
  one.steps(20);
  const std::size_t runs = one.in("r").size();
  one.set_clock(std::chrono::hours(2));
  one.steps(100);
  CHECK(one.in("o") == "a");
  const std::size_t added = one.in("r").size() - runs;
  CHECK(added == (runs == 0 ? 1U : 2U));  // A blank before it.
}

TEST_CASE(
    "a record that is not due any more is not delivered when the clock was set back after the "
    "fetch") {
  OneMember one;
  one.steps(20);
  one.send({"o.delayed", 0}, "a", {{"x-deliver-at", one.wall_after(milliseconds(150))}});
  one.steps(3);
  one.kafka.now += milliseconds(200);
  one.cluster.behind_fetch = [&] { one.set_clock(-std::chrono::hours(1)); };
  one.steps(50);
  CHECK(one.in("o") == "");
  one.set_clock(std::chrono::hours(1));
  one.steps(100);
  CHECK(one.in("o") == "a");
  CHECK(one.member.status().early == 0);
}

TEST_CASE("after the clock was set back, a cancellation after an outage counts as one before it") {
  OneMember one;
  const Source source{"o.delayed", 0};
  one.steps(20);
  one.set_clock(-std::chrono::hours(1));
  one.steps(20);
  CHECK(one.member.is_ready());
  one.send(source, "a",
           {{"x-deliver-at", one.wall_after(milliseconds(3'000))}, {"x-schedule-id", "i"}});
  one.steps(5);
  one.cluster.unfetched = {source};
  one.cluster.broker_went_away = true;
  one.send(source, "", {{"x-schedule-id", "i"}, {"x-schedule-action", "cancel"}});
  one.steps(200);
  CHECK(one.in("o") == "");
  one.cluster.unfetched.clear();
  one.steps(50);
  CHECK(one.in("o") == "");
  CHECK(one.member.status().pending() == 0);
}

TEST_CASE(
    "a cancellation that came while the machine was suspended counts, however long that was") {
  for (const milliseconds slept : {milliseconds(5'000), milliseconds(600'000)}) {
    OneMember one;
    const Source source{"o.delayed", 0};
    one.steps(20);
    one.send(source, "a",
             {{"x-deliver-at", one.wall_after(milliseconds(500))}, {"x-schedule-id", "i"}});
    one.steps(5);
    // Nothing has come of what was acknowledged meanwhile, and the monotonic clock has not moved.
    one.cluster.unfetched = {source};
    one.cluster.is_silent = true;
    one.send(source, "", {{"x-schedule-id", "i"}, {"x-schedule-action", "cancel"}});
    one.set_clock(slept);
    one.steps(150);
    CHECK(one.in("o") == "");
    one.cluster.unfetched.clear();
    one.steps(100);
    CHECK(one.in("o") == "");
    CHECK(one.member.status().pending() == 0);
    CHECK(one.member.is_ready());
  }
}

TEST_CASE(
    "a record due in a short stall after a fetch is delivered when the records that came meanwhile "
    "are read") {
  OneMember one;
  one.steps(20);
  one.send({"o.delayed", 0}, "a", {{"x-delay", "450"}, {"x-schedule-id", "i"}});
  one.steps(5);
  // Shorter than what counts as a stall.
  one.cluster.behind_fetch = [&] {
    one.kafka.now += milliseconds(100);
    one.send({"o.delayed", 0}, "", {{"x-schedule-id", "i"}, {"x-schedule-action", "cancel"}});
    one.kafka.now += milliseconds(350);
  };
  one.steps(50);
  CHECK(one.in("o") == "");
}

TEST_CASE("with at-least-once nothing is sent after a stall before the group has taken offsets") {
  OneMember one({{"o.delayed", 0}}, Limits{}.pending_bytes, nullptr, nullptr, 1,
                Delivery::at_least_once);
  one.steps(20);
  one.send({"o.delayed", 0}, "a", {{"x-delay", "3000"}});
  one.steps(5);
  one.kafka.now += milliseconds(12'000);
  one.cluster.refuses_all = true;  // As the group does when others own the partition.
  one.steps(50);
  CHECK(one.in("o") == "");
  one.cluster.refuses_all = false;
  one.steps(200);
  CHECK(one.in("o") == "a");
}

TEST_CASE("with at-least-once no order is told that nothing was done when its record was sent") {
  OneMember one({{"o.delayed", 0}}, Limits{}.pending_bytes, nullptr, nullptr, 1,
                Delivery::at_least_once);
  one.steps(20);
  one.send({"o.delayed", 0}, "a", {{"x-delay", "60000"}, {"x-schedule-id", "i"}});
  one.steps(5);
  one.cluster.refuses_all = true;
  CHECK(one.order({"o.delayed", 0}, {Order::Kind::deliver, "i"})
            .ends_with("it is not known whether it was done"));
  CHECK(one.in("o").starts_with("a"));
}

}  // namespace tarry::relay
