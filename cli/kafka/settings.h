#pragma once

// KafkaSettings: which brokers a command talks to over the Kafka protocol, and for how long it
// waits for them.

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tarry::cli {

struct KafkaSettings {
  std::string brokers;  // HOST:PORT[,...]
  std::chrono::milliseconds timeout;
  // key=value of librdkafka's, or @FILE with such lines; they override ours.
  std::vector<std::string> properties;
  // Waits for a broker that is starting.  Without it, brokers on loopback that refuse connections
  // are an error at once.
  bool waits_for_start = false;
  // Ends the waits of all questions together; empty: each has its timeout.
  std::optional<std::chrono::steady_clock::time_point> deadline{};
};

// "@FILE" in the place of a property: the properties of a file, a line each, as librdkafka's own
// tools read them.  A password in it does not stand on a command line, which every user can see.
inline bool is_properties_file(std::string_view word) {
  return word.starts_with('@');
}

// With the properties of files in the place of their names.  Errors name the file and the line.
Result<std::vector<std::string>> expand_properties(const std::vector<std::string>& words);
Result<KafkaSettings> expanded(const KafkaSettings& settings);

// Whether librdkafka knows the property, or those of the file, and takes the value.
Result<> check_property(std::string_view word);

}  // namespace tarry::cli
