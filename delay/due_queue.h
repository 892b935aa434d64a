#pragma once

// DueQueue: a partition's near records in the order in which they leave.
//
//   runs     [ 3 5 6 9 ] [ 4 7 ] [ 8 ]   each sorted; a heap of them, the smallest front first
//   tail     [ 6 10 11 ]                 the run that those join that come one by one, in order
//   late     those that came one by one, out of order, since front() was last asked for
//   heap     those of `late` that were too few for a run
//
// The wheel gives the records of one millisecond in no order of theirs, some thousands in a step.
// Each step's are sorted and become a run; so a record costs some comparisons among runs, and not a
// way through a heap of a million.  Records from the disk, and records filed as they arrive, come
// one by one: in order as a rule, but a chunk of overdue records comes in the order of its sequence
// numbers, hundreds in a step, and these are a run too.
//
// Invariant: front() has the smallest key of all; no run in the heap of runs is empty.
//
// Belongs to its ReadyQueues, on its thread.

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "delay/near_tier.h"

namespace tarry::delay {

class DueQueue {
 public:
  struct Item {
    PendingKey key;
    NearEntry* entry;
  };

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  const Item& front() {
    settle_late();
    switch (first_of()) {
      case Part::runs:
        return runs_.front().front();
      case Part::tail:
        return tail_.front();
      default:
        return heap_.front();
    }
  }

  void push(const Item& item) {
    ++size_;
    if (tail_.is_ended() || tail_.items.back().key < item.key) {
      if (tail_.items.size() >= max_run) end_tail();
      tail_.items.push_back(item);
    } else {
      late_.push_back(item);
    }
  }
  // `items` are sorted.
  void push_sorted(std::span<const Item> items) {
    if (items.size() < small) {
      for (const Item& item : items) push(item);
    } else {
      size_ += items.size();
      add_run(items);
    }
  }
  void pop() {
    settle_late();
    --size_;
    switch (first_of()) {
      case Part::runs:
        return pop_run();
      case Part::tail:
        tail_.prefetch();
        if (++tail_.first < tail_.items.size()) return;
        tail_.first = 0;
        return clear(tail_.items);
      default:
        std::ranges::pop_heap(heap_, leaves_later);
        heap_.pop_back();
        if (heap_.empty()) clear(heap_);
    }
  }

  // How many are due by `now`; it may stop counting at `enough`.
  std::size_t due_by(WallTime now, std::size_t enough = ~std::size_t{0}) const {
    const auto is_due = [now](const Item& item) { return item.key.due <= now; };
    std::size_t due = tail_.due_by(now);
    for (auto run = runs_.begin(); run != runs_.end() && due < enough; ++run)
      due += run->due_by(now);
    for (const auto* const items : {&heap_, &late_})
      for (auto item = items->begin(); item != items->end() && due < enough; ++item)
        due += is_due(*item);
    return due;
  }

 private:
  // Fewer than these are no run of their own, and their memory is kept when they have left.
  static constexpr std::size_t small = 64;
  // A run's memory is given back when all of it has left.
  static constexpr std::size_t max_run = 4096;

  enum class Part { runs, tail, heap };

  struct Run {
    std::vector<Item> items;
    std::size_t first = 0;  // The records before it have left.

    bool is_ended() const { return first == items.size(); }
    const Item& front() const { return items[first]; }
    // Entries lie anywhere in memory, and the next ones are wanted soon.
    void prefetch() const {
      constexpr std::size_t ahead = 8;
      if (ahead < items.size() - first) __builtin_prefetch(items[first + ahead].entry, 1);
    }
    std::size_t due_by(WallTime now) const {
      const auto rest = std::span(items).subspan(first);
      const auto later = std::ranges::partition_point(
          rest, [now](const Item& item) { return item.key.due <= now; });
      return static_cast<std::size_t>(later - rest.begin());
    }
  };

  static bool leaves_later(const Item& a, const Item& b) { return b.key < a.key; }
  // The part that has the smallest key; one of them has one.
  Part first_of() const {
    Part part = Part::heap;
    const Item* least = heap_.empty() ? nullptr : &heap_.front();
    if (!tail_.is_ended() && (least == nullptr || tail_.front().key < least->key)) {
      part = Part::tail;
      least = &tail_.front();
    }
    if (!runs_.empty() && (least == nullptr || runs_.front().front().key < least->key))
      part = Part::runs;
    return part;
  }
  static void clear(std::vector<Item>& items) {
    if (items.capacity() > small)
      items = std::vector<Item>();
    else
      items.clear();
  }

  void settle_late() {
    if (late_.empty()) return;
    if (late_.size() < small) {
      for (const Item& item : late_) {
        heap_.push_back(item);
        std::ranges::push_heap(heap_, leaves_later);
      }
    } else {
      std::ranges::sort(late_, {}, &Item::key);
      add_run(late_);
    }
    clear(late_);
  }
  void add_run(std::span<const Item> items) {
    runs_.push_back({{items.begin(), items.end()}});
    std::ranges::push_heap(runs_, run_leaves_later);
  }
  void end_tail() {
    runs_.push_back(std::exchange(tail_, {}));
    std::ranges::push_heap(runs_, run_leaves_later);
  }
  static bool run_leaves_later(const Run& a, const Run& b) {
    return leaves_later(a.front(), b.front());
  }

  // The first run goes down to its new place.
  void pop_run() {
    runs_.front().prefetch();
    if (++runs_.front().first == runs_.front().items.size()) {
      std::swap(runs_.front(), runs_.back());
      runs_.pop_back();
    }
    for (std::size_t at = 0;;) {
      std::size_t least = at;
      for (std::size_t child = 2 * at + 1; child <= 2 * at + 2 && child < runs_.size(); ++child) {
        if (runs_[child].front().key < runs_[least].front().key) least = child;
      }
      if (least == at) return;
      std::swap(runs_[at], runs_[least]);
      at = least;
    }
  }

  std::vector<Run> runs_;
  Run tail_;
  std::vector<Item> late_;
  std::vector<Item> heap_;
  std::size_t size_ = 0;
};

}  // namespace tarry::delay
