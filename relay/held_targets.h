#pragma once

// HeldTargets: target topics that could not be prepared or written.  Their records wait, and so do
// records of the same source partition that are due after them; all others are delivered.
//
//   hold() --> held --retry--> tried again, by itself or with others --> taken() or hold()
//
// Invariant: when more than max_idle are remembered, those that may be tried again are forgotten as
// soon as another one comes.  What somebody wants is tried at once when it may be, so nobody wants
// most of them: their records were cancelled or moved.  A forgotten one is held as a new one.
// Beside them are only those that have failed within the longest wait between attempts.
//
// Belongs to the Member: its thread alone changes it, under the Member's lock, under which others
// read it.

#include <chrono>
#include <cstddef>
#include <map>
#include <set>
#include <string>

#include "base/clock.h"
#include "relay/retry.h"

namespace tarry::relay {

class HeldTargets {
 public:
  // With --deliver-to '*' producers name as many targets as they like.
  static constexpr std::size_t max_idle = 1'000;

  struct HeldTarget {
    Retry retry;
    std::string why;
    MonoTime since{};
  };

  // `first`, `longest`: the waits between its attempts.
  void hold(const std::string& topic, std::string why, MonoTime mono,
            std::chrono::milliseconds first, std::chrono::milliseconds longest);
  // It has taken a record.
  void taken(const std::string& topic) { held_.erase(topic); }
  // Those that are not tried now.
  std::set<std::string> waiting(MonoTime mono) const;
  // Null: it is not held.
  const HeldTarget* find(const std::string& topic) const;
  bool empty() const { return held_.empty(); }

 private:
  std::map<std::string, HeldTarget> held_;
};

}  // namespace tarry::relay
