#pragma once

// Stop: the end of a member that a signal has asked for, and the time that it may take.
//
//   is_asked() --> the member ends its step, leaves the group, ends its clients --> ~Stop()
//        '-- a thread: all that has not come to its end within the limit --> force()
//
// Each question to Kafka has a limit, but those of a start, or of a step while Kafka does not
// answer, add up to far more than a person or a supervisor waits; and librdkafka leaves a group
// only behind the answer to its request to join it, for which a rebalance may wait.
//
// A forced end is a crash to the group and to the store, which lose nothing by it.  It costs the
// other members the time of a session, in which they wait for this one: so one that owns partitions
// gets more time to give them up than one that has begun nothing.
//
// Any thread.

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

namespace tarry::relay {

class Stop {
 public:
  using Time = std::chrono::milliseconds;
  static constexpr Time start_limit{1'500};   // Before the first assignment is complete.
  static constexpr Time owner_limit{20'000};  // A transaction and its end fit in it.
  static constexpr Time look_again{50};       // A signal's handler can wake nobody.

  // `force` is called once at most, on a thread, and usually ends the process.
  Stop(std::function<bool()> is_asked, std::function<void()> force, Time limit = start_limit);
  Stop(const Stop&) = delete;
  Stop& operator=(const Stop&) = delete;

  bool is_asked() const { return is_asked_(); }
  // Counted from when the stop was asked for.
  void allow(Time limit) { limit_ = limit; }

 private:
  void watch(const std::stop_token& ended);

  const std::function<bool()> is_asked_;
  const std::function<void()> force_;
  std::atomic<Time> limit_;
  std::jthread watching_;  // Uses the others, so it ends first.
};

}  // namespace tarry::relay
