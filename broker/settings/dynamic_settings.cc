#include "broker/settings/dynamic_settings.h"

namespace tarry::broker {
namespace {

// No key has a colon.
constexpr std::string_view of_cluster_prefix = "default:";

}  // namespace

const std::string* DynamicSettings::find(std::string_view key) const {
  for (const auto* layer : {&of_broker, &of_cluster}) {
    if (const auto found = layer->find(key); found != layer->end()) return &found->second;
  }
  return nullptr;
}

storage::Configs DynamicSettings::stored() const {
  storage::Configs all = of_broker;
  for (const auto& [key, value] : of_cluster)
    all.emplace(std::string(of_cluster_prefix) + key, value);
  return all;
}

DynamicSettings DynamicSettings::of_stored(const storage::Configs& stored) {
  DynamicSettings out;
  for (const auto& [key, value] : stored) {
    if (key.starts_with(of_cluster_prefix)) {
      out.of_cluster.emplace(key.substr(of_cluster_prefix.size()), value);
    } else {
      out.of_broker.emplace(key, value);
    }
  }
  return out;
}

}  // namespace tarry::broker
