#pragma once

// Checkpoint: when a shard writes the journal's contents to their final files, and in which order.
//
//   idle -- begin(applied) --> save_states -> write_logs -> sync_logs -> flush_pending
//     ^                                                                       v
//     +------------------------------------------- note_position <------ flush_meta
//
//   save_states     ProducerStates::changes(target()) to db/meta; some partitions after the other,
//                   from begin() on: what a producer gets meanwhile is not before target()
//   write_logs      every dirty log's tail up to now to its segment        (Background)
//   sync_logs       those segments, and the directories of new ones       (Background)
//   flush_pending   BucketStore::flush(), after what the shard's tails have for it: the pending
//                   records that came before begin()                      (Background)
//   flush_meta      Database::flush(), last of all: db/meta notes which generation of db/pending
//                   belongs to it, and a start refuses one that is older  (Background)
//   note_position   Journal::checkpoint(target()): what is before it will not be replayed, and
//                   files before it are used again
//
// This class does not do the steps.  It says which step is next, so that the order can be tested
// without a disk.  The order is its purpose: no position is noted before everything before it is
// durable elsewhere.
//
// begin() wants the LSN up to which everything durable has also been applied (to the stores, to the
// logs' tails), taken on the shard's thread between two turns.  A later record that gets into a
// flush is replayed after a crash, which changes nothing.
//
// A step that fails ends the incarnation: step() stays `failed` and nothing is tried again.
//
// Time is an argument, and a timer is wanted only while something is dirty.  One a shard, on its
// thread.

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"

namespace tarry::storage {

class Checkpoint {
 public:
  enum class Step {
    idle,
    save_states,
    write_logs,
    sync_logs,
    flush_pending,
    flush_meta,
    note_position,
    failed,
  };

  struct Policy {
    std::uint64_t dirty_bytes = 64u << 20;  // A quarter of the journal's largest size.
    std::chrono::nanoseconds interval = std::chrono::seconds(30);  // After the first dirty byte.
  };

  // Everything before `noted` is kept elsewhere already (Journal::checkpoint_lsn()); what stands
  // between it and `end` was replayed and is dirty.
  Checkpoint(const Policy& policy, Lsn noted, Lsn end, MonoTime now);

  // A record was appended at `lsn`.
  void appended(Lsn lsn, MonoTime now);

  // The journal is running full (JournalHooks::on_pressure): the next one is wanted at once.
  void hurry() { hurried_ = true; }

  // Whether begin() is wanted now.
  bool wanted(MonoTime now) const;
  // When it will be, if nothing else happens; empty while nothing is dirty or one is under way.
  std::optional<MonoTime> wanted_at() const;

  // Only when idle.  Returns the first step.
  Step begin(Lsn applied, MonoTime now);

  // The step that was given is done, or has failed.  Returns the next one.
  Step finished(const Result<>& result);

  // The disk is full: the given step could not be done, and nothing is lost.  The state is as if
  // begin() had not been called; the next checkpoint is wanted after the interval, or at once after
  // hurry().
  void abandon(MonoTime now);

  Step step() const { return step_; }
  Lsn target() const { return target_; }  // The target of the checkpoint under way.
  Lsn noted() const { return noted_; }    // The position of the last finished checkpoint.

 private:
  const Policy policy_;
  Step step_ = Step::idle;
  Lsn noted_;
  Lsn target_;  // noted_ <= target_.
  // The records after the last begin(): since when there are any, and their range.
  std::optional<MonoTime> dirty_since_;
  Lsn dirty_from_;
  Lsn dirty_until_;  // The last record's LSN.
  bool hurried_ = false;
};

}  // namespace tarry::storage
