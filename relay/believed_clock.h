#pragma once

// BelievedClock: the clock by which a member delivers: without jumps ahead that may be mistakes
// (delay/clock_step_filter.h), and with word of what was done to it.
//
//   jump ahead by more than a minute   the old time runs on for a second; if the jump is still
//   there
//                                      then, it is believed, and take_jump() says so: who was due
//                                      meanwhile was missed, as if nobody had been here
//   set back                           is believed at once, and take_set_back() says so: moments
//                                      that were noted before may seem later than they were
//
// wall(), take_jump() and take_set_back() belong to the thread of the Member's step(); mono() to
// any.

#include <chrono>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "delay/clock_step_filter.h"

namespace tarry::relay {

class BelievedClock final : public Clock {
 public:
  // `clock` outlives it.
  explicit BelievedClock(const Clock& clock) : clock_(clock) {}

  // Never later than the clock itself.
  WallTime wall() const override {
    using std::chrono::milliseconds;
    const WallTime now = filter_.observe(clock_);
    // Behind the wall time: whatever comes between makes a jump look smaller.
    const MonoTime mono = clock_.mono();
    if (last_) {
      const auto passed = std::chrono::ceil<milliseconds>(mono - last_->second);
      was_set_back_ = was_set_back_ || now < last_->first;
      has_jumped_ =
          has_jumped_ || now - last_->first > passed + delay::ClockStepFilter::max_accepted_jump;
    }
    last_.emplace(now, mono);
    return now;
  }
  MonoTime mono() const override { return clock_.mono(); }

  // Since they were asked last.
  bool take_jump() { return std::exchange(has_jumped_, false); }
  bool take_set_back() { return std::exchange(was_set_back_, false); }

 private:
  const Clock& clock_;
  // A Clock is read by many who may not change it, and each reading is an observation.
  mutable delay::ClockStepFilter filter_;
  mutable std::optional<std::pair<WallTime, MonoTime>> last_;
  mutable bool has_jumped_ = false, was_set_back_ = false;
};

}  // namespace tarry::relay
