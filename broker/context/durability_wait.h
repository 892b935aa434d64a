#pragma once

// DurabilityWait: a request whose changes have their place in the journal and are not durable yet.
//
//   satisfied   the journal's round with the last of them is synced; of a Produce to topics with
//               tarry.durability=os: is written (a delayed record is synced all the same)
//   expired     the request's time has passed.  Its changes may become durable later, as in
//               Kafka (an idempotent producer's retry gets the right answer)
//   cancelled   the client has gone, or the broker stops
//
// Each Kafka API that waits for the journal alone waits as one, and is counted as the kind that its
// code registers:
//
//   Produce          timeout_ms, then REQUEST_TIMED_OUT for the partitions whose batch is not
//                    durable.  acks=1 and all wait alike, acks=0 does not wait.  A topic that is
//                    deleted meanwhile changes nothing: the journal has the batch, and reports when
//                    it is durable
//   DeleteRecords    timeout_ms, then REQUEST_TIMED_OUT for the partitions whose log start has not
//                    moved
//   OffsetCommit, OffsetDelete, DeleteGroups
//                    offsets.commit.timeout.ms, then COORDINATOR_NOT_AVAILABLE
//   InitProducerId   as long as clients wait by default, then COORDINATOR_NOT_AVAILABLE
//
// One for each shard that a request has changes on; lives in the coroutine that waits.  It holds
// two numbers, and none of the changed data.

#include <chrono>
#include <optional>

#include <boost/asio/awaitable.hpp>

#include "base/ids.h"
#include "broker/context/cancellation_token.h"
#include "broker/context/one_shot_event.h"
#include "purgatory/delayed_operation.h"

namespace tarry::broker {

class ShardContext;

class DurabilityWait final : public purgatory::DelayedOperation {
 public:
  // Waits for these two, as far as they are given.
  DurabilityWait(ShardContext& shard, purgatory::Kind kind, std::optional<Lsn> durable,
                 std::optional<Lsn> written);

  boost::asio::awaitable<purgatory::Outcome> wait(purgatory::Tick deadline);
  boost::asio::awaitable<purgatory::Outcome> wait(std::chrono::milliseconds timeout);

  // Whether the record at `lsn` is as durable as was asked for.
  bool is_durable(Lsn lsn) const;
  bool is_written(Lsn lsn) const;

 private:
  bool is_satisfied() override;
  void on_complete(purgatory::Outcome outcome) override;

  ShardContext& shard_;
  const std::optional<Lsn> durable_;
  const std::optional<Lsn> written_;
  OneShotEvent answered_;
};

// On `shard`: whether its journal has made `lsn` durable within `timeout`; false, too, when the
// client hangs up or the broker stops.
boost::asio::awaitable<bool> wait_until_durable(ShardContext& shard, Lsn lsn, purgatory::Kind kind,
                                                std::chrono::milliseconds timeout,
                                                CancellationToken& token);

}  // namespace tarry::broker
