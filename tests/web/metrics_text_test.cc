#include "web/metrics_text.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tarry::web {
namespace {

std::size_t count_of(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

void report(std::uint64_t requests, MetricSink& sink) {
  sink.counter({"tarry_x_requests_total", "Requests."}, requests);
}

TEST_SUITE("metrics text") {
  TEST_CASE("OpenMetrics tells a counter's name without _total, and ends with # EOF") {
    MetricsText text;
    report(10, text);
    text.gauge({"tarry_x_room", "Room, \"free\"."}, std::uint64_t{1});
    CHECK(text.text(MetricsText::Format::open_metrics) ==
          "# HELP tarry_x_requests Requests.\n"
          "# TYPE tarry_x_requests counter\n"
          "tarry_x_requests_total 10\n"
          "# HELP tarry_x_room Room, \\\"free\\\".\n"
          "# TYPE tarry_x_room gauge\n"
          "tarry_x_room 1\n"
          "# EOF\n");
  }

  TEST_CASE("OpenMetrics is only for clients that ask for it and do not prefer plain text") {
    using enum MetricsText::Format;
    for (const auto& [accept, format] :
         {std::pair{"", prometheus},
          {"*/*", prometheus},
          {"text/plain", prometheus},
          {"application/openmetrics-text", open_metrics},
          {"Application/OpenMetrics-Text; version=1.0.0", open_metrics},
          {"application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
           open_metrics},
          {"text/plain;q=0.9, application/openmetrics-text;q=0.3", prometheus},
          {"application/openmetrics-text;q=0", prometheus},
          {"application/openmetrics-text;q=x", prometheus},
          {"application/openmetrics-textual", prometheus}}) {
      CAPTURE(accept);
      CHECK(MetricsText::format_for(accept) == format);
    }
  }

  TEST_CASE("a family that two shards report stands together, with one help and one type") {
    MetricsText text;
    for (const std::uint64_t shard : {0, 1}) {
      const MetricLabel label(text, "shard", std::to_string(shard));
      report(10 + shard, text);
      text.gauge({"tarry_x_has_room", "Room."}, shard == 0);
    }
    CHECK(text.text() ==
          "# HELP tarry_x_requests_total Requests.\n"
          "# TYPE tarry_x_requests_total counter\n"
          "tarry_x_requests_total{shard=\"0\"} 10\n"
          "tarry_x_requests_total{shard=\"1\"} 11\n"
          "# HELP tarry_x_has_room Room.\n"
          "# TYPE tarry_x_has_room gauge\n"
          "tarry_x_has_room{shard=\"0\"} 1\n"
          "tarry_x_has_room{shard=\"1\"} 0\n");
  }

  TEST_CASE("a metric that two shards report without a label is one sample, their sum") {
    MetricsText text;
    report(3, text);
    report(4, text);
    CHECK(text.text().ends_with("\ntarry_x_requests_total 7\n"));
  }

  TEST_CASE("a time is in seconds, and a missing one is no sample") {
    MetricsText text;
    const Metric metric{"tarry_x_due_timestamp_seconds", "When."};
    text.gauge(metric, std::optional<WallTime>());
    CHECK(text.text().empty());
    text.gauge(metric, std::optional(from_ms(1'795'255'200'500)));
    CHECK(text.text().ends_with("\ntarry_x_due_timestamp_seconds 1795255200.5\n"));
  }

  TEST_CASE(
      "a label's quotes, backslashes and line ends are escaped, and a help's but for quotes") {
    MetricsText text;
    const MetricLabel label(text, "topic", "a\"b\\c\nd");
    text.gauge({"tarry_x_y", "A \"b\\c\nd."}, std::uint64_t{1});
    CHECK(text.text() ==
          "# HELP tarry_x_y A \"b\\\\c\\nd.\n"
          "# TYPE tarry_x_y gauge\n"
          "tarry_x_y{topic=\"a\\\"b\\\\c\\nd\"} 1\n");
  }

  TEST_CASE("a histogram is one for all shards: everything since the start, in seconds") {
    MetricsText text;
    for (const std::uint64_t shard : {0, 1}) {
      const MetricLabel label(text, "shard", std::to_string(shard));
      Distribution lag;
      lag.total.add(1'000);
      lag.total.add(2'000'000 + shard);
      text.histogram({"tarry_x_lag_seconds", "Lag."}, lag, TimeUnit::microseconds);
    }
    const auto body = text.text();
    CHECK(body.starts_with(
        "# HELP tarry_x_lag_seconds Lag.\n# TYPE tarry_x_lag_seconds histogram\n"));
    CHECK(count_of(body, "# TYPE") == 1);
    CHECK(count_of(body, "shard") == 0);
    CHECK(count_of(body, "_bucket{le=") == 33);
    CHECK(count_of(body, "\ntarry_x_lag_seconds_bucket{le=\"0.000511\"} 0\n") == 1);
    CHECK(count_of(body, "\ntarry_x_lag_seconds_bucket{le=\"0.001023\"} 2\n") == 1);
    CHECK(count_of(body, "\ntarry_x_lag_seconds_bucket{le=\"1.048575\"} 2\n") == 1);
    CHECK(count_of(body, "\ntarry_x_lag_seconds_bucket{le=\"2.097151\"} 4\n") == 1);
    CHECK(
        body.ends_with("\ntarry_x_lag_seconds_bucket{le=\"+Inf\"} 4\n"
                       "tarry_x_lag_seconds_sum 4.002001\n"
                       "tarry_x_lag_seconds_count 4\n"));
  }
}

}  // namespace
}  // namespace tarry::web
