// Records that a member sends ahead of its commit: the part that does it alone, and then the whole
// member.

#include <doctest/doctest.h>

#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "relay/sends_ahead.h"
#include "tests/relay/one_member.h"

namespace tarry::relay {

namespace {

// Takes what is begun, and says of it what the test wants.
class SenderModel final : public ModelCluster {
 public:
  SenderModel(KafkaModel& kafka, const Rules& rules)
      : ModelCluster(
            kafka, 1, rules, [] {}, [](int) { return false; }) {}

  Result<> begin_send(std::vector<ProducerRecord> records) override {
    if (begins_nothing) return fail(Errc::io, "not in the group");
    for (auto& record : records) begun.push_back(std::move(record));
    return {};
  }
  Sending sending() override { return {confirmed, has_failed}; }
  SendResult end_send() override {
    SendResult result;
    result.records = std::exchange(begun, {});
    if (std::exchange(has_failed, false)) {
      result.done.outcome = Outcome::aborted;
      result.done.error = "some are not there";
    }
    return result;
  }
  TransactionResult send(std::span<const ProducerRecord>) override { return answer; }

  std::vector<ProducerRecord> begun;  // Since the last end.
  std::size_t confirmed = 0;
  bool has_failed = false, begins_nothing = false;
  TransactionResult answer;
};

// One partition with a Work that delivers what the test says.
class OneSender {
 public:
  OneSender() {
    assignment.try_emplace(source, Partition(source, rules, store));
    ahead.note_round(true);
  }
  // The Work grows by records that were due at these times, and what it delivers is begun.
  bool begin(const std::vector<std::int64_t>& due) {
    AssignedPartition& assigned = assignment.at(source);
    if (!assigned.open) assigned.open.emplace();
    for (const auto each : due) {
      assigned.open->records.push_back(record(ProducerRecord::Kind::target));
      assigned.open->delivered_due.push_back(from_ms(each));
    }
    std::vector<AssignedPartition*> works{&assigned};
    return ahead.begin(works);
  }
  ProducerRecord record(ProducerRecord::Kind kind) const {
    ProducerRecord record;
    record.kind = kind;
    record.topic = "o";
    record.source = source;
    record.offset = 0;
    return record;
  }
  milliseconds wait(int most) const { return ahead.poll_wait(milliseconds(most), clock.mono()); }

