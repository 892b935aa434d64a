#pragma once

// HashedWheel: one ring of buckets with rounds, fed by queues from any thread.
//
//    any thread   new_timeout() --> [timeouts ]-+
//                 cancel()      --> [cancelled]-+--> worker: tick 4711
//                                                      unlink what is cancelled
//                                                      at most 100 000 timeouts into buckets
//                                                      bucket 4711 mod N: rounds 0 runs, others - 1
//
// Descends from Netty's HashedWheelTimer (Java).  The wheel belongs to the worker (whoever calls
// advance()); the others only hand over, without a lock.  A timer that is cancelled before the
// hand-over never enters a bucket.  A bound on what is pending, with a refusal; stop() gives back
// what did not run and refuses what comes later.
//
// A Timeout is freed by the second of its two holders to let go, where Java has its collector: the
// worker, and whoever got it from new_timeout(), who ends with cancel() or release().
//
// Mended: the worker is told the time instead of sleeping from tick to tick, and a deadline is
// exact to the tick.

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "bench/baselines/common.h"

namespace tarry::baselines {

class HashedWheel {
 public:
  class Timeout : Link {
    friend class HashedWheel;

    Tick deadline = 0;
    std::uint64_t rounds = 0;
    Callback callback;
    std::atomic<Timeout*> next_added = nullptr;
    std::atomic<Timeout*> next_cancelled = nullptr;
    std::atomic<std::uint8_t> state = 0;
    bool met = false;  // The worker's: it came out of one of the two queues.
    bool in_bucket = false;
  };

  // Handed to a bucket in one tick, at most.
  static constexpr std::size_t transfers_a_tick = 100'000;

  // The number of buckets is rounded up to a power of two.
  explicit HashedWheel(std::size_t buckets,
                       std::size_t max_pending = std::numeric_limits<std::int64_t>::max(),
                       Tick now = 0)
      : max_pending_(static_cast<std::int64_t>(max_pending)),
        now_(now),
        mask_(std::bit_ceil(buckets) - 1),
        buckets_(mask_ + 1) {}
  ~HashedWheel() { stop(); }
  HashedWheel(const HashedWheel&) = delete;
  HashedWheel& operator=(const HashedWheel&) = delete;

  // Any thread.  Null when too many are pending, or after stop().
  Timeout* new_timeout(Tick deadline, Callback callback) {
    if (stopped_.load(std::memory_order_relaxed)) return nullptr;
    if (pending_.fetch_add(1, std::memory_order_relaxed) >= max_pending_) {
      pending_.fetch_sub(1, std::memory_order_relaxed);
      return nullptr;
    }
    auto* const timeout = new Timeout;
    timeout->deadline = deadline;
    timeout->callback = callback;
    added_.push(timeout);
    return timeout;
  }

  // Any thread, once, instead of release().  True if it will not run.
  bool cancel(Timeout* timeout) {
    const auto before = timeout->state.fetch_or(cancelled_bit, std::memory_order_acq_rel);
    if (before & expired_bit) {
      release(timeout);
      return false;
    }
    pending_.fetch_sub(1, std::memory_order_relaxed);
    cancelled_.push(timeout);
    return true;
  }

  // Any thread: whoever got it is not interested any more.
  static void release(Timeout* timeout) { let_go(timeout, released_bit, done_bit); }

  // The worker.
  void advance(Tick now) {
    while (now_ < now) {
      if (pending() == 0 && resting_ == 0 && added_.empty() && cancelled_.empty()) {
        now_ = now;
        return;
      }
      ++now_;
      unlink_cancelled();
      transfer(transfers_a_tick, now_);
      expire(buckets_[now_ & mask_]);
    }
  }

  // The worker: all that was handed over goes into its bucket now.
  void transfer_all() {
    unlink_cancelled();
    transfer(std::numeric_limits<std::size_t>::max(), now_ + 1);
  }

  // The worker: ends it.  Returns the callbacks of the timers that had not run; the timers are
  // freed.
  std::vector<Callback> stop() {
    stopped_.store(true, std::memory_order_relaxed);
    transfer_all();
    std::vector<Callback> unprocessed;
    for (Link& bucket : buckets_) {
      while (!bucket.empty()) {
        auto* const timeout = static_cast<Timeout*>(bucket.next);
        unlink(timeout);
        if (!expire_wins(timeout)) continue;
        unprocessed.push_back(timeout->callback);
        let_go(timeout, done_bit, released_bit);
      }
    }
    unlink_cancelled();
    return unprocessed;
  }

  std::size_t pending() const {
    return static_cast<std::size_t>(
        std::max<std::int64_t>(pending_.load(std::memory_order_relaxed), 0));
  }

