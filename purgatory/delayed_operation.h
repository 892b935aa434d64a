#pragma once

// DelayedOperation: a request that cannot be answered yet.
//
// A fetch waits until enough bytes have arrived, a produce until it is durable, a join until its
// group is complete.  Each waits for a condition, but not past a deadline, and each is answered
// exactly once.  A subclass says what the condition is and how to answer; this class guarantees the
// "once".
//
//                           +-- is_satisfied() ----> satisfied --+
//   start() --> waiting ----+-- deadline passes ---> expired ----+--> queued --> on_complete()
//      |                    +-- cancel() ----------> cancelled --+      in run_completions()
//      +-- is_satisfied() already: on_complete(satisfied) before start() returns
//
//   class DurabilityWait final : public DelayedOperation {
//     bool is_satisfied() override { return shard_.durable_through() > last_; }
//     void on_complete(Outcome outcome) override { ... resume the waiting coroutine ... }
//   };
//
//   const std::array watching{Watching{shard.durable_waiters, last}};
//   wait.start(purgatory, now, now + timeout_ms, watching);
//
// Invariants
//   - A start is followed by at most one on_complete(), and by none when the operation is
//     destroyed or withdrawn first.
//   - A waiting operation is in the wheel and on its lists.  From the moment it is satisfied,
//     expired or cancelled it is in neither, so nothing can complete it a second time and
//     nothing has to be swept later.
//   - Apart from start(), on_complete() runs in Purgatory::run_completions() alone, never inside
//     the change that caused it.
//
// Lifetime: the operation belongs to the code that waits for the answer, usually a coroutine's
// frame.  Destroying it withdraws it from everywhere, so a client that hangs up leaves nothing
// behind.  Its purgatory and the wheel outlive its waiting; a watch list may go first.
//
// Threads: an operation, its lists, its purgatory and its wheel belong to one shard and are used on
// its thread, without locks.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>

#include "purgatory/kind.h"
#include "purgatory/purgatory.h"
#include "purgatory/watch_list.h"
#include "timing/timing_wheel.h"

namespace tarry::purgatory {

// The deadline of an operation that its owner ends: it is not in the wheel.
inline constexpr Tick no_deadline = std::numeric_limits<Tick>::max();

// One of the lists that an operation watches, and the number from which on it is asked.
struct Watching {
  WatchList& list;
  Threshold threshold;
};

class DelayedOperation : public ParkedOperation, private timing::Timer, private Watcher {
 public:
  explicit DelayedOperation(Kind kind) : ParkedOperation(kind) {}
  ~DelayedOperation() override { withdraw(); }

  // Waits on all of `watching` until `deadline`.  When the condition holds already, on_complete()
  // is called in here and nothing is waited for; false then, and the operation may be gone.
  // One look is enough: nothing else runs on our thread between it and joining the lists.
  // A deadline that has passed expires in the wheel's next advance.  Not while it waits or is
  // queued; once answered (also from inside on_complete()) it may be started anew.
  bool start(Purgatory& purgatory, Tick now, Tick deadline, std::span<const Watching> watching);

  // Completes with `cancelled`.  No effect unless it waits.
  void cancel() final;

  // Leaves all lists and the wheel; on_complete() is not called.  A subclass whose destructor may
  // cause changes calls this first.
  void withdraw() final;

  // Moves the deadline; returns false when it is not waiting.  Moving it later is nearly free,
  // because a heartbeat does it with every request.
  bool move_deadline(Tick deadline);

 protected:
  // Replaces the threshold that start() or the last rewatch() gave for that list; `never_reached`
  // when only check_all() should ask it. is_satisfied() calls it when it finds out how much is
  // still missing; it has no effect unless the operation waits.  Without it, a watcher that was
  // reached and not satisfied stays in its place and is asked again by every change of that list.
  // It searches the operation's own watches: O(number of watches).
  void rewatch(WatchList& list, Threshold threshold);

  // For an operation that watches many lists, in constant time: the same for list number `which`
  // (from 0) of those given to start(). asked_for() is the number of the list that is_satisfied()
  // is asked for; empty in start().
  void rewatch(std::size_t which, Threshold threshold);
  std::optional<std::size_t> asked_for() const { return asked_for_; }

 private:
  // Whether the condition holds now.  Asked in start() and whenever a list is reached, about the
  // state as it is.  Cheap and repeatable; may call rewatch() on itself; must not change what is
  // watched, nor start, cancel or destroy operations.
  virtual bool is_satisfied() = 0;

  // Called when the deadline passes.  Returns a later deadline if the operation has to wait longer;
  // changes nothing else.
  virtual std::optional<Tick> prolonged() { return std::nullopt; }

  // The answer.  May start, cancel and destroy operations, this one too, and change what is
  // watched; operations that this satisfies are answered by the next run.  Must not throw.
  void on_complete(Outcome outcome) override = 0;

  void on_expired() final;
  bool reached(const Watch& watch) final;
  void complete(Outcome outcome);
  void leave();
  std::span<Watch> watches() { return {many_ ? many_.get() : &one_, watch_count_}; }

  Purgatory* purgatory_ = nullptr;  // Set by start().
  Watch one_;  // Most watch one list; `many_` holds the watches of those that watch more.
  std::unique_ptr<Watch[]> many_;
  std::uint32_t watch_count_ = 0;
  std::optional<std::uint32_t> asked_for_;  // While is_satisfied() runs for a list.
};

}  // namespace tarry::purgatory
