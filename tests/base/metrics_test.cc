#include "base/metrics.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tarry {
namespace {

// Writes down what it is told.
class NoteSink final : public MetricSink {
 public:
  void histogram(const Metric& metric, const Distribution&, TimeUnit) override { note(metric); }
  std::vector<std::string> notes;

 private:
  void put(MetricType, const Metric& metric, const MetricValue&) override { note(metric); }
  void note(const Metric& metric) {
    std::string text(metric.name);
    for (const auto& [name, value] : labels()) text += " " + name + "=" + value;
    notes.push_back(text);
  }
};

TEST_SUITE("metrics") {
  TEST_CASE("the field in JSON is the name without tarry and folder, unless another one is given") {
    CHECK(Metric{"tarry_storage_fsyncs_total", ""}.json_field() == "fsyncs_total");
    CHECK(Metric{"tarry_delay_lag_seconds", "", "lag_ms"}.json_field() == "lag_ms");
    CHECK(Metric{"process_open_fds", "", "open_fds"}.json_field() == "open_fds");
  }

  TEST_CASE(
      "a label is on the metrics that are reported while it lives, inside of earlier labels") {
    NoteSink sink;
    {
      const MetricLabel shard(sink, "shard", "0");
      sink.gauge({"a", ""}, std::uint64_t{1});
      {
        const MetricLabel wheel(sink, "wheel", "requests");
        sink.counter({"b", ""}, std::uint64_t{1});
      }
      sink.histogram({"c", ""}, {}, TimeUnit::milliseconds);
    }
    sink.gauge({"d", ""}, true);
    CHECK(sink.notes ==
          std::vector<std::string>{"a shard=0", "b shard=0 wheel=requests", "c shard=0", "d"});
  }

  TEST_CASE("numbers add up; a flag holds when all do; of times the earliest is kept") {
    const auto sum = [](MetricValue value, const MetricValue& other) {
      add_to(value, other);
      return value;
    };
    using Time = std::optional<WallTime>;
    CHECK(sum(std::uint64_t{3}, std::uint64_t{4}) == MetricValue(std::uint64_t{7}));
    CHECK(sum(0.5, 0.25) == MetricValue(0.75));
    CHECK(sum(true, true) == MetricValue(true));
    CHECK(sum(true, false) == MetricValue(false));
    CHECK(sum(Time{}, Time{from_ms(5)}) == MetricValue(Time{from_ms(5)}));
    CHECK(sum(Time{from_ms(7)}, Time{from_ms(5)}) == MetricValue(Time{from_ms(5)}));
    CHECK(sum(Time{from_ms(7)}, Time{}) == MetricValue(Time{from_ms(7)}));
  }
}

}  // namespace
}  // namespace tarry
