#pragma once

// JournalStats: the figures of a journal since it was opened.

#include <cstdint>

#include "base/histogram.h"
#include "base/metrics.h"

namespace tarry::storage {

struct JournalStats {
  std::uint64_t rounds = 0;      // With records in them.
  std::uint64_t idle_notes = 0;  // Rounds without.
  std::uint64_t syncs = 0;
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;       // The size of records.
  std::uint64_t disk_bytes = 0;  // Written: headers and zeros between records too.
  std::uint64_t files = 0;       // Begun.
  std::uint64_t live_bytes = 0;  // Now: what a recovery would read.
  Distribution round_us;         // Write and sync of a round.

  void report(MetricSink& sink) const;
};

}  // namespace tarry::storage
