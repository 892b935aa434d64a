#pragma once

// ShardLock: the lock of one shard of a TimerService, which nearly always its owner takes.
//
// The owner, the first thread that takes it, needs no locked instruction (each costs as much as the
// wheel's work that it guards): it sets `inside_` and checks that it is not revoked.  Any other
// thread takes `held_` first, sets `revoked_` and checks that the owner is not inside.
//
//    the owner                     any other thread, one at a time
//    inside_ = true                revoked_ = true
//      compiler's fence              membarrier(): a fence in every running thread
//    revoked_?  then as others     inside_?  then wait
//
// At least one sees the other's write, so they are never both inside.  The owner's fence costs the
// processor nothing; the other thread's is a system call that makes one there at that moment. While
// it is revoked the owner takes `held_` like every thread.  The driver revokes it while it works on
// a shard.  If other threads come often, or the system has no membarrier(), the lock has no owner:
// it is one exchange and a store for every thread.
//
// A thread that schedules without a pause would hardly ever leave the driver a gap; so a driver
// that waits sets a flag, and the next thread stands back for a moment.  It does so once: a driver
// that was preempted sets the flag again when it runs.

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "base/assert.h"

namespace tarry::timing {

// Threads are numbered from 1 as they first schedule something.
inline std::size_t thread_number() {
  static constinit std::atomic<std::size_t> next{1};
  thread_local constinit std::size_t number = 0;
  if (number == 0) number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

// Two halves of a fence, of which one costs nothing and is done by whoever does it often.
class AsymmetricFence {
 public:
#if defined(__SANITIZE_THREAD__)
  // ThreadSanitizer knows no membarrier(); stores that are exchanges do the same.
  static bool is_there() {
    return true;
  }
  static void set_often(std::atomic<bool>& flag) {
    flag.exchange(true);
  }
  static void set_seldom(std::atomic<bool>& flag) {
    flag.exchange(true);
  }
#else
  static bool is_there() {
    static const bool registered =
        ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
    return registered;
  }
  // Sets it, before anything that is read after it.
  static void set_often(std::atomic<bool>& flag) {
    flag.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  static void set_seldom(std::atomic<bool>& flag) {
    flag.store(true);
    const auto fenced = ::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    TARRY_ASSERT(fenced == 0, "a membarrier() that was registered does not fail");
  }
#endif
};

class ShardLock {
 public:
  void lock() {
    const std::size_t me = thread_number();
    if (owner_.load(std::memory_order_relaxed) == me) {
      AsymmetricFence::set_often(inside_);
      if (!revoked_.load()) {
        held_by_owner_ = true;
        return;
      }
      inside_.store(false, std::memory_order_release);
    }
    lock_slow(me);
  }

  void unlock() {
    if (held_by_owner_) {
      inside_.store(false, std::memory_order_release);
    } else {
      unlock_slow();
    }
  }

  // The driver, who comes back soon: begin_driving() and end_driving() with the lock held, which it
  // may release in between.
  void lock_as_driver() {
    if (held_.exchange(true, std::memory_order_acquire)) wait(true);
    revoke();
  }
  void begin_driving() { ++revocations_; }
  void end_driving() { --revocations_; }

 private:
  [[gnu::noinline]] void lock_slow(std::size_t me) {
    if (driver_waits_.load(std::memory_order_relaxed)) let_driver_in();
    if (held_.exchange(true, std::memory_order_acquire)) wait(false);
    const std::size_t owner = owner_.load(std::memory_order_relaxed);
    // Not while the driver is at it: it has asked nobody to stay out.
    if (owner == 0 && revocations_ == 0 && AsymmetricFence::is_there()) {
      owner_.store(me, std::memory_order_relaxed);
    } else if (owner != me && owner != 0) {
      if (revocations_ == 0) count_strangers();
      revoke();
      return;
    }
    // Nobody is inside as its owner: that would be this thread.
    held_by_owner_ = false;
  }

  void unlock_slow() {
    if (has_revoked_) {
      has_revoked_ = false;
      if (--revocations_ == 0) revoked_.store(false, std::memory_order_release);
    }
    held_.store(false, std::memory_order_release);
  }

  // With held_.  The first of several waits until the owner has left, and it does not come back.
  void revoke() {
    if (revocations_++ == 0 && owner_.load(std::memory_order_relaxed) != 0) {
      AsymmetricFence::set_seldom(revoked_);
      for (unsigned round = 0; inside_.load(); ++round) pause(round);
    }
    held_by_owner_ = false;
    has_revoked_ = true;
  }

  // A system call each is too much for threads that come often: then it is revoked for good.
  void count_strangers() {
    const auto now = std::chrono::steady_clock::now();
    if (now - strangers_since_ > std::chrono::milliseconds(10)) {
      strangers_since_ = now;
      strangers_ = 0;
    }
    if (++strangers_ > max_strangers) {
      revoke();
    }
  }

  [[gnu::noinline]] void wait(bool driver) {
    for (unsigned round = 0;; ++round) {
      if (driver && round % 16 == 0) driver_waits_.store(true, std::memory_order_relaxed);
      if (!held_.load(std::memory_order_relaxed) &&
          !held_.exchange(true, std::memory_order_acquire)) {
        break;
      }
      pause(round);
    }
    if (driver) driver_waits_.store(false, std::memory_order_relaxed);
  }

  [[gnu::noinline]] void let_driver_in() {
    for (unsigned round = 0; round < 32 && driver_waits_.load(std::memory_order_relaxed); ++round) {
      pause(round);
    }
    driver_waits_.store(false, std::memory_order_relaxed);
  }

  // Longer than anybody holds it, unless he was preempted.  Not yield(): on a busy machine that
  // gives away a whole turn of ours for a lock that is free in the next moment.
  static void pause(unsigned round) {
    if (round >= 256) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      return;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  static constexpr int max_strangers = 64;  // In ten milliseconds.

  std::atomic<std::size_t> owner_{0};  // A thread's number; once there is one it stays.
  std::atomic<bool> inside_{false};    // The owner is, or is about to see that it may not.
  std::atomic<bool> revoked_{false};   // While there are revocations.  Written with held_.
  std::atomic<bool> held_{false};
  std::atomic<bool> driver_waits_{false};
  // Used by the thread that has the lock:
  bool held_by_owner_ = false;  // It was taken without held_.
  bool has_revoked_ = false;    // It has to end one revocation.
  // Written with held_.
  int revocations_ = 0;
  int strangers_ = 0;
  std::chrono::steady_clock::time_point strangers_since_{};
};

}  // namespace tarry::timing
