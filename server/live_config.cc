#include "server/live_config.h"

#include <utility>
#include <vector>

#include "base/assert.h"
#include "server/config_keys.h"
#include "server/config_layers.h"

namespace tarry::server {

namespace {

bool has_tls_settings(const broker::DynamicSettings& dynamic) {
  for (const auto* configs : {&dynamic.of_cluster, &dynamic.of_broker}) {
    for (const auto& [key, value] : *configs) {
      if (key.starts_with("ssl.") || key.contains(".ssl.")) return true;
    }
  }
  return false;
}

}  // namespace

LiveConfig::LiveConfig(Config at_start, std::function<void(const Config&)> on_change,
                       std::function<Result<>(const Config&)> check)
    : at_start_(std::move(at_start)), on_change_(std::move(on_change)), check_(std::move(check)) {}

Result<std::string> LiveConfig::canonical(std::string_view key, std::string_view value) const {
  const auto* found = find_setting_key(key);
  TARRY_ASSERT(found != nullptr, "the broker knows the keys from this table");
  // One of its own: the value may be wrong, and is only looked at.
  Config scratch;
  if (const auto put = found->apply(scratch, value); !put) return std::unexpected(put.error());
  return found->canonical(value);
}

Result<Config> LiveConfig::merged(const broker::DynamicSettings& dynamic) const {
  if (dynamic.of_cluster.empty() && dynamic.of_broker.empty()) {
    Config config = at_start_;
    config.broker.given_topic_defaults = config.broker.topic_defaults;
    return config;
  }
  // Clients' settings are two layers above all that was given at the start.
  auto layers = at_start_.given;
  // In this order: a broker's own setting takes precedence over that of the cluster.
  for (const auto* configs : {&dynamic.of_cluster, &dynamic.of_broker}) {
    auto& layer = layers.emplace_back();
    for (const auto& [key, value] : *configs) layer.push_back({"a client's", key, value});
  }
  auto config = make_config(layers);
  if (!config) return config;
  // The entries of file and flags, for DescribeConfigs.
  config->broker.entries = at_start_.broker.entries;
  config->broker.given_topic_defaults = at_start_.broker.topic_defaults;
  return config;
}

Result<broker::BrokerConfig> LiveConfig::config_with(const broker::DynamicSettings& dynamic) const {
  auto config = merged(dynamic);
  if (!config) return std::unexpected(config.error());
  return std::move(config->broker);
}

Result<> LiveConfig::check(const broker::DynamicSettings& dynamic) const {
  // The check reads files, for which a change of anything else need not wait.
  if (!check_ || !has_tls_settings(dynamic)) return {};
  const auto config = merged(dynamic);
  if (!config) return std::unexpected(config.error());
  return check_(*config);
}

void LiveConfig::changed(const broker::DynamicSettings& dynamic) {
  const auto config = merged(dynamic);
  TARRY_ASSERT(config.has_value(), "settings are checked before they hold");
  on_change_(*config);
}

}  // namespace tarry::server
