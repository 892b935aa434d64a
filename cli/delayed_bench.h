#pragma once

// DelayedBench: sends delayed records to a broker and measures how late a consumer gets them.
//
//   producers, one thread each --> broker --> consumer, one thread
//            |  accept                          | arrive
//            '------------> DelayedFlow <-------'
//
// Open loop: a schedule that is fixed beforehand says when each record is sent and when it is due,
// and a lag counts from the due time to the moment when the consumer has the record.  A stall,
// whether of the broker or of the sender, therefore counts for every record that it delays.
//
// A consumer takes time itself.  That cost, the floor, is measured in the same run:
//   - at a rate, by records without a header, sent by the same producers at the same rate to the
//     same topic, half of them before and half of them after the delayed ones; their lag counts
//     from when they were to be sent;
//   - for a burst, by reading it again: the time that the records take when all are there already.
//
// With a target, a relay stands between the two: records are sent to the topic and read, committed,
// from the target.  The floor's are sent to the target itself, by producers of their own: what the
// same cluster takes without a relay.
//
// The measurement ends with the deliveries; or when all records are accepted, which then stay
// pending (fill); or when all of them have been cancelled by their ids, in due order (cancel).
//
// Invariant: every record of this run has a number, by which it is found lost or twice
// (delayed_flow.h); other records in the topic are not counted.  Memory is two bits a record, and
// librdkafka's queues; with cancels four bytes more.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/bench_producers.h"

namespace tarry::cli {

enum class BenchGoal : std::uint8_t { deliver, fill, cancel };

struct DelayedBenchOptions : BenchLoad {
  BenchGoal goal = BenchGoal::deliver;
  std::chrono::milliseconds floor{0};   // For how long the floor is measured; 0: it is not.
  std::optional<std::string> target{};  // The target of a relay; empty: the topic itself.
  // No delayed record is sent so long after the first one; empty: all of the plan are.
  std::optional<std::chrono::milliseconds> send_limit{};
};

struct ReadAgain {
  std::int64_t first_us = 0;
  std::int64_t all_us = 0;
};

struct DelayedBenchResult {
  FlowResult delayed;
  std::optional<FlowResult> floor;
  std::optional<FlowResult> cancels;    // Accepted: acknowledged.
  std::optional<ReadAgain> read_again;  // Set for a burst whose records have all come.
  std::string first_refusal;
  bool interrupted = false;
  std::optional<Error> error;  // It ended for this reason; what is measured is what came before.
};

// Calls `progress` with the number of records that were delivered, now and then; was_interrupted()
// ends it in order.  Errors: nothing could be measured.
Result<DelayedBenchResult> measure_delayed(const DelayedBenchOptions& options,
                                           const std::function<void(std::uint64_t)>& progress);

}  // namespace tarry::cli
