#include "cli/kafka/config_lookup.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/edit_distance.h"
#include "cli/kafka/admin_request.h"
#include "cli/kafka/error_text.h"
#include "cli/kafka/handles.h"

namespace tarry::cli {
namespace {

// A word with more slips than that was another one.
constexpr std::size_t max_typing_errors = 3;
// The time of a comparison grows with both lengths, and a broker may answer with names of any.
constexpr std::size_t max_compared = 99;

const char* source_text(rd_kafka_ConfigSource_t source, rd_kafka_ResourceType_t of) {
  // To a topic all that is set for the broker is one source; on the broker itself these can be
  // changed in different ways.
  if (of == RD_KAFKA_RESOURCE_BROKER) {
    if (source == RD_KAFKA_CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG) return "cluster";
    // The file, --set or a flag of its start: the protocol does not tell which.
    if (source == RD_KAFKA_CONFIG_SOURCE_STATIC_BROKER_CONFIG) return "start";
  }
  switch (source) {
    case RD_KAFKA_CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG:
      return "topic";
    case RD_KAFKA_CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG:
    case RD_KAFKA_CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG:
    case RD_KAFKA_CONFIG_SOURCE_STATIC_BROKER_CONFIG:
      return "broker";
    case RD_KAFKA_CONFIG_SOURCE_DEFAULT_CONFIG:
      return "default";
    default:
      return "unknown";
  }
}

Result<std::vector<ConfigEntry>> find_configs_of(KafkaConnection& connection,
                                                 rd_kafka_ResourceType_t type,
                                                 const std::string& name) {
  const ConfigResource resource(rd_kafka_ConfigResource_new(type, name.c_str()));
  const auto event =
      ask_admin(connection, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS, [&](auto* options, auto* queue) {
        auto* one = resource.get();
        rd_kafka_DescribeConfigs(connection.client(), &one, 1, options, queue);
      });
  if (!event) return std::unexpected(event.error());
  std::size_t count = 0;
  const auto* result = rd_kafka_event_DescribeConfigs_result(event->get());
  const auto** resources = rd_kafka_DescribeConfigs_result_resources(result, &count);
  const auto whose = type == RD_KAFKA_RESOURCE_BROKER ? broker_name(name) : name;
  if (const auto ok = config_result(connection, whose, resources, count); !ok)
    return std::unexpected(ok.error());
  const auto** entries = rd_kafka_ConfigResource_configs(resources[0], &count);
  std::vector<ConfigEntry> configs;
  for (std::size_t i = 0; i < count; ++i) {
    // Null for a password, which brokers do not tell.
    const char* value = rd_kafka_ConfigEntry_value(entries[i]);
    configs.push_back({rd_kafka_ConfigEntry_name(entries[i]),
                       value == nullptr ? std::nullopt : std::optional<std::string>(value),
                       source_text(rd_kafka_ConfigEntry_source(entries[i]), type),
                       rd_kafka_ConfigEntry_is_read_only(entries[i]) == 1});
  }
  // Each broker has an order of its own; sorted, two outputs can be compared.
  std::ranges::sort(configs, {}, &ConfigEntry::name);
  return configs;
}

}  // namespace

std::string nearest_config(const std::vector<ConfigEntry>& configs, const std::string& word) {
  std::string nearest;
  if (word.size() > max_compared) return nearest;
  std::size_t nearest_distance = max_typing_errors + 1;
  for (const auto& config : configs) {
    const auto distance = edit_distance(word, config.name.substr(0, max_compared));
    if (distance >= nearest_distance) continue;
    nearest_distance = distance;
    nearest = config.name;
  }
  return nearest;
}

std::string broker_name(const std::string& id) {
  return "broker " + id;
}

Result<> config_result(KafkaConnection& connection, const std::string& whose,
                       const rd_kafka_ConfigResource_t** results, std::size_t count) {
  if (count != 1) return fail(Errc::io, whose + ": the broker's answer does not name it");
  const auto error = rd_kafka_ConfigResource_error(results[0]);
  if (error == RD_KAFKA_RESP_ERR_NO_ERROR) return {};
  return connection.error_of(name_text(whose), error,
                             rd_kafka_ConfigResource_error_string(results[0]));
}

Result<std::vector<ConfigEntry>> find_configs(KafkaConnection& connection,
                                              const std::string& topic) {
  return find_configs_of(connection, RD_KAFKA_RESOURCE_TOPIC, topic);
}

Result<std::vector<ConfigEntry>> find_broker_configs(KafkaConnection& connection,
                                                     std::int32_t broker) {
  return find_configs_of(connection, RD_KAFKA_RESOURCE_BROKER, std::to_string(broker));
}

}  // namespace tarry::cli
