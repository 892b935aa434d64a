#pragma once

// BelievedClock: the clock by which a member delivers.  It ignores jumps ahead that may be mistakes
// (delay/clock_step_filter.h), and reports what happened to the wall clock.
//
//   jump ahead by more than a minute
//               the old time runs on for a second; if the jump is still there then, the clock
//               follows it, and take_jump() reports it: runs that were due meanwhile count as
//               missed, as if no member had been running
//   ahead of the monotonic clock
//               take_ahead() says by how much: after a suspension of the machine the wall clock
//               alone has moved on.  A jump in doubt counts from the moment when it was first seen
//   set back    is followed at once, and take_set_back() reports it: moments that were noted before
//               may seem later than they were.  It is noticed even if more time has passed since
//               the last look than the clock was set back by
//
// wall() and all take_...() belong to the thread of the Member's step(); mono() to any.

#include <algorithm>
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
    // Read before and behind it: a thread that stands still between them has seen no step.
    const MonoTime before = clock_.mono();
    const WallTime now = filter_.observe(clock_);
    const MonoTime behind = clock_.mono();
    const bool is_in_doubt = filter_.confirms_at().has_value();
    if (last_) {
      const milliseconds went = now - last_->wall;
      const auto least = std::chrono::floor<milliseconds>(before - last_->behind);
      const auto most = std::chrono::ceil<milliseconds>(behind - last_->before);
      was_set_back_ = was_set_back_ || went < milliseconds{0} || went + slew_in(least) < least;
      has_jumped_ = has_jumped_ || went > most + delay::ClockStepFilter::max_accepted_jump;
      ahead_ = std::max(ahead_, went - most);
      if (is_in_doubt && !last_->is_in_doubt)
        ahead_ = std::max(ahead_, delay::ClockStepFilter::max_accepted_jump);
    }
    last_ = Look{now, before, behind, is_in_doubt};
    return now;
  }
  MonoTime mono() const override { return clock_.mono(); }

  // Since they were asked last.
  bool take_jump() { return std::exchange(has_jumped_, false); }
  bool take_set_back() { return std::exchange(was_set_back_, false); }
  std::chrono::milliseconds take_ahead() { return std::exchange(ahead_, {}); }

 private:
  struct Look {
    WallTime wall{};
    MonoTime before{}, behind{};  // Read around it.
    bool is_in_doubt = false;     // A jump was.
  };

  // So much may a clock that is slowed down, and not set, lose in that time.
  static std::chrono::milliseconds slew_in(std::chrono::milliseconds time) {
    return std::chrono::milliseconds{100} + time / 10;
  }

  const Clock& clock_;
  // A Clock is read by many who may not change it, and each reading is an observation.
  mutable delay::ClockStepFilter filter_;
  mutable std::optional<Look> last_;
  mutable bool has_jumped_ = false, was_set_back_ = false;
  mutable std::chrono::milliseconds ahead_{};  // Zero: not at all.
};

}  // namespace tarry::relay
