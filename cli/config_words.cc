#include "cli/config_words.h"

#include <string_view>

#include "base/time_text.h"

namespace tarry::cli {
namespace {

std::string config_value(std::string_view key, std::string_view value) {
  // A name with such an end says the unit; of other values nothing is known.
  if (key.ends_with(".ms")) {
    if (const auto duration = parse_duration(value)) return std::to_string(duration->count());
  } else if (key.ends_with(".bytes")) {
    if (const auto size = parse_size(value)) return std::to_string(*size);
  }
  return std::string(value);
}

}  // namespace

// Values are brought to Kafka's plain numbers here, as other brokers know no 7d or 1MiB.
ConfigList config_list(const std::vector<std::string>& words) {
  ConfigList list;
  for (const auto& word : words) {
    const auto equals = word.find('=');
    const auto key = word.substr(0, equals);
    list.emplace_back(key, config_value(key, word.substr(equals + 1)));
  }
  return list;
}

std::string with_example(std::string refusal, const std::vector<std::string>& words) {
  if (refusal.contains(" as in ")) return refusal;
  for (const auto& word : words) {
    const auto key = word.substr(0, word.find('='));
    // The words in which Tarry and Kafka refuse a value.
    if (!refusal.contains("for configuration " + key)) continue;
    if (key.ends_with(".ms")) return refusal + ", or as in 90s and 7d";
    if (key.ends_with(".bytes")) return refusal + ", or as in 64KiB and 1GiB";
  }
  return refusal;
}

}  // namespace tarry::cli