 private:
  static constexpr std::uint8_t cancelled_bit = 1;
  static constexpr std::uint8_t expired_bit = 2;
  static constexpr std::uint8_t released_bit = 4;  // By whoever got it.
  static constexpr std::uint8_t done_bit = 8;      // The worker's part is over.

  // Many push, one pops; a push is one exchange and a store.
  template <std::atomic<Timeout*> Timeout::*next>
  class Queue {
   public:
    void push(Timeout* timeout) {
      (timeout->*next).store(nullptr, std::memory_order_relaxed);
      Timeout* const before = newest_.exchange(timeout, std::memory_order_acq_rel);
      (before->*next).store(timeout, std::memory_order_release);
    }
    // Null when there is none, or the oldest is just being pushed.
    Timeout* pop() {
      Timeout* oldest = oldest_;
      Timeout* after = (oldest->*next).load(std::memory_order_acquire);
      if (oldest == &stub_) {
        if (after == nullptr) return nullptr;
        oldest = oldest_ = after;
        after = (after->*next).load(std::memory_order_acquire);
      }
      if (after == nullptr) {
        if (newest_.load(std::memory_order_acquire) != oldest) return nullptr;
        push(&stub_);
        after = (oldest->*next).load(std::memory_order_acquire);
        if (after == nullptr) return nullptr;
      }
      oldest_ = after;
      return oldest;
    }
    bool empty() const {
      return oldest_ == &stub_ && (stub_.*next).load(std::memory_order_acquire) == nullptr;
    }

   private:
    Timeout stub_;
    alignas(64) std::atomic<Timeout*> newest_ = &stub_;
    alignas(64) Timeout* oldest_ = &stub_;
  };

  static void let_go(Timeout* timeout, std::uint8_t mine, std::uint8_t other) {
    if (timeout->state.fetch_or(mine, std::memory_order_acq_rel) & other) delete timeout;
  }

  // Whether it may run: nobody has cancelled it.  Else the queue of cancelled ones will bring it.
  static bool expire_wins(Timeout* timeout) {
    const auto before = timeout->state.fetch_or(expired_bit, std::memory_order_acq_rel);
    return (before & cancelled_bit) == 0;
  }

  void unlink(Timeout* timeout) {
    Link::unlink(timeout);
    timeout->in_bucket = false;
    --resting_;
  }

  // A cancelled one comes out of both queues, in either order, and is freed at the second time:
  // its canceller let go of it when he cancelled.
  void unlink_cancelled() {
    while (Timeout* const timeout = cancelled_.pop()) {
      if (!std::exchange(timeout->met, true)) continue;
      if (timeout->in_bucket) unlink(timeout);
      delete timeout;
    }
  }

  // `first` is the tick whose bucket is visited next; one that waited longer than its deadline in
  // the queue fires then.
  void transfer(std::size_t at_most, Tick first) {
    for (; at_most > 0; --at_most) {
      Timeout* const timeout = added_.pop();
      if (timeout == nullptr) return;
      const bool met = std::exchange(timeout->met, true);
      if (timeout->state.load(std::memory_order_acquire) & cancelled_bit) {
        if (met) delete timeout;
        continue;
      }
      const Tick tick = std::max(timeout->deadline, first);
      timeout->rounds = (tick - first) >> std::countr_zero(mask_ + 1);
      buckets_[tick & mask_].push_back(timeout);
      timeout->in_bucket = true;
      ++resting_;
    }
  }

  void expire(Link& bucket) {
    Link due;
    for (Link* link = bucket.next; link != &bucket;) {
      auto* const timeout = static_cast<Timeout*>(link);
      link = link->next;
      if (timeout->rounds > 0) {
        --timeout->rounds;
      } else {
        Link::unlink(timeout);
        due.push_back(timeout);
      }
    }
    while (!due.empty()) {
      auto* const timeout = static_cast<Timeout*>(due.next);
      unlink(timeout);
      if (!expire_wins(timeout)) continue;
      pending_.fetch_sub(1, std::memory_order_relaxed);
      timeout->callback();
      let_go(timeout, done_bit, released_bit);
    }
  }

  const std::int64_t max_pending_;
  Tick now_;
  const std::size_t mask_;
  std::vector<Link> buckets_;
  std::size_t resting_ = 0;  // In buckets.
  alignas(64) std::atomic<std::int64_t> pending_ = 0;
  std::atomic<bool> stopped_ = false;
  Queue<&Timeout::next_added> added_;
  Queue<&Timeout::next_cancelled> cancelled_;
};

}  // namespace tarry::baselines
