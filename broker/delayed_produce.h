#pragma once

// DelayedProduce: a Produce request whose batches are in the journal's order and not durable yet.
//
//   satisfied   the journal's round with its last batch is synced; of topics with
//               tarry.durability=os: is written (a delayed record is synced all the same)
//   expired     its timeout_ms has passed: REQUEST_TIMED_OUT for the partitions whose batch is not
//               durable, although it may become so later, as in Kafka (an idempotent producer's
//               retry is told the truth)
//   cancelled   the client has gone, or the broker stops
//
// That the topic is deleted meanwhile is no case: the journal has the batch, and says when it is
// durable.  acks=1 and all wait alike, acks=0 does not wait.
//
// What else waits for the journal alone waits as one, and is counted as its own kind: OffsetCommit,
// OffsetDelete and DeleteGroups for offsets.commit.timeout.ms, InitProducerId for as long as
// clients wait by default; COORDINATOR_NOT_AVAILABLE then.
//
// One for each shard that a request has partitions on; lives in the coroutine that waits.  It holds
// two numbers, and nothing of what was produced.

#include <chrono>
#include <optional>

#include <boost/asio/awaitable.hpp>

#include "base/ids.h"
#include "broker/hang_up.h"
#include "broker/wakeup.h"
#include "purgatory/delayed_operation.h"

namespace tarry::broker {

class ShardContext;

class DelayedProduce final : public purgatory::DelayedOperation {
 public:
  // Waits for these two, as far as they are given.
  DelayedProduce(ShardContext& shard, std::optional<Lsn> durable, std::optional<Lsn> written,
                 purgatory::Kind kind = purgatory::Kind::produce);

  boost::asio::awaitable<purgatory::Outcome> wait(purgatory::Tick deadline);
  boost::asio::awaitable<purgatory::Outcome> wait(std::chrono::milliseconds timeout);

  // Whether what was appended at `lsn` is as safe as was asked for.
  bool is_durable(Lsn lsn) const;
  bool is_written(Lsn lsn) const;

 private:
  bool is_satisfied() override;
  void on_complete(purgatory::Outcome outcome) override;

  ShardContext& shard_;
  const std::optional<Lsn> durable_;
  const std::optional<Lsn> written_;
  Wakeup answered_;
};

// On `shard`: whether its journal has made `lsn` durable within `timeout`; false, too, when the
// client hangs up or the broker stops.
boost::asio::awaitable<bool> wait_until_durable(ShardContext& shard, Lsn lsn, purgatory::Kind kind,
                                                std::chrono::milliseconds timeout,
                                                HangUp::Line& line);

}  // namespace tarry::broker
