// ListGroups (key 16), versions 0 to 5.  Every group of every shard; from version 4 on only of the
// states that are asked for, from 5 on of the types (all are "classic").  Names are compared
// without regard to case; one that nobody knows selects nothing.

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "broker/broker.h"
#include "broker/context/freed_on_pool.h"
#include "broker/context/yield_budget.h"
#include "broker/groups/group.h"
#include "broker/handlers/all.h"
#include "broker/handlers/answer_room.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/run.h"
#include "broker/views/group_status.h"
#include "protocol/messages/list_groups.h"

namespace tarry::broker {

using protocol::ListGroupsRequest;
using protocol::ListGroupsResponse;
namespace asio = boost::asio;

namespace {

constexpr std::string_view type_of_all = "classic";

bool same(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

// The names in `known` that the filter has.  A filter may have very many, so it is read once for
// all groups; an empty one has all.
asio::awaitable<std::set<std::string_view>> selected(const std::vector<std::string_view>& filter,
                                                     std::span<const std::string_view> known,
                                                     YieldBudget& budget) {
  std::set<std::string_view> out;
  if (filter.empty()) out.insert(known.begin(), known.end());
  for (const std::string_view name : filter) {
    if (budget.spend() && !co_await budget.yield()) break;
    const auto found = std::ranges::find_if(known, [&](auto each) { return same(name, each); });
    if (found != known.end()) out.insert(*found);
  }
  co_return out;
}

asio::awaitable<ListGroupsResponse> list_groups(RequestContext& context,
                                                const ListGroupsRequest& request) {
  ListGroupsResponse response;
  const std::array listed{name_of(GroupState::empty), name_of(GroupState::preparing_rebalance),
                          name_of(GroupState::completing_rebalance), name_of(GroupState::stable)};
  YieldBudget budget(context.shard, &context.connection);
  const auto types = co_await selected(request.types_filter, {&type_of_all, 1}, budget);
  const auto states = co_await selected(request.states_filter, listed, budget);
  if (types.empty() || states.empty()) co_return response;
  auto groups = co_await group_summaries(context.broker, context.shard);
  const FreedOnPool freed(context.shard, groups);
  // As in Kafka, a client that may describe the cluster sees every group.
  const bool all =
      is_allowed(context, AclOperation::describe, AclResource::cluster, cluster_resource_name);
  AnswerMemory memory(context);
  const bool room = co_await reserve_charged(context, groups.size(), response.groups);
  if (!room) co_return response;
  for (const auto& group : groups) {
    if (budget.spend(summary_microseconds)) {
      const bool wanted = co_await budget.yield();
      if (!wanted) co_return response;
    }
    if (!all && !is_allowed(context, AclOperation::describe, AclResource::group, group.id))
      continue;
    if (!states.contains(group.state)) continue;
    response.groups.push_back(
        {group.id, group.protocol_type, std::string(group.state), std::string(type_of_all)});
    // Once for the answer itself, whose list is charged, and once for its bytes on the wire.
    const std::size_t bytes = group.id.size() + group.protocol_type.size();
    if (memory.spend(2 * bytes + sizeof(ListGroupsResponse::Group))) {
      const bool taken = co_await memory.take();
      if (!taken) co_return response;
    }
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_list_groups(RequestContext context) {
  return run<ListGroupsRequest, list_groups>(std::move(context));
}

}  // namespace tarry::broker
