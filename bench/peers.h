#pragma once

// Peers: our wheel and those it is measured against, all with the same face.
//
// A peer has `count` timers, named by their index, each with a `User`: what the timer is for.  When
// a timer fires its user's fire() is called, so every peer touches the object that it is about, as
// real callbacks do.  Where a design wants its nodes to be the caller's, they lie in the array of
// users; where it hands out nodes of its own, the array has the handle.
//
//   arm(i, deadline)      only when it is not armed
//   disarm(i)             whether it was
//   move(i, deadline)     only when it is armed
//   advance(now, budget)  fires what is due; true when the budget did not suffice (ours alone has
//   one) settle()              ends what a peer has put off when it was armed
//
// can_cancel and can_move say whether a design has these at all; what it has not is not made up.
// Shared by bench/timing_bench and tests/timing, which shows that all of them are right.

#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "bench/baselines/common.h"
#include "bench/baselines/hashed_wheel.h"
#include "bench/baselines/kafka_wheel.h"
#include "bench/baselines/keyed_round_wheel.h"
#include "bench/baselines/level_wheel.h"
#include "bench/baselines/pooled_heap.h"
#include "bench/baselines/three_level_wheel.h"
#include "timing/timing_wheel.h"

namespace tarry::peers {

using baselines::Callback;
using baselines::Tick;

inline constexpr std::size_t no_budget = std::numeric_limits<std::size_t>::max();

// A ring with round counters visits every timer once a rotation, so both are given one that is
// large for a million timers: 65 536 buckets, a minute of milliseconds.
inline constexpr std::size_t ring_buckets = 65'536;
inline constexpr std::size_t level_buckets = 256;

template <class User>
Callback fire_callback(User& user) {
  return {[](void* argument) { static_cast<User*>(argument)->fire(); }, &user};
}

template <class User>
class Tarry {
 public:
  static constexpr const char* name = "tarry";
  static constexpr bool can_cancel = true;
  static constexpr bool can_move = true;
  static constexpr bool has_budget = true;

  explicit Tarry(std::size_t count) : nodes_(std::make_unique<Node[]>(count)) {}

  User& user(std::size_t i) { return nodes_[i].user; }
  void arm(std::size_t i, Tick deadline) { wheel_.schedule(nodes_[i], deadline); }
  bool disarm(std::size_t i) { return wheel_.cancel(nodes_[i]); }
  void move(std::size_t i, Tick deadline) { wheel_.reschedule(nodes_[i], deadline); }
  bool advance(Tick now, std::size_t budget = no_budget) {
    return wheel_.advance(now, budget).more;
  }
  void settle() {}
  std::size_t size() const { return wheel_.size(); }
  std::size_t structure_bytes() const { return wheel_.stats().bytes; }

 private:
  struct Node final : timing::Timer {
    void on_expired() override { user.fire(); }
    User user;
  };

  timing::TimingWheel wheel_;  // First: the nodes leave it when they end.
  std::unique_ptr<Node[]> nodes_;
};

template <class User>
class KeyedRound {
 public:
  static constexpr const char* name = "keyed rounds";
  static constexpr bool can_cancel = true;
  static constexpr bool can_move = true;  // The same key again.
  static constexpr bool has_budget = false;

  explicit KeyedRound(std::size_t count)
      : users_(std::make_unique<User[]>(count)), wheel_(ring_buckets) {}

  User& user(std::size_t i) { return users_[i]; }
  void arm(std::size_t i, Tick deadline) { wheel_.add(i, deadline, fire_callback(users_[i])); }
  bool disarm(std::size_t i) { return wheel_.remove(i); }
  void move(std::size_t i, Tick deadline) { arm(i, deadline); }
  bool advance(Tick now, std::size_t = no_budget) {
    wheel_.advance(now);
    return false;
  }
  void settle() {}
  std::size_t size() const { return wheel_.size(); }

 private:
  std::unique_ptr<User[]> users_;
  baselines::KeyedRoundWheel wheel_;
};

template <class User>
class PooledHeap {
 public:
  static constexpr const char* name = "pooled heap";
  static constexpr bool can_cancel = true;
  static constexpr bool can_move = true;
  static constexpr bool has_budget = false;

  explicit PooledHeap(std::size_t count) : slots_(std::make_unique<Slot[]>(count)) {}

  User& user(std::size_t i) { return slots_[i].user; }
  void arm(std::size_t i, Tick deadline) {
    Slot& slot = slots_[i];
    if (slot.node == nullptr) {
      slot.node = heap_.add(deadline, fire_callback(slot.user));
    } else {
      heap_.set(slot.node, deadline);  // It has fired, and is ours until del().
    }
  }
  bool disarm(std::size_t i) {
    Slot& slot = slots_[i];
    return slot.node != nullptr && heap_.del(std::exchange(slot.node, nullptr));
  }
  void move(std::size_t i, Tick deadline) { heap_.set(slots_[i].node, deadline); }
  bool advance(Tick now, std::size_t = no_budget) {
    heap_.advance(now);
    return false;
  }
  void settle() {}
  std::size_t size() const { return heap_.size(); }

 private:
  struct Slot {
    baselines::PooledHeap::Node* node = nullptr;
    User user;
  };
  std::unique_ptr<Slot[]> slots_;
  baselines::PooledHeap heap_;
};

template <class User>
class Hashed {
 public:
  static constexpr const char* name = "hashed rounds";
  static constexpr bool can_cancel = true;
  static constexpr bool can_move = true;  // Cancel and arm anew.
  static constexpr bool has_budget = false;

