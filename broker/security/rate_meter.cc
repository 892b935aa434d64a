#include "broker/security/rate_meter.h"

#include <algorithm>
#include <cmath>

namespace tarry::broker {

void RateMeter::add(double used, MonoTime now) {
  if (of_.empty()) {
    of_.push_back({now, 0});
  } else if (now - of_[newest_].begin >= windows_.length) {
    newest_ = (newest_ + 1) % windows_.count;
    if (newest_ == of_.size())
      of_.push_back({now, 0});
    else
      of_[newest_] = {now, 0};
  }
  of_[newest_].used += used;
}

RateMeter::Measured RateMeter::measure(MonoTime now) {
  double used = 0;
  MonoTime oldest = now;
  for (auto& window : of_) {
    // It is over, so it counts from now on as an empty one.
    if (now - window.begin >= windows_.span()) window = {now, 0};
    used += window.used;
    oldest = std::min(oldest, window.begin);
  }
  // A client that has just begun has not used up ten seconds with its first request.
  std::chrono::nanoseconds over = now - oldest;
  const auto whole = static_cast<std::size_t>(over / windows_.length);
  if (whole + 1 < windows_.count)
    over += windows_.length * static_cast<std::int64_t>(windows_.count - 1 - whole);
  // Over less time one request would look like a flood.
  over = std::max<std::chrono::nanoseconds>(over, windows_.length);
  return {used / std::chrono::duration<double>(over).count(), over};
}

std::chrono::milliseconds RateMeter::record(double used, double limit, MonoTime now) {
  const std::lock_guard held(lock_);
  add(used, now);
  const auto [rate, over] = measure(now);
  if (rate <= limit) return {};
  constexpr double longest = 86'400'000;  // A day; the number has to stay an i32 on the wire.
  const double wait =
      (rate - limit) / limit * std::chrono::duration<double, std::milli>(over).count();
  return std::chrono::milliseconds(std::llround(std::min(wait, longest)));
}

void RateMeter::take_back(double used, MonoTime now) {
  const std::lock_guard held(lock_);
  // In the newest window: it was recorded just now.
  add(-used, now);
}

double RateMeter::rate(MonoTime now) {
  const std::lock_guard held(lock_);
  return measure(now).rate;
}

bool RateMeter::is_idle(MonoTime now) const {
  const std::lock_guard held(lock_);
  return of_.empty() || now - of_[newest_].begin >= windows_.span();
}

}  // namespace tarry::broker
