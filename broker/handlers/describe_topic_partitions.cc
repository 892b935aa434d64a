// DescribeTopicPartitions (key 75), version 0: topics in the order of their names, page by page.

#include <algorithm>
#include <set>
#include <string>

#include "broker/broker.h"
#include "broker/context/yield_budget.h"
#include "broker/handlers/all.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/operations.h"
#include "broker/handlers/run.h"
#include "protocol/messages/describe_topic_partitions.h"

namespace tarry::broker {

using protocol::DescribeTopicPartitionsRequest;
using protocol::DescribeTopicPartitionsResponse;
using protocol::ErrorCode;

namespace asio = boost::asio;

namespace {

constexpr std::int32_t max_partitions = 2000;  // As Kafka's max.request.partition.size.limit.

asio::awaitable<DescribeTopicPartitionsResponse> describe_topic_partitions(
    RequestContext& context, const DescribeTopicPartitionsRequest& request) {
  const std::int32_t node = context.broker.identity().node_id;
  YieldBudget budget(context.shard, &context.connection);
  // Sorted, because the cursor of a page is a name.
  std::set<std::string, std::less<>> names;
  for (const auto& topic : request.topics) {
    if (budget.spend() && !co_await budget.yield()) co_return DescribeTopicPartitionsResponse();
    names.emplace(topic.name);
  }
  if (request.topics.empty()) {
    for (const auto& topic : context.shard.topics().by_name())
      // Without a line in the log: nobody has asked for these by name.
      if (is_allowed(context, AclOperation::describe, AclResource::topic, topic->name))
        names.insert(topic->name);
  }
  DescribeTopicPartitionsResponse response;
  std::int32_t left = std::clamp(request.response_partition_limit, 1, max_partitions);
  for (const auto& name : names) {
    if (budget.spend() && !co_await budget.yield()) co_return response;
    if (request.cursor && name < request.cursor->topic_name) continue;
    const auto topic = context.shard.topics().find(name);
    PartitionIndex from = 0;
    if (request.cursor && name == request.cursor->topic_name)
      from = std::max(request.cursor->partition_index, 0);
    // Before the topic is looked at, so that the next page begins with it.
    if (left == 0) {
      response.next_cursor = {name, from};
      break;
    }
    auto& answer = response.topics.emplace_back();
    answer.name = name;
    if (!authorize_topic(context, AclOperation::describe, name)) {
      answer.error_code = ErrorCode::topic_authorization_failed;
      continue;
    }
    // It has no switch for them.
    answer.topic_authorized_operations =
        allowed_operations(context, topic_operations, AclResource::topic, name);
    if (!topic) {
      answer.error_code = topic_name_error(name).empty() ? ErrorCode::unknown_topic_or_partition
                                                         : ErrorCode::invalid_topic;
      continue;
    }
    answer.topic_id = topic->id;
    for (PartitionIndex p = from; p < topic->partitions; ++p) {
      // The page is full in the middle of a topic; the next one goes on there.
      if (left == 0) {
        response.next_cursor = {name, p};
        co_return response;
      }
      --left;
      auto& partition = answer.partitions.emplace_back();
      partition.partition_index = p;
      partition.leader_id = node;
      partition.leader_epoch = 0;
      partition.replica_nodes = {node};
      partition.isr_nodes = {node};
      partition.eligible_leader_replicas.emplace();
      partition.last_known_elr.emplace();
    }
  }
  co_return response;
}

}  // namespace

boost::asio::awaitable<Answer> run_describe_topic_partitions(RequestContext context) {
  return run<DescribeTopicPartitionsRequest, describe_topic_partitions>(std::move(context));
}

}  // namespace tarry::broker
