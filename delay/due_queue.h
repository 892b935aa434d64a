#pragma once

// DueQueue: a partition's near records in the order in which they leave.
//
//   runs     [ 3 5 6 9 ] [ 4 7 ] [ 8 ]   each sorted; a heap of them, the smallest front first
//   heap     those that came one by one, out of order: few, as a rule
//
// The wheel gives the records of one millisecond in no order of theirs, some thousands in a step.
// Each step's are sorted and become a run; so a record costs some comparisons among runs, and not a
// way through a heap of a million.
//
// What always holds: front() has the smallest key of all; no run is empty.
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
  const Item& front() const { return run_is_first() ? runs_.front().front() : heap_.front(); }

  void push(const Item& item) {
    ++size_;
    // In order, as a rule, where records are filed one after the other as they arrive.
    if (runs_.size() == 1 && runs_.front().takes(item.key)) {
      runs_.front().items.push_back(item);
    } else if (runs_.empty() && heap_.size() >= small) {
      add_run({&item, 1});
    } else {
      heap_.push_back(item);
      std::ranges::push_heap(heap_, leaves_later);
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
    --size_;
    if (run_is_first()) return pop_run();
    std::ranges::pop_heap(heap_, leaves_later);
    heap_.pop_back();
    if (heap_.empty() && heap_.capacity() > small) heap_ = std::vector<Item>();
  }

  // How many are due by `now`; it may stop counting at `enough`.
  std::size_t due_by(WallTime now, std::size_t enough = ~std::size_t{0}) const {
    const auto is_due = [now](const Item& item) { return item.key.due <= now; };
    std::size_t due = 0;
    for (auto run = runs_.begin(); run != runs_.end() && due < enough; ++run) {
      const auto rest = run->rest();
      due += static_cast<std::size_t>(std::ranges::partition_point(rest, is_due) - rest.begin());
    }
    for (auto item = heap_.begin(); item != heap_.end() && due < enough; ++item)
      due += is_due(*item);
    return due;
  }

 private:
  // A heap alone is as fast below this size, and takes less memory.
  static constexpr std::size_t small = 64;
  // A run's memory is given back when all of it has left.
  static constexpr std::size_t longest_run = 4096;

  struct Run {
    std::vector<Item> items;
    std::size_t first = 0;  // Those before it have left.

    std::span<const Item> rest() const { return std::span(items).subspan(first); }
    const Item& front() const { return items[first]; }
    bool takes(const PendingKey& key) const {
      return items.size() < longest_run && items.back().key < key;
    }
  };

  static bool leaves_later(const Item& a, const Item& b) { return b.key < a.key; }
  bool run_is_first() const {
    return !runs_.empty() && (heap_.empty() || runs_.front().front().key < heap_.front().key);
  }

  void add_run(std::span<const Item> items) {
    runs_.push_back({{items.begin(), items.end()}});
    std::ranges::push_heap(runs_, run_leaves_later);
  }
  static bool run_leaves_later(const Run& a, const Run& b) {
    return leaves_later(a.front(), b.front());
  }

  // The first run goes down to its new place.
  void pop_run() {
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
  std::vector<Item> heap_;
  std::size_t size_ = 0;
};

}  // namespace tarry::delay
