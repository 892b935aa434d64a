// AlterConfigs (key 33), versions 0 to 2: the given values replace all that a topic has of its own.
// IncrementalAlterConfigs (key 44), versions 0 and 1: sets, deletes, appends and subtracts.
//
// Topics alone: a broker's settings are read when it starts.

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "broker/broker.h"
#include "broker/handlers/all.h"
#include "broker/handlers/configs.h"
#include "broker/handlers/run.h"
#include "broker/handlers/turns.h"
#include "protocol/messages/alter_configs.h"
#include "protocol/messages/incremental_alter_configs.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

std::unexpected<TopicRefusal> refuse(ErrorCode code, std::string message) {
  return std::unexpected(TopicRefusal{code, std::move(message)});
}

// Changes one resource; what both requests do around it.
template <typename Resource>
asio::awaitable<std::optional<TopicRefusal>> change(RequestContext& context,
                                                    const Resource& resource,
                                                    Topics::ChangeConfigs how, bool only_check) {
  Broker& broker = context.broker;
  if (resource.resource_type == static_cast<std::int8_t>(ResourceType::broker)) {
    co_return TopicRefusal{ErrorCode::invalid_request,
                           "A broker's settings are read when it starts; change its configuration "
                           "and start it again."};
  }
  if (resource.resource_type != static_cast<std::int8_t>(ResourceType::topic)) {
    co_return TopicRefusal{
        ErrorCode::invalid_request,
        fmt::format("Resource type {} is not supported; 2 (topic) is.", resource.resource_type)};
  }
  auto work = [&broker, name = std::string(resource.resource_name), how = std::move(how),
               only_check]() mutable {
    return broker.topics().change_configs(name, std::move(how), only_check);
  };
  auto changed = co_await broker.on(context.shard, broker.shard(0), std::move(work));
  if (changed) co_return std::nullopt;
  co_return changed.error();
}

template <typename Response, typename Resource>
void add_answer(Response& response, const Resource& resource,
                const std::optional<TopicRefusal>& refused) {
  auto& answer = response.responses.emplace_back();
  answer.resource_type = resource.resource_type;
  answer.resource_name = resource.resource_name;
  if (refused) {
    answer.error_code = refused->code;
    answer.error_message = refused->message;
  }
}

asio::awaitable<protocol::AlterConfigsResponse> alter_configs(
    RequestContext& context, const protocol::AlterConfigsRequest& request) {
  protocol::AlterConfigsResponse response;
  Turns turns(context.shard, &context.connection);
  for (const auto& resource : request.resources) {
    if (turns.over(2) && !co_await turns.next()) co_return response;
    Topics::ChangeConfigs replace = [&resource](storage::Configs) -> TopicResult<storage::Configs> {
      storage::Configs configs;
      for (const auto& config : resource.configs) {
        if (!config.value) {
          return refuse(ErrorCode::invalid_request,
                        fmt::format("Null value not supported for {}", printable(config.name)));
        }
        configs.insert_or_assign(std::string(config.name), std::string(*config.value));
      }
      return configs;
    };
    const auto refused =
        co_await change(context, resource, std::move(replace), request.validate_only);
    add_answer(response, resource, refused);
  }
  co_return response;
}

// Of a list that is changed; the longest that has a meaning has two.
constexpr std::size_t most_list_values = 100;

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

using IncrementalConfig = protocol::IncrementalAlterConfigsRequest::Config;

TopicResult<void> apply(storage::Configs& configs, const IncrementalConfig& config) {
  const auto* key = find_topic_config_key(config.name);
  if (key == nullptr) {
    return refuse(ErrorCode::invalid_config,
                  fmt::format("Unknown topic config name: {}", printable(config.name)));
  }
  if (config.config_operation == remove) {
    configs.erase(std::string(config.name));
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
    if (changes.size() > most_list_values) {
      return refuse(ErrorCode::invalid_config,
                    fmt::format("{} values to {} {}; {} are allowed", changes.size(),
                                config.config_operation == append ? "append to" : "subtract from",
                                config.name, most_list_values));
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
  configs.insert_or_assign(std::string(config.name), std::move(value));
  return {};
}

asio::awaitable<protocol::IncrementalAlterConfigsResponse> incremental_alter_configs(
    RequestContext& context, const protocol::IncrementalAlterConfigsRequest& request) {
  protocol::IncrementalAlterConfigsResponse response;
  Turns turns(context.shard, &context.connection);
  for (const auto& resource : request.resources) {
    if (turns.over(2) && !co_await turns.next()) co_return response;
    Topics::ChangeConfigs apply_all =
        [&resource](storage::Configs configs) -> TopicResult<storage::Configs> {
      for (const auto& config : resource.configs) {
        if (std::ranges::count(resource.configs, config.name, &IncrementalConfig::name) > 1) {
          return refuse(ErrorCode::invalid_request,
                        fmt::format("Duplicate config key {}", printable(config.name)));
        }
        if (auto applied = apply(configs, config); !applied)
          return std::unexpected(applied.error());
      }
      return configs;
    };
    const auto refused =
        co_await change(context, resource, std::move(apply_all), request.validate_only);
    add_answer(response, resource, refused);
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_alter_configs(RequestContext context) {
  return run<protocol::AlterConfigsRequest, alter_configs>(context);
}

asio::awaitable<Answer> run_incremental_alter_configs(RequestContext context) {
  return run<protocol::IncrementalAlterConfigsRequest, incremental_alter_configs>(context);
}

}  // namespace tarry::broker
