#pragma once

// Shared by the config handlers: a topic's values and the source of each.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "broker/settings/broker_config.h"
#include "broker/settings/topic_config.h"
#include "storage/catalog.h"

namespace tarry::broker {

// Kafka's numbers.
enum class ResourceType : std::int8_t { topic = 2, broker = 4 };
enum class ConfigSource : std::int8_t { topic = 1, static_broker = 4, fallback = 5 };

struct TopicValue {
  const TopicConfigKey* key;
  std::string value;
  ConfigSource source;
  // The layers that have a value, the one that holds first.
  struct Synonym {
    std::string name;
    std::string value;
    ConfigSource source;
  };
  std::vector<Synonym> synonyms;
};

std::vector<TopicValue> values_of(const BrokerConfig& broker, const storage::Topic& topic);

}  // namespace tarry::broker
