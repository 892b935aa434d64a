#pragma once

// AtomicSnapshot: one thread replaces a pointer, others read it and keep what they read as long as
// they need it.
//
// It has a mutex, for no longer than a pointer's copy; so has g++ 12's
// std::atomic<std::shared_ptr>.  Any thread.

#include <memory>
#include <mutex>

namespace tarry::storage {

template <typename T>
class AtomicSnapshot {
 public:
  std::shared_ptr<const T> load() const {
    const std::lock_guard lock(mutex_);
    return value_;
  }
  void store(std::shared_ptr<const T> value) {
    const std::lock_guard lock(mutex_);
    value_.swap(value);  // The old value is destroyed after the lock is released.
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const T> value_;
};

}  // namespace tarry::storage
