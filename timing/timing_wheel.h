#pragma once

// TimingWheel: a set of deadlines with cheap insertion, cancellation and expiry.
//
// Nearly every deadline in a broker is a safety net: data arrives, heartbeats come, and the
// timer is cancelled or moved long before its time.  So schedule(), cancel() and reschedule()
// are O(1), and a timer is sorted only as its deadline draws near.
//
//              bucket 0  bucket 1  bucket 2          bucket 255
//    level 0  [       ] [   a   ] [       ]   ...   [       ]    a bucket is      1 tick
//    level 1  [       ] [       ] [   b   ]   ...   [       ]    a bucket is    256 ticks
//    level 2  [       ] [   c   ] [       ]   ...   [       ]    a bucket is 65 536 ticks
//      ...                                                       eight levels: all 64 bits
//
// Write ticks in base 256: a timer overflows to the level of the highest digit in which its
// deadline differs from now, and lies there in the bucket which that digit names.  With now = 0,
// a is due at tick 1, b within 512..767, c within 65 536..131 071.  When its bucket comes due a
// timer is downgraded: placed again, at least one level lower, until it fires from level 0.
// Levels are made when a deadline first needs them and there is one for every digit, so nothing
// wraps and no deadline is too far.
//
// A bucket is a chain of small arrays, each element a timer's address and the last digit of its
// deadline, filled and emptied at its end:
//
//    bucket --> [t t t . . .] --> [t t t t t t] --> [t t t t t t]     62 timers to a 512-byte array
//
// A due bucket is then a linear scan that prefetches ahead; a list through the timers would be one
// cache miss after another.  A timer knows its bucket and its place in the array: a cancel puts the
// bucket's last timer there.
//
// The move from level 1 to level 0 does not touch the timers of a large bucket at all: the digit
// names the new bucket, and the element that a timer leaves keeps its new place, where a cancel
// finds it.  So most timers are fetched from memory twice, when they are armed and when they
// fire.
//
// A deadline that is moved later is only noted in the timer; it is placed again when its old
// bucket comes due.  That is what a heartbeat costs.
//
// Invariants
//   - No timer fires before its deadline; it fires in the first advance() that reaches it, as
//     far as the budget goes.  Deadlines are rounded up to ticks by the caller, `now` down.
//   - Timers fire in the order of their deadlines, except those whose deadline had passed when
//     they were scheduled: they fire first in the next advance().
//   - Timers of one tick fire in an order that is always the same, but not that of scheduling.
//   - Every entry lies in a bucket whose time is not later than its timer's deadline.
//
// Memory: 8.4 bytes a pending timer besides the timer itself, as much again for those of one bucket
// of level 1 (256 ticks), 2 KiB a level in use, at most half a KiB for each of its non-empty
// buckets.  Arrays are kept for reuse; each time the wheel becomes empty it gives back up to 256
// KiB of them.
//
// The user chooses what a tick is (a millisecond everywhere in Tarry).  The wheel never reads a
// clock: time comes in through advance().  No threads and no locks: a wheel and its timers
// belong to one thread.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "timing/delay_queue.h"

namespace tarry::timing {

using Tick = std::uint64_t;

class TimingWheel;

// One deadline.  Derive from it; the object may live anywhere, for the wheel only points to it.
class Timer {
 public:
  Timer() = default;
  Timer(const Timer&) = delete;  // Neither copied nor moved: a wheel knows our address.
  Timer& operator=(const Timer&) = delete;
  virtual ~Timer() { cancel(); }

  bool armed() const { return place_ != 0; }
  Tick deadline() const { return deadline_; }  // Meaningful while armed.
  void cancel();                               // After this on_expired() is not called.

 private:
  friend class TimingWheel;

  // The deadline has passed and the timer is no longer armed.  May schedule, cancel or destroy
  // any timer, this one too.  Must not throw, advance() the wheel or destroy it.
  virtual void on_expired() = 0;

