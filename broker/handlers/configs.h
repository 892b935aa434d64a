#pragma once

// Shared by the config handlers: the values of a topic and of the broker, with the source of each.
//
//   topic's own > this broker's, set live > all brokers', set live > file or option > default
//
// The first layer that has a value holds; the others are its synonyms, in that order, so that a
// client sees what would hold if it removed the value.  Secrets are not hidden here but where the
// answer is made.
//
// Pure: from a shard's own copy of the settings, on its thread.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "broker/settings/broker_config.h"
#include "broker/settings/topic_config.h"
#include "broker/topics/live_settings.h"
#include "storage/catalog.h"

namespace tarry::broker {

// Kafka's numbers.
enum class ResourceType : std::int8_t { topic = 2, broker = 4 };
enum class ConfigSource : std::int8_t {
  topic = 1,
  dynamic_broker = 2,
  dynamic_cluster = 3,  // Kafka's DYNAMIC_DEFAULT_BROKER_CONFIG.
  static_broker = 4,
  fallback = 5
};

// The limit for one topic or broker in a request that sets configs: ten times as many as there are.
inline constexpr std::size_t max_configs = 1000;
std::string too_many_configs_text(std::size_t count);

// A layer that has a value.
struct ConfigSynonym {
  std::string name;
  std::string value;
  ConfigSource source;
};

struct TopicValue {
  const TopicConfigKey* key;
  std::string value;
  ConfigSource source;
  std::vector<ConfigSynonym> synonyms;  // The one that holds first.
};

// The synonyms of a broker's key, the one that holds first; the last is the built-in default.
std::vector<ConfigSynonym> synonyms_of(const BrokerConfig& broker, const ConfigEntry& entry);

// The dynamic settings that a resource of the type broker means; empty: no such resource.
std::optional<LiveSettings::Scope> scope_of(const BrokerIdentity& broker, std::string_view name);
std::string unknown_broker_text(const BrokerIdentity& broker, std::string_view name);

std::vector<TopicValue> values_of(const BrokerConfig& broker, const storage::Topic& topic);

}  // namespace tarry::broker
