#pragma once

// Engine: keeps pending records, decides which are due, and hands them to a Sink.  Each shard has
// one.
//
//   producer's batch                                                          partition's log
//        |                                                                          ^
//     accept() --> Accepted --(one journal record, by the host)                  deliver()
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
//   auto accepted = engine.accept(partition, checked, *schedules, topic, arrived);
//   if (!accepted) answer(accepted.error());                     // Nothing was changed.
//   storage::JournalTransaction transaction;
//   if (!accepted->appends_nothing()) transaction.add(LogAppended{...});
//   engine.add_to(transaction, std::move(*accepted), base_offset);
//   commit(std::move(transaction));                      // Before anything else is accepted.
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
// Invariants
//   - No record is delivered before its due time by the wall clock, nor twice, nor after it
//     was cancelled, was replaced or expired.
//   - Per partition ready records leave in (due, sequence) order, one batch in flight at a time.
//   - The tier changes only by what is durable, in the order of the journal; what is removed was
//     pending.
//   - A sequence number is used once.
//   - With nothing pending there is no timer.  Otherwise there is one, at most a second away, so
//     that a step of the wall clock is noticed (docs/adr/0001).
//   - The work of a step is bounded (Options::step_*), and so is the memory: when it is spent, new
//     records are refused for the time being.
//
// Fairness: partitions with ready records take turns, a batch each.  A partition whose delivery was
// refused waits for its own back-off; the others do not wait for it.
//
// Everything runs on its shard's thread, with the clock that is given; what blocks is the tier's
// work on the Background.  The engine may be destroyed at any time outside its calls to the sink: a
// `done` that comes later does nothing.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "base/ids.h"
#include "base/metrics.h"
#include "base/result.h"
#include "delay/batch_schedules.h"
#include "delay/bucket_tier.h"
#include "delay/clock_step_filter.h"
#include "delay/near_tier.h"
#include "delay/schedule.h"
#include "delay/sink.h"
#include "records/batch_check.h"
#include "storage/journal_record.h"
#include "storage/journal_transaction.h"
#include "storage/pending.h"
#include "timing/timing_wheel.h"

namespace tarry::delay {

// The result of accepting a batch.  Owns all bytes that it refers to.
class Accepted {
 public:
  // No record in it has a schedule: the batch goes to the log as it came.
  bool untouched() const { return kind_ == Kind::untouched; }
  // All records are delayed, or are cancels: nothing goes to the log.
  bool appends_nothing() const { return kind_ == Kind::nothing; }

  // If neither of these: the batch that goes to the log instead, at once.  It keeps the producer's
  // fields, codec, deltas and last offset delta; a delayed record or a cancel leaves a hole.
  Bytes immediate() const { return immediate_; }
  Buffer take_immediate() { return std::move(immediate_); }

  // The base offset in the answer if nothing goes to the log: -n for n records.
  Offset base_offset() const { return -static_cast<Offset>(records_); }
  std::int32_t records() const { return records_; }  // In the producer's batch.

  std::size_t delayed() const;  // How many are.
  bool is_empty() const { return added_.empty() && removed_.empty(); }

 private:
  friend class Engine;
  enum class Kind { untouched, rewritten, nothing };
  struct Added {
    PendingKey key;
    WallTime expires;
    std::size_t id_at = 0, id_size = 0;          // In bytes_.
    std::size_t record_at = 0, record_size = 0;  // In bytes_.
    bool dropped = false;                        // Replaced or cancelled later in the same batch.
  };
  struct Removed {
    PendingKey key;
    WallTime first;  // Its handle's due time.
    storage::RemovalReason how;
    std::size_t id_at = 0, id_size = 0;  // In bytes_.
    std::int32_t offset_delta = 0;       // Of one that goes to the log at once.
  };

  std::string_view id(std::size_t at, std::size_t size) const {
    return as_text(Bytes(bytes_).subspan(at, size));
  }
  storage::PendingAdded added_operation(const Added& added) const;
  storage::PendingRemoved removed_operation(const Removed& gone) const;
  // Keep a copy of the bytes in bytes_.
  void add_gone(const PendingKey& key, WallTime first, storage::RemovalReason how,
                std::string_view id);
  void add_delayed(const PendingKey& key, const Schedule& schedule, WallTime original,
                   const records::RecordView& record);

