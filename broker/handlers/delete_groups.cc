// DeleteGroups (key 42), versions 0 to 2.  A group without members goes with all that it has
// committed (NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND otherwise); answered when that is durable.

#include <string>
#include <utility>

#include "broker/broker.h"
#include "broker/context/cancel_on_close.h"
#include "broker/context/yield_budget.h"
#include "broker/groups/groups.h"
#include "broker/handlers/all.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/run.h"
#include "protocol/messages/delete_groups.h"

namespace tarry::broker {

using protocol::DeleteGroupsRequest;
using protocol::DeleteGroupsResponse;
namespace asio = boost::asio;

namespace {

asio::awaitable<DeleteGroupsResponse> delete_groups(RequestContext& context,
                                                    const DeleteGroupsRequest& request) {
  Broker& broker = context.broker;
  DeleteGroupsResponse response;
  YieldBudget budget(context.shard, &context.connection);
  for (const auto id : request.groups_names) {
    if (budget.spend() && !co_await budget.yield()) co_return response;
    if (!authorize_group(context, AclOperation::remove, id)) {
      response.results.push_back(
          {std::string(id), protocol::ErrorCode::group_authorization_failed});
      continue;
    }
    Shard& shard = broker.shard_of_group(id);
    const CancelOnClose cancel_on_close(context.connection, context.shard, shard);
    auto work = [&shard, id, token = cancel_on_close.token()] {
      return shard.groups().remove(std::string(id), token);
    };
    const auto code = co_await broker.on(context.shard, shard, std::move(work));
    response.results.push_back({std::string(id), code});
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_delete_groups(RequestContext context) {
  return run<DeleteGroupsRequest, delete_groups>(std::move(context));
}

}  // namespace tarry::broker
