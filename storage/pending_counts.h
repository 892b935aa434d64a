#pragma once

// PendingCounts: how many records of each topic are pending, over all shards.
//
//   start   totals of the store, once the journals are replayed   set()
//   then    each shard adds and subtracts what becomes durable     counter()
//           and what it has accepted until then                    coming()
//
// A shard asks for a topic's counter once and keeps it; so nobody waits for anybody else while
// records come and go.  Never written to the disk: the store has counts of its own (BucketStore).
//
// Any thread.  A counter lives as long as this.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>

#include "base/ids.h"

namespace tarry::storage {

class PendingCounts {
 public:
  using Counter = std::atomic<std::int64_t>;

  Counter& counter(const TopicId& topic) {
    const std::lock_guard lock(mutex_);
    return *of(counters_, topic);
  }
  // Records that are accepted and not pending yet.
  Counter& coming(const TopicId& topic) {
    const std::lock_guard lock(mutex_);
    return *of(coming_, topic);
  }
  void set(const TopicId& topic, std::uint64_t count) {
    const std::lock_guard lock(mutex_);
    of(counters_, topic)->store(static_cast<std::int64_t>(count));
  }
  // Its topic is dropped: what is still told of it counts no more.
  void forget(const TopicId& topic) {
    const std::lock_guard lock(mutex_);
    counters_.erase(topic);
    coming_.erase(topic);
  }

  std::uint64_t pending_of(const TopicId& topic) const {
    const std::lock_guard lock(mutex_);
    const auto known = counters_.find(topic);
    return known == counters_.end() ? 0 : count(*known->second);
  }
  std::uint64_t total() const {
    const std::lock_guard lock(mutex_);
    std::uint64_t sum = 0;
    for (const auto& [topic, counter] : counters_) sum += count(*counter);
    return sum;
  }

 private:
  static std::uint64_t count(const Counter& counter) {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(0, counter.load()));
  }
  using Counters = std::map<TopicId, Counter*>;
  Counter* of(Counters& counters, const TopicId& topic) {
    auto& known = counters[topic];
    if (known == nullptr) known = &all_.emplace_back(0);
    return known;
  }

  mutable std::mutex mutex_;
  std::deque<Counter> all_;  // Counters of dropped topics are here too: some shard may know them.
  Counters counters_;
  Counters coming_;
};

}  // namespace tarry::storage
