// DescribeTopicPartitions (key 75), version 0: topics in the order of their names, page by page.

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "broker/broker.h"
#include "broker/context/freed_on_pool.h"
#include "broker/context/yield_budget.h"
#include "broker/handlers/all.h"
#include "broker/handlers/answer_room.h"
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

std::int32_t page_limit(const DescribeTopicPartitionsRequest& request) {
  return std::clamp(request.response_partition_limit, 1, max_partitions);
}

// One is authorized, then each of its operations is.
constexpr std::size_t microseconds_a_description = 5;

// In the order of the names, because the cursor of a page is a name.  Views of the request, or of
// `listed`.
struct PageNames {
  std::set<std::string_view> names;
  std::vector<storage::TopicsImage::TopicPtr> listed;
  std::string_view next;  // The first name of the next page; empty: this one may be the last.
};

// Lists the topics that a page may show, from the cursor on: each has a partition at least.  False:
// nobody waits for the answer any more.
asio::awaitable<bool> list_page(PageNames& page, const RequestContext& context,
                                std::string_view cursor, std::size_t max_names,
                                YieldBudget& budget) {
  std::string from(cursor);
  for (;;) {
    // There may be others after each yield, so the walk goes on by the name.
    const auto& topics = context.shard.topics().by_name();
    auto at = topics.lower_bound(from);
    for (; at != topics.end() && page.listed.size() < max_names && !budget.spend(); ++at) {
      // Without a line in the log: nobody has asked for these by name.
      if (!is_allowed(context, AclOperation::describe, AclResource::topic, (*at)->name)) continue;
      page.listed.push_back(*at);
      page.names.insert(page.names.end(), (*at)->name);
    }
    if (page.listed.size() >= max_names) page.next = page.listed.back()->name;
    if (at == topics.end() || page.listed.size() >= max_names) co_return true;
    from = (*at)->name;
    const bool waits = co_await budget.yield();
    if (!waits) co_return false;
  }
}

asio::awaitable<DescribeTopicPartitionsResponse> describe_page(
    RequestContext& context, const DescribeTopicPartitionsRequest& request, const PageNames& page,
    YieldBudget& budget) {
  const std::int32_t node = context.broker.identity().node_id;
  DescribeTopicPartitionsResponse response;
  std::int32_t left = page_limit(request);
  const bool room = co_await reserve_charged(context, page.names.size(), response.topics);
  if (!room) co_return response;
  for (const std::string_view name : page.names) {
    if (budget.spend(microseconds_a_description) && !co_await budget.yield()) co_return response;
    if (request.cursor && name < request.cursor->topic_name) continue;
    const auto topic = context.shard.topics().find(name);
    PartitionIndex from = 0;
    if (request.cursor && name == request.cursor->topic_name)
      from = std::max(request.cursor->partition_index, 0);
    // Before the topic is looked at, so that the next page begins with it.
    if (left == 0 || (!page.next.empty() && name == page.next)) {
      response.next_cursor = {std::string(name), from};
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
        response.next_cursor = {std::string(name), p};
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

asio::awaitable<DescribeTopicPartitionsResponse> describe_topic_partitions(
    RequestContext& context, const DescribeTopicPartitionsRequest& request) {
  YieldBudget budget(context.shard, &context.connection);
  PageNames page;
  const FreedOnPool freed(context.shard, page.names);
  bool waits = true;
  if (request.topics.empty()) {
    const auto cursor = request.cursor ? request.cursor->topic_name : std::string_view();
    // One more than fits, for the cursor of the next page.
    const auto max_names = static_cast<std::size_t>(page_limit(request)) + 1;
    waits = co_await list_page(page, context, cursor, max_names, budget);
  }
  for (const auto& topic : request.topics) {
    if (waits && budget.spend()) waits = co_await budget.yield();
    if (!waits) break;
    page.names.insert(topic.name);
  }
  DescribeTopicPartitionsResponse response;
  if (waits) response = co_await describe_page(context, request, page, budget);
  co_return response;
}

}  // namespace

boost::asio::awaitable<Answer> run_describe_topic_partitions(RequestContext context) {
  return run<DescribeTopicPartitionsRequest, describe_topic_partitions>(std::move(context));
}

}  // namespace tarry::broker
