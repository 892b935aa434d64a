#pragma once

// DelayedDeleteRecords: a DeleteRecords request whose new log starts are in the journal's order and
// not durable yet.
//
//   satisfied   the journal's round with the last of them is synced; the log starts have moved
//   expired     its timeout_ms has passed: REQUEST_TIMED_OUT for the partitions whose log start has
//               not moved, although it may move later, as in Kafka
//   cancelled   the client has gone, or the broker stops
//
// One for each shard that a request has partitions on; lives in the coroutine that waits.

#include <boost/asio/awaitable.hpp>

#include "base/ids.h"
#include "broker/wakeup.h"
#include "purgatory/delayed_operation.h"

namespace tarry::broker {

class ShardContext;

class DelayedDeleteRecords final : public purgatory::DelayedOperation {
 public:
  DelayedDeleteRecords(ShardContext& shard, Lsn last)
      : DelayedOperation(purgatory::Kind::delete_records), shard_(shard), last_(last) {}

  boost::asio::awaitable<purgatory::Outcome> wait(purgatory::Tick deadline);

 private:
  bool is_satisfied() override;
  void on_complete(purgatory::Outcome) override { answered_.fire(); }

  ShardContext& shard_;
  const Lsn last_;
  Wakeup answered_;
};

}  // namespace tarry::broker
