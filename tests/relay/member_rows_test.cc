// The rows of a state topic: warm copies of them, and those that a member has in its store.

#include <doctest/doctest.h>

#include <chrono>
#include <utility>
#include <vector>

#include "tests/relay/one_member.h"

namespace tarry::relay {
namespace {

// A member without partitions; another member has written the row of a pending record.
struct RowOfAnother {
  RowOfAnother() {
    one.steps(3);
    other.send(source, "x", {{"x-delay", "1h"}});
    other.steps(10);
    one.kafka.append(rows, other.kafka.logs[rows].front().record, -1);
    one.kafka.committed[source] = {true, false, 1, ""};
  }

  const Source source{"o.delayed", 0};
  const KafkaModel::Log rows{"g-pending-o.delayed", 0};
  OneMember one{std::vector<Source>{}};
  OneMember other;
};

}  // namespace

TEST_CASE("a warm copy is read again when its partition is assigned after a stall") {
  RowOfAnother written;
  OneMember& one = written.one;
  const Source& source = written.source;
  const KafkaModel::Log& rows = written.rows;
  one.member.keep_warm({source});
  one.steps(5);
  REQUIRE(one.member.status().standby == 1);
  // While it stands still the record is cancelled, and row and tombstone are compacted away.
  one.kafka.now += std::chrono::hours(30);
  one.kafka.logs[rows].clear();
  ++one.kafka.ends[rows];
  one.kafka.targets[source] = -1;
  one.kafka.rebalance();
  one.steps(50);
  REQUIRE(one.member.is_ready());
  CHECK(one.member.status().pending() == 0);
  CHECK(one.in("o") == "");
}

TEST_CASE("a warm copy whose first read took longer than tombstones stay is read again") {
  for (const bool is_assigned_before_the_end : {true, false}) {
    RowOfAnother written;
    OneMember& one = written.one;
    const Source& source = written.source;
    const KafkaModel::Log& rows = written.rows;
    one.cluster.rows_have_no_end = true;
    one.member.keep_warm({source});
    one.steps(5);
    // Row and tombstone are compacted away while it reads others.
    one.kafka.logs[rows].clear();
    ++one.kafka.ends[rows];
    for (int i = 0; i < 61 * 120; ++i) {
      one.kafka.now += milliseconds(480);
      one.step();
    }
    CHECK(one.member.status().standby == 0);
    one.cluster.rows_have_no_end = false;
    if (!is_assigned_before_the_end) one.steps(5);
    one.kafka.targets[source] = -1;
    one.kafka.rebalance();
    one.steps(50);
    REQUIRE(one.member.is_ready());
    CHECK(one.member.status().pending() == 0);
    CHECK(one.in("o") == "");
  }
}

TEST_CASE(
    "a warm copy whose leader was unavailable for longer than tombstones stay is read again") {
  for (const bool is_assigned_at_once : {true, false}) {
    RowOfAnother written;
    OneMember& one = written.one;
    const Source& source = written.source;
    const KafkaModel::Log& rows = written.rows;
    one.member.keep_warm({source});
    one.steps(5);
    REQUIRE(one.member.status().standby == 1);
    one.cluster.rows_away = {source};
    // Row and tombstone are compacted away meanwhile.
    one.kafka.logs[rows].clear();
    ++one.kafka.ends[rows];
    for (int i = 0; i < 61 * 120; ++i) {
      one.kafka.now += milliseconds(480);
      one.step();
    }
    CHECK(one.member.status().standby == 0);
    one.cluster.rows_away.clear();
    if (!is_assigned_at_once) {
      one.steps(600);
      CHECK(one.member.status().standby == 1);
    }
    one.kafka.targets[source] = -1;
    one.kafka.rebalance();
    one.steps(50);
    REQUIRE(one.member.is_ready());
    CHECK(one.member.status().pending() == 0);
    CHECK(one.in("o") == "");
  }
}

TEST_CASE("a warm copy of a state topic that was recreated is not used") {
  RowOfAnother written;
  OneMember& one = written.one;
  const Source& source = written.source;
  const KafkaModel::Log& rows = written.rows;
  one.member.keep_warm({source});
  one.steps(5);
  REQUIRE(one.member.status().standby == 1);
  one.kafka.logs.erase(rows);
  one.kafka.ends.erase(rows);
  one.kafka.targets[source] = -1;
  one.kafka.rebalance();
  one.steps(50);
  REQUIRE(one.member.is_ready());
  CHECK(one.member.status().pending() == 0);
}

TEST_CASE("a warm copy for which nothing comes is kept as long as its end is known") {
  OneMember one(std::vector<Source>{});
  const Source source{"o.delayed", 0};
  one.member.keep_warm({source});
  one.steps(5);
  REQUIRE(one.member.status().standby == 1);
  one.cluster.rows_have_no_end = true;
  for (int i = 0; i < 150 * 120; ++i) {
    one.kafka.now += milliseconds(480);
    one.step();
  }
  CHECK(one.member.status().standby == 1);
}

TEST_CASE("a warm copy is read again when the clock was set back further than tombstones stay") {
  OneMember one(std::vector<Source>{});
  const Source source{"o.delayed", 0};
  one.member.keep_warm({source});
  one.steps(5);
  REQUIRE(one.member.status().standby == 1);
  one.cluster.rows_have_no_end = true;
  one.set_clock(-std::chrono::hours(2));
  one.steps(5);
  CHECK(one.member.status().standby == 0);
  one.cluster.rows_have_no_end = false;
  one.steps(5);
  CHECK(one.member.status().standby == 1);
}

TEST_CASE("a restarted member reads the rows after those in its store, and no others") {
  KafkaModel kafka{{}};
  kafka.targets[{"o.delayed", 0}] = -1;
  MemoryRows store;
  Offset first = -1;
  for (int incarnation = 1; incarnation <= 3; ++incarnation) {
    OneMember one({{"o.delayed", 0}}, Limits{}.pending_bytes, &kafka, &store, incarnation);
    one.steps(20);
    const Offset from = one.cluster.rows_from.at({"o.delayed", 0});
    if (incarnation == 1) CHECK(from == 0);
    if (incarnation > 1) CHECK(from == first);
    one.kafka.append({"o.delayed", 0}, one.record("a", {{"x-delay", "1h"}}), -1);
    one.steps(20);
    CHECK(one.member.status().pending() == static_cast<std::size_t>(incarnation));
    first = kafka.stable_end({"g-pending-o.delayed", 0}) - 1;  // Behind it is the marker.
    kafka.leave(incarnation);
  }
  // A row of an hour ago may have been cancelled, and its tombstone compacted away.
  kafka.now += std::chrono::minutes(50);
  kafka.logs[{"g-pending-o.delayed", 0}].clear();
  OneMember one({{"o.delayed", 0}}, Limits{}.pending_bytes, &kafka, &store, 4);
  one.steps(20);
  CHECK(one.cluster.rows_from.at({"o.delayed", 0}) == 0);
  CHECK(one.member.status().pending() == 0);
}

TEST_CASE("after a crash a quiet member does not read all rows, however long it was quiet") {
  KafkaModel kafka{{}};
  kafka.targets[{"o.delayed", 0}] = -1;
  MemoryRows store;
  store.max_unflushed = 10'000;
  {
    OneMember one({{"o.delayed", 0}}, Limits{}.pending_bytes, &kafka, &store, 1);
    one.steps(20);
    one.send({"o.delayed", 0}, "a", {{"x-delay", "90d"}});
    one.steps(20);
    for (int minute = 0; minute < 120; ++minute) {
      // Of a poll and nothing else.
      for (int second = 0; second < 150; ++second) {
        kafka.now += milliseconds(380);
        one.step();
      }
    }
    kafka.leave(1);
  }
  store.crash([](std::size_t) { return std::size_t{0}; });
  OneMember one({{"o.delayed", 0}}, Limits{}.pending_bytes, &kafka, &store, 2);
  one.steps(20);
  CHECK(one.cluster.rows_from.at({"o.delayed", 0}) > 0);
  CHECK(one.member.status().pending() == 1);
}

}  // namespace tarry::relay
