// Which committed offsets and ends of its sources a member believes.

#include <doctest/doctest.h>

#include <string>

#include "base/log.h"
#include "tests/captured_log.h"
#include "tests/relay/one_member.h"

namespace tarry::relay {

TEST_CASE("an owner does not wait for an end that Kafka has lost in an outage") {
  OneMember one;
  const Source source{"o.delayed", 0};
  one.cluster.end_is_ahead_by = 100;
  one.send(source, "a", {{"x-delay", "1"}});
  one.steps(50);
  CHECK(one.in("o") == "");
  one.cluster.end_is_ahead_by = 0;
  one.steps(300);
  CHECK(one.in("o") == "a");
  CHECK(one.member.is_ready());
}

TEST_CASE("a stale offset of the coordinator delivers nothing again") {
  OneMember one;
  const Source source{"o.delayed", 0};
  one.send(source, "a");
  one.steps(20);
  one.send(source, "b");
  one.steps(20);
  REQUIRE(one.in("o") == "a b");
  one.cluster.old_offset = 1;
  one.send(source, "c");
  one.cluster.answer_is_lost = true;
  one.steps(200);
  CHECK(one.in("o") == "a b");
  CHECK_FALSE(one.member.is_ready());
  const std::string why = one.member.status().stalled;
  CAPTURE(why);
  CHECK(why.contains("is 1, but 2 was committed before"));
  one.cluster.old_offset.reset();
  one.steps(700);
  CHECK(one.in("o") == "a b c");
  CHECK(one.member.is_ready());
}

TEST_CASE(
    "a restarted member knows by its store that an offset is stale, and accepts it without the "
    "store") {
  const Source source{"o.delayed", 0};
  KafkaModel kafka{{}};
  kafka.targets[source] = -1;
  MemoryRows store;
  {
    OneMember one({source}, Limits{}.pending_bytes, &kafka, &store, 1);
    for (const char* value : {"a", "b"}) {
      one.send(source, value);
      one.steps(20);
    }
    REQUIRE(one.in("o") == "a b");
    kafka.leave(1);
  }
  kafka.committed[source].next = 1;
  {
    OneMember one({source}, Limits{}.pending_bytes, &kafka, &store, 2);
    one.steps(50);
    CHECK(one.in("o") == "a b");
    CHECK_FALSE(one.member.is_ready());
    const std::string why = one.member.status().stalled;
    CAPTURE(why);
    CHECK(why.contains("is 1, but 2 was committed before"));
    CHECK(why.contains("set this offset to 2 or more"));
    CHECK(why.contains("restart that broker"));
    kafka.leave(2);
  }
  store.empty();
  OneMember one({source}, Limits{}.pending_bytes, &kafka, &store, 3);
  one.steps(50);
  CHECK(one.in("o") == "a b b");
}

TEST_CASE(
    "while the end of its source is unknown, a stale offset is not blamed on the coordinator") {
  OneMember one;
  const Source source{"o.delayed", 0};
  for (const char* value : {"a", "b"}) {
    one.send(source, value);
    one.steps(20);
  }
  REQUIRE(one.in("o") == "a b");
  one.cluster.old_offset = 1;
  one.cluster.without_leader = {source};
  one.cluster.answer_is_lost = true;
  one.send(source, "c");
  one.steps(50);
  const std::string why = one.member.status().stalled;
  CAPTURE(why);
  CHECK(why.contains("the leader of o.delayed-0 does not answer"));
  CHECK_FALSE(why.contains("coordinator"));
  CHECK(one.in("o") == "a b");
  one.cluster.old_offset.reset();
  one.cluster.without_leader.clear();
  one.steps(700);
  CHECK(one.in("o") == "a b c");
}

TEST_CASE("a stale offset is shown, and logged once, while other partitions go on") {
  const Source source{"o.delayed", 0}, other{"p.delayed", 0};
  KafkaModel kafka{{}};
  kafka.targets[source] = -1;
  MemoryRows store;
  {
    OneMember one({source}, Limits{}.pending_bytes, &kafka, &store, 1);
    for (const char* value : {"a", "b"}) {
      one.send(source, value);
      one.steps(20);
    }
    REQUIRE(one.in("o") == "a b");
    kafka.leave(1);
  }
  kafka.committed[source].next = 1;
  kafka.targets.erase(source);
  kafka.granted.erase(source);
  OneMember one({other}, Limits{}.pending_bytes, &kafka, &store, 2);
  one.steps(20);
  REQUIRE(one.member.is_ready());
  CapturedLog log;
  set_log_level(LogLevel::warn);
  kafka.targets[source] = -1;
  kafka.rebalance();
  for (int i = 0; i < 600; ++i) {
    one.send(other, std::to_string(i));
    one.step();
  }
  CHECK(one.in("p").ends_with("598 599"));
  CHECK(one.in("o") == "a b");
  const auto status = one.member.status();
  REQUIRE(status.partitions.size() == 2);
  CHECK(status.partitions[0].waits.contains("but 2 was committed"));
  CHECK(status.partitions[1].waits == "");
  CHECK(status.stalled == status.partitions[0].waits);
  CHECK(log.count("no partition can be taken over") == 1);
}

TEST_CASE("the offset of a source that was recreated is accepted") {
  const Source source{"o.delayed", 0};
  const Source other{"p.delayed", 0};
  OneMember one({source, other});
  one.send(source, "a");
  one.steps(20);
  one.send(source, "b");
  one.steps(20);
  REQUIRE(one.in("o") == "a b");
  one.kafka.logs.erase({source.topic, source.partition});
  one.kafka.ends.erase({source.topic, source.partition});
  one.cluster.old_offset = 0;
  one.send(other, "c");
  one.cluster.answer_is_lost = true;
  one.steps(200);
  CHECK(one.in("p") == "c");
  CHECK(one.member.status().stalled.empty());
}

TEST_CASE(
    "an offset that was accepted is accepted again, whatever has become of the source since") {
  const Source source{"o.delayed", 0};
  KafkaModel kafka{{}};
  kafka.targets[source] = -1;
  MemoryRows store;
  {
    OneMember one({source}, Limits{}.pending_bytes, &kafka, &store, 1);
    for (const char* value : {"a", "b"}) {
      one.send(source, value);
      one.steps(20);
    }
    REQUIRE(one.in("o") == "a b");
    kafka.leave(1);
  }
  // The topic is made again, and the group begins with it.
  kafka.logs.erase({source.topic, source.partition});
  kafka.ends.erase({source.topic, source.partition});
  kafka.committed[source].next = 0;
  OneMember one({source}, Limits{}.pending_bytes, &kafka, &store, 2);
  one.cluster.rows_away = {source};
  one.steps(10);
  CHECK(one.member.status().stalled == "the leader of the rows is away");
  // It is as long as the one before when it is asked for again.
  for (const char* value : {"c", "d", "e"}) one.send(source, value);
  one.cluster.rows_away.clear();
  one.steps(200);
  CHECK(one.in("o") == "a b c d e");
  CHECK(one.member.status().stalled == "");
  CHECK(one.member.is_ready());
}

TEST_CASE("a source that ends before what was read of it is not taken for the one that was read") {
  const Source source{"o.delayed", 0}, other{"p.delayed", 0};
  KafkaModel kafka{{}};
  for (const auto& each : {source, other}) kafka.targets[each] = -1;
  MemoryRows store;
  const std::string why = "o.delayed-0: it ends at offset 1, but was read up to 2";
  {
    OneMember one({source, other}, Limits{}.pending_bytes, &kafka, &store, 1);
    for (const char* value : {"a", "b"}) {
      one.send(source, value);
      one.steps(20);
    }
    REQUIRE(one.in("o") == "a b");
    one.cluster.earlier_end = 1;
    one.step();
    one.cluster.earlier_end.reset();
    one.send(source, "c");
    one.send(other, "d");
    // It stays so, also when all are taken over again.
    one.cluster.answer_is_lost = true;
    one.steps(200);
    CHECK(one.in("o") == "a b");
    CHECK(one.in("p") == "d");
    CHECK(one.member.status().stalled.starts_with(why));
    kafka.leave(1);
  }
  OneMember one({source, other}, Limits{}.pending_bytes, &kafka, &store, 2);
  one.cluster.earlier_end = 1;
  one.cluster.unfetched = {source};
  one.steps(50);
  CHECK(one.in("o") == "a b");
  CHECK(one.member.status().stalled.starts_with(why));
  CHECK_FALSE(one.member.is_ready());
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
