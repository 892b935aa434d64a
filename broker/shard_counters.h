#pragma once

// ShardCounters: a shard's clients and their requests.
//
// The session layer writes the figures of all requests; a handler writes those of its own API, on
// the shard where it starts and ends: ++context.shard.counters.X.

#include <cstdint>
#include <string_view>

#include "base/metrics.h"

namespace tarry::broker {

struct ShardCounters {
  std::uint64_t connections = 0;             // Now.
  std::uint64_t kernel_tls_connections = 0;  // Of these, with TLS that the kernel encrypts.
  std::uint64_t requests_total = 0;
  std::uint64_t received_bytes_total = 0;  // From clients and to them, without what TLS adds.
  std::uint64_t sent_bytes_total = 0;
  std::uint64_t appended_records_total = 0;  // To the logs of its partitions.
  std::uint64_t failed_logins_total = 0;
  std::uint64_t expired_logins_total = 0;  // Their connections were closed.
  std::uint64_t refused_total = 0;         // For want of a right.

  struct Throttled {
    std::uint64_t requests_total = 0;
    double seconds_total = 0;
  };
  Throttled throttled_by_produce, throttled_by_fetch, throttled_by_request;  // Quotas.

  void report(MetricSink& sink) const {
    sink.gauge({"tarry_broker_connections", "Open client connections."}, connections);
    sink.gauge(
        {"tarry_broker_kernel_tls_connections",
         "Open client connections with TLS whose responses the kernel encrypts (kernel TLS)."},
        kernel_tls_connections);
    sink.counter({"tarry_broker_requests_total", "Requests received over the Kafka protocol."},
                 requests_total);
    sink.counter({"tarry_broker_received_bytes_total",
                  "Bytes received over the Kafka protocol, without what TLS adds."},
                 received_bytes_total);
    sink.counter({"tarry_broker_sent_bytes_total",
                  "Bytes sent over the Kafka protocol, without what TLS adds."},
                 sent_bytes_total);
    sink.counter({"tarry_broker_appended_records_total",
                  "Records appended to logs: records without a delay, deliveries, dead letters."},
                 appended_records_total);
    sink.counter({"tarry_failed_logins_total", "Clients that failed to authenticate over SASL.",
                  "failed_logins_total"},
                 failed_logins_total);
    sink.counter({"tarry_broker_expired_logins_total",
                  "Connections that were closed because their login had expired and the client did "
                  "not log in again."},
                 expired_logins_total);
    sink.counter({"tarry_authorization_denied_total",
                  "Operations that were denied because no rule allows them or one denies them.",
                  "authorization_denied_total"},
                 refused_total);
    const auto throttled = [&sink](std::string_view quota, const Throttled& of) {
      const MetricLabel label(sink, "quota", quota);
      sink.counter({"tarry_throttled_requests_total",
                    "Requests whose connection was muted because its client exceeded a quota.",
                    "throttled_requests_total"},
                   of.requests_total);
      sink.counter({"tarry_throttled_seconds_total",
                    "Time for which connections were muted because their clients exceeded a quota.",
                    "throttled_seconds_total"},
                   of.seconds_total);
    };
    throttled("producer_byte_rate", throttled_by_produce);
    throttled("consumer_byte_rate", throttled_by_fetch);
    throttled("request_percentage", throttled_by_request);
  }
};

}  // namespace tarry::broker
