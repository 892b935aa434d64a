#include "web/metrics_text.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <system_error>
#include <variant>

#include <fmt/core.h>

#include "base/ascii_case.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/list_text.h"

namespace tarry::web {
namespace {

void append_escaped(std::string& to, std::string_view text, bool quotes) {
  for (const char c : text) {
    if (c == '\\') {
      to += "\\\\";
    } else if (c == '\n') {
      to += "\\n";
    } else if (c == '"' && quotes) {
      to += "\\\"";
    } else {
      to += c;
    }
  }
}

std::string number_text(bool value) {
  return value ? "1" : "0";
}
std::string number_text(std::uint64_t value) {
  return std::to_string(value);
}
std::string number_text(double value) {
  return fmt::format("{}", value);
}
std::string number_text(const std::optional<WallTime>& time) {
  return number_text(static_cast<double>(to_ms(time.value())) / 1e3);
}

bool says_nothing(const MetricValue& value) {
  const auto* time = std::get_if<std::optional<WallTime>>(&value);
  return time != nullptr && !time->has_value();
}

// One line; `suffix` is of the name, `le` a bucket's bound.
template <typename Number>
void append_sample(std::string& to, std::string_view name, std::string_view suffix,
                   std::string_view labels, std::string_view le, const Number& value) {
  to += name;
  to += suffix;
  if (!labels.empty() || !le.empty()) {
    to += '{';
    to += labels;
    if (!le.empty()) {
      if (!labels.empty()) to += ',';
      to += "le=\"";
      to += le;
      to += '"';
    }
    to += '}';
  }
  to += ' ';
  to += number_text(value);
  to += '\n';
}

void append_histogram(std::string& to, std::string_view name, std::string_view labels,
                      const Histogram& values, double units_per_second) {
  values.for_each_exported([&](std::uint64_t bound, std::uint64_t up_to) {
    const auto le = number_text(static_cast<double>(bound) / units_per_second);
    append_sample(to, name, "_bucket", labels, le, up_to);
  });
  append_sample(to, name, "_bucket", labels, "+Inf", values.count());
  append_sample(to, name, "_sum", labels, {}, static_cast<double>(values.sum()) / units_per_second);
  append_sample(to, name, "_count", labels, {}, values.count());
}

// How much an Accept header wants a media type, from 0 to 1; 0 if it does not name it.
double weight_of(std::string_view accept, std::string_view type) {
  double most = 0;
  while (!accept.empty()) {
    std::string_view range = take_element(accept, ',');
    if (!equals_ignoring_case(take_element(range, ';'), type)) continue;
    double weight = 1;
    while (!range.empty()) {
      const auto parameter = take_element(range, ';');
      if (!parameter.starts_with("q=")) continue;
      const auto value = parameter.substr(2);
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), weight);
      if (error != std::errc{} || end != value.data() + value.size()) weight = 0;
    }
    most = std::max(most, weight);
  }
  return most;
}

}  // namespace

MetricsText::Family& MetricsText::family(const Metric& metric, std::string_view type) {
  const auto [place, is_new] = places_.try_emplace(std::string(metric.name), families_.size());
  if (is_new)
    families_.push_back({std::string(metric.name), std::string(metric.help), type, {}, {}});
  Family& family = families_[place->second];
  TARRY_ASSERT(family.type == type && family.help == metric.help, "a metric is stated once");
  return family;
}

std::string MetricsText::label_text(std::string_view left_out) const {
  std::string text;
  for (const auto& [name, value] : labels()) {
    if (name == left_out) continue;
    if (!text.empty()) text += ',';
    text += name + "=\"";
    append_escaped(text, value, true);
    text += '"';
  }
  return text;
}

void MetricsText::put(MetricType type, const Metric& metric, const MetricValue& value) {
  // Prometheus has no null, and 0 would be a time in 1970.
  if (says_nothing(value)) return;
  auto& values = family(metric, type == MetricType::counter ? "counter" : "gauge").values;
  const auto [sample, is_new] = values.try_emplace(label_text(), value);
  if (!is_new) add_to(sample->second, value);
}

void MetricsText::histogram(const Metric& metric, const Distribution& values, TimeUnit unit) {
  Family& of = family(metric, "histogram");
  of.units_per_second = unit == TimeUnit::microseconds ? 1e6 : 1e3;
  // Over all shards, because each histogram is some dozen lines.
  of.histograms[label_text("shard")].add(values.total);
}

MetricsText::Format MetricsText::format_for(std::string_view accept) {
  // Only a client that names OpenMetrics gets it: for */* both weights are 0.
  const double open_metrics = weight_of(accept, "application/openmetrics-text");
  const bool asked = open_metrics > 0 && open_metrics >= weight_of(accept, "text/plain");
  return asked ? Format::open_metrics : Format::prometheus;
}

std::string_view MetricsText::content_type(Format format) {
  return format == Format::open_metrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

std::string MetricsText::text(Format format) const {
  std::string text;
  for (const auto& family : families_) {
    std::string_view name = family.name;
    if (format == Format::open_metrics && family.type == "counter") {
      constexpr std::string_view suffix = "_total";
      TARRY_ASSERT(name.ends_with(suffix), "a counter's name ends in _total");
      name.remove_suffix(suffix.size());
    }
    text += fmt::format("# HELP {} ", name);
    // A quote is escaped in a help text of OpenMetrics alone.
    append_escaped(text, family.help, format == Format::open_metrics);
    text += fmt::format("\n# TYPE {} {}\n", name, family.type);
    for (const auto& [labels, value] : family.values) {
      std::visit([&](const auto& held) { append_sample(text, family.name, {}, labels, {}, held); },
                 value);
    }
    for (const auto& [labels, values] : family.histograms)
      append_histogram(text, family.name, labels, values, family.units_per_second);
  }
  if (format == Format::open_metrics) text += "# EOF\n";
  return text;
}

}  // namespace tarry::web
