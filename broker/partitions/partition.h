#pragma once

// Partition: a log, its high watermark, its producers, and the requests that wait for it.
//
//   append --> journal (not durable)      log_end_offset moves, producers' sequences advance
//                 |  round is synced
//                 v
//              durable()                  high_watermark moves, pending records are kept,
//                                         fetches that waited are satisfied
//
// Invariants
//   - log_start <= high_watermark <= log_end.  A consumer sees nothing at or above the high
//     watermark, so nothing that a power cut could take back (tarry.durability=os: that a kill
//     could).
//   - Offsets and sequences are given out in the order in which append() is called.
//   - A batch is in the log exactly when its journal record is: a batch that cannot be journaled
//     is refused before anything has changed.
//
// Damage after the checkpoint fences a partition: it answers KAFKA_STORAGE_ERROR, its files are
// kept, the log says so once, and the rest of the broker serves.
//
// Belongs to its shard and its thread; from the shard's start on its public functions assert it,
// but for those of recovery and what never changes (id(), topic_name()).

#include <cstddef>
#include <cstdint>
#include <deque>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "broker/context/shard_context.h"
#include "broker/partitions/appended.h"
#include "broker/partitions/arrival.h"
#include "broker/partitions/batch_checks.h"
#include "broker/partitions/dead_letters.h"
#include "broker/settings/topic_config.h"
#include "delay/engine.h"
#include "protocol/error_code.h"
#include "purgatory/watch_list.h"
#include "storage/journal.h"
#include "storage/log.h"
#include "storage/producer_states.h"

namespace tarry::broker {

class AppendQueue;
class PartitionHost;

// The end of a log: the next offset, and the bytes of the batches appended before it.  Bytes count
// from the opening of the partition, across segments: only differences mean anything.
struct LogEnd {
  Offset offset = 0;
  std::int64_t bytes = 0;
};

// The result of deleting records.
struct RecordsDeleted {
  protocol::ErrorCode error = protocol::ErrorCode::none;
  // Answered when the journal has this durably, with log_start() as it is then.
  std::optional<Lsn> wait_for;
};

class Partition {
 public:
  Partition(ShardContext& shard, PartitionHost& host, TopicPartition id, std::string topic_name,
            std::shared_ptr<const TopicConfig> config, storage::Log log,
            storage::ProducerStates producers);
  ~Partition();

  const TopicPartition& id() const { return id_; }
  const std::string& topic_name() const { return topic_name_; }
  const TopicConfig& config() const {
    shard_.assert_on_shard();
    return *config_;
  }
  void set_config(std::shared_ptr<const TopicConfig> config);

  Offset log_start() const {
    shard_.assert_on_shard();
    return log_.start_offset();
  }
  Offset high_watermark() const {
    shard_.assert_on_shard();
    return visible_.offset;
  }
  // Bytes of the batches below the high watermark; see LogEnd.
  std::int64_t visible_bytes() const {
    shard_.assert_on_shard();
    return visible_.bytes;
  }
  Offset log_end() const {
    shard_.assert_on_shard();
    return log_.end_offset();
  }
  // Below it nothing is lost in a power cut; with tarry.durability=os the high watermark may be
  // ahead.  Segments take nothing beyond: they would keep a delivery of which the journal has lost
  // that its records are gone.
  Offset durable_end() const;

  // `records` as a Produce request holds them; they live until `done` is called.  Takes its place
  // in the partition's order before it returns.  `done` comes at once, unless the batch or one
  // before it is checked on the pool.  When it throws, `done` does not come.  With `memory`, which
  // keeps `records`, they are changed and kept where they are; without, copied.  `only_checked`:
  // refused with INVALID_REQUIRED_ACKS where it would be taken.  `pending`: what its producer may
  // have pending; its name lives until `done` is called.  `no_dead_letters`: it may not write to
  // NAME.invalid, so its bad records refuse their batch.  `on_pool`: its request has had its time
  // on this thread, and also a short batch is checked on the pool.
  void append(Bytes records, bool zstd_allowed, std::move_only_function<void(Appended)> done,
              std::shared_ptr<void> memory = nullptr, bool only_checked = false,
              const delay::PendingTerms& pending = {}, bool no_dead_letters = false,
              bool on_pool = false);

