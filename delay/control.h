#pragma once

// Control: what the owner of a pending record may do with it, and what may be asked about it.
//
//   a name --> Named: the arriving record, else what the tier knows, perhaps after a look-up
//                |
//                +-- its delivery, removal or move is on its way: the request waits, and is made
//                |   again when the outcome is known
//                '-- pending: a removal or a move in the journal, and then the answer
//
// Invariant: an answer is given when it is durable, and never turns out to be wrong later.  A look
// waits for what the journal has and the tier does not know yet, as a change does.  The functions
// are described at Engine's.
//
// Belongs to its engine, on its thread.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"
#include "delay/bucket_tier.h"
#include "delay/controlled.h"
#include "delay/deliveries.h"
#include "delay/delivery_waiters.h"
#include "delay/engine_context.h"
#include "delay/named.h"
#include "delay/own_changes.h"
#include "delay/removals_in_flight.h"
#include "delay/unapplied_records.h"
#include "storage/pending.h"

namespace tarry::delay {

struct Looked {
  std::optional<storage::PendingRecord> record;  // Empty: nothing is pending under the name,
  bool delivered = false;                        //   for its last record has been delivered.
};
using LookedDone = std::move_only_function<void(Result<Looked>)>;

class Control {
 public:
  Control(EngineContext& context, RemovalsInFlight& removals, UnappliedRecords& unapplied,
          DeliveryWaiters& waiters, Deliveries& deliveries, OwnChanges& changes)
      : context_(context),
        removals_(removals),
        unapplied_(unapplied),
        waiters_(waiters),
        deliveries_(deliveries),
        changes_(changes) {}

  void cancel(const TopicPartition& partition, std::string_view name, ControlDone done);
  void move(const TopicPartition& partition, std::string_view name, NewDue due, ControlDone done);
  void deliver_now(const TopicPartition& partition, std::string_view name, ControlDone done);

  void look_id(const TopicPartition& partition, std::string id, LookedDone done);
  void look_handle(std::string_view handle, LookedDone done);
  void trace(const TopicPartition& partition, std::string id, BucketTier::Events done);

 private:
  std::optional<Error> stopped() const;

  // A request of an owner.
  struct Request {
    enum class Kind { cancel, move, deliver };
    Kind kind;
    TopicPartition partition;
    std::string name;
    NewDue due{};  // The due time of a move.
    ControlDone done;
    int tries = 0;
  };

  bool is_changing(Sequence sequence) const {
    return removals_.contains(sequence) || unapplied_.contains(sequence);
  }
  std::optional<Sequence> changing(const TopicPartition& partition, std::string_view id,
                                   const Named& found) const;
  void await_change(Sequence sequence, std::move_only_function<void()> again);
  void look_id(const TopicPartition& partition, std::string id, LookedDone done, int tries);
  void look_handle(const PendingKey& handle, LookedDone done, int tries);
  void trace(const TopicPartition& partition, std::string id, BucketTier::Events done, int tries);
  void control(std::unique_ptr<Request> asked);
  void control_found(std::unique_ptr<Request> asked, const Named& found);
  bool waits(std::unique_ptr<Request>& asked, Sequence sequence);
  Result<WallTime> new_due(const Request& asked, const storage::PendingRecord& record);
  void start_move(std::unique_ptr<Request> asked, storage::PendingRecord record);
  void await_delivery(Sequence sequence, std::unique_ptr<Request> asked);
  Named named(std::string_view id, const std::vector<storage::ScheduleEvent>& events) const;
  WallTime remembered() const { return context_.time.wall() - context_.options.remember; }

  EngineContext& context_;
  RemovalsInFlight& removals_;
  UnappliedRecords& unapplied_;
  DeliveryWaiters& waiters_;
  Deliveries& deliveries_;
  OwnChanges& changes_;
};

}  // namespace tarry::delay
