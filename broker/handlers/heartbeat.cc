// Heartbeat (key 12), versions 0 to 4.  Keeps a member's session; REBALANCE_IN_PROGRESS tells it
// to join again.

#include "protocol/messages/heartbeat.h"
#include "broker/broker.h"
#include "broker/groups/groups.h"
#include "broker/handlers/all.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/run.h"

namespace tarry::broker {

namespace asio = boost::asio;

namespace {

asio::awaitable<protocol::HeartbeatResponse> heartbeat(RequestContext& context,
                                                       const protocol::HeartbeatRequest& request) {
  if (!authorize_group(context, AclOperation::read, request.group_id)) {
    protocol::HeartbeatResponse refused;
    refused.error_code = protocol::ErrorCode::group_authorization_failed;
    co_return refused;
  }
  Broker& broker = context.broker;
  Shard& there = broker.shard_of_group(request.group_id);
  auto work = [&there, &request]() -> asio::awaitable<protocol::ErrorCode> {
    co_return there.groups().heartbeat(request);
  };
  protocol::HeartbeatResponse response;
  response.error_code = co_await broker.on(context.shard, there, std::move(work));
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_heartbeat(RequestContext context) {
  return run<protocol::HeartbeatRequest, heartbeat>(std::move(context));
}

}  // namespace tarry::broker
