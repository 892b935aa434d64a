#pragma once

// TimerPlaces: the bound on how many timers exist (max_pending).
//
// A timer takes a place before it exists and gives it back when it is gone.  A shard fetches and
// returns places some at a time, so that threads do not meet at one counter.  The places
// here, the spare ones of the shards and the existing timers always add up to max_pending.
//
// Any thread.

#include <algorithm>
#include <atomic>
#include <cstddef>

namespace tarry::timing {

class TimerPlaces {
 public:
  TimerPlaces(std::size_t max_pending, std::size_t shards)
      : at_once_(std::clamp<std::size_t>(max_pending / (8 * shards), 1, 256)), free_(max_pending) {}

  // Fetches as many as a shard does at once, or all that are left; 0: none.
  std::size_t fetch() {
    std::size_t left = free_.load(std::memory_order_relaxed);
    std::size_t taken = 0;
    do {
      taken = std::min(left, at_once_);
    } while (taken != 0 &&
             !free_.compare_exchange_weak(left, left - taken, std::memory_order_relaxed));
    return taken;
  }

  void give_back(std::size_t places) { free_.fetch_add(places, std::memory_order_relaxed); }

  // Leaves to other shards what one with so many spare places does not need soon.
  void share(std::size_t& spare) {
    if (spare <= 2 * at_once_) return;
    spare -= at_once_;
    give_back(at_once_);
  }

 private:
  const std::size_t at_once_;
  std::atomic<std::size_t> free_;
};

}  // namespace tarry::timing
