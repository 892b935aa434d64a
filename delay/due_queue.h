#pragma once

// DueQueue: a partition's near records in the order of delivery.
//
//   runs     [ 3 5 6 9 ] [ 4 7 ] [ 8 ]   each sorted; a heap of them, the smallest front first
//   tail     [ 6 10 11 ]                 the run that those join that come one by one, in order
//   late     those that came one by one, out of order, and are not sorted yet
//   heap     those of `late` that were too few for a run
//
// The wheel gives the records of one millisecond in no order of theirs, some thousands in a step.
// Each step's are sorted and become a run; so a record costs some comparisons among runs, and not a
// way through a heap of a million.  Records from the disk, and records filed as they arrive, come
// one by one: in order as a rule, but a chunk of overdue records comes in the order of its sequence
// numbers.  These are sorted when one of them may be the first, or when they are `max_late`: a
// few long runs instead of one for each step, in a time that no turn notices.
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
    if (first_ == Part::none) first_ = first_part();
    if (first_ == Part::runs) return runs_.front().front();
    return first_ == Part::tail ? tail_.front() : heap_.front();
  }

  void push(const Item& item) {
    ++size_;
    first_ = Part::none;
    if (tail_.is_ended() || tail_.items.back().key < item.key) {
      if (tail_.items.size() >= max_run) end_tail();
      tail_.items.push_back(item);
    } else {
      if (late_.empty() || item.key < first_late_) first_late_ = item.key;
      late_.push_back(item);
      if (late_.size() >= max_late) settle_late();
    }
  }
  // `items` are sorted.
  void push_sorted(std::span<const Item> items) {
    if (items.size() < small) {
      for (const Item& item : items) push(item);
    } else {
      size_ += items.size();
      first_ = Part::none;
      add_run(items);
    }
  }
  void pop() {
    if (first_ == Part::none) first_ = first_part();
    --size_;
    switch (std::exchange(first_, Part::none)) {
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
  static constexpr std::size_t max_late = 4096;

  enum class Part { none, runs, tail, heap };

  struct Run {
    std::vector<Item> items;
    std::size_t first = 0;  // The records before it have left.
    PendingKey key{};       // The key of front(), for a run in the heap of runs.

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
  // The part that has the smallest key, which is not in `late`; one of them has one.
  Part first_part() {
    auto [part, key] = first_of();
    if (!late_.empty() && (part == Part::none || first_late_ < *key)) {
      settle_late();
      part = first_of().first;
    }
    return part;
  }
  std::pair<Part, const PendingKey*> first_of() const {
    std::pair<Part, const PendingKey*> first{Part::none, nullptr};
    const auto consider = [&first](Part part, const PendingKey& key) {
      if (first.second == nullptr || key < *first.second) first = {part, &key};
    };
    if (!heap_.empty()) consider(Part::heap, heap_.front().key);
    if (!tail_.is_ended()) consider(Part::tail, tail_.front().key);
    if (!runs_.empty()) consider(Part::runs, runs_.front().key);
    return first;
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
    runs_.push_back({{items.begin(), items.end()}, 0, items.front().key});
    std::ranges::push_heap(runs_, run_leaves_later);
  }
  void end_tail() {
    tail_.key = tail_.front().key;
    runs_.push_back(std::exchange(tail_, {}));
    std::ranges::push_heap(runs_, run_leaves_later);
  }
  static bool run_leaves_later(const Run& a, const Run& b) { return b.key < a.key; }

  // The first run goes down to its new place.
  void pop_run() {
    Run& first = runs_.front();
    first.prefetch();
    if (++first.first < first.items.size()) {
      first.key = first.front().key;
      // Mostly it stays: runs of what arrived one after the other hardly overlap.
      const auto is_before = [&](std::size_t child) {
        return child < runs_.size() && runs_[child].key < first.key;
      };
      if (!is_before(1) && !is_before(2)) return;
    }
    Run run = std::move(first);
    if (run.is_ended()) {
      run = std::move(runs_.back());
      runs_.pop_back();
      if (runs_.empty()) return;
    }
    std::size_t at = 0;
    for (std::size_t child = 1; child < runs_.size(); child = 2 * at + 1) {
      if (child + 1 < runs_.size() && runs_[child + 1].key < runs_[child].key) ++child;
      if (!(runs_[child].key < run.key)) break;
      runs_[at] = std::move(runs_[child]);
      at = child;
    }
    runs_[at] = std::move(run);
  }

  std::vector<Run> runs_;
  Run tail_;
  std::vector<Item> late_;
  PendingKey first_late_{};  // The smallest key in late_, if it has one.
  std::vector<Item> heap_;
  std::size_t size_ = 0;
  Part first_ = Part::none;  // The part that has the smallest key; none: nobody has looked.
};

}  // namespace tarry::delay
