// How a member takes its partitions over, delivers, and goes on while Kafka is slow or away.

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "tests/relay/one_member.h"

namespace tarry::relay {

TEST_CASE("a partition is owned and delivers while its source never rests") {
  OneMember one;
  for (int i = 0; i < 20; ++i) {
    one.send({"o.delayed", 0}, std::to_string(i));
    one.step();
  }
  CHECK(one.member.is_ready());
  CHECK(one.in("o").starts_with("0 1 2"));
}

TEST_CASE("one of the partitions without a leader is asked in a step, and the others go on") {
  OneMember one({{"o.delayed", 0}, {"o.delayed", 1}, {"o.delayed", 2}});
  one.cluster.without_leader = {{"o.delayed", 0}, {"o.delayed", 1}};
  one.send({"o.delayed", 2}, "x");
  for (int i = 0; i < 100; ++i) {
    const int before = one.cluster.asked_in_vain;
    one.step();
    CHECK(one.cluster.asked_in_vain <= before + 1);
  }
  CHECK(one.in("o") == "x");
  CHECK(one.cluster.asked_in_vain < 20);
}

TEST_CASE(
    "a member polls again soon though each answer takes long, because its group waits for it") {
  std::vector<Source> sources;
  for (PartitionIndex i = 0; i < 12; ++i)
    for (const char* topic : {"a.delayed", "b.delayed", "c.delayed"}) sources.push_back({topic, i});
  OneMember one(sources);
  // Others have left transactions open: they are ended, one in a step.
  for (std::size_t i = 0; i < 5; ++i) {
    const std::string owner = "g-dead-" + std::to_string(i);
    one.kafka.committed[sources[i]] = {true, false, 0, owner};
    auto& open = one.kafka.transactions[static_cast<std::size_t>(one.kafka.begin(owner + "-0"))];
    open.offsets = {{sources[i], 0}};
    one.send(sources[i], "x");
  }
  one.cluster.answer_takes = milliseconds(2'000);
  one.steps(200);
  // longest_turn, the answer that comes behind it, and a transaction.
  CHECK(one.cluster.longest_turn <= milliseconds(8'100));
  CHECK(one.member.status().transactions > 0);
  for (const auto& each : one.member.status().partitions) CHECK(each.stage != Stage::finding);
  one.cluster.answer_takes = milliseconds(0);
  one.steps(20);
  CHECK(one.member.is_ready());
  CHECK(one.in("a") == "x x");
}

TEST_CASE("deliveries go on while each transaction takes longer than a stall") {
  OneMember one;
  one.steps(20);
  one.cluster.answer_takes = milliseconds(1'200);
  for (int i = 0; i < 20; ++i) {
    one.send({"o.delayed", 0}, std::to_string(i));
    one.step();
  }
  CHECK(one.in("o").ends_with("17 18 19"));
  CHECK(one.member.is_ready());
}

TEST_CASE("a leader that is silent is named in the status while its partition waits for it") {
  OneMember one({{"o.delayed", 0}, {"o.delayed", 1}});
  one.steps(20);
  one.cluster.without_leader = {{"o.delayed", 1}};
  // Its connection has ended because it answered nothing in time.
  one.cluster.broker_went_away = true;
  one.steps(20);
  CHECK(one.member.status().stalled == "the leader of o.delayed-1 does not answer");
  one.send({"o.delayed", 0}, "a");
  one.steps(20);
  CHECK(one.in("o") == "a");
  one.cluster.without_leader.clear();
  one.steps(600);
  CHECK(one.member.status().stalled.empty());
  CHECK(one.member.is_ready());
}

TEST_CASE(
    "partitions of unavailable leaders, however many, are asked about in turn with the others") {
  std::vector<Source> sources;
  for (PartitionIndex i = 0; i < 40; ++i) sources.push_back({"a.delayed", i});
  const Source last{"b.delayed", 0};
  OneMember one(sources);
  one.kafka.targets[last] = -1;
  one.kafka.rebalance();
  one.cluster.without_leader = {sources.begin(), sources.end()};
  one.send(last, "x");
  // Each partition is asked about once; some were asked about again before it, by their retries.
  one.steps(70);
  CHECK(one.in("b") == "x");
}

TEST_CASE("a member may deliver from its first owned partition on, and while stalls keep it busy") {
  OneMember one({{"bad.delayed", 0}, {"o.delayed", 0}});
  one.cluster.bad_sources = {"bad.delayed"};
  CHECK_FALSE(one.member.may_deliver());
  one.cluster.without_leader = {{"o.delayed", 0}};
  one.steps(20);
  CHECK_FALSE(one.member.may_deliver());
  one.cluster.without_leader.clear();
  one.steps(50);
  CHECK(one.member.may_deliver());
  CHECK_FALSE(one.member.is_ready());
  for (int i = 0; i < 20; ++i) {
    one.kafka.now += milliseconds(600);
    one.step();
  }
  for (const auto& each : one.member.status().partitions) CHECK(each.stage != Stage::owned);
  CHECK(one.member.may_deliver());
}

TEST_CASE("no member is fenced because Kafka is slow to say whether an offset is stable") {
  OneMember one;
  one.kafka.committed[{"o.delayed", 0}] = {true, false, 0, "g-other"};
  one.cluster.offsets_come_late = true;
  one.steps(500);
  CHECK(one.cluster.settled == 0);
  CHECK_FALSE(one.member.is_ready());
  one.cluster.offsets_come_late = false;
  one.steps(20);
  CHECK(one.cluster.settled == 0);
  CHECK(one.member.is_ready());
}

TEST_CASE("a source without a committed offset waits while its state topic has rows") {
  OneMember one;
  ProducerRecord row;
  row.key.emplace();
  one.kafka.append({"g-pending-o.delayed", 0}, std::move(row), -1);
  one.send({"o.delayed", 0}, "x");
  one.steps(50);
  CHECK(one.in("o") == "");
  CHECK(one.member.status().stalled.contains("has no committed offset"));
}

TEST_CASE("a partition with a row of a newer version is not owned") {
  OneMember one;
  ProducerRecord row;
  row.key.emplace();
  append_bytes(*row.key, as_bytes(handle_of({"o.delayed", 0}, 7)));
  row.value.emplace(30, std::uint8_t{9});
  one.kafka.append({"g-pending-o.delayed", 0}, std::move(row), -1);
  one.kafka.committed[{"o.delayed", 0}] = {true, false, 0, ""};
  one.send({"o.delayed", 0}, "x");
  one.steps(50);
  CHECK(one.in("o") == "");
  CHECK(one.member.status().stalled.contains("newer"));
}

TEST_CASE("a member polls again soon though it begins many warm copies and each answer is slow") {
  OneMember one(std::vector<Source>{});
  one.steps(3);
  one.cluster.answer_takes = milliseconds(700);
  std::vector<Source> wanted;
  for (PartitionIndex i = 0; i < 20; ++i) wanted.push_back({"o.delayed", i});
  one.member.keep_warm(wanted);
  one.steps(10);
  CHECK(one.cluster.longest_turn <= milliseconds(3'800));
  one.steps(20);
  CHECK(one.member.status().standby == 20);
}

TEST_CASE(
    "after an abort that failed fatally a member tries to replace its producers until it succeeds, "
    "says why it is stalled, and goes on") {
  OneMember one;
  one.steps(20);
  one.cluster.answer_is_lost = true;
  one.cluster.renewals_refused = 3;
  one.send({"o.delayed", 0}, "a", {{"x-delay", "1"}});
  one.steps(2);
  CHECK(one.member.status().stalled == "INVALID_TXN_STATE");
  for (int i = 0; i < 100 && one.cluster.renewals_refused > 0; ++i) one.step();
  CHECK(one.member.status().stalled == "no new producers");
  CHECK(one.member.status().stalled_for >= std::chrono::seconds(1));
  CHECK(one.in("o").empty());
  // The back-off of new producers is shorter than that of other failures.
  one.steps(200);
  CHECK(one.in("o") == "a");
  CHECK(one.member.status().stalled.empty());
  CHECK(one.member.status().stalled_for == std::chrono::seconds(0));
  CHECK(one.member.status().renewed == 1);
}

TEST_CASE("while Kafka does not answer, the status says what it was asked and for how long") {
  OneMember one;
  one.steps(20);
  MemberStatus soon, late;
  one.cluster.inside_transaction = [&] {
    one.kafka.now += milliseconds(1'000);
    soon = one.member.status();
    one.kafka.now += milliseconds(6'000);
    late = one.member.status();
    one.cluster.inside_transaction = {};
  };
  one.send({"o.delayed", 0}, "a", {{"x-delay", "1"}});
  one.steps(2);
  CHECK(soon.stalled.empty());
  CHECK(late.stalled == "Kafka was asked to commit a transaction and has not answered for 7 s");
  CHECK(late.stalled_for == std::chrono::seconds(7));
  one.steps(20);
  CHECK(one.member.status().stalled.empty());
  CHECK(one.in("o") == "a");
}

TEST_CASE("an idle member asks the group after a stall whether it is still in it, and only then") {
  OneMember one;
  one.steps(20);
  const auto offsets = [&] { return one.kafka.transactions.size(); };
  const auto before = offsets();
  one.steps(100);
  CHECK(offsets() == before);
  one.kafka.now += milliseconds(3'000);
  one.steps(100);
  CHECK(offsets() == before + 1);
}

}  // namespace tarry::relay
