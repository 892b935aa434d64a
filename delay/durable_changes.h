#pragma once

// DurableChanges: what the journal has durably and the rooms of the engine do not know yet, in the
// order of the journal.
//
//   settled transaction --add()--> [ accepted batch | delivery | removal | move | ... ]
//                                        |
//                                        '--apply--> the BucketTier, the ready queues, the answers
//
// Invariants
//   - The tier changes here alone, in the order of the journal, by what is durable.
//   - A change begins when those before it have ended.
//   - A turn of the shard applies about `step_records` records of a change, and of several changes
//     that become durable together about `turn_records`: some milliseconds.  What is left
//     waits for the engine's next step, and meanwhile its partition delivers nothing: what is
//     durable may have to leave before what is ready.
//
// Belongs to its engine, on its thread.

#include <cstddef>
#include <deque>
#include <functional>
#include <utility>

#include "base/ids.h"
#include "delay/ready_queues.h"

namespace tarry::delay {

class DurableChanges {
 public:
  static constexpr std::size_t step_records = 512;
  // A round of the journal may make much durable at once.
  static constexpr std::size_t turn_records = 4'096;

  // Applies some of a change, takes that off the budget, and returns true when all is applied.
  using Apply = std::move_only_function<bool(std::size_t& budget)>;

  // `wake` is called when a step is to go on.
  DurableChanges(ReadyQueues& queues, std::function<void()> wake)
      : queues_(queues), wake_(std::move(wake)) {}

  // At once, if nothing is before it and not much was since the last step.
  void add(const TopicPartition& partition, Apply change);
  // The same of one that makes nothing pending.
  void add(Apply change) { add(nowhere, std::move(change)); }
  // A step goes on with what is left.
  void apply(std::size_t& budget) {
    at_once_ = 0;
    go_on(budget);
  }

  bool empty() const { return changes_.empty(); }

 private:
  static constexpr TopicPartition nowhere{{}, -1};
  struct Change {
    TopicPartition partition;
    Apply apply;
  };

  void go_on(std::size_t& budget);

  ReadyQueues& queues_;
  const std::function<void()> wake_;
  std::deque<Change> changes_;
  bool applying_ = false;
  std::size_t at_once_ = 0;  // Applied by add() since the last step.
};

}  // namespace tarry::delay
