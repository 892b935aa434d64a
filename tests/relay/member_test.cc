// One member and a model of Kafka, without disturbances but those of the test.

#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/log.h"
#include "records/batch_builder.h"
#include "relay/member.h"
#include "relay/refusal_search.h"
#include "tests/captured_log.h"
#include "tests/relay/kafka_model.h"
#include "tests/relay/memory_rows.h"

namespace tarry::relay {
namespace {

using std::chrono::milliseconds;

// A Kafka that refuses what the test says.
class RefusingCluster final : public ModelCluster {
 public:
  RefusingCluster(KafkaModel& kafka, const Rules& rules, int incarnation)
      : ModelCluster(
            kafka, incarnation, rules, [] {}, [](int) { return false; }),
        kafka_(kafka) {}

  PollResult poll(milliseconds wait, const std::set<Source>& paused) override {
    if (polled_at_ != WallTime{}) longest_turn = std::max(longest_turn, kafka_.now - polled_at_);
    polled_at_ = kafka_.now;
    std::set<Source> left_out = paused;
    left_out.insert(unfetched.begin(), unfetched.end());
    PollResult polled = ModelCluster::poll(wait, left_out);
    polled.at += clock_ahead;
    if (earlier_end) polled.ends.push_back({{"o.delayed", 0}, *earlier_end});
    if (!unfetched.empty() && !is_silent) {
      polled.at = fetched_at_;
      polled.drained = false;
    }
    fetched_at_ = polled.at;
    polled.held_up = std::exchange(queue_was_full, false);
    if (rows_have_no_end) polled.row_ends.clear();
    const auto is_away = [&](const auto& each) { return rows_away.contains(each.source); };
    std::erase_if(polled.rows, is_away);
    std::erase_if(polled.row_ends, is_away);
    if (behind_fetch) std::exchange(behind_fetch, {})();
    polled.disturbed = polled.disturbed || std::exchange(broker_went_away, false);
    return polled;
  }
  Result<std::vector<CommittedOffset>> committed(std::span<const Source> sources) override {
    kafka_.now += answer_takes;
    auto all = ModelCluster::committed(sources);
    if (offsets_come_late)
      for (auto& each : *all) each.is_stable = each.is_open = false;
    if (offsets_stay_open)
      for (auto& each : *all) {
        each.is_stable = false;
        each.is_open = true;
        each.owner = "g-last";
      }
    if (old_offset)
      for (auto& each : *all) each.next = old_offset;
    return all;
  }
  Result<Offset> state_end(const Source& source) override {
    kafka_.now += answer_takes;
    if (rows_away.contains(source)) return fail(Errc::io, "the leader of the rows is away");
    return ModelCluster::state_end(source);
  }
  Result<> settle(const std::string& owner) override {
    kafka_.now += answer_takes;
    ++settled;
    return ModelCluster::settle(owner);
  }

  Result<> prepare(std::span<const Source> sources) override {
    kafka_.now += answer_takes;
    for (const auto& source : sources)
      if (bad_sources.contains(source.topic)) return fail(Errc::invalid, source.topic + " is bad");
    return {};
  }
  Result<> prepare_target(const std::string& topic, const Source&) override {
    kafka_.now += answer_takes;
    ++targets_prepared;
    if (bad_targets.contains(topic)) return fail(Errc::invalid, topic + " cannot be made");
    if (unready_targets.contains(topic)) return fail(Errc::io, topic + " has no leader");
    return {};
  }
  Result<Offset> source_end(const Source& source) override {
    ++ends_asked;
    kafka_.now += answer_takes;
    if (!without_leader.contains(source)) {
      auto end = ModelCluster::source_end(source);
      if (end) *end += end_is_ahead_by;
      return end;
    }
    ++asked_in_vain;
    return fail(Errc::io, "the leader of " + source.text() + " does not answer");
  }

