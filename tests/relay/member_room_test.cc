// What a member delivers while there is little room: in memory, on its disk, in librdkafka's queue
// or in a transaction.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/relay/one_member.h"

namespace tarry::relay {

TEST_CASE(
    "a partition that cannot be taken over keeps no other from its records and cancellations, "
    "however much arrives for it") {
  const Source bad{"bad.delayed", 0}, good{"o.delayed", 0};
  OneMember one({bad, good}, [](MemberOptions& options) { options.arrived_bytes = 200'000; });
  one.cluster.bad_sources = {"bad.delayed"};
  one.steps(20);
  one.send(good, "a", {{"x-delay", "3000"}, {"x-schedule-id", "i"}});
  for (int i = 0; i < 50; ++i) {
    one.send(bad, std::string(10'000, 'x'));
    one.step();
  }
  CHECK(one.member.status().paused == 1);
  one.send(good, "", {{"x-schedule-id", "i"}, {"x-schedule-action", "cancel"}});
  one.send(good, "b");
  one.steps(150);
  CHECK(one.in("o") == "b");
  for (const auto& each : one.member.status().partitions) {
    CHECK(each.is_paused == (each.source == bad));
    CHECK(each.arrived < 25);
  }
  one.cluster.bad_sources.clear();
  one.steps(700);
  CHECK(one.in("bad").size() == 50 * 10'001 - 1);
  CHECK(one.member.status().paused == 0);
  CHECK(one.member.is_ready());
}

TEST_CASE("records due after the last fetch of a paused source wait until it is read to its end") {
  const Source source{"o.delayed", 0};
  OneMember one({source}, [](MemberOptions& options) { options.arrived_bytes = 20'000; });
  one.steps(20);
  one.send(source, "a", {{"x-delay", "3000"}, {"x-schedule-id", "i"}});
  one.send(source, "b", {{"x-delay", "3000"}});
  one.steps(5);
  one.cluster.refuses_all = true;
  one.send(source, std::string(30'000, 'x'), {{"x-delay", "1h"}});
  one.steps(5);
  CHECK(one.member.status().paused == 1);
  one.send(source, "", {{"x-schedule-id", "i"}, {"x-schedule-action", "cancel"}});
  one.steps(170);
  CHECK(one.member.status().paused == 1);
  one.cluster.refuses_all = false;
  one.steps(200);
  CHECK(one.in("o") == "b");
  CHECK(one.member.status().paused == 0);
  CHECK(one.member.is_ready());
}

TEST_CASE("a source that is paused for want of room for its records still delivers what is due") {
  const Source source{"o.delayed", 0};
  OneMember one({source}, [](MemberOptions& options) { options.arrived_bytes = 20'000; });
  one.steps(20);
  one.send(source, "a", {{"x-delay", "3000"}});
  one.send(source, "b", {{"x-delay", "6000"}, {"x-schedule-id", "i"}});
  one.steps(5);
  one.store.is_full = true;
  one.send(source, std::string(30'000, 'x'), {{"x-delay", "1h"}});
  one.steps(200);
  CHECK(one.member.status().paused == 1);
  CHECK(one.in("o") == "a");
  one.send(source, "", {{"x-schedule-id", "i"}, {"x-schedule-action", "cancel"}});
  one.send(source, "c");
  one.steps(1);
  one.store.is_full = false;
  one.steps(200);
  CHECK(one.in("o") == "a c");
}

TEST_CASE(
    "a partition that is owned for want of room is read to its end before it delivers with room") {
  OneMember one;
  const Source source{"o.delayed", 0};
  one.steps(20);
  one.send(source, "a", {{"x-delay", "3000"}, {"x-schedule-id", "i"}});
  one.send(source, "b", {{"x-delay", "2000"}});
  one.steps(5);
  one.store.is_full = true;
  one.send(source, "x", {{"x-delay", "1h"}});
  one.steps(1);
  REQUIRE(one.member.status().is_full);
  // After a stall the source has to be read, but there is no room for what is in it.
  one.cluster.unfetched = {source};
  one.cluster.is_silent = true;
  one.send(source, "", {{"x-schedule-id", "i"}, {"x-schedule-action", "cancel"}});
  one.kafka.now += milliseconds(600);
  one.steps(80);
  CHECK(one.in("o") == "b");
  CHECK(one.member.status().partitions[0].stage == Stage::owned);
  one.store.is_full = false;
  one.steps(50);
  CHECK(one.in("o") == "b");
  CHECK(one.member.is_ready());
  one.cluster.unfetched.clear();
  one.steps(20);
  CHECK(one.in("o") == "b");
  CHECK(one.member.status().pending() == 1);
  CHECK(one.member.status().partitions[0].stage == Stage::owned);
}

TEST_CASE(
    "when librdkafka's queue was full a member delivers nothing before it has read its sources") {
  OneMember one;
  const Source source{"o.delayed", 0};
  one.steps(20);
  one.send(source, "a", {{"x-delay", "3000"}, {"x-schedule-id", "i"}});
  one.steps(5);
  one.cluster.unfetched = {source};
  // More than one poll brings, and behind it a cancellation that was there in time.
  for (int i = 0; i < 100; ++i) one.send(source, "x", {{"x-delay", "1h"}});
  one.send(source, "", {{"x-schedule-id", "i"}, {"x-schedule-action", "cancel"}});
  one.steps(200);
  CHECK(one.in("o") == "");
  one.cluster.unfetched.clear();
  one.cluster.queue_was_full = true;
  one.steps(50);
  CHECK(one.in("o") == "");
  CHECK(one.member.is_ready());
}

TEST_CASE(
    "with a full queue a member is ready, and a cancellation that is fetched a second later "
    "counts") {
  OneMember one;
  const Source source{"o.delayed", 0};
  one.steps(20);
  one.send(source, "a", {{"x-delay", "100"}});
  one.send(source, "b", {{"x-delay", "600"}, {"x-schedule-id", "i"}});
  one.steps(2);
  one.cluster.unfetched = {source};
  one.cluster.is_silent = one.cluster.queue_was_full = true;
  one.steps(10);
  CHECK(one.in("o") == "a");
  one.send(source, "", {{"x-schedule-id", "i"}, {"x-schedule-action", "cancel"}});
  one.steps(40);
  CHECK(one.member.is_ready());
  CHECK(one.member.status().partitions[0].stage == Stage::reading);
  one.cluster.unfetched.clear();
  one.steps(60);
  CHECK(one.in("o") == "a");
  CHECK(one.member.status().partitions[0].stage == Stage::owned);
}

TEST_CASE(
    "a new owner that finds nothing to read delivers what was due when it asked, and the rest when "
    "it has fetched") {
  const Source source{"o.delayed", 0};
  KafkaModel kafka{{}};
  kafka.targets[source] = -1;
  MemoryRows store;
  {
    OneMember one({source}, Limits{}.pending_bytes, &kafka, &store, 1);
    one.steps(20);
    one.send(source, "a", {{"x-delay", "1500"}, {"x-schedule-id", "i"}});
    one.send(source, "b", {{"x-delay", "500"}});
    one.steps(20);
    kafka.leave(1);
  }
  OneMember one({source}, Limits{}.pending_bytes, &kafka, &store, 2);
  one.cluster.unfetched = {source};
  one.cluster.is_silent = true;
  one.steps(25);
  // What was due when the end of the source was asked for need not wait for the fetch.
  CHECK(one.in("o") == "b");
  one.send(source, "", {{"x-schedule-id", "i"}, {"x-schedule-action", "cancel"}});
  one.steps(100);
  CHECK(one.in("o") == "b");
  CHECK(one.member.status().partitions[0].stage == Stage::reading);
  one.cluster.unfetched.clear();
  one.steps(20);
  CHECK(one.in("o") == "b");
  CHECK(one.member.status().pending() == 0);
  CHECK(one.member.status().partitions[0].stage == Stage::owned);
}

TEST_CASE("a partition that is drained is paused for as long as the others, and the member ready") {
  OneMember one({{"o.delayed", 0}, {"p.delayed", 0}}, [](MemberOptions& options) {
    options.arrived_bytes = 20'000;
    options.limits.arrivals = 1;
  });
  one.steps(20);
  one.cluster.refuses_all = true;
  for (int i = 0; i < 11; ++i)
    one.send({"o.delayed", 0}, std::string(2'000, 'x'), {{"x-delay", "1h"}});
  one.send({"p.delayed", 0}, "p", {{"x-delay", "1h"}});
  one.steps(3);
  REQUIRE(one.member.status().paused == 2);
  one.cluster.refuses_all = false;
  for (int i = 0; i < 100 && one.member.status().partitions[1].arrived > 0; ++i) one.step();
  one.step();
  CHECK(one.member.status().partitions[0].arrived > 4);
  CHECK(one.member.status().partitions[1].arrived == 0);
  CHECK(one.member.status().paused == 2);
  CHECK(one.member.is_ready());
  one.steps(200);
  CHECK(one.member.status().paused == 0);
  CHECK(one.member.status().partitions[1].stage == Stage::owned);
}

TEST_CASE(
    "while polls leave records behind, one without a schedule leaves behind those that were due "
    "before it came, and one that has expired does not leave") {
  const Source source{"o.delayed", 0}, other{"p.delayed", 0};
  OneMember one({source, other});
  one.steps(20);
  one.cluster.unfetched = {other};
  one.steps(2);
  one.send(source, "a", {{"x-delay", "60"}});
  one.send(source, "b",
           {{"x-delay", "70"}, {"x-expire-at", std::to_string(to_ms(one.kafka.now) + 500)}});
  one.steps(10);
  one.send(source, "c");
  one.steps(50);
  CHECK(one.in("o") == "");
  // The queue stays full, but what is due when the end of the source is asked for leaves.
  for (int i = 0; i < 20; ++i) {
    one.cluster.queue_was_full = true;
    one.step();
  }
  CHECK(one.in("o") == "a c");
  CHECK(one.member.status().counts.expired == 1);
}

TEST_CASE(
    "a partition that is taken over while the queue stays full is ready, but not after a stall") {
  OneMember one;
  const auto steps = [&](int count) {
    for (int i = 0; i < count; ++i) {
      one.cluster.queue_was_full = true;
      one.step();
    }
  };
  one.send({"o.delayed", 0}, "a", {{"x-delay", "1"}});
  steps(20);
  CHECK(one.member.is_ready());
  CHECK(one.in("o") == "a");
  CHECK(one.member.status().partitions[0].stage == Stage::reading);
  one.cluster.end_is_ahead_by = 1;
  one.kafka.now += milliseconds(600);
  steps(20);
  CHECK_FALSE(one.member.is_ready());
  one.send({"o.delayed", 0}, "b", {{"x-delay", "1h"}});
  steps(20);
  CHECK(one.member.is_ready());
}

TEST_CASE(
    "while the queue stays full each partition delivers, though few are asked about in a step") {
  std::vector<Source> sources;
  for (PartitionIndex i = 0; i < 12; ++i) sources.push_back({"o.delayed", i});
  OneMember one(sources);
  one.steps(20);
  for (const auto& source : sources) one.send(source, "x", {{"x-delay", "5000"}});
  one.steps(5);
  // Three answers are as much as a step has time for.
  one.cluster.answer_takes = milliseconds(1'000);
  for (int i = 0; i < 40; ++i) {
    one.cluster.queue_was_full = true;
    one.step();
  }
  for (const auto& each : one.member.status().partitions) CHECK(each.pending == 0);
}

TEST_CASE(
    "the reason why a question for an end failed is forgotten when the records that have arrived "
    "answer it") {
  OneMember one;
  const Source source{"o.delayed", 0};
  one.cluster.end_is_ahead_by = 30;
  one.steps(20);
  one.cluster.without_leader = {source};
  one.steps(300);
  CHECK(one.member.status().stalled == "the leader of o.delayed-0 does not answer");
  for (int i = 0; i < 30; ++i) one.send(source, "x", {{"x-delay", "1h"}});
  one.steps(20);
  CHECK(one.member.is_ready());
  CHECK(one.member.status().stalled == "");
}

TEST_CASE("a busy partition leaves room in the transactions for the others") {
  OneMember one({{"o.delayed", 0}, {"o.delayed", 1}});
  one.steps(10);
  for (int i = 0; i < 8; ++i) {
    one.send({"o.delayed", 0}, std::string(9u << 20, 'x'));
    one.send({"o.delayed", 0}, std::string(9u << 20, 'x'));
    if (i == 3) one.send({"o.delayed", 1}, "small", {{"x-deliver-to", "other"}});
    one.step();
  }
  CHECK(one.in("other") == "small");
}

TEST_CASE(
    "partitions with more due records than a transaction takes are served in turn, whichever of "
    "them take records in") {
  const std::vector<Source> sources{
      {"a.delayed", 0}, {"b.delayed", 0}, {"c.delayed", 0}, {"d.delayed", 0}};
  OneMember one(sources, [](MemberOptions& options) { options.limits.deliveries = 4; });
  one.steps(20);
  for (int i = 0; i < 60; ++i)
    for (std::size_t which = 0; which < 3; ++which)
      one.send(sources[which], "x", {{"x-delay", "1000"}});
  one.steps(20);
  one.kafka.now += milliseconds(460);
  one.steps(5);
  for (int i = 0; i < 25; ++i) {
    one.send(sources[3], "x", {{"x-delay", "1h"}});
    one.step();
  }
  for (const auto& each : one.member.status().partitions)
    if (each.source != sources[3]) CHECK(each.pending < 40);
}

TEST_CASE("a transaction is bounded in bytes, however many partitions have large records") {
  OneMember one({{"o.delayed", 0}, {"o.delayed", 1}, {"o.delayed", 2}});
  one.steps(10);
  for (PartitionIndex i = 0; i < 3; ++i) one.send({"o.delayed", i}, std::string(9u << 20, 'x'));
  one.steps(10);
  CHECK(one.cluster.largest_bytes < (10u << 20));
  CHECK(one.in("o").size() > (27u << 20));
}

}  // namespace tarry::relay
