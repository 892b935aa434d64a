#include "delay/clock_step_filter.h"

#include "base/log.h"

namespace tarry::delay {

using std::chrono::nanoseconds;

WallTime ClockStepFilter::observe(const Clock& clock) {
  // In this order: whatever comes between makes the wall look earlier, never later.
  const WallTime wall = clock.wall();
  const MonoTime mono = clock.mono();
  const nanoseconds offset = nanoseconds(wall.time_since_epoch()) - mono.time_since_epoch();
  const nanoseconds step = offset - offset_;

  if (started_ && step > nanoseconds(max_accepted_jump)) {
    if (!jump_since_) {
      jump_since_ = mono;
      log_warn(
          "delay",
          "the wall clock jumped ahead by {} ms; deliveries follow it if the jump lasts a second",
          std::chrono::duration_cast<std::chrono::milliseconds>(step).count());
    }
    if (mono - *jump_since_ < nanoseconds(confirmation_time)) {
      now_ = std::chrono::floor<std::chrono::milliseconds>(
          std::chrono::sys_time<nanoseconds>(mono.time_since_epoch() + offset_));
      return now_;
    }
    log_warn("delay",
             "the wall clock's jump ahead has lasted a second; deliveries follow it: it shows {} "
             "ms since 1970",
             to_ms(wall));
    offset_ = offset;
  } else if (!started_ || step > nanoseconds{0} ||
             step < -nanoseconds(std::chrono::milliseconds{1})) {
    // Within a millisecond below is the rounding of the wall's milliseconds; the highest offset
    // seen is that of a millisecond's beginning.
    if (started_ && step < -nanoseconds(std::chrono::seconds{1})) {
      log_warn("delay", "the wall clock was set back by {} ms",
               std::chrono::duration_cast<std::chrono::milliseconds>(-step).count());
    }
    offset_ = offset;
  }
  started_ = true;
  jump_since_.reset();
  now_ = wall;
  return now_;
}

MonoTime ClockStepFilter::mono_of(WallTime due) const {
  // Due times may lie beyond what nanoseconds can count.
  constexpr std::chrono::milliseconds far{std::chrono::hours{24 * 365}};
  const auto wait = due - now_;
  if (due > now_ && wait > far) return mono_at_now() + far;
  return MonoTime(nanoseconds(due.time_since_epoch()) - offset_);
}

nanoseconds ClockStepFilter::since(WallTime due, MonoTime mono) const {
  return mono.time_since_epoch() + offset_ - nanoseconds(due.time_since_epoch());
}

std::optional<MonoTime> ClockStepFilter::confirms_at() const {
  if (!jump_since_) return std::nullopt;
  return *jump_since_ + confirmation_time;
}

}  // namespace tarry::delay
