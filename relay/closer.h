#pragma once

// Closer: ends things whose end may take long, or not come, each on a thread of its own.
//
//   close() --> thread --> ended --> joined by the next close(), or by wait()
//                  '------ not ended when the time of wait() is over: left behind, and counted
//
// librdkafka destroys a client when its threads have come to their ends, and one that has failed,
// or whose broker has gone, may take seconds for that.  The member cannot wait so long in the
// middle of its work.  But nor may the threads be forgotten: one that is still inside librdkafka
// when the process ends uses what exit() takes down.  So the owner waits at the end, with a limit,
// because a process that never ends is worse than one that leaves a broken client behind.
//
// One thread.

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <thread>

namespace tarry::relay {

class Closer {
 public:
  explicit Closer(std::chrono::milliseconds limit) : limit_(limit) {}
  // Waits until the limit, and logs what is left behind.
  ~Closer();
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;

  void close(std::move_only_function<void()> end);
  // How many have not ended within `limit`.
  std::size_t wait(std::chrono::milliseconds limit);

 private:
  struct Signal;
  struct CloserThread {
    std::shared_ptr<Signal> signal;  // The thread may outlive its owner.
    std::thread thread;
  };

  const std::chrono::milliseconds limit_;
  std::list<CloserThread> closing_;
};

}  // namespace tarry::relay
