#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "records/batch_builder.h"
#include "relay/partition.h"
#include "tests/relay/memory_rows.h"

namespace tarry::relay {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

const WallTime begin_time = from_ms(1'800'000'000'000);
WallTime after(std::int64_t ms) {
  return begin_time + std::chrono::milliseconds(ms);
}

SourceRecord source_record(Offset offset, const Fields& headers, std::string value = "v",
                           WallTime timestamp = begin_time) {
  SourceRecord record{offset, timestamp, {}};
  records::append_key_value(record.body, as_bytes("k"), as_bytes(value));
  records::append_varint(record.body, static_cast<std::int64_t>(headers.size()));
  for (const auto& [name, text] : headers)
    records::append_header(record.body, name, as_bytes(text));
  return record;
}

std::string text_in(const std::optional<Buffer>& bytes) {
  return bytes ? std::string(bytes->begin(), bytes->end()) : "null";
}

// The effects of a Work, a word each: "row:3", "gone:3", "orders:v", "orders.delayed.invalid:v".
std::string summary(const Work& work) {
  std::string text;
  for (const auto& record : work.records) {
    if (!text.empty()) text += ' ';
    if (record.kind == ProducerRecord::Kind::row) {
      text += (record.value ? "row:" : "gone:") + std::to_string(record.offset);
    } else {
      text += record.topic + ":" + text_in(record.value);
    }
  }
  return text;
}

std::string header_of(const ProducerRecord& record, std::string_view name) {
  for (const auto& header : record.headers)
    if (header.name == name) return text_in(header.value);
  return "none";
}

struct OnePartition {
  explicit OnePartition(Rules with = {"relay", "", false}) : rules(std::move(with)) {
    partition.begin(0, begin_time);
  }
  Work plan(WallTime now, bool may_deliver = true) {
    return partition.plan(now, may_deliver, limits);
  }
  // As if the transaction was committed.
  std::string commit(WallTime now, bool may_deliver = true) {
    Work work = plan(now, may_deliver);
    std::string text = summary(work);
    partition.apply(std::move(work));
    return text;
  }

  Rules rules;
  Limits limits{};
  MemoryRows store;
  Partition partition{{"orders.delayed", 3}, rules, store};
};

}  // namespace

