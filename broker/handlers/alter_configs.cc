// AlterConfigs (key 33), versions 0 to 2: the given values replace all that a topic has of its own.
// IncrementalAlterConfigs (key 44), versions 0 and 1: sets, deletes, appends and subtracts.
//
// Topics alone: a broker's settings are read when it starts.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "broker/broker.h"
#include "broker/context/yield_budget.h"
#include "broker/handlers/all.h"
#include "broker/handlers/configs.h"
#include "broker/handlers/delayed_topic_change.h"
#include "broker/handlers/run.h"
#include "protocol/messages/alter_configs.h"
#include "protocol/messages/incremental_alter_configs.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

template <typename Resource>
std::optional<TopicRefusal> change_refusal(const Resource& resource) {
  if (resource.resource_type == static_cast<std::int8_t>(ResourceType::broker)) {
    return TopicRefusal{ErrorCode::invalid_request,
                        "A broker's settings are read when it starts; change its configuration and "
                        "start it again."};
  }
  if (resource.resource_type != static_cast<std::int8_t>(ResourceType::topic)) {
    return TopicRefusal{
        ErrorCode::invalid_request,
        fmt::format("Resource type {} is not supported; use 2 (topic).", resource.resource_type)};
  }
  return std::nullopt;
}

// What both requests do around `how_of(resource)`, which says how that one is changed.
template <typename Response, typename Request, typename HowOf>
asio::awaitable<Response> change_all(RequestContext& context, const Request& request,
                                     HowOf how_of) {
  Broker& broker = context.broker;
  Response response;
  std::vector<TopicChange> changes;
  std::vector<std::size_t> places;
  YieldBudget budget(context.shard, &context.connection);
  for (const auto& resource : request.resources) {
    if (budget.spend(2) && !co_await budget.yield()) co_return response;
    auto& answer = response.responses.emplace_back();
    answer.resource_type = resource.resource_type;
    answer.resource_name = resource.resource_name;
    if (const auto refused = change_refusal(resource)) {
      answer.error_code = refused->code;
      answer.error_message = refused->message;
      continue;
    }
    places.push_back(response.responses.size() - 1);
    changes.push_back([&broker, name = std::string(resource.resource_name), how = how_of(resource),
                       only_check = request.validate_only]() mutable {
      return broker.topics().change_configs(name, std::move(how), only_check);
    });
  }
  const auto changed = co_await change_topics(context, alter_configs_kind, std::move(changes),
                                              purgatory::no_deadline);
  for (std::size_t i = 0; i < std::min(places.size(), changed.size()); ++i) {
    if (changed[i]) continue;
    auto& answer = response.responses[places[i]];
    answer.error_code = changed[i].error().code;
    answer.error_message = changed[i].error().message;
  }
  co_return response;
}

Topics::ChangeConfigs replace_all(const protocol::AlterConfigsRequest::Resource& resource) {
  TopicResult<storage::Configs> wanted;
  for (const auto& config : resource.configs) {
    if (!config.value) {
      wanted = refuse(ErrorCode::invalid_request,
                      fmt::format("Null value not supported for {}", printable(config.name)));
      break;
    }
    wanted->insert_or_assign(std::string(config.name), std::string(*config.value));
  }
  return [wanted = std::move(wanted)](const storage::Configs&) { return wanted; };
}

asio::awaitable<protocol::AlterConfigsResponse> alter_configs(
    RequestContext& context, const protocol::AlterConfigsRequest& request) {
  return change_all<protocol::AlterConfigsResponse>(context, request, replace_all);
}

// Of a list that is changed; the longest that has a meaning has two.
constexpr std::size_t max_list_values = 100;

enum Operation : std::int8_t { set = 0, remove = 1, append = 2, subtract = 3 };

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> out;
  while (!list.empty()) {
    const auto comma = std::min(list.find(','), list.size());
    if (comma > 0) out.emplace_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return out;
}

std::string join(const std::vector<std::string>& list) {
  std::string out;
  for (const auto& one : list) out += (out.empty() ? "" : ",") + one;
  return out;
}

// As it is asked for; the request may be gone when it is made.
struct IncrementalConfig {
  std::string name;
  std::int8_t config_operation;
  std::optional<std::string> value;
};

TopicResult<void> apply(storage::Configs& configs, const IncrementalConfig& config) {
  const auto* key = find_topic_config_key(config.name);
  if (key == nullptr) {
    return refuse(ErrorCode::invalid_config,
                  fmt::format("Unknown topic config name: {}", printable(config.name)));
  }
  if (config.config_operation == remove) {
    configs.erase(config.name);
    return {};
  }
  if (!config.value) {
    return refuse(ErrorCode::invalid_request,
                  fmt::format("Null value not supported for {}", config.name));
  }
  std::string value(*config.value);
  if (config.config_operation == append || config.config_operation == subtract) {
    if (key->type != ConfigType::list) {
      return refuse(
          ErrorCode::invalid_config,
          fmt::format("Can't {} to key {} because its type is not LIST.",
                      config.config_operation == append ? "APPEND" : "SUBTRACT", config.name));
    }
    const auto had = configs.find(config.name);
    auto list = split(had == configs.end() ? key->fallback : std::string_view(had->second));
    const auto changes = split(value);
    if (changes.size() > max_list_values) {
      return refuse(ErrorCode::invalid_config,
                    fmt::format("{} values to {} {}; the limit is {}", changes.size(),
                                config.config_operation == append ? "append to" : "subtract from",
                                config.name, max_list_values));
    }
    for (const auto& one : changes) {
      std::erase(list, one);
      if (config.config_operation == append) list.push_back(one);
    }
    value = join(list);
  } else if (config.config_operation != set) {
    return refuse(ErrorCode::invalid_request,
                  fmt::format("Unknown operation {} for {}", config.config_operation, config.name));
  }
  configs.insert_or_assign(config.name, std::move(value));
  return {};
}

Topics::ChangeConfigs apply_all(
    const protocol::IncrementalAlterConfigsRequest::Resource& resource) {
  std::vector<IncrementalConfig> asked;
  for (const auto& config : resource.configs)
    asked.push_back({std::string(config.name), config.config_operation,
                     config.value ? std::optional<std::string>(*config.value) : std::nullopt});
  return [asked = std::move(asked)](storage::Configs configs) -> TopicResult<storage::Configs> {
    for (const auto& config : asked) {
      if (std::ranges::count(asked, config.name, &IncrementalConfig::name) > 1) {
        return refuse(ErrorCode::invalid_request,
                      fmt::format("Duplicate config key {}", printable(config.name)));
      }
      if (auto applied = apply(configs, config); !applied) return std::unexpected(applied.error());
    }
    return configs;
  };
}

asio::awaitable<protocol::IncrementalAlterConfigsResponse> incremental_alter_configs(
    RequestContext& context, const protocol::IncrementalAlterConfigsRequest& request) {
  return change_all<protocol::IncrementalAlterConfigsResponse>(context, request, apply_all);
}

}  // namespace

asio::awaitable<Answer> run_alter_configs(RequestContext context) {
  return run<protocol::AlterConfigsRequest, alter_configs>(context);
}

asio::awaitable<Answer> run_incremental_alter_configs(RequestContext context) {
  return run<protocol::IncrementalAlterConfigsRequest, incremental_alter_configs>(context);
}

}  // namespace tarry::broker
