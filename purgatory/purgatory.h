#pragma once

// Purgatory: a shard's delayed operations, and the queue of those that are ready to be answered.
//
//      changer              watch lists, wheel                purgatory
//   append to the log --> reached and satisfied  ---+
//   advance the wheel --> expired                ---+--> [ queue ] --ready hook--> the shard's loop
//   client hangs up   --> cancelled              ---+                                  |
//                                                    on_complete(...) <--run_completions(now)
//
// A completion never runs inside the change that caused it: that code may have changed a
// partition's state half way, and an answer may cause changes itself.  So completions queue here,
// and the shard runs them when the change is complete.  The ready hook is called once when the
// queue gets its first completion; nothing polls.
//
// It owns none of the operations and counts all of them by kind.  Each shard has one and uses it on
// its thread, which is asserted from bind_to_this_thread() on; only operations that go leave it
// unasked, because those of a shard that has ended are destroyed on another thread.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <boost/intrusive/list.hpp>

#include "base/assert.h"
#include "base/owner_thread.h"
#include "purgatory/kind.h"
#include "purgatory/kind_metrics.h"
#include "timing/timing_wheel.h"

namespace tarry::purgatory {

using timing::Tick;  // A millisecond of monotonic time.

// The part of a delayed operation that the purgatory uses; DelayedOperation is derived from it.
class ParkedOperation {
 public:
  virtual ~ParkedOperation() = default;
  ParkedOperation(const ParkedOperation&) = delete;
  ParkedOperation& operator=(const ParkedOperation&) = delete;

  bool waiting() const { return state_ == State::waiting; }
  // The outcome.  It is set when it is decided, which is before the answer.
  std::optional<Outcome> outcome() const { return outcome_; }
  Kind kind() const { return kind_; }
  Tick started() const { return started_; }  // When it was started last.
  Tick deadline() const { return until_; }

  // Completes with `cancelled`.  No effect unless it waits.
  virtual void cancel() = 0;
  // Leaves all lists and the wheel; the request is not answered.
  virtual void withdraw() = 0;

 protected:
  explicit ParkedOperation(Kind kind) : kind_(kind) {}

 private:
  friend class DelayedOperation;
  friend class Purgatory;
  enum class State : std::uint8_t { idle, waiting, queued };

  // The answer; may destroy it.
  virtual void on_complete(Outcome outcome) = 0;

  // Links it into the waiting list or into the queue.
  boost::intrusive::list_member_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>>
      queue_hook_;
  Tick started_ = 0;
  Tick until_ = 0;  // The deadline.
  const Kind kind_;
  State state_ = State::idle;
  std::optional<Outcome> outcome_;  // The last start's; empty while it waits.
};

class Purgatory {
 public:
  static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

  // `wheel` holds the deadlines, in milliseconds of monotonic time; it outlives the purgatory.
  explicit Purgatory(timing::TimingWheel& wheel) : wheel_(wheel) {}
  Purgatory(const Purgatory&) = delete;
  Purgatory& operator=(const Purgatory&) = delete;
  ~Purgatory();  // Withdraws the remaining operations; none is answered.

  // From here on it is used on this thread alone.
  void bind_to_this_thread() { thread_.bind(); }

  // `hook` is called when the queue gets its first completion, and after a run that leaves some in
  // it.  It schedules a call of run_completions(); it must not make that call itself, because the
  // change that caused the completion is not complete.
  void set_ready_hook(std::move_only_function<void()> hook) { ready_ = std::move(hook); }

  // Answers the operations that are queued at the time of the call, in order, but at most `budget`.
  // Operations that are queued during the run wait for the next run, so that operations which
  // satisfy one another do not hold the shard.  Returns how many were answered.  `now` is for the
  // metrics.  It must not be called from inside a completion.
  std::size_t run_completions(Tick now, std::size_t budget = unlimited);

  bool has_completions() const {
    thread_.check();
    return !queue_.empty();
  }

  // Completes every waiting operation with `cancelled`; the shard calls it when it stops.
  void cancel_all();

  const KindMetrics& metrics(Kind kind) const {
    thread_.check();
    return metrics_.at(kind.index());
  }
  // The figures of every kind, by its index, as they are at `now`.
  std::vector<KindStats> stats(Tick now) const;

 private:
  friend class DelayedOperation;
  using Operations = boost::intrusive::list<
      ParkedOperation, boost::intrusive::constant_time_size<false>,
      boost::intrusive::member_hook<ParkedOperation, decltype(ParkedOperation::queue_hook_),
                                    &ParkedOperation::queue_hook_>>;

  KindMetrics& of(const ParkedOperation& operation) {
    TARRY_ASSERT(operation.kind().index() < metrics_.size(), "a kind is older than the purgatory");
    return metrics_[operation.kind().index()];
  }
  void enqueue(ParkedOperation& operation);
  void answer(ParkedOperation& operation, Tick now) noexcept;

  timing::TimingWheel& wheel_;
  OwnerThread thread_;
  Operations waiting_;  // In the order of starting.
  Operations queue_;    // To be answered, in this order.
  Operations running_;  // The part of the queue that the run in progress has still to answer.
  bool in_run_ = false;
  std::move_only_function<void()> ready_;
  std::vector<KindMetrics> metrics_{kind_count()};  // By the kind's index.
};

}  // namespace tarry::purgatory
