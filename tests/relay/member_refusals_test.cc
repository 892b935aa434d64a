// What a member does with topics that are wrong, and with records that Kafka refuses.

#include <doctest/doctest.h>

#include <chrono>
#include <string>

#include "tests/relay/one_member.h"

namespace tarry::relay {

TEST_CASE(
    "a source whose topics are wrong is alone in waiting, and is taken over when they are right") {
  OneMember one({{"bad.delayed", 0}, {"o.delayed", 0}});
  one.cluster.bad_sources = {"bad.delayed"};
  for (int i = 0; i < 100; ++i) {
    one.send({"o.delayed", 0}, std::to_string(i));
    one.step();
  }
  CHECK(one.in("o").ends_with("98 99"));
  CHECK(one.member.status().transactions > 90);
  CHECK(one.member.status().stalled == "bad.delayed is bad");
  CHECK_FALSE(one.member.is_ready());
  one.cluster.bad_sources.clear();
  one.send({"bad.delayed", 0}, "x");
  one.steps(600);
  CHECK(one.in("bad") == "x");
  CHECK(one.member.status().stalled == "");
}

TEST_CASE(
    "records for a target that cannot be created go to NAME.invalid, and the others are "
    "delivered") {
  OneMember one;
  one.cluster.bad_targets = {"forbidden"};
  one.send({"o.delayed", 0}, "a", {{"x-deliver-to", "forbidden"}});
  one.send({"o.delayed", 0}, "b");
  one.send({"o.delayed", 0}, "c", {{"x-deliver-to", "forbidden"}});
  one.steps(20);
  CHECK(one.in("o.delayed.invalid") == "a c");
  CHECK(one.in("o") == "b");
}

TEST_CASE(
    "records for a target that cannot be prepared wait with those behind them, and other sources "
    "go on") {
  OneMember one({{"a.delayed", 0}, {"b.delayed", 0}});
  one.steps(20);
  one.cluster.unready_targets = {"a"};
  for (int i = 0; i < 50; ++i) {
    one.send({"b.delayed", 0}, std::to_string(i));
    if (i < 4)
      one.send({"a.delayed", 0}, std::to_string(i), {{"x-deliver-to", i % 2 == 0 ? "c" : "a"}});
    one.steps(2);
  }
  CHECK(one.in("b").ends_with("47 48 49"));
  CHECK(one.in("c") == "0");
  CHECK(one.member.status().stalled == "a has no leader");
  CHECK(one.member.status().stalled_for >= std::chrono::seconds(1));
  CHECK(one.cluster.targets_prepared < 15);
  CHECK(one.order({"a.delayed", 0}, {Order::Kind::deliver, handle_of({"a.delayed", 0}, 1)})
            .contains("takes no records now"));
  one.cluster.unready_targets.clear();
  one.steps(300);
  CHECK(one.in("c") == "0 2");
  CHECK(one.in("a") == "1 3");
  CHECK(one.member.status().stalled == "");
}

TEST_CASE("a target that confirms nothing delays the others by its timeout, and seldom") {
  OneMember one({{"a.delayed", 0}, {"b.delayed", 0}});
  one.steps(20);
  one.cluster.silent_targets = {"a"};
  one.send({"a.delayed", 0}, "x");
  one.steps(3);
  const WallTime begun = one.kafka.now;
  int steps = 0;
  for (; one.kafka.now - begun < std::chrono::minutes(3); ++steps) {
    one.send({"b.delayed", 0}, std::to_string(steps));
    one.step();
  }
  CHECK(one.in("b").ends_with(std::to_string(steps - 1)));
  CHECK(steps * milliseconds(20) > std::chrono::minutes(2));
  CHECK(one.member.status().stalled == "a has confirmed no record in time");
  one.cluster.silent_targets.clear();
  one.steps(3'100);
  CHECK(one.in("a") == "x");
  CHECK(one.member.status().stalled == "");
}

TEST_CASE("a target that takes nothing for a reason of its own keeps its records waiting alone") {
  OneMember one({{"a.delayed", 0}, {"b.delayed", 0}});
  one.steps(20);
  one.cluster.failing_topics = {"a"};
  one.send({"a.delayed", 0}, "x");
  for (int i = 0; i < 50; ++i) {
    one.send({"b.delayed", 0}, std::to_string(i));
    one.step();
  }
  CHECK(one.in("b").ends_with("48 49"));
  CHECK(one.in("a") == "");
  CHECK(one.member.status().stalled == "a fails");
  CHECK(one.cluster.failed < 10);
  one.cluster.failing_topics.clear();
  one.steps(600);
  CHECK(one.in("a") == "x");
  CHECK(one.member.status().stalled == "");
}

TEST_CASE("a source whose state topic or NAME.invalid takes nothing waits alone, and says why") {
  for (const char* name : {"g-pending-a.delayed", "a.delayed.invalid"}) {
    const std::string topic = name;
    CAPTURE(topic);
    const Source bad{"a.delayed", 0}, good{"b.delayed", 0};
    OneMember one({bad, good}, [](MemberOptions& options) { options.arrived_bytes = 200'000; });
    one.steps(20);
    one.cluster.failing_topics = {topic};
    one.send(bad, "x", {{"x-delay", topic.starts_with("g") ? "100" : "soon"}});
    one.send(bad, "y");
    for (int i = 0; i < 50; ++i) {
      // More than may arrive.
      one.send(bad, std::string(10'000, 'z'), {{"x-delay", "1h"}});
      one.send(good, std::to_string(i), {{"x-delay", "1"}});
      one.step();
    }
    one.steps(5);
    CHECK(one.in("b").ends_with("48 49"));
    CHECK(one.in("a") == "");
    CHECK(one.member.status().stalled == topic + " fails");
    CHECK(one.member.status().stalled_for >= std::chrono::seconds(1));
    CHECK(one.cluster.failed <= 2);
    CHECK(one.order(bad, {Order::Kind::cancel, "a"}).contains(topic + " fails"));
    one.cluster.failing_topics.clear();
    one.steps(4'000);
    CHECK(one.in("a").contains("y"));
    CHECK(one.in("a").contains("x") == topic.starts_with("g"));
    CHECK(one.in("a.delayed.invalid") == (topic.starts_with("g") ? "" : "x"));
    CHECK(one.member.status().stalled == "");
    CHECK(one.member.status().paused == 0);
    CHECK(one.member.is_ready());
  }
}

TEST_CASE(
    "a source whose rows are not confirmed in time again and again waits alone, and says why") {
  const Source bad{"a.delayed", 0}, good{"b.delayed", 0};
  OneMember one({bad, good});
  one.steps(20);
  one.cluster.silent_rows = {"g-pending-a.delayed"};
  one.send(bad, "x", {{"x-delay", "1m"}});
  for (int i = 0; i < 400; ++i) {
    one.send(good, std::to_string(i));
    one.step();
  }
  CHECK(one.in("b").ends_with("398 399"));
  CHECK(one.cluster.failed == 2);
  CHECK(one.member.status().stalled == "g-pending-a.delayed has confirmed no row in time");
  // Each attempt costs the others its time, so there are fewer and fewer.
  one.steps(4'000);
  CHECK(one.cluster.failed <= 5);
  one.cluster.silent_rows.clear();
  one.steps(5'000);
  CHECK(one.in("a") == "x");
  CHECK(one.member.status().stalled == "");
  CHECK(one.member.is_ready());
}

TEST_CASE("a source whose rows are not confirmed once is taken over again at once") {
  OneMember one({{"a.delayed", 0}, {"b.delayed", 0}});
  one.steps(20);
  one.cluster.silent_rows = {"g-pending-a.delayed"};
  one.send({"a.delayed", 0}, "x", {{"x-delay", "1m"}});
  one.step();
  one.cluster.silent_rows.clear();
  one.steps(50);
  CHECK(one.cluster.failed == 1);
  CHECK(one.member.is_ready());
  CHECK(one.member.status().pending() == 1);
}

TEST_CASE("a source that rests is tried seldom, however little room the others leave it") {
  const Source bad{"a.delayed", 0}, good{"b.delayed", 0};
  OneMember one({bad, good}, [](MemberOptions& options) { options.limits.arrivals = 1; });
  one.steps(20);
  one.cluster.failing_topics = {"g-pending-a.delayed"};
  one.send(bad, "x", {{"x-delay", "1h"}});
  for (int i = 0; i < 10'000; ++i) {
    one.send(good, "y");
    one.step();
  }
  CHECK(one.cluster.failed <= 7);
  one.cluster.failing_topics.clear();
  one.steps(4'000);
  CHECK(one.member.status().stalled == "");
  CHECK(one.member.status().pending() == 1);
}

TEST_CASE("a source that this member may not read any more waits alone, owned or not") {
  for (const bool is_owned : {true, false}) {
    const Source bad{"a.delayed", 0}, good{"b.delayed", 0};
    OneMember one({bad, good});
    if (is_owned) one.steps(20);
    one.send(bad, "x", {{"x-delay", "100"}});
    if (is_owned) one.steps(2);
    one.cluster.failing_topics = {"a.delayed"};
    // The group asks again after it.
    one.kafka.now += milliseconds(600);
    for (int i = 0; i < 100; ++i) {
      one.send(good, std::to_string(i), {{"x-delay", "1"}});
      one.step();
    }
    CHECK(one.in("b").ends_with("97 98"));
    CHECK(one.in("a") == "");
    const auto status = one.member.status();
    CHECK(status.stalled == "a.delayed fails");
    REQUIRE(status.partitions.size() == 2);
    CHECK(status.partitions[0].waits == "a.delayed fails");
    CHECK(status.partitions[1].waits == "");
    CHECK(one.cluster.failed <= 2);
    one.cluster.failing_topics.clear();
    one.steps(4'000);
    CHECK(one.in("a") == "x");
    CHECK(one.member.status().stalled == "");
    CHECK(one.member.is_ready());
  }
}

TEST_CASE("a source that rests for an order ends its rest when the order is not wanted any more") {
  OneMember one;
  const Source source{"o.delayed", 0};
  one.steps(20);
  one.send(source, "x", {{"x-delay", "1h"}, {"x-schedule-id", "i"}});
  one.steps(5);
  one.cluster.failing_topics = {"g-pending-o.delayed"};
  CHECK(one.order(source, {Order::Kind::move, "i", milliseconds(60'000)})
            .contains("g-pending-o.delayed fails"));
  CHECK(one.member.status().stalled == "g-pending-o.delayed fails");
  one.steps(1'000);
  CHECK(one.cluster.failed == 1);
  CHECK(one.member.status().stalled == "");
}

TEST_CASE(
    "with at-least-once a record that NAME.invalid refuses has the others sent thrice at most") {
  OneMember one({{"o.delayed", 0}}, Limits{}.pending_bytes, nullptr, nullptr, 1,
                Delivery::at_least_once);
  one.steps(20);
  one.cluster.searches = true;
  one.cluster.too_large = "x";
  one.send({"o.delayed", 0}, "x", {{"x-delay", "soon"}});
  one.send({"o.delayed", 0}, "a");
  one.steps(200);
  CHECK(one.in("o.delayed.invalid") == "null");
  CHECK(one.member.status().stalled.empty());
  CHECK(one.in("o") == "a a a");
  one.send({"o.delayed", 0}, "b");
  one.steps(20);
  CHECK(one.in("o") == "a a a b");
}

TEST_CASE("a record that no topic accepts leaves its error in NAME.invalid and stops nothing") {
  OneMember one;
  one.cluster.too_large = "a";
  one.send({"o.delayed", 0}, "a");
  one.send({"o.delayed", 0}, "b");
  one.steps(30);
  CHECK(one.in("o") == "b");
  CHECK(one.in("o.delayed.invalid") == "null");
  const auto& headers = one.kafka.logs[{"o.delayed.invalid", 0}].back().record.headers;
  REQUIRE(headers.size() == 1);
  CHECK(
      as_text(*headers[0].value)
          .ends_with("the record of o.delayed-0 at 0 has a key of 1 bytes and a value of 1 bytes"));
}

TEST_CASE(
    "a record whose error no topic accepts either is dropped and counted, and stops nothing") {
  OneMember one;
  one.cluster.too_large = "a";
  one.cluster.refuses_errors = true;
  one.send({"o.delayed", 0}, "a");
  one.send({"o.delayed", 0}, "b");
  one.steps(30);
  CHECK(one.in("o") == "b");
  CHECK(one.in("o.delayed.invalid") == "");
  CHECK(one.member.status().counts.dropped == 1);
}

TEST_CASE("while the refused record is not known yet, transactions are small") {
  OneMember one;
  one.steps(10);
  const std::string due = std::to_string(to_ms(one.kafka.now) + 2'000);
  for (int i = 0; i < 300; ++i)
    one.send({"o.delayed", 0}, std::to_string(i), {{"x-deliver-at", due}});
  one.steps(60);
  CHECK(one.in("o") == "");
  one.kafka.now = from_ms(std::stoll(due));
  one.cluster.first_is_careful = true;
  one.steps(50);
  CHECK(one.cluster.largest_careful == 200);  // 100 records, and the tombstones of their rows.
  CHECK(one.in("o").ends_with("298 299"));
}

TEST_CASE(
    "a record that is refused in a send is searched in small ones, whatever commits between") {
  OneMember one({{"a.delayed", 0}, {"o.delayed", 0}}, Limits{}.pending_bytes, nullptr, nullptr, 1,
                Delivery::at_least_once);
  one.steps(10);
  one.cluster.refuses_all = true;  // So that all of it arrives.
  for (int i = 0; i < 300; ++i) {
    one.send({"a.delayed", 0}, std::to_string(i), {{"x-delay", "2000"}});
    one.send({"o.delayed", 0}, "x", {{"x-delay", "1h"}});
  }
  one.steps(40);
  one.cluster.refuses_all = false;
  one.cluster.first_send_is_careful = true;
  one.steps(300);
  CHECK(one.cluster.largest_careful > 0);
  CHECK(one.cluster.largest_careful <= 100);
  CHECK(one.in("a").ends_with("298 299"));
}

}  // namespace tarry::relay
