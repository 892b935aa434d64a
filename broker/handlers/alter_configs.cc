// AlterConfigs (key 33), versions 0 to 2: the given values replace all that a topic has of its own,
// or that were set dynamically for the broker or the cluster.
// IncrementalAlterConfigs (key 44), versions 0 and 1: sets, deletes, appends and subtracts.
//
// A resource is a topic, or a broker: the one with our node id, or "" for the cluster's defaults.
// One with more than max_configs is refused, because a change of it is made in one go.

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/list_text.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/context/freed_on_pool.h"
#include "broker/context/yield_budget.h"
#include "broker/handlers/all.h"
#include "broker/handlers/answer_room.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/configs.h"
#include "broker/handlers/delayed_topic_change.h"
#include "broker/handlers/run.h"
#include "protocol/messages/alter_configs.h"
#include "protocol/messages/incremental_alter_configs.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

using Change = Topics::ChangeConfigs;
static_assert(std::is_same_v<Change, LiveSettings::Change>);

asio::awaitable<TopicResult<TopicPtr>> change_settings(Broker& broker, LiveSettings::Scope scope,
                                                       Change how, std::string who,
                                                       bool only_check) {
  const auto changed =
      co_await broker.settings().change(scope, std::move(how), std::move(who), only_check);
  if (!changed) co_return std::unexpected(changed.error());
  co_return TopicPtr();
}

// Returns the change of the resource by `how`; or the reason why there is none.
template <typename Resource>
TopicResult<TopicChange> change_of(const RequestContext& context, const Resource& resource,
                                   Change how, bool only_check) {
  Broker& broker = context.broker;
  if (resource.resource_type == static_cast<std::int8_t>(ResourceType::topic)) {
    return [&broker, name = std::string(resource.resource_name), how = std::move(how),
            only_check]() mutable {
      return broker.topics().change_configs(name, std::move(how), only_check);
    };
  }
  if (resource.resource_type != static_cast<std::int8_t>(ResourceType::broker)) {
    return refuse(ErrorCode::invalid_request,
                  fmt::format("Resource type {} is not supported; use 2 (topic) or 4 (broker).",
                              resource.resource_type));
  }
  const auto scope = scope_of(broker.identity(), resource.resource_name);
  if (!scope) {
    return refuse(ErrorCode::invalid_request,
                  unknown_broker_text(broker.identity(), resource.resource_name));
  }
  // The client may have gone when the change is made.
  auto who = fmt::format("{} from {}", printable(context.connection.principal()),
                         context.connection.peer());
  return
      [&broker, scope = *scope, how = std::move(how), who = std::move(who), only_check]() mutable {
        return change_settings(broker, scope, std::move(how), std::move(who), only_check);
      };
}

// The common frame of both requests around `make_change(broker, resource)`, which returns how that
// resource changes.
template <typename Response, typename Request, typename MakeChange>
asio::awaitable<Response> change_all(RequestContext& context, const Request& request,
                                     MakeChange make_change) {
  Broker& broker = context.broker;
  Response response;
  std::vector<TopicChange> changes;
  std::vector<std::size_t> places;
  std::vector<TopicResult<TopicPtr>> changed;
  const FreedOnPool freed(context.shard, changes, changed);
  YieldBudget budget(context.shard, &context.connection);
  const bool room =
      co_await reserve_charged(context, request.resources.size(), response.responses, changes);
  if (!room) co_return response;
  for (const auto& resource : request.resources) {
    const std::size_t microseconds = 2 + std::min(resource.configs.size(), max_configs) / 2;
    if (budget.spend(microseconds) && !co_await budget.yield()) co_return response;
    auto& answer = response.responses.emplace_back();
    answer.resource_type = resource.resource_type;
    answer.resource_name = resource.resource_name;
    const bool of_topic = resource.resource_type == static_cast<std::int8_t>(ResourceType::topic);
    const bool may =
        of_topic ? authorize_topic(context, AclOperation::alter_configs, resource.resource_name)
                 : authorize_cluster(context, AclOperation::alter_configs);
    if (!may) {
      answer.error_code = of_topic ? ErrorCode::topic_authorization_failed
                                   : ErrorCode::cluster_authorization_failed;
      answer.error_message =
          of_topic ? "Topic authorization failed." : "Cluster authorization failed.";
      continue;
    }
    if (resource.configs.size() > max_configs) {
      answer.error_code = ErrorCode::invalid_request;
      answer.error_message = too_many_configs_text(resource.configs.size());
      continue;
    }
    auto change =
        change_of(context, resource, make_change(broker, resource), request.validate_only);
    if (!change) {
      answer.error_code = change.error().code;
      answer.error_message = std::move(change.error().message);
      continue;
    }
    // Resources that were refused have their answer; the others get it at these places.
    places.push_back(response.responses.size() - 1);
    changes.push_back(std::move(*change));
  }
  changed = co_await change_topics(context, alter_configs_kind, std::move(changes),
                                   purgatory::no_deadline);
  // Results are missing only when the client has gone or the broker stops.
  for (std::size_t i = 0; i < std::min(places.size(), changed.size()); ++i) {
    if (budget.spend() && !co_await budget.yield()) co_return response;
    if (changed[i]) continue;
    auto& answer = response.responses[places[i]];
    answer.error_code = changed[i].error().code;
    answer.error_message = std::move(changed[i].error().message);
  }
  co_return response;
}

