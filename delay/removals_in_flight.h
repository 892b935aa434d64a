#pragma once

// RemovalsInFlight: the records whose removal is appended to the journal and not durable yet.
//
//   pending --begin()--> leaving --end()--> gone, or pending again where the removal was refused
//                                           or the record was moved
//
// Invariant: a record is leaving from the append of its removal until the journal has it
// durably; meanwhile it is not given out, and further requests for it wait.  One that a batch holds
// before it is appended is leaving too; if the batch is refused it stays, and is given back.
//
// Belongs to its engine, on its thread.

#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "delay/ready_queues.h"

namespace tarry::delay {

class RemovalsInFlight {
 public:
  explicit RemovalsInFlight(ReadyQueues& queues) : queues_(queues) {}

  // If `given_back` becomes true it stays, and is given back soon, with end().
  void begin(Sequence sequence, std::shared_ptr<const bool> given_back = nullptr) {
    Record& record = records_.try_emplace(sequence).first->second;
    if (given_back != nullptr) record.given_back = std::move(given_back);
    queues_.begin_leaving(sequence);
  }
  // The same of one that is moved, and pending on.
  void begin_move(Sequence sequence) {
    begin(sequence);
    records_[sequence].stays = true;
  }
  void end(Sequence sequence) {
    auto ended = records_.extract(sequence);
    if (ended.empty()) return;
    for (auto& waiter : ended.mapped().waiters) waiter();
  }

  bool contains(Sequence sequence) const { return records_.contains(sequence); }
  bool stays(Sequence sequence) const {
    const auto found = records_.find(sequence);
    if (found == records_.end()) return false;
    const Record& record = found->second;
    return record.stays || (record.given_back != nullptr && *record.given_back);
  }
  // `waiter` is called at its end().
  void await(Sequence sequence, std::move_only_function<void()> waiter) {
    records_.at(sequence).waiters.push_back(std::move(waiter));
  }

 private:
  struct Record {
    bool stays = false;
    std::shared_ptr<const bool> given_back;  // One for all that a batch takes; null: it is none.
    std::vector<std::move_only_function<void()>> waiters;  // Further requests for it.
  };

  ReadyQueues& queues_;
  std::unordered_map<Sequence, Record> records_;
};

}  // namespace tarry::delay
