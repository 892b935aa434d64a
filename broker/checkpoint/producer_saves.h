#pragma once

// ProducerSaves: the partitions of a shard whose producers have changed since a checkpoint wrote
// their states to db/meta, and the writing of them.
//
//    note(partition) --> set --save()--> some partitions a turn: rows --> background: db/meta -->
//    ...
//                         ^                |                        |                      done()
//                         '----------------'------------------------'
//                  not durable yet, or not written
//
// Invariants
//   - A partition with a change that is not saved is in the set, or in the save that is under way.
//   - Rows of a topic that is deleted while they are written are dropped behind them.
//   - A save ends once, with the first error; what it did not write is in the set again.
//
// Belongs to its shard and its thread; db/meta is written on the shard's background.

#include <functional>
#include <memory>
#include <unordered_set>

#include "base/ids.h"
#include "base/result.h"

namespace tarry::broker {

class Partition;
class Partitions;
class ShardContext;

class ProducerSaves {
 public:
  ProducerSaves(ShardContext& shard, Partitions& partitions)
      : shard_(shard), partitions_(partitions) {}

  void note(const TopicPartition& tp) { changed_.insert(tp); }
  // Its topic is deleted.
  void forget(const TopicPartition& tp) { changed_.erase(tp); }

  // Writes what is durable at `durable` of all in the set; one at a time.  `done` is called at
  // once if there is nothing to write.
  void save(Lsn durable, std::move_only_function<void(Result<>)> done);

 private:
  struct Run;  // A save that is under way.

  void next_batch(std::shared_ptr<Run> run);
  void batch_written(std::shared_ptr<Run> run, const Result<>& written);

  ShardContext& shard_;
  Partitions& partitions_;
  std::unordered_set<TopicPartition> changed_;
};

}  // namespace tarry::broker
