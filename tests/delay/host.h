#pragma once

// A host for the engine in tests: a clock set by hand, a journal whose durability the test decides,
// a log a partition, and a model of what must be pending.
//
// Every batch that the engine hands over is checked when it comes: nothing early, nothing that is
// not pending (so nothing twice), and of each partition's pending records exactly the first ones by
// (due, sequence).  A crash keeps of the store what the last checkpoint flushed, and of the journal
// what the test says; the journal is replayed from that checkpoint on.

#include <doctest/doctest.h>
#include <stdlib.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "delay/engine.h"
#include "delay/pending_record.h"
#include "records/batch_builder.h"
#include "records/batch_check.h"
#include "storage/bucket_store.h"
#include "storage/pending_counts.h"
#include "tests/given.h"

namespace tarry::delay {

using std::chrono::milliseconds;
using Strings = std::vector<std::string>;

struct TestClock final : Clock {
  WallTime wall_now = from_ms(1'795'000'000'000);
  mutable std::chrono::nanoseconds mono_now{5'000'000'000};

  milliseconds ahead{0};                  // A negative control: so much too far.
  std::chrono::nanoseconds each_look{0};  // Passes with each look at the clock.

  WallTime wall() const override { return wall_now + ahead; }
  MonoTime mono() const override { return MonoTime(mono_now += each_look); }
  void pass(milliseconds by) {
    wall_now += by;
    mono_now += by;
  }
};

struct TestHeader {
  std::string name;
  std::optional<std::string> value;

  bool operator==(const TestHeader&) const = default;
};

struct TestRecord {
  std::string value;
  std::vector<TestHeader> headers = {};
  std::string key = "k";
  std::optional<WallTime> timestamp = std::nullopt;
};

// A record as a consumer reads it.
struct ReadRecord {
  Offset offset;
  WallTime timestamp;
  std::string key;
  std::string value;
  std::vector<TestHeader> headers;