  Result<> renew() override {
    kafka_.now += answer_takes;
    if (renewals_refused == 0) return ModelCluster::renew();
    --renewals_refused;
    return fail(Errc::io, "no new producers");
  }
  TransactionResult send(std::span<const ProducerRecord> records) override {
    if (searches) search_.ended(RefusalSearch::Kind::sending, false);
    if (std::exchange(first_send_is_careful, false)) {
      sends_carefully = true;
      TransactionResult done;
      done.outcome = Outcome::aborted;
      done.is_careful = true;
      done.error = "a record is refused";
      return done;
    }
    if (std::exchange(sends_carefully, false)) largest_careful = records.size();
    return ModelCluster::send(records);
  }
  Sending sending() override {
    Sending sending = ModelCluster::sending();
    sending.has_failed = sending.has_failed || under_way_fails;
    return sending;
  }
  SendResult end_send() override {
    SendResult result = ModelCluster::end_send();
    if (std::exchange(under_way_fails, false)) {
      result.done.outcome = Outcome::aborted;
      result.done.error = "some are not there";
    }
    return result;
  }
  TransactionResult transact(const Transaction& transaction) override {
    kafka_.now += answer_takes;
    if (inside_transaction) inside_transaction();
    if (std::exchange(answer_is_lost, false)) {
      TransactionResult done;
      done.outcome = Outcome::unknown;
      done.error = "INVALID_TXN_STATE";
      return done;
    }
    if (refuses_all) {
      TransactionResult done;
      done.outcome = Outcome::aborted;
      done.error = "refused";
      return done;
    }
    if (std::exchange(first_is_careful, false)) {
      is_careful = true;
      TransactionResult done;
      done.outcome = Outcome::aborted;
      done.is_careful = true;
      done.error = "a record is refused";
      return done;
    }
    TransactionResult failing;
    for (const auto& record : transaction.records) {
      if (!failing_topics.contains(record.topic)) continue;
      if (record.kind == ProducerRecord::Kind::target) {
        failing.failing_targets[record.topic] = record.topic + " fails";
      } else {
        failing.failing_sources[record.source] = record.topic + " fails";
      }
    }
    for (const auto& offset : transaction.offsets)
      if (failing_topics.contains(offset.source.topic))
        failing.failing_sources[offset.source] = offset.source.topic + " fails";
    if (failing.is_of_some()) {
      ++failed;
      failing.outcome = Outcome::aborted;
      failing.error = "a topic fails";
      return failing;
    }
    std::size_t bytes = 0;
    TransactionResult silent;
    for (const auto& record : transaction.records) {
      bytes += record.bytes();
      if (silent_targets.contains(record.topic)) silent.silent_targets.insert(record.topic);
      if (silent_rows.contains(record.topic)) silent.silent_sources.insert(record.source);
    }
    if (!silent.silent_sources.empty()) {
      ++failed;
      kafka_.now += milliseconds(8'000);
      silent.outcome = Outcome::unknown;
      silent.error = "not all records were confirmed in time";
      return silent;
    }
    if (!silent.silent_targets.empty()) {
      kafka_.now += milliseconds(8'000);
      silent.outcome = Outcome::aborted;
      silent.error = "not all records were confirmed in time";
      return silent;
    }
    largest_bytes = std::max(largest_bytes, bytes);
    if (std::exchange(is_careful, false))
      largest_careful = std::max(largest_careful, transaction.records.size());
    for (std::size_t i = 0; i < transaction.records.size(); ++i) {
      const auto& [value, kind] =
          std::tie(transaction.records[i].value, transaction.records[i].kind);
      const bool is_refused = value ? !too_large.empty() && as_text(*value) == too_large
                                    : refuses_errors && kind == ProducerRecord::Kind::invalid;
      if (!is_refused) continue;
      TransactionResult done;
      done.outcome = Outcome::aborted;
      done.refused.emplace_back(i, "too large");
      done.is_careful = searches && search_.ended(RefusalSearch::Kind::transaction, true);
      if (done.is_careful) done.refused.clear();
      return done;
    }
    return ModelCluster::transact(transaction);
  }

  std::string too_large;        // This value.
  bool refuses_errors = false;  // In NAME.invalid, the error alone.
  bool searches = false;        // As KafkaProducers does it; otherwise it knows at once.
  bool refuses_all = false, answer_is_lost = false;
  int renewals_refused = 0;
  std::function<void()> inside_transaction, behind_fetch;
  bool first_is_careful = false, is_careful = false;
  bool first_send_is_careful = false, sends_carefully = false;
  bool under_way_fails = false;  // All of it is there, and nobody knows it.
  std::size_t largest_careful = 0, largest_bytes = 0;
  std::set<std::string> bad_sources, bad_targets, unready_targets, silent_targets, failing_topics;
  std::set<std::string> silent_rows;  // State topics.
  int failed = 0;                     // For one of these, but for silent targets.
  int targets_prepared = 0;
  std::set<Source> without_leader;
  bool broker_went_away = false;
  std::set<Source> unfetched;  // The queue has no room for them.
  bool is_silent = false;      // The queue is empty, and librdkafka does not fetch from them yet.
  bool queue_was_full = false;
  bool rows_have_no_end = false;  // Yet, because there are so many.
  std::set<Source> rows_away;     // Their state partitions have no leader.
  Offset end_is_ahead_by = 0;
  bool offsets_stay_open = false;     // Whoever is fenced.
  bool offsets_come_late = false;     // So that nobody knows whether they are stable.
  std::optional<Offset> earlier_end;  // Of o.delayed-0: it was made again, and has few records.
  std::optional<Offset> old_offset;   // The coordinator has the state of an earlier time.
  int asked_in_vain = 0, ends_asked = 0, settled = 0;
  milliseconds answer_takes{0};
  milliseconds clock_ahead{0};
  milliseconds longest_turn{0};  // Between two polls.

 private:
  KafkaModel& kafka_;
  RefusalSearch search_;
  WallTime polled_at_{}, fetched_at_{};
};

class OneMember {
 public:
  // One of several incarnations has a Kafka and a store that outlive it.
  explicit OneMember(
      std::vector<Source> sources = {{"o.delayed", 0}},
      std::size_t with_memory = Limits{}.pending_bytes, KafkaModel* with_kafka = nullptr,
      MemoryRows* with_store = nullptr, int with_incarnation = 1,
      Delivery with_delivery = Delivery::exactly_once,
      std::function<void(MemberOptions&)> with_options = [](MemberOptions&) {})
      : memory(with_memory),
        delivery(with_delivery),
        adjust(std::move(with_options)),
        incarnation(with_incarnation),
        kafka(with_kafka != nullptr ? *with_kafka : own_kafka),
        store(with_store != nullptr ? *with_store : own_store) {
    set_log_level(LogLevel::off);
    for (const auto& source : sources) kafka.targets[source] = -1;
    kafka.rebalance();
  }
  OneMember(std::vector<Source> sources, std::function<void(MemberOptions&)> with_options)
      : OneMember(std::move(sources), Limits{}.pending_bytes, nullptr, nullptr, 1,
                  Delivery::exactly_once, std::move(with_options)) {}
  ~OneMember() { set_log_level(LogLevel::info); }

  using HeaderTexts = std::vector<std::pair<std::string, std::string>>;
  void send(const Source& source, const std::string& value, const HeaderTexts& headers = {}) {
    kafka.append({source.topic, source.partition}, record(value, headers), -1);
  }
  ProducerRecord record(const std::string& value, const HeaderTexts& headers) const {
    ProducerRecord record;
    record.value.emplace();
    records::append_key_value(*record.value, as_bytes("k"), as_bytes(value));
    records::append_varint(*record.value, static_cast<std::int64_t>(headers.size()));
    for (const auto& [name, text] : headers)
      records::append_header(*record.value, name, as_bytes(text));
    record.timestamp = kafka.now;
    return record;
  }
  void step() {
    member.step(milliseconds{0});
    kafka.now += milliseconds(20);
    kafka.tick([] { return true; });
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }
  // The values in all partitions of a topic, as consumers see them.
  std::string in(const std::string& topic) {
    std::string text;
    for (const auto& [log, entries] : kafka.logs) {
      if (log.first != topic) continue;
      for (const auto& entry : entries) {
        if (!kafka.is_committed(entry)) continue;
        if (!text.empty()) text += ' ';
        const auto& value = entry.record.value;
        text += value ? std::string(value->begin(), value->end()) : "null";
      }
    }
    return text;
  }

  // Sets the member's wall clock ahead, or back.
  void set_clock(milliseconds by) {
    clock.ahead += by;
    cluster.clock_ahead = clock.ahead;
  }
  std::string wall_after(milliseconds by) const { return std::to_string(to_ms(clock.wall() + by)); }

  // Gives an order and takes steps until it is told.
  std::string order(const Source& source, Order with) {
    std::string text;
    const auto told = [&](const OrderResult& answer) {
      text = !answer                                             ? answer.error().message
             : answer->outcome == delay::ControlOutcome::done    ? "done"
             : answer->outcome == delay::ControlOutcome::unknown ? "unknown"
                                                                 : "already delivered";
      offset = answer ? answer->offset : -1;
    };
    std::vector<OrderRequest> orders;
    orders.push_back({source, std::move(with), clock.mono() + milliseconds(5'000), told});
    member.give(std::move(orders));
    for (int i = 0; i < 500 && text.empty(); ++i) step();
    return text;
  }
  Offset offset = -1;  // The offset of the last order to deliver.

  class SteppedClock final : public Clock {
   public:
    explicit SteppedClock(const KafkaModel& kafka) : kafka_(kafka) {}
    WallTime wall() const override { return kafka_.now + ahead; }
    MonoTime mono() const override { return MonoTime{kafka_.now.time_since_epoch()}; }

    milliseconds ahead{0};

   private:
    const KafkaModel& kafka_;
  };

  const std::size_t memory;
  const Delivery delivery;
  const std::function<void(MemberOptions&)> adjust;
  const int incarnation;
  KafkaModel own_kafka{{}};
  MemoryRows own_store;
  KafkaModel& kafka;
  MemoryRows& store;
  SteppedClock clock{kafka};
  Rules rules{"g", "*", false};
  RefusingCluster cluster{kafka, rules, incarnation};
  Member member{cluster, clock, store, [this] {
                  MemberOptions options;
                  options.rules = rules;
                  options.limits.pending_bytes = memory;
                  options.delivery = delivery;
                  adjust(options);
                  return options;
                }()};
};

}  // namespace

TEST_CASE("a partition is owned and delivers while its source never rests") {
  OneMember one;
  for (int i = 0; i < 20; ++i) {
    one.send({"o.delayed", 0}, std::to_string(i));
    one.step();
  }
  CHECK(one.member.is_ready());
  CHECK(one.in("o").starts_with("0 1 2"));
}

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

TEST_CASE("records to a target that cannot be made go to NAME.invalid, and the others leave") {
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

TEST_CASE("a target that confirms nothing costs the others its time, and seldom") {
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

TEST_CASE("of the partitions without a leader one is asked in a step, and the others go on") {
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

TEST_CASE(
    "what is due behind the last fetch of a paused source waits until it is read to its end") {
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
    "behind a full queue a member is ready, and a cancellation counts that is fetched a second "
    "later") {
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
    "a cancellation behind a producer's open transaction counts after a stall, and the status "
    "names "
    "the transaction that hides it") {
  OneMember one;
  const Source source{"o.delayed", 0};
  const KafkaModel::Log log{"o.delayed", 0};
  one.steps(20);
  one.send(source, "a", {{"x-delay", "3000"}, {"x-schedule-id", "i"}});
  one.send(source, "b", {{"x-delay", "3000"}});
  one.steps(5);
  const int open = one.kafka.begin("of a producer");
  one.kafka.append(log, one.record("c", {}), open);
  one.send(source, "", {{"x-schedule-id", "i"}, {"x-schedule-action", "cancel"}});
  one.kafka.now += milliseconds(600);
  one.steps(400);
  CHECK(one.in("o") == "");
  CHECK(one.member.status().stalled.starts_with(
      "o.delayed-0: a producer's transaction is open at offset 2"));
  one.kafka.decide(open, KafkaModel::State::committed);
  one.steps(50);
  CHECK(one.in("o") == "c b");
  CHECK(one.member.status().stalled == "");
  CHECK(one.member.is_ready());
}

TEST_CASE("after a stall of its own a member delivers nothing before it has read the source") {
  OneMember one;
  one.steps(20);
  one.send({"o.delayed", 0}, "a", {{"x-delay", "3000"}, {"x-schedule-id", "i"}});
  one.steps(5);
  one.kafka.now += milliseconds(2'900);
  // More than one poll brings, and behind it a cancellation that was there in time.
  for (int i = 0; i < 100; ++i) one.send({"o.delayed", 0}, "x", {{"x-delay", "1h"}});
  one.send({"o.delayed", 0}, "", {{"x-schedule-id", "i"}, {"x-schedule-action", "cancel"}});
  one.kafka.now += milliseconds(2'000);
  one.steps(50);
  CHECK(one.in("o") == "");
  CHECK(one.member.is_ready());
}

TEST_CASE("a member that has a stall in each step delivers, and still nothing that was cancelled") {
  for (const auto delivery : {Delivery::exactly_once, Delivery::at_least_once}) {
    OneMember one({{"o.delayed", 0}}, Limits{}.pending_bytes, nullptr, nullptr, 1, delivery);
    one.steps(20);
    const Source source{"o.delayed", 0};
    one.send(source, "a", {{"x-delay", "10000"}});
    one.send(source, "b", {{"x-delay", "10000"}, {"x-schedule-id", "i"}});
    int told = 0;
    for (int i = 0; i < 80; ++i) {
      one.kafka.now += milliseconds(600);
      // Records come without a pause, more than one poll brings.
      for (int k = 0; k < 20 && i < 40; ++k) one.send(source, "x", {{"x-delay", "1h"}});
      if (i == 5) one.send(source, "", {{"x-schedule-id", "i"}, {"x-schedule-action", "cancel"}});
      if (i == 30) {
        one.send(source, "c", {{"x-delay", "1h"}, {"x-schedule-id", "k"}});
        std::vector<OrderRequest> orders;
        orders.push_back(
            {source, {Order::Kind::deliver, "k"}, MonoTime::max(), [&](const OrderResult& answer) {
               told += answer && answer->outcome == delay::ControlOutcome::done;
             }});
        one.member.give(std::move(orders));
      }
      one.step();
    }
    CHECK(one.in("o") == "a c");
    CHECK(told == 1);
    CHECK_FALSE(one.member.is_ready());
    one.steps(100);
    CHECK(one.member.is_ready());
  }
}

TEST_CASE("an end that Kafka has gone back from in an outage is not waited for") {
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

TEST_CASE("an offset that the coordinator has from an earlier time delivers nothing again") {
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
  CHECK(why.find("has read up to offset 1, but 2 was committed") != std::string::npos);
  one.cluster.old_offset.reset();
  one.steps(700);
  CHECK(one.in("o") == "a b c");
  CHECK(one.member.is_ready());
}

TEST_CASE(
    "a member that is started again knows by its store that an offset is old, and believes it "
    "without the store") {
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
    CHECK(why.contains("has read up to offset 1, but 2 was committed"));
    CHECK(why.contains("set this one to 2 or more"));
    CHECK(why.contains("restart that broker"));
    kafka.leave(2);
  }
  store.empty();
  OneMember one({source}, Limits{}.pending_bytes, &kafka, &store, 3);
  one.steps(50);
  CHECK(one.in("o") == "a b b");
}

TEST_CASE("an offset that is old is nobody's fault while the end of its source is not known") {
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

TEST_CASE(
    "an offset that is not believed is shown, and logged once, while other partitions go on") {
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

TEST_CASE("the offset of a source that was made again under its name is believed") {
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

TEST_CASE("an offset that was believed is believed again, whatever the source has become since") {
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
    "partitions of absent leaders, however many, have turns to be asked about with the others") {
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

TEST_CASE("why a question for an end has failed is forgotten when what has arrived answers it") {
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

TEST_CASE("a stall between a fetch and the plan of its records counts as any other") {
  OneMember one;
  one.steps(20);
  one.send({"o.delayed", 0}, "a", {{"x-delay", "3000"}, {"x-schedule-id", "i"}});
  one.steps(5);
  one.cluster.behind_fetch = [&] {
    one.kafka.now += milliseconds(1'000);
    one.send({"o.delayed", 0}, "", {{"x-schedule-id", "i"}, {"x-schedule-action", "cancel"}});
    one.kafka.now += milliseconds(4'000);
  };
  one.steps(50);
  CHECK(one.in("o") == "");
  CHECK(one.member.is_ready());
}

TEST_CASE("a jump of the clock that is taken back within a second delivers nothing") {
  OneMember one;
  one.steps(20);
  one.send({"o.delayed", 0}, "a", {{"x-delay", "1h"}});
  one.steps(5);
  one.set_clock(std::chrono::hours(2));
  one.steps(20);
  CHECK(one.in("o") == "");
  one.set_clock(-std::chrono::hours(2));
  one.steps(100);
  CHECK(one.in("o") == "");
  CHECK(one.member.is_ready());
  CHECK(one.member.status().pending() == 1);
}

TEST_CASE("a jump of the clock that lasts is followed, and of the runs in it the last one leaves") {
  OneMember one({{"o.delayed", 0}, {"r.delayed", 0}});
  one.steps(20);
  one.send({"o.delayed", 0}, "a", {{"x-delay", "1h"}});
  one.send({"r.delayed", 0}, "r", {{"x-every", "10m"}});
  one.steps(20);
  const std::size_t runs = one.in("r").size();
  one.set_clock(std::chrono::hours(2));
  one.steps(100);
  CHECK(one.in("o") == "a");
  const std::size_t added = one.in("r").size() - runs;
  CHECK(added == (runs == 0 ? 1U : 2U));  // A blank before it.
}

TEST_CASE("nothing leaves that is not due any more when the clock was set back behind the fetch") {
  OneMember one;
  one.steps(20);
  one.send({"o.delayed", 0}, "a", {{"x-deliver-at", one.wall_after(milliseconds(150))}});
  one.steps(3);
  one.kafka.now += milliseconds(200);
  one.cluster.behind_fetch = [&] { one.set_clock(-std::chrono::hours(1)); };
  one.steps(50);
  CHECK(one.in("o") == "");
  one.set_clock(std::chrono::hours(1));
  one.steps(100);
  CHECK(one.in("o") == "a");
  CHECK(one.member.status().early == 0);
}

TEST_CASE("when the clock was set back, a cancellation behind an outage counts as before it") {
  OneMember one;
  const Source source{"o.delayed", 0};
  one.steps(20);
  one.set_clock(-std::chrono::hours(1));
  one.steps(20);
  CHECK(one.member.is_ready());
  one.send(source, "a",
           {{"x-deliver-at", one.wall_after(milliseconds(3'000))}, {"x-schedule-id", "i"}});
  one.steps(5);
  one.cluster.unfetched = {source};
  one.cluster.broker_went_away = true;
  one.send(source, "", {{"x-schedule-id", "i"}, {"x-schedule-action", "cancel"}});
  one.steps(200);
  CHECK(one.in("o") == "");
  one.cluster.unfetched.clear();
  one.steps(50);
  CHECK(one.in("o") == "");
  CHECK(one.member.status().pending() == 0);
}

TEST_CASE(
    "a cancellation that came while the machine was suspended counts, however long that was") {
  for (const milliseconds slept : {milliseconds(5'000), milliseconds(600'000)}) {
    OneMember one;
    const Source source{"o.delayed", 0};
    one.steps(20);
    one.send(source, "a",
             {{"x-deliver-at", one.wall_after(milliseconds(500))}, {"x-schedule-id", "i"}});
    one.steps(5);
    // Nothing has come of what was acknowledged meanwhile, and the monotonic clock has not moved.
    one.cluster.unfetched = {source};
    one.cluster.is_silent = true;
    one.send(source, "", {{"x-schedule-id", "i"}, {"x-schedule-action", "cancel"}});
    one.set_clock(slept);
    one.steps(150);
    CHECK(one.in("o") == "");
    one.cluster.unfetched.clear();
    one.steps(100);
    CHECK(one.in("o") == "");
    CHECK(one.member.status().pending() == 0);
    CHECK(one.member.is_ready());
  }
}

TEST_CASE("what is due in a short stall behind a fetch leaves when what came meanwhile is read") {
  OneMember one;
  one.steps(20);
  one.send({"o.delayed", 0}, "a", {{"x-delay", "450"}, {"x-schedule-id", "i"}});
  one.steps(5);
  // Shorter than what counts as a stall.
  one.cluster.behind_fetch = [&] {
    one.kafka.now += milliseconds(100);
    one.send({"o.delayed", 0}, "", {{"x-schedule-id", "i"}, {"x-schedule-action", "cancel"}});
    one.kafka.now += milliseconds(350);
  };
  one.steps(50);
  CHECK(one.in("o") == "");
}

TEST_CASE("with at-least-once nothing is sent after a stall before the group has taken offsets") {
  OneMember one({{"o.delayed", 0}}, Limits{}.pending_bytes, nullptr, nullptr, 1,
                Delivery::at_least_once);
  one.steps(20);
  one.send({"o.delayed", 0}, "a", {{"x-delay", "3000"}});
  one.steps(5);
  one.kafka.now += milliseconds(12'000);
  one.cluster.refuses_all = true;  // As the group does when others own the partition.
  one.steps(50);
  CHECK(one.in("o") == "");
  one.cluster.refuses_all = false;
  one.steps(200);
  CHECK(one.in("o") == "a");
}

TEST_CASE("with at-least-once no order is told that nothing was done when its record was sent") {
  OneMember one({{"o.delayed", 0}}, Limits{}.pending_bytes, nullptr, nullptr, 1,
                Delivery::at_least_once);
  one.steps(20);
  one.send({"o.delayed", 0}, "a", {{"x-delay", "60000"}, {"x-schedule-id", "i"}});
  one.steps(5);
  one.cluster.refuses_all = true;
  CHECK(one.order({"o.delayed", 0}, {Order::Kind::deliver, "i"})
            .ends_with("it is not known whether it was done"));
  CHECK(one.in("o").starts_with("a"));
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

TEST_CASE("nobody is fenced because Kafka is slow to say whether an offset is stable") {
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

TEST_CASE("a source whose offset is gone waits while its state has rows") {
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

TEST_CASE("pages of pending records show each once, in due order, across partitions") {
  OneMember one({{"o.delayed", 0}, {"o.delayed", 1}});
  one.steps(10);
  for (int i = 0; i < 10; ++i)  // Pairs of one due time, in both partitions.
    one.send({"o.delayed", i % 2}, std::to_string(i), {{"x-delay", std::to_string(90 - i / 4)}});
  one.steps(2);
  std::vector<PendingPlace> seen;
  std::optional<PendingPlace> after;
  do {
    const auto page = one.member.pending({}, after, 3);
    for (const auto& each : page.records)
      seen.push_back({each.record.due, each.source, each.offset});
    after = page.next;
  } while (after);
  CHECK(seen.size() == 10);
  CHECK(std::ranges::is_sorted(seen));
  CHECK(std::ranges::adjacent_find(seen) == seen.end());
}

TEST_CASE("a page of an exact id is found by the index, and has the records of all partitions") {
  std::vector<Source> sources;
  for (PartitionIndex i = 0; i < 4; ++i) sources.push_back({"o.delayed", i});
  OneMember one(sources);
  one.steps(10);
  for (const auto& source : sources) {
    const std::string delay = std::to_string(90 - source.partition) + "m";
    one.send(source, "x", {{"x-delay", delay}, {"x-schedule-id", "a"}});
    one.send(source, "y", {{"x-delay", delay}, {"x-schedule-id", "b*"}});
  }
  one.steps(10);
  const std::size_t walks = one.store.walks;
  PendingQuery query;
  query.id = "a";
  std::vector<PartitionIndex> seen;
  std::optional<PendingPlace> after;
  do {
    const auto page = one.member.pending(query, after, 3);
    for (const auto& each : page.records) {
      CHECK(each.record.id == "a");
      seen.push_back(each.source.partition);
    }
    after = page.next;
  } while (after);
  CHECK(seen == std::vector<PartitionIndex>{3, 2, 1, 0});
  query.partition = 2;
  query.key = "k";
  CHECK(one.member.pending(query, std::nullopt, 3).records.size() == 1);
  query.key = "other";
  CHECK(one.member.pending(query, std::nullopt, 3).records.empty());
  query = {};
  query.id = "b[*]";
  query.until = one.kafka.now + std::chrono::minutes(88);
  CHECK(one.member.pending(query, std::nullopt, 9).records.size() == 2);
  CHECK(one.store.walks == walks);
}

TEST_CASE("a page ends with large records, or when few of them are wanted, and the next goes on") {
  OneMember one;
  one.steps(10);
  for (int i = 0; i < 3; ++i)
    one.send({"o.delayed", 0}, std::string(3u << 20, 'x'), {{"x-delay", "1h"}});
  one.steps(10);
  const auto page = one.member.pending({}, std::nullopt, 100);
  CHECK(page.records.size() == 2);
  REQUIRE(page.next.has_value());
  CHECK(one.member.pending({}, page.next, 9).records.size() == 1);
}

TEST_CASE("a record that no topic takes leaves its error in NAME.invalid and stops nothing") {
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
    "a record of which no topic takes even the error is dropped, counted, and stops nothing") {
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

TEST_CASE("while a record is refused that is not known yet, transactions are small") {
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
    "partitions with more due records than a transaction takes have turns, whoever takes records") {
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

TEST_CASE("an order cancels, moves and delivers the pending record of an id or a handle") {
  OneMember one;
  const Source source{"o.delayed", 0};
  one.steps(10);
  one.send(source, "a", {{"x-delay", "1h"}, {"x-schedule-id", "ia"}});
  one.send(source, "b", {{"x-delay", "1h"}});
  one.send(source, "c", {{"x-delay", "1h"}, {"x-schedule-id", "ic"}});
  CHECK(one.order(source, {Order::Kind::cancel, "ia"}) == "done");
  CHECK(one.order(source, {Order::Kind::cancel, "ia"}) == "unknown");
  CHECK(one.order(source, {Order::Kind::deliver, handle_of(source, 1)}) == "done");
  CHECK(one.offset == 0);
  CHECK(one.order(source, {Order::Kind::deliver, handle_of(source, 1)}) == "unknown");
  CHECK(one.in("o") == "b");
  CHECK(one.order(source, {Order::Kind::move, "ic", milliseconds(-3'599'000)}) == "done");
  one.steps(100);
  CHECK(one.in("o") == "b c");
  CHECK(one.order(source, {Order::Kind::cancel, "ic"}) == "already delivered");
  one.kafka.now += std::chrono::hours(2);
  CHECK(one.order(source, {Order::Kind::cancel, "ic"}) == "unknown");
}

TEST_CASE("the ids of delivered records have a bound over all partitions of a member") {
  const std::vector<Source> sources{{"o.delayed", 0}, {"o.delayed", 1}};
  OneMember one(sources, [](MemberOptions& options) { options.delivered_ids = 4; });
  one.steps(10);
  for (const char* id : {"a", "b", "c"})
    for (const auto& source : sources)
      one.send(source, id, {{"x-delay", "1"}, {"x-schedule-id", id}});
  one.steps(20);
  for (const auto& source : sources) {
    CHECK(one.order(source, {Order::Kind::cancel, "a"}) == "unknown");
    CHECK(one.order(source, {Order::Kind::cancel, "b"}) == "already delivered");
  }
}

TEST_CASE("an order sees what was acknowledged before it") {
  OneMember one;
  const Source source{"o.delayed", 0};
  one.steps(10);
  // More than one poll takes.
  for (int i = 0; i < 100; ++i) one.send(source, std::to_string(i));
  one.send(source, "x", {{"x-delay", "1h"}, {"x-schedule-id", "ix"}});
  CHECK(one.order(source, {Order::Kind::cancel, "ix"}) == "done");
}

TEST_CASE("an order waits for a producer's open transaction, and says so when its time is over") {
  OneMember one;
  const Source source{"o.delayed", 0};
  one.steps(10);
  const int open = one.kafka.begin("of a producer");
  one.kafka.append({"o.delayed", 0}, one.record("x", {{"x-delay", "1h"}}), open);
  one.send(source, "y", {{"x-delay", "1h"}, {"x-schedule-id", "iy"}});
  CHECK(one.order(source, {Order::Kind::cancel, "iy"}).contains("a producer's transaction"));
  one.kafka.decide(open, KafkaModel::State::aborted);
  CHECK(one.order(source, {Order::Kind::cancel, "iy"}) == "done");
  CHECK(one.member.status().pending() == 0);
}

TEST_CASE("an order for a record that would expire first is refused and changes nothing") {
  OneMember one;
  const Source source{"o.delayed", 0};
  one.steps(10);
  const auto expires = to_ms(one.kafka.now) + 7'200'000;
  one.send(source, "x",
           {{"x-delay", "1h"}, {"x-schedule-id", "ix"}, {"x-expire-at", std::to_string(expires)}});
  CHECK(one.order(source, {Order::Kind::move, "ix", milliseconds(3'600'001)}).contains("expires"));
  CHECK(one.order(source, {Order::Kind::move, "ix", milliseconds(60'000)}) == "done");
}

TEST_CASE(
    "an order for a partition that is not owned names it, and none is taken by a member that "
    "stops") {
  OneMember one;
  one.steps(10);
  CHECK(one.order({"o.delayed", 7}, {Order::Kind::cancel, "a"}).contains("not owned"));
  one.cluster.refuses_all = true;
  std::string told;
  std::vector<OrderRequest> orders;
  orders.push_back({{"o.delayed", 0},
                    {Order::Kind::cancel, "a"},
                    one.clock.mono() + milliseconds(60'000),
                    [&](const OrderResult& answer) { told = answer.error().message; }});
  one.member.give(std::move(orders));
  one.steps(5);
  CHECK(told == "");  // The transaction that would fence it is refused.
  one.member.refuse_orders("the member stops");
  CHECK(told == "the member stops");
}

TEST_CASE("orders that wait for a transaction count for the bound until they are told") {
  const std::vector<Source> sources{{"o.delayed", 0}};
  OneMember one(sources, [](MemberOptions& options) { options.waiting_orders = 2; });
  one.steps(10);
  one.cluster.refuses_all = true;
  std::vector<std::string> told;
  const auto give = [&](const std::string& name) {
    std::vector<OrderRequest> orders;
    orders.push_back({sources[0],
                      {Order::Kind::cancel, name},
                      one.clock.mono() + milliseconds(60'000),
                      [&told](const OrderResult& answer) {
                        told.push_back(answer ? "unknown" : answer.error().message);
                      }});
    one.member.give(std::move(orders));
    one.steps(5);
  };
  give("a");
  give("b");
  CHECK(told.empty());
  give("c");
  const std::string refusal = "2 requests for changes are already waiting";
  CHECK(told == std::vector<std::string>{refusal});
  one.cluster.refuses_all = false;
  one.steps(500);
  CHECK(told == std::vector<std::string>{refusal, "unknown", "unknown"});
  give("d");
  CHECK(told.size() == 4);
  CHECK(told.back() == "unknown");
}

TEST_CASE("an order that has been told is not told again when the member stops") {
  OneMember one;
  const Source source{"o.delayed", 0};
  one.steps(10);
  one.send(source, "a", {{"x-delay", "1h"}, {"x-schedule-id", "ia"}});
  one.steps(10);
  int told = 0;
  std::vector<OrderRequest> orders;
  orders.push_back({source,
                    {Order::Kind::cancel, "ia"},
                    one.clock.mono() + milliseconds(60'000),
                    [&](const OrderResult&) { ++told; }});
  one.member.give(std::move(orders));
  for (int i = 0; i < 20 && told == 0; ++i) one.step();
  CHECK(told == 1);
  one.member.refuse_orders("the member stops");
  CHECK(told == 1);
}

TEST_CASE("pending records are counted by the minute, from and to any moment") {
  OneMember one({{"o.delayed", 0}, {"o.delayed", 1}});
  one.steps(10);
  const auto base = std::chrono::floor<std::chrono::hours>(one.kafka.now) + std::chrono::hours(5);
  for (int i = 0; i < 600; ++i)  // One each second, for ten minutes.
    one.send({"o.delayed", i % 2}, "x",
             {{"x-deliver-at", std::to_string(to_ms(base) + i * 1'000)}});
  one.steps(200);
  using std::chrono::minutes;
  using std::chrono::seconds;
  const auto by_minute = one.member.count({}, minutes(1));
  CHECK(by_minute.total == 600);
  REQUIRE(by_minute.counts.size() == 10);
  for (const auto& [from, count] : by_minute.counts) CHECK(count == 60);
  CHECK(one.member.count({}, minutes(60)).counts.size() == 1);
  PendingQuery some;
  some.from = base + seconds(30);
  some.until = base + minutes(2) + seconds(10);
  CHECK(one.member.count(some, minutes(1)).total == 100);
  CHECK(one.member.count(some, minutes(1)).counts.at(base + minutes(2)) == 10);
  some.until = base + seconds(45);
  CHECK(one.member.count(some, minutes(1)).total == 15);
  some.partition = 1;
  CHECK(one.member.count(some, minutes(1)).total == 7);
}

TEST_CASE("an unknown id is an error while the disk is full and the source is not read") {
  OneMember one;
  const Source source{"o.delayed", 0};
  one.steps(10);
  one.send(source, "a", {{"x-delay", "1h"}, {"x-schedule-id", "ia"}});
  one.steps(10);
  one.store.is_full = true;
  one.send(source, "b", {{"x-delay", "1h"}, {"x-schedule-id", "ib"}});
  one.steps(10);
  REQUIRE(one.member.status().is_full);
  CHECK(one.order(source, {Order::Kind::cancel, "ib"}).contains("no room"));
  CHECK(one.order(source, {Order::Kind::cancel, "ia"}) == "done");
}

TEST_CASE("a warm copy is read anew when a stall ends with its partition's assignment") {
  OneMember one(std::vector<Source>{});
  const Source source{"o.delayed", 0};
  one.steps(3);
  // Another member has written the row of a pending record.
  OneMember other;
  other.send(source, "x", {{"x-delay", "1h"}});
  other.steps(10);
  const KafkaModel::Log rows{"g-pending-o.delayed", 0};
  auto row = other.kafka.logs[rows].front().record;
  one.kafka.append(rows, std::move(row), -1);
  one.kafka.committed[source] = {true, false, 1, ""};
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
    OneMember one(std::vector<Source>{});
    const Source source{"o.delayed", 0};
    one.steps(3);
    // Another member has written the row of a pending record.
    OneMember other;
    other.send(source, "x", {{"x-delay", "1h"}});
    other.steps(10);
    const KafkaModel::Log rows{"g-pending-o.delayed", 0};
    auto row = other.kafka.logs[rows].front().record;
    one.kafka.append(rows, std::move(row), -1);
    one.kafka.committed[source] = {true, false, 1, ""};
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

TEST_CASE("a warm copy whose leader was away for longer than tombstones stay is read again") {
  for (const bool is_assigned_at_once : {true, false}) {
    OneMember one(std::vector<Source>{});
    const Source source{"o.delayed", 0};
    one.steps(3);
    // Another member has written the row of a pending record.
    OneMember other;
    other.send(source, "x", {{"x-delay", "1h"}});
    other.steps(10);
    const KafkaModel::Log rows{"g-pending-o.delayed", 0};
    auto row = other.kafka.logs[rows].front().record;
    one.kafka.append(rows, std::move(row), -1);
    one.kafka.committed[source] = {true, false, 1, ""};
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

TEST_CASE("a warm copy of a state topic that was made again is not taken for its rows") {
  OneMember one(std::vector<Source>{});
  const Source source{"o.delayed", 0};
  one.steps(3);
  // Another member has written the row of a pending record.
  OneMember other;
  other.send(source, "x", {{"x-delay", "1h"}});
  other.steps(10);
  const KafkaModel::Log rows{"g-pending-o.delayed", 0};
  auto row = other.kafka.logs[rows].front().record;
  one.kafka.append(rows, std::move(row), -1);
  one.kafka.committed[source] = {true, false, 1, ""};
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

TEST_CASE("an absent leader keeps the orders of its own partition alone") {
  OneMember one({{"o.delayed", 0}, {"o.delayed", 1}});
  one.steps(10);
  one.cluster.without_leader = {{"o.delayed", 0}};
  std::map<PartitionIndex, std::string> told;
  std::vector<OrderRequest> orders;
  for (const PartitionIndex i : {0, 1})
    orders.push_back({{"o.delayed", i},
                      {Order::Kind::cancel, "a"},
                      one.clock.mono() + milliseconds(5'000),
                      [&told, i](const OrderResult& answer) {
                        told[i] = answer ? "unknown" : answer.error().message;
                      }});
  one.member.give(std::move(orders));
  one.steps(20);
  CHECK(told[0] == "the leader of o.delayed-0 does not answer");
  CHECK(told[1] == "unknown");
}

TEST_CASE("a look needs no transaction, and few of them ask Kafka") {
  OneMember one;
  const Source source{"o.delayed", 0};
  one.steps(10);
  const auto transactions = one.member.status().transactions;
  const int asked = one.cluster.ends_asked;
  int told = 0;
  for (int i = 0; i < 100; ++i) {
    std::vector<OrderRequest> orders;
    orders.push_back({source,
                      {Order::Kind::look},
                      one.clock.mono() + milliseconds(1'000),
                      [&told](const OrderResult& answer) { told += answer ? 1 : 0; }});
    one.member.give(std::move(orders));
    one.step();  // 20 ms.
  }
  one.steps(20);
  CHECK(told == 100);
  CHECK(one.member.status().transactions == transactions);
  CHECK(one.cluster.ends_asked - asked <= 25);
}

TEST_CASE(
    "after an abort that ended fatally a member takes new producers until it gets them, says why "
    "it stands still, and goes on") {
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

TEST_CASE(
    "a member that is started again reads the rows behind those in its store, and no others") {
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
