#pragma once

// OneMember: a member of the relay with a model of Kafka, which refuses what the test says.
// Time passes by steps: each is one step of the member and 20 ms of Kafka.

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/log.h"
#include "records/batch_builder.h"
#include "relay/member.h"
#include "relay/refusal_search.h"
#include "tests/relay/kafka_model.h"
#include "tests/relay/memory_rows.h"

namespace tarry::relay {

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
  Result<> begin_send(std::vector<ProducerRecord> records) override {
    kafka_.now += begin_takes;
    return ModelCluster::begin_send(std::move(records));
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
  milliseconds begin_takes{0};  // To begin to send: librdkafka's queue is full for so long.
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

}  // namespace tarry::relay
