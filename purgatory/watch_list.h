#pragma once

// WatchList: the operations that wait for one thing to change.
//
// It lives beside that thing: a partition has one for its end offset and one for its high
// watermark, a group one for its members.  What waits for a number that only grows is ordered
// by the number that it waits for, so that a change visits those whose number is reached and
// nobody else, however many wait:
//
//    threshold   40   41   41   57   90          advance_to(41) asks the first three,
//    operation    a    b    c    d    e          in this order
//
//   partition.append(batch);  log_end_ = ...;    // The change first, whole and visible;
//   appended_.advance_to(log_end_);              // then those who waited for it.
//
// What always holds
//   - Equal thresholds are asked in the order in which they were watched.
//   - Nobody is answered in here: an operation that is satisfied leaves all its lists and the
//     wheel at once, and its on_complete() waits in its Purgatory until the changer is done.
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

// What a watcher waits for: an end offset, a flush position, a generation, a count.
using Threshold = std::int64_t;

// The threshold of one that waits for no number: only check_all() asks it.
inline constexpr Threshold never_reached = std::numeric_limits<Threshold>::max();

// Who watches: a DelayedOperation.
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
  std::uint64_t asked_in_ = 0;  // The list's pass in which it was last asked.
};

class WatchList {
 public:
  WatchList() = default;
  WatchList(const WatchList&) = delete;
  WatchList& operator=(const WatchList&) = delete;
  ~WatchList();  // Who is still on it goes on waiting, for its other lists and its deadline.

  // The number has become `value`: asks those whose threshold is <= value, lowest first, once
  // each.  Returns how many were satisfied.
  std::size_t advance_to(Threshold value);

  // Something has happened that concerns all (the partition is deleted, the log was rolled or
  // truncated, the group died): asks everyone once.  Returns how many were satisfied.
  std::size_t check_all();

  bool empty() const { return watches_.empty(); }

  // The lowest threshold that is waited for, so that a changer can see whether anybody cares;
  // never_reached when nobody does.
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
  Watches::iterator next_;  // While visiting: who is asked next.  remove() keeps it valid.
  bool visiting_ = false;
  std::uint64_t pass_ = 0;
};

}  // namespace tarry::purgatory
