#pragma once

// Closer: closes clients on threads of their own, because closing one may take long or never end.
//
//   close() --> thread --> ended --> joined by the next close(), or by wait()
//                  '------ not ended when the time of wait() is over: abandoned, and counted
//
// librdkafka destroys a client when its threads have ended.  A client that has failed, or whose
// broker is unavailable, may take seconds for that, and the member cannot wait so long in the
// middle of its work.  But the threads may not be forgotten either: one that is still inside
// librdkafka when the process ends uses objects that exit() destroys.  So the owner waits at the
// end, with a limit, because a process that never ends is worse than an abandoned client.
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
