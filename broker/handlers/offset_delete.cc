// OffsetDelete (key 47), version 0.  Forgets what a group has committed, but nothing of a topic
// that a member subscribes to (GROUP_SUBSCRIBED_TO_TOPIC); answered when that is durable.

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "broker/broker.h"
#include "broker/context/cancel_on_close.h"
#include "broker/groups/groups.h"
#include "broker/groups/subscription.h"
#include "broker/handlers/all.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/resolve.h"
#include "broker/handlers/run.h"
#include "protocol/consumer_protocol.h"
#include "protocol/messages/offset_delete.h"

namespace tarry::broker {

using protocol::ErrorCode;
using protocol::OffsetDeleteRequest;
using protocol::OffsetDeleteResponse;
namespace asio = boost::asio;

namespace {

// On the group's shard; fills in the partitions' codes and returns the group's.
asio::awaitable<ErrorCode> forget(Shard& shard, const OffsetDeleteRequest& request,
                                  OffsetDeleteResponse& response, const std::vector<bool>& may,
                                  std::shared_ptr<CancellationToken> token) {
  GroupEntry* const group = shard.groups().find(request.group_id);
  if (group == nullptr || group->is(GroupState::dead)) co_return ErrorCode::group_id_not_found;
  const bool empty = group->is(GroupState::empty);
  // Only of consumers is it known which topics they read.
  if (!empty && group->protocol_type() != protocol::consumer_protocol_type)
    co_return ErrorCode::non_empty_group;
  std::optional<std::set<std::string, std::less<>>> subscribed;
  if (!empty && !request.topics.empty()) subscribed = subscription_of(*group);

  std::vector<TopicPartition> gone;
  for (const auto& topic : request.topics) {
    // Before its answer is added, so the size is its index.
    const bool readable = may[response.topics.size()];
    auto& answers = response.topics.emplace_back();
    answers.name = topic.name;
    const auto known = shard.topics().find(topic.name);
    // A group that does not tell its subscription may read any topic.
    const bool in_use = !empty && (!subscribed || subscribed->contains(topic.name));
    for (const auto& partition : topic.partitions) {
      auto& answer = answers.partitions.emplace_back();
      answer.partition_index = partition.partition_index;
      const auto place = resolve(known, partition.partition_index);
      if (!readable) {
        answer.error_code = ErrorCode::topic_authorization_failed;
      } else if (!place) {
        answer.error_code = place.error();
      } else if (in_use) {
        answer.error_code = ErrorCode::group_subscribed_to_topic;
      } else {
        gone.push_back(*place);
      }
    }
  }
  const auto lsn = group->offsets.remove(std::move(gone));
  if (!lsn) co_return lsn.error();
  if (*lsn == 0) co_return ErrorCode::none;  // None of them was there.
  co_return co_await wait_for_offsets(shard, *lsn, offset_delete_kind, *token);
}

// Whether the client may read each topic of the request.
std::vector<bool> readable(const RequestContext& context, const OffsetDeleteRequest& request) {
  std::vector<bool> out;
  for (const auto& topic : request.topics)
    out.push_back(authorize_topic(context, AclOperation::read, topic.name));
  return out;
}

asio::awaitable<OffsetDeleteResponse> offset_delete(RequestContext& context,
                                                    const OffsetDeleteRequest& request) {
  Broker& broker = context.broker;
  OffsetDeleteResponse response;
  if (!authorize_group(context, AclOperation::remove, request.group_id)) {
    response.error_code = ErrorCode::group_authorization_failed;
    co_return response;
  }
  const auto may = readable(context, request);
  Shard& shard = broker.shard_of_group(request.group_id);
  const CancelOnClose cancel_on_close(context.connection, context.shard, shard);
  auto work = [&shard, &request, &response, &may, token = cancel_on_close.token()] {
    return forget(shard, request, response, may, token);
  };
  response.error_code = co_await broker.on(context.shard, shard, std::move(work));
  // As in Kafka, an error of the group stands alone.
  if (response.error_code != ErrorCode::none) response.topics.clear();
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_offset_delete(RequestContext context) {
  return run<OffsetDeleteRequest, offset_delete>(std::move(context));
}

}  // namespace tarry::broker
