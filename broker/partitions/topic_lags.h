#pragma once

// TopicLags: how late the records of each topic were delivered, summed since the start.
//
// Bounds: one entry for each topic of which this shard has delivered something; it goes with the
// topic.  One a shard, on its thread.

#include <chrono>
#include <cstdint>
#include <map>

#include "base/ids.h"

namespace tarry::broker {

class TopicLags {
 public:
  struct Lag {
    std::uint64_t records = 0;
    std::chrono::duration<double, std::milli> sum{0};  // Milliseconds of many records: no integer.

    void add(const Lag& other) {
      records += other.records;
      sum += other.sum;
    }
  };

  void delivered(const TopicId& topic, const Lag& lag) { lags_[topic].add(lag); }
  void forget(const TopicId& topic) { lags_.erase(topic); }
  const std::map<TopicId, Lag>& all() const { return lags_; }

 private:
  std::map<TopicId, Lag> lags_;
};

}  // namespace tarry::broker