  Tick deadline_ = 0;  // May be later than the time of the bucket that we are in.
  // Our bucket's number in the upper 16 bits, below it the address of the array element that
  // points to us (TimingWheel::Place); 0 when not armed.
  std::uint64_t place_ = 0;
};

// A timer that owns a plain callback, for those who have no object to derive.
class CallbackTimer final : public Timer {
 public:
  // The callback may destroy this timer.
  explicit CallbackTimer(std::move_only_function<void()> callback)
      : callback_(std::move(callback)) {}
  ~CallbackTimer() override {
    if (destroyed_ != nullptr) *destroyed_ = true;
  }

 private:
  void on_expired() override;

  std::move_only_function<void()> callback_;
  bool* destroyed_ = nullptr;  // Points to on_expired()'s note to itself while that runs.
};

class TimingWheel {
 public:
  static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

  explicit TimingWheel(Tick now = 0) : now_(now), cursor_(now) { levels_.fill(&no_level); }
  TimingWheel(const TimingWheel&) = delete;
  TimingWheel& operator=(const TimingWheel&) = delete;
  ~TimingWheel();  // Disarms timers that are still armed; none fires.

  // Arms `timer`, or moves its deadline if it is armed already, which then is in this wheel.  A
  // deadline that has passed fires in the next advance(), never in here nor in the advance() that
  // is running.
  void schedule(Timer& timer, Tick deadline);

  // Moves the deadline of an armed timer; false, and nothing done, when it is not armed.
  bool reschedule(Timer& timer, Tick deadline);

  // After this the timer does not fire.  False when it was not armed.  One that is armed in
  // another wheel may not be given to this one (timer.cancel() finds its own).
  bool cancel(Timer& timer);

  struct Progress {
    std::size_t fired = 0;
    bool more = false;  // Something is due by now(): call again (soon, but others may go first).
  };

  // Moves time forward and fires what is due.  `budget` bounds the work: each timer fired or
  // moved to another bucket takes one; what is left over, in the middle of a bucket or not, is
  // done by the next call.  A `now` earlier than the last one counts as no time passed.
  Progress advance(Tick now, std::size_t budget = unlimited);

  // The latest `now` given to advance(), also while it runs and is behind.
  Tick now() const { return now_; }

  // The time of the next advance(): the start of the next non-empty bucket, or now() when something
  // is due.  Never later than the earliest deadline (a passed one counts as now()); sometimes
  // before it, when timers are to be downgraded or were moved later.  Empty when nothing is
  // armed.  A few instructions.
  std::optional<Tick> next_due() const;

  // `listener` is called when schedule() has made next_due() earlier than it was, so that the
  // wheel's driver can wake up earlier without polling.  Never called inside advance(), after
  // which the driver asks next_due() anyway.  It may not change the wheel.
  void set_wakeup_listener(std::move_only_function<void()> listener) {
    listener_ = std::move(listener);
  }

  bool empty() const { return !any_overdue() && queue_.empty(); }
  std::size_t size() const;  // Armed timers.

  struct LevelStats {
    bool exists = false;
    std::size_t timers = 0;
    std::size_t buckets = 0;       // Non-empty ones,
    DelayQueue::Bits used{};       //   and which.
    std::uint64_t upgrades = 0;    // Ever: timers that overflowed, or were moved later, up to here.
    std::uint64_t downgrades = 0;  // Ever: timers that came down to here from a higher level.
  };
  struct Stats {
    std::array<LevelStats, DelayQueue::level_count> levels;
    Tick placed_from = 0;     // The time by which buckets are named: theirs are the next digits.
    std::size_t overdue = 0;  // Timers whose deadline had passed when they were scheduled.
    std::size_t bytes = 0;    // All memory of the wheel; the timers are their owners'.
  };
  Stats stats() const;

 private:
  friend class Timer;

  // The address of an array's element, and above it the number of the bucket that the array is in.
  // Addresses have 48 bits on the machines that we run on (ChunkPool::add_slab() makes sure).
  using Place = std::uint64_t;
  static constexpr unsigned address_bits = 48;

