#pragma once

// KafkaModel: the parts of Kafka that the relay's promises depend on, small enough to be believed.
//
//   logs           entries with offsets; an entry belongs to a transaction or to none
//   transactions   open --end()--> prepared --markers--> committed; or aborted
//                  an entry that is not decided holds the last stable offset
//   offsets        committed, and those of transactions that are not decided
//   group          a generation, members, a target for each partition; a partition is granted to
//                  its target when the member before has let go of it or was expelled
//
// Kafka checks:
//   offsets in a transaction   the member is in the group, with the group's generation
//   end of a transaction       the producer's epoch, and nothing of the group: a commit that is
//                              under way succeeds after the group has moved on
//   init of a producer         aborts what is open, finishes what is prepared, fences the old one
//
// Controls switch one of these off, or what the relay does about it, so that tests see that they
// would notice.

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "relay/cluster.h"

namespace tarry::relay {

struct Controls {
  bool no_fencing = false;            // Any generation is accepted.
  bool tombstones_apart = false;      // They are written at once, not in the transaction.
  bool no_wait_for_state = false;     // A new owner does not wait for the last owner's transaction.
  bool no_reading_to_end = false;     // It delivers before it has read the source to its end.
  bool standby_without_tail = false;  // Rows are read by the owner alone, and taken for read.
  bool memory_before_commit = false;  // An aborted transaction is taken for a committed one.
  bool rows_before_send = false;      // At least once: records go behind the transaction.
  bool sends_fail = false;            // The same: now and then Kafka takes a part of them alone.
  bool sends_slowly = false;          // The same: what is under way is taken one by one.
  bool crowded = false;               // Polls leave records behind, and few may have arrived.
  bool says_complete = false;         // The same, and no poll says so.
};

struct ModelEntry {
  Offset offset = 0;
  ProducerRecord record;
  int transaction = -1;  // None.
  WallTime appended{};
  WallTime polled{};  // When the member that wrote it had polled.
};

struct ModelTransaction {
  enum class State { open, prepared, committed, aborted };
  State state = State::open;
  std::string producer;
  WallTime begun{};
  WallTime decided{};
  std::vector<SourceOffset> offsets;
  std::string owner;
  std::set<std::pair<std::string, PartitionIndex>> logs{};  // The logs in which it has entries.
};

class KafkaModel {
 public:
  using Log = std::pair<std::string, PartitionIndex>;
  using State = ModelTransaction::State;
  static constexpr std::chrono::milliseconds transaction_timeout{15'000};

  explicit KafkaModel(Controls with) : controls(with) {}

  bool is_undecided(const ModelEntry& entry) const {
    if (entry.transaction < 0) return false;
    const State state = transactions[static_cast<std::size_t>(entry.transaction)].state;
    return state == State::open || state == State::prepared;
  }
  bool is_committed(const ModelEntry& entry) const {
    return entry.transaction < 0 ||
           transactions[static_cast<std::size_t>(entry.transaction)].state == State::committed;
  }
  Offset end_of(const Log& log) { return ends[log]; }
  Offset stable_end(const Log& log) {
    // It never goes back.
    Offset& known = stable_.try_emplace(log, 0).first->second;
    for (auto entry = first_from(log, known); entry != logs[log].end(); ++entry)
      if (is_undecided(*entry)) return known = entry->offset;
    return known = ends[log];
  }
  std::vector<ModelEntry>::iterator first_from(const Log& log, Offset offset) {
    return std::ranges::lower_bound(logs[log], offset, {}, &ModelEntry::offset);
  }
  void append(const Log& log, ProducerRecord record, int transaction, WallTime polled = {}) {
    if (transaction >= 0) transactions[static_cast<std::size_t>(transaction)].logs.insert(log);
    logs[log].push_back({ends[log]++, std::move(record), transaction, now, polled});
  }

  // --- Producers and transactions.

  int begin(const std::string& producer) {
    auto& begun = transactions.emplace_back();
    begun.producer = producer;
    begun.begun = now;
    return static_cast<int>(transactions.size()) - 1;
  }
  void decide(int id, State state) {
    auto& transaction = transactions[static_cast<std::size_t>(id)];
    transaction.state = state;
    transaction.decided = now;
    for (const auto& log : transaction.logs) ++ends[log];  // A marker takes an offset.
    if (state != State::committed) return;
    for (const auto& [source, next] : transaction.offsets) {
      // The offset that was sent last counts, whichever transaction's marker comes last.
      auto& last = committed_by_.try_emplace(source, -1).first->second;
      if (last > id) continue;
      last = id;
      committed[source] = {true, false, next, transaction.owner};
    }
  }
  void init(const std::string& producer) {
    ++epochs[producer];
    for (std::size_t i = 0; i < transactions.size(); ++i) {
      if (transactions[i].producer != producer) continue;
      if (transactions[i].state == State::open) decide(static_cast<int>(i), State::aborted);
      if (transactions[i].state == State::prepared) decide(static_cast<int>(i), State::committed);
    }
  }
  // Kafka's coordinator: markers of prepared ones, time-outs of open ones.
  void tick(const std::function<bool()>& writes_markers) {
    for (std::size_t i = first_open(); i < transactions.size(); ++i) {
      auto& each = transactions[i];
      if (each.state == State::prepared && writes_markers())
        decide(static_cast<int>(i), State::committed);
      if (each.state == State::open && now - each.begun > transaction_timeout) {
        ++epochs[each.producer];
        decide(static_cast<int>(i), State::aborted);
      }
    }
  }
  std::size_t first_open() {
    while (decided_ < transactions.size() && transactions[decided_].state != State::open &&
           transactions[decided_].state != State::prepared)
      ++decided_;
    return decided_;
  }
  bool is_stable(const Source& source) {
    for (std::size_t i = first_open(); i < transactions.size(); ++i) {
      const auto& each = transactions[i];
      if (each.state != State::open && each.state != State::prepared) continue;
      for (const auto& offset : each.offsets)
        if (offset.source == source) return false;
    }
    return true;
  }

  // --- The group.

  void join(int member) {
    members.insert(member);
    rebalance();
  }
  void leave(int member) {
    if (members.erase(member) == 0) return;
    for (auto& [source, owner] : granted)
      if (owner == member) owner = -1;
    rebalance();
  }
  void rebalance() {
    ++generation;
    std::size_t at = shift++;
    const std::vector<int> all(members.begin(), members.end());
    for (auto& [source, target] : targets) target = all.empty() ? -1 : all[at++ % all.size()];
  }

  // As the cleaner does it: of each key the last committed row.  Tombstones stay for a long time.
  void compact(const Log& log) {
    const Offset end = stable_end(log);
    std::map<Buffer, Offset> last;
    for (const auto& entry : logs[log])
      if (entry.offset < end && is_committed(entry)) last[*entry.record.key] = entry.offset;
    std::erase_if(logs[log], [&](const ModelEntry& entry) {
      return entry.offset < end &&
             (!is_committed(entry) || last[*entry.record.key] != entry.offset);
    });
  }

  const Controls controls;
  WallTime now = from_ms(1'800'000'000'000);
  std::map<Log, std::vector<ModelEntry>> logs;
  std::map<Log, Offset> ends;
  std::vector<ModelTransaction> transactions;
  std::map<std::string, int> epochs;  // The epochs of producers.
  std::map<Source, CommittedOffset> committed;
  std::set<int> members;
  std::int64_t generation = 0;
  std::map<Source, int> targets, granted;  // -1: nobody.
  std::size_t shift = 0;                   // Makes rebalances move partitions.

 private:
  std::size_t decided_ = 0;  // All before it are.
  std::map<Source, int> committed_by_;
  std::map<Log, Offset> stable_;
};

struct Crash {};

// The Cluster of one incarnation of a member.
class ModelCluster : public Cluster {
 public:
  // Called where a process may stand still or die: it may run the others, or throw Crash.
  using Interruption = std::function<void()>;
  using Chance = std::function<bool(int percent)>;
  // The records of a partition in one poll: more than come in while a member is away for less than
  // a stall.
  static constexpr std::size_t max_fetched = 12;
  static constexpr std::chrono::milliseconds longest_standstill{500};

