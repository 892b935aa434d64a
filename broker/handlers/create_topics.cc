// CreateTopics (key 19), versions 2 to 7.

#include <set>
#include <utility>

#include "base/log.h"
#include "broker/broker.h"
#include "broker/handlers/all.h"
#include "broker/handlers/configs.h"
#include "broker/handlers/run.h"
#include "protocol/messages/create_topics.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

using Request = protocol::CreateTopicsRequest;
using Response = protocol::CreateTopicsResponse;

// The new topic, or why there can be none.
TopicResult<Topics::NewTopic> wanted_topic(const Broker& broker, const Request::Topic& asked,
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
    std::set<std::int32_t> partitions;
    for (const auto& assignment : asked.assignments) {
      if (assignment.broker_ids != std::vector{broker.config().node_id}) {
        return refuse(
            ErrorCode::invalid_replica_assignment,
            fmt::format("Partition {} must be assigned to broker {} alone: there is no other.",
                        assignment.partition_index, broker.config().node_id));
      }
      partitions.insert(assignment.partition_index);
    }
    if (partitions.size() != asked.assignments.size() || *partitions.begin() != 0 ||
        *partitions.rbegin() != static_cast<std::int32_t>(partitions.size()) - 1) {
      return refuse(ErrorCode::invalid_replica_assignment,
                    "Partitions must be a consecutive 0-based integer sequence.");
    }
    topic.partitions = static_cast<std::int32_t>(partitions.size());
  }
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

asio::awaitable<Response> create_topics(RequestContext& context, const Request& request) {
  Broker& broker = context.broker;
  Response response;
  std::multiset<std::string_view> names;
  for (const auto& topic : request.topics) names.insert(topic.name);

  for (const auto& asked : request.topics) {
    if (names.count(asked.name) > 1) {
      if (std::ranges::find(response.topics, asked.name, &Response::Topic::name) !=
          response.topics.end())
        continue;
      auto& answer = response.topics.emplace_back();
      answer.name = asked.name;
      answer.error_code = ErrorCode::invalid_request;
      answer.error_message = "Duplicate topic name.";
      continue;
    }
    auto& answer = response.topics.emplace_back();
    answer.name = asked.name;
    auto wanted = wanted_topic(broker, asked, request.validate_only);
    TopicResult<TopicPtr> created = std::unexpected(TopicRefusal{});
    if (wanted) {
      auto work = [&broker, topic = std::move(*wanted)] { return broker.topics().create(topic); };
      created = co_await broker.on(context.shard, broker.shard(0), std::move(work));
    } else {
      created = std::unexpected(wanted.error());
    }
    if (!created) {
      answer.error_code = created.error().code;
      answer.error_message = created.error().message;
      continue;
    }
    answer.topic_id = request.validate_only ? TopicId{} : (*created)->id;
    answer.num_partitions = (*created)->partitions;
    answer.replication_factor = 1;
    auto& configs = answer.configs.emplace();
    for (const auto& value : values_of(broker.config(), **created)) {
      configs.push_back({std::string(value.key->name), value.value, false,
                         static_cast<std::int8_t>(value.source), false});
    }
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_create_topics(RequestContext context) {
  return run<Request, create_topics>(context);
}

}  // namespace tarry::broker
