#pragma once

// MetricsText: Prometheus' text format, version 0.0.4.
//
//   text.family("tarry_delay_pending", "gauge", "Records that wait for their time.");
//   text.sample(7);
//   text.sample(7, {{"topic", "orders"}});
//   text.sample(7, {{"le", "0.5"}}, "_bucket");     // tarry_..._bucket{le="0.5"} 7
//
// https://prometheus.io/docs/instrumenting/exposition_formats/

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace tarry::admin {

class MetricsText {
 public:
  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  // The samples that follow are of this one.
  void family(std::string_view name, std::string_view type, std::string_view help);
  void sample(std::integral auto value, Labels labels = {}, std::string_view suffix = {}) {
    begin_sample(labels, suffix);
    text_ += std::to_string(value) + "\n";
  }
  void sample(double value, Labels labels = {}, std::string_view suffix = {});

  std::string take() { return std::move(text_); }

 private:
  void begin_sample(Labels labels, std::string_view suffix);

  std::string text_;
  std::string name_;
};

}  // namespace tarry::admin