  // An element of a bucket's arrays: the timer's address, and in the upper 8 bits the last digit of
  // the deadline by which it was placed, so that a crowded bucket of level 1 is moved down without
  // a look at its timers.  Such a move leaves the timer's new place odd.
  class Entry {
   public:
    Entry() = default;
    Entry(Timer& timer, Tick deadline)
        : bits_(reinterpret_cast<std::uintptr_t>(&timer) | deadline << 56) {}
    static Entry moved_to(Place place) { return Entry(place | 1); }

    Timer* timer() const { return reinterpret_cast<Timer*>(bits_ << 8 >> 8); }
    unsigned digit() const { return static_cast<unsigned>(bits_ >> 56); }
    bool has_moved() const { return (bits_ & 1) != 0; }
    Place place() const { return bits_ - 1; }

   private:
    explicit Entry(std::uint64_t bits) : bits_(bits) {}
    std::uint64_t bits_;
  };

  // An array of a bucket's chain.  Aligned to its size, so that an element's address tells its
  // array and whether it is the first or the last one.
  struct alignas(512) Chunk {
    static constexpr std::size_t capacity = 62;
    Chunk* previous;  // Always full; null for a bucket's first.
    TimingWheel* wheel;
    std::array<Entry, capacity> timers;
  };
  static_assert(sizeof(Chunk) == 512);
  static constexpr Place first_offset = sizeof(Chunk) - Chunk::capacity * sizeof(Entry);
  static constexpr Place last_offset = sizeof(Chunk) - sizeof(Entry);

  // Chunks come from slabs, piece by piece, and return to a free list.  Memory is asked of the
  // system a piece at a time, when it is first needed: a page fault costs as much as a hundred
  // timers, a whole slab would hold the loop.  Whenever all are free the pool starts over, and
  // gives one slab back if it has more than it keeps: one, for the same reason.
  class ChunkPool {
   public:
    Chunk* take() {
      ++in_use_;
      if (free_ != nullptr) return std::exchange(free_, free_->previous);
      if (fresh_ == fresh_end_) next_piece();
      return fresh_++;
    }
    void give_back(Chunk* chunk) {
      chunk->previous = std::exchange(free_, chunk);
      if (--in_use_ == 0 && bytes_ > bytes_kept) start_over();
    }
    // `count` of them, linked from `first` to `last`; as fast as one.
    void give_back(Chunk* first, Chunk* last, std::size_t count) {
      last->previous = std::exchange(free_, first);
      in_use_ -= count;
      if (in_use_ == 0 && bytes_ > bytes_kept) start_over();
    }
    std::size_t bytes() const { return bytes_; }

   private:
    static constexpr std::size_t bytes_kept = 256 << 10;
    static constexpr std::size_t slab_chunks = 512;  // At most: 256 KiB.
    static constexpr std::size_t piece_chunks = 64;
    void next_piece();
    void add_slab();
    void start_over();

    struct Slab {
      std::unique_ptr<Chunk[]> chunks;
      std::size_t count;
      const Chunk* touched = nullptr;  // Up to here they have memory.

      const Chunk* end() const { return chunks.get() + count; }
    };
    Chunk* free_ = nullptr;
    Chunk* fresh_ = nullptr;  // Up to fresh_end_: what was never taken of the newest slab's piece.
    Chunk* fresh_end_ = nullptr;
    std::size_t in_use_ = 0;
    std::size_t bytes_ = 0;
    std::size_t slabs_used_ = 0;
    std::vector<Slab> slabs_;
  };

  // An empty bucket's last element: looks like the end of a full array, so that the question
  // whether there is room for one more answers both.
  static constexpr Place nowhere = last_offset;

  struct Level {
    constexpr Level() { last.fill(nowhere); }

    std::array<Place, 256> last{};  // Each bucket's last element; `nowhere` when it is empty.
    std::size_t chunks = 0;         // In all chains.
    std::uint64_t entered = 0;      // Ever; a timer that is placed again counts anew.
    // Timers that entered from a higher level, and from another bucket of this one.
    std::uint64_t downgrades = 0;
    std::uint64_t stayed = 0;

    std::size_t timers() const;
  };

