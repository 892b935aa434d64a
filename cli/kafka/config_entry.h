#pragma once

// ConfigEntry: one config of a topic, or of the broker itself, as a broker shows it.

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tarry::cli {

struct ConfigEntry {
  std::string name;
  std::optional<std::string> value;  // Empty for a sensitive one.
  std::string source;                // "topic", "broker", "default", ...
  bool is_read_only = false;         // A broker's that only a restart changes.
};

// Names and values to set.
using ConfigList = std::vector<std::pair<std::string, std::string>>;

}  // namespace tarry::cli
