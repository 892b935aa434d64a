#pragma once

// MetricsText: writes the metrics that are reported to it in Prometheus' text format, version
// 0.0.4, or in that of OpenMetrics 1.0.
//
//   MetricsText text;
//   const MetricLabel label(text, "shard", "0");
//   journal.report(text);            // tarry_storage_fsyncs_total{shard="0"} 7
//   text.text();
//
// Families stand in the order in which they were first reported, with one HELP and one TYPE, and
// their samples by their labels.  A histogram covers all shards, because it is 35 lines: its
// label of the shard is left out.
//
// In OpenMetrics a counter's name is told without its _total, and the text ends with # EOF.
//
// https://prometheus.io/docs/instrumenting/exposition_formats/
// https://prometheus.io/docs/specs/om/open_metrics_spec/

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/histogram.h"
#include "base/metrics.h"

namespace tarry::web {

class MetricsText final : public MetricSink {
 public:
  void histogram(const Metric& metric, const Distribution& values, TimeUnit unit) override;

  enum class Format { prometheus, open_metrics };
  // The one that an Accept header asks for.
  static Format format_for(std::string_view accept);
  static std::string_view content_type(Format format);
  std::string text(Format format = Format::prometheus) const;

 private:
  // Samples by their labels as they are written, without braces.
  struct Family {
    std::string name;
    std::string help;
    std::string_view type;
    std::map<std::string, MetricValue> values;
    std::map<std::string, Histogram> histograms;
    double units_per_second = 1;  // The unit of the histograms.
  };

  void put(MetricType type, const Metric& metric, const MetricValue& value) override;
  Family& family(const Metric& metric, std::string_view type);
  std::string label_text(std::string_view left_out = {}) const;

  std::vector<Family> families_;
  std::map<std::string, std::size_t, std::less<>> places_;  // In families_, by name.
};

}  // namespace tarry::web
