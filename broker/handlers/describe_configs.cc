// DescribeConfigs (key 32), versions 1 to 4, of topics and of this broker.  Every key is there,
// with its source, type and synonyms: tools show "default" or "set" by them.

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "base/log.h"
#include "broker/broker.h"
#include "broker/context/yield_budget.h"
#include "broker/handlers/all.h"
#include "broker/handlers/answer_room.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/configs.h"
#include "broker/handlers/run.h"
#include "protocol/messages/describe_configs.h"

namespace tarry::broker {

using protocol::DescribeConfigsRequest;
using protocol::DescribeConfigsResponse;
using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

constexpr std::size_t microseconds_a_resource = 80;

// No setting: a client compares it with /status to see that both answers are from one process.
constexpr std::string_view start_id_key = "tarry.start.id";

// The keys that a request wants of one resource.
class WantedKeys {
 public:
  bool has(std::string_view name) const { return all_ || names_.contains(name); }
  void add(std::string_view name) { names_.insert(name); }
  void want_all() { all_ = true; }

 private:
  bool all_ = false;
  std::set<std::string_view> names_;
};

// All keys that there are.  Copies, because the configuration may be another one after a yield.
using KnownKeys = std::set<std::string, std::less<>>;

KnownKeys known_keys(const BrokerConfig& broker) {
  KnownKeys known{std::string(start_id_key)};
  for (const auto& key : topic_config_keys()) known.emplace(key.name);
  for (const auto& entry : broker.entries) known.insert(entry.name);
  return known;
}

// A list of keys may be very long, so it is read once, and only keys that there are stay.
// False: nobody waits for the answer any more.
asio::awaitable<bool> find_wanted(WantedKeys& wanted, const DescribeConfigsRequest::Resource& asked,
                                  const KnownKeys& known, YieldBudget& budget) {
  // As in Kafka, an empty list of keys means all of them, like none given.
  if (!asked.configuration_keys || asked.configuration_keys->empty()) {
    wanted.want_all();
    co_return true;
  }
  for (const std::string_view name : *asked.configuration_keys) {
    if (budget.spend() && !co_await budget.yield()) co_return false;
    if (const auto found = known.find(name); found != known.end()) wanted.add(*found);
  }
  co_return true;
}

void describe_topic(const BrokerConfig& broker, const storage::Topic& topic,
                    const DescribeConfigsRequest& request, const WantedKeys& wanted,
                    DescribeConfigsResponse::Result& result) {
  for (auto& value : values_of(broker, topic)) {
    if (!wanted.has(value.key->name)) continue;
    auto& config = result.configs.emplace_back();
    config.name = value.key->name;
    config.value = value.value;
    config.config_source = static_cast<std::int8_t>(value.source);
    config.config_type = static_cast<std::int8_t>(value.key->type);
    if (request.include_synonyms) {
      for (auto& synonym : value.synonyms) {
        config.synonyms.push_back(
            {synonym.name, synonym.value, static_cast<std::int8_t>(synonym.source)});
      }
    }
    if (request.include_documentation) config.documentation = value.key->reason;
  }
}

// The keys of the broker; of the cluster those alone that have a default of its own, as in Kafka.
void describe_broker(const BrokerConfig& broker, LiveSettings::Scope scope,
                     const DescribeConfigsRequest& request, const WantedKeys& wanted,
                     DescribeConfigsResponse::Result& result) {
  for (const auto& entry : broker.entries) {
    if (!wanted.has(entry.name)) continue;
    auto synonyms = synonyms_of(broker, entry);
    if (scope == LiveSettings::Scope::cluster) {
      std::erase_if(synonyms, [](const ConfigSynonym& synonym) {
        return synonym.source != ConfigSource::dynamic_cluster;
      });
      if (synonyms.empty()) continue;
    }
    auto& config = result.configs.emplace_back();
    config.name = entry.name;
    // A secret is answered as null, as in Kafka.
    if (!entry.is_sensitive) config.value = synonyms.front().value;
    config.read_only = !entry.is_dynamic;
    config.is_sensitive = entry.is_sensitive;
    config.config_source = static_cast<std::int8_t>(synonyms.front().source);
    config.config_type = static_cast<std::int8_t>(entry.type);
    if (request.include_synonyms) {
      for (auto& synonym : synonyms) {
        config.synonyms.push_back(
            {synonym.name, synonym.value, static_cast<std::int8_t>(synonym.source)});
        if (entry.is_sensitive) config.synonyms.back().value.reset();
      }
    }
    if (request.include_documentation) config.documentation = entry.reason;
  }
}

void describe_start(const BrokerConfig& broker, const DescribeConfigsRequest& request,
                    const WantedKeys& wanted, DescribeConfigsResponse::Result& result) {
  if (!wanted.has(start_id_key)) return;
  auto& config = result.configs.emplace_back();
  config.name = start_id_key;
  config.value = broker.start_id;
  config.read_only = true;
  // Not of the file: tools list what was set, and nobody has set this.
  config.config_source = static_cast<std::int8_t>(ConfigSource::fallback);
  config.config_type = static_cast<std::int8_t>(ConfigType::string);
  if (request.include_documentation)
    config.documentation = "Identifies this run of the broker; new at each start, not a setting.";
}

ErrorCode refused_code(const RequestContext& context,
                       const DescribeConfigsRequest::Resource& asked) {
  constexpr auto operation = AclOperation::describe_configs;
  if (asked.resource_type == static_cast<std::int8_t>(ResourceType::topic)) {
    return authorize_topic(context, operation, asked.resource_name)
               ? ErrorCode::none
               : ErrorCode::topic_authorization_failed;
  }
  return authorize_cluster(context, operation) ? ErrorCode::none
                                               : ErrorCode::cluster_authorization_failed;
}

std::size_t bytes_of(const DescribeConfigsResponse::Result& result) {
  std::size_t bytes = sizeof(result);
  for (const auto& config : result.configs) {
    bytes += sizeof(config) + config.value.value_or("").size();
    for (const auto& synonym : config.synonyms)
      bytes += sizeof(synonym) + synonym.name.size() + synonym.value.value_or("").size();
  }
  return bytes;
}

asio::awaitable<DescribeConfigsResponse> describe_configs(RequestContext& context,
                                                          const DescribeConfigsRequest& request) {
  const auto& broker = context.shard.config();
  DescribeConfigsResponse response;
  std::size_t bytes = 0;
  YieldBudget budget(context.shard, &context.connection);
  AnswerMemory memory(context);
  const KnownKeys known = known_keys(broker);
  const bool room = co_await reserve_charged(context, request.resources.size(), response.results);
  if (!room) co_return response;
  for (const auto& asked : request.resources) {
    // The cost of a resource is known afterwards, so each pays for the one before it.
    // One that is there costs as much if none of its keys is wanted.
    const bool described =
        !response.results.empty() && response.results.back().error_code == ErrorCode::none;
    const std::size_t cost = described ? microseconds_a_resource : 1;
    if (!response.results.empty()) {
      const std::size_t last = bytes_of(response.results.back());
      bytes += last;
      // Once for the answer itself, and once for its bytes on the wire.
      if (memory.spend(2 * last) && !co_await memory.take()) co_return response;
    }
    if (budget.spend(cost) && !co_await budget.yield()) co_return response;
    WantedKeys wanted;
    const bool waits = co_await find_wanted(wanted, asked, known, budget);
    if (!waits) co_return response;
    auto& result = response.results.emplace_back();
    result.resource_type = asked.resource_type;
    result.resource_name = asked.resource_name;
    // It is noticed only after the resource that went past it, so one too many may be answered.
    if (bytes > max_answer_bytes) {
      result.error_code = ErrorCode::invalid_request;
      result.error_message = "The response would be too large; request fewer configs at once.";
    } else if (const auto code = refused_code(context, asked); code != ErrorCode::none) {
      result.error_code = code;
      result.error_message = code == ErrorCode::topic_authorization_failed
                                 ? "Topic authorization failed."
                                 : "Cluster authorization failed.";
    } else if (asked.resource_type == static_cast<std::int8_t>(ResourceType::topic)) {
      if (const auto topic = context.shard.topics().find(asked.resource_name)) {
        describe_topic(broker, *topic, request, wanted, result);
      } else if (auto why = topic_name_error(asked.resource_name); !why.empty()) {
        result.error_code = ErrorCode::invalid_topic;
        result.error_message = why;
      } else {
        result.error_code = ErrorCode::unknown_topic_or_partition;
        result.error_message = fmt::format("The topic '{}' does not exist.", asked.resource_name);
      }
    } else if (asked.resource_type == static_cast<std::int8_t>(ResourceType::broker)) {
      if (const auto scope = scope_of(broker, asked.resource_name)) {
        describe_broker(broker, *scope, request, wanted, result);
        if (*scope == LiveSettings::Scope::broker) describe_start(broker, request, wanted, result);
      } else {
        result.error_code = ErrorCode::invalid_request;
        result.error_message = unknown_broker_text(broker, asked.resource_name);
      }
    } else {
      result.error_code = ErrorCode::invalid_request;
      result.error_message = fmt::format(
          "Resource type {} is not supported; use 2 (topic) or 4 (broker).", asked.resource_type);
    }
  }
  co_return response;
}

}  // namespace

boost::asio::awaitable<Answer> run_describe_configs(RequestContext context) {
  return run<DescribeConfigsRequest, describe_configs>(std::move(context));
}

}  // namespace tarry::broker
