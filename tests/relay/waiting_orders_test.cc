#include <doctest/doctest.h>

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "relay/waiting_orders.h"
#include "tests/relay/memory_rows.h"

namespace tarry::relay {
namespace {

using std::chrono::seconds;

constexpr std::size_t max_orders = 2;

struct SomeOrders {
  bool give() {
    std::vector<OrderRequest> one;
    one.push_back({.source = source,
                   .order = {Order::Kind::cancel, "a"},
                   .deadline = MonoTime{} + seconds(60),
                   .told = [this](const OrderResult&) { ++told; }});
    return orders.give(std::move(one));
  }
  void take(const WaitingOrders::Ends& ends_of) {
    orders.take(assignment, ends_of, "", MonoTime{} + seconds(1));
  }

  const Source source{"o.delayed", 0};
  const Rules rules{"g", "", false};
  MemoryRows store;
  Assignment assignment;
  WaitingOrders orders{max_orders};
  int told = 0;
};

}  // namespace

TEST_CASE("orders that come while the ends of their sources are asked for count for the bound") {
  SomeOrders some;
  some.assignment.emplace(some.source,
                          AssignedPartition(Partition(some.source, some.rules, some.store)));
  CHECK(some.give());
  CHECK(some.give());
  bool is_taken = true;
  const auto ends = [&](const std::set<Source>& sources) {
    CHECK(sources.contains(some.source));
    is_taken = some.give();
    return std::map<Source, Result<Offset>>{{some.source, Offset{7}}};
  };
  some.take(ends);
  CHECK_FALSE(is_taken);
  CHECK(some.told == 1);
  CHECK_FALSE(some.give());
  some.orders.refuse_waiting("the member stops");
  CHECK(some.told == 4);
}

TEST_CASE("orders whose ends are asked for in the next step count once") {
  SomeOrders some;
  some.assignment.emplace(some.source,
                          AssignedPartition(Partition(some.source, some.rules, some.store)));
  CHECK(some.give());
  const auto none = [](const std::set<Source>&) { return std::map<Source, Result<Offset>>{}; };
  some.take(none);
  some.take(none);
  CHECK(some.give());
  CHECK_FALSE(some.give());
}

}  // namespace tarry::relay