  ModelCluster(KafkaModel& kafka, int member, const Rules& rules, Interruption interruption,
               Chance chance)
      : kafka_(kafka),
        member_(member),
        rules_(rules),
        interruption_(std::move(interruption)),
        chance_(std::move(chance)),
        owner_("g-" + std::to_string(member)) {
    static_cast<void>(renew());
    kafka_.join(member_);
  }

  PollResult poll(std::chrono::milliseconds /*wait*/, const std::set<Source>& paused) override {
    PollResult polled;
    polled.disturbed = std::exchange(stood_still_, false);
    go_on_sending();
    follow_group(polled);
    polled_at_ = kafka_.now;
    const bool is_crowded = kafka_.controls.crowded;
    bool is_complete = true;  // All is here that was in the sources, but for those that are paused.
    for (auto& [source, position] : positions_) {
      if (!position) {
        if (!kafka_.is_stable(source)) continue;  // The group's offset is asked for until it is.
        position = kafka_.committed[source].next.value_or(0);
      }
      if (paused.contains(source)) continue;
      // The first fetch behind a pause takes a while.
      if (is_crowded && paused_.contains(source)) continue;
      const KafkaModel::Log log{source.topic, source.partition};
      // Far behind, an answer to a fetch takes a while.
      const Offset end = kafka_.stable_end(log);
      const Offset behind = end - *position;
      const bool is_late =
          behind > static_cast<Offset>(max_fetched) ? chance_(50) : is_crowded && chance_(20);
      if (is_late) {
        is_complete = is_complete && behind == 0;
        continue;
      }
      std::size_t fetched = 0;
      auto entry = kafka_.first_from(log, *position);
      for (; entry != kafka_.logs[log].end() && entry->offset < end; ++entry) {
        if (++fetched > max_fetched) break;
        if (kafka_.is_committed(*entry))
          polled.records.emplace_back(
              source, SourceRecord{entry->offset, *entry->record.timestamp, *entry->record.value});
        position = entry->offset + 1;
      }
      if (fetched <= max_fetched) position = std::max(*position, end);  // Behind markers.
      // As librdkafka does it, also of a source that is empty.
      Offset& told = ends_.try_emplace(source, -1).first->second;
      if (*position == end && told != *position) polled.ends.push_back({source, *position});
      told = *position;
      is_complete = is_complete && *position == end;
    }
    paused_ = paused;
    polled.drained = is_complete || !is_crowded || kafka_.controls.says_complete;
    if (polled.drained) complete_at_ = kafka_.now;
    polled.at = complete_at_;
    poll_rows(polled);
    return polled;
  }