  // Records that fell due, as one batch with offsets from 0, and their removal: one journal
  // record.  `told` as delay/sink.h says.  Refused when one of them is not due: the partition may
  // have had to be opened first, and the clock have been set back meanwhile.
  void deliver(Buffer batch, const delay::Departures& departures, delay::DeliveryTold told);

  // The dead letters of another topic's partition, as one batch with offsets from 0: as they are,
  // whatever their headers say.  `done` when they are durable, or why they will not be.
  void append_dead_letters(Buffer batch, std::move_only_function<void(Result<>)> done);

  // The records that a consumer may see from `from` on, at most `max_bytes` but for one whole batch
  // when `at_least_one`.
  storage::LogRead read(Offset from, std::size_t max_bytes, bool at_least_one);

  // Nothing below `before` is to be read any more, -1: nothing that there is.  The log start moves
  // when that is durable; whole segments below it go then.
  RecordsDeleted delete_records(Offset before);

  // Records by their time, below the high watermark.
  storage::TimestampSearch find_timestamp(std::int64_t target) const;
  storage::TimestampSearch find_max_timestamp() const;
  std::uint64_t size_bytes() const {
    shard_.assert_on_shard();
    return log_.size_bytes();
  }

  // --- For the checkpoint, which writes the log's batches that only the journal holds

  // The part of the log that may be written to its segments now; flushed() or flush_failed() ends
  // it.
  std::optional<storage::Flush> plan_flush();
  // The same for all that there is, in recovery.
  std::optional<storage::Flush> plan_flush_of_all() { return log_.plan_flush(log_.end_offset()); }
  void flushed(storage::FlushDone done);
  void flush_failed(const Error& error);
  Offset flushed_end() const {
    shard_.assert_on_shard();
    return log_.flushed_end();
  }
  // The log has batches that plan_flush() would write, or a segment to close.
  bool is_dirty() const {
    shard_.assert_on_shard();
    return log_.dirty();
  }
  // Batches that may not be written yet, because they are visible before they are durable.
  bool has_more_to_flush() const { return durable_end() < high_watermark(); }
  // Forgets the oldest batches in memory that are in segments.
  void trim_tail(std::size_t bytes) {
    shard_.assert_on_shard();
    log_.trim_tail(bytes);
    count_tail();
  }
  std::vector<storage::ProducerStates::Row> producer_changes(Lsn durable) {
    shard_.assert_on_shard();
    return producers_.changes(durable);
  }
  void producers_not_saved(const std::vector<storage::ProducerStates::Row>& rows) {
    shard_.assert_on_shard();
    producers_.restore_unsaved(rows);
  }

  // --- For retention

  // The segments that retention removes now; the log has forgotten them.
  storage::RetentionPlan plan_retention(WallTime now);
  // Returns how many it has forgotten.
  std::size_t expire_producers(WallTime now, std::chrono::milliseconds expiration) {
    shard_.assert_on_shard();
    return producers_.expire(now, expiration);
  }
  // Time alone may change what it holds.
  bool may_expire() const {
    shard_.assert_on_shard();
    return log_.size_bytes() > 0 || producers_.size() > 0;
  }
  // The files of one whose topic is deleted.
  storage::LogRemoval removal() const {
    shard_.assert_on_shard();
    return log_.delete_all();
  }

  // Fetches, by the visible_bytes() that they wait for.  All are asked when the log start moves or
  // the partition goes out of service.
  purgatory::WatchList fetches;

  // Takes the partition out of service.
  void fence(std::string why);
  // The end of its log is broken, as it was found: fenced unless recovery cuts it off, because the
  // journal has what belongs there.
  void found_damage(std::string what) { damage_ = std::move(what); }
  void fence_if_damaged() {
    if (damage_) fence(*damage_);
  }
  bool fenced() const {
    shard_.assert_on_shard();
    return fenced_.has_value();
  }
  const std::optional<std::string>& fence_reason() const {
    shard_.assert_on_shard();
    return fenced_;
  }
  // The topic is deleted: waiting requests are answered, and no batch is accepted any more.
  void retire();
  bool retired() const {
    shard_.assert_on_shard();
    return retired_;
  }

  // --- In recovery, from the journal

  // Cuts off everything from `base` on, which may be half written.  Returns the end of the log:
  // before `base` if it has lost batches that a checkpoint vouched for.
  Result<Offset> cut(Offset base);
  // Whole batches that begin where the log ends.
  Result<> replay(Bytes batches, WallTime appended);
  void replay_producer(const storage::ProducerAnswered& answered);
  void replay_start(Offset start);

