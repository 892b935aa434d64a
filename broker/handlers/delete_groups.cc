// DeleteGroups (key 42), versions 0 to 2.  A group without members goes with all that it has
// committed (NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND otherwise); answered when that is durable.

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "broker/broker.h"
#include "broker/context/cancellation_token.h"
#include "broker/context/yield_budget.h"
#include "broker/groups/groups.h"
#include "broker/handlers/all.h"
#include "broker/handlers/answer_room.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/run.h"
#include "broker/scatter.h"
#include "protocol/messages/delete_groups.h"

namespace tarry::broker {

using protocol::DeleteGroupsRequest;
using protocol::DeleteGroupsResponse;
namespace asio = boost::asio;

namespace {

// Each shard gets its share of so many at once, and removes them in one round of its journal.
constexpr std::size_t removals_together = 256;

struct Removal {
  std::string_view id;
  std::size_t place;  // In the answer.
};

// On the groups' shard.
asio::awaitable<void> remove_all(OnShard<Removal>& there, CancellationToken& token,
                                 DeleteGroupsResponse& response) {
  std::vector<std::string_view> ids;
  ids.reserve(there.items.size());
  for (const Removal& removal : there.items) ids.push_back(removal.id);
  const auto codes = co_await there.shard->groups().remove(std::move(ids), token);
  for (std::size_t i = 0; i < codes.size(); ++i)
    response.results[there.items[i].place].error_code = codes[i];
}

asio::awaitable<DeleteGroupsResponse> delete_groups(RequestContext& context,
                                                    const DeleteGroupsRequest& request) {
  Broker& broker = context.broker;
  DeleteGroupsResponse response;
  const bool room =
      co_await reserve_charged(context, request.groups_names.size(), response.results);
  if (!room) co_return response;
  YieldBudget budget(context.shard, &context.connection);
  std::span<const std::string_view> left = request.groups_names;
  while (!left.empty()) {
    const auto some = left.first(std::min(left.size(), removals_together));
    left = left.subspan(some.size());
    ByShard<Removal> removals;
    for (const auto id : some) {
      auto& answer = response.results.emplace_back();
      answer.group_id = id;
      if (authorize_group(context, AclOperation::remove, id)) {
        removals.add(broker.shard_of_group(id), {id, response.results.size() - 1});
      } else {
        answer.error_code = protocol::ErrorCode::group_authorization_failed;
      }
    }
    const auto work = [&response](OnShard<Removal>& there, CancellationToken& token) {
      return remove_all(there, token, response);
    };
    co_await scatter(context.shard, &context.connection, removals, work);
    if (budget.spend(some.size()) && !co_await budget.yield()) co_return response;
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_delete_groups(RequestContext context) {
  return run<DeleteGroupsRequest, delete_groups>(std::move(context));
}

}  // namespace tarry::broker
