#pragma once

// Retention: decides when a shard looks for segments to delete, and removes them from the disk.
//
//    every retention_check --.
//    the log start moved  ---+--> Log::plan_retention --> SegmentRemoval --> background
//                                 the log forgets them       |
//                                                            '-- failed: again in some seconds,
//                                                                and later ones wait behind it
//
// It sees open partitions alone.  So the first look of a start has those opened that nobody has
// used since and that have segments.
//
// Invariants
//   - The segments of a partition leave the disk in the order of their offsets.  A removal that
//     fails holds up those behind it, so that a restart finds a log without a hole, whose start is
//     that of the first segment still there.
//   - One removal of a partition runs at a time.
//   - A partition whose topic is deleted has none: its directory goes as a whole.
//
// Belongs to its shard and its thread; files are deleted on the shard's background.

#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "storage/retention.h"
#include "timing/timing_wheel.h"

namespace tarry::broker {

class Checkpointer;
class FreeSpace;
class Partition;
class Partitions;
class ShardContext;

class Retention {
 public:
  Retention(ShardContext& shard, Partitions& partitions, Checkpointer& checkpointer,
            FreeSpace& free_space);

  // Checks every partition at the configured interval, as long as there are records to expire.
  void look_later();
  // The interval has changed.
  void restart_timer() {
    if (!look_timer_.armed()) return;
    look_timer_.cancel();
    look_later();
  }
  void stop();

  // Deletes what may go of one partition; when time makes its next segment go.
  std::optional<WallTime> remove_old_segments(Partition& partition);
  // Its topic is deleted.
  void forget(const TopicPartition& tp) { removals_.erase(tp); }

 private:
  struct Removals {
    std::deque<storage::SegmentRemoval> waiting;  // By offset.
    bool is_running = false;                      // The first of them.
    bool has_failed = false;  // The last try of the first one; the operator knows.
  };

  void look();
  void find_unused();
  void open_next();
  void run_first(const TopicPartition& tp);
  void ran(const TopicPartition& tp, const Result<>& removed);
  void retry();

  ShardContext& shard_;
  Partitions& partitions_;
  Checkpointer& checkpointer_;
  FreeSpace& free_space_;
  std::unordered_map<TopicPartition, Removals> removals_;
  std::vector<TopicPartition> unused_;  // To be opened, one after the other.
  bool has_sought_unused_ = false;
  timing::CallbackTimer look_timer_;
  timing::CallbackTimer retry_timer_;
};

}  // namespace tarry::broker