  std::optional<std::string> header(std::string_view name) const {
    for (const auto& each : headers) {
      if (each.name == name) return each.value;
    }
    return std::nullopt;
  }
};

inline Buffer make_batch(const std::vector<TestRecord>& records, WallTime now,
                         records::BatchOptions options = {}) {
  records::BatchBuilder builder(options);
  for (const auto& record : records) {
    std::vector<records::HeaderView> headers;
    for (const auto& header : record.headers) {
      records::HeaderView view{header.name, std::nullopt};
      if (header.value) view.value = as_bytes(*header.value);
      headers.push_back(view);
    }
    builder.append(record.timestamp.value_or(now), as_bytes(record.key), as_bytes(record.value),
                   headers);
  }
  return builder.finish();
}

inline records::CheckedBatch check(const Buffer& batch) {
  auto checked = records::check_produced(batch, {.max_message_bytes = 64u << 20});
  REQUIRE_MESSAGE(checked.has_value(), (checked ? "" : checked.error().message));
  return std::move(*checked);
}

inline std::vector<ReadRecord> read_batch(Bytes bytes) {
  std::vector<ReadRecord> out;
  const Buffer copy(bytes.begin(), bytes.end());
  const auto batch = records::BatchView::parse(copy).value();
  CHECK(batch.crc_matches());
  const Buffer unpacked =
      batch.codec() == records::Codec::none
          ? Buffer(batch.records().begin(), batch.records().end())
          : records::decompress(*batch.codec(), batch.records(), 64u << 20).value();
  const auto walked = records::for_each_record(
      unpacked, batch.record_count(), [&](const records::RecordView& record) {
        ReadRecord read{batch.offset_of(record), batch.timestamp_of(record), {}, {}, {}};
        if (record.key) read.key = as_text(*record.key);
        if (record.value) read.value = as_text(*record.value);
        for (const auto& header : record.headers) {
          TestHeader& last = read.headers.emplace_back(std::string(header.name), std::nullopt);
          if (header.value) last.value = as_text(*header.value);
        }
        out.push_back(std::move(read));
      });
  CHECK(walked.has_value());
  return out;
}

inline std::string eight_bytes(std::int64_t value) {
  std::string out(8, '\0');
  store_be(reinterpret_cast<std::uint8_t*>(out.data()), value);
  return out;
}

inline TopicPartition partition_of(std::uint8_t topic, PartitionIndex index = 0) {
  TopicPartition partition;
  partition.topic.bytes[0] = topic;
  partition.topic.bytes[15] = 1;
  partition.partition = index;
  return partition;
}
inline const TopicPartition orders = partition_of(1), others = partition_of(2);
inline const WallTime now = from_ms(1'795'000'000'000);  // 2026-11-18T...

class TestDirectory {
 public:
  TestDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "tarry-delay-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TestDirectory() { std::filesystem::remove_all(path_); }
  std::string path(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

class TestHost final : public Sink {
 public:
  struct Pending {
    PendingKey key;
    TopicPartition partition;
    WallTime expires;
    std::string id;
    std::string value;
    WallTime first_due;
    bool recurring;  // A later run may be delivered instead of the one that is due.
    storage::PendingShare share;

    std::string handle() const { return storage::encode_handle({first_due, key.sequence}); }
  };

  explicit TestHost(const Engine::Options& options = {}) : options_(options) {
    options_.step_slices = 1;  // Time stands still in a step, so nothing else bounds it.
    options_.wheel_start = MonoTime(clock.mono_now);
    wheel = std::make_unique<timing::TimingWheel>();
    store = storage::BucketStore::make(directory_.path("pending"), {}).value();
    boot();
  }
  ~TestHost() override {
    background.forget();
    engine.reset();
    store.reset();
  }

  // --- The sink.
  std::optional<TopicDelay> target(const TopicPartition& partition) override {
    if (deleted.contains(partition.topic)) return std::nullopt;
    const auto topic = topics.find(partition.topic);
    return topic == topics.end() ? TopicDelay{} : topic->second;
  }
  void request_sequences() override {
    ++sequences_asked;
    if (give_sequences_when_asked) give();
  }
  void store_failed(const Error& error) override { FAIL("the store failed: " << error.message); }

  void deliver(const TopicPartition& partition, Buffer batch, Departures departures,
               DeliveryTold told) override {
    if (defers) {
      deferred.push_back([this, partition, batch = std::move(batch), departures,
                          told = std::move(told)]() mutable {
        deliver_here(partition, std::move(batch), departures, std::move(told));
      });
      return;
    }
    deliver_here(partition, std::move(batch), departures, std::move(told));
  }
  void deliver_here(const TopicPartition& partition, Buffer batch, Departures departures,
                    DeliveryTold told) {
    std::vector<storage::PendingRemoved> gone(departures.gone.begin(), departures.gone.end());
    ++deliveries;
    delivered_bytes += batch.size();
    CHECK(batch.capacity() - batch.size() <= batch.size() / 4);  // A log keeps it in memory.
    codecs.push_back(*records::BatchView::parse(batch).value().codec());
    if (deleted.contains(partition.topic)) return told.done(fail(Errc::not_found, "deleted"));
    check_delivery(partition, batch, gone);
    if (out_of_service.contains(partition)) return told.done(fail(Errc::fenced, "it is damaged"));
    if (refuses && refuses(partition)) return told.done(fail(refusal, "refused by the test"));
    storage::JournalTransaction transaction(storage::Reserve::use);
    transaction.add(storage::LogAppended{partition, clock.wall(), batch});
    const Offset base = ends_[partition];
    for (std::size_t i = 0; i < gone.size(); ++i) {
      gone[i].offset = base + static_cast<Offset>(i);
      transaction.add(gone[i]);
    }
    for (const auto& again : departures.again) transaction.add(again);
    transaction.on_appended([appended = std::move(told.appended)](Lsn lsn) mutable noexcept {
      appended({lsn, 1});
    });
    transaction.on_durable([base, done = std::move(told.done)]() mutable { done(base); });
    append(std::move(transaction));
  }

  void commit(storage::JournalTransaction transaction) override {
    if (std::exchange(has_no_memory, false)) throw std::bad_alloc();
    if (refuses_commits)
      return transaction.tell_settled(fail(Errc::no_space, "refused by the test"));
    append(std::move(transaction));
  }

  // --- The part of a produce handler
  std::expected<AcceptedBatch, ScheduleErrors> accept(const TopicPartition& partition,
                                                      const records::CheckedBatch& batch,
                                                      const TopicDelay& topic = {}) {
    had_quotas |= terms.is_limited();
    const WallTime arrived = clock.wall();
    const auto schedules = read_schedules(batch, topic, arrived, engine->believed(arrived));
    if (!schedules) return std::unexpected(schedules.error());
    std::optional<Result<Engine::IdRows>> ids;
    if (schedules->ids > 0) {
      engine->read_ids(partition, *schedules, [&ids](auto read) { ids = std::move(read); });
      // Behind a question that is on its way it may wait for that.
      while (!ids && background.step_last()) {
      }
    }
    return engine->accept(partition, batch, *schedules, topic, arrived,
                          ids ? ids->value() : Engine::IdRows(), terms);
  }
  std::expected<Offset, ScheduleErrors> produce(const TopicPartition& partition,
                                                const std::vector<TestRecord>& records,
                                                records::BatchOptions options = {}) {
    const Buffer bytes = make_batch(records, clock.wall(), options);
    const auto checked = check(bytes);
    auto accepted = accept(partition, checked, *target(partition));
    if (!accepted) return std::unexpected(accepted.error());
    return commit_batch(partition, bytes, std::move(*accepted));
  }
  // The same in steps: the batch is committed when the engine has done its part.
  struct InSteps {
    Buffer bytes;
    records::CheckedBatch checked;
    BatchSchedules schedules;
    std::optional<std::expected<Offset, ScheduleErrors>> answer;  // Empty: not yet.
  };
  std::shared_ptr<InSteps> produce_in_steps(const TopicPartition& partition,
                                            const std::vector<TestRecord>& records,
                                            records::BatchOptions batch_options = {}) {
    auto batch = std::make_shared<InSteps>();
    batch->bytes = make_batch(records, clock.wall(), batch_options);
    batch->checked = check(batch->bytes);
    const TopicDelay topic = *target(partition);
    const WallTime arrived = clock.wall();
    batch->schedules =
        read_schedules(batch->checked, topic, arrived, engine->believed(arrived)).value();
    if (!batch->schedules.any()) {
      batch->answer = produce(partition, records, batch_options);
      return batch;
    }
    engine->read_ids(partition, batch->schedules,
                     [this, batch, partition, topic, arrived](Result<Engine::IdRows> ids) {
                       split(batch, partition, topic, arrived, std::move(ids.value()));
                     });
    return batch;
  }
  void split(const std::shared_ptr<InSteps>& batch, const TopicPartition& partition,
             const TopicDelay& topic, WallTime arrived, Engine::IdRows ids) {
    had_quotas |= terms.is_limited();
    engine->accept_in_steps(
        partition, batch->checked, batch->schedules, topic, arrived, std::move(ids),
        [this, batch, partition](std::expected<AcceptedBatch, ScheduleErrors> accepted) {
          if (!accepted) {
            batch->answer = std::unexpected(accepted.error());
          } else if (refuses_commits) {
            batch->answer = std::unexpected(
                ScheduleErrors{ScheduleErrors::Kind::busy, "refused by the test", {}});
          } else {
            batch->answer = commit_batch(partition, batch->bytes, std::move(*accepted));
          }
        },
        terms);
  }
  Offset commit_batch(const TopicPartition& partition, const Buffer& bytes,
                      AcceptedBatch accepted) {
    const Buffer immediate =
        accepted.untouched() || accepted.appends_nothing() ? Buffer{} : accepted.take_immediate();
    storage::JournalTransaction transaction;
    if (!accepted.appends_nothing()) {
      transaction.add(
          storage::LogAppended{partition, clock.wall(), accepted.untouched() ? bytes : immediate});
    }
    const Offset answer = accepted.appends_nothing() ? accepted.base_offset() : ends_[partition];
    if (acknowledged) transaction.on_durable([this, bytes] { acknowledged(bytes); });
    engine->add_to(transaction, std::move(accepted), answer);
    // Pieces that were encoded before stand behind each of those that were encoded now.
    encoded_at_commit = 0;
    const auto pieces = transaction.pieces();
    for (std::size_t i = 0; i < pieces.size(); i += 2) encoded_at_commit += pieces[i].size();
    if (refuses_appends)
      transaction.tell_settled(fail(Errc::no_space, "refused by the test"));
    else
      append(std::move(transaction));
    return answer;
  }
  // Schedules one record.
  void schedule(const TopicPartition& partition, const std::string& value, const std::string& delay,
                const std::string& id = {}) {
    std::vector<TestHeader> headers{{"x-delay", delay}};
    if (!id.empty()) headers.push_back({"x-schedule-id", id});
    REQUIRE(produce(partition, {{value, headers}}).has_value());
  }
  void cancel_by_record(const TopicPartition& partition, const std::string& id) {
    REQUIRE(produce(partition, {{"", {{"x-schedule-id", id}, {"x-schedule-action", "cancel"}}}})
                .has_value());
  }
  // As admin does; the answer comes with a later sync().
  std::shared_ptr<std::optional<ControlOutcome>> cancel(const TopicPartition& partition,
                                                        const std::string& name) {
    auto answer = std::make_shared<std::optional<ControlOutcome>>();
    engine->cancel(partition, name, [answer](Result<Controlled> told) {
      if (told) *answer = told->outcome;
    });
    look();
    return answer;
  }
  using Answer = std::shared_ptr<std::optional<Result<Controlled>>>;
  Answer move(const TopicPartition& partition, const std::string& name, WallTime due) {
    auto answer = std::make_shared<std::optional<Result<Controlled>>>();
    engine->move(partition, name, due, [answer](Result<Controlled> told) { *answer = told; });
    look();
    return answer;
  }
  Answer deliver_now(const TopicPartition& partition, const std::string& name) {
    auto answer = std::make_shared<std::optional<Result<Controlled>>>();
    engine->deliver_now(partition, name, [answer](Result<Controlled> told) { *answer = told; });
    look();
    return answer;
  }
  // Looked-up rows are found at once, unless the test says when.
  void look() {
    if (finds_at_once) background.run_all();
  }

  // Reports of the tier and the store.
  std::uint64_t total() const { return counts_->total(); }
  // What a principal has pending, with what is on its way if it has a quota.
  storage::PendingUse use_of(PrincipalId principal) const {
    return counts_->account(principal)->use();
  }
  // The same as the model has it.
  std::map<PrincipalId, storage::PendingUse> expected_uses() const {
    std::map<PrincipalId, storage::PendingUse> out;
    for (const auto& [sequence, entry] : pending_)
      if (entry.share.principal != unknown_principal)
        out[entry.share.principal].add({1, std::int64_t{entry.share.bytes}});
    return out;
  }
  void check_uses() {
    const auto expected = expected_uses();
    for (const auto& [principal, use] : counts_->uses()) {
      const auto known = expected.find(principal);
      must(use == (known == expected.end() ? storage::PendingUse{} : known->second),
           "what is counted for a principal is pending");
    }
    for (const auto& [principal, use] : expected)
      must(use_of(principal) == use, "what is pending is counted for its principal");
  }
  std::vector<storage::ScheduleEvent> trace(const TopicPartition& partition,
                                            const std::string& id) {
    auto out = std::make_shared<std::optional<std::vector<storage::ScheduleEvent>>>();
    engine->trace(partition, id, [out](auto events) { *out = std::move(events.value()); });
    background.run_all();
    REQUIRE(*out);
    return **out;
  }
  std::optional<storage::PendingRecord> find(const std::string& handle) {
    const auto out = look_handle(handle);
    REQUIRE(*out);
    return (*out)->record;
  }
  // The answer may come with a later sync().
  using LookedUp = std::shared_ptr<std::optional<Looked>>;
  LookedUp look_handle(const std::string& handle) {
    auto out = std::make_shared<std::optional<Looked>>();
    engine->look_handle(handle, [out](auto looked) { *out = std::move(looked.value()); });
    background.run_all();
    return out;
  }
  LookedUp look_id(const TopicPartition& partition, const std::string& id) {
    auto out = std::make_shared<std::optional<Looked>>();
    engine->look_id(partition, id, [out](auto looked) { *out = std::move(looked.value()); });
    background.run_all();
    return out;
  }

  // Begins a checkpoint: what is durable now is in the store when the background has done its work.
  void checkpoint() {
    const Lsn target = durable_.empty() ? checkpoint_ : durable_.back().lsn + 1;
    engine->write_all([this, target] {
      if (!controls.notes_early) REQUIRE(store->flush().has_value());
      while (!durable_.empty() && durable_.front().lsn < target) durable_.pop_front();
      checkpoint_ = target;
      engine->noted(target);
    });
  }
  // A topic's deletion in the order of its steps, 0 to 2: a crash may come between them.
  void delete_topic(const TopicId& topic, int step) {
    if (step == 0) {
      deleted.insert(topic);
      std::erase_if(pending_, [&](const auto& of) { return of.second.partition.topic == topic; });
    } else if (step == 1) {
      drop(topic);
    } else {
      engine->topic_deleted(topic);
    }
  }
  void drop(const TopicId& topic) {
    REQUIRE(store->drop_topic(topic).has_value());
    counts_->forget(topic);
  }

  // --- The journal: the first `count` records that wait become durable.
  void sync(std::size_t count = ~std::size_t{0}) {
    for (; count != 0 && !journal_.empty(); --count) {
      auto entry = std::move(journal_.front());
      journal_.pop_front();
      make_durable(entry);
      entry.transaction.tell_settled({});
      if (checks_store && engine->has_applied_all())
        must(total() == pending_.size(), "what is counted is pending");
      // What is on its way counts too then.
      if (checks_store && engine->has_applied_all() && !had_quotas) check_uses();
    }
  }
  bool idle() const { return journal_.empty(); }
  // It fails, and all that waits is told so.
  void fail_journal() {
    for (auto& entry : std::exchange(journal_, {}))
      entry.transaction.tell_settled(fail(Errc::io, "the journal's disk is gone"));
  }

  // Turns the shard's wheel as its driver does, at this moment; the number of steps.
  std::size_t turn(std::size_t most = 100'000) {
    std::size_t steps = 0;
    for (; steps < most; ++steps) {
      const auto due = wheel->next_due();
      if (!due || *due > tick()) break;
      wheel->advance(tick(), 4096);
    }
    CHECK_MESSAGE(steps < 100'000, "the alarm goes off again and again");
    return steps;
  }
  // Until nothing is in flight and nothing to do at this moment.
  void settle() {
    do {
      sync();
      background.run_all();
    } while (turn() != 0 || !journal_.empty() || background.size() != 0);
  }
  // Time passes; the driver wakes up for every deadline and rounds become durable at once.
  void pass(milliseconds time) {
    const MonoTime end = clock.mono() + time;
    settle();
    while (true) {
      const auto due = wheel->next_due();
      if (!due || time_of(*due) > end) break;
      if (time_of(*due) > clock.mono()) {
        clock.pass(std::chrono::ceil<milliseconds>(time_of(*due) - clock.mono()));
      }
      settle();
    }
    if (end > clock.mono()) clock.pass(std::chrono::ceil<milliseconds>(end - clock.mono()));
    settle();
  }

  // The process dies: of what waits in the journal the first `kept` records are there afterwards.
  // Starts again after `down`.
  void crash(std::size_t kept = 0, milliseconds down = milliseconds{0}) {
    background.forget();
    engine.reset();
    for (auto& entry : journal_) {
      if (kept-- == 0) break;
      make_durable(entry);
    }
    journal_.clear();
    out_of_service.clear();
    removed_appended_ = removed_durable_;
    for (auto& [partition, end] : ends_) end = static_cast<Offset>(log(partition).size());
    store.reset();
    store = storage::BucketStore::open(directory_.path("pending"), {}).value();
    replay();
    clock.pass(down);
    wheel = std::make_unique<timing::TimingWheel>();
    options_.wheel_start = clock.mono();
    boot();
    if (!checks_store) return;
    must(total() == pending_.size(), "what is counted is pending");
    check_uses();
  }

  std::vector<ReadRecord>& log(const TopicPartition& partition) { return logs_[partition]; }
  std::vector<std::string> values(const TopicPartition& partition) {
    std::vector<std::string> out;
    for (const auto& record : log(partition)) out.push_back(record.value);
    return out;
  }
  const std::map<Sequence, Pending>& pending() const { return pending_; }
  std::size_t appended_and_waiting() const { return journal_.size(); }
  const std::vector<std::size_t>& batch_sizes() const { return batch_sizes_; }

  TestClock clock;
  std::unique_ptr<timing::TimingWheel> wheel;
  std::unique_ptr<storage::BucketStore> store;
  QueuedBackground background;
  std::unique_ptr<Engine> engine;
  std::map<TopicId, TopicDelay> topics;
  std::set<TopicId> deleted;
  std::function<bool(const TopicPartition&)> refuses;
  Errc refusal = Errc::io;
  std::set<TopicPartition> out_of_service;  // Until a crash: the start opens them again.
  bool refuses_commits = false;
  bool has_no_memory = false;    // For the next commit.
  bool refuses_appends = false;  // The journal, of batches that are accepted.
  PendingTerms terms;            // Of the producer of what follows.
  bool give_sequences_when_asked = true;
  bool finds_at_once = true;
  bool checks_order = true;
  bool checks_store = true;
  bool had_quotas = false;  // Some producer: its account has what is on its way, too.
  // No run of a recurring record that is due from then on is left out; empty: any may be.
  std::optional<WallTime> runs_from = std::nullopt;
  std::function<void(const Buffer& batch)> acknowledged = nullptr;
  // Negative controls: what a start or a checkpoint does wrong.
  struct Controls {
    std::function<bool(const storage::Operation&)> forgets = nullptr;  // In a replay.
    // A replay finds bytes of the record that nobody can read.
    std::function<bool(const storage::PendingAdded&)> damages = nullptr;
    bool notes_early = false;       // A checkpoint, before the store is flushed.
    bool forgets_deletion = false;  // A start, of a topic.
    bool counts_records = false;    // A replay: places are those of whole records.
    bool reverses = false;          // A batch that is handed over.
  } controls;
  // The rules that were broken; null: that fails the test.
  std::set<std::string>* broken = nullptr;
  bool must(bool holds, const char* rule) {
    if (holds) return true;
    if (broken == nullptr) FAIL_CHECK(std::string(rule));
    if (broken != nullptr) broken->insert(rule);
    return false;
  }
  std::size_t block = 1'000'000;
  std::size_t sequences_asked = 0;
  std::size_t encoded_at_commit = 0;  // Bytes, of the batch that was committed last.
  std::size_t deliveries = 0;
  std::size_t delivered_bytes = 0;     // Of their batches.
  std::vector<records::Codec> codecs;  // The codecs of delivered batches.
  // Deliveries wait until the test calls them, as while their partitions are being opened.
  bool defers = false;
  std::deque<std::move_only_function<void()>> deferred;

  void give() {
    engine->give_sequences(next_block_, next_block_ + block);
    next_block_ += block;
  }

 private:
  struct Entry {
    Buffer record;
    Lsn lsn;
    storage::JournalTransaction transaction;
  };
  struct Durable {
    Buffer record;
    Lsn lsn;
  };

  void boot() {
    counts_ = std::make_unique<storage::PendingCounts>();
    const auto totals = store->totals().value();
    for (const auto& [topic, count] : totals) counts_->set(topic, count);
    counts_->set(store->uses().value());
    engine = std::make_unique<Engine>(
        clock, *wheel,
        Engine::Storage{*store, background, {0, 1}, [](const auto&) { return 0; }, *counts_}, *this,
        options_);
    REQUIRE(engine->open().has_value());
    if (give_sequences_when_asked) {
      engine->start();
    } else {
      give();
      engine->start();
    }
  }
  // As a broker does at its start.
  void replay() {
    BucketTier::Options options;
    options.loads = false;
    BucketTier::Hooks hooks;
    hooks.wake = [] {};
    hooks.failed = [](const Error& error) { FAIL("the store failed: " << error.message); };
    BucketTier tier(*store, background, {0, 1}, options, hooks);
    REQUIRE(tier.open(clock.wall()).has_value());
    const auto is_gone = [this](const TopicId& topic) {
      return deleted.contains(topic) && !controls.forgets_deletion;
    };
    for (const auto& topic : deleted) {
      if (is_gone(topic)) REQUIRE(store->drop_topic(topic).has_value());
    }
    for (const auto& [record, lsn] : durable_) {
      storage::JournalPlace at{lsn};
      for_each(record, [&](const storage::Operation& operation) {
        const auto* added = std::get_if<storage::PendingAdded>(&operation);
        const auto* gone = std::get_if<storage::PendingRemoved>(&operation);
        const bool is_told = !controls.forgets || !controls.forgets(operation);
        if (is_told && added && !is_gone(added->partition.topic)) {
          storage::PendingAdded read = *added;
          if (controls.damages && controls.damages(*added)) read.record = read.record.first(1);
          (void)tier.add(at, read);
        }
        if (is_told && gone && !is_gone(gone->partition.topic)) tier.remove(at, *gone);
        if (!controls.counts_records) ++at.operation;
      });
    }
    bool written = false;
    tier.write_all([&] { written = true; });
    while (!written) {
      (void)tier.step(clock.wall());
      background.run_all();
    }
  }
  timing::Tick tick() const {
    return static_cast<timing::Tick>(
        std::chrono::floor<milliseconds>(clock.mono() - options_.wheel_start).count());
  }
  MonoTime time_of(timing::Tick tick) const {
    return options_.wheel_start + milliseconds(static_cast<std::int64_t>(tick));
  }

  void append(storage::JournalTransaction transaction) {
    Buffer bytes;
    for (const Bytes piece : transaction.pieces()) append_bytes(bytes, piece);
    if (bytes.empty()) {  // Nothing has to wait.
      transaction.tell_appended(0);
      return transaction.tell_settled({});
    }
    for_each(bytes, [&](const storage::Operation& operation) {
      if (const auto* gone = std::get_if<storage::PendingRemoved>(&operation))
        removed_appended_.insert({gone->due, gone->sequence});
      if (const auto* appended = std::get_if<storage::LogAppended>(&operation)) {
        const auto count = read_batch(appended->batches).size();
        ends_[appended->partition] += static_cast<Offset>(count);
      }
      if (const auto* added = std::get_if<storage::PendingAdded>(&operation))
        removed_appended_.erase({added->due, added->sequence});
    });
    transaction.tell_appended(++appended_);
    journal_.push_back({std::move(bytes), appended_, std::move(transaction)});
  }

  template <typename F>
  static void for_each(Bytes record, F take) {
    REQUIRE(storage::for_each_operation(record, [&](const storage::Operation& operation) {
              take(operation);
              return Result<>{};
            }).has_value());
  }

  void make_durable(const Entry& entry) {
    durable_.push_back({entry.record, entry.lsn});
    for_each(durable_.back().record, [&](const storage::Operation& operation) {
      if (const auto* appended = std::get_if<storage::LogAppended>(&operation)) {
        auto& to = log(appended->partition);
        for (auto& read : read_batch(appended->batches)) {
          read.offset = static_cast<Offset>(to.size());
          to.push_back(std::move(read));
        }
      } else if (const auto* added = std::get_if<storage::PendingAdded>(&operation)) {
        const bool is_moved = moving_.erase(added->sequence) == 1;
        CHECK_MESSAGE((sequences_.insert(added->sequence).second || is_moved),
                      "a sequence number is used once");
        const PendingKey key{added->due, added->sequence};
        if (is_moved) removed_durable_.erase(key);
        const auto body = PendingRecordBody::parse(added->record).value();
        const auto value = body.record.value;
        pending_[added->sequence] = {key,
                                     added->partition,
                                     added->expires,
                                     std::string(added->id),
                                     std::string(as_text(*value)),
                                     added->first_due.value_or(added->due),
                                     !body.recurrence.empty(),
                                     added->share()};
        if (removed_durable_.contains(key) || deleted.contains(added->partition.topic))
          pending_.erase(added->sequence);
      } else if (const auto* gone = std::get_if<storage::PendingRemoved>(&operation)) {
        removed_durable_.insert({gone->due, gone->sequence});
        const auto known = pending_.find(gone->sequence);
        if (known != pending_.end() && known->second.key.due == gone->due)
          must(known->second.share == gone->share, "a removal has the share of its record");
        pending_.erase(gone->sequence);
        // A recurring record is added again by the delivery that removes it.
        if (gone->how == storage::RemovalReason::moved ||
            gone->how == storage::RemovalReason::delivered)
          moving_.insert(gone->sequence);
      }
    });
  }

  void check_delivery(const TopicPartition& partition, Bytes batch,
                      const std::vector<storage::PendingRemoved>& gone) {
    const auto records = read_batch(batch);
    batch_sizes_.push_back(records.size());
    REQUIRE(records.size() == gone.size());
    const WallTime now = engine->stats().now;
    CHECK(now <= clock.wall());
    std::vector<PendingKey> handed;
    for (std::size_t i = 0; i < gone.size(); ++i) {
      const auto entry = pending_.find(gone[i].sequence);
      const bool is_pending = entry != pending_.end() && entry->second.key.due == gone[i].due;
      if (!must(is_pending, "what is handed over is pending")) return;
      must(!removed_appended_.contains(entry->second.key), "nothing is handed over twice");
      CHECK(entry->second.partition == partition);
      CHECK(entry->second.value == records[i].value);
      must(entry->second.key.due <= clock.wall_now, "nothing is early");
      CHECK_MESSAGE(entry->second.expires > now, "nothing expired is delivered");
      const auto due = from_ms(std::stoll(records[i].header("x-scheduled-for").value_or("0")));
      const bool may_be_left_out = !runs_from || entry->second.key.due < *runs_from;
      CHECK((due == entry->second.key.due ||
             (entry->second.recurring && may_be_left_out && due <= clock.wall())));
      CHECK(records[i].header("x-schedule-handle") == entry->second.handle());
      handed.push_back(entry->second.key);
    }
    if (controls.reverses) std::ranges::reverse(handed);
    if (!must(std::ranges::is_sorted(handed), "due records leave in their order") || !checks_order)
      return;
    // The first ones of all that is pending in this partition.
    std::vector<PendingKey> all;
    for (const auto& [sequence, entry] : pending_) {
      if (entry.partition != partition || removed_appended_.contains(entry.key)) continue;
      // An expired record stays behind, also while nobody takes its removal.
      if (entry.expires <= now) continue;
      all.push_back(entry.key);
    }
    std::ranges::sort(all);
    REQUIRE(all.size() >= handed.size());
    all.resize(handed.size());
    if (all == handed) return;
    const auto [first, left] = std::ranges::mismatch(all, handed);
    FAIL_CHECK("of " << all.size() << ", sequence " << first->sequence << ", due "
                     << (clock.wall() - first->due).count() << " ms ago, stayed behind "
                     << left->sequence << ", due " << (clock.wall() - left->due).count()
                     << " ms ago");
  }

  TestDirectory directory_;
  Engine::Options options_;
  std::unique_ptr<storage::PendingCounts> counts_;
  std::deque<Entry> journal_;
  Lsn appended_ = 0;  // How many records were.
  Lsn checkpoint_ = 0;
  std::deque<Durable> durable_;  // From the checkpoint on.
  std::map<TopicPartition, std::vector<ReadRecord>> logs_;
  std::map<TopicPartition, Offset> ends_;  // The ends of the logs, with what is not durable yet.
  std::map<Sequence, Pending> pending_;    // Durable.
  std::set<Sequence> sequences_, moving_;
  std::set<PendingKey> removed_durable_, removed_appended_;
  std::vector<std::size_t> batch_sizes_;
  Sequence next_block_ = 1;
};

}  // namespace tarry::delay
