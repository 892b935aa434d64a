#pragma once

// LevelWheel: a ring that ticks, and coarser rings above it that tick when it has gone round.
//
//    level 2   [      ] [  c   ] [      ] ...    a bucket is N * N ticks
//                   | downgrade: c goes down as its bucket begins
//    level 1   [      ] [      ] [  b   ] ...    a bucket is N ticks
//                   |
//    level 0   [  a   ] [      ] [      ] ...    a bucket is one tick: what is in it is due
//                   ^ upgrade: a deadline beyond a level's span goes to the next, which is made
//                     when the first one needs it
//
// Descends from the level-ticking wheel (Go) that replaced round counters.  No cancel, no move, as
// there; buckets are lists.
//
// Mended: a task is placed by its absolute deadline against absolute now, with a range check at
// every downgrade, and when several levels wrap together the coarsest hands down first.  (The
// ancestor places by what is left of the delay, and fires up to a span early or late.)

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "bench/baselines/common.h"

namespace tarry::baselines {

class LevelWheel {
 public:
  // N, the buckets of a level, is rounded up to a power of two.
  explicit LevelWheel(std::size_t buckets, Tick now = 0)
      : bits_(static_cast<unsigned>(std::countr_zero(std::bit_ceil(buckets)))), now_(now) {
    levels_.push_back(make_level());
  }

  void add(Tick deadline, Callback callback) {
    Task* const task = pool_.take();
    task->deadline = std::max(deadline, now_ + 1);
    task->callback = callback;
    ++size_;
    upgrades_ += place(task);
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
  std::size_t levels() const { return levels_.size(); }
  std::uint64_t upgrades() const { return upgrades_; }  // Levels climbed when added.
  std::uint64_t downgrades() const { return downgrades_; }

 private:
  struct Task {
    Task* next = nullptr;
    Tick deadline = 0;
    Callback callback;
  };
  // Filled at the back, taken as a whole.
  struct Bucket {
    Task* first = nullptr;
    Task** end = &first;

    void push_back(Task* task) {
      task->next = nullptr;
      *end = task;
      end = &task->next;
    }
    Task* take_all() {
      end = &first;
      return std::exchange(first, nullptr);
    }
  };
  using Level = std::unique_ptr<Bucket[]>;

  Level make_level() const { return std::make_unique<Bucket[]>(std::size_t{1} << bits_); }

  // The level it came to.
  unsigned place(Task* task) {
    const Tick mask = (Tick{1} << bits_) - 1;
    unsigned level = 0;
    unsigned shift = 0;
    // Out of this level's range: as many of its buckets away as it has, or more.  The highest
    // level that 64 bits need has no range.
    while (shift + bits_ < 64 && (task->deadline >> shift) - (now_ >> shift) > mask) {
      ++level;
      shift += bits_;
      if (level == levels_.size()) levels_.push_back(make_level());
    }
    levels_[level][(task->deadline >> shift) & mask].push_back(task);
    return level;
  }

  void tick() {
    const Tick mask = (Tick{1} << bits_) - 1;
    // The number of levels that have reached their next bucket.
    unsigned top = 0;
    for (Tick rest = now_; (rest & mask) == 0 && top + 1 < levels_.size(); rest >>= bits_) ++top;
    for (unsigned level = top; level > 0; --level) {
      Task* task = levels_[level][(now_ >> level * bits_) & mask].take_all();
      while (task != nullptr) {
        Task* const next = task->next;
        place(task);
        ++downgrades_;
        task = next;
      }
    }
    Task* task = levels_[0][now_ & mask].take_all();
    while (task != nullptr) {
      Task* const next = task->next;
      const Callback callback = task->callback;
      pool_.give_back(task);
      --size_;
      callback();
      task = next;
    }
  }

  const unsigned bits_;
  Tick now_;
  std::size_t size_ = 0;
  std::uint64_t upgrades_ = 0;
  std::uint64_t downgrades_ = 0;
  std::vector<Level> levels_;
  NodePool<Task> pool_;
};

}  // namespace tarry::baselines
