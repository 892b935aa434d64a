#pragma once

// DirtyLogs: the logs of a shard that have batches which their segments lack, and the flush that
// writes them.
//
//    note(partition) --> set --flush()--> 64 logs at a time on the background --> done(result)
//                         ^                 |                 |
//                         '-----------------'                 '-- no descriptor: waits for resume()
//                    failed, or too early to write
//
// Invariants
//   - A log with something to write is in the set, or in the flush that is under way.
//   - While a flush is under way the partitions that it points to are kept (Partitions::retired).
//   - A flush ends once, with the first error; logs that it did not get to are in the set again.
//
// Belongs to its shard and its thread; files are written on the shard's background.

#include <cstddef>
#include <functional>
#include <memory>
#include <unordered_set>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace tarry::broker {

class Partition;
class Partitions;
class ShardContext;
class ShortageRetry;

class DirtyLogs {
 public:
  DirtyLogs(ShardContext& shard, Partitions& partitions, ShortageRetry& shortage);
  ~DirtyLogs();

  void note(Partition& partition, std::size_t bytes);
  // Its topic is deleted.
  void forget(const TopicPartition& tp) { dirty_.erase(tp); }
  // Noted since the last flush began that did not fail; never less than what the engine has counted
  // since then of its deliveries (Engine::log_write_begins()), so that it waits for no timer.
  std::size_t bytes() const { return bytes_; }
  void clear();

  // Writes and syncs all that is in the set now; one at a time.
  void flush(std::move_only_function<void(Result<>)> done);
  // Continues a flush that found no descriptor; false: there is no such flush.
  bool resume();

 private:
  struct LogFlush;
  struct Run;  // A flush that is under way.

  void next_batch(std::shared_ptr<Run> run);
  void run_batch(std::shared_ptr<Run> run);
  void batch_ran(std::shared_ptr<Run> run);
  void fill_batch(Run& run);
  void note_rest(Run& run);
  std::size_t tail_share() const;

  ShardContext& shard_;
  Partitions& partitions_;
  ShortageRetry& shortage_;
  std::unordered_set<TopicPartition> dirty_;
  std::size_t bytes_ = 0;
  std::shared_ptr<Run> waiting_;  // For a descriptor.
};

}  // namespace tarry::broker
