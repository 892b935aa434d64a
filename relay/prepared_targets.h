#pragma once

// PreparedTargets: target topics that exist as they have to be, each for a source that delivers to
// it, so that Kafka is not asked about them again.
//
//   add() --> recent --- it is half of what is remembered --> older --- the next half --> forgotten
//                ^------------------- use() ---------------------'
//
// Invariants
//   - At most `most` are remembered: with --deliver-to '*' producers name as many topics as they
//     like.
//   - One is forgotten only when half as many others were added or used since its last use.  Then
//     it is asked about again, which costs its time and nothing else.
//
// Belongs to the Member, on the thread of its step().

#include <cstddef>
#include <set>
#include <string>
#include <utility>

#include "relay/cluster.h"

namespace tarry::relay {

class PreparedTargets {
 public:
  // Half of them are more than one transaction delivers to (Limits::deliveries, and as many orders
  // as may wait): what it has prepared is not forgotten before it ends.
  static constexpr std::size_t default_most = 30'000;

  explicit PreparedTargets(std::size_t most = default_most) : half_(most / 2) {}

  void add(const std::string& topic, const Source& source) { remember({topic, source}); }
  bool contains(const std::string& topic, const Source& source) const {
    const Target target(topic, source);
    return recent_.contains(target) || older_.contains(target);
  }
  // Whether it is among them; then it has been used now.
  bool use(const std::string& topic, const Source& source) {
    Target target(topic, source);
    if (recent_.contains(target)) return true;
    if (!older_.contains(target)) return false;
    remember(std::move(target));
    return true;
  }
  void clear() {
    recent_.clear();
    older_.clear();
  }

 private:
  using Target = std::pair<std::string, Source>;

  void remember(Target target) {
    // Two halves need no list in the order of use, and are nearly as good.
    if (recent_.size() >= half_) older_ = std::exchange(recent_, {});
    recent_.insert(std::move(target));
  }

  const std::size_t half_;
  std::set<Target> recent_;  // Added or used since older_ was the recent half.
  std::set<Target> older_;   // Some of them may be in both.
};

}  // namespace tarry::relay