Change replace_all(const Broker&, const protocol::AlterConfigsRequest::Resource& resource) {
  TopicResult<storage::Configs> wanted;
  for (const auto& config : resource.configs) {
    if (!config.value) {
      wanted = refuse(ErrorCode::invalid_request,
                      fmt::format("Null value not supported for {}", printable(config.name)));
      break;
    }
    wanted->insert_or_assign(std::string(config.name), std::string(*config.value));
  }
  // Earlier settings do not count: AlterConfigs replaces all of them.
  return [wanted = std::move(wanted)](const storage::Configs&) { return wanted; };
}

asio::awaitable<protocol::AlterConfigsResponse> alter_configs(
    RequestContext& context, const protocol::AlterConfigsRequest& request) {
  return change_all<protocol::AlterConfigsResponse>(context, request, replace_all);
}

// The limit of values of a list; the longest list with a meaning has two.
constexpr std::size_t max_list_values = 100;

enum Operation : std::int8_t { set = 0, remove = 1, append = 2, subtract = 3 };

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> out;
  while (!list.empty()) {
    const auto one = take_element(list, ',');
    if (!one.empty()) out.emplace_back(one);
  }
  return out;
}

std::string join(const std::vector<std::string>& list) {
  std::string out;
  for (const auto& one : list) out += (out.empty() ? "" : ",") + one;
  return out;
}

// A copy of what is asked for; the request may be gone when the change is made.
struct IncrementalConfig {
  std::string name;
  std::int8_t config_operation;
  std::optional<std::string> value;
};

// The value of a topic's key that is a list, or of the broker's default for it, before it is
// changed; empty: it is none.
std::optional<std::string> list_before(const storage::Configs& configs, std::string_view name) {
  const auto keys = topic_config_keys();
  const auto key = std::ranges::find_if(
      keys, [name](const auto& each) { return each.name == name || each.broker_name == name; });
  if (key == keys.end() || key->type != ConfigType::list) return std::nullopt;
  const auto had = configs.find(name);
  return had == configs.end() ? std::string(key->fallback) : had->second;
}

// Whether a resource has the key at all.
using CheckKey = TopicResult<void> (*)(const Broker& broker, std::string_view key);

TopicResult<void> check_topic_key(const Broker&, std::string_view key) {
  if (find_topic_config_key(key) != nullptr) return {};
  return refuse(ErrorCode::invalid_config,
                fmt::format("Unknown topic config name: {}", printable(key)));
}
TopicResult<void> check_broker_key(const Broker& broker, std::string_view key) {
  return broker.settings().check_key(key);
}

TopicResult<void> apply(storage::Configs& configs, const IncrementalConfig& config) {
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
    const auto before = list_before(configs, config.name);
    if (!before) {
      return refuse(
          ErrorCode::invalid_config,
          fmt::format("Can't {} to key {} because its type is not LIST.",
                      config.config_operation == append ? "APPEND" : "SUBTRACT", config.name));
    }
    auto list = split(*before);
    const auto changes = split(value);
    if (changes.size() > max_list_values) {
      return refuse(ErrorCode::invalid_config,
                    fmt::format("{} values to {} {}; the limit is {}", changes.size(),
                                config.config_operation == append ? "append to" : "subtract from",
                                config.name, max_list_values));
    }
    for (const auto& one : changes) {
      // For an append too, so that no value stands there twice.
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

Change apply_all(const Broker& broker,
                 const protocol::IncrementalAlterConfigsRequest::Resource& resource) {
  const CheckKey check = resource.resource_type == static_cast<std::int8_t>(ResourceType::topic)
                             ? check_topic_key
                             : check_broker_key;
  std::vector<IncrementalConfig> asked;
  for (const auto& config : resource.configs)
    asked.push_back({std::string(config.name), config.config_operation,
                     config.value ? std::optional<std::string>(*config.value) : std::nullopt});
  return [&broker, check,
          asked = std::move(asked)](storage::Configs configs) -> TopicResult<storage::Configs> {
    for (const auto& config : asked) {
      if (std::ranges::count(asked, config.name, &IncrementalConfig::name) > 1) {
        return refuse(ErrorCode::invalid_request,
                      fmt::format("Duplicate config key {}", printable(config.name)));
      }
      if (auto known = check(broker, config.name); !known) return std::unexpected(known.error());
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
  return run<protocol::AlterConfigsRequest, alter_configs>(std::move(context));
}

asio::awaitable<Answer> run_incremental_alter_configs(RequestContext context) {
  return run<protocol::IncrementalAlterConfigsRequest, incremental_alter_configs>(
      std::move(context));
}

}  // namespace tarry::broker
