#pragma once

// Pulse: calls `turn` once in each `interval`, on a thread of its own, which has the name
// `thread_name`; the first time after one interval.
//
// The destructor waits for a `turn` that is running.  Create and destroy it on the same thread,
// never inside `turn`.

#include <chrono>
#include <functional>
#include <string>
#include <thread>

namespace tarry::server {

class Pulse {
 public:
  Pulse(std::chrono::milliseconds interval, std::function<void()> turn,
        std::string thread_name = "tarry-notify");

 private:
  std::jthread thread_;
};

}  // namespace tarry::server
