#pragma once

// Stop: stops a member after a signal, within a limited time.
//
//   is_asked() --> the member ends its step, leaves the group, ends its clients --> ~Stop()
//        '-- a thread: if that takes longer than the limit --> force()
//
// Each question to Kafka has a limit, but those of a start, or of a step while Kafka does not
// answer, add up to far more than a person or a supervisor waits for.  And librdkafka leaves a
// group only after the answer to its request to join it, which may wait for a rebalance.
//
// To the group and to the store a forced end is a crash, by which nothing is lost.  But the other
// members wait for this one until its session times out.  So a member that owns partitions gets
// more time to give them up than one that has not begun anything.
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
