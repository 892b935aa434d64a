#pragma once

// DelayedRemoval: a DeleteGroups request for groups that have records on their way to the journal.
// The removal has to come after these records, or a restart would bring the groups back.
//
//   satisfied   the records have left the line (Groups::store()): they are stored, or refused
//   expired     offsets.commit.timeout.ms has passed: the answer is COORDINATOR_NOT_AVAILABLE
//   cancelled   the client has gone, or the broker stops
//
// After that the request waits for its own record, as a DurabilityWait.
//
// Lives in the coroutine of its request, on the thread of the groups' shard.

#include <cstdint>

#include <boost/asio/awaitable.hpp>

#include "broker/context/one_shot_event.h"
#include "purgatory/delayed_operation.h"

namespace tarry::broker {

class DelayedRemoval final : public purgatory::DelayedOperation {
 public:
  // Until `stored`, which outlives it, is `wanted` or more.
  DelayedRemoval(const std::uint64_t& stored, std::uint64_t wanted);

  // `told` is advanced with `stored`.
  boost::asio::awaitable<void> wait(purgatory::Purgatory& purgatory, purgatory::Tick now,
                                    purgatory::Tick deadline, purgatory::WatchList& told);

 private:
  bool is_satisfied() override { return stored_ >= wanted_; }
  void on_complete(purgatory::Outcome outcome) override;

  const std::uint64_t& stored_;
  const std::uint64_t wanted_;
  OneShotEvent answered_;
};

}  // namespace tarry::broker
