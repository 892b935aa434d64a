#pragma once

// ShardCounters: a shard's clients and their requests.
//
// The session layer writes the figures of all requests; a handler writes those of its own API, on
// the shard where it starts and ends: ++context.shard.counters.X.

#include <cstdint>

#include "base/metrics.h"

namespace tarry::broker {

struct ShardCounters {
  std::uint64_t connections = 0;  // Now.
  std::uint64_t requests_total = 0;

  void report(MetricSink& sink) const {
    sink.gauge({"tarry_broker_connections", "Open client connections."}, connections);
    sink.counter({"tarry_broker_requests_total", "Requests received over the Kafka protocol."},
                 requests_total);
  }
};

}  // namespace tarry::broker
