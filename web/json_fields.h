#pragma once

// JsonFields: turns the metrics that are reported to it into the fields of one JSON object, in
// order.
//
//   JsonFields delayed;
//   for (const auto& shard : shards) shard.delay.report(delayed);    // Added up.
//   body["delayed"] = delayed.object();
//
// Labels are left out: a handler makes one object for each thing that it shows on its own.  A
// histogram becomes p50, p99 and max in milliseconds, and the count of its values.
//
// For .cc files alone: it brings nlohmann/json with it.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/histogram.h"
#include "base/metrics.h"
#include "web/json_reply.h"

namespace tarry::web {

class JsonFields final : public MetricSink {
 public:
  enum class Histograms : std::uint8_t {
    recent,  // The figures of the last minutes.
    whole,   // Since the start, with sum and buckets; `recent` beside them.
  };

  explicit JsonFields(Histograms histograms = Histograms::recent) : histograms_(histograms) {}

  void histogram(const Metric& metric, const Distribution& values, TimeUnit unit) override;

  void put_into(Json& object) const;
  Json object() const;

 private:
  struct TimeDistribution {
    Distribution values;
    TimeUnit unit = TimeUnit::milliseconds;
  };
  struct Field {
    std::string name;
    std::string metric;  // The metric of the field.
    std::variant<MetricValue, TimeDistribution> value;
  };

  void put(MetricType type, const Metric& metric, const MetricValue& value) override;
  // The field of `metric`, if it was reported before.
  Field* find(const Metric& metric);

  const Histograms histograms_;
  std::vector<Field> fields_;
};

}  // namespace tarry::web
