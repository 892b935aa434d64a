// SyncGroup (key 14), versions 0 to 5.  The leader brings what everybody is assigned; all are
// answered when that is durable.

#include "protocol/messages/sync_group.h"
#include "broker/broker.h"
#include "broker/groups.h"
#include "broker/handlers/all.h"
#include "broker/handlers/run.h"
#include "broker/hang_up.h"

namespace tarry::broker {

namespace asio = boost::asio;

namespace {

asio::awaitable<protocol::SyncGroupResponse> sync_group(RequestContext& context,
                                                        const protocol::SyncGroupRequest& request) {
  Broker& broker = context.broker;
  Shard& there = broker.shard_of_group(request.group_id);
  const HangUp hang_up(context.connection, context.shard, there);
  auto work = [&there, &request, line = hang_up.line()] {
    return there.groups().sync(request, line);
  };
  co_return co_await broker.on(context.shard, there, std::move(work));
}

}  // namespace

asio::awaitable<Answer> run_sync_group(RequestContext context) {
  return run<protocol::SyncGroupRequest, sync_group>(context);
}

}  // namespace tarry::broker
