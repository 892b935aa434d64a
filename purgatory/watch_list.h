#pragma once

// WatchList: the operations that wait for one thing to change.
//
// It lives beside that thing: a partition has one for the fetches that wait for its bytes, a shard
// has two for the journal's positions (written and durable).  Operations that wait for a number
// that only grows are ordered by that number, so that a change visits only those whose number is
// reached, however many wait:
//
//    threshold   40   41   41   57   90          advance_to(41) asks the first three,
//    operation    a    b    c    d    e          in this order
//
//   visible_ = end;                       // The change first, whole and visible;
//   fetches.advance_to(visible_.bytes);   // then the operations that wait for it.
//
// Invariants
//   - Equal thresholds are asked in the order in which they were watched.
//   - No operation is answered in here: a satisfied one leaves all its lists and the wheel at once,
//     and its on_complete() waits in its Purgatory until the caller's change is complete.
//
// Watching is O(1) when the threshold is beyond all others or before them, as it mostly is,
// O(log n) otherwise.  Everything runs on the shard's thread.

#include <cstddef>
#include <cstdint>
#include <limits>

#include <boost/intrusive/set.hpp>

namespace tarry::purgatory {

class DelayedOperation;
class Watch;
class WatchList;

// The number that a watcher waits for: an LSN, a count of bytes, a count of results.
using Threshold = std::int64_t;

// The threshold of a watcher that waits for no number: only check_all() asks it.
inline constexpr Threshold never_reached = std::numeric_limits<Threshold>::max();

// The watching side: a DelayedOperation.
class Watcher {
 public:
  virtual ~Watcher() = default;

 private:
  friend class WatchList;
  // The list has come to this watch's number; true: the watcher is satisfied and has left it.
  virtual bool reached(const Watch& watch) = 0;
};

// One operation's entry on one list.  Belongs to the operation.
class Watch : public boost::intrusive::set_base_hook<boost::intrusive::optimize_size<true>> {
 private:
  friend class DelayedOperation;
  friend class WatchList;

  struct ByThreshold {
    using type = Threshold;
    Threshold operator()(const Watch& watch) const { return watch.threshold_; }
  };

  WatchList* list_ = nullptr;  // Null while on none.
  Watcher* watcher_ = nullptr;
  Threshold threshold_ = 0;
  std::uint64_t last_pass_ = 0;  // The list's pass in which it was last asked.
};

class WatchList {
 public:
  WatchList() = default;
  WatchList(const WatchList&) = delete;
  WatchList& operator=(const WatchList&) = delete;
  ~WatchList();  // The remaining watchers keep waiting for their other lists and deadlines.

  // The number has become `value`: asks those whose threshold is <= value, lowest first, once
  // each.  Returns how many were satisfied.
  std::size_t advance_to(Threshold value);

  // Asks every operation once, after a change that concerns them all (the partition was deleted or
  // fenced, its log start has moved).  Returns how many were satisfied.
  std::size_t check_all();

  bool empty() const { return watches_.empty(); }

  // The lowest threshold on the list, so that a caller can skip work when no operation is waiting
  // for it; never_reached when the list is empty.
  Threshold lowest() const {
    return watches_.empty() ? never_reached : watches_.begin()->threshold_;
  }

 private:
  friend class DelayedOperation;
  using Watches =
      boost::intrusive::multiset<Watch, boost::intrusive::key_of_value<Watch::ByThreshold>,
                                 boost::intrusive::constant_time_size<false>>;

  void add(Watch& watch, Watcher& watcher, Threshold threshold);
  void remove(Watch& watch);
  std::size_t visit(Threshold up_to);

  Watches watches_;
  Watches::iterator next_;  // While visiting: the next watch.  remove() keeps it valid.
  bool visiting_ = false;
  std::uint64_t pass_ = 0;
};

}  // namespace tarry::purgatory