  // Beside the eight levels: two buckets for deadlines that had passed when they were
  // scheduled.  One is drained while the other fills, so that a callback which schedules the
  // past again does not keep advance() from ending.
  static constexpr unsigned overdue_level = DelayQueue::level_count;

  static bool is_first(Place place) { return place % sizeof(Chunk) == first_offset; }
  static bool is_last(Place place) { return place % sizeof(Chunk) == last_offset; }
  static Entry* element_of(Place place) {
    return reinterpret_cast<Entry*>(place & ((Place{1} << address_bits) - 1));
  }
  static Chunk* chunk_of(Place place) {
    return reinterpret_cast<Chunk*>(place & ((Place{1} << address_bits) - sizeof(Chunk)));
  }
  static BucketId bucket_of(Place place) {
    return BucketId::of(static_cast<unsigned>(place >> (address_bits + 8)),
                        static_cast<unsigned>(place >> address_bits) & 0xff);
  }
  static Place number_of(BucketId bucket) { return bucket.level() << 8 | bucket.index(); }
  static Place first_of(BucketId bucket, Chunk* chunk) {
    return number_of(bucket) << address_bits | reinterpret_cast<std::uintptr_t>(chunk) |
           first_offset;
  }
  static Place last_of(BucketId bucket, Chunk* chunk) {
    return first_of(bucket, chunk) + (Chunk::capacity - 1) * sizeof(Entry);
  }
  static TimingWheel& wheel_of(const Timer& timer) { return *chunk_of(timer.place_)->wheel; }
  static std::size_t position_of(Place place) {
    return (place % sizeof(Chunk) - first_offset) / sizeof(Entry);
  }
  // How many timers ahead of itself a scan fetches: what the memory takes to answer divided by what
  // a timer takes that is there.
  static constexpr std::size_t prefetch_distance = 16;
  [[gnu::always_inline]] static void prefetch(const Chunk& chunk);
  [[gnu::always_inline]] static void prefetch(const Timer* timer);
  [[gnu::always_inline]] static void prefetch_first(Place last);
  [[gnu::always_inline]] static void prefetch_before(const Chunk& chunk, std::size_t position);

  bool any_overdue() const {
    const auto& last = levels_[overdue_level]->last;
    return last[0] != nowhere || last[1] != nowhere;
  }
  BucketId bucket_for(Tick deadline) const;
  Tick start_of(BucketId bucket) const;
  bool in_work() const {
    return working_ && levels_[working_->level()]->last[working_->index()] != nowhere;
  }

  void move(Timer& timer, Tick deadline);
  void move_earlier(Timer& timer, Tick deadline);
  Place append(BucketId bucket, Entry entry);
  Place append_beyond(unsigned level, unsigned index, Entry entry);
  void append_overdue(Timer& timer);
  static Place place_of(const Timer& timer);
  static Place new_place_of(const Timer& timer);
  void remove(Place place);
  bool cancel_beyond(Timer& timer);
  void fill_hole();
  void drop_last(Level& level, BucketId bucket, Place last);
  void drop_chunk(Level& level, Place last);
  bool is_crowded(BucketId bucket) const;
  void move_down(BucketId bucket, std::size_t& budget);
  void move_crowd_down(BucketId bucket, std::size_t& budget);
  void retire(Chunk* chunk);
  void release_retired();
  void fire(BucketId bucket, std::size_t& budget, std::size_t& fired) noexcept;

