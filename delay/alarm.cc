#include "delay/alarm.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace tarry::delay {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

Alarm::Alarm(const EngineClock& time, timing::TimingWheel& wheel, MonoTime wheel_start, Calls calls)
    : time_(time),
      wheel_(wheel),
      wheel_start_(wheel_start),
      calls_(std::move(calls)),
      timer_([this] { step(); }) {}

void Alarm::start() {
  running_ = true;
  wake();
}

void Alarm::stop() {
  running_ = false;
  timer_.cancel();
}

void Alarm::step() {
  if (!running_ || stepping_) return;
  stepping_ = true;
  more_ = false;
  const bool more = calls_.step();
  stepping_ = false;
  more_ |= more;
  set();
}

void Alarm::set() {
  if (!running_ || stepping_) return;
  if (more_) {
    // At once, but in a turn of its own, so that requests come in between.
    wheel_.schedule(timer_, wheel_.now());
    return;
  }
  const MonoTime now = time_.mono();
  std::optional<MonoTime> next = calls_.next(now);
  const auto confirms = time_.confirms_at();
  if (!next && !confirms) {
    timer_.cancel();
    return;
  }
  // A time that has come already and found nothing to do is a matter of rounding.
  if (next) next = std::max(std::min(*next, now + max_sleep), now + nanoseconds{100'000});
  if (confirms) next = next ? std::min(*next, *confirms) : *confirms;
  wheel_.schedule(timer_, tick_of(*next));
}

timing::Tick Alarm::tick_of(MonoTime time) const {
  // Rounded up, so that nothing is looked for before it is due.
  const auto ticks = std::chrono::ceil<milliseconds>(time - wheel_start_).count();
  return std::max(wheel_.now(), static_cast<timing::Tick>(std::max<std::int64_t>(0, ticks)));
}

}  // namespace tarry::delay
