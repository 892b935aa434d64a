#pragma once

// RateMeter: how much was used in the last seconds, and how long to wait for it, as Kafka counts.
//
//   quota.window.num=11 windows of quota.window.size.seconds=1
//
//     |  40 |  10 |     |  70 |  25 |    a window begins with the first record after the one before
//      oldest                   newest
//
//   rate = all of it / (from the oldest window's start until now, 10 windows at the least)
//
// A rate above the limit is waited for until it would be the limit: (rate - limit) / limit times
// the time that the rate was measured over.  So a client that was idle may use ten seconds' worth
// at once.
//
// A client's quota is for the whole broker, and its connections are on all shards.  So a meter is
// one of the few things that shards share, with a lock; only clients that have a quota take it, for
// less than a microsecond a request.
//
// Any thread.

#include <chrono>
#include <cstddef>
#include <mutex>
#include <vector>

#include "base/clock.h"

namespace tarry::broker {

struct RateWindows {
  std::size_t count = 11;          // quota.window.num
  std::chrono::seconds length{1};  // quota.window.size.seconds

  // The time after which a recorded value is forgotten.
  std::chrono::nanoseconds span() const { return length * static_cast<std::int64_t>(count); }
  // The most that may be used at once.
  double at_once(double limit) const {
    return limit * static_cast<double>(count > 1 ? count - 1 : 1) *
           static_cast<double>(length.count());
  }
};

class RateMeter {
 public:
  explicit RateMeter(RateWindows windows) : windows_(windows) {}

  // Records, and returns how long the client has to wait; 0: its rate is within the limit.
  std::chrono::milliseconds record(double used, double limit, MonoTime now);
  // It was not used after all.
  void take_back(double used, MonoTime now);
  double rate(MonoTime now);

  // Nothing that was recorded counts any more.
  bool is_idle(MonoTime now) const;

 private:
  struct Window {
    MonoTime begin;
    double used;
  };
  void add(double used, MonoTime now);
  struct Measured {
    double rate;
    std::chrono::nanoseconds over;
  };
  Measured measure(MonoTime now);

  const RateWindows windows_;
  mutable std::mutex lock_;
  std::vector<Window> of_;  // windows_.count at the most; a ring, from then on.
  std::size_t newest_ = 0;
};

}  // namespace tarry::broker
