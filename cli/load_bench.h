#pragma once

// How fast a broker accepts records (measure_produce) and serves them (measure_consume), as clients
// of librdkafka see it.
//
//   measure_produce()   BenchProducers --> broker      acknowledgements timed from the schedule
//   measure_consume()   broker --> one consumer        records and bytes, until the last one
//
// How long a record takes from one to the other is measured by measure_delayed() (delayed_bench.h),
// with records that have no delay.
//
// Both end in order when was_interrupted(), with the figures so far.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/bench_producers.h"
#include "cli/kafka/settings.h"

namespace tarry::cli {

// Called with the number of records so far, now and then.
using BenchProgress = std::function<void(std::uint64_t records)>;

struct ProduceBenchResult {
  FlowResult flow;
  std::string first_refusal;
  bool interrupted = false;
  std::optional<Error> error;  // It ended for this reason; what is measured is what came before.
};

// Sends the records of the plan, but none `duration` after the first if it is given.  Errors:
// nothing could be measured.
Result<ProduceBenchResult> measure_produce(const BenchLoad& load,
                                           std::optional<std::chrono::milliseconds> duration,
                                           const BenchProgress& progress);

struct ConsumeBenchOptions {
  KafkaSettings kafka;
  std::string topic;
  bool from_end = false;  // Or from the start of the log.
  // Each of them ends it.  Without any it ends when every partition was read to its end.
  std::optional<std::uint64_t> count;
  std::optional<std::chrono::milliseconds> duration;
  std::optional<std::chrono::milliseconds> idle;  // Nothing came for so long, and all is read.
  // Called once when all is read and it waits for as many as `count`.
  BenchProgress on_wait = [](std::uint64_t) {};
};

struct ConsumeBenchResult {
  std::size_t partitions = 0;
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;    // The values' sizes, without keys and headers.
  std::int64_t first_us = 0;  // From the first question to the first record.
  std::int64_t took_us = 0;   // To the last one.
  bool interrupted = false;
  std::optional<Error> error;
};

Result<ConsumeBenchResult> measure_consume(const ConsumeBenchOptions& options,
                                           const BenchProgress& progress);

}  // namespace tarry::cli
