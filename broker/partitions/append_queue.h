#pragma once

// AppendQueue: the order in which a partition takes producers' batches.
//
//   append() --> [ checked | being checked | not looked at yet ] --> take(), one after the other
//                    first                                 last
//
// A batch has its place as soon as append() has it.  One that takes long to check is checked
// on the pool (batch_checks.h), and those behind it wait: offsets and producers' sequences are
// given out in the order in which requests were decoded, compressed or not.
//
// A partition whose batches are all short never has one of these.
//
// Belongs to its partition's shard and thread.  Lives on until the last batch is answered, also
// when the partition goes before.

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "broker/partitions/appended.h"
#include "broker/partitions/arrival.h"
#include "broker/partitions/batch_checks.h"

namespace tarry::broker {

class AppendQueue : public std::enable_shared_from_this<AppendQueue> {
 public:
  // Appends a batch that is checked, or refuses it; an empty verdict: there was no memory to look
  // at the batch.
  using Take = std::move_only_function<Appended(const Arrival& arrival,
                                                std::optional<BatchChecks::Verdict> verdict)>;

  AppendQueue(Take take, BatchChecks& checks) : take_(std::move(take)), checks_(checks) {}

  bool empty() const { return queue_.empty(); }
  // If it throws, the batch is not in the queue.
  void add(Arrival arrival, BatchChecks::Job job);
  // The partition takes nothing any more: what waits is refused as soon as it may be.
  void retire();
  // The partition goes.  Without retire() before, its shard does, and so did everybody who waits.
  void abandon();

 private:
  struct Place {
    Arrival arrival;
    BatchChecks::Job job;
    enum class State {
      here,      // A short one, looked at when it is first.
      checking,  // On the pool.
      larger,    // Unpacks to more than the usual lane allows: the large lane when it is first.
      checked,
    } state = State::here;
    BatchChecks::Checked checked;
  };

  void check(Place& place, BatchChecks::Lane lane);
  void was_checked(Place& place, BatchChecks::Lane lane, BatchChecks::Checked checked);
  void look_at(Place& first);
  Appended take(Place& first);
  void append_checked() noexcept;

  Take take_;  // Null: the partition has retired, or is gone.
  BatchChecks& checks_;
  std::deque<Place> queue_;  // Places stay where they are while they are in it.
  bool taking_ = false;
};

}  // namespace tarry::broker
