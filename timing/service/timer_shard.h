#pragma once

// TimerShard: one lock of a TimerService, the wheel that it guards, and the timers in that wheel.
//
//    free -- take_node --> armed -- deadline --> ready -- driver --> running --> finishing --> free
//                            ^                     |                    |
//                            '--- arm (moved) -----+--------------------'  again, or periodic
//
// Invariants, whenever the lock is free
//   - Every node is in one of these states, and in the wheel, the ready list or the free list
//     exactly when its state says so.
//   - `earliest` is not later than any timer that is armed or ready.
//   - scheduled - cancelled - finished - handed back timers exist, each in a place of its own.
//
// Everything is read and written under `lock`, but for `earliest`, which any thread may read.
// Nodes live in slabs and stay where they are, because the wheel links them.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "timing/service/driver_alarm.h"
#include "timing/service/shard_lock.h"
#include "timing/service/timer_callback.h"
#include "timing/service/timer_id.h"
#include "timing/service/timer_service_options.h"
#include "timing/timing_wheel.h"

namespace tarry::timing {

struct TimerShard;

// Periods and keys: few timers have one.
struct TimerExtra {
  Repeat repeat = Repeat::never;
  std::chrono::nanoseconds period{};
  bool keyed = false;
  std::string key;
};

// One timer.  All but `callback` and `extra` is read and written under its shard's lock; those
// two belong to the driver from running to finishing, and to the shard before.
struct TimerNode final : Timer {
  enum class State : std::uint8_t {
    free,
    armed,     // In the wheel.
    ready,     // Due: taken out of the wheel, in the shard's ready list.
    running,   // Its callback is being called.
    finishing  // It has been, for the last time, and is being destroyed.
  };

  void on_expired() override;

  TimerShard* shard = nullptr;
  std::uint64_t sequence = 0;                   // Its id's; 0 while free.
  std::chrono::steady_clock::time_point due{};  // As asked for; the wheel has it in ticks.
  std::unique_ptr<TimerExtra> extra;
  TimerCallback callback;
  TimerNode* next = nullptr;      // In the free list or the ready list.
  TimerNode* previous = nullptr;  // In the ready list.
  std::uint32_t index = 0;
  State state = State::free;
  // While running:
  bool cancelled = false;  // It is the last run.
  bool again = false;      // It was rescheduled, to `due`.
  bool waited_for = false;

  bool waits() const { return state == State::armed || state == State::ready; }
};

struct alignas(128) TimerShard {
  static constexpr std::size_t slab_size = 256;

  ShardLock lock;
  bool closed = false;   // Nothing may be scheduled any more.
  bool drained = false;  // stop() has taken everything out.
  Earliest<> earliest;   // The first of the timers in the wheel and the ready ones.

  std::size_t spare = 0;  // Places that are free for this shard to use.
  TimerNode* free = nullptr;
  std::uint32_t number = 0;
  std::uint32_t fresh = 0;  // Nodes from this index on were never used.
  // Ever; what was scheduled and is in none of the others exists.
  std::uint64_t sequence = 0;  // The last id's.
  std::uint64_t cancelled = 0;
  std::uint64_t finished = 0;
  std::uint64_t handed_back = 0;
  TimerNode* ready_first = nullptr;
  TimerNode* ready_last = nullptr;
  std::uint64_t fired = 0;
  std::uint64_t thrown = 0;
  std::uint64_t skipped = 0;
  TimingWheel wheel;
  std::vector<std::unique_ptr<TimerNode[]>>
      slabs;  // After the wheel: nodes leave it when destroyed.

  TimerNode* find(TimerId id) {
    if (id.index >= fresh) return nullptr;
    TimerNode& node = slabs[id.index / slab_size][id.index % slab_size];
    return node.sequence == id.sequence && id.sequence != 0 ? &node : nullptr;
  }

  TimerId id_of(const TimerNode& node) const { return {node.sequence, node.index, number}; }

  std::size_t in_use() const { return sequence - cancelled - finished - handed_back; }

  TimerNode& take_node() {
    if (free != nullptr) return *std::exchange(free, free->next);
    return fresh_node();
  }

  [[gnu::noinline]] TimerNode& fresh_node() {
    if (fresh == slabs.size() * slab_size)
      slabs.push_back(std::make_unique<TimerNode[]>(slab_size));
    TimerNode& node = slabs[fresh / slab_size][fresh % slab_size];
    node.shard = this;
    node.index = fresh++;
    return node;
  }

  // The timer's callback and extra were moved out or destroyed.
  void give_back(TimerNode& node) {
    node.sequence = 0;
    node.state = TimerNode::State::free;
    node.next = std::exchange(free, &node);
    ++spare;
  }

  // All but the first, when no node is in use; to be destroyed without the lock.
  std::vector<std::unique_ptr<TimerNode[]>> drop_slabs() {
    std::vector<std::unique_ptr<TimerNode[]>> dropped(std::make_move_iterator(slabs.begin() + 1),
                                                      std::make_move_iterator(slabs.end()));
    slabs.resize(1);
    free = nullptr;
    fresh = 0;
    return dropped;
  }

  void push_ready(TimerNode& node) {
    node.state = TimerNode::State::ready;
    node.next = nullptr;
    node.previous = std::exchange(ready_last, &node);
    (node.previous != nullptr ? node.previous->next : ready_first) = &node;
  }

  void leave_ready(TimerNode& node) {
    (node.previous != nullptr ? node.previous->next : ready_first) = node.next;
    (node.next != nullptr ? node.next->previous : ready_last) = node.previous;
  }

  // Takes a waiting timer out of the wheel or the ready list.
  void take_out(TimerNode& node) {
    if (node.state == TimerNode::State::armed) {
      wheel.cancel(node);
    } else {
      leave_ready(node);
    }
  }

  // Arms it, or moves it if it is waiting already.
  void arm(TimerNode& node, std::chrono::steady_clock::time_point deadline, Tick tick) {
    if (node.state == TimerNode::State::ready) leave_ready(node);
    node.due = deadline;
    node.state = TimerNode::State::armed;
    wheel.schedule(node, tick);
  }
};

inline void TimerNode::on_expired() {
  shard->push_ready(*this);
}

}  // namespace tarry::timing
