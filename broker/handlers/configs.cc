#include "broker/handlers/configs.h"

#include <utility>

#include <fmt/core.h>

#include "base/log.h"

namespace tarry::broker {
namespace {

void add_dynamic(std::vector<ConfigSynonym>& to, const DynamicSettings& dynamic,
                 std::string_view key) {
  for (const auto& [layer, source] :
       {std::pair(&dynamic.of_broker, ConfigSource::dynamic_broker),
        std::pair(&dynamic.of_cluster, ConfigSource::dynamic_cluster)}) {
    if (const auto found = layer->find(key); found != layer->end())
      to.push_back({std::string(key), found->second, source});
  }
}

}  // namespace

std::vector<ConfigSynonym> synonyms_of(const BrokerConfig& broker, const ConfigEntry& entry) {
  std::vector<ConfigSynonym> out;
  add_dynamic(out, broker.dynamic, entry.name);
  if (!entry.is_default) out.push_back({entry.name, entry.value, ConfigSource::static_broker});
  out.push_back({entry.name, entry.fallback, ConfigSource::fallback});
  return out;
}

std::optional<LiveSettings::Scope> scope_of(const BrokerIdentity& broker, std::string_view name) {
  if (name.empty()) return LiveSettings::Scope::cluster;
  if (name == std::to_string(broker.node_id)) return LiveSettings::Scope::broker;
  return std::nullopt;
}

std::string unknown_broker_text(const BrokerIdentity& broker, std::string_view name) {
  return fmt::format("Unexpected broker id, expected {} or empty string, but received {}",
                     broker.node_id, printable(name));
}

std::string too_many_configs_text(std::size_t count) {
  return fmt::format("{} configs for one resource; the limit is {}", count, max_configs);
}

std::vector<TopicValue> values_of(const BrokerConfig& broker, const storage::Topic& topic) {
  std::vector<TopicValue> out;
  for (const auto& key : topic_config_keys()) {
    TopicValue value{&key, {}, {}, {}};
    if (const auto own = topic.configs.find(key.name); own != topic.configs.end()) {
      value.synonyms.push_back({std::string(key.name), own->second, ConfigSource::topic});
    }
    add_dynamic(value.synonyms, broker.dynamic, key.broker_name);
    // A value that equals the default is not a setting: tools show only chosen values.
    const auto given = broker.given_topic_defaults.find(key.name);
    if (given != broker.given_topic_defaults.end() && given->second != key.fallback) {
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