  Tick now_;  // As told.
  // Up to where buckets have been worked off: now_, or the start of the bucket that is in work.
  // Placement is relative to it: every deadline in a bucket of a level is >= cursor_.
  Tick cursor_;
  std::optional<BucketId> working_;  // The one at which advance() ran out of budget.
  // The bucket in work is on level 1 and leaves the new places of its timers behind.  Its arrays
  // are retired, and given back when level 0 is empty: then no timer's place is in one of them.
  bool leaves_places_ = false;
  // The place of the timer that was cancelled last, if nobody has taken it since: what is scheduled
  // next is often for the same bucket and may have it, which saves filling and finding the end of
  // the bucket.  The bucket has other timers, so it counts as non-empty with or without the hole.
  static constexpr Place no_hole = 0;
  static constexpr Place no_hole_allowed = 1;  // While buckets are being emptied.
  Place hole_ = no_hole;
  unsigned overdue_draining_ = 0;
  bool advancing_ = false;
  DelayQueue queue_;
  static Level no_level;  // Stands for each that was not needed yet: all empty, never written to.
  std::array<Level*, DelayQueue::level_count + 1> levels_;  // Ours, but for no_level.
  ChunkPool pool_;
  Chunk* retired_first_ = nullptr;
  Chunk* retired_last_ = nullptr;
  std::size_t retired_ = 0;
  std::move_only_function<void()> listener_;
};

// The path of nearly every timer is inlined into its callers; rare paths are not.

inline void Timer::cancel() {
  if (armed()) TimingWheel::wheel_of(*this).cancel(*this);
}

inline void TimingWheel::schedule(Timer& timer, Tick deadline) {
  if (timer.armed()) {
    move(timer, deadline);
    return;
  }
  timer.deadline_ = deadline;
  if (deadline <= now_) [[unlikely]] {
    append_overdue(timer);
    return;
  }
  const BucketId bucket = bucket_for(deadline);
  if (hole_ >> address_bits == number_of(bucket)) {
    timer.place_ = std::exchange(hole_, no_hole);
    *element_of(timer.place_) = Entry(timer, deadline);
    ++levels_[bucket.level()]->entered;
  } else {
    timer.place_ = append(bucket, Entry(timer, deadline));
  }
}

inline bool TimingWheel::reschedule(Timer& timer, Tick deadline) {
  if (!timer.armed()) return false;
  move(timer, deadline);
  return true;
}

inline bool TimingWheel::cancel(Timer& timer) {
  if (!timer.armed()) return false;
  const Place place = place_of(timer);
  const BucketId bucket = bucket_of(place);
  Place& last = levels_[bucket.level()]->last[bucket.index()];
  // The bucket gets shorter by an array, or would end in the hole.
  if (is_first(last) || last - hole_ <= sizeof(Entry)) return cancel_beyond(timer);
  if (hole_ == no_hole) {
    hole_ = place;
  } else {
    const Entry moved = *element_of(last);
    *element_of(place) = moved;
    moved.timer()->place_ = place;
    last -= sizeof(Entry);
  }
  timer.place_ = 0;
  return true;
}

inline void TimingWheel::move(Timer& timer, Tick deadline) {
  // Its bucket finds out when it comes due.  (One that is due already might lie among the overdue.)
  if (deadline >= timer.deadline_ && timer.deadline_ > now_) {
    timer.deadline_ = deadline;
  } else {
    move_earlier(timer, deadline);
  }
}

inline BucketId TimingWheel::bucket_for(Tick deadline) const {
  const Tick difference = (deadline ^ cursor_) | 0xff;
  const unsigned shift = (63U ^ static_cast<unsigned>(std::countl_zero(difference))) & ~7U;
  return BucketId::of(shift / 8, static_cast<unsigned>(deadline >> shift) & 0xff);
}

inline TimingWheel::Place TimingWheel::append(BucketId bucket, Entry entry) {
  Level& level = *levels_[bucket.level()];
  Place& last = level.last[bucket.index()];
  if (is_last(last)) return append_beyond(bucket.level(), bucket.index(), entry);
  const Place place = last + sizeof(Entry);
  last = place;
  *element_of(place) = entry;
  ++level.entered;
  return place;
}

inline TimingWheel::Place TimingWheel::place_of(const Timer& timer) {
  // A branch that is foreseen, and not a choice: what follows does not wait for the element, which
  // may be far away.
  if (element_of(timer.place_)->has_moved()) [[unlikely]]
    return new_place_of(timer);
  return timer.place_;
}

inline void TimingWheel::drop_last(Level& level, BucketId bucket, Place last) {
  if (is_first(last)) {
    drop_chunk(level, last);
  } else {
    level.last[bucket.index()] = last - sizeof(Entry);
  }
}

}  // namespace tarry::timing
