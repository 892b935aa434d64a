#pragma once

// Deliveries: how what is due leaves.
//
//   ReadyQueues --dispatch(): a batch of the partition whose turn it is--> Sink::deliver()
//                                                                              |
//   in flight, per partition, in order:   [ appended | appended | handed over ]
//                                              |
//                                              '--durable--> gone, or pending with its next run
//
// What always holds
//   - Per partition, batches are handed to the sink in (due, sequence) order, one when all before
//   it
//     are in the journal: a batch that is refused is overtaken by none.
//   - A record is in one batch in flight at most.  Whoever asks for it then waits for the outcome.
//   - What is in flight is bounded, per shard and per partition, and so is the work of a step.
//
// Partitions take turns, a batch each.  One whose delivery was refused waits for its own back-off;
// the others do not wait for it.
//
// Belongs to its engine, on its thread.

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/histogram.h"
#include "base/ids.h"
#include "delay/awaiting.h"
#include "delay/durable_changes.h"
#include "delay/engine_context.h"
#include "delay/leaving.h"
#include "delay/own_changes.h"
#include "delay/ready_queues.h"

namespace tarry::delay {

class Deliveries {
 public:
  Deliveries(EngineContext& context, DurableChanges& durable, ReadyQueues& queues, Leaving& leaving,
             OwnChanges& changes, Awaiting& awaiting)
      : context_(context),
        durable_(durable),
        queues_(queues),
        leaving_(leaving),
        changes_(changes),
        awaiting_(awaiting) {}

  // Hands over what is due, within the bounds of a step.  True: there is more.
  bool dispatch(WallTime now);

  // A record in flight.
  struct InFlight {
    bool appended;                    // Nothing can refuse its delivery any more.
    std::optional<PendingKey> again;  // A recurring one: its key from then on.
  };
  std::optional<InFlight> find(Sequence sequence) const;
  // Called with true if the record, which is in flight, was delivered and is gone.
  using Outcome = std::move_only_function<void(bool gone)>;
  void await(Sequence sequence, Outcome outcome);

  std::size_t records() const { return records_; }  // In flight.
  Distribution lag_us(MonoTime now) const { return lag_us_.distribution(now); }

 private:
  // When a record that is being delivered is due again, and its stored form from then on.
  struct Again {
    WallTime due;
    Buffer record;
  };
  // One delivery of a record.
  struct Run {
    WallTime due;
    std::optional<Again> again;
  };
  // A batch that was handed to the sink.
  struct Delivery {
    PartitionSlot slot;
    std::vector<NearEntry*> entries;
    std::vector<storage::PendingRecord> records;  // Of these, without their bodies.
    std::vector<std::optional<Again>> again;      // Of these: a recurring record is due again.
    WallTime at{};                                // Of the removals.
    std::size_t bytes = 0;
    std::optional<storage::JournalPlace> place;            // Once nothing can refuse it any more.
    std::vector<std::pair<std::size_t, Outcome>> waiters;  // By index.

    storage::PendingRemoved gone_of(std::size_t index, Offset offset = -1) const;
    storage::PendingAdded again_of(std::size_t index) const;
  };
  struct Filling;
  struct Place {  // Of a record in flight.
    Delivery* delivery;
    std::size_t index;
  };

  void deliver_from(PartitionSlot slot, WallTime now, std::size_t& records, std::size_t& bytes);
  void fill(Filling& filling);
  void add_to(Filling& filling, NearEntry& entry,
              const std::optional<storage::PendingView>& record);
  bool take_turn_of(Filling& filling, const storage::PendingView& record, Bytes recurrence,
                    Run& run);
  std::size_t send(Filling& filling);
  void drop_all(PartitionSlot slot);
  void delivered(Delivery& here, Offset base);
  void end_records(Delivery& delivery, Offset base);
  void refused(Delivery& here);
  std::unique_ptr<Delivery> take_out(Delivery& here);
  std::optional<Place> place_of(Sequence sequence) const;

  EngineContext& context_;
  DurableChanges& durable_;
  ReadyQueues& queues_;
  Leaving& leaving_;
  OwnChanges& changes_;
  Awaiting& awaiting_;

  std::unordered_map<PartitionSlot, std::deque<std::unique_ptr<Delivery>>> in_flight_;
  std::size_t records_ = 0;
  std::size_t bytes_ = 0;
  WindowedHistogram lag_us_;
};

}  // namespace tarry::delay
