// OffsetCommit (key 8), versions 2 to 9.
//
// Answered when the offsets are durable.  A member commits for its generation; who gives no
// generation and no member id (a consumer that assigns itself, an operator's tool) commits to a
// group without members, which is made for it.  Partitions that are refused for themselves (there
// is none, the metadata is too long) do not keep the others from being committed.

#include <algorithm>
#include <iterator>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "broker/broker.h"
#include "broker/context/cancel_on_close.h"
#include "broker/context/freed_on_pool.h"
#include "broker/context/yield_budget.h"
#include "broker/groups/groups.h"
#include "broker/handlers/all.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/resolve.h"
#include "broker/handlers/run.h"
#include "protocol/messages/offset_commit.h"

namespace tarry::broker {

using protocol::ErrorCode;
using protocol::OffsetCommitRequest;
using protocol::OffsetCommitResponse;
using std::chrono::milliseconds;
namespace asio = boost::asio;

namespace {

// When what is committed now expires by the client's own wish; versions 2 to 4 may have one.
WallTime expires_at(WallTime now, std::int64_t retention_ms) {
  if (retention_ms < 0) return storage::never_expires;
  const auto longest = to_ms(storage::never_expires) - 1 - to_ms(now);
  return now + milliseconds{std::min(retention_ms, longest)};
}

// Consumers commit some thousands at the most; a tool's may be many more, and each piece of them is
// written, and told to the store, in a turn of its own.  If one is refused, the tool asks again.
constexpr std::size_t commits_at_once = 2000;

// On the group's shard, which may do without the group in between.
asio::awaitable<ErrorCode> commit_in_steps(Shard& shard, const OffsetCommitRequest& request,
                                           const std::string& owner, GroupOffsets::Commits commits,
                                           std::shared_ptr<CancellationToken> token) {
  for (std::size_t from = 0; from < commits.size(); from += commits_at_once) {
    const auto first = commits.begin() + static_cast<std::ptrdiff_t>(from);
    const auto count = std::min(commits.size() - from, commits_at_once);
    GroupOffsets::Commits some(std::make_move_iterator(first),
                               std::make_move_iterator(first + static_cast<std::ptrdiff_t>(count)));
    // Looked up and asked again: while others had their turn the group may have gone, or its member
    // may have lost its place, and what it commits would take the place of what the next one has.
    GroupEntry* const group = shard.groups().find(request.group_id);
    if (group == nullptr) co_return ErrorCode::coordinator_not_available;
    const auto refused = group->check_commit(request.generation_id_or_member_epoch,
                                             request.member_id, request.group_instance_id);
    if (refused != ErrorCode::none) co_return refused;
    const auto lsn = shard.groups().commit(*group, owner, std::move(some));
    if (!lsn) co_return lsn.error();
    const auto code = co_await wait_for_offsets(shard, *lsn, offset_commit_kind, *token);
    if (code != ErrorCode::none) co_return code;
  }
  co_return ErrorCode::none;
}

// On the group's shard.
asio::awaitable<ErrorCode> commit(Shard& shard, const OffsetCommitRequest& request,
                                  const std::string& owner, GroupOffsets::Commits commits,
                                  std::shared_ptr<CancellationToken> token) {
  Groups& groups = shard.groups();
  const std::int32_t generation = request.generation_id_or_member_epoch;
  GroupEntry* group = groups.find(request.group_id);
  if (group == nullptr) {
    // A member of a group that is not there comes too late; the group has begun anew, or will.
    if (generation >= 0) co_return ErrorCode::illegal_generation;
    const auto made = groups.find_or_make(request.group_id, owner);
    if (!made) co_return made.error();
    group = *made;
  }
  ErrorCode code = group->check_commit(generation, request.member_id, request.group_instance_id);
  if (code == ErrorCode::none) {
    // A commit shows that the member is there, as a heartbeat does.
    group->touch_session(request.member_id);
    if (commits.size() > commits_at_once) {
      code = co_await commit_in_steps(shard, request, owner, std::move(commits), std::move(token));
      if (GroupEntry* const left = groups.find(request.group_id)) groups.drop_if_unused(*left);
      co_return code;
    }
    const auto lsn = groups.commit(*group, owner, std::move(commits));
    if (lsn) co_return co_await wait_for_offsets(shard, *lsn, offset_commit_kind, *token);
    code = lsn.error();
  }
  groups.drop_if_unused(*group);  // It may have been made for nothing.
  co_return code;
}

asio::awaitable<OffsetCommitResponse> offset_commit(RequestContext& context,
                                                    const OffsetCommitRequest& request) {
  Broker& broker = context.broker;
  const WallTime now = broker.clock().wall();
  const WallTime expires = expires_at(now, request.retention_time_ms);
  const auto longest = static_cast<std::size_t>(context.shard.config().offset_metadata_bytes);
  OffsetCommitResponse response;
  GroupOffsets::Commits commits;
  std::unordered_map<TopicPartition, std::size_t> places;
  const FreedOnPool freed(context.shard, places);
  const bool group_may = authorize_group(context, AclOperation::read, request.group_id);
  YieldBudget budget(context.shard, &context.connection);
  for (const auto& topic : request.topics) {
    if (budget.spend() && !co_await budget.yield()) co_return response;
    auto& answers = response.topics.emplace_back();
    answers.name = topic.name;
    const auto known = context.shard.topics().find(topic.name);
    const bool may = group_may && authorize_topic(context, AclOperation::read, topic.name);
    for (const auto& partition : topic.partitions) {
      if (budget.spend() && !co_await budget.yield()) co_return response;
      auto& answer = answers.partitions.emplace_back();
      answer.partition_index = partition.partition_index;
      const auto metadata = partition.committed_metadata.value_or("");
      const auto place = resolve(known, partition.partition_index);
      if (!may) {
        answer.error_code = group_may ? ErrorCode::topic_authorization_failed
                                      : ErrorCode::group_authorization_failed;
      } else if (!place) {
        answer.error_code = place.error();
      } else if (metadata.size() > longest) {
        answer.error_code = ErrorCode::offset_metadata_too_large;
      } else {
        const CommittedOffset offset{partition.committed_offset, partition.committed_leader_epoch,
                                     now, expires, std::string(metadata)};
        // If a partition is named twice, the last offset counts.
        const auto [known_at, is_new] = places.try_emplace(*place, commits.size());
        if (is_new) {
          commits.emplace_back(*place, offset);
        } else {
          commits[known_at->second].second = offset;
        }
      }
    }
  }
  ErrorCode code = ErrorCode::none;
  if (!commits.empty()) {
    Shard& shard = broker.shard_of_group(request.group_id);
    const CancelOnClose cancel_on_close(context.connection, context.shard, shard);
    const std::string owner = owner_of(context.connection);
    auto work = [&shard, &request, &owner, &commits, token = cancel_on_close.token()] {
      return commit(shard, request, owner, std::move(commits), token);
    };
    code = co_await broker.on(context.shard, shard, std::move(work));
  }
  if (code == ErrorCode::none) co_return response;
  for (auto& topic : response.topics) {
    for (auto& partition : topic.partitions)
      // Partitions that were refused for themselves keep their own error.
      if (partition.error_code == ErrorCode::none) partition.error_code = code;
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_offset_commit(RequestContext context) {
  return run<OffsetCommitRequest, offset_commit>(std::move(context));
}

}  // namespace tarry::broker
