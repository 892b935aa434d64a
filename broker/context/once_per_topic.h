#pragma once

// OncePerTopic: decides which shard logs an event that is logged once for each topic, although
// every shard with partitions of the topic finds it.
//
// Any thread; it is asked at most once by each shard for each topic, so the lock is no one's way.

#include <mutex>
#include <unordered_set>

#include "base/ids.h"

namespace tarry::broker {

class OncePerTopic {
 public:
  // Whether nobody has asked for this topic before.
  bool first(const TopicId& topic) {
    const std::scoped_lock lock(mutex_);
    return seen_.insert(topic).second;
  }
  // The topic is deleted.
  void forget(const TopicId& topic) {
    const std::scoped_lock lock(mutex_);
    seen_.erase(topic);
  }

 private:
  std::mutex mutex_;
  std::unordered_set<TopicId> seen_;
};

}  // namespace tarry::broker
