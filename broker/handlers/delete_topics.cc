// DeleteTopics (key 20), versions 1 to 6.  A topic with pending delayed records is refused with
// POLICY_VIOLATION and their number: a deletion must not drop them silently.  Past timeout_ms those
// that are not deleted are answered with REQUEST_TIMED_OUT
// (broker/handlers/delayed_topic_change.h).

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
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
#include "protocol/messages/delete_topics.h"

namespace tarry::broker {

using protocol::DeleteTopicsRequest;
using protocol::DeleteTopicsResponse;
using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

void refuse_deletion(DeleteTopicsResponse::Response& answer, ErrorCode code, std::string message) {
  answer.error_code = code;
  answer.error_message = std::move(message);
}

asio::awaitable<DeleteTopicsResponse> delete_topics(RequestContext& context,
                                                    const DeleteTopicsRequest& request) {
  Broker& broker = context.broker;
  const auto deadline =
      context.shard.tick_after(std::chrono::milliseconds(std::max(request.timeout_ms, 0)));
  DeleteTopicsResponse response;
  // Version 6 names them or gives their ids; of these lists a request has one.
  const std::size_t count = request.topics.size() + request.topic_names.size();
  const auto asked = [&request](std::size_t i) {
    const std::size_t named = i - std::min(i, request.topics.size());
    return i < request.topics.size() ? request.topics[i]
                                     : DeleteTopicsRequest::Topic{request.topic_names[named], {}};
  };

  std::vector<TopicChange> removals;
  std::vector<std::size_t> places;
  std::set<TopicId> seen;
  std::vector<TopicResult<TopicPtr>> removed;
  const FreedOnPool freed(context.shard, removals, seen, removed);
  YieldBudget budget(context.shard, &context.connection);
  const bool room = co_await reserve_charged(context, count, response.responses);
  if (!room) co_return response;
  for (std::size_t i = 0; i < count; ++i) {
    if (budget.spend() && !co_await budget.yield()) co_return response;
    const DeleteTopicsRequest::Topic topic = asked(i);
    auto& answer = response.responses.emplace_back();
    if (topic.name) answer.name = std::string(*topic.name);
    answer.topic_id = topic.topic_id;
    if (topic.name && !topic.topic_id.is_zero()) {
      refuse_deletion(answer, ErrorCode::invalid_request,
                      "Give the name of a topic or its id, not both.");
      continue;
    }
    if (!context.shard.config().delete_topics) {
      refuse_deletion(answer, ErrorCode::topic_deletion_disabled, "delete.topic.enable is false");
      continue;
    }
    // Only those who may see it learn whether there is such a topic.
    if (topic.name && !authorize_topic(context, AclOperation::remove, *topic.name)) {
      refuse_deletion(answer, ErrorCode::topic_authorization_failed, "Authorization failed.");
      continue;
    }
    const auto known = topic.name ? context.shard.topics().find(*topic.name)
                                  : context.shard.topics().find(topic.topic_id);
    if (!known) {
      refuse_deletion(
          answer, topic.name ? ErrorCode::unknown_topic_or_partition : ErrorCode::unknown_topic_id,
          topic.name ? "This server does not host this topic-partition."
                     : "This server does not host this topic ID.");
      continue;
    }
    // With an id the name to ask for is known only now.
    if (!topic.name && !authorize_topic(context, AclOperation::remove, known->name)) {
      refuse_deletion(answer, ErrorCode::topic_authorization_failed, "Authorization failed.");
      continue;
    }
    if (!seen.insert(known->id).second) {
      refuse_deletion(answer, ErrorCode::invalid_request, "Duplicate topic.");
      continue;
    }
    places.push_back(response.responses.size() - 1);
    removals.push_back([&broker, id = known->id] { return broker.topics().remove(id, false); });
  }
  removed = co_await change_topics(context, delete_topics_kind, std::move(removals), deadline);
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (budget.spend() && !co_await budget.yield()) co_return response;
    auto& answer = response.responses[places[i]];
    // Results come in the order of the request, so those that lack were not in time.
    if (i >= removed.size()) {
      refuse_deletion(
          answer, ErrorCode::request_timed_out,
          fmt::format("The topic was not deleted within {} ms; it may still be deleted.",
                      request.timeout_ms));
    } else if (!removed[i]) {
      // Somebody was faster.  A topic that was named is answered with the error of names.
      const bool gone = removed[i].error().code == ErrorCode::unknown_topic_id && answer.name;
      refuse_deletion(answer,
                      gone ? ErrorCode::unknown_topic_or_partition : removed[i].error().code,
                      std::move(removed[i].error().message));
    } else {
      answer.name = (*removed[i])->name;
      answer.topic_id = (*removed[i])->id;
    }
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_delete_topics(RequestContext context) {
  return run<DeleteTopicsRequest, delete_topics>(std::move(context));
}

}  // namespace tarry::broker
