#pragma once

// DelayedBench: sends delayed records to a broker and measures how late a consumer has them.
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
// The measurement ends with the deliveries; or when all records are accepted, which then stay
// pending (fill); or when all of them have been cancelled by their ids, in due order (cancel).
//
// Invariant: every record of this run has a number, by which it is found lost or twice
// (delayed_flow.h); other records in the topic are not counted.  Memory is two bits a record, and
// librdkafka's queues; with cancels four bytes more.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/delayed_flow.h"
#include "cli/kafka/settings.h"
#include "cli/latency_histogram.h"

namespace tarry::cli {

enum class BenchGoal : std::uint8_t { deliver, fill, cancel };

struct DelayedBenchOptions {
  KafkaSettings kafka;
  std::string topic;       // It exists.
  std::uint64_t run = 0;   // Tells this run's records from others in the topic.
  FlowPlan plan;           // The plan of the delayed records; `first` has no meaning.
  std::size_t size = 100;  // Bytes of a value, at least min_record_size.
  unsigned clients = 1;    // Producers.
  bool has_ids = false;    // Each delayed record has a schedule id.
  BenchGoal goal = BenchGoal::deliver;
  std::chrono::milliseconds floor{0};  // For how long the floor is measured; 0: it is not.
};

// A value begins with the run and the number.
inline constexpr std::size_t min_record_size = 16;

struct FlowResult {
  FlowFigures figures;
  std::uint64_t sent = 0;
  std::uint64_t refused = 0;
  std::int64_t accepted_in_us = 0;  // From the first record's time to the last acknowledgement.
  LatencyHistogram accept;          // From when a record was to be sent to its acknowledgement.
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
