#pragma once

// MemberStatus: what a member shows of itself, in /status and as metrics.
//
// A copy: any thread may read it.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/histogram.h"
#include "base/ids.h"
#include "base/metrics.h"
#include "relay/assignment.h"
#include "relay/cluster.h"
#include "relay/partition.h"

namespace tarry::relay {

struct PartitionStatus {
  Source source;
  Stage stage = Stage::finding;
  std::size_t pending = 0, arrived = 0;
  Offset next = -1;
  std::optional<WallTime> next_due;
  std::optional<std::int64_t> take_over_ms;  // How long the take-over took.
  bool is_paused = false;                    // Nothing is read from it (intake.h).
  std::string waits{};                       // Why it does not go on; empty: nothing keeps it.
};

struct MemberStatus {
  std::vector<PartitionStatus> partitions;
  std::size_t owned = 0;
  std::size_t paused = 0;              // Partitions from which nothing is read.
  std::size_t standby = 0;             // Warm copies that have been read to the end once.
  bool is_assigned = false;            // The group has given an assignment, perhaps an empty one.
  std::string stalled;                 // Why the last transaction was not made; empty: it was.
  std::chrono::seconds stalled_for{};  // How long there has been a reason, perhaps another one.
  std::uint64_t transactions = 0, aborted = 0, renewed = 0, early = 0, damaged_rows = 0;
  std::size_t pending_bytes = 0, standby_bytes = 0;
  bool is_full = false;  // No room for more pending records.
  Counts counts;
  // From the due time to the commit; at least once, to when the target's record is confirmed.
  Distribution lag;

  std::size_t pending() const;
  std::optional<WallTime> next_due() const;
  // The state of this member and its pending records.
  void report_member(MetricSink& sink) const;
  void report_delayed(MetricSink& sink) const;
};

}  // namespace tarry::relay