  Result<> prepare(std::span<const Source>) override { return {}; }
  Result<> prepare_target(const std::string&, const Source&) override { return {}; }
  Result<std::vector<CommittedOffset>> committed(std::span<const Source> sources) override {
    std::vector<CommittedOffset> all;
    for (const auto& source : sources) {
      CommittedOffset each = kafka_.committed[source];
      each.is_stable = kafka_.controls.no_wait_for_state || kafka_.is_stable(source);
      each.is_open = !each.is_stable;
      all.push_back(each);
    }
    stand_still();
    return all;
  }
  Result<Offset> source_end(const Source& source) override {
    if (kafka_.controls.no_reading_to_end) return 0;
    return kafka_.end_of({source.topic, source.partition});
  }
  Result<Offset> state_end(const Source& source) override {
    if (kafka_.controls.no_wait_for_state) return kafka_.stable_end(state_log(source));
    return kafka_.end_of(state_log(source));
  }
  Result<Offset> stable_source_end(const Source& source) override {
    return kafka_.stable_end({source.topic, source.partition});
  }
  Result<> start_rows(const Source& source, Offset from) override {
    rows_[source] = from;
    rows_from[source] = from;
    return {};
  }
  void stop_rows(const Source& source) override { rows_.erase(source); }

  TransactionResult transact(const Transaction& transaction) override {
    auto done = do_transact(transaction);
    if (unsent_.empty()) return done;
    stand_still();
    for (const auto& record : std::exchange(unsent_, {})) append(record);
    return done;
  }
  TransactionResult do_transact(const Transaction& transaction) {
    stand_still();
    const std::string producer = owner_ + "-" + std::to_string(turn_);
    turn_ = (turn_ + 1) % 2;
    if (kafka_.epochs[producer] != epochs_[producer]) return lost(Outcome::unknown, "fenced");
    const int id = kafka_.begin(producer);
    const bool is_fenced = !kafka_.members.contains(member_) || generation_ != kafka_.generation;
    if (is_fenced && !kafka_.controls.no_fencing) {
      kafka_.decide(id, ModelTransaction::State::aborted);
      return lost(Outcome::aborted, "ILLEGAL_GENERATION");
    }
    auto& begun = kafka_.transactions[static_cast<std::size_t>(id)];
    begun.offsets = transaction.offsets;
    begun.owner = owner_;
    stand_still();
    TransactionResult done;
    for (const auto& record : transaction.records) {
      const KafkaModel::Log log{record.topic, record.partition.value_or(0)};
      if (record.wants_place)
        done.placed.push_back({{record.source, record.offset}, kafka_.end_of(log)});
      const bool is_apart = kafka_.controls.tombstones_apart &&
                            record.kind == ProducerRecord::Kind::row && !record.value;
      if (record.kind == ProducerRecord::Kind::row)
        done.rows_end[record.source] = kafka_.end_of(log) + 1;
      kafka_.append(log, record, is_apart ? -1 : id, polled_at_);
    }
    stand_still();
    using State = ModelTransaction::State;
    const auto state = [&] { return kafka_.transactions[static_cast<std::size_t>(id)].state; };
    if (kafka_.epochs[producer] != epochs_[producer] || state() != State::open)
      return lost(Outcome::unknown, "fenced");
    if (chance_(3)) {
      kafka_.decide(id, State::aborted);
      if (kafka_.controls.memory_before_commit) return done;
      return lost(Outcome::aborted, "a failure");
    }
    if (chance_(2)) return lost(Outcome::unknown, "no answer, and it was not prepared");
    kafka_.transactions[static_cast<std::size_t>(id)].state = State::prepared;
    if (chance_(2)) return lost(Outcome::unknown, "no answer, and it was prepared");
    stand_still();
    if (state() == State::prepared && chance_(70)) kafka_.decide(id, State::committed);
    return done;
  }
  TransactionResult send(std::span<const ProducerRecord> records) override {
    TransactionResult done;
    if (kafka_.controls.rows_before_send) {
      unsent_.insert(unsent_.end(), records.begin(), records.end());
      return done;
    }
    if (kafka_.controls.sends_fail && chance_(10)) {
      for (const auto& record : records.first(records.size() / 2)) append(record);
      return lost(Outcome::aborted, "a part was taken");
    }
    for (const auto& record : records) {
      const KafkaModel::Log log{record.topic, record.partition.value_or(0)};
      if (record.wants_place)
        done.placed.push_back({{record.source, record.offset}, kafka_.end_of(log)});
      append(record);
    }
    stand_still();
    return done;
  }

