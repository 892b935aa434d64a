// Metadata (key 3), versions 0 to 12.  Creates topics that are asked for by name and are not
// there, when client and configuration both allow it.

#include <chrono>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "broker/broker.h"
#include "broker/context/freed_on_pool.h"
#include "broker/context/yield_budget.h"
#include "broker/handlers/advertised.h"
#include "broker/handlers/all.h"
#include "broker/handlers/answer_room.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/delayed_topic_change.h"
#include "broker/handlers/operations.h"
#include "broker/handlers/run.h"
#include "protocol/messages/metadata.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

// Each with the vectors of its answer, described and encoded.
constexpr PartitionIndex partitions_a_microsecond = 8;

// In steps, because a topic may have very many partitions.  Empty: nobody waits for the answer any
// more.
asio::awaitable<std::optional<protocol::MetadataResponse::Topic>> describe(
    Shard& shard, storage::TopicsImage::TopicPtr topic, std::int32_t node, std::int32_t operations,
    YieldBudget& budget) {
  protocol::MetadataResponse::Topic out;
  const FreedOnPool freed(shard, out.partitions);
  out.name = topic->name;
  out.topic_id = topic->id;
  out.topic_authorized_operations = operations;
  out.partitions.reserve(static_cast<std::size_t>(topic->partitions));
  for (PartitionIndex p = 0; p < topic->partitions; ++p) {
    const bool is_time = p % partitions_a_microsecond == 0 && budget.spend();
    if (is_time) {
      const bool waits = co_await budget.yield();
      if (!waits) co_return std::nullopt;
    }
    auto& partition = out.partitions.emplace_back();
    partition.partition_index = p;
    partition.leader_id = node;
    partition.leader_epoch = 0;
    partition.replica_nodes = {node};
    partition.isr_nodes = {node};
  }
  co_return out;
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

// The memory of a topic's answer: once itself, and once its bytes on the wire.
std::size_t metadata_bytes(const storage::Topic& topic) {
  using Response = protocol::MetadataResponse;
  constexpr std::size_t bytes_a_partition = sizeof(Response::Partition) + 2 * sizeof(void*) + 40;
  return sizeof(Response::Topic) + 2 * topic.name.size() +
         static_cast<std::size_t>(topic.partitions) * bytes_a_partition;
}

// An answer in the making.
struct Telling {
  RequestContext& context;
  const protocol::MetadataRequest& request;
  protocol::MetadataResponse& response;
  YieldBudget budget;
  AnswerMemory memory;

  std::int32_t operations_on(std::string_view name) const {
    return request.include_topic_authorized_operations
               ? allowed_operations(context, topic_operations, AclResource::topic, name)
               : operations_not_asked;
  }
  // To look at a topic; each of eight operations is looked up.
  std::size_t microseconds() const { return request.include_topic_authorized_operations ? 5 : 1; }
};

// The functions from here on return false when nobody waits for the answer any more.

asio::awaitable<bool> tell(Telling& telling, storage::TopicsImage::TopicPtr topic) {
  if (telling.memory.spend(metadata_bytes(*topic)) && !co_await telling.memory.take())
    co_return false;
  const std::int32_t node = telling.context.broker.identity().node_id;
  const auto operations = telling.operations_on(topic->name);
  auto described =
      co_await describe(telling.context.shard, std::move(topic), node, operations, telling.budget);
  if (!described) co_return false;
  telling.response.topics.push_back(std::move(*described));
  co_return true;
}

asio::awaitable<bool> tell_all(Telling& telling) {
  const RequestContext& context = telling.context;
  // One image of all topics, even if they change meanwhile.
  const auto topics = context.shard.topics().by_name();
  for (const auto& topic : topics) {
    // Before it is looked at, because a client may not be allowed to see most of them.
    if (telling.budget.spend(telling.microseconds()) && !co_await telling.budget.yield())
      co_return false;
    if (!is_allowed(context, AclOperation::describe, AclResource::topic, topic->name)) continue;
    const bool waits = co_await tell(telling, topic);
    if (!waits) co_return false;
  }
  co_return true;
}

asio::awaitable<bool> tell_by_id(Telling& telling, const protocol::MetadataRequest::Topic& asked) {
  auto topic = telling.context.shard.topics().find(asked.topic_id);
  // An id tells a client nothing about a topic that it may not see.
  if (topic && authorize_topic(telling.context, AclOperation::describe, topic->name))
    co_return co_await tell(telling, std::move(topic));
  telling.response.topics.push_back(
      unknown(asked, ErrorCode::unknown_topic_id, operations_not_asked));
  co_return true;
}

// Makes a topic that somebody asked for; the error if it is not there then.
asio::awaitable<ErrorCode> create_asked(RequestContext& context, std::string_view name) {
  Topics::NewTopic wanted;
  wanted.name = name;
  std::vector<TopicChange> creation;
  creation.push_back([&broker = context.broker, wanted = std::move(wanted)] {
    return broker.topics().create(wanted);
  });
  const auto created = co_await change_topics(context, create_topics_kind, std::move(creation),
                                              context.shard.tick_after(max_creation_wait));
  // Its time was up, but it may still be made: the client asks again.
  if (created.empty()) co_return ErrorCode::leader_not_available;
  co_return created[0] ? ErrorCode::unknown_topic_or_partition : created[0].error().code;
}

asio::awaitable<bool> tell_by_name(Telling& telling,
                                   const protocol::MetadataRequest::Topic& asked) {
  RequestContext& context = telling.context;
  const std::string_view name = *asked.name;
  if (!authorize_topic(context, AclOperation::describe, name)) {
    telling.response.topics.push_back(
        unknown(asked, ErrorCode::topic_authorization_failed, operations_not_asked));
    co_return true;
  }
  const bool create = context.shard.config().auto_create_topics &&
                      // Older clients cannot say that they do not want it.
                      (context.version() < 4 || telling.request.allow_auto_topic_creation);
  auto topic = context.shard.topics().find(name);
  ErrorCode code = ErrorCode::unknown_topic_or_partition;
  if (!topic && !topic_name_error(name).empty()) {
    code = ErrorCode::invalid_topic;
  } else if (!topic && create && !may_create_topic(context, name)) {
    code = ErrorCode::topic_authorization_failed;
  } else if (!topic && create) {
    code = co_await create_asked(context, name);
    if (context.connection.closed()) co_return false;
    // Somebody else may have been faster.
    topic = context.shard.topics().find(name);
  }
  if (topic) co_return co_await tell(telling, std::move(topic));
  telling.response.topics.push_back(unknown(asked, code, telling.operations_on(name)));
  co_return true;
}

asio::awaitable<void> tell_asked(Telling& telling) {
  // Once is enough, of a topic that has many partitions too.
  std::set<std::string_view> names;
  std::set<TopicId> ids;
  const FreedOnPool freed(telling.context.shard, names, ids);
  const bool room = co_await reserve_charged(telling.context, telling.request.topics->size(),
                                             telling.response.topics);
  if (!room) co_return;
  for (const auto& asked : *telling.request.topics) {
    if (telling.budget.spend(telling.microseconds()) && !co_await telling.budget.yield()) break;
    const bool again =
        asked.name ? !names.insert(*asked.name).second : !ids.insert(asked.topic_id).second;
    if (again) continue;
    auto told = asked.name ? tell_by_name(telling, asked) : tell_by_id(telling, asked);
    const bool waits = co_await std::move(told);
    if (!waits) break;
  }
}

asio::awaitable<protocol::MetadataResponse> metadata(RequestContext& context,
                                                     const protocol::MetadataRequest& request) {
  const auto& config = context.broker.identity();
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

  Telling telling{context, request, response, YieldBudget(context.shard, &context.connection),
                  AnswerMemory(context)};
  // Version 0 asks for all with an empty list, the later ones with null.
  const bool all = !request.topics || (context.version() == 0 && request.topics->empty());
  if (all) {
    co_await tell_all(telling);
  } else {
    co_await tell_asked(telling);
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_metadata(RequestContext context) {
  return run<protocol::MetadataRequest, metadata>(std::move(context));
}

}  // namespace tarry::broker
