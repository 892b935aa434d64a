// CreatePartitions (key 37), versions 0 to 3.  Past timeout_ms the topics that do not have theirs
// are answered with REQUEST_TIMED_OUT (broker/handlers/delayed_topic_change.h).

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "broker/broker.h"
#include "broker/context/freed_on_pool.h"
#include "broker/context/yield_budget.h"
#include "broker/handlers/all.h"
#include "broker/handlers/answer_room.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/delayed_topic_change.h"
#include "broker/handlers/run.h"
#include "protocol/messages/create_partitions.h"

namespace tarry::broker {

using protocol::CreatePartitionsRequest;
using protocol::CreatePartitionsResponse;
using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

// Only compared with this broker's id.
constexpr std::size_t assignments_a_microsecond = 64;

asio::awaitable<CreatePartitionsResponse> create_partitions(
    RequestContext& context, const CreatePartitionsRequest& request) {
  Broker& broker = context.broker;
  const auto deadline =
      context.shard.tick_after(std::chrono::milliseconds(std::max(request.timeout_ms, 0)));
  CreatePartitionsResponse response;
  const std::array node{broker.identity().node_id};
  std::vector<TopicChange> additions;
  std::vector<std::size_t> places;
  std::map<std::string_view, std::size_t> times;
  std::vector<TopicResult<TopicPtr>> added;
  const FreedOnPool freed(context.shard, additions, times, added);
  YieldBudget budget(context.shard, &context.connection);
  // Counted first: of two with the same name neither is made, as in Kafka.
  for (const auto& topic : request.topics) {
    if (budget.spend() && !co_await budget.yield()) co_return response;
    ++times[topic.name];
  }
  const bool room =
      co_await reserve_charged(context, request.topics.size(), response.results, additions);
  if (!room) co_return response;
  for (const auto& asked : request.topics) {
    const std::size_t assignments = asked.assignments ? asked.assignments->size() : 0;
    const std::size_t microseconds = 2 + assignments / assignments_a_microsecond;
    if (budget.spend(microseconds) && !co_await budget.yield()) co_return response;
    auto& answer = response.results.emplace_back();
    answer.name = asked.name;
    if (times[asked.name] > 1) {
      answer.error_code = ErrorCode::invalid_request;
      answer.error_message = "Duplicate topic name.";
      continue;
    }
    // Before anything that would tell whether the topic exists.
    if (!authorize_topic(context, AclOperation::alter, asked.name)) {
      answer.error_code = ErrorCode::topic_authorization_failed;
      answer.error_message = "Authorization failed.";
      continue;
    }
    if (asked.assignments) {
      const bool here = std::ranges::all_of(*asked.assignments, [&](const auto& assignment) {
        return std::ranges::equal(assignment.broker_ids, node);
      });
      const auto known = context.shard.topics().find(asked.name);
      // A client assigns the new partitions alone.
      const auto more = known ? asked.count - known->partitions : 0;
      if (!here ||
          (known && more > 0 && asked.assignments->size() != static_cast<std::size_t>(more))) {
        answer.error_code = ErrorCode::invalid_replica_assignment;
        answer.error_message =
            fmt::format("Every new partition must be assigned to broker {}, the only broker.",
                        broker.identity().node_id);
        continue;
      }
    }
    places.push_back(response.results.size() - 1);
    additions.push_back([&broker, name = std::string(asked.name), count = asked.count,
                         only_check = request.validate_only] {
      return broker.topics().add_partitions(name, count, only_check);
    });
  }
  added = co_await change_topics(context, create_partitions_kind, std::move(additions), deadline);
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (budget.spend() && !co_await budget.yield()) co_return response;
    auto& answer = response.results[places[i]];
    // Results come in the order of the request, so those that lack were not in time.
    if (i >= added.size()) {
      answer.error_code = ErrorCode::request_timed_out;
      answer.error_message =
          fmt::format("The partitions were not created within {} ms; they may still be created.",
                      request.timeout_ms);
    } else if (!added[i]) {
      answer.error_code = added[i].error().code;
      answer.error_message = std::move(added[i].error().message);
    }
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_create_partitions(RequestContext context) {
  return run<CreatePartitionsRequest, create_partitions>(std::move(context));
}

}  // namespace tarry::broker
