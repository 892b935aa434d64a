// DeleteGroups (key 42), versions 0 to 2.  A group without members goes with all that it has
// committed (NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND otherwise); answered when that is durable.

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "broker/broker.h"
#include "broker/context/cancel_on_close.h"
#include "broker/context/yield_budget.h"
#include "broker/groups/groups.h"
#include "broker/handlers/all.h"
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
asio::awaitable<std::vector<protocol::ErrorCode>> remove_all(
    Shard& shard, std::span<const Removal> removals, std::shared_ptr<CancellationToken> token) {
  std::vector<std::string_view> ids;
  for (const Removal& removal : removals) ids.push_back(removal.id);
  co_return co_await shard.groups().remove(std::move(ids), token);
}

asio::awaitable<DeleteGroupsResponse> delete_groups(RequestContext& context,
                                                    const DeleteGroupsRequest& request) {
  Broker& broker = context.broker;
  DeleteGroupsResponse response;
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
    for (const auto& there : removals) {
      Shard& shard = *there.shard;
      const CancelOnClose cancel_on_close(context.connection, context.shard, shard);
      auto work = [&shard, &there, token = cancel_on_close.token()] {
        return remove_all(shard, there.items, token);
      };
      const auto codes = co_await broker.on(context.shard, shard, std::move(work));
      for (std::size_t i = 0; i < codes.size(); ++i)
        response.results[there.items[i].place].error_code = codes[i];
    }
    if (budget.spend(some.size()) && !co_await budget.yield()) co_return response;
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_delete_groups(RequestContext context) {
  return run<DeleteGroupsRequest, delete_groups>(std::move(context));
}

}  // namespace tarry::broker
