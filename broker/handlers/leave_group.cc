// LeaveGroup (key 13), versions 0 to 5.  From version 3 on many members at once, each with its own
// error; an operator's tool names static members by their instance id alone.

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "broker/broker.h"
#include "broker/context/yield_budget.h"
#include "broker/groups/groups.h"
#include "broker/handlers/all.h"
#include "broker/handlers/answer_room.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/run.h"
#include "protocol/messages/leave_group.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

using Left = std::expected<std::vector<ErrorCode>, ErrorCode>;

// So many leave with one rebalance, before anybody looks how long that took.
constexpr std::size_t leaving_at_once = 10;
// Each may have offered a hundred protocols.
constexpr std::size_t microseconds_of_member = 100;

// On the group's shard.
asio::awaitable<Left> leave_in_steps(Shard& shard, std::string_view group,
                                     std::span<const Group::Leaving> leaving) {
  YieldBudget budget(shard, nullptr);
  std::vector<ErrorCode> results;
  do {
    const auto some = leaving.first(std::min(leaving.size(), leaving_at_once));
    auto left = shard.groups().leave(group, some);
    if (!left) co_return left;
    results.insert(results.end(), left->begin(), left->end());
    leaving = leaving.subspan(some.size());
    const auto gone = static_cast<std::size_t>(std::ranges::count(*left, ErrorCode::none));
    if (budget.spend(some.size() + gone * microseconds_of_member) && !leaving.empty())
      co_await budget.yield();
  } while (!leaving.empty());
  co_return results;
}

asio::awaitable<protocol::LeaveGroupResponse> leave_group(
    RequestContext& context, const protocol::LeaveGroupRequest& request) {
  if (!authorize_group(context, AclOperation::read, request.group_id)) {
    protocol::LeaveGroupResponse refused;
    refused.error_code = protocol::ErrorCode::group_authorization_failed;
    co_return refused;
  }
  Broker& broker = context.broker;
  Shard& there = broker.shard_of_group(request.group_id);
  const bool batch = context.version() >= 3;
  YieldBudget budget(context.shard, nullptr);  // Members leave even if nobody waits for it.
  protocol::LeaveGroupResponse response;
  std::vector<Group::Leaving> leaving;
  const bool room =
      co_await reserve_charged(context, request.members.size() + 1, response.members, leaving);
  if (!room) co_return response;
  if (!batch) leaving.push_back({request.member_id, std::nullopt});
  for (const auto& member : request.members) {
    if (budget.spend()) co_await budget.yield();
    leaving.push_back({member.member_id, member.group_instance_id});
  }
  auto work = [&there, &request, &leaving] {
    return leave_in_steps(there, request.group_id, leaving);
  };
  const Left left = co_await broker.on(context.shard, there, std::move(work));

  if (!left) {
    response.error_code = left.error();
    co_return response;
  }
  if (!batch) {
    // Before version 3 the only member's error is that of the request.
    response.error_code = left->front();
    co_return response;
  }
  for (std::size_t i = 0; i < left->size(); ++i) {
    if (budget.spend()) co_await budget.yield();
    auto& member = response.members.emplace_back();
    member.member_id = request.members[i].member_id;
    if (const auto& instance = request.members[i].group_instance_id) {
      member.group_instance_id = *instance;
    }
    member.error_code = (*left)[i];
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_leave_group(RequestContext context) {
  return run<protocol::LeaveGroupRequest, leave_group>(std::move(context));
}

}  // namespace tarry::broker
