// Metadata (key 3), versions 0 to 12.  Creates topics that are asked for by name and are not
// there, when client and configuration both allow it.

#include <chrono>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "broker/broker.h"
#include "broker/context/yield_budget.h"
#include "broker/handlers/advertised.h"
#include "broker/handlers/all.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/delayed_topic_change.h"
#include "broker/handlers/operations.h"
#include "broker/handlers/run.h"
#include "protocol/messages/metadata.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

protocol::MetadataResponse::Topic describe(const storage::Topic& topic, std::int32_t node,
                                           std::int32_t operations) {
  protocol::MetadataResponse::Topic out;
  out.name = topic.name;
  out.topic_id = topic.id;
  out.topic_authorized_operations = operations;
  out.partitions.reserve(static_cast<std::size_t>(topic.partitions));
  for (PartitionIndex p = 0; p < topic.partitions; ++p) {
    auto& partition = out.partitions.emplace_back();
    partition.partition_index = p;
    partition.leader_id = node;
    partition.leader_epoch = 0;
    partition.replica_nodes = {node};
    partition.isr_nodes = {node};
  }
  return out;
}

protocol::MetadataResponse::Topic unknown(const protocol::MetadataRequest::Topic& asked,
                                          ErrorCode code, std::int32_t operations) {
  protocol::MetadataResponse::Topic out;
  out.error_code = code;
  if (asked.name) {
    out.name = *asked.name;
    // As in Kafka, a client may ask for the operations that it would be allowed.
    out.topic_authorized_operations = operations;
  }
  out.topic_id = asked.topic_id;
  return out;
}

// How long a topic that is made by being asked for is waited for.
constexpr std::chrono::seconds max_creation_wait{30};

// Microseconds that it takes to describe and to encode.
std::size_t cost_of(const storage::Topic& topic) {
  return 1 + static_cast<std::size_t>(topic.partitions) / 8;
}

// The memory of a topic's answer: once itself, and once its bytes on the wire.
std::size_t metadata_bytes(const storage::Topic& topic) {
  using Response = protocol::MetadataResponse;
  constexpr std::size_t bytes_a_partition = sizeof(Response::Partition) + 2 * sizeof(void*) + 40;
  return sizeof(Response::Topic) + 2 * topic.name.size() +
         static_cast<std::size_t>(topic.partitions) * bytes_a_partition;
}

asio::awaitable<protocol::MetadataResponse> metadata(RequestContext& context,
                                                     const protocol::MetadataRequest& request) {
  Broker& broker = context.broker;
  const auto& config = broker.identity();
  protocol::MetadataResponse response;
  auto& self = response.brokers.emplace_back();
  self.node_id = config.node_id;
  const auto address = advertised_to(context);
  self.host = address.host;
  self.port = address.port;
  response.cluster_id = config.cluster_id;
  response.controller_id = config.node_id;
  if (request.include_cluster_authorized_operations)
    response.cluster_authorized_operations = allowed_cluster_operations(context);
  const auto operations_on = [&](std::string_view name) {
    return request.include_topic_authorized_operations
               ? allowed_operations(context, topic_operations, AclResource::topic, name)
               : operations_not_asked;
  };

  YieldBudget budget(context.shard, &context.connection);
  AnswerMemory memory(context);
  // Version 0 asks for all with an empty list, the later ones with null.
  const bool all = !request.topics || (context.version() == 0 && request.topics->empty());
  if (all) {
    // One image of all topics, even if they change meanwhile.
    const auto topics = context.shard.topics().by_name();
    for (const auto& topic : topics) {
      if (!is_allowed(context, AclOperation::describe, AclResource::topic, topic->name)) continue;
      if (budget.spend(cost_of(*topic)) && !co_await budget.yield()) co_return response;
      if (memory.spend(metadata_bytes(*topic)) && !co_await memory.take()) co_return response;
      response.topics.push_back(describe(*topic, config.node_id, operations_on(topic->name)));
    }
    co_return response;
  }
  const bool create = context.shard.config().auto_create_topics &&
                      // Older clients cannot say that they do not want it.
                      (context.version() < 4 || request.allow_auto_topic_creation);
  // Once is enough, of a topic that has many partitions too.
  std::set<std::string_view> names;
  std::set<TopicId> ids;
  for (const auto& asked : *request.topics) {
    if (budget.spend() && !co_await budget.yield()) co_return response;
    const bool again =
        asked.name ? !names.insert(*asked.name).second : !ids.insert(asked.topic_id).second;
    if (again) continue;
    if (!asked.name) {
      auto topic = context.shard.topics().find(asked.topic_id);
      // An id tells a client nothing about a topic that it may not see.
      if (topic && !authorize_topic(context, AclOperation::describe, topic->name)) topic = nullptr;
      if (topic && budget.spend(cost_of(*topic)) && !co_await budget.yield()) co_return response;
      if (topic && memory.spend(metadata_bytes(*topic)) && !co_await memory.take())
        co_return response;
      response.topics.push_back(
          topic ? describe(*topic, config.node_id, operations_on(topic->name))
                : unknown(asked, ErrorCode::unknown_topic_id, operations_not_asked));
      continue;
    }
    if (!authorize_topic(context, AclOperation::describe, *asked.name)) {
      response.topics.push_back(
          unknown(asked, ErrorCode::topic_authorization_failed, operations_not_asked));
      continue;
    }
    auto topic = context.shard.topics().find(*asked.name);
    ErrorCode code = ErrorCode::unknown_topic_or_partition;
    if (!topic && !topic_name_error(*asked.name).empty()) {
      code = ErrorCode::invalid_topic;
    } else if (!topic && create && !may_create_topic(context, *asked.name)) {
      code = ErrorCode::topic_authorization_failed;
    } else if (!topic && create) {
      Topics::NewTopic wanted;
      wanted.name = *asked.name;
      std::vector<TopicChange> creation;
      creation.push_back(
          [&broker, wanted = std::move(wanted)] { return broker.topics().create(wanted); });
      const auto created = co_await change_topics(context, create_topics_kind, std::move(creation),
                                                  context.shard.tick_after(max_creation_wait));
      if (context.connection.closed()) co_return response;
      // Somebody else may have been faster.
      topic = context.shard.topics().find(*asked.name);
      // Its time was up, but it may still be made: the client asks again.
      if (!topic && created.empty()) code = ErrorCode::leader_not_available;
      if (!topic && !created.empty() && !created[0]) code = created[0].error().code;
    }
    if (topic && memory.spend(metadata_bytes(*topic)) && !co_await memory.take())
      co_return response;
    response.topics.push_back(topic ? describe(*topic, config.node_id, operations_on(topic->name))
                                    : unknown(asked, code, operations_on(*asked.name)));
    if (topic && budget.spend(cost_of(*topic)) && !co_await budget.yield()) co_return response;
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_metadata(RequestContext context) {
  return run<protocol::MetadataRequest, metadata>(std::move(context));
}

}  // namespace tarry::broker
