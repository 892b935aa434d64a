#pragma once

// EngineTotals and EngineStats: the figures of a shard's delay engine.
//
// Each part counts in the EngineTotals that all share; EngineStats is a copy of them, with the
// sizes that are read off the parts when somebody asks.  report() declares each once, for /metrics
// and JSON (base/metrics.h).
//
// The totals belong to the shard's thread.  A copy may go anywhere.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/histogram.h"
#include "base/metrics.h"
#include "delay/bucket_tier.h"
#include "timing/timing_wheel.h"

namespace tarry::delay {

// The counters of an engine's parts, since it began.
struct EngineTotals {
  std::uint64_t delivered_total = 0;
  std::uint64_t early_total = 0;  // Always 0.
  std::uint64_t cancelled_total = 0;
  std::uint64_t moved_total = 0;
  std::uint64_t recurred_total = 0;        // The delivered records that are due again.
  std::uint64_t left_out_total = 0;        // Missed runs of recurring records, by
                                           //   tarry.delay.missed.
  std::uint64_t cancel_unknown_total = 0;  // From clients: no such id.
  std::uint64_t cancel_late_total = 0;     // From clients: it was in flight.
  std::uint64_t replaced_total = 0;
  std::uint64_t expired_total = 0;
  std::uint64_t dropped_total = 0;  // Their topic was deleted.
  std::uint64_t damaged_total = 0;  // Kept, but cannot be read (logged).
  std::uint64_t refused_total = 0;  // Deliveries that the sink refused; each is tried again.
};

struct EngineStats : EngineTotals {
  WallTime now{};                    // The believed wall time, as of the last step.
  std::size_t near = 0;              // Entries in memory, of these:
  std::size_t overdue = 0;           //   due and not yet delivered
  std::size_t in_flight = 0;         //   handed to the sink
  std::size_t out_of_service = 0;    // Overdue too: set aside, on disk, until the next start.
  std::size_t arriving = 0;          // Accepted, not durable.  The store counts the rest.
  WallTime horizon{};                // Records due before it are in memory.
  std::optional<WallTime> next_due;  // The first due time, or a time before it:
  bool next_due_exact = true;        //   the beginning of the bucket that has it.
  BucketTier::Stats tier;
  Distribution lag_us;  // From due to durable.
  timing::TimingWheel::Stats wheel;
  std::size_t bytes = 0;            // The memory of the locators and of the tier.
  std::size_t unwritten_bytes = 0;  // Delivered, and in no segment yet.

  // All figures except for those of the wheel.
  void report(MetricSink& sink) const;
};

}  // namespace tarry::delay
