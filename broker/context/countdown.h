#pragma once

// Countdown: lets a coroutine wait until several operations have ended.
//
//   Countdown opened(partitions.size());
//   for (auto& each : partitions) open(each, [&] { opened.one_ended(); });
//   if (!opened.all_ended()) co_await opened.wait();
//
// As with OneShotEvent, the coroutine resumes inside the last one_ended(), so that must be the last
// call in its caller; and everything happens on one thread.

#include <cstddef>

#include "broker/context/one_shot_event.h"

namespace tarry::broker {

class Countdown {
 public:
  explicit Countdown(std::size_t count = 0) : left_(count) {}

  void one_begun() { ++left_; }
  void one_ended() {
    if (--left_ == 0) event_.fire();
  }
  bool all_ended() const { return left_ == 0; }
  // Not when all have ended.
  auto wait() { return event_.wait(); }

 private:
  std::size_t left_;
  OneShotEvent event_;
};

}  // namespace tarry::broker
