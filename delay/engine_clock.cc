#include "delay/engine_clock.h"

#include <algorithm>

namespace tarry::delay {

using std::chrono::milliseconds;

void EngineClock::start() {
  running_since_ = last_now_ = observe();
  last_mono_ = mono();
}

// A run that became due while the clock jumped ahead was missed; one that is accepted after the
// clock was set back was not.
WallTime EngineClock::begin_step() {
  constexpr milliseconds jump = std::chrono::minutes{1};
  const WallTime now = observe();
  const MonoTime mono = clock_.mono();
  const WallTime expected = last_now_ + std::chrono::floor<milliseconds>(mono - last_mono_);
  running_since_ = now > expected + jump ? now : std::min(running_since_, now);
  last_now_ = now;
  last_mono_ = mono;
  return now;
}

}  // namespace tarry::delay
