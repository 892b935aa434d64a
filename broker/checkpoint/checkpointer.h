#pragma once

// Checkpointer: what a shard writes behind its journal, and when.
//
//   appended, note_dirty --> enough has gathered, or time has passed
//                               '--> producers' states, logs' tails, db/meta, db/pending
//                                        '--> Journal::checkpoint: older files are used again
//   check_retention -------> old segments are removed
//   look_at_free_space ----> has_room: whether new work is taken; every few megabytes that are
//                            appended, and every second while the disk is full
//
// The order of a checkpoint's steps is storage::Checkpoint's; here they are done, what blocks on
// the shard's background.  While nothing is dirty no timer of it runs.
//
// A full disk ends nothing: the checkpoint is given up and tried again every second, no records
// are taken until one has been made, and the journal keeps what it was for.  RocksDB is not asked
// to flush without room for it: it would take no writes any more.
//
// A lack of file descriptors or memory (Errc::exhausted) ends nothing either.  Records are taken
// as long as the journal has room, and what could not be opened is tried again every second: logs
// in the checkpoint that is under way, everything else in a new one.  Any other failure ends the
// process.
//
// Belongs to its shard and its thread.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "storage/checkpoint.h"
#include "storage/journal_recovery.h"
#include "timing/timing_wheel.h"

namespace tarry::broker {

class Partition;
class Partitions;
class ShardContext;

class Checkpointer {
 public:
  Checkpointer(ShardContext& shard, Partitions& partitions);
  ~Checkpointer();

  // The shard's journal is open: from here on there is something to note.
  void open(std::uint64_t journal_max_bytes, const storage::RecoveredJournal& recovered);
  // On the shard's thread.
  void start();
  // Nothing is appended any more: writes what is dirty, notes a checkpoint and calls `then`.
  void stop(std::move_only_function<void()> then);

  // A record is in the journal.
  void appended(Lsn lsn);
  // A checkpoint is wanted at once: the journal or the disk is short of room.
  void hurry();
  // Something of the shard, or of its journal, found no file descriptor or no memory
  // (Errc::exhausted).
  void retry_later(const Error& error);
  // A log has something that its segments do not have.
  void note_dirty(Partition& partition, std::size_t bytes);
  // Its topic is deleted.
  void forget(const TopicPartition& tp);

  // During recovery: writes and syncs all logs and saves the producers' states, in the caller.
  Result<> flush_now();

  // One is under way, and may point to partitions.
  bool busy() const { return busy_; }

  // Looks after the configured time whether something is to be removed.
  void retention_soon();
  // Runs the retention of every partition and comes back when the configuration says.
  void check_retention();
  // Runs the retention of one; when time makes its next segment go.
  std::optional<WallTime> remove_old_segments(Partition& partition);

  // Says to the shard whether it has room.
  void look_at_free_space();

  std::uint64_t checkpoints_total() const { return checkpoints_total_; }

 private:
  struct LogFlush;

  void arm();
  void want();
  void want_soon();
  void begin();
  void flush_logs(std::vector<TopicPartition> logs, std::size_t from);
  void run_flushes(std::shared_ptr<std::vector<LogFlush>> batch, std::vector<TopicPartition> logs,
                   std::size_t from);
  void flushes_ran(std::vector<LogFlush>& batch, std::vector<TopicPartition> logs,
                   std::size_t from);
  void logs_are_flushed(Result<> flushed);
  void retry();
  bool may_wait();
  void finish();
  void could_not(const Error& error);
  void give_back_memory_if_idle();
  void drain();
  bool wait_for_room();
  void tell_stopped();
  std::size_t tail_share() const;

  ShardContext& shard_;
  Partitions& partitions_;
  std::unique_ptr<storage::Checkpoint> checkpoint_;  // From open() on.
  std::unordered_set<TopicPartition> dirty_;         // Logs with something to flush.
  std::size_t dirty_bytes_ = 0;
  std::size_t noting_bytes_ = 0;     // Of logs, in the checkpoint under way.
  std::size_t untrimmed_bytes_ = 0;  // Of logs, since memory was given back.
  bool busy_ = false;
  bool posted_ = false;  // want() is on its way.
  std::uint64_t checkpoints_total_ = 0;
  bool owed_ = false;                    // The last checkpoint was given up for want of room.
  std::optional<MonoTime> short_since_;  // Of descriptors or memory; until a checkpoint.
  std::move_only_function<void()> flush_again_;  // Of the checkpoint under way, while it waits.
  Lsn looked_at_ = 0;                            // At the disk, after what was appended here.
  bool looking_at_space_ = false;
  std::move_only_function<void()> stopped_;
  std::optional<MonoTime> drain_until_;  // While a stop waits for room.
  timing::CallbackTimer timer_;
  timing::CallbackTimer retention_timer_;
  timing::CallbackTimer space_timer_;
  timing::CallbackTimer drain_timer_;
  timing::CallbackTimer retry_timer_;
};

}  // namespace tarry::broker
