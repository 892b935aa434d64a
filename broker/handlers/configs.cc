#include "broker/handlers/configs.h"

namespace tarry::broker {

std::vector<TopicValue> values_of(const BrokerConfig& broker, const storage::Topic& topic) {
  std::vector<TopicValue> out;
  for (const auto& key : topic_config_keys()) {
    TopicValue value{&key, {}, {}, {}};
    if (const auto own = topic.configs.find(key.name); own != topic.configs.end()) {
      value.synonyms.push_back({std::string(key.name), own->second, ConfigSource::topic});
    }
    // What is as it would be anyway is no setting: tools show what somebody has chosen.
    const auto given = broker.topic_defaults.find(key.name);
    if (given != broker.topic_defaults.end() && given->second != key.fallback) {
      value.synonyms.push_back(
          {std::string(key.broker_name), given->second, ConfigSource::static_broker});
    }
    if (!key.broker_name.empty()) {
      value.synonyms.push_back(
          {std::string(key.broker_name), std::string(key.fallback), ConfigSource::fallback});
    }
    const bool is_set = !value.synonyms.empty();
    value.value = is_set ? value.synonyms.front().value : std::string(key.fallback);
    value.source = is_set ? value.synonyms.front().source : ConfigSource::fallback;
    out.push_back(std::move(value));
  }
  return out;
}

}  // namespace tarry::broker
