#pragma once

// DeliveredIds: the ids that were delivered recently, for the answer `already_delivered`.
//
// Invariant: at most max_ids, or as many as limit() says, each for at most max_age; the oldest go
// first.
//
// Belongs to its Partition, on the thread of the member's steps.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/clock.h"

namespace tarry::relay {

class DeliveredIds {
 public:
  static constexpr std::size_t max_ids = 20'000;
  static constexpr std::chrono::hours max_age{1};

  void add(const std::string& id, WallTime at) {
    latest_[id] = ++last_;
    by_age_.push_back({at, id, last_});
    while (by_age_.size() > max_ || by_age_.front().at + max_age < at) forget_oldest();
  }
  // From now on; one at least.
  void limit(std::size_t max) {
    max_ = std::clamp<std::size_t>(max, 1, max_ids);
    while (by_age_.size() > max_) forget_oldest();
  }
  // Another record has the id now.
  void forget(const std::string& id) { latest_.erase(id); }
  bool knows(const std::string& id, WallTime now) const {
    const auto found = latest_.find(id);
    if (found == latest_.end()) return false;
    return by_age_[found->second - by_age_.front().number].at + max_age >= now;
  }

 private:
  struct DeliveredId {
    WallTime at;
    std::string id;
    std::uint64_t number;  // Without gaps from the first of by_age_ on.
  };

  void forget_oldest() {
    const auto& oldest = by_age_.front();
    // It may have been added again since.
    if (const auto found = latest_.find(oldest.id);
        found != latest_.end() && found->second == oldest.number)
      latest_.erase(found);
    by_age_.pop_front();
  }

  std::size_t max_ = max_ids;
  std::deque<DeliveredId> by_age_;
  std::unordered_map<std::string, std::uint64_t> latest_;
  std::uint64_t last_ = 0;
};

}  // namespace tarry::relay
