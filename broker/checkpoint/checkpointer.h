#pragma once

// Checkpointer: decides when a shard makes a checkpoint, and runs it.
//
//   appended, note_dirty --> enough has gathered, or time has passed
//                               '--> producers' states, DirtyLogs, the engine's tails, flushes
//                                        '--> Journal::checkpoint: older files are used again
//
// storage::Checkpoint has the order of the steps; this class carries them out, blocking work on the
// shard's background.  While nothing is dirty it has no timer.
//
// Shard 0 also asks the store of pending records to free what is dead, after a checkpoint, or when
// the disk is full and none is wanted, and beside the next ones.
//
// Invariants
//   - One run at a time.  It ends noted, given up (the next try comes with a timer), or failed,
//     which ends the process.
//   - A checkpoint is noted only when all earlier journal records are durable elsewhere.  So none
//     begins while one that is durable has not reached its database.
//   - However many partitions and producers there are, a run lets others have their turn.
//   - Without space (FreeSpace) or descriptors (ShortageRetry) a run is given up, the journal keeps
//     what it was for, and nothing is lost.  RocksDB is not asked to flush without room for it:
//     after a flush that failed it would refuse all writes.
//
// Belongs to its shard and its thread.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "broker/checkpoint/dirty_logs.h"
#include "broker/checkpoint/heap_trimmer.h"
#include "broker/partitions/partitions.h"
#include "storage/bucket_store.h"
#include "storage/checkpoint.h"
#include "storage/journal_recovery.h"
#include "timing/timing_wheel.h"

namespace tarry::delay {
class Engine;
}

namespace tarry::broker {

struct BrokerContext;
class FreeSpace;
class ShardContext;
class ShortageRetry;

// Makes the store of pending records durable; blocks.  Errc::no_space or Errc::exhausted, and
// nothing is tried, when there is no room for it.
Result<> flush_pending_store(const BrokerContext& broker);

// The free space with which files of pending records are rewritten, so that what is dead in them is
// freed, beside that of a flush.  What is alive is written again before, beside the reserve or, if
// that is less, with as much again left for the deliveries meanwhile: otherwise a full disk would
// stay full.
std::uint64_t room_for_rewriting(const storage::BucketStore::Sizes& sizes,
                                 std::uint64_t reserve_bytes);

class Checkpointer {
 public:
  // `run_ended` is called after each run of a shard that stops.
  Checkpointer(ShardContext& shard, Partitions& partitions, delay::Engine& engine,
               FreeSpace& free_space, ShortageRetry& shortage,
               std::move_only_function<void()> run_ended);

  // The shard's journal is open: checkpoints can be noted from now on.
  void open(std::uint64_t journal_max_bytes, const storage::RecoveredJournal& recovered);
  // On the shard's thread.
  void start();
  // Nothing is appended any more: a run begins when it is asked for, until close().
  void stop() { timer_.cancel(); }
  void close() { closed_ = true; }

  // A record is in the journal.
  void appended(Lsn lsn);
  // A checkpoint is wanted at once: in the next turn, or in this one.
  void hurry();
  void run_now();
  // Tries work again that waits for a descriptor: the run under way, or else a new one.
  void retry();
  // ShardContext::all_applied(): a run that waited for that begins, unless the shard has failed.
  void all_applied();
  // A log has something that its segments do not have.
  void note_dirty(Partition& partition, std::size_t bytes);
  // Its topic is deleted.
  void forget(const TopicPartition& tp) { dirty_logs_.forget(tp); }

  // During recovery: writes and syncs all logs and saves the producers' states, in the caller.
  Result<> flush_now();

  // A run is under way, and may point to partitions.
  bool busy() const { return busy_; }
  bool has_failed() const { return checkpoint_->step() == storage::Checkpoint::Step::failed; }
  // Everything before this LSN is durable elsewhere.
  Lsn noted() const { return checkpoint_->noted(); }
  std::uint64_t checkpoints_total() const { return checkpoints_total_; }

 private:
  void arm();
  void begin_soon();
  void begin_if_wanted();
  void begin();
  struct ProducerRows;
  void save_some_producers();
  void producers_saved(const std::vector<ProducerRows>& taken, bool more, const Result<>& saved);
  void write_logs();
  void flush_stores();
  void note_position();
  void reclaim_sometimes();
  void finish();
  void give_up(const Error& error);

  ShardContext& shard_;
  Partitions& partitions_;
  delay::Engine& engine_;
  FreeSpace& free_space_;
  ShortageRetry& shortage_;
  std::move_only_function<void()> run_ended_;
  HeapTrimmer heap_trimmer_;
  DirtyLogs dirty_logs_;
  std::unique_ptr<storage::Checkpoint> checkpoint_;  // From open() on.
  Partitions::Walk producers_walk_;                  // That of the run under way.
  std::size_t flushing_bytes_ = 0;                   // The bytes of logs in the run under way.
  bool busy_ = false;
  bool posted_ = false;             // begin_if_wanted() is on its way.
  bool waits_for_applied_ = false;  // all_applied() begins a run.
  bool closed_ = false;
  std::uint64_t checkpoints_total_ = 0;
  MonoTime reclaim_from_{};  // No reclaim begins before this.
  bool reclaiming_ = false;
  timing::CallbackTimer timer_;
};

}  // namespace tarry::broker
