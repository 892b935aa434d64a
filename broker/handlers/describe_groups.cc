// DescribeGroups (key 15), versions 0 to 6.  A group that is not there is "Dead", up to version 5
// without an error, in version 6 with GROUP_ID_NOT_FOUND.  What members subscribe to and are
// assigned is shown while the group is Stable: before, it is not decided.

#include <utility>

#include <fmt/core.h>

#include "broker/broker.h"
#include "broker/context/yield_budget.h"
#include "broker/groups/groups.h"
#include "broker/handlers/all.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/operations.h"
#include "broker/handlers/run.h"
#include "protocol/messages/describe_groups.h"

namespace tarry::broker {

using protocol::DescribeGroupsRequest;
using protocol::DescribeGroupsResponse;
using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

// Copied, with what each member takes beside its bytes.
constexpr std::size_t bytes_a_microsecond = 1000;
constexpr std::size_t bytes_a_group = sizeof(DescribeGroupsResponse::Group) + 64;

// On the group's shard.
DescribeGroupsResponse::Group described(Shard& shard, std::string_view id, int version) {
  DescribeGroupsResponse::Group answer;
  answer.group_id = id;
  const Group* const group = shard.groups().find(id);
  if (group == nullptr || group->is(GroupState::dead)) {
    answer.group_state = name_of(GroupState::dead);
    if (version >= 6) {
      answer.error_code = ErrorCode::group_id_not_found;
      answer.error_message = fmt::format("Group {} not found.", id);
    }
    return answer;
  }
  const bool stable = group->is(GroupState::stable);
  answer.group_state = name_of(group->state());
  answer.protocol_type = group->protocol_type();
  if (stable) answer.protocol_data = group->protocol_name();
  for (const auto& [member_id, member] : group->members()) {
    auto& shown = answer.members.emplace_back();
    shown.member_id = member_id;
    shown.group_instance_id = member.instance_id;
    shown.client_id = member.client_id;
    shown.client_host = member.client_host;
    if (!stable) continue;
    const Bytes metadata = group->metadata_of(member);
    shown.member_metadata.assign(metadata.begin(), metadata.end());
    shown.member_assignment = member.assignment;
  }
  return answer;
}

asio::awaitable<DescribeGroupsResponse> describe_groups(RequestContext& context,
                                                        const DescribeGroupsRequest& request) {
  Broker& broker = context.broker;
  DescribeGroupsResponse response;
  std::size_t bytes = 0;
  YieldBudget budget(context.shard, &context.connection);
  AnswerMemory memory(context);
  for (const auto id : request.groups) {
    if (budget.spend() && !co_await budget.yield()) co_return response;
    if (memory.spend(bytes_a_group) && !co_await memory.take()) co_return response;
    bytes += bytes_a_group;
    if (!authorize_group(context, AclOperation::describe, id)) {
      auto& refused = response.groups.emplace_back();
      refused.group_id = id;
      refused.error_code = ErrorCode::group_authorization_failed;
      continue;
    }
    Shard& shard = broker.shard_of_group(id);
    if (bytes > max_answer_bytes) {
      auto& refused = response.groups.emplace_back();
      refused.group_id = id;
      refused.error_code = ErrorCode::invalid_request;
      continue;
    }
    auto work = [&shard, id,
                 version = context.version()]() -> asio::awaitable<DescribeGroupsResponse::Group> {
      co_return described(shard, id, version);
    };
    auto answer = co_await broker.on(context.shard, shard, std::move(work));
    std::size_t answer_size = 0;
    for (const auto& member : answer.members)
      answer_size +=
          sizeof(member) + member.member_metadata.size() + member.member_assignment.size();
    bytes += answer_size;
    // As it is, and as it is sent.
    if (memory.spend(2 * answer_size) && !co_await memory.take()) co_return response;
    if (budget.spend(answer_size / bytes_a_microsecond) && !co_await budget.yield())
      co_return response;
    if (request.include_authorized_operations && answer.error_code == ErrorCode::none)
      answer.authorized_operations =
          allowed_operations(context, group_operations, AclResource::group, id);
    response.groups.push_back(std::move(answer));
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_describe_groups(RequestContext context) {
  return run<DescribeGroupsRequest, describe_groups>(std::move(context));
}

}  // namespace tarry::broker
