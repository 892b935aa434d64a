// Records that a member sends ahead of its commit.

#include <doctest/doctest.h>

#include <string>

#include "tests/relay/one_member.h"

namespace tarry::relay {

namespace {

// Its targets are prepared, and four records are due from 300 ms on, 20 ms from each other.
class AheadOfCommit : public OneMember {
 public:
  AheadOfCommit()
      : OneMember({{"o.delayed", 0}}, Limits{}.pending_bytes, nullptr, nullptr, 1,
                  Delivery::at_least_once) {
    send(source, "first");
    steps(30);
    for (int i = 0; i < 4; ++i)
      send(source, std::to_string(i),
           {{"x-delay", std::to_string(300 + 20 * i)}, {"x-schedule-id", "i" + std::to_string(i)}});
    steps(12);
  }
  void step_until(const std::string& delivered) {
    for (int i = 0; i < 20 && in("o") != delivered; ++i) step();
    CHECK(in("o") == delivered);
  }
  std::size_t pending() const { return member.status().partitions.front().pending; }

  const Source source{"o.delayed", 0};
};

}  // namespace

TEST_CASE("with at-least-once records leave as they become due, and are forgotten together") {
  AheadOfCommit one;
  one.step_until("first 0");
  const auto before = one.member.status().transactions;
  one.step_until("first 0 1 2 3");
  CHECK(one.member.status().transactions == before);
  CHECK(one.pending() == 4);
  one.steps(10);
  CHECK(one.member.status().transactions == before + 1);
  CHECK(one.pending() == 0);
  CHECK(one.in("g-pending-o.delayed").ends_with("null null null null"));
  CHECK(one.in("o") == "first 0 1 2 3");
  // They are counted as late as they were confirmed, and not as late as they were forgotten.
  CHECK(one.member.status().lag.total.max() <= 60);
}

TEST_CASE("with at-least-once a record that was sent ahead cannot be cancelled any more") {
  AheadOfCommit one;
  one.step_until("first 0");
  CHECK(one.order(one.source, {Order::Kind::cancel, "i0"}) == "already delivered");
  one.steps(20);
  CHECK(one.in("o") == "first 0 1 2 3");
}

TEST_CASE("with at-least-once all that is open is sent again in its order when some is not there") {
  AheadOfCommit one;
  one.step_until("first 0 1");
  one.cluster.under_way_fails = true;
  one.steps(40);
  // The one that was begun meanwhile, too.
  CHECK(one.in("o") == "first 0 1 2 0 1 2 3");
  CHECK(one.pending() == 0);
  CHECK(one.member.status().stalled.empty());
}

TEST_CASE("with at-least-once no order is told that it cancelled a record that may be there") {
  AheadOfCommit one;
  one.step_until("first 0");
  one.cluster.under_way_fails = true;
  one.step();
  CHECK(one.order(one.source, {Order::Kind::cancel, "i0"}).contains("may have arrived"));
  one.steps(40);
  // Of the two that were sent the one that was not cancelled comes again.
  CHECK(one.in("o") == "first 0 1 1 2 3");
}

TEST_CASE("with at-least-once nothing is sent again when the transaction behind it is aborted") {
  AheadOfCommit one;
  one.step_until("first 0 1");
  one.cluster.refuses_all = true;
  one.steps(30);
  CHECK(one.pending() == 4);
  one.cluster.refuses_all = false;
  one.steps(100);
  CHECK(one.in("o") == "first 0 1 2 3");
  CHECK(one.pending() == 0);
}

TEST_CASE("with at-least-once what was sent ahead is committed before a member stops") {
  AheadOfCommit one;
  one.step_until("first 0 1 2 3");
  CHECK(one.pending() == 4);
  one.member.finish();
  CHECK(one.pending() == 0);
  one.kafka.tick([] { return true; });
  CHECK(one.in("g-pending-o.delayed").ends_with("null null null null"));
}

TEST_CASE("with at-least-once a target that cannot be made has nothing else sent twice") {
  AheadOfCommit one;
  one.cluster.bad_targets = {"forbidden"};
  one.send(one.source, "x", {{"x-delay", "110"}, {"x-deliver-to", "forbidden"}});
  one.send(one.source, "y", {{"x-delay", "130"}, {"x-deliver-to", "other"}});
  one.steps(60);
  CHECK(one.in("o") == "first 0 1 2 3");
  CHECK(one.in("o.delayed.invalid") == "x");
  CHECK(one.in("other") == "y");
  CHECK(one.pending() == 0);
}

TEST_CASE("with at-least-once a held target that nobody wants any more holds up nothing for ever") {
  AheadOfCommit one;
  one.step_until("first 0 1 2 3");
  one.steps(20);
  one.cluster.unready_targets = {"away"};
  one.send(one.source, "x", {{"x-delay", "100"}, {"x-deliver-to", "away"}, {"x-schedule-id", "x"}});
  one.steps(15);
  CHECK(one.member.status().stalled == "away has no leader");
  CHECK(one.order(one.source, {Order::Kind::cancel, "x"}) == "done");
  one.steps(100);
  for (int i = 0; i < 4; ++i)
    one.send(one.source, std::to_string(4 + i), {{"x-delay", std::to_string(300 + 20 * i)}});
  one.steps(12);
  one.step_until("first 0 1 2 3 4");
  const auto before = one.member.status().transactions;
  one.step_until("first 0 1 2 3 4 5 6 7");
  CHECK(one.member.status().transactions == before);
}

TEST_CASE(
    "with at-least-once a step that has waited to send does not wait for a transaction, too") {
  AheadOfCommit one;
  one.cluster.begin_takes = milliseconds(4'000);
  one.cluster.answer_takes = milliseconds(8'000);
  one.cluster.longest_turn = {};
  one.step_until("first 0 1 2 3");
  one.steps(5);
  CHECK(one.pending() == 0);
  CHECK(one.cluster.longest_turn <= milliseconds(8'100));
}

TEST_CASE("a member whose transaction stays open is fenced twice, and then more and more seldom") {
  OneMember one;
  one.cluster.offsets_stay_open = true;
  one.steps(400);
  CHECK(one.cluster.settled == 2);
  CHECK(one.member.status().stalled.contains("stays open though its producers were fenced"));
  one.steps(1'100);
  CHECK(one.cluster.settled == 3);
  one.steps(1'500);
  CHECK(one.cluster.settled == 4);
  one.cluster.offsets_stay_open = false;
  one.steps(100);
  CHECK(one.member.is_ready());
}

}  // namespace tarry::relay
