// DelayedFlow: schedules that do not depend on the sender, and counts that are exact.

#include "cli/delayed_flow.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>

#include <doctest/doctest.h>

namespace tarry::cli {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t start = 1'700'000'000'000'123;  // Not a whole millisecond.
constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t ms = 1000;

FlowPlan delayed(std::uint64_t count, double rate = 1000) {
  return {.first = 100,
          .count = count,
          .rate = rate,
          .is_delayed = true,
          .delay = 500ms,
          .spread = 200ms,
          .seed = 3};
}

TEST_SUITE_BEGIN("delayed_flow");

TEST_CASE("records are to be sent at their rate, in groups when the rate is high") {
  DelayedFlow flow(delayed(3000));
  flow.begin(start);
  CHECK(flow.planned(100) == start);
  CHECK(flow.planned(101) == start + ms);
  CHECK(flow.planned(2100) == start + 2'000 * ms);

  DelayedFlow fast(delayed(1'000'000, 50'000));
  fast.begin(start);
  CHECK(fast.planned(100) == fast.planned(104));
  CHECK(fast.planned(105) == start + 100);
  CHECK(fast.planned(50'100) == start + 1'000 * ms);
}

TEST_CASE("a flow that tracks no record counts what was accepted and knows of none that is lost") {
  // So many bits would not fit into the memory of any machine.
  DelayedFlow flow({.count = std::uint64_t{1} << 50, .is_tracked = false});
  flow.begin(start);
  for (const std::uint64_t number : {0, 1, 7}) flow.accept(number, start);
  flow.arrive(7, start + 3 * ms);
  const auto figures = flow.figures(never);
  CHECK(figures.accepted == 3);
  CHECK(figures.delivered == 1);
  CHECK(figures.lost == 0);
  CHECK(figures.not_due == 0);
}

TEST_CASE("due times are whole milliseconds, spread over the whole window and no further") {
  DelayedFlow flow(delayed(3000));
  flow.begin(start);
  std::set<std::int64_t> offsets;
  std::int64_t latest = 0;
  for (std::uint64_t number = 100; number < 3100; ++number) {
    const std::int64_t due = flow.due(number);
    REQUIRE(due % ms == 0);
    const std::int64_t offset = due - flow.planned(number);
    REQUIRE(offset >= 500 * ms);
    REQUIRE(offset < 701 * ms);
    offsets.insert(offset / ms);
    latest = std::max(latest, due);
    REQUIRE(due == flow.due(number));
  }
  CHECK(offsets.size() == 201);
  CHECK(flow.last_due() >= latest);
}

TEST_CASE("all records of a burst are due in the same millisecond, whatever their rate") {
  FlowPlan plan = delayed(5000, 0);
  plan.is_burst = true;
  for (const double rate : {0.0, 1000.0}) {
    plan.rate = rate;
    DelayedFlow flow(plan);
    flow.begin(start);
    const std::int64_t due = flow.due(100);
    CHECK(due == start / ms * ms + ms + 500 * ms);
    CHECK(flow.due(5099) == due);
    CHECK(flow.last_due() == due);
  }
}

TEST_CASE("a record without a delay is due when it was to be sent, not when it was sent") {
  DelayedFlow flow({.count = 10, .rate = 1000});
  flow.begin(start);
  flow.accept(9, start + 700 * ms);  // The sender was held up.
  flow.arrive(9, start + 701 * ms);
  const auto figures = flow.figures(never);
  CHECK(figures.lag.max() == 692 * ms);
  CHECK(figures.accepted_late == 0);
}

TEST_CASE("a record that comes a microsecond before its time is early, and at its time it is not") {
  DelayedFlow flow(delayed(2));
  flow.begin(start);
  for (const std::uint64_t number : {100, 101}) flow.accept(number, start);
  flow.arrive(100, flow.due(100) - 1);
  flow.arrive(101, flow.due(101));
  const auto figures = flow.figures(never);
  CHECK(figures.early == 1);
  CHECK(figures.lag.min() == -1);
  CHECK(figures.lag.max() == 0);
}

TEST_CASE("lost, twice, not due and unconfirmed are counted exactly, over the ends of words too") {
  DelayedFlow flow(delayed(200));
  flow.begin(start);
  for (std::uint64_t number = 100; number < 300; ++number) {
    if (number == 163 || number == 164) continue;  // Never accepted.
    flow.accept(number, start + 10 * ms);
    CHECK(flow.has(number));
  }
  CHECK_FALSE(flow.has(99));
  CHECK_FALSE(flow.has(300));
  std::uint64_t due_by_then = 0;
  const std::int64_t then = start + 650 * ms;
  for (std::uint64_t number = 100; number < 300; ++number) {
    if (number == 163 || number == 228 || number == 299) continue;  // Never delivered.
    if (flow.due(number) <= then) ++due_by_then;
    flow.arrive(number, flow.due(number) + ms);
    if (number % 50 == 0) flow.arrive(number, flow.due(number) + 2 * ms);
  }
  const auto figures = flow.figures(never);
  CHECK(figures.accepted == 198);
  CHECK(figures.delivered == 197);
  CHECK(figures.lost == 2);
  CHECK(figures.twice == 4);
  CHECK(figures.unconfirmed == 1);
  CHECK(figures.not_due == 0);
  CHECK(figures.lag.count() == 197);
  CHECK(due_by_then > 0);

  const auto early = flow.figures(start);  // Nothing was due then.
  CHECK(early.lost == 0);
  CHECK(early.not_due == 2);
  CHECK(flow.missing(flow.due(228)) >= 1);
}

TEST_CASE("a record that is accepted after its due time is counted as that") {
  DelayedFlow flow(delayed(2));
  flow.begin(start);
  flow.accept(100, flow.due(100));
  flow.accept(101, flow.due(101) + 1);
  CHECK(flow.figures(never).accepted_late == 1);
}

TEST_CASE("the figures of two flows add up") {
  DelayedFlow one(delayed(2)), other(delayed(2));
  FlowFigures sum;
  for (auto* flow : {&one, &other}) {
    flow->begin(start);
    flow->accept(100, start);
    flow->arrive(100, flow->due(100) - ms);
    flow->arrive(100, flow->due(100) + ms);
    flow->accept(101, start);
    sum.add(flow->figures(never));
  }
  CHECK(sum.accepted == 4);
  CHECK(sum.delivered == 2);
  CHECK(sum.early == 2);
  CHECK(sum.twice == 2);
  CHECK(sum.lost == 2);
  CHECK(sum.lag.count() == 2);
}

TEST_SUITE_END();

}  // namespace
}  // namespace tarry::cli
