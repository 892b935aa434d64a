#include "relay/closer.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/log.h"

namespace tarry::relay {

struct Closer::Signal {
  std::mutex mutex;
  std::condition_variable changed;
  bool has_ended = false;
};

Closer::~Closer() {
  const std::size_t left = wait(limit_);
  if (left > 0)
    log_warn("relay", "{} Kafka clients did not close within {} ms and were abandoned", left,
             limit_.count());
  // Joining them might take for ever, which the limit is to prevent.
  for (auto& each : closing_) each.thread.detach();
}

void Closer::close(std::move_only_function<void()> end) {
  wait(std::chrono::milliseconds{0});  // A member may replace its producers many times.
  auto signal = std::make_shared<Signal>();
  std::thread thread([signal, end = std::move(end)]() mutable {
    end();
    // The objects that it holds end on this thread too: a client ends in its destructor.
    end = nullptr;
    const std::lock_guard lock(signal->mutex);
    signal->has_ended = true;
    signal->changed.notify_all();
  });
  closing_.push_back({std::move(signal), std::move(thread)});
}

std::size_t Closer::wait(std::chrono::milliseconds limit) {
  // One time for all of them.
  const auto until = std::chrono::steady_clock::now() + limit;
  for (auto each = closing_.begin(); each != closing_.end();) {
    Signal& signal = *each->signal;
    bool has_ended = false;
    {
      std::unique_lock lock(signal.mutex);
      has_ended = signal.changed.wait_until(lock, until, [&] { return signal.has_ended; });
    }
    if (!has_ended) {
      ++each;
      continue;
    }
    each->thread.join();
    each = closing_.erase(each);
  }
  return closing_.size();
}

}  // namespace tarry::relay
