#include "web/json_fields.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tarry::web {
namespace {

// As the pages show it: numbers keep their types.
std::string text_of(const JsonFields& fields) {
  return fields.object().dump();
}

TEST_SUITE("JSON fields") {
  TEST_CASE("the fields stand in the order of reporting; figures of two shards are added up") {
    JsonFields fields;
    for (const std::uint64_t n : {3, 4}) {
      fields.counter({"tarry_x_requests_total", ""}, n);
      fields.gauge({"tarry_x_connections", ""}, n * 10);
      fields.gauge({"process_cpu_seconds_total", "", "cpu_seconds"}, 0.25);
      fields.gauge({"tarry_x_has_room", ""}, n == 3);
      fields.gauge({"tarry_x_due_timestamp_seconds", "", "next_due"},
                   n == 3 ? std::nullopt : std::optional(from_ms(9)));
    }
    CHECK(
        text_of(fields) ==
        R"({"requests_total":7,"connections":70,"cpu_seconds":0.5,"has_room":false,"next_due":9})");
  }

  TEST_CASE("a histogram shows the last minutes; its total has the last minutes beside it") {
    Distribution waited;
    waited.total.add(1, 3);
    waited.total.add(7);
    waited.recent.add(7);
    const Metric metric{"tarry_x_waited_seconds", "", "waited_ms"};
    JsonFields recent, whole(JsonFields::Histograms::whole);
    recent.histogram(metric, waited, TimeUnit::milliseconds);
    whole.histogram(metric, waited, TimeUnit::milliseconds);
    whole.histogram(metric, waited, TimeUnit::milliseconds);
    CHECK(text_of(recent) == R"({"waited_ms":{"p50":7,"p99":7,"max":7,"count":1}})");
    CHECK(text_of(whole) == R"({"waited_ms":{"count":8,"sum":20,"p50":1,"p99":7,"max":7,)"
                            R"("buckets":[{"le":1,"count":6},{"le":7,"count":2}],)"
                            R"("recent":{"p50":7,"p99":7,"max":7,"count":2}}})");
  }

  TEST_CASE("a time counted in microseconds is shown in milliseconds with a fraction") {
    Distribution lag;
    lag.recent.add(1'500);
    JsonFields fields;
    fields.histogram({"tarry_x_lag_seconds", "", "lag_ms"}, lag, TimeUnit::microseconds);
    CHECK(text_of(fields) == R"({"lag_ms":{"p50":1.5,"p99":1.5,"max":1.5,"count":1}})");
  }
}

}  // namespace
}  // namespace tarry::web
