#pragma once

// KeyedRoundWheel: one ring of buckets, round counters, and the caller's own key as the handle.
//
//    bucket      0         1         2    ...   N - 1
//             [     ]   [ k r1 ] [     ]       [ m r0 ]     r: rounds still to wait
//                          | j r0 |
//    keys_:  k, j, m -> their tasks
//
// Descends from the expiry of keys in godis (Go).  A tick visits every task of one bucket: those
// with rounds left lose one, the others run.  The same key again replaces; add and remove are O(1)
// by the map from key to task.  Every task is visited once a rotation.
//
// Mended: add() and remove() happen at once and answer (the ancestor's go through a channel and
// answer nothing), delays are whole ticks and exact, and one owner has list and map (the ancestor's
// two goroutines do not).  A callback runs where the tick runs, not in a goroutine of its own.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <boost/unordered/unordered_flat_map.hpp>

#include "bench/baselines/common.h"

namespace tarry::baselines {

class KeyedRoundWheel {
 public:
  using Key = std::uint64_t;

  // The number of buckets is rounded up to a power of two.
  explicit KeyedRoundWheel(std::size_t buckets, Tick now = 0)
      : now_(now), mask_(std::bit_ceil(buckets) - 1), buckets_(mask_ + 1) {}

  void add(Key key, Tick deadline, Callback callback) {
    const auto [place, is_new] = tasks_.try_emplace(key, nullptr);
    Task*& task = place->second;
    if (is_new) {
      task = pool_.take();
    } else {
      Link::unlink(task);
    }
    const Tick ticks = deadline > now_ ? deadline - now_ : 1;
    task->key = key;
    task->rounds = (ticks - 1) >> std::countr_zero(mask_ + 1);
    task->callback = callback;
    buckets_[(now_ + ticks) & mask_].push_back(task);
  }

  // False when nothing with this key is pending.
  bool remove(Key key) {
    const auto found = tasks_.find(key);
    if (found == tasks_.end()) return false;
    Link::unlink(found->second);
    pool_.give_back(found->second);
    tasks_.erase(found);
    return true;
  }

  void advance(Tick now) {
    while (now_ < now) {
      if (tasks_.empty()) {  // The one thing that it need not walk for.
        now_ = now;
        return;
      }
      ++now_;
      tick(buckets_[now_ & mask_]);
    }
  }

  std::size_t size() const { return tasks_.size(); }

 private:
  struct Task : Link {
    Key key = 0;
    std::uint64_t rounds = 0;
    Callback callback;
  };

  void tick(Link& bucket) {
    Link due;
    for (Link* link = bucket.next; link != &bucket;) {
      Task* const task = static_cast<Task*>(link);
      link = link->next;
      if (task->rounds > 0) {
        --task->rounds;
      } else {
        Link::unlink(task);
        due.push_back(task);
      }
    }
    // Still known by their keys, so that a callback can remove those that come after it.
    while (!due.empty()) {
      Task* const task = static_cast<Task*>(due.next);
      const Callback callback = task->callback;
      Link::unlink(task);
      tasks_.erase(task->key);
      pool_.give_back(task);
      callback();
    }
  }

  Tick now_;
  const std::size_t mask_;
  std::vector<Link> buckets_;
  boost::unordered_flat_map<Key, Task*> tasks_;
  NodePool<Task> pool_;
};

}  // namespace tarry::baselines
