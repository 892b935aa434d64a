#pragma once

// Intake: takes a producer's batch apart, and adds its parts to the journal and then to the tier.
//
//   accept() --> AcceptedBatch --add_to()--> one journal record
//                                          |  appended: ids and records are arriving, what they
//                                          |  replace or cancel is leaving
//                                          '  durable: the tier has them, and the near ones wait
//
//   a long batch:  split (on the pool) --> its ids are taken, in steps --> done --> add_to()
//
// Invariants
//   - Whatever is on its way on all shards, no user's quota is exceeded (pending_quota.h).
//   - What is refused, or never appended, leaves no trace: what a long batch takes is leaving from
//     then on, and pending again if the batch is not appended.
//   - A partition's batches are accepted one after the other, each committed before the next one.
//   - The last record in the journal that has an id is the one that accept() finds under it.
//   - No turn of the shard does more than some hundreds of records of a batch.
//
// Belongs to its engine, on its thread.

#include <cstddef>
#include <deque>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/background.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "delay/accepted_batch.h"
#include "delay/batch_schedules.h"
#include "delay/deliveries.h"
#include "delay/delivery_waiters.h"
#include "delay/durable_changes.h"
#include "delay/engine_context.h"
#include "delay/named.h"
#include "delay/pending_quota.h"
#include "delay/ready_queues.h"
#include "delay/removals_in_flight.h"
#include "delay/sequences.h"
#include "delay/unapplied_records.h"
#include "records/batch_check.h"
#include "storage/journal_transaction.h"

namespace tarry::delay {

class Intake {
 public:
  using IdRows = BucketTier::IdRows;
  using Done = std::move_only_function<void(std::expected<AcceptedBatch, ScheduleErrors>)>;

  Intake(EngineContext& context, Background& background, DurableChanges& durable,
         ReadyQueues& queues, RemovalsInFlight& removals, UnappliedRecords& unapplied,
         DeliveryWaiters& waiters, Deliveries& deliveries)
      : context_(context),
        background_(background),
        durable_(durable),
        queues_(queues),
        removals_(removals),
        unapplied_(unapplied),
        waiters_(waiters),
        deliveries_(deliveries),
        sequences_(context.sink) {}

  Sequences& sequences() { return sequences_; }

  // See Engine::read_ids().
  void read_ids(const TopicPartition& partition, const BatchSchedules& schedules,
                std::move_only_function<void(Result<IdRows>)> done);
  std::expected<AcceptedBatch, ScheduleErrors> accept(const TopicPartition& partition,
                                                      const records::CheckedBatch& batch,
                                                      const BatchSchedules& schedules,
                                                      const TopicDelay& topic, WallTime arrived,
                                                      const IdRows& ids, const PendingTerms& terms);
  void accept_in_steps(const TopicPartition& partition, const records::CheckedBatch& batch,
                       const BatchSchedules& schedules, const TopicDelay& topic, WallTime arrived,
                       IdRows ids, const PendingTerms& terms, Done done);
  void add_to(storage::JournalTransaction& transaction, AcceptedBatch accepted, Offset base);

  // Goes on with long batches, and takes so many ids of them at most; true: there is more to do.
  bool step(std::size_t budget);

 private:
  enum class Taken { yes, no, late, busy };
  // A long batch of which some ids are taken.
  struct Taking {
    AcceptedBatch accepted;
    IdRows ids;
    PendingTerms terms;
    Done done;
    BatchIds::Number next = 0;  // The next id that it takes.
    bool is_reserved = false;
  };

  std::optional<ScheduleErrors> refusal(const BatchSchedules& schedules, const TopicDelay& topic,
                                        const TopicId& id, const PendingTerms& terms);
  Reservation::Account account_of(const PendingTerms& terms);
  std::optional<ScheduleErrors> reserve(AcceptedBatch& accepted, const PendingTerms& terms);
  Taken take_id(AcceptedBatch& accepted, BatchIds::Number id, const IdRows& ids);
  bool take_some(Taking& taking, std::size_t& budget, std::optional<ScheduleErrors>& refused);
  Named find_id(const TopicPartition& partition, std::string_view id, const IdRows& ids,
                std::size_t number);
  void discard(AcceptedBatch accepted);
  void give_back(const TopicPartition& partition, std::shared_ptr<AcceptedBatch::Held> held);
  void appended(const AcceptedBatch& accepted) noexcept;
  bool apply(AcceptedBatch& accepted, std::size_t& budget);

  EngineContext& context_;
  Background& background_;
  DurableChanges& durable_;
  ReadyQueues& queues_;
  RemovalsInFlight& removals_;
  UnappliedRecords& unapplied_;
  DeliveryWaiters& waiters_;
  Deliveries& deliveries_;
  Sequences sequences_;
  std::deque<Taking> taking_;
};

}  // namespace tarry::delay
