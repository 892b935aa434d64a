#pragma once

// ThreeLevelWheel: three rings of 256, one counter for all of them, one-shot and periodic tasks.
//
//    cur_tick    .. | byte 2 | byte 1 | byte 0 |
//                       |        |        +-- level 0: what lies in this bucket is due
//                       |        +----------- level 1: dealt out when byte 0 is 0
//                       +-------------------- level 2: dealt out when bytes 0 and 1 are 0
//
// Descends from a small wheel in C.  A task lies on the level of the highest byte in which its tick
// differs from now, in a singly linked list, pushed at the front; there is no search, no cancel and
// no move.  A periodic task is added again from the tick at which it was due, so it does not drift.
// Delays reach 2^24 - 1 ticks.
//
// Mended: what is out of reach is refused (the ancestor drops or loses it), a wrap of the upper
// bytes is dealt out like any other bucket, and callbacks may add.  The spin lock is the caller's.

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "bench/baselines/common.h"

namespace tarry::baselines {

class ThreeLevelWheel {
 public:
  static constexpr Tick reach = Tick{1} << 24;  // The first delay that is too long.

  explicit ThreeLevelWheel(Tick now = 0) : now_(now) {}

  // A period of 0: once.  False, and nothing done, when either is out of reach.
  bool add(Tick deadline, Callback callback, Tick period = 0) {
    const Tick due = deadline > now_ ? deadline : now_ + 1;
    if (due - now_ >= reach || period >= reach) return false;
    Node* const node = pool_.take();
    node->deadline = due;
    node->period = period;
    node->callback = callback;
    ++size_;
    place(node);
    return true;
  }

  void advance(Tick now) {
    while (now_ < now) {
      if (size_ == 0) {
        now_ = now;
        return;
      }
      ++now_;
      tick();
    }
  }

  std::size_t size() const { return size_; }

 private:
  struct Node {
    Node* next = nullptr;
    Tick deadline = 0;
    Tick period = 0;
    Callback callback;
  };

  void place(Node* node) {
    const Tick difference = node->deadline ^ now_;
    const unsigned level = difference >> 16 != 0 ? 2 : difference >> 8 != 0 ? 1 : 0;
    Node*& first = levels_[level][(node->deadline >> 8 * level) & 0xff];
    node->next = std::exchange(first, node);
  }

  void deal_out(unsigned level) {
    Node* node = std::exchange(levels_[level][(now_ >> 8 * level) & 0xff], nullptr);
    while (node != nullptr) {
      Node* const next = node->next;
      place(node);
      node = next;
    }
  }

  void tick() {
    if ((now_ & 0xffff) == 0) deal_out(2);
    if ((now_ & 0xff) == 0) deal_out(1);
    Node* node = std::exchange(levels_[0][now_ & 0xff], nullptr);
    while (node != nullptr) {
      Node* const next = node->next;
      const Callback callback = node->callback;
      if (node->period != 0) {
        node->deadline += node->period;
        place(node);
      } else {
        pool_.give_back(node);
        --size_;
      }
      callback();
      node = next;
    }
  }

  Tick now_;
  std::size_t size_ = 0;
  std::array<std::array<Node*, 256>, 3> levels_{};
  NodePool<Node> pool_;
};

}  // namespace tarry::baselines
