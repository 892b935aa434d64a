#pragma once

// Engine: keeps pending records, decides which are due, and hands them to a Sink.  Each shard has
// one.
//
//   producer's batch                                                          partition's log
//        |                                                                          ^
//     accept() --> AcceptedBatch --(one journal record, by the host)             deliver()
//                     |                                                             |
//                appended()   durable()                                   ready, per partition
//                known to     in the BucketTier                           in (due, sequence) order
//                cancels         |                                                  ^
//                                |                                                  |
//                                +--> near: wheel of the wall clock --- due --------+
//                                |      ^
//                                |      | in memory, a lead of time before it is due
//                                +--> far: in memory and on disk (bucket_tier.h)
//
// The host's part in accepting:
//
//   auto schedules = read_schedules(checked, topic, arrived, engine.believed(arrived));
//   engine.read_ids(partition, *schedules, [...](auto ids) { ... });       // If it has any.
//   auto accepted = engine.accept(partition, checked, *schedules, topic, arrived, *ids);
//   if (!accepted) answer(accepted.error());                     // Nothing was changed.
//   storage::JournalTransaction transaction;
//   if (!accepted->appends_nothing()) transaction.add(LogAppended{...});
//   engine.add_to(transaction, std::move(*accepted), base_offset);
//   commit(std::move(transaction));     // Before anything else of that partition is accepted.
//
// The states of an entry, and when it can still be removed:
//
//   accepted, not durable --> pending --> ready --> in flight --> gone (delivered)
//           |                  |  ^        |            '--- recurring: pending, with its next time
//           |                  |  '--------|-- move: leaving --> pending, with another due time
//           '------------------'-----------'-- cancel, replace, expire: leaving --> gone
//
//   leaving    its removal is in the journal and not durable yet: it is not handed to the sink
//              now.  So is a record with an id that was due on arrival, which goes to the log at
//              once: a cancel waits for it, and its answer is that it came too late
//   in flight  its delivery is in the journal, or will be refused: a cancel waits for the outcome.
//              A record that cancels or replaces it cannot wait and comes too late
//
// The work is done in parts, each with an invariant that its header states; a part uses only those
// to its left.
//
//   Alarm, EngineClock, BucketTier
//     <  ReadyQueues
//     <  RemovalsInFlight, UnappliedRecords, DeliveryWaiters, DurableChanges
//     <  OwnChanges  <  Deliveries  <  Intake, Control
//
// Together they guarantee
//   - No record is delivered before its due time by the wall clock, nor twice, nor after it
//     was cancelled, was replaced or expired.
//   - Per partition ready records leave in (due, sequence) order.
//   - The tier changes only by what is durable, in the order of the journal; what is removed was
//     pending.
//   - The work of a step is bounded (Options::step_*), and so is the memory: when it is spent, new
//     records are refused for the time being.
//
// Everything runs on its shard's thread, with the clock that is given; from start() on its public
// functions assert it.  Only the tier's work on the Background blocks.  The engine may be
// destroyed at any time outside its calls to the sink: a `done` that comes later does nothing.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <expected>
#include <functional>
#include <string>
#include <string_view>

#include "base/background.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/owner_thread.h"
#include "base/result.h"
#include "delay/accepted_batch.h"
#include "delay/alarm.h"
#include "delay/batch_schedules.h"
#include "delay/bucket_tier.h"
#include "delay/control.h"
#include "delay/controlled.h"
#include "delay/deliveries.h"
#include "delay/delivery_waiters.h"
#include "delay/durable_changes.h"
#include "delay/engine_clock.h"
#include "delay/engine_context.h"
#include "delay/engine_options.h"
#include "delay/engine_stats.h"
#include "delay/intake.h"
#include "delay/own_changes.h"
#include "delay/ready_queues.h"
#include "delay/removals_in_flight.h"
#include "delay/sink.h"
#include "delay/unapplied_records.h"
#include "records/batch_check.h"
#include "storage/bucket_store.h"
#include "storage/journal_transaction.h"
#include "storage/pending_counts.h"
#include "timing/timing_wheel.h"

