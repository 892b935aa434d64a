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
  std::uint64_t failed_logins_total = 0;
  std::uint64_t refused_total = 0;  // For want of a right.

  void report(MetricSink& sink) const {
    sink.gauge({"tarry_broker_connections", "Open client connections."}, connections);
    sink.counter({"tarry_broker_requests_total", "Requests received over the Kafka protocol."},
                 requests_total);
    sink.counter({"tarry_failed_logins_total", "Clients that failed to authenticate over SASL.",
                  "failed_logins_total"},
                 failed_logins_total);
    sink.counter({"tarry_authorization_denied_total",
                  "Operations that were denied because no rule allows them or one denies them.",
                  "authorization_denied_total"},
                 refused_total);
  }
};

}  // namespace tarry::broker
