#pragma once

// The figures of one kind of operation in a purgatory.
//
// 14 KiB for each kind and shard, nearly all of it the two histograms: 210 KiB a shard with the
// broker's 15 kinds.

#include <cstdint>

#include "base/histogram.h"
#include "base/metrics.h"
#include "base/windowed_histogram.h"

namespace tarry::purgatory {

// started = answered at once + waiting + queued + satisfied + expired + cancelled + withdrawn.
struct KindCounts {
  std::uint64_t started = 0;
  std::uint64_t answered_at_once = 0;  // Satisfied when they were started; never waited.
  std::uint64_t waiting = 0;           // Now.
  std::uint64_t queued = 0;            // Now: decided, and not yet answered.
  std::uint64_t satisfied = 0;         // Answered after waiting.
  std::uint64_t expired = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t withdrawn = 0;  // Never answered: destroyed or withdrawn first.
};

// The counters as they grow.
struct KindMetrics : KindCounts {
  WindowedHistogram waited_ms;  // From start to answer, of all that were answered after waiting.
  WindowedHistogram late_ms;    // From deadline to answer, of those that expired.
};

// A copy of the counters at one moment.
struct KindStats : KindCounts {
  KindStats(const KindMetrics& metrics, MonoTime now)
      : KindCounts(static_cast<const KindCounts&>(metrics)),
        waited_ms(metrics.waited_ms.distribution(now)),
        late_ms(metrics.late_ms.distribution(now)) {}

  Distribution waited_ms;
  Distribution late_ms;

  // Under the label of the kind.
  void report(MetricSink& sink) const;
};

}  // namespace tarry::purgatory
