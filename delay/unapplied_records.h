#pragma once

// UnappliedRecords: the records that are accepted in the journal and not in the store yet, because
// they are not durable, or because their turn to be applied has not come.
//
//   appended --add()--> unapplied --end()--> durable and applied: the BucketTier knows it
//
// Invariant: the last record that has an id in the journal is found here until the tier
// knows it; also one that was due on arrival, which is never pending.
//
// A batch with many records, or with some and no ids, is here as a whole: nothing is done for each
// of its records when it comes.
//
// Belongs to its engine, on its thread.

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "delay/accepted_batch.h"
#include "storage/pending.h"

namespace tarry::delay {

using storage::PendingKey;

class UnappliedRecords {
 public:
  using Waiters = std::vector<std::move_only_function<void()>>;
  struct Record {
    TopicPartition partition;
    WallTime due;
    std::string id;
    storage::PendingShare share;
  };
  // The record that has an id.
  struct Last {
    PendingKey key;
    storage::PendingShare share;
  };

  // AcceptedBatch::applied_ says how much of it has ended.  It is looked into until end_batch(),
  // which does nothing if it was not added.
  void add_batch(const AcceptedBatch& batch) {
    batches_.push_back(&batch);
    if (batch.ids_.size() > 0) with_ids_.push_back(&batch);
  }
  void end_batch(const AcceptedBatch& batch) {
    std::erase(batches_, &batch);
    std::erase(with_ids_, &batch);
  }

  void add(Sequence sequence, Record record) { records_.emplace(sequence, std::move(record)); }
  void end(Sequence sequence) { records_.erase(sequence); }

  void add_id(const TopicPartition& partition, std::string id, const Last& last) {
    ids_[partition].insert_or_assign(std::move(id), last);
  }
  // The store knows the id now; unless a later record that is arriving has taken it already.
  void end_id(const TopicPartition& partition, std::string_view id, const PendingKey& key);

  std::optional<Record> find(Sequence sequence) const;
  bool contains(Sequence sequence) const;
  // The record that has the id in the journal, and not yet in the tier; empty: there is none.
  std::optional<Last> find_id(const TopicPartition& partition, std::string_view id) const;

  // `waiter` is called once the record is applied.
  void await(Sequence sequence, std::move_only_function<void()> waiter) {
    waiters_[sequence].push_back(std::move(waiter));
  }
  // Takes the waiters for a record that is applied now.
  Waiters take_waiters(Sequence sequence) {
    if (waiters_.empty()) return {};
    auto waiting = waiters_.extract(sequence);
    return waiting.empty() ? Waiters() : std::move(waiting.mapped());
  }

  std::size_t size() const;
  std::size_t count_of(const TopicId& topic) const;

 private:
  using Ids = std::map<std::string, Last, std::less<>>;

  std::unordered_map<Sequence, Record> records_;
  std::unordered_map<TopicPartition, Ids> ids_;
  std::vector<const AcceptedBatch*> batches_;   // In the order of the journal.
  std::vector<const AcceptedBatch*> with_ids_;  // The ones that have ids: long ones, so few.
  std::unordered_map<Sequence, Waiters> waiters_;
};

}  // namespace tarry::delay