TEST_CASE("a delayed record gets a row, is delivered when it is due, and its row is removed") {
  OnePartition one;
  one.partition.arrive(source_record(7, {{"x-delay", "1000"}, {"mine", "1"}}));
  CHECK(one.commit(after(10)) == "row:7");
  CHECK(one.commit(after(999)) == "");
  const Work work = one.plan(after(1'000));
  CHECK(summary(work) == "orders:v gone:7");
  const auto& delivered = work.records.front();
  CHECK(header_of(delivered, "mine") == "1");
  CHECK(header_of(delivered, "x-delay") == "none");
  CHECK(header_of(delivered, "x-scheduled-for") == std::to_string(to_ms(after(1'000))));
  CHECK(header_of(delivered, "x-schedule-handle") == "@orders.delayed-3-7");
  CHECK(delivered.timestamp == after(1'000));
  CHECK(work.next == 8);
}

TEST_CASE("x-delay counts from the record's timestamp, however late the record is read") {
  OnePartition one;
  one.partition.arrive(source_record(0, {{"x-delay", "5m"}}));
  CHECK(one.commit(after(600'000)) == "orders:v");
}

TEST_CASE("a plan that is not committed changes nothing, and the next one is the same") {
  OnePartition one;
  one.partition.arrive(source_record(0, {{"x-delay", "10"}}));
  CHECK(summary(one.plan(after(0))) == "row:0");
  CHECK(summary(one.plan(after(0))) == "row:0");
  CHECK(one.partition.pending().size() == 0);
}

TEST_CASE("a record that may not be delivered yet gets a row, though it is due") {
  OnePartition one;
  one.partition.arrive(source_record(0, {}));
  CHECK(one.commit(after(5), false) == "row:0");
  CHECK(one.commit(after(5)) == "orders:v gone:0");
}

TEST_CASE("a record without a schedule is delivered with its own headers and timestamp") {
  OnePartition one;
  one.partition.arrive(source_record(0, {{"x-schedule-id", "a"}, {"mine", "1"}}));
  const Work work = one.plan(after(5));
  REQUIRE(work.records.size() == 1);
  CHECK(work.records[0].headers.size() == 2);
  CHECK(work.records[0].timestamp == begin_time);
}

TEST_CASE("a cancellation removes the row of the record with its id, and is not delivered") {
  OnePartition one;
  one.partition.arrive(source_record(0, {{"x-delay", "1000"}, {"x-schedule-id", "a"}}));
  CHECK(one.commit(after(0)) == "row:0");
  one.partition.arrive(source_record(1, {{"x-schedule-id", "a"}, {"x-schedule-action", "cancel"}}));
  CHECK(one.commit(after(1)) == "gone:0");
  CHECK(one.commit(after(9'000)) == "");
}

TEST_CASE("a cancellation counts for a record of the same transaction, also for one that is due") {
  OnePartition one;
  one.partition.arrive(source_record(0, {{"x-delay", "1"}, {"x-schedule-id", "a"}}));
  one.partition.arrive(source_record(1, {{"x-schedule-id", "a"}, {"x-schedule-action", "cancel"}}));
  CHECK(one.commit(after(50)) == "");
  CHECK(one.partition.next() == 2);
}

TEST_CASE("a record with the id of a pending one replaces it in the same transaction") {
  OnePartition one;
  one.partition.arrive(source_record(0, {{"x-delay", "1000"}, {"x-schedule-id", "a"}}, "old"));
  CHECK(one.commit(after(0)) == "row:0");
  one.partition.arrive(source_record(1, {{"x-delay", "2000"}, {"x-schedule-id", "a"}}, "new"));
  CHECK(one.commit(after(1)) == "gone:0 row:1");
  CHECK(one.commit(after(9'000)) == "orders:new gone:1");
}

TEST_CASE("an invalid record goes to NAME.invalid as it came, with the reason") {
  OnePartition one;
  one.partition.arrive(source_record(0, {{"x-delay", "soon"}}));
  const Work work = one.plan(after(0));
  REQUIRE(summary(work) == "orders.delayed.invalid:v");
  CHECK(header_of(work.records[0], "x-delay") == "soon");
  CHECK(header_of(work.records[0], "x-error").starts_with("x-delay: \"soon\""));
  CHECK(work.records[0].partition == 3);
}

TEST_CASE("a record whose timestamp is the largest number is invalid if anything counts from it") {
  for (const auto& [name, value] : Fields{{"x-every", "1s"}, {"x-delay", "5000"}}) {
    OnePartition one;
    one.partition.arrive(source_record(0, {{name, value}}, "v", WallTime::max()));
    const Work work = one.plan(after(0));
    REQUIRE(summary(work) == "orders.delayed.invalid:v");
    CHECK(header_of(work.records[0], "x-error").contains("after the year 9999"));
    CHECK(!header_of(work.records[0], "x-error").contains("would be due"));
  }
  OnePartition one;
  one.partition.arrive(source_record(0, {}, "v", WallTime::max()));
  CHECK(one.commit(after(0)) == "orders:v");
}

TEST_CASE("x-deliver-to counts if the operator allows the topic, and is removed") {
  OnePartition closed;
  closed.partition.arrive(source_record(0, {{"x-deliver-to", "shop"}}));
  CHECK(closed.commit(after(0)) == "orders.delayed.invalid:v");
  OnePartition open({"relay", "sh*", false});
  open.partition.arrive(source_record(0, {{"x-deliver-to", "shop"}}));
  open.partition.arrive(source_record(1, {{"x-deliver-to", "sh/op"}}));
  const Work work = open.plan(after(0));
  CHECK(summary(work) == "orders.delayed.invalid:v shop:v");
  CHECK(header_of(work.records[1], "x-deliver-to") == "none");
}

TEST_CASE(
    "no record is delivered to a topic of Kafka or of a relay, whatever the operator allows") {
  OnePartition one({"relay", "*", false});
  one.partition.arrive(source_record(0, {{"x-deliver-to", "relay-pending-orders.delayed"}}));
  one.partition.arrive(source_record(1, {{"x-deliver-to", "__consumer_offsets"}}));
  CHECK(one.commit(after(0)) == "orders.delayed.invalid:v orders.delayed.invalid:v");
}

TEST_CASE(
    "records are delivered in the order of their due times, and of the source for the same due "
    "time") {
  OnePartition one;
  one.partition.arrive(source_record(0, {{"x-delay", "30"}}, "c"));
  one.partition.arrive(source_record(1, {{"x-delay", "10"}}, "a"));
  one.partition.arrive(source_record(2, {{"x-delay", "30"}}, "d"));
  one.partition.arrive(source_record(3, {{"x-delay", "20"}}, "b"));
  one.commit(after(0), false);
  CHECK(one.commit(after(100)).starts_with("orders:a orders:b orders:c orders:d"));
}

TEST_CASE("while records stay behind, only what was due before them is delivered") {
  OnePartition one;
  one.partition.arrive(source_record(0, {{"x-delay", "10"}, {"x-schedule-id", "a"}}, "a"));
  one.partition.arrive(source_record(1, {{"x-delay", "50"}, {"x-schedule-id", "b"}}, "b"));
  one.commit(after(0), false);
  one.limits.arrivals = 1;
  one.partition.arrive(source_record(2, {{"x-delay", "1h"}}, "other", after(40)));
  one.partition.arrive(
      source_record(3, {{"x-schedule-id", "b"}, {"x-schedule-action", "cancel"}}, "", after(40)));
  CHECK(one.commit(after(100)) == "orders:a gone:0 row:2");
  CHECK(one.commit(after(100)) == "gone:1");
}

TEST_CASE(
    "records that stay behind came after the fetch before them, whatever their timestamps say") {
  OnePartition one;
  one.partition.arrive(source_record(0, {{"x-delay", "10"}, {"x-schedule-id", "a"}}, "a"));
  one.partition.arrive(source_record(1, {{"x-delay", "50"}, {"x-schedule-id", "b"}}, "b"));
  one.commit(after(0), false);
  one.limits.arrivals = 1;
  // The producer's clock is ahead.
  one.partition.arrive(source_record(2, {{"x-delay", "1h"}}, "other", after(9'000)), after(40));
  one.partition.arrive(
      source_record(3, {{"x-schedule-id", "b"}, {"x-schedule-action", "cancel"}}, "", after(9'000)),
      after(40));
  CHECK(one.commit(after(100)) == "orders:a gone:0 row:2");
  CHECK(one.commit(after(100)) == "gone:1");
}

TEST_CASE(
    "arrived records count with the memory that they take, and no more when they are taken in") {
  OnePartition one;
  const std::size_t small = source_record(0, {}).body.size();
  for (Offset i = 0; i < 100; ++i) one.partition.arrive(source_record(i, {}));
  CHECK(one.partition.arrived_bytes() >= 100 * (sizeof(SourceRecord) + small));
  one.commit(after(0));
  CHECK(one.partition.arrived_bytes() == 0);
  one.partition.arrive(source_record(100, {}));
  one.partition.begin(101, after(0));
  CHECK(one.partition.arrived_bytes() == 0);
}

TEST_CASE("a work that grows sends each record once, in order, and has a row for what stays") {
  OnePartition one;
  one.partition.arrive(source_record(0, {{"x-delay", "10"}}, "a"));
  one.partition.arrive(source_record(1, {{"x-delay", "30"}}, "b"));
  one.commit(after(0));
  Work work;
  one.partition.extend(work, after(10), true, one.limits);
  CHECK(summary(work) == "orders:a");
  CHECK(one.partition.next_due(work) == after(30));
  // One that is due before the next of those that are pending, and one that stays.
  one.partition.arrive(source_record(2, {{"x-delay", "20"}}, "c"));
  one.partition.arrive(source_record(3, {{"x-delay", "1h"}}, "d"));
  one.partition.extend(work, after(15), true, one.limits);
  CHECK(summary(work) == "orders:a");
  CHECK(one.partition.next_due(work) == after(20));
  one.partition.extend(work, after(30), true, one.limits);
  one.partition.extend(work, after(40), true, one.limits);
  CHECK(summary(work) == "orders:a orders:c orders:b");
  CHECK(one.partition.next_due(work) == after(3'600'000));
  CHECK(work.counts.delivered == 3);
  CHECK(work.counts.taken == 2);
  CHECK(work.next == 4);
  one.partition.add_rows(work, work.records);
  CHECK(summary(work) == "orders:a orders:c orders:b gone:0 gone:1 row:3");
  one.partition.apply(std::move(work));
  CHECK(one.partition.pending().size() == 1);
  CHECK(one.partition.arrived() == 0);
  CHECK(one.commit(after(50)) == "");
}

TEST_CASE("in a work that grows a cancellation finds gone what was sent, and removes the rest") {
  OnePartition one;
  const Fields cancel_a{{"x-schedule-id", "a"}, {"x-schedule-action", "cancel"}};
  const Fields cancel_b{{"x-schedule-id", "b"}, {"x-schedule-action", "cancel"}};
  one.partition.arrive(source_record(0, {{"x-delay", "10"}, {"x-schedule-id", "a"}}, "a"));
  one.partition.arrive(source_record(1, {{"x-delay", "20"}, {"x-schedule-id", "b"}}, "b"));
  one.commit(after(0));
  Work work;
  one.partition.extend(work, after(10), true, one.limits);
  one.partition.arrive(source_record(2, cancel_a));
  one.partition.arrive(source_record(3, cancel_b));
  const Order order{Order::Kind::cancel, "a"};
  const std::vector<const Order*> orders{&order};
  one.partition.extend(work, after(20), true, one.limits, orders);
  CHECK(work.counts.cancelled == 1);
  REQUIRE(work.answers.size() == 1);
  REQUIRE(work.answers[0].told);
  CHECK(work.answers[0].told->outcome == delay::ControlOutcome::already_delivered);
  one.partition.add_rows(work, work.records);
  CHECK(summary(work) == "orders:a gone:0 gone:1");
}

TEST_CASE("a work that grows is bounded as a whole in arrivals, and by its part in deliveries") {
  OnePartition one;
  for (Offset i = 0; i < 6; ++i)
    one.partition.arrive(source_record(i, {{"x-delay", "10"}}, std::to_string(i)));
  one.limits.arrivals = 4;
  Work work;
  one.partition.extend(work, after(0), true, one.limits);
  CHECK(work.taken == 4);
  CHECK(work.is_cut_short);
  Limits left = one.limits;
  left.arrivals = 1;
  left.deliveries = 2;
  one.partition.extend(work, after(0), true, left);
  CHECK(work.taken == 5);
  left.arrivals = 1;
  one.partition.extend(work, after(20), true, left);
  CHECK(work.taken == 6);
  CHECK(summary(work) == "orders:0 orders:1");
  CHECK(work.is_cut_short);
  one.partition.extend(work, after(20), true, one.limits);
  CHECK(summary(work) == "orders:0 orders:1 orders:2 orders:3 orders:4 orders:5");
  CHECK_FALSE(work.is_cut_short);
}

TEST_CASE("a work that grows sends no more bytes than one that is planned at once") {
  OnePartition one;
  for (Offset i = 0; i < 30; ++i)
    one.partition.arrive(
        source_record(i, {{"x-delay", std::to_string(10 * (i + 1))}}, std::string(1'000, 'v')));
  one.commit(after(0));
  one.limits.bytes = 10'000;
  Work work;
  // As Member::limits_left() counts it.
  for (int ms = 10; ms <= 300; ms += 10) {
    Limits left = one.limits;
    left.bytes -= std::min(left.bytes, work.bytes);
    one.partition.extend(work, after(ms), true, left);
    if (work.is_cut_short) break;
  }
  CHECK(work.is_cut_short);
  CHECK(work.counts.delivered >= 9);
  CHECK(work.bytes < 2 * one.limits.bytes + 2'000);
}

TEST_CASE("no order is told that it cancelled or moved a record that may be at its target") {
  OnePartition one;
  one.partition.arrive(source_record(0, {{"x-delay", "10"}, {"x-schedule-id", "a"}}, "a"));
  one.partition.arrive(source_record(1, {{"x-delay", "10"}, {"x-schedule-id", "b"}}, "b"));
  one.commit(after(0));
  one.partition.note_sent(0);
  const Order order{Order::Kind::cancel, "a"};
  const Order other{Order::Kind::cancel, "b"};
  const std::vector<const Order*> orders{&order, &other};
  Work work = one.partition.plan(after(5), true, one.limits, orders);
  CHECK(summary(work) == "gone:0 gone:1");
  REQUIRE(work.answers.size() == 2);
  REQUIRE_FALSE(work.answers[0].told);
  CHECK(work.answers[0].told.error().code == Errc::io);
  CHECK(work.answers[1].told);
  // Behind the commit nothing is in doubt.
  one.partition.note_sent(1);
  one.partition.apply(std::move(work));
  one.partition.arrive(source_record(2, {{"x-delay", "10"}, {"x-schedule-id", "a"}}, "a"));
  one.commit(after(0));
  CHECK(one.partition.plan(after(5), true, one.limits, orders).answers[0].told);
}

TEST_CASE("a record for a target that is not prepared cuts a work short, with all behind it") {
  OnePartition one({"relay", "*", false});
  one.partition.arrive(source_record(0, {{"x-delay", "10"}}, "a"));
  one.partition.arrive(source_record(1, {{"x-delay", "20"}, {"x-deliver-to", "new"}}, "b"));
  one.partition.arrive(source_record(2, {{"x-delay", "30"}}, "c"));
  PreparedTargets prepared;
  prepared.add("orders", one.partition.source());
  one.limits.prepared_targets = &prepared;
  for (const bool is_pending : {false, true}) {
    if (is_pending) one.commit(after(0));
    Work work;
    one.partition.extend(work, after(100), true, one.limits);
    CHECK(summary(work) == "orders:a");
    CHECK(work.is_cut_short);
    Limits any = one.limits;
    any.prepared_targets = nullptr;
    one.partition.extend(work, after(100), true, any);
    CHECK(summary(work) == "orders:a new:b orders:c");
    CHECK_FALSE(work.is_cut_short);
  }
}

TEST_CASE("a recurring record is delivered, and its row has the next run") {
  OnePartition one;
  one.partition.arrive(source_record(0, {{"x-every", "1s"}, {"x-count", "2"}}));
  CHECK(one.commit(after(0)) == "row:0");
  CHECK(one.commit(after(1'000)) == "orders:v row:0");
  CHECK(one.commit(after(1'500)) == "");
  CHECK(one.commit(after(2'000)) == "orders:v gone:0");
}

TEST_CASE("in a work that grows each run of a recurring record leaves once, and it has one row") {
  OnePartition one;
  one.partition.arrive(source_record(0, {{"x-every", "1s"}, {"x-count", "3"}}));
  one.commit(after(0));
  Work work;
  for (const int ms : {1'000, 1'500, 2'000, 2'500}) {
    one.partition.extend(work, after(ms), true, one.limits);
    CHECK(summary(work) == (ms < 2'000 ? "orders:v" : "orders:v orders:v"));
    CHECK(one.partition.next_due(work) == after(ms < 2'000 ? 2'000 : 3'000));
  }
  one.partition.add_rows(work, work.records);
  CHECK(summary(work) == "orders:v orders:v row:0");
  one.partition.apply(std::move(work));
  CHECK(one.commit(after(3'000)) == "orders:v gone:0");
}

TEST_CASE(
    "after the clock was set back each run of a new recurring record is delivered, none early") {
  OnePartition one;
  constexpr std::int64_t hour = 3'600'000;
  one.partition.arrive(source_record(0, {{"x-every", "1s"}}, "tick", after(-hour)));
  CHECK(one.commit(after(-hour)) == "row:0");
  const auto run_at = [&](std::int64_t ms) {
    Work work = one.plan(after(ms));
    REQUIRE(summary(work) == "orders:tick row:0");
    const std::string due = header_of(work.records.front(), "x-scheduled-for");
    one.partition.apply(std::move(work));
    return due;
  };
  CHECK(run_at(1'000 - hour) == std::to_string(to_ms(after(1'000 - hour))));
  // Late, and not missed: the owner was there.
  CHECK(run_at(4'500 - hour) == std::to_string(to_ms(after(2'000 - hour))));
  CHECK(run_at(4'500 - hour) == std::to_string(to_ms(after(3'000 - hour))));
}

TEST_CASE("a record that expires before it can be delivered is dropped") {
  OnePartition one;
  one.partition.arrive(
      source_record(0, {{"x-delay", "10"}, {"x-expire-at", std::to_string(to_ms(after(20)))}}));
  CHECK(one.commit(after(0)) == "row:0");
  CHECK(one.commit(after(20)) == "gone:0");
}

TEST_CASE("a record that its target refuses for good goes to NAME.invalid") {
  OnePartition one;
  one.partition.arrive(source_record(0, {{"x-delay", "10"}}));
  CHECK(one.commit(after(0)) == "row:0");
  one.partition.refuse(0, "orders refuses it: too large");
  const Work work = one.plan(after(10));
  CHECK(summary(work) == "orders.delayed.invalid:v gone:0");
  CHECK(header_of(work.records[0], "x-error") == "orders refuses it: too large");
}

TEST_CASE("the rows of a partition make another owner deliver what the first one would") {
  OnePartition first;
  first.partition.arrive(source_record(0, {{"x-delay", "10"}, {"x-schedule-id", "a"}}, "a"));
  first.partition.arrive(source_record(1, {{"x-every", "1s"}}, "tick"));
  first.partition.arrive(source_record(2, {}, "plain"));
  const Work rows = first.plan(after(0), false);
  OnePartition second;
  for (const auto& row : rows.records)
    REQUIRE(second.partition.load_row(text_in(row.key), row.value, 0).has_value());
  second.partition.loaded(4, after(0));
  second.partition.begin(3, after(0));
  first.partition.apply(first.plan(after(0), false));
  CHECK(second.commit(after(2'000)) == first.commit(after(2'000)));
  CHECK(second.commit(after(3'000)) == first.commit(after(3'000)));
}

TEST_CASE("a row that is damaged, or of another version or partition, is an error and left out") {
  OnePartition one;
  const auto load = [&](std::string_view key, Buffer value) {
    return one.partition.load_row(key, std::move(value), 0).has_value();
  };
  PendingRecord pending;
  CHECK_FALSE(load("@orders.delayed-3-7", {1, 2, 3}));
  CHECK_FALSE(load("@orders.delayed-3-7", encode_row(pending)));  // No body.
  Buffer newer = encode_row(pending);
  newer[0] = 9;
  CHECK_FALSE(load("@orders.delayed-3-7", newer));
  CHECK_FALSE(load("@orders.delayed-2-7", {}));
  OnePartition other;
  other.partition.arrive(source_record(7, {{"x-delay", "10"}}));
  PendingRecord untargeted = *other.plan(after(0)).changes.at(7).record;
  CHECK(load("@orders.delayed-3-7", encode_row(untargeted)));
  one.partition.forget();
  untargeted.target.clear();
  CHECK_FALSE(load("@orders.delayed-3-7", encode_row(untargeted)));
  CHECK_FALSE(load("@orders.delayed-3-x7", {}));
  CHECK(one.partition.pending().size() == 0);
}

TEST_CASE("at the bound of memory nothing is taken in, and due records are delivered") {
  OnePartition one;
  one.partition.arrive(source_record(0, {{"x-delay", "10"}}, "a"));
  one.commit(after(0));
  one.limits.pending_bytes = 1;
  one.partition.arrive(source_record(1, {{"x-delay", "10"}}, "b"));
  CHECK(one.commit(after(5)) == "");
  CHECK(one.commit(after(10)) == "orders:a gone:0");
  CHECK(one.partition.next() == 1);
}

TEST_CASE("records that are read again after a pause are taken once") {
  OnePartition one;
  one.partition.arrive(source_record(0, {}));
  one.partition.arrive(source_record(0, {}));
  CHECK(one.commit(after(0)) == "orders:v");
  one.partition.arrive(source_record(0, {}));
  CHECK(one.commit(after(0)) == "");
}

TEST_CASE("orders count against the bytes of a transaction, and those beyond them wait") {
  OnePartition one;
  const std::string large(60'000, 'x');
  std::vector<Order> orders;
  for (int i = 0; i < 5; ++i) {
    const std::string id(1, static_cast<char>('a' + i));
    one.partition.arrive(source_record(i, {{"x-delay", "1h"}, {"x-schedule-id", id}}, large));
    orders.push_back({.kind = i == 0 ? Order::Kind::move : Order::Kind::deliver,
                      .name = id,
                      .due = std::chrono::milliseconds(1'000)});
  }
  one.commit(after(0));
  std::vector<const Order*> given;
  for (const auto& order : orders) given.push_back(&order);
  one.limits.bytes = 100'000;
  const Work work = one.partition.plan(after(1), true, one.limits, given);
  CHECK(work.answers.size() == 2);
  CHECK(work.bytes >= 120'000);
  CHECK(summary(work) == "orders:" + large + " row:0 gone:1");
  one.limits.bytes = 0;
  CHECK(one.partition.plan(after(1), true, one.limits, given).empty());
}

TEST_CASE(
    "what has just arrived and is due does not overtake records that wait for the next "
    "transaction") {
  OnePartition one;
  // Much is read to walk over them, and little is sent: headers do not count there.
  const std::string large(60'000, 'x');
  for (int i = 0; i < 4; ++i)
    one.partition.arrive(source_record(i, {{"x-delay", std::to_string(100 + i)}, {"h", large}},
                                       std::string(1, "abcd"[i])));
  one.commit(after(0));
  one.partition.arrive(source_record(4, {{"x-delay", "1"}}, "e", after(1'000)));
  one.limits.bytes = 50'000;
  std::string sent;
  for (int i = 0; i < 10; ++i) {
    Work work = one.plan(after(2'000));
    for (const auto& record : work.records)
      if (record.kind == ProducerRecord::Kind::target) sent += text_in(record.value);
    one.partition.apply(std::move(work));
  }
  CHECK(sent == "abcde");
}

TEST_CASE("what one transaction delivers by an order is already delivered for the next order") {
  OnePartition one;
  one.partition.arrive(source_record(0, {{"x-delay", "1h"}, {"x-schedule-id", "a"}}));
  one.commit(after(0));
  const Order deliver{.kind = Order::Kind::deliver, .name = "a"};
  const Order cancel{.kind = Order::Kind::cancel, .name = "a"};
  const std::vector given{&deliver, &cancel};
  const Work work = one.partition.plan(after(1), true, one.limits, given);
  REQUIRE(work.answers.size() == 2);
  CHECK(work.answers[0].told->outcome == delay::ControlOutcome::done);
  CHECK(work.answers[1].told->outcome == delay::ControlOutcome::already_delivered);
}

TEST_CASE("orders for a record that can only go to NAME.invalid say why, however many there are") {
  OnePartition other;
  other.partition.arrive(source_record(
      0, {{"x-cron", "30 9 * * *"}, {"x-cron-tz", "Europe/Berlin"}, {"x-schedule-id", "a"}}));
  Work written = other.plan(after(0));
  REQUIRE(summary(written) == "row:0");
  // Its time zone is not on this machine.
  Buffer row = *written.records[0].value;
  const std::string_view zone = "Europe/Berlin";
  const auto at = std::ranges::search(row, zone);
  REQUIRE_FALSE(at.empty());
  *at.begin() = 'X';
  OnePartition one;
  REQUIRE(one.partition.load_row("@orders.delayed-3-0", row, 0));
  one.partition.begin(1, begin_time);
  const Order deliver{.kind = Order::Kind::deliver, .name = "a"};
  const Order cancel{.kind = Order::Kind::cancel, .name = "a"};
  const std::vector given{&deliver, &deliver, &cancel};
  const Work work = one.partition.plan(after(1), true, one.limits, given);
  CHECK(summary(work) == "orders.delayed.invalid:v gone:0");
  REQUIRE(work.answers.size() == 3);
  REQUIRE_FALSE(work.answers[0].told.has_value());
  CHECK(work.answers[0].told.error().message.contains("Xurope/Berlin"));
  CHECK(work.answers[0].from == -1);
  CHECK(work.answers[1].told->outcome == delay::ControlOutcome::unknown);
  CHECK(work.answers[2].told->outcome == delay::ControlOutcome::unknown);
}

TEST_CASE(
    "a dead letter that is refused leaves its error without its timestamp, and then nothing") {
  OnePartition one;
  one.partition.arrive(source_record(0, {{"x-delay", "soon"}}));
  CHECK(one.plan(after(1)).records[0].timestamp == begin_time);
  one.partition.refuse_invalid(0, "its timestamp");
  const Work error = one.plan(after(1));
  CHECK(summary(error) == "orders.delayed.invalid:null");
  CHECK(error.records[0].timestamp == std::nullopt);
  one.partition.refuse_invalid(0, "everything");
  const Work nothing = one.plan(after(1));
  CHECK(nothing.records.empty());
  CHECK(nothing.taken == 1);
  CHECK(nothing.counts.dropped == 1);
  CHECK(nothing.counts.invalid == 0);
}

TEST_CASE("an order for a record that has expired is refused, however overdue the record is") {
  OnePartition one;
  one.partition.arrive(source_record(0, {{"x-delay", "10"},
                                         {"x-schedule-id", "a"},
                                         {"x-expire-at", std::to_string(to_ms(after(20)))}}));
  one.commit(after(0), false);
  const Order deliver{.kind = Order::Kind::deliver, .name = "a"};
  const Order move{.kind = Order::Kind::move, .name = "a", .due = std::chrono::milliseconds(-5)};
  const std::vector given{&deliver, &move};
  const Work work = one.partition.plan(after(30), true, one.limits, given);
  REQUIRE(work.answers.size() == 2);
  for (const auto& answer : work.answers) {
    REQUIRE_FALSE(answer.told.has_value());
    CHECK(answer.told.error().code == Errc::invalid);
  }
  CHECK(summary(work) == "gone:0");
}

TEST_CASE("a record that is moved into the past is due when it is moved, and not late since then") {
  OnePartition one;
  one.partition.arrive(source_record(0, {{"x-delay", "1h"}, {"x-schedule-id", "a"}}));
  one.commit(after(0), false);
  const Order move{.kind = Order::Kind::move, .name = "a", .due = std::chrono::hours(-3)};
  const std::vector given{&move};
  const Work work = one.partition.plan(after(30), true, one.limits, given);
  REQUIRE(work.answers.size() == 1);
  REQUIRE(work.answers[0].told.has_value());
  CHECK(work.answers[0].told->due == after(30));
}

TEST_CASE(
    "a store that may lack a tombstone, or belongs to another topic, is emptied, and the rows are "
    "read again") {
  using std::chrono::minutes;
  MemoryRows store;
  const Rules rules{"relay", "", false};
  const auto filled = [&] {
    Partition partition({"orders.delayed", 255}, rules, store);
    partition.forget();
    partition.begin(0, begin_time);
    partition.arrive(source_record(7, {{"x-delay", "1h"}, {"x-schedule-id", "a"}}));
    partition.apply(partition.plan(begin_time, true, {}), 20);
  };
  struct Case {
    minutes age;
    Offset end, committed, from;
  };
  for (const Case& each : {Case{minutes(40), 30, 8, 20}, Case{minutes(50), 30, 8, 0},
                           Case{minutes(-50), 30, 8, 0},   // The clock was set back.
                           Case{minutes(1), 20, 8, 20},    // Nothing is new.
                           Case{minutes(1), 19, 8, 0},     // The state topic is another one.
                           Case{minutes(1), 30, 7, 0}}) {  // The group's offset was set back.
    filled();
    Partition partition({"orders.delayed", 255}, rules, store);
    CHECK(partition.pending().size() == 1);
    CHECK(partition.pending().find_id("a") == 7);
    CHECK(partition.rows_from(begin_time + each.age, each.end, each.committed) == each.from);
    CHECK(partition.pending().size() == (each.from > 0 ? 1 : 0));
    CHECK(partition.pending().find_id("a").has_value() == (each.from > 0));
  }
}

TEST_CASE("a committed offset stays known though the rows are read again") {
  MemoryRows store;
  const Rules rules{"relay", "", false};
  const auto known = [&] {
    return Partition({"orders.delayed", 255}, rules, store).pending().place().source;
  };
  Partition partition({"orders.delayed", 255}, rules, store);
  CHECK(known() == -1);
  partition.note_committed(5);
  partition.note_committed(7);
  CHECK(known() == 7);
  partition.forget();
  CHECK(known() == 7);
  CHECK(partition.rows_from(begin_time, 30) == 0);
  CHECK(known() == 7);
  CHECK(partition.rows_from(begin_time, 30, 3) == 0);
  CHECK(known() == 3);
  partition.begin(4, begin_time);
  CHECK(known() == 4);
}

TEST_CASE("a lower offset that is accepted replaces the known one, and the rows are removed") {
  MemoryRows store;
  const Rules rules{"relay", "", false};
  Partition partition({"orders.delayed", 255}, rules, store);
  partition.begin(4, begin_time);
  partition.arrive(source_record(4, {{"x-delay", "1h"}}));
  partition.apply(partition.plan(begin_time, true, {}), 20);
  partition.note_committed(5);
  REQUIRE(partition.pending().size() == 1);
  CHECK(partition.pending().place().next == 20);
  partition.note_committed(2);
  CHECK(partition.pending().place().source == 2);
  CHECK(partition.pending().size() == 0);
  CHECK(partition.rows_from(begin_time, 30, 2) == 0);
  CHECK(partition.pending().place().source == 2);
}

TEST_CASE("a store of pending records knows after a crash what it knew at some commit") {
  MemoryRows store;
  const Source source{"orders.delayed", 3};
  std::uint32_t random = 7;
  const auto below = [&](std::uint32_t n) {
    return (random = random * 1'664'525 + 1) / 65'536 % n;
  };
  std::map<Offset, std::map<Offset, WallTime>> known{{0, {}}};  // By the place of the commit.
  auto pending = std::make_unique<PendingRecords>(store, source);
  std::map<Offset, WallTime> now;
  for (Offset at = 1; at < 2'000; ++at) {
    for (std::uint32_t i = 0; i < below(4); ++i) {
      const Offset offset = below(60);
      if (below(3) == 0) {
        pending->erase(offset);
        now.erase(offset);
      } else {
        PendingRecord record;
        record.due = after(below(300'000));
        pending->put(offset, record);
        now[offset] = record.due;
      }
    }
    pending->commit({.next = at, .source = at, .complete_at = after(at)});
    known[at] = now;
    if (below(20) == 0) {
      store.crash([&](std::size_t n) { return below(static_cast<std::uint32_t>(n)); });
      pending = std::make_unique<PendingRecords>(store, source);
      now = known.at(pending->place().next);
    }
    // By hand, from what is known.
    std::set<PendingRecords::Place> places;
    PendingRecords::ByMinute minutes;
    for (const auto& [offset, due] : now) {
      places.emplace(due, offset);
      ++minutes[std::chrono::floor<std::chrono::minutes>(due)];
    }
    std::set<PendingRecords::Place> walked;
    for (auto walk = pending->walk({WallTime::min(), 0}); walk.valid(); walk.next())
      walked.insert(walk.place());
    REQUIRE(walked == places);
    REQUIRE(pending->by_minute() == minutes);
    REQUIRE(pending->size() == now.size());
    REQUIRE(pending->first() == (places.empty() ? std::nullopt : std::optional(*places.begin())));
    REQUIRE((pending->bytes() == 0) == now.empty());
  }
}

}  // namespace tarry::relay
