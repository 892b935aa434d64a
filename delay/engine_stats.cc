#include "delay/engine_stats.h"

namespace tarry::delay {
namespace {

void report_tier(const BucketTier::Stats& tier, MetricSink& sink) {
  sink.gauge({"tarry_delay_memory_records",
              "Pending records whose bodies are in memory, near or waiting to be written."},
             tier.records);
  sink.gauge({"tarry_delay_memory_bytes",
              "The part of tarry_delay_near_bytes for the bodies of pending records."},
             tier.memory_bytes);
  sink.gauge({"tarry_delay_memory_chunks", "Chunks of pending records that are in memory."},
             tier.chunks);
  sink.gauge({"tarry_delay_homes",
              "Buckets (hours and months of the due time) that have pending records."},
             tier.homes);
  sink.counter({"tarry_delay_written_total", "Pending records that were written to the disk."},
               tier.written);
  sink.counter({"tarry_delay_spared_total",
                "Records that were removed before they were written to the disk."},
               tier.spared);
  sink.counter(
      {"tarry_delay_came_near_total",
       "Records handed to the wheel because their due time came near, from disk or from memory."},
      tier.came_near);
  sink.counter(
      {"tarry_delay_pulled_back_total",
       "How many times records near their due time left the memory again because it was short."},
      tier.pulled_back);
  sink.counter(
      {"tarry_delay_rescued_total",
       "Records that came near although a flood in another partition had spent the memory."},
      tier.rescued);
  sink.counter(
      {"tarry_delay_disk_downgrades_total", "Steps that moved chunks on disk to finer buckets."},
      tier.dealt_steps);
  sink.counter({"tarry_delay_loads_total", "Pieces of buckets that were loaded from the disk."},
               tier.loads);
}

}  // namespace

void EngineStats::report(MetricSink& sink) const {
  sink.gauge({"tarry_delay_near",
              "Pending records that have a place in the wheel because they are due soon."},
             near);
  sink.gauge({"tarry_delay_near_bytes",
              "Memory that pending records use: their bodies and their places in the wheel."},
             bytes);
  sink.gauge({"tarry_delay_unwritten_bytes",
              "Delivered batches that are in memory until the disk has them in the segments; above "
              "a bound, deliveries wait."},
             unwritten_bytes);
  sink.gauge({"tarry_delay_overdue", "Records that are due and not delivered yet."}, overdue);
  sink.gauge({"tarry_delay_in_flight", "Overdue records whose delivery is being written."},
             in_flight);
  sink.gauge({"tarry_delay_out_of_service",
              "Overdue records of partitions that are out of service (the log says why); they are "
              "kept, and delivered after a restart."},
             out_of_service);
  sink.gauge({"tarry_delay_arriving", "Delayed records that are accepted but not durable yet."},
             arriving);
  sink.counter({"tarry_delay_delivered_total", "Records that were delivered."}, delivered_total);
  sink.counter({"tarry_delay_early_total", "Records delivered before their due time: always 0."},
               early_total);
  sink.counter({"tarry_delay_cancelled_total", "Records that were cancelled."}, cancelled_total);
  sink.counter({"tarry_delay_moved_total", "Records that were given another due time."},
               moved_total);
  sink.counter(
      {"tarry_delay_recurred_total", "Deliveries of recurring records that are due again."},
      recurred_total);
  sink.counter({"tarry_delay_left_out_total",
                "How many times missed runs of a recurring record were skipped."},
               left_out_total);
  sink.counter(
      {"tarry_delay_cancel_unknown_total", "Cancels from clients whose id was not pending."},
      cancel_unknown_total);
  sink.counter({"tarry_delay_cancel_late_total",
                "Cancels from clients whose record was already being delivered."},
               cancel_late_total);
  sink.counter(
      {"tarry_delay_replaced_total", "Records that a later record with the same id replaced."},
      replaced_total);
  sink.counter({"tarry_delay_expired_total", "Records dropped because of their x-expire-at."},
               expired_total);
  sink.counter({"tarry_delay_dropped_total", "Records dropped because their topic was deleted."},
               dropped_total);
  sink.counter({"tarry_delay_damaged_total",
                "Due records that cannot be read; they are kept, and the log names them."},
               damaged_total);
  sink.counter({"tarry_delay_freed_bytes_total",
                "Bytes of cancelled records, and of records of deleted topics, freed on the disk "
                "before their due time."},
               tier.freed_bytes);
  sink.counter({"tarry_delay_refused_total", "Deliveries that had to be tried again."},
               refused_total);
  sink.histogram({"tarry_delay_lag_seconds",
                  "Time from a record's due time until it is durable in the log.", "lag_ms"},
                 lag_us, TimeUnit::microseconds);
  report_tier(tier, sink);
}

}  // namespace tarry::delay