  Kind kind_ = Kind::untouched;
  TopicPartition partition_;
  WallTime arrived_{};
  Offset base_offset_ = -1;  // Of what goes to the log at once.
  std::int32_t records_ = 0;
  Buffer immediate_;
  Buffer bytes_;  // Ids and records of the members below.
  std::vector<Added> added_;
  // They precede the pending records, in the journal too.
  std::vector<Removed> removed_;
  storage::JournalPlace place_;  // Of the first operation.
  std::uint32_t unknown_cancels_ = 0;
  std::uint32_t late_cancels_ = 0;
  std::uint32_t expired_ = 0;           // On arrival.
  std::uint32_t cancelled_within_ = 0;  // Records that were added and cancelled in this batch.
  std::uint32_t replaced_within_ = 0;
};

// What became of a request of a record's owner.
enum class ControlOutcome { done, already_delivered, unknown };

struct Controlled {
  ControlOutcome outcome = ControlOutcome::unknown;
  WallTime due{};      // Of a record that was moved: its due time now.
  Offset offset = -1;  // Of a record that was delivered now.
};

class Engine {
 public:
  struct Options {
    // For pending records and their locators, and for what is on its way to the disk: the shard's
    // equal share of tarry.delay.memory.bytes.
    std::size_t memory_bytes = 128u << 20;
    // Records that are due later than this may be on disk alone.
    std::chrono::milliseconds lead{120'000};
    // How long an ended id is known.
    std::chrono::milliseconds remember{3'600'000};

    // Limits of one step, so that it takes a few milliseconds at most: records that come near,
    // timers fired or moved, records handed to the sink (2 us each, 3 more when they are done),
    // their bytes.
    std::size_t step_loads = 512;
    std::size_t step_timers = 4096;
    std::size_t step_records = 1024;
    std::size_t step_bytes = 4u << 20;
    // Limit of one delivery, whatever max.message.bytes allows: other partitions take turns too.
    std::size_t batch_records = 512;
    // Handed to the sink and not done.
    std::size_t in_flight_bytes = 32u << 20;

    // The back-off after a refused delivery, doubled each time.
    std::chrono::milliseconds first_back_off{10};
    std::chrono::milliseconds last_back_off{1'000};

    // The shard's wheel counts milliseconds of monotonic time from here.
    MonoTime wheel_start{};
  };

  // What the engine keeps its records in (bucket_tier.h).
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
  // Once, after open(): overdue records leave in the steps that follow.
  void start();

  // Gives this engine the sequence numbers first .. end-1 for ever; blocks come in rising order.
  void give_sequences(Sequence first, Sequence end);
  // Sink::request_sequences() failed: the engine calls it again when it needs a number.
  void sequences_refused() { sequences_requested_ = false; }

  // --- Accepting (above).

  // The time by which an arrived record counts as due: never later than `arrived`, nor than the
  // believed wall time (clock_step_filter.h).
  WallTime believed(WallTime arrived) { return std::min(arrived, wall_.observe(clock_)); }
  // `batch` must be opened when there are `schedules`, which are of its records.
  std::expected<Accepted, ScheduleErrors> accept(const TopicPartition& partition,
                                                 const records::CheckedBatch& batch,
                                                 const BatchSchedules& schedules,
                                                 const TopicDelay& topic, WallTime arrived);
  // Adds the new pending records and the removals.  When the transaction is appended their ids are
  // known; when it is durable the records are in the store and armed.  `base` is the offset of the
  // batch's first record if something goes to the log at once.
  void add_to(storage::JournalTransaction& transaction, Accepted accepted, Offset base);

  // --- For the owner of the records (engine_control.cc).  `name` is an id or a handle.  `done` is
  // called when the answer is durable, after the outcome of a delivery in flight if need be; the
  // answer never turns out to be wrong later.
  using ControlDone = std::move_only_function<void(Result<Controlled>)>;

  void cancel(const TopicPartition& partition, std::string_view name, ControlDone done);

  // Gives the record another due time, or one that is later or earlier by a duration, and keeps its
  // handle and its place among records of the same due time.  One that has passed makes it due at
  // once.  Errc::invalid: it expires before, or the time is none that is allowed (schedule.h).
  using NewDue = std::variant<WallTime, std::chrono::milliseconds>;
  void move(const TopicPartition& partition, std::string_view name, NewDue due, ControlDone done);

  // Makes the record due now and answers with its offset when it is delivered.  It comes behind
  // what is overdue already.  Errc::invalid: somebody else moved it before it was delivered.
  void deliver_now(const TopicPartition& partition, std::string_view name, ControlDone done);

  // --- For those who look.  `done` is called on this thread, perhaps at once.

  struct Looked {
    std::optional<storage::PendingRecord> record;  // Empty: nothing is pending under the name,
    bool delivered = false;                        //   for its last record has been delivered.
  };
  using LookedDone = std::move_only_function<void(Result<Looked>)>;
  void look_id(const TopicPartition& partition, std::string id, LookedDone done);
  // A record of whatever partition of this engine.
  void look_handle(std::string_view handle, LookedDone done);
  // What has happened to an id, oldest first; none: it is not known, or not any more.
  using Events = BucketTier::Events;
  void trace(const TopicPartition& partition, std::string id, Events done);
  // Visits near records that are not due yet, a step at a time, as NearTier::visit() says.
  using NearSeen = std::function<void(const TopicPartition& partition, WallTime due)>;
  bool visit_near(std::size_t& cursor, std::size_t limit, const NearSeen& seen) const;

  // --- Checkpoints.

  // Everything that became durable before this call is in the store's memory when `done` is called:
  // a flush of the store makes it durable, and BucketStore::page() and count() see it.
  void write_all(std::move_only_function<void()> done) { tier_.write_all(std::move(done)); }
  // A checkpoint of the journal is noted: nothing before `lsn` is replayed.
  void noted(Lsn lsn) { tier_.noted({lsn, 0}); }

  // The topic is deleted (and dropped from the store by the host).
  void topic_deleted(const TopicId& topic);

  // Records that are in the journal and not yet in the store, whose counts do not include them.
  std::size_t arriving_of(const TopicId& topic) const;

  struct Stats {
    WallTime now{};                    // The believed wall time, as of the last step.
    std::size_t near = 0;              // Entries in memory, of these:
    std::size_t overdue = 0;           //   due and not yet delivered
    std::size_t in_flight = 0;         //   handed to the sink
    std::size_t arriving = 0;          // Accepted, not durable.  The store counts the rest.
    WallTime horizon{};                // Records due before it are in memory.
    std::optional<WallTime> next_due;  // The first due time, or a time before it:
    bool next_due_exact = true;        //   the beginning of the bucket that has it.
    BucketTier::Stats tier;
    std::uint64_t delivered_total = 0;
    std::uint64_t early_total = 0;  // Always 0.
    std::uint64_t cancelled_total = 0;
    std::uint64_t moved_total = 0;
    std::uint64_t recurred_total = 0;  // Of those delivered: records that are due again.
    std::uint64_t left_out_total = 0;  // Missed runs of recurring records, by tarry.delay.missed.
    std::uint64_t cancel_unknown_total = 0;  // From clients: no such id.
    std::uint64_t cancel_late_total = 0;     // From clients: it was in flight.
    std::uint64_t replaced_total = 0;
    std::uint64_t expired_total = 0;
    std::uint64_t dropped_total = 0;  // Their topic was deleted.
    std::uint64_t damaged_total = 0;  // Kept, but cannot be read (logged).
    std::uint64_t refused_total = 0;  // Deliveries that the sink refused; each is tried again.
    Distribution lag_us;              // From due to durable.
    timing::TimingWheel::Stats wheel;
    std::size_t bytes = 0;  // Of the locators and of the tier.

    // But for those of the wheel.
    void report(MetricSink& sink) const;
  };
  Stats stats() const;

 private:
  // When a record that is being delivered is due again, and its stored form from then on.
  struct Again {
    WallTime due;
    Buffer record;
  };

  // One delivery of a record.
  struct Run {
    WallTime due;  // By which it is delivered; empty in a recurring record's turn: it is not.
    std::optional<Again> again;
  };

  // A delivery in flight: a batch that was handed to the sink.
  struct Delivery {
    std::vector<NearEntry*> entries;
    std::vector<storage::PendingRecord> records;  // Of these, without their bodies.
    std::vector<std::optional<Again>> again;      // Of these: a recurring record is due again.
    WallTime at{};                                // Of the removals.
    std::size_t bytes = 0;
    std::optional<storage::JournalPlace> place;  // Once nothing can refuse it any more.
    // Called with the sequence numbers that were delivered: all, or none.
    std::vector<std::move_only_function<void(const std::vector<Sequence>&)>> waiters;

    storage::PendingRemoved gone_of(std::size_t index, Offset offset = -1) const;
    storage::PendingAdded again_of(std::size_t index) const;
  };

  // A partition of this engine that has near records.
  struct Partition {
    TopicPartition id;
    std::vector<NearEntry*> ready;  // A heap; the first to leave is in front.
    std::size_t entries = 0;        // Its entries in the near tier.
    bool in_turn = false;           // It is in turns_,
    bool unsettled = false;         //   or in unsettled_.
    bool in_use = false;
    bool deleted = false;              // Its topic is deleted.
    std::optional<MonoTime> retry_at;  // While it backs off.
    std::chrono::milliseconds back_off{0};
    std::unique_ptr<Delivery> in_flight;
  };

  // A record whose removal is appended and not durable yet.
  struct Leaving {
    bool stays = false;                                    // It is moved, and pending on.
    std::vector<std::move_only_function<void()>> waiters;  // Further cancels of it.
  };

  // Records that a journal record of the engine's own removes.
  struct Removal {
    struct One {
      PendingKey key;
      WallTime first;  // Its handle's due time.
      std::string id;  // Empty: none.
    };
    TopicPartition partition;
    storage::RemovalReason how;
    std::vector<One> records;
    WallTime at{};
    ControlDone done;               // May be empty.
    bool topic_gone = false;        // The reason: its topic is deleted.
    storage::JournalPlace place{};  // Of the first.

    storage::PendingRemoved operation(const One& one) const;
  };

  // What an owner asks for.
  struct Control {
    enum class Kind { cancel, move, deliver };
    Kind kind;
    TopicPartition partition;
    std::string name;
    NewDue due{};  // Of a move.
    ControlDone done;
    int tries = 0;
  };

  // A record on its way to another due time.
  struct Move {
    storage::PendingRecord record;  // As it was, or with another recurrence.
    WallTime due;
    WallTime at{};
    std::unique_ptr<Control> asked;  // Null: its missed runs are left out.
    storage::JournalPlace place{};

    storage::PendingRemoved removed() const;
    storage::PendingAdded added() const;
  };

  // The state of the record that an id or a handle names.
  struct Found {
    enum class State { unknown, pending, delivered };
    State state = State::unknown;
    PendingKey key{};
    WallTime first{};  // Its handle's due time.
    std::string id{};  // The record's own, where there is one.
  };

  // Accepted in the journal and not durable.
  struct Arriving {
    TopicPartition partition;
    std::string id;
    std::vector<std::move_only_function<void()>> waiters = {};  // Called once it is durable.
  };

  using IdMap = std::map<std::string, PendingKey, std::less<>>;

  // --- engine.cc
  void step();
  void note_clock(WallTime now);
  BucketTier::Hooks hooks(const Storage& storage);
  void came_near(const storage::PendingView& record);
  void wake();
  void begin_sweep();
  bool sweep_step();
  void end_back_offs(MonoTime now);
  void set_alarm();
  void file(const PendingKey& key, const TopicPartition& partition);
  void enqueue(NearEntry& entry);
  void take_turn(PartitionSlot slot);
  void erase(NearEntry& entry);
  PartitionSlot slot_of(const TopicPartition& partition);
  void release_if_idle(PartitionSlot slot);
  void begin_leaving(const PendingKey& key);
  void end_leaving(Sequence sequence);
  void failed(const Error& error);
  timing::Tick tick_of(MonoTime time) const;

  // --- engine_control.cc
  void look_id(const TopicPartition& partition, std::string id, LookedDone done, int tries);
  void control(std::unique_ptr<Control> asked);
  void control_found(std::unique_ptr<Control> asked, const Found& found);
  bool waits(std::unique_ptr<Control>& asked, Sequence sequence);
  Result<WallTime> new_due(const Control& asked, const storage::PendingRecord& record);
  void start_move(std::unique_ptr<Control> asked, storage::PendingRecord record);
  void commit_move(std::unique_ptr<Move> move);
  void moved(Move& move, const Result<>& result);
  void await_delivery(Sequence sequence, std::unique_ptr<Control> asked);
  void answer_awaiting(Sequence sequence, const Result<Controlled>& answer);
  void remove(std::unique_ptr<Removal> removal);
  void removed(Removal& removal, const Result<>& result);
  void put_back(const PendingKey& key, const TopicPartition& partition);

  // --- engine_accept.cc
  // Used while a batch is read: the record that has an id.
  struct Intake {
    std::map<std::string_view, std::size_t> delayed;  // Id -> index in Accepted::added_.
    std::set<std::string_view> gone;
  };
  enum class Taken { no, yes, late, busy };
  Result<Taken> take_id(Accepted& accepted, Intake& intake, std::string_view id,
                        storage::RemovalReason how);
  void appended(const Accepted& accepted) noexcept;
  void durable(const Accepted& accepted);
  void note_arriving(const TopicPartition& partition, std::string_view id, const PendingKey& key);
  std::uint64_t sequences_left() const;
  Sequence next_sequence();
  const PendingKey* arriving_id(const TopicPartition& partition, std::string_view id) const;
  Found found_of(const std::optional<storage::ScheduleEvent>& last, std::string_view id) const;
  Result<Found> find_id(const TopicPartition& partition, std::string_view id);
  void request_sequences_if_low();

  // --- engine_deliver.cc
  bool dispatch(WallTime now);
  void deliver_from(PartitionSlot slot, WallTime now, std::size_t& records, std::size_t& bytes);
  struct Filling;
  void fill(Filling& filling);
  void add_to(Filling& filling, NearEntry& entry,
              const std::optional<storage::PendingView>& record);
  bool take_turn_of(Filling& filling, const storage::PendingView& record, Bytes recurrence,
                    Run& run);
  bool is_settled(const NearEntry& entry) const;
  void end_turn(PartitionSlot slot);
  std::size_t send(Filling& filling);
  NearEntry* take_ready(PartitionSlot slot);
  void drop_all(PartitionSlot slot);
  void delivered(PartitionSlot slot, const Result<Offset>& result);
  void back_off(PartitionSlot slot);

  const Clock& clock_;
  timing::TimingWheel& shard_wheel_;
  Sink& sink_;
  const Options options_;

  ClockStepFilter wall_;
  // Since when runs that become due are delivered, however late: before it they were missed.
  WallTime running_since_{};
  WallTime last_now_{};
  MonoTime last_mono_{};
  timing::CallbackTimer alarm_;
  NearTier near_;
  BucketTier tier_;
  bool started_ = false;
  bool stopped_ = false;      // The store has failed.
  bool stepping_ = false;     // step() is running: no second one inside it.
  bool more_ = false;         // There is more work to do at once.
  bool sweeping_ = false;     // Some near entries may have to leave.
  bool sweep_again_ = false;  // More such entries since this sweep began.

  // Blocks of sequence numbers, the one in use in front.
  struct Block {
    Sequence next;
    Sequence end;
  };
  std::deque<Block> blocks_;
  std::uint64_t last_block_size_ = 0;
  bool sequences_requested_ = false;

  std::deque<Partition> partitions_;  // By slot.
  std::vector<PartitionSlot> free_slots_;
  std::unordered_map<TopicPartition, PartitionSlot> slots_;
  std::deque<PartitionSlot> turns_;  // Those with ready records, none in flight, no back-off.
  // Those whose next records wait until all that may be due before them are near.
  std::vector<PartitionSlot> unsettled_;
  std::multimap<MonoTime, PartitionSlot> backing_off_;
  std::size_t in_flight_bytes_ = 0;

  std::unordered_map<Sequence, Arriving> arriving_;
  // The last record of each id, including those that were due on arrival.
  std::unordered_map<TopicPartition, IdMap> arriving_ids_;
  std::unordered_map<Sequence, Leaving> leaving_;
  // Made due by deliver_now() and not delivered yet.
  std::unordered_map<Sequence, std::vector<std::unique_ptr<Control>>> awaiting_;

  std::vector<NearEntry*> fired_;  // Used by step(); kept so that its memory is reused.
  mutable Stats stats_;            // The totals.
  WindowedHistogram lag_us_;

  // Callbacks that outlive the engine check it.
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace tarry::delay