  // Kafka takes what is under way in its order, while the member does other things.
  Result<> begin_send(std::vector<ProducerRecord> records) override {
    if (generation_ < 0) return fail(Errc::io, "not in the group");
    most_under_way = std::max(most_under_way, under_way_.size() - taken_);
    for (auto& record : records) under_way_.push_back({std::move(record), polled_at_});
    stand_still();
    return {};
  }
  Sending sending() override {
    go_on_sending();
    return {taken_, send_failed_};
  }
  SendResult end_send() override {
    stand_still();
    go_on_sending();
    if (kafka_.controls.rows_before_send) {
      for (const auto& each : under_way_) unsent_.push_back(each.record);
    } else if (!send_failed_) {
      take_under_way(under_way_.size());
    }
    SendResult result;
    if (send_failed_) result.done = lost(Outcome::aborted, "a part was taken");
    for (auto& each : under_way_) result.records.push_back(std::move(each.record));
    under_way_.clear();
    taken_ = 0;
    send_failed_ = false;
    return result;
  }
  // The process has died: Kafka may have taken some of what it was sent.
  void die() { go_on_sending(); }

  Result<> settle(const std::string& owner) override {
    for (int i = 0; i < 2; ++i) kafka_.init(owner + "-" + std::to_string(i));
    return {};
  }
  const std::string& owner() const override { return owner_; }
  Result<> renew() override {
    for (int i = 0; i < 2; ++i) {
      const std::string producer = owner_ + "-" + std::to_string(i);
      kafka_.init(producer);
      epochs_[producer] = kafka_.epochs[producer];
    }
    return {};
  }

  std::map<Source, Offset> rows_from;  // Where the rows were begun last.
  std::size_t most_under_way = 0;      // When others were begun.

 private:
  struct Sent {
    ProducerRecord record;
    WallTime polled{};  // When it was begun.
  };

