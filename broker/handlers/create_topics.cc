// CreateTopics (key 19), versions 2 to 7.
//
// Topics are created one after the other, beside the request, which waits until all are durable and
// known to every shard, but not past timeout_ms: REQUEST_TIMED_OUT then for those that are not,
// and those that have not been begun are given up.  One that was under way may still appear.

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

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
#include "protocol/messages/create_topics.h"

namespace tarry::broker {

using protocol::CreateTopicsRequest;
using protocol::CreateTopicsResponse;
using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

// The time that the configs of a topic's answer take.
constexpr std::size_t microseconds_of_configs = 25;

// The time that one topic of a request takes: assignments are looked at, configs are copied.
std::size_t microseconds_of(const CreateTopicsRequest::Topic& asked) {
  return 2 + asked.assignments.size() / 64 + std::min(asked.configs.size(), max_configs) / 2;
}

// The new topic, or why there can be none.
TopicResult<Topics::NewTopic> wanted_topic(const Broker& broker,
                                           const CreateTopicsRequest::Topic& asked,
                                           bool only_check) {
  const auto refuse = [](ErrorCode code, std::string message) {
    return std::unexpected(TopicRefusal{code, std::move(message)});
  };
  Topics::NewTopic topic;
  topic.name = asked.name;
  topic.partitions = asked.num_partitions;
  topic.replication = asked.replication_factor;
  topic.only_check = only_check;
  if (!asked.assignments.empty()) {
    if (asked.num_partitions != -1 || asked.replication_factor != -1) {
      return refuse(ErrorCode::invalid_request,
                    "Both numPartitions or replicationFactor and replicasAssignments were set.");
    }
    // Replicas that are named must be this broker, of partitions numbered from 0.
    const std::array node{broker.identity().node_id};
    std::vector<bool> assigned(asked.assignments.size());
    for (const auto& assignment : asked.assignments) {
      if (!std::ranges::equal(assignment.broker_ids, node)) {
        return refuse(ErrorCode::invalid_replica_assignment,
                      fmt::format("Partition {} must be assigned to broker {}, the only broker.",
                                  assignment.partition_index, broker.identity().node_id));
      }
      // Without a gap each is one of the first, and named once.
      const auto index = static_cast<std::size_t>(assignment.partition_index);
      const bool fits = assignment.partition_index >= 0 && index < assigned.size();
      if (!fits || assigned[index]) {
        return refuse(ErrorCode::invalid_replica_assignment,
                      "Partitions must be a consecutive 0-based integer sequence.");
      }
      assigned[index] = true;
    }
    topic.partitions = static_cast<std::int32_t>(assigned.size());
  }
  if (asked.configs.size() > max_configs)
    return refuse(ErrorCode::invalid_request, too_many_configs_text(asked.configs.size()));
  for (const auto& config : asked.configs) {
    if (!config.value) {
      return refuse(
          ErrorCode::invalid_config,
          fmt::format("Null value not supported for topic configs: {}", printable(config.name)));
    }
    topic.configs.insert_or_assign(std::string(config.name), std::string(*config.value));
  }
  return topic;
}

// Returns the bytes that the configs take.
std::size_t fill_in(CreateTopicsResponse::Topic& answer, const RequestContext& context,
                    const storage::Topic& topic, bool only_check, bool with_configs) {
  answer.topic_id = only_check ? TopicId{} : topic.id;
  // As in Kafka: the right to create does not tell what the broker's defaults have made of it.
  if (context.version() >= 5 &&
      !is_allowed(context, AclOperation::describe_configs, AclResource::topic, topic.name)) {
    answer.topic_config_error_code = ErrorCode::topic_authorization_failed;
    return 0;
  }
  answer.num_partitions = topic.partitions;
  answer.replication_factor = 1;
  // Null where the answer would be too large: the tools ask DescribeConfigs then.
  if (!with_configs) return 0;
  std::size_t bytes = 0;
  auto& configs = answer.configs.emplace();
  for (const auto& value : values_of(context.shard.config(), topic)) {
    configs.push_back({std::string(value.key->name), value.value, false,
                       static_cast<std::int8_t>(value.source), false});
    bytes += sizeof(configs.back()) + value.value.size();
  }
  return bytes;
}

asio::awaitable<CreateTopicsResponse> create_topics(RequestContext& context,
                                                    const CreateTopicsRequest& request) {
  Broker& broker = context.broker;
  Shard& home = context.shard;
  const auto deadline = home.tick_after(std::chrono::milliseconds(std::max(request.timeout_ms, 0)));
  CreateTopicsResponse response;
  std::vector<TopicChange> wanted;
  std::vector<std::size_t> places;
  std::map<std::string_view, std::size_t> times;  // 0: answered that they are several.
  std::vector<TopicResult<TopicPtr>> created;
  const FreedOnPool freed(home, wanted, times, created);
  YieldBudget budget(context.shard, &context.connection);
  for (const auto& topic : request.topics) {
    if (budget.spend() && !co_await budget.yield()) co_return response;
    ++times[topic.name];
  }
  const bool room =
      co_await reserve_charged(context, request.topics.size(), response.topics, wanted);
  if (!room) co_return response;
  for (const auto& asked : request.topics) {
    if (budget.spend(microseconds_of(asked)) && !co_await budget.yield()) co_return response;
    auto& named = times[asked.name];
    if (named != 1) {
      if (std::exchange(named, 0) == 0) continue;
      auto& answer = response.topics.emplace_back();
      answer.name = asked.name;
      answer.error_code = ErrorCode::invalid_request;
      answer.error_message = "Duplicate topic name.";
      continue;
    }
    auto& answer = response.topics.emplace_back();
    answer.name = asked.name;
    if (!may_create_topic(context, asked.name)) {
      answer.error_code = ErrorCode::topic_authorization_failed;
      answer.error_message = "Authorization failed.";
      continue;
    }
    auto topic = wanted_topic(broker, asked, request.validate_only);
    if (!topic) {
      answer.error_code = topic.error().code;
      answer.error_message = topic.error().message;
      continue;
    }
    places.push_back(response.topics.size() - 1);
    wanted.push_back(
        [&broker, topic = std::move(*topic)] { return broker.topics().create(topic); });
  }
  created = co_await change_topics(context, create_topics_kind, std::move(wanted), deadline);
  AnswerMemory memory(context);
  std::size_t bytes = 0;  // The bytes of the configs.
  for (std::size_t i = 0; i < places.size(); ++i) {
    const bool has_configs = i < created.size() && created[i];
    const std::size_t microseconds = has_configs ? microseconds_of_configs : 1;
    if (budget.spend(microseconds) && !co_await budget.yield()) co_return response;
    auto& answer = response.topics[places[i]];
    if (i >= created.size()) {
      answer.error_code = ErrorCode::request_timed_out;
      answer.error_message = fmt::format(
          "The topic was not created within {} ms; it may still be created.", request.timeout_ms);
    } else if (auto& result = created[i]; result) {
      const bool with_configs = context.version() >= 5 && bytes < max_answer_bytes;
      const std::size_t configs =
          fill_in(answer, context, **result, request.validate_only, with_configs);
      bytes += configs;
      if (memory.spend(2 * configs) && !co_await memory.take()) co_return response;
    } else {
      answer.error_code = result.error().code;
      answer.error_message = std::move(result.error().message);
    }
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_create_topics(RequestContext context) {
  return run<CreateTopicsRequest, create_topics>(std::move(context));
}

}  // namespace tarry::broker