namespace tarry::delay {

class Engine {
 public:
  using Options = EngineOptions;
  using Stats = EngineStats;
  using Looked = delay::Looked;
  using NewDue = delay::NewDue;
  using Events = BucketTier::Events;

  // The storage of the engine's records (bucket_tier.h).
  struct Storage {
    storage::BucketStore& store;
    Background& background;
    storage::Owner owner;
    storage::BucketStore::OwnerOf owner_of;
    storage::PendingCounts& counts;
    std::function<Result<>()> flush = {};  // BucketTier::Hooks::flush
  };

  // All references outlive the engine; the alarm is the one timer that it keeps in `shard_wheel`.
  Engine(const Clock& clock, timing::TimingWheel& shard_wheel, const Storage& storage, Sink& sink,
         const Options& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Once, when the journals are replayed into the store; blocks.
  Result<> open();
  // Once, after open(), on the thread that uses it from here on: overdue records leave in the steps
  // that follow.
  void start();

  // Gives this engine the sequence numbers first .. end-1 for ever; blocks come in rising order.
  void give_sequences(Sequence first, Sequence end) {
    thread_.check();
    intake_.sequences().give(first, end);
  }
  // Sink::request_sequences() failed: the engine calls it again when it needs a number.
  void sequences_refused() {
    thread_.check();
    intake_.sequences().refused();
  }

  // --- Accepting (above).

  // The time by which an arrived record counts as due: never later than `arrived`, nor than the
  // believed wall time (clock_step_filter.h).
  WallTime believed(WallTime arrived) {
    thread_.check();
    return std::min(arrived, time_.observe());
  }
  // Reads the events of the ids that a batch takes; may be asked for long before the batch is
  // accepted. The bytes of the ids live until `done` is called: perhaps at once.
  using IdRows = BucketTier::IdRows;
  void read_ids(const TopicPartition& partition, const BatchSchedules& schedules,
                std::move_only_function<void(Result<IdRows>)> done) {
    thread_.check();
    intake_.read_ids(partition, schedules, std::move(done));
  }
  // `batch` must be opened when there are `schedules`, which are of its records.  The accepted
  // batch is committed in the same turn.
  std::expected<AcceptedBatch, ScheduleErrors> accept(const TopicPartition& partition,
                                                      const records::CheckedBatch& batch,
                                                      const BatchSchedules& schedules,
                                                      const TopicDelay& topic, WallTime arrived,
                                                      const IdRows& ids,
                                                      const PendingTerms& terms = {}) {
    thread_.check();
    return intake_.accept(partition, batch, schedules, topic, arrived, ids, terms);
  }
  // The same on the pool, and in steps: for a batch with AcceptedBatch::is_long(), or one that is
  // committed in a later turn.  The records that it takes are leaving until then.  `batch` and
  // `schedules` live until `done` is called, perhaps at once; nothing else of the partition is
  // accepted until it is committed or refused.  An engine that goes calls `done` no more.
  void accept_in_steps(const TopicPartition& partition, const records::CheckedBatch& batch,
                       const BatchSchedules& schedules, const TopicDelay& topic, WallTime arrived,
                       IdRows ids, Intake::Done done, const PendingTerms& terms = {}) {
    thread_.check();
    intake_.accept_in_steps(partition, batch, schedules, topic, arrived, std::move(ids), terms,
                            std::move(done));
  }
  // Adds the new pending records and the removals.  When the transaction is appended their ids are
  // known; when it is durable the records are in the store and armed.  `base` is the offset of the
  // batch's first record if something goes to the log at once.
  void add_to(storage::JournalTransaction& transaction, AcceptedBatch accepted, Offset base) {
    thread_.check();
    intake_.add_to(transaction, std::move(accepted), base);
  }

  // --- For the owner of the records.  `name` is an id or a handle.  `done` is called when the
  // answer is durable, after the outcome of a delivery in flight if need be; the answer never turns
  // out to be wrong later.

  void cancel(const TopicPartition& partition, std::string_view name, ControlDone done) {
    thread_.check();
    control_.cancel(partition, name, std::move(done));
  }
  // Gives the record another due time, or one that is later or earlier by a duration, and keeps its
  // handle and its place among records of the same due time.  One that has passed makes it due now.
  // Errc::invalid: it expires before, or the time is none that is allowed (schedule.h).
  void move(const TopicPartition& partition, std::string_view name, NewDue due, ControlDone done) {
    thread_.check();
    control_.move(partition, name, due, std::move(done));
  }
  // Makes the record due now and answers with its offset when it is delivered.  It comes behind
  // what is overdue already.  Errc::invalid: somebody else moved it before it was delivered.
  void deliver_now(const TopicPartition& partition, std::string_view name, ControlDone done) {
    thread_.check();
    control_.deliver_now(partition, name, std::move(done));
  }

  // --- For those who look.  `done` is called on this thread, perhaps at once.

  void look_id(const TopicPartition& partition, std::string id, LookedDone done) {
    thread_.check();
    control_.look_id(partition, std::move(id), std::move(done));
  }
  // A record of whatever partition of this engine.
  void look_handle(std::string_view handle, LookedDone done) {
    thread_.check();
    control_.look_handle(handle, std::move(done));
  }
  // The events of an id, oldest first; none: the id is unknown, or no longer known.
  void trace(const TopicPartition& partition, std::string id, Events done) {
    thread_.check();
    control_.trace(partition, std::move(id), std::move(done));
  }
  // Visits near records that are not due yet, a step at a time, as NearTier::visit() says.
  using NearSeen = ReadyQueues::Seen;
  bool visit_near(std::size_t& cursor, std::size_t limit, const NearSeen& seen) const {
    thread_.check();
    return queues_.visit(cursor, limit, seen);
  }

  // No delivery begins any more: requests that wait for one are told so.
  void stop_waiting();

  // --- Checkpoints.

  // Everything that became durable before this call is in the store's memory when `done` is called:
  // a flush of the store makes it durable, and BucketStore::page() and count() see it.
  void write_all(std::move_only_function<void()> done);
  // A checkpoint of the journal is noted: nothing before `lsn` is replayed.
  void noted(Lsn lsn) {
    thread_.check();
    tier_.noted({lsn, 0});
  }

  // The logs of the host begin to write all that was durable before this call, and that has ended;
  // one after the other (EngineOptions::unwritten_bytes).
  void log_write_begins() {
    thread_.check();
    deliveries_.log_write_begins();
  }
  void log_write_ended(bool written) {
    thread_.check();
    deliveries_.log_write_ended(written);
  }

  // The topic is deleted (and dropped from the store by the host).
  void topic_deleted(const TopicId& topic);

  // Records that are in the journal and not yet in the store, whose counts do not include them.
  std::size_t arriving_of(const TopicId& topic) const {
    thread_.check();
    return unapplied_.count_of(topic);
  }
  // Nothing durable waits for its turn to be applied: the counts are those of the journal.
  bool has_applied_all() const {
    thread_.check();
    return durable_.empty();
  }

  Stats stats() const;
  // The due records of a partition out of service that wait for the next start.
  std::size_t set_aside_of(const TopicPartition& partition) const {
    thread_.check();
    const auto fenced = deliveries_.fenced().find(partition);
    return fenced == deliveries_.fenced().end() ? 0 : fenced->second.overdue;
  }
  // The buckets that have records in memory; looks at some thousands of them at most.
  storage::LevelSlots slots() const;

 private:
  BucketTier::Options tier_options(const Storage& storage) const;
  BucketTier::Hooks tier_hooks(const Storage& storage);
  bool step();
  bool step_part(std::size_t part, WallTime now);
  bool take_in();
  std::optional<MonoTime> next_work(MonoTime now) const;
  void came_near(const storage::PendingView& record, const Location& at);
  void failed(const Error& error);

  const Options options_;
  OwnerThread thread_;
  EngineClock time_;
  Alarm alarm_;
  BucketTier tier_;
  EngineContext context_;
  ReadyQueues queues_;
  RemovalsInFlight removals_{queues_};
  UnappliedRecords unapplied_;
  DeliveryWaiters waiters_;
  DurableChanges durable_;
  OwnChanges changes_;
  Deliveries deliveries_;
  Intake intake_;
  Control control_;
  std::size_t next_part_ = 0;    // The step goes on there.
  BucketTier::Settled settled_;  // As the queues know it.
};

}  // namespace tarry::delay