  explicit Hashed(std::size_t count)
      : count_(count), slots_(std::make_unique<Slot[]>(count)), wheel_(ring_buckets) {}
  ~Hashed() {
    for (std::size_t i = 0; i < count_; ++i) {
      if (slots_[i].timeout != nullptr) wheel_.cancel(slots_[i].timeout);
    }
  }

  User& user(std::size_t i) { return slots_[i].user; }
  void arm(std::size_t i, Tick deadline) {
    Slot& slot = slots_[i];
    if (slot.timeout != nullptr) wheel_.release(slot.timeout);  // It has fired.
    slot.timeout = wheel_.new_timeout(deadline, fire_callback(slot.user));
  }
  bool disarm(std::size_t i) {
    Slot& slot = slots_[i];
    return slot.timeout != nullptr && wheel_.cancel(std::exchange(slot.timeout, nullptr));
  }
  void move(std::size_t i, Tick deadline) {
    disarm(i);
    arm(i, deadline);
  }
  bool advance(Tick now, std::size_t = no_budget) {
    wheel_.advance(now);
    return false;
  }
  void settle() { wheel_.transfer_all(); }
  std::size_t size() const { return wheel_.pending(); }

 private:
  struct Slot {
    baselines::HashedWheel::Timeout* timeout = nullptr;
    User user;
  };
  const std::size_t count_;
  std::unique_ptr<Slot[]> slots_;
  baselines::HashedWheel wheel_;
};

template <class User>
class Levels {
 public:
  static constexpr const char* name = "level ticking";
  static constexpr bool can_cancel = false;
  static constexpr bool can_move = false;
  static constexpr bool has_budget = false;

  explicit Levels(std::size_t count)
      : users_(std::make_unique<User[]>(count)), wheel_(level_buckets) {}

  User& user(std::size_t i) { return users_[i]; }
  void arm(std::size_t i, Tick deadline) { wheel_.add(deadline, fire_callback(users_[i])); }
  bool advance(Tick now, std::size_t = no_budget) {
    wheel_.advance(now);
    return false;
  }
  void settle() {}
  std::size_t size() const { return wheel_.size(); }

 private:
  std::unique_ptr<User[]> users_;
  baselines::LevelWheel wheel_;
};

template <class User>
class ThreeLevels {
 public:
  static constexpr const char* name = "3 x 256";
  static constexpr bool can_cancel = false;
  static constexpr bool can_move = false;
  static constexpr bool has_budget = false;

  explicit ThreeLevels(std::size_t count) : users_(std::make_unique<User[]>(count)) {}

  User& user(std::size_t i) { return users_[i]; }
  void arm(std::size_t i, Tick deadline) { wheel_.add(deadline, fire_callback(users_[i])); }
  bool advance(Tick now, std::size_t = no_budget) {
    wheel_.advance(now);
    return false;
  }
  void settle() {}
  std::size_t size() const { return wheel_.size(); }

 private:
  std::unique_ptr<User[]> users_;
  baselines::ThreeLevelWheel wheel_;
};

template <class User>
class Multimap {
 public:
  static constexpr const char* name = "std::multimap";
  static constexpr bool can_cancel = true;
  static constexpr bool can_move = true;
  static constexpr bool has_budget = false;

  explicit Multimap(std::size_t count) : slots_(std::make_unique<Slot[]>(count)) {
    for (std::size_t i = 0; i < count; ++i) slots_[i].place = pending_.end();
  }

  User& user(std::size_t i) { return slots_[i].user; }
  void arm(std::size_t i, Tick deadline) {
    slots_[i].place = pending_.emplace(deadline, &slots_[i]);
  }
  bool disarm(std::size_t i) {
    auto& place = slots_[i].place;
    if (place == pending_.end()) return false;
    pending_.erase(std::exchange(place, pending_.end()));
    return true;
  }
  // The node is kept: nothing is allocated.
  void move(std::size_t i, Tick deadline) {
    auto node = pending_.extract(slots_[i].place);
    node.key() = deadline;
    slots_[i].place = pending_.insert(std::move(node));
  }
  bool advance(Tick now, std::size_t = no_budget) {
    while (!pending_.empty() && pending_.begin()->first <= now) {
      Slot& slot = *pending_.begin()->second;
      pending_.erase(std::exchange(slot.place, pending_.end()));
      slot.user.fire();
    }
    return false;
  }
  void settle() {}
  std::size_t size() const { return pending_.size(); }

 private:
  struct Slot {
    std::multimap<Tick, Slot*>::iterator place;
    User user;
  };
  std::unique_ptr<Slot[]> slots_;
  std::multimap<Tick, Slot*> pending_;
};

template <class User>
class Kafka {
 public:
  static constexpr const char* name = "Kafka's wheel";
  static constexpr bool can_cancel = true;
  static constexpr bool can_move = true;  // Cancel and add.
  static constexpr bool has_budget = false;

  explicit Kafka(std::size_t count) : slots_(std::make_unique<Slot[]>(count)) {}

  User& user(std::size_t i) { return slots_[i].user; }
  void arm(std::size_t i, Tick deadline) {
    wheel_.add(slots_[i].entry, deadline, fire_callback(slots_[i].user));
  }
  bool disarm(std::size_t i) { return wheel_.cancel(slots_[i].entry); }
  void move(std::size_t i, Tick deadline) {
    disarm(i);
    arm(i, deadline);
  }
  bool advance(Tick now, std::size_t = no_budget) {
    wheel_.advance(now);
    return false;
  }
  void settle() {}
  std::size_t size() const { return wheel_.size(); }

 private:
  struct Slot {
    baselines::KafkaWheel::Entry entry;
    User user;
  };
  std::unique_ptr<Slot[]> slots_;
  baselines::KafkaWheel wheel_;
};

}  // namespace tarry::peers
