#include "admin/metrics_text.h"

#include <fmt/core.h>

namespace tarry::admin {
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

}  // namespace

void MetricsText::family(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  text_ += fmt::format("# HELP {} ", name);
  append_escaped(text_, help, false);
  text_ += fmt::format("\n# TYPE {} {}\n", name, type);
}

void MetricsText::sample(double value, Labels labels, std::string_view suffix) {
  begin_sample(labels, suffix);
  text_ += fmt::format("{}\n", value);
}

void MetricsText::begin_sample(Labels labels, std::string_view suffix) {
  text_ += name_;
  text_ += suffix;
  char separator = '{';
  for (const auto& [name, value] : labels) {
    text_ += std::exchange(separator, ',');
    text_ += name;
    text_ += "=\"";
    append_escaped(text_, value, true);
    text_ += '"';
  }
  text_ += labels.size() == 0 ? " " : "} ";
}

}  // namespace tarry::admin
