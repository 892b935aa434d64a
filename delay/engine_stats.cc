#include "delay/engine.h"

namespace tarry::delay {

void Engine::Stats::report(MetricSink& sink) const {
  sink.gauge({"tarry_delay_near", "Pending records that are in memory."}, near);
  sink.gauge({"tarry_delay_near_bytes", "Memory for what is near."}, bytes);
  sink.gauge({"tarry_delay_overdue", "Records that are due and not delivered yet."}, overdue);
  sink.gauge({"tarry_delay_in_flight", "Records of them that are being written."}, in_flight);
  sink.gauge({"tarry_delay_arriving", "Records that are not durable yet."}, arriving);
  sink.counter({"tarry_delay_delivered_total", "Records that were delivered."}, delivered_total);
  sink.counter({"tarry_delay_early_total", "Records delivered before their time: always 0."},
               early_total);
  sink.counter({"tarry_delay_cancelled_total", "Records that were cancelled."}, cancelled_total);
  sink.counter(
      {"tarry_delay_cancel_unknown_total", "Cancels by clients of ids that were not pending."},
      cancel_unknown_total);
  sink.counter(
      {"tarry_delay_cancel_late_total", "Cancels by clients of records that were on their way."},
      cancel_late_total);
  sink.counter({"tarry_delay_replaced_total", "Records that another one of their id replaced."},
               replaced_total);
  sink.counter({"tarry_delay_expired_total", "Records dropped for their x-expire-at."},
               expired_total);
  sink.counter({"tarry_delay_dropped_total", "Records whose topic was deleted."}, dropped_total);
  sink.counter({"tarry_delay_damaged_total",
                "Due records that are kept and cannot be read; the log names them."},
               damaged_total);
  sink.counter({"tarry_delay_refused_total", "Deliveries that had to be tried again."},
               refused_total);
  sink.histogram({"tarry_delay_lag_seconds", "From due to durable in the log.", "lag_ms"}, lag_us,
                 TimeUnit::microseconds);
}

}  // namespace tarry::delay
