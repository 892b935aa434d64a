#pragma once

// Metrics: a figure is declared once, and every page of figures is made from that.
//
// A shard's figure is declared beside the struct that holds it; figures by topic, user or group
// are declared in admin/metrics_routes.cc, from broker/views/metric_series.
//
//   struct JournalStats {                     // Plain fields: the code that counts says ++syncs.
//     std::uint64_t syncs = 0;
//     void report(MetricSink& sink) const;    // The statement, beside them:
//   };
//   void JournalStats::report(MetricSink& sink) const {
//     sink.counter({"tarry_storage_fsyncs_total", "Syncs of the journal."}, syncs);
//   }
//
//   a shard's structs --copied on its thread--> report(sink) --+--> MetricsText: /metrics
//                                                              '--> JsonFields: /status, /purgatory
//
// A statement has Prometheus' name, which ends in the unit, its help text, and the name of the
// field in JSON where that differs.  The sinks are in web/.  They add up the reports that have the
// same name and labels: so the shards become one figure, or, under a label, one for each.
//
// Invariants
//   - Counting is a plain increment of a field; names, labels and sums are made when someone asks.
//   - A name has one statement, which gives it one type and one help text.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/histogram.h"

namespace tarry {

struct Metric {
  std::string_view name;        // "tarry_FOLDER_..."
  std::string_view help;        // A sentence.
  std::string_view field = {};  // In JSON; empty: the name without "tarry_FOLDER_".

  std::string_view json_field() const;
};

enum class MetricType : std::uint8_t { counter, gauge };

// A time is shown in epoch seconds or milliseconds, and left out or null where there is none.
using MetricValue = std::variant<bool, std::uint64_t, double, std::optional<WallTime>>;

// Adds what another part of the broker says of the same figure: sums; of times the earliest; true
// when both are.  Both hold the same type.
void add_to(MetricValue& value, const MetricValue& other);

// The unit of a histogram's values.  Prometheus is told seconds, JSON milliseconds.
enum class TimeUnit : std::uint8_t { microseconds, milliseconds };

class MetricSink {
 public:
  virtual ~MetricSink() = default;

  // A counter goes up from 0 since the start, and its name ends in _total.
  void counter(const Metric& metric, const MetricValue& value) {
    put(MetricType::counter, metric, value);
  }
  // A gauge is a value of this moment.
  void gauge(const Metric& metric, const MetricValue& value) {
    put(MetricType::gauge, metric, value);
  }
  // Prometheus is told the total: it works out the last minutes by itself.
  virtual void histogram(const Metric& metric, const Distribution& values, TimeUnit unit) = 0;

 protected:
  using Labels = std::vector<std::pair<std::string, std::string>>;
  const Labels& labels() const { return labels_; }

 private:
  friend class MetricLabel;
  virtual void put(MetricType type, const Metric& metric, const MetricValue& value) = 0;

  Labels labels_;
};

// Puts a label on everything that the sink is told while it lives.
class MetricLabel {
 public:
  MetricLabel(MetricSink& sink, std::string_view name, std::string_view value) : sink_(sink) {
    sink_.labels_.emplace_back(name, value);
  }
  ~MetricLabel() { sink_.labels_.pop_back(); }
  MetricLabel(const MetricLabel&) = delete;
  MetricLabel& operator=(const MetricLabel&) = delete;

 private:
  MetricSink& sink_;
};

}  // namespace tarry
