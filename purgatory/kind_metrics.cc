#include "purgatory/kind_metrics.h"

#include <string_view>

namespace tarry::purgatory {

void KindStats::report(MetricSink& sink) const {
  sink.counter({"tarry_purgatory_started_total", "Requests that were started.", "started"},
               started);
  const auto answered = [&sink](std::string_view outcome, std::string_view field,
                                std::uint64_t requests) {
    const MetricLabel label(sink, "outcome", outcome);
    sink.counter({"tarry_purgatory_answered_total", "Requests that were answered.", field},
                 requests);
  };
  answered("at_once", "answered_at_once", answered_at_once);
  sink.gauge({"tarry_purgatory_waiting", "Parked requests: those that wait for their answer."},
             waiting);
  sink.gauge({"tarry_purgatory_queued", "Requests whose answer is decided but not given yet."},
             queued);
  answered("satisfied", "satisfied", satisfied);
  answered("expired", "expired", expired);
  answered("cancelled", "cancelled", cancelled);
  sink.counter({"tarry_purgatory_withdrawn_total",
                "Requests that were withdrawn before their answer.", "withdrawn"},
               withdrawn);
  sink.histogram({"tarry_purgatory_waited_seconds",
                  "Time from start to answer of requests that were parked.", "waited_ms"},
                 waited_ms, TimeUnit::milliseconds);
  sink.histogram({"tarry_purgatory_late_seconds",
                  "Time from deadline to answer of requests that expired.", "late_ms"},
                 late_ms, TimeUnit::milliseconds);
}

}  // namespace tarry::purgatory
