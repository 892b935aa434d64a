#pragma once

// Retention: decides when a shard looks for segments to delete, and removes them from the disk.
//
//    every retention_check --.
//    the log start moved  ---+--> Log::plan_retention --> SegmentRemoval --> background
//                                 the log forgets them       |
//                                                            '-- failed: again in some seconds,
//                                                                and later ones wait behind it
//
// A look goes through the open partitions, and then, one after the other, through those that nobody
// has used since the start and that have segments: on the background, which opens the log, removes
// what may go and lets go of the log again.  Such a partition is visited again when time makes its
// next segment go, or when its settings have changed; nothing else changes it while it is closed.
//
// Invariants
//   - The segments of a partition leave the disk in the order of their offsets.  A removal that
//     fails holds up those behind it, so that a restart finds a log without a hole, whose start is
//     that of the first segment still there.
//   - One removal of a partition runs at a time.
//   - A partition whose topic is deleted has none: its directory goes as a whole.
//   - However many partitions are open, a look goes through them in steps, between which others
//     have their turn.
//
// Belongs to its shard and its thread; files are deleted on the shard's background.

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "broker/partitions/partitions.h"
#include "storage/retention.h"
#include "timing/timing_wheel.h"

namespace tarry::storage {
class TopicsImage;
}

namespace tarry::broker {

struct BrokerContext;
class Checkpointer;
class FreeSpace;
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
  // The settings of a topic have changed, or those of all.  Its partitions may have kept everything
  // until now, and then nothing would ask retention to look again.
  void settings_changed(const TopicId& topic);
  void settings_changed();
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

  // A partition with segments that was not open when retention looked for such.
  struct Closed {
    TopicPartition id;
    WallTime look_at;  // No earlier look finds anything to do.
  };

  void look();
  void look_at_some();
  static Result<std::vector<Closed>> find_closed(const BrokerContext& broker,
                                                 const std::string& logs,
                                                 const storage::TopicsImage& topics,
                                                 std::size_t shard);
  void look_at_closed();
  void go_through_closed();
  void look_at_next();
  void looked_at(const Result<WallTime>& next);
  void forget_next();
  void end_look_at_closed();
  void run_first(const TopicPartition& tp);
  void ran(const TopicPartition& tp, const Result<>& removed);
  void retry();

  ShardContext& shard_;
  Partitions& partitions_;
  Checkpointer& checkpointer_;
  FreeSpace& free_space_;
  std::unordered_map<TopicPartition, Removals> removals_;
  std::vector<Closed> closed_;  // In no order.
  bool has_found_closed_ = false;
  bool is_looking_at_closed_ = false;
  std::size_t next_closed_ = 0;          // While it is: the place of the one that it is at.
  bool shortage_is_told_ = false;        // The last such look ended early, for want of files.
  std::unordered_set<TopicId> changed_;  // Topics whose settings changed since that look began;
  bool all_changed_ = false;             //   or those of all have.
  Partitions::Walk walk_;                // Through the open ones.
  bool is_looking_ = false;              // At them.
  bool look_again_ = false;              // While it is: whether there is a next look.
  timing::CallbackTimer look_timer_;
  timing::CallbackTimer retry_timer_;
};

}  // namespace tarry::broker
