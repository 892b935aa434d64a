#pragma once

// DurableChanges: the changes that are durable in the journal and not applied to the parts of the
// engine yet, in the order of the journal.
//
//   settled transaction --add()--> [ accepted batch | delivery | removal | move | ... ]
//                                        |
//                                        '--apply--> the BucketTier, the ready queues, the answers
//
// Invariants
//   - The tier changes here alone, in the order of the journal, by what is durable.
//   - A change begins when those before it have ended.
//   - A change is applied in slices of `slice_records` records, and a turn of the shard begins none
//     after `turn_time`, however much one round of the journal makes durable.  The rest waits for
//     the engine's next step, and meanwhile its partition delivers nothing: what is durable may
//     have to leave before what is ready.
//
// Belongs to its engine, on its thread.

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <utility>

#include "base/clock.h"
#include "base/ids.h"
#include "delay/engine_clock.h"
#include "delay/ready_queues.h"

namespace tarry::delay {

class DurableChanges {
 public:
  static constexpr std::size_t slice_records = 128;
  static constexpr std::chrono::milliseconds turn_time{3};

  // Applies some of a change, takes that off the budget, and returns true when all is applied.
  using Apply = std::move_only_function<bool(std::size_t& budget)>;

  // `wake` is called when a step is to go on.
  DurableChanges(const EngineClock& time, ReadyQueues& queues, std::function<void()> wake)
      : time_(time), queues_(queues), wake_(std::move(wake)) {}

  // At once, if nothing is before it and the turn has time.
  void add(const TopicPartition& partition, Apply change);
  // The same of one that makes nothing pending.
  void add(Apply change) { add(nowhere, std::move(change)); }
  // Goes on with what is left.
  void apply(std::size_t& budget);

  bool empty() const { return changes_.empty(); }

 private:
  static constexpr TopicPartition nowhere{{}, -1};
  struct Change {
    TopicPartition partition;
    Apply apply;
  };

  bool has_time();

  const EngineClock& time_;
  ReadyQueues& queues_;
  const std::function<void()> wake_;
  std::deque<Change> changes_;
  bool applying_ = false;
  // add() does not know where a turn ends.  Changes of one turn follow each other without a pause,
  // so the time that was spent on them runs off while none comes.
  std::chrono::nanoseconds spent_{};
  MonoTime ended_{};  // The end of the last one.
};

}  // namespace tarry::delay
