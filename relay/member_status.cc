#include "relay/member_status.h"

#include <algorithm>

namespace tarry::relay {

std::size_t MemberStatus::pending() const {
  std::size_t all = 0;
  for (const auto& each : partitions) all += each.pending;
  return all;
}

std::optional<WallTime> MemberStatus::next_due() const {
  std::optional<WallTime> next;
  for (const auto& each : partitions)
    if (each.next_due) next = next ? std::min(*next, *each.next_due) : *each.next_due;
  return next;
}

void MemberStatus::report_member(MetricSink& sink) const {
  // No figure has a label for its partition: a thousand of them would be a thousand lines at each
  // scrape, and /status lists them.
  sink.gauge({"tarry_relay_owned", "Source partitions that this member owns."}, owned);
  sink.gauge({"tarry_relay_paused",
              "Source partitions whose reading is paused, because too many bytes wait to be "
              "taken in."},
             paused);
  sink.gauge({"tarry_relay_standby",
              "Source partitions of other members of which this member keeps a warm copy."},
             standby);
  sink.gauge({"tarry_relay_pending_bytes", "Bytes of the rows of pending records, in the store."},
             pending_bytes);
  sink.gauge({"tarry_relay_standby_bytes", "Bytes of the rows of warm copies, in the store."},
             standby_bytes);
  sink.gauge({"tarry_relay_stalled_seconds",
              "How long the member has made no progress; 0: it makes progress."},
             static_cast<std::uint64_t>(stalled_for.count()));
  sink.counter({"tarry_relay_transactions_total", "Transactions that were committed."},
               transactions);
  sink.counter({"tarry_relay_aborted_total", "Transactions that failed and were repeated."},
               aborted);
  sink.counter({"tarry_relay_renewed_total", "How often producers were created again."}, renewed);
  sink.counter(
      {"tarry_relay_damaged_rows_total", "Damaged rows of state topics, which are ignored."},
      damaged_rows);
}

void MemberStatus::report_delayed(MetricSink& sink) const {
  sink.gauge({"tarry_relay_pending", "Pending records."}, pending());
  // The due time itself, because what is left until then would be wrong when it is read.
  sink.gauge({"tarry_relay_next_due_seconds", "Due time of the next pending record.", "next_due"},
             next_due());
  sink.counter({"tarry_relay_taken_total", "Records taken from sources."}, counts.taken);
  sink.counter({"tarry_relay_delivered_total", "Records delivered to their targets."},
               counts.delivered);
  sink.counter({"tarry_relay_early_total", "Records delivered before they were due."}, early);
  sink.counter({"tarry_relay_cancelled_total", "Pending records that were cancelled."},
               counts.cancelled);
  sink.counter({"tarry_relay_replaced_total", "Pending records that were replaced."},
               counts.replaced);
  sink.counter({"tarry_relay_expired_total", "Records that expired before they were due."},
               counts.expired);
  sink.counter({"tarry_relay_invalid_total", "Records that went to NAME.invalid."}, counts.invalid);
  sink.counter({"tarry_relay_dropped_total",
                "Records that no topic took, not even NAME.invalid: the log names them."},
               counts.dropped);
  sink.histogram({"tarry_relay_lag_seconds",
                  "Time from a record's due time until its delivery is committed.", "lag_ms"},
                 lag, TimeUnit::milliseconds);
}

}  // namespace tarry::relay