  void take_under_way(std::size_t end) {
    for (; taken_ < end; ++taken_) {
      const auto& [record, polled] = under_way_[taken_];
      kafka_.append({record.topic, record.partition.value_or(0)}, record, -1, polled);
    }
  }
  void go_on_sending() {
    if (kafka_.controls.rows_before_send) return;
    // Two looks of a member in three find nothing new.
    if (kafka_.controls.sends_slowly && ++looks_ % 3 != 0) return;
    const std::size_t most = kafka_.controls.sends_slowly ? taken_ + 1 : under_way_.size();
    while (taken_ < std::min(most, under_way_.size()) && !send_failed_ && !chance_(30)) {
      send_failed_ = kafka_.controls.sends_fail && chance_(3);
      if (!send_failed_) take_under_way(taken_ + 1);
    }
  }
  static TransactionResult lost(Outcome outcome, std::string why) {
    TransactionResult done;
    done.outcome = outcome;
    done.error = std::move(why);
    return done;
  }
  void append(const ProducerRecord& record) {
    kafka_.append({record.topic, record.partition.value_or(0)}, record, -1, polled_at_);
  }
  // Nothing is fetched meanwhile.
  void stand_still() {
    const WallTime from = kafka_.now;
    interruption_();
    stood_still_ = stood_still_ || kafka_.now - from > longest_standstill;
  }
  KafkaModel::Log state_log(const Source& source) const {
    return {rules_.state_topic(source.topic), source.partition};
  }

  void follow_group(PollResult& polled) {
    const auto drop = [&](const Source& source) {
      // It is waited for.
      if (!send_failed_ && !kafka_.controls.rows_before_send) take_under_way(under_way_.size());
      polled.lost.push_back(source);
      positions_.erase(source);
      ends_.erase(source);
    };
    if (!kafka_.members.contains(member_)) {  // Expelled: everything is lost.
      while (!positions_.empty()) drop(Source(positions_.begin()->first));
      kafka_.join(member_);
      generation_ = -1;
      return;
    }
    generation_ = kafka_.generation;
    bool has_let_go = false;
    for (auto& [source, owner] : kafka_.granted) {
      if (owner != member_ || kafka_.targets[source] == member_) continue;
      owner = -1;
      drop(source);
      has_let_go = true;
    }
    if (has_let_go) generation_ = ++kafka_.generation;  // It joins again without them.
    for (const auto& [source, target] : kafka_.targets) {
      auto& owner = kafka_.granted.try_emplace(source, -1).first->second;
      if (target != member_ || owner != -1) continue;
      owner = member_;
      positions_[source] = std::nullopt;
      polled.assigned.push_back(source);
    }
    polled.changed = has_let_go || !polled.assigned.empty() || !was_told_;
    was_told_ = true;
  }

  void poll_rows(PollResult& polled) {
    for (auto& [source, position] : rows_) {
      const auto log = state_log(source);
      const Offset end = kafka_.stable_end(log);
      for (auto entry = kafka_.first_from(log, position);
           entry != kafka_.logs[log].end() && entry->offset < end; ++entry) {
        const bool is_ours = positions_.contains(source);
        if (kafka_.is_committed(*entry) && (is_ours || !kafka_.controls.standby_without_tail)) {
          const auto& key = *entry->record.key;
          polled.rows.push_back(
              {source, std::string(key.begin(), key.end()), entry->record.value, entry->offset});
        }
      }
      position = std::max(position, end);
      polled.row_ends.push_back({source, position});
    }
  }

  KafkaModel& kafka_;
  const int member_;
  const Rules& rules_;
  const Interruption interruption_;
  const Chance chance_;
  const std::string owner_;
  std::map<std::string, int> epochs_;
  std::size_t turn_ = 0;
  std::int64_t generation_ = -1;
  WallTime polled_at_{};
  std::vector<ProducerRecord> unsent_;
  std::vector<Sent> under_way_;  // Since the last end_send().
  std::size_t taken_ = 0;        // Kafka has so many of them.
  bool send_failed_ = false;
  std::size_t looks_ = 0;
  bool was_told_ = false;                              // It was told of an assignment.
  bool stood_still_ = false;                           // Since the last poll.
  std::map<Source, std::optional<Offset>> positions_;  // Empty: not begun.
  std::map<Source, Offset> ends_;                      // The last one that was told.
  std::set<Source> paused_;                            // In the last poll.
  WallTime complete_at_ = kafka_.now;
  std::map<Source, Offset> rows_;
};

}  // namespace tarry::relay