  const Source source{"o.delayed", 0};
  KafkaModel kafka{{}};
  Rules rules{"g", "*", false};
  MemoryRows store;
  SenderModel cluster{kafka, rules};
  OneMember::SteppedClock clock{kafka};
  std::mutex guard;
  Questions questions{cluster, clock, guard, {milliseconds(500), milliseconds(3'000)}};
  Assignment assignment;
  std::vector<std::int64_t> delivered;
  std::size_t failed = 0;  // So many records were said to have failed.
  std::string stalled;
  SendsAhead ahead{
      {.cluster = cluster,
       .questions = questions,
       .clock = clock,
       .assignment = assignment,
       .longest = milliseconds(100),
       .delivered =
           [this](const auto& due) {
             for (const auto each : due) delivered.push_back(to_ms(each));
           },
       .failed = [this](const auto&, const auto& records) { failed += records.size(); },
       .stalled = [this](std::string why) { stalled = std::move(why); }}};
};

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

TEST_CASE("a due time is told once, when all that was begun with its record is confirmed") {
  using Times = std::vector<std::int64_t>;
  OneSender one;
  CHECK(one.begin({10, 20}));
  CHECK(one.begin({30}));
  one.cluster.confirmed = 1;
  CHECK(one.ahead.follow());
  CHECK(one.delivered.empty());
  one.cluster.confirmed = 2;
  CHECK(one.ahead.follow());
  CHECK(one.ahead.follow());
  CHECK(one.delivered == Times{10, 20});
  TransactionResult sent;
  CHECK(one.ahead.end(sent));
  CHECK(one.delivered == Times{10, 20, 30});
}

TEST_CASE("a work that grows begins no record twice, and keeps what goes with the transaction") {
  OneSender one;
  CHECK(one.begin({10}));
  Work& work = *one.assignment.at(one.source).open;
  work.records.push_back(one.record(ProducerRecord::Kind::invalid));
  CHECK(one.begin({20}));
  CHECK(one.cluster.begun.size() == 2);
  REQUIRE(work.records.size() == 1);
  CHECK(work.records.front().kind == ProducerRecord::Kind::invalid);
}

TEST_CASE("when a record is not there all that is open is dropped, and no round runs ahead") {
  OneSender one;
  CHECK(one.begin({10}));
  CHECK(one.begin({20}));
  one.cluster.has_failed = true;
  CHECK_FALSE(one.ahead.follow());
  CHECK(one.failed == 2);
  CHECK(one.delivered.empty());
  CHECK_FALSE(one.ahead.is_open());
  CHECK_FALSE(one.ahead.went_well());
}

TEST_CASE("where sending cannot begin, what is under way is ended first, and the member stalls") {
  OneSender one;
  CHECK(one.begin({10}));
  one.cluster.begins_nothing = true;
  CHECK_FALSE(one.begin({20}));
  CHECK(one.cluster.begun.empty());
  CHECK(one.delivered == std::vector<std::int64_t>{10});
  CHECK(one.stalled == "not in the group");
  CHECK_FALSE(one.ahead.is_open());
}

TEST_CASE("where sending cannot begin because some record is not there, that is the reason told") {
  OneSender one;
  CHECK(one.begin({10}));
  one.cluster.begins_nothing = one.cluster.has_failed = true;
  CHECK_FALSE(one.begin({20}));
  CHECK(one.failed == 1);
  CHECK(one.stalled.empty());
}

TEST_CASE("a poll behind a send waits for what is due next to it, and for no longer than it may") {
  OneSender one;
  CHECK(one.wait(50) == milliseconds(50));
  CHECK(one.begin({10}));
  CHECK(one.wait(0) == milliseconds(2));
  CHECK(one.wait(50) == milliseconds(2));  // To look at what is under way.
  one.cluster.confirmed = 1;
  CHECK(one.ahead.follow());
  one.kafka.now += milliseconds(1);
  CHECK(one.wait(0) == milliseconds(1));
  one.kafka.now += milliseconds(1);
  CHECK(one.wait(0) == milliseconds(0));
  CHECK(one.wait(200) == milliseconds(98));  // To close the works.
}

TEST_CASE("works are over so long after the first that was begun in them, and not the last") {
  OneSender one;
  CHECK(one.begin({10}));
  one.kafka.now += milliseconds(60);
  CHECK(one.begin({20}));
  CHECK_FALSE(one.ahead.is_over());
  one.kafka.now += milliseconds(40);
  CHECK(one.ahead.is_over());
  one.ahead.closed();
  CHECK(one.begin({30}));
  CHECK_FALSE(one.ahead.is_over());
}

TEST_CASE("what is given up counts neither as delivered nor as failed") {
  OneSender one;
  CHECK(one.begin({10}));
  one.ahead.give_up();
  CHECK(one.cluster.begun.empty());
  CHECK(one.delivered.empty());
  CHECK(one.failed == 0);
  CHECK_FALSE(one.ahead.is_open());
}

TEST_CASE("behind a refusal few records are sent until all that was sent is there") {
  OneSender one;
  const std::vector<ProducerRecord> records{one.record(ProducerRecord::Kind::target)};
  TransactionResult sent;
  one.cluster.answer.outcome = Outcome::aborted;
  one.cluster.answer.is_careful = true;
  CHECK_FALSE(one.ahead.send(records, sent));
  CHECK(one.ahead.is_careful());
  one.cluster.answer.is_careful = false;
  CHECK_FALSE(one.ahead.send(records, sent));
  CHECK(one.ahead.is_careful());
  CHECK(one.failed == 2);
  one.cluster.answer.outcome = Outcome::committed;
  CHECK(one.ahead.send(records, sent));
  CHECK_FALSE(one.ahead.is_careful());
}

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

}  // namespace tarry::relay
