// Orders for single pending records, as a member carries them out.

#include <doctest/doctest.h>

#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/relay/one_member.h"

namespace tarry::relay {

TEST_CASE("an order cancels, moves and delivers the pending record of an id or a handle") {
  OneMember one;
  const Source source{"o.delayed", 0};
  one.steps(10);
  one.send(source, "a", {{"x-delay", "1h"}, {"x-schedule-id", "ia"}});
  one.send(source, "b", {{"x-delay", "1h"}});
  one.send(source, "c", {{"x-delay", "1h"}, {"x-schedule-id", "ic"}});
  CHECK(one.order(source, {Order::Kind::cancel, "ia"}) == "done");
  CHECK(one.order(source, {Order::Kind::cancel, "ia"}) == "unknown");
  CHECK(one.order(source, {Order::Kind::deliver, handle_of(source, 1)}) == "done");
  CHECK(one.offset == 0);
  CHECK(one.order(source, {Order::Kind::deliver, handle_of(source, 1)}) == "unknown");
  CHECK(one.in("o") == "b");
  CHECK(one.order(source, {Order::Kind::move, "ic", milliseconds(-3'599'000)}) == "done");
  one.steps(100);
  CHECK(one.in("o") == "b c");
  CHECK(one.order(source, {Order::Kind::cancel, "ic"}) == "already delivered");
  one.kafka.now += std::chrono::hours(2);
  CHECK(one.order(source, {Order::Kind::cancel, "ic"}) == "unknown");
}

TEST_CASE("the ids of delivered records have a bound over all partitions of a member") {
  const std::vector<Source> sources{{"o.delayed", 0}, {"o.delayed", 1}};
  OneMember one(sources, [](MemberOptions& options) { options.delivered_ids = 4; });
  one.steps(10);
  for (const char* id : {"a", "b", "c"})
    for (const auto& source : sources)
      one.send(source, id, {{"x-delay", "1"}, {"x-schedule-id", id}});
  one.steps(20);
  for (const auto& source : sources) {
    CHECK(one.order(source, {Order::Kind::cancel, "a"}) == "unknown");
    CHECK(one.order(source, {Order::Kind::cancel, "b"}) == "already delivered");
  }
}

TEST_CASE("an order sees what was acknowledged before it") {
  OneMember one;
  const Source source{"o.delayed", 0};
  one.steps(10);
  // More than one poll takes.
  for (int i = 0; i < 100; ++i) one.send(source, std::to_string(i));
  one.send(source, "x", {{"x-delay", "1h"}, {"x-schedule-id", "ix"}});
  CHECK(one.order(source, {Order::Kind::cancel, "ix"}) == "done");
}

TEST_CASE("an order waits for a producer's open transaction, and says so when its time is over") {
  OneMember one;
  const Source source{"o.delayed", 0};
  one.steps(10);
  const int open = one.kafka.begin("of a producer");
  one.kafka.append({"o.delayed", 0}, one.record("x", {{"x-delay", "1h"}}), open);
  one.send(source, "y", {{"x-delay", "1h"}, {"x-schedule-id", "iy"}});
  CHECK(one.order(source, {Order::Kind::cancel, "iy"}).contains("a producer's transaction"));
  one.kafka.decide(open, KafkaModel::State::aborted);
  CHECK(one.order(source, {Order::Kind::cancel, "iy"}) == "done");
  CHECK(one.member.status().pending() == 0);
}

TEST_CASE("an order for a record that would expire first is refused and changes nothing") {
  OneMember one;
  const Source source{"o.delayed", 0};
  one.steps(10);
  const auto expires = to_ms(one.kafka.now) + 7'200'000;
  one.send(source, "x",
           {{"x-delay", "1h"}, {"x-schedule-id", "ix"}, {"x-expire-at", std::to_string(expires)}});
  CHECK(one.order(source, {Order::Kind::move, "ix", milliseconds(3'600'001)}).contains("expires"));
  CHECK(one.order(source, {Order::Kind::move, "ix", milliseconds(60'000)}) == "done");
}

TEST_CASE(
    "an order for a partition that is not owned names it, and a stopping member takes no order") {
  OneMember one;
  one.steps(10);
  CHECK(one.order({"o.delayed", 7}, {Order::Kind::cancel, "a"}).contains("not owned"));
  one.cluster.refuses_all = true;
  std::string told;
  std::vector<OrderRequest> orders;
  orders.push_back({{"o.delayed", 0},
                    {Order::Kind::cancel, "a"},
                    one.clock.mono() + milliseconds(60'000),
                    [&](const OrderResult& answer) { told = answer.error().message; }});
  one.member.give(std::move(orders));
  one.steps(5);
  CHECK(told == "");  // The transaction that would fence it is refused.
  one.member.refuse_orders("the member stops");
  CHECK(told == "the member stops");
}

TEST_CASE("orders that wait for a transaction count for the bound until they are told") {
  const std::vector<Source> sources{{"o.delayed", 0}};
  OneMember one(sources, [](MemberOptions& options) { options.waiting_orders = 2; });
  one.steps(10);
  one.cluster.refuses_all = true;
  std::vector<std::string> told;
  const auto give = [&](const std::string& name) {
    std::vector<OrderRequest> orders;
    orders.push_back({sources[0],
                      {Order::Kind::cancel, name},
                      one.clock.mono() + milliseconds(60'000),
                      [&told](const OrderResult& answer) {
                        told.push_back(answer ? "unknown" : answer.error().message);
                      }});
    one.member.give(std::move(orders));
    one.steps(5);
  };
  give("a");
  give("b");
  CHECK(told.empty());
  give("c");
  const std::string refusal = "2 requests for changes are already waiting";
  CHECK(told == std::vector<std::string>{refusal});
  one.cluster.refuses_all = false;
  one.steps(500);
  CHECK(told == std::vector<std::string>{refusal, "unknown", "unknown"});
  give("d");
  CHECK(told.size() == 4);
  CHECK(told.back() == "unknown");
}

TEST_CASE("an order that has been told is not told again when the member stops") {
  OneMember one;
  const Source source{"o.delayed", 0};
  one.steps(10);
  one.send(source, "a", {{"x-delay", "1h"}, {"x-schedule-id", "ia"}});
  one.steps(10);
  int told = 0;
  std::vector<OrderRequest> orders;
  orders.push_back({source,
                    {Order::Kind::cancel, "ia"},
                    one.clock.mono() + milliseconds(60'000),
                    [&](const OrderResult&) { ++told; }});
  one.member.give(std::move(orders));
  for (int i = 0; i < 20 && told == 0; ++i) one.step();
  CHECK(told == 1);
  one.member.refuse_orders("the member stops");
  CHECK(told == 1);
}

TEST_CASE("an unknown id is an error while the disk is full and the source is not read") {
  OneMember one;
  const Source source{"o.delayed", 0};
  one.steps(10);
  one.send(source, "a", {{"x-delay", "1h"}, {"x-schedule-id", "ia"}});
  one.steps(10);
  one.store.is_full = true;
  one.send(source, "b", {{"x-delay", "1h"}, {"x-schedule-id", "ib"}});
  one.steps(10);
  REQUIRE(one.member.status().is_full);
  CHECK(one.order(source, {Order::Kind::cancel, "ib"}).contains("no room"));
  CHECK(one.order(source, {Order::Kind::cancel, "ia"}) == "done");
}

TEST_CASE("an unavailable leader holds up only the orders of its own partition") {
  OneMember one({{"o.delayed", 0}, {"o.delayed", 1}});
  one.steps(10);
  one.cluster.without_leader = {{"o.delayed", 0}};
  std::map<PartitionIndex, std::string> told;
  std::vector<OrderRequest> orders;
  for (const PartitionIndex i : {0, 1})
    orders.push_back({{"o.delayed", i},
                      {Order::Kind::cancel, "a"},
                      one.clock.mono() + milliseconds(5'000),
                      [&told, i](const OrderResult& answer) {
                        told[i] = answer ? "unknown" : answer.error().message;
                      }});
  one.member.give(std::move(orders));
  one.steps(20);
  CHECK(told[0] == "the leader of o.delayed-0 does not answer");
  CHECK(told[1] == "unknown");
}

TEST_CASE("an order that only looks needs no transaction, and few of them ask Kafka") {
  OneMember one;
  const Source source{"o.delayed", 0};
  one.steps(10);
  const auto transactions = one.member.status().transactions;
  const int asked = one.cluster.ends_asked;
  int told = 0;
  for (int i = 0; i < 100; ++i) {
    std::vector<OrderRequest> orders;
    orders.push_back({source,
                      {Order::Kind::look},
                      one.clock.mono() + milliseconds(1'000),
                      [&told](const OrderResult& answer) { told += answer ? 1 : 0; }});
    one.member.give(std::move(orders));
    one.step();  // 20 ms.
  }
  one.steps(20);
  CHECK(told == 100);
  CHECK(one.member.status().transactions == transactions);
  CHECK(one.cluster.ends_asked - asked <= 25);
}

}  // namespace tarry::relay
