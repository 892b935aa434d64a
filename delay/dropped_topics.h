#pragma once

// DroppedTopics: the deleted topics of which a shard may still have records, and the search for
// these.
//
//   drop() --> every home is looked at --> its chunks in memory --> records of them are freed
//                                     '--> its chunks on disk: Homes sweeps them
//
// A deletion takes no time in proportion to what is pending: records of these topics are left out
// wherever they turn up, and are freed a bounded number at a time.
//
// Invariant: a topic is known until two checkpoints after its deletion were noted and the search is
// over.  Then nothing of it is in memory, and the store leaves out what it still has.
//
// Belongs to its BucketTier, on its thread.

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/ids.h"
#include "delay/homes.h"

namespace tarry::delay {

class DroppedTopics {
 public:
  explicit DroppedTopics(Homes& homes) : homes_(homes) {}

  bool contains(const TopicId& topic) const { return !topics_.empty() && topics_.contains(topic); }
  std::size_t size() const { return topics_.size(); }

  void drop(const TopicId& topic);
  // A chunk came from the store, which may have been asked before it knew of a topic.
  void look_at(std::shared_ptr<const Resident> loaded);
  // Looks at so many records, and frees those of dropped topics.
  void search(std::size_t budget);
  bool is_searching() const { return next_home_ || !chunks_.empty(); }
  // A checkpoint is noted.  `is_handing`: records that memory had before are still being handed
  // over.
  void noted(bool is_handing);

 private:
  void look_at_homes(std::size_t budget);

  Homes& homes_;
  // Each has the number of checkpoints until nothing on disk is of an older operation.
  std::map<TopicId, int> topics_;
  std::optional<storage::Bucket> next_home_;  // Empty: all were looked at.
  // Chunks that may have such records, and how many of their entries were looked at.
  std::deque<std::pair<std::shared_ptr<const Resident>, std::size_t>> chunks_;
};

}  // namespace tarry::delay
