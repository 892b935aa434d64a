#pragma once

// Patience: how long a question to Kafka may take before it counts as unanswered.
//
// Some questions are answered only when something else has ended, such as the one for an offset
// that must be stable; this limit alone ends them.  So it has to be far longer than an answer
// takes, or a slow Kafka looks like one that does not answer.
//
// One thread.

#include <algorithm>
#include <chrono>

namespace tarry::relay {

class Patience {
 public:
  using Time = std::chrono::milliseconds;
  // An answer within this part of the time comes well inside it.
  static constexpr int well_inside = 3;

  Patience(Time min, Time max) : min_(min), max_(max), wait_(min) {}

  Time wait() const { return wait_; }
  bool is_well_inside(Time took) const { return took * well_inside <= wait_; }
  void answered(Time took) { wait_ = std::clamp(2 * well_inside * took, min_, max_); }
  void not_answered() { wait_ = std::min(2 * wait_, max_); }

 private:
  const Time min_, max_;
  Time wait_;
};

}  // namespace tarry::relay
