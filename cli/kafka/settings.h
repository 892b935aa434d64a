#pragma once

// KafkaSettings: which brokers a command talks to over the Kafka protocol, and for how long it
// waits for them.

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tarry::cli {

struct KafkaSettings {
  std::string brokers;  // HOST:PORT[,...]
  std::chrono::milliseconds timeout;
  std::vector<std::string> properties;  // key=value of librdkafka's; they override ours.
  // Waits for a broker that is starting.  Without it, brokers on loopback that refuse connections
  // are an error at once.
  bool waits_for_start = false;
};

// Whether librdkafka knows the property and takes the value.  Errors: invalid.
Result<> check_property(std::string_view key_value);

}  // namespace tarry::cli