  // The parts of a topic's config that its log and the delay engine use.
  static storage::LogConfig log_config_of(const TopicConfig& config);
  static delay::TopicDelay delay_config_of(const TopicConfig& config);

 private:
  Appended refused(protocol::ErrorCode error, std::string_view reason, std::string message) const;
  Appended refused(const delay::ScheduleErrors& errors) const;
  Appended refused(const delay::ScheduleErrors& errors, const Arrival& arrival) const;
  Appended already_answered(const storage::ProducerStates::Duplicate& duplicate) const;
  void move_high_watermark(LogEnd end);
  void move_log_start(Offset start);
  // The error while the partition accepts no batches; empty while it does.
  std::optional<Appended> service_error() const;
  using Verdict = std::optional<BatchChecks::Verdict>;  // Empty: there was no memory to look at it.
  BatchChecks::Job job_of(const Arrival& arrival) const;
  AppendQueue& queue();
  // The dead letters of a batch that is going to be taken.
  std::optional<DeadLetters> dead_letters(const Arrival& arrival, const Verdict& verdict) const;
  using Parts = std::optional<std::expected<delay::AcceptedBatch, delay::ScheduleErrors>>;
  using IdRows = delay::Engine::IdRows;
  // Whether accepting it takes more than a turn.
  static bool takes_long(const BatchChecks::Verdict& verdict, const delay::TopicDelay& topic);
  // The part of a batch that is to be accepted; null: nothing, or the batch will be refused.
  const CheckedArrival* to_accept(const Verdict& verdict) const;
  void split(const Arrival& arrival, const Verdict& verdict, Result<IdRows> ids,
             std::move_only_function<void(Parts)> done);
  Appended append_checked_batch(const Arrival& arrival, Verdict verdict, Parts parts,
                                const Result<>& written);
  Appended append_or_refuse(const Arrival& arrival, Verdict verdict, Parts parts,
                            const Result<>& written);
  // Counts it, if it is a refusal of a batch that was to be taken.
  void note(const Appended& appended, bool only_checked);
  Appended take(const Arrival& arrival, const CheckedArrival& checked, Parts parts);

  // A batch as it will stand in the log, at its place there.
  struct LogBatch {
    SharedBytes bytes;  // Empty: nothing of it goes to the log.
    Offset base = 0;
    Offset last = 0;
    std::int64_t max_timestamp = -1;
  };
  LogBatch log_batch(const Arrival& arrival, const CheckedArrival& checked_arrival,
                     std::optional<delay::AcceptedBatch>& accepted, WallTime now);
  // A batch of ours, with what else its journal record says.
  void append_ours(storage::JournalTransaction transaction, Buffer batch, WallTime now,
                   const delay::Departures& departures, delay::DeliveryTold told);
  void add_batch(storage::JournalTransaction& transaction, LogBatch batch, WallTime now);
  std::optional<Appended> refuse_sequence(const records::CheckedBatch& checked) const;
  std::optional<Appended> refuse_recurring(const delay::AcceptedBatch& accepted) const;
  void forget_synced();
  // The log's tail may have become larger or smaller.  Until the topic is deleted.
  void count_tail() noexcept;

  ShardContext& shard_;
  PartitionHost& host_;
  const TopicPartition id_;
  const std::string topic_name_;
  std::shared_ptr<const TopicConfig> config_;
  storage::Log log_;
  storage::ProducerStates producers_;
  std::int64_t appended_bytes_ = 0;  // As LogEnd::bytes, at log_end().
  LogEnd visible_;                   // The high watermark.
  std::size_t counted_tail_ = 0;     // The log's part of ShardContext::tail_bytes.
  // The batches appended and not known to be synced, in order; and where they begin.
  struct Syncing {
    Lsn lsn;
    Offset end;
    storage::Durability durability;  // The durability that its producer waits for.
  };
  std::deque<Syncing> syncing_;
  Offset durable_end_;
  std::optional<std::string> fenced_;  // The reason; none: it is in service.
  std::optional<std::string> damage_;
  bool retired_ = false;
  std::shared_ptr<AppendQueue> append_queue_;  // Null until a batch had to wait.
};

}  // namespace tarry::broker
