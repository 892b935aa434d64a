// DeleteTopics (key 20), versions 1 to 6.  A topic with pending delayed records is refused with
// POLICY_VIOLATION and their number: a deletion must not drop them silently.

#include <utility>

#include "broker/broker.h"
#include "broker/handlers/all.h"
#include "broker/handlers/run.h"
#include "broker/handlers/turns.h"
#include "protocol/messages/delete_topics.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

using Request = protocol::DeleteTopicsRequest;
using Response = protocol::DeleteTopicsResponse;

asio::awaitable<Response> delete_topics(RequestContext& context, const Request& request) {
  Broker& broker = context.broker;
  Response response;
  // Version 6 names them or gives their ids.
  std::vector<Request::Topic> asked = request.topics;
  for (const auto name : request.topic_names) asked.push_back({name, {}});

  Turns turns(context.shard, &context.connection);
  for (const auto& topic : asked) {
    if (turns.over() && !co_await turns.next()) co_return response;
    auto& answer = response.responses.emplace_back();
    if (topic.name) answer.name = std::string(*topic.name);
    answer.topic_id = topic.topic_id;
    if (topic.name && !topic.topic_id.is_zero()) {
      answer.error_code = ErrorCode::invalid_request;
      answer.error_message = "A topic is named by its name or by its id, not by both.";
      continue;
    }
    if (!broker.config().delete_topics) {
      answer.error_code = ErrorCode::topic_deletion_disabled;
      answer.error_message = "delete.topic.enable is false";
      continue;
    }
    const auto known = topic.name ? context.shard.topics().find(*topic.name)
                                  : context.shard.topics().find(topic.topic_id);
    if (!known) {
      answer.error_code =
          topic.name ? ErrorCode::unknown_topic_or_partition : ErrorCode::unknown_topic_id;
      answer.error_message = topic.name ? "This server does not host this topic-partition."
                                        : "This server does not host this topic ID.";
      continue;
    }
    auto work = [&broker, id = known->id] { return broker.topics().remove(id, false); };
    const auto removed = co_await broker.on(context.shard, broker.shard(0), std::move(work));
    if (!removed) {
      answer.error_code = removed.error().code;
      answer.error_message = removed.error().message;
      continue;
    }
    answer.name = known->name;
    answer.topic_id = known->id;
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_delete_topics(RequestContext context) {
  return run<Request, delete_topics>(context);
}

}  // namespace tarry::broker
