// OffsetDelete (key 47), version 0.  Forgets what a group has committed, but nothing of a topic
// that a member subscribes to (GROUP_SUBSCRIBED_TO_TOPIC); answered when that is durable.

#include <algorithm>
#include <cstddef>
#include <expected>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "broker/broker.h"
#include "broker/context/cancel_on_close.h"
#include "broker/context/yield_budget.h"
#include "broker/groups/groups.h"
#include "broker/groups/subscription.h"
#include "broker/handlers/all.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/resolve_each.h"
#include "broker/handlers/run.h"
#include "protocol/consumer_protocol.h"
#include "protocol/messages/offset_delete.h"

namespace tarry::broker {

using protocol::ErrorCode;
using protocol::OffsetDeleteRequest;
using protocol::OffsetDeleteResponse;
namespace asio = boost::asio;

namespace {

// Each piece of so many is written, and told to the store, in a turn of its own.
constexpr std::size_t deletions_at_once = 1000;

// A partition that exists, of a topic that the client may read.
struct DeletionOf {
  TopicPartition place;
  std::string_view topic;
  OffsetDeleteResponse::Partition* answer;
};

// The topics whose offsets a group with members must keep.
class TopicsInUse {
 public:
  // NON_EMPTY_GROUP: it is not known which topics its members read.
  static std::expected<TopicsInUse, ErrorCode> of(const GroupEntry& group) {
    TopicsInUse out;
    out.empty_ = group.is(GroupState::empty);
    if (out.empty_) return out;
    if (group.protocol_type() != protocol::consumer_protocol_type)
      return std::unexpected(ErrorCode::non_empty_group);
    out.subscribed_ = subscription_of(group);
    return out;
  }
  // A group that does not tell its subscription may read any topic.
  bool contains(std::string_view topic) const {
    return !empty_ && (!subscribed_ || subscribed_->contains(topic));
  }

 private:
  bool empty_ = false;
  std::optional<std::set<std::string, std::less<>>> subscribed_;
};

// On the group's shard; fills in the partitions' codes and returns the group's.
asio::awaitable<ErrorCode> forget(Shard& shard, std::string_view group_id,
                                  std::span<const DeletionOf> left,
                                  std::shared_ptr<CancellationToken> token) {
  bool is_first = true;
  do {
    const auto some = left.first(std::min(left.size(), deletions_at_once));
    left = left.subspan(some.size());
    // Looked up for each piece, because the group may change or go while others have their turn.
    GroupEntry* const group = shard.groups().find(group_id);
    if (group == nullptr || group->is(GroupState::dead)) {
      // Without members it goes with the last of its offsets, which an earlier piece may have had.
      co_return is_first ? ErrorCode::group_id_not_found : ErrorCode::none;
    }
    const auto in_use = TopicsInUse::of(*group);
    if (!in_use) co_return in_use.error();
    std::vector<TopicPartition> gone;
    for (const DeletionOf& each : some) {
      if (in_use->contains(each.topic)) {
        each.answer->error_code = ErrorCode::group_subscribed_to_topic;
      } else {
        gone.push_back(each.place);
      }
    }
    const auto lsn = group->offsets.remove(std::move(gone));
    if (!lsn) co_return lsn.error();
    is_first = false;
    if (*lsn == 0) {  // None of them was there.
      YieldBudget budget(shard, nullptr);
      if (!left.empty()) co_await budget.yield();
      continue;
    }
    const auto code = co_await wait_for_offsets(shard, *lsn, offset_delete_kind, *token);
    if (code != ErrorCode::none) co_return code;
  } while (!left.empty());
  co_return ErrorCode::none;
}

asio::awaitable<OffsetDeleteResponse> offset_delete(RequestContext& context,
                                                    const OffsetDeleteRequest& request) {
  Broker& broker = context.broker;
  OffsetDeleteResponse response;
  if (!authorize_group(context, AclOperation::remove, request.group_id)) {
    response.error_code = ErrorCode::group_authorization_failed;
    co_return response;
  }
  std::vector<DeletionOf> deletions;
  const auto take = [&](const TopicPartition& id, const auto& topic, const auto&, auto& answer) {
    deletions.push_back({id, topic.name, &answer});
  };
  const OffsetDeleteResponse::Partition blank;
  if (!co_await resolve_each(context, AclOperation::read, request.topics, response.topics, blank,
                             take))
    co_return response;
  Shard& shard = broker.shard_of_group(request.group_id);
  const CancelOnClose cancel_on_close(context.connection, context.shard, shard);
  auto work = [&shard, &request, &deletions, token = cancel_on_close.token()] {
    return forget(shard, request.group_id, deletions, token);
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
