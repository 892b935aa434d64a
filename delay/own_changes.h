#pragma once

// OwnChanges: the journal records that the engine writes of its own accord, or because an owner
// asks: removals and moves.
//
//   remove(), move() --> leaving --(one journal record)--> durable: tier, totals, answer
//                                          |
//                                          '--> refused: where it was, and the answer
//
// Invariants
//   - The tier changes when the record is durable, in the order of the journal.
//   - A change that nobody waits for is tried again: its partition backs off.
//
// Belongs to its engine, on its thread.

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "delay/controlled.h"
#include "delay/delivery_waiters.h"
#include "delay/durable_changes.h"
#include "delay/engine_context.h"
#include "delay/ready_queues.h"
#include "delay/removals_in_flight.h"
#include "delay/unapplied_records.h"
#include "storage/journal_record.h"
#include "storage/pending.h"

namespace tarry::delay {

class OwnChanges {
 public:
  // Records of one partition that go, for the same reason.
  struct Removal {
    struct One {
      PendingKey key;
      WallTime first;  // Its handle's due time.
      std::string id;  // Empty: none.
      storage::PendingShare share;
    };
    TopicPartition partition;
    storage::RemovalReason how;
    std::vector<One> records;
    WallTime at{};
    ControlDone done;               // May be empty.
    bool topic_gone = false;        // The reason: its topic is deleted.
    storage::JournalPlace place{};  // The place of the first change.

    storage::PendingRemoved operation(const One& one) const;
  };

  // A record on its way to another due time.
  struct Move {
    storage::PendingRecord record;  // As it was, or with another recurrence.
    WallTime due;
    storage::PendingShare share;  // As it was.
    // Called before others that wait for the record; empty: its missed runs are left out.
    ControlDone done;
    WallTime at{};
    storage::JournalPlace place{};

    storage::PendingRemoved removed() const;
    storage::PendingAdded added() const;
  };

  OwnChanges(EngineContext& context, DurableChanges& durable, ReadyQueues& queues,
             RemovalsInFlight& removals, UnappliedRecords& unapplied, DeliveryWaiters& waiters)
      : context_(context),
        durable_(durable),
        queues_(queues),
        removals_(removals),
        unapplied_(unapplied),
        waiters_(waiters) {}

  // When one throws (std::bad_alloc) nothing is in the journal, and the records are where they
  // were.
  void remove(std::unique_ptr<Removal> asked);
  void move(std::unique_ptr<Move> move);

 private:
  void removed(Removal& removal);
  void on_removal_refused(Removal& removal, const Error& error);
  void end_removal(Removal& removal, const Result<Controlled>& answer);
  void moved(Move& move);
  void on_move_refused(Move& move, const Error& error);
  void on_no_memory(const PendingKey& key, const TopicPartition& partition);
  void stay(const PendingKey& key, const TopicPartition& partition);
  void go_on();

  EngineContext& context_;
  DurableChanges& durable_;
  ReadyQueues& queues_;
  RemovalsInFlight& removals_;
  UnappliedRecords& unapplied_;
  DeliveryWaiters& waiters_;
};

}  // namespace tarry::delay
