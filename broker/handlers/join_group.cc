// JoinGroup (key 11), versions 0 to 9.  Answered when the group's next generation begins; see
// group.h.  From version 4 on who has no member id is given one first, and joins with it then.

#include "protocol/messages/join_group.h"

#include <string>
#include <utility>
#include <vector>

#include "broker/broker.h"
#include "broker/context/cancel_on_close.h"
#include "broker/groups/groups.h"
#include "broker/handlers/all.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/run.h"

namespace tarry::broker {

namespace asio = boost::asio;

namespace {

asio::awaitable<protocol::JoinGroupResponse> join_group(RequestContext& context,
                                                        const protocol::JoinGroupRequest& request) {
  if (!authorize_group(context, AclOperation::read, request.group_id)) {
    protocol::JoinGroupResponse refused;
    refused.error_code = protocol::ErrorCode::group_authorization_failed;
    co_return refused;
  }
  Broker& broker = context.broker;
  Shard& there = broker.shard_of_group(request.group_id);
  // `terms` views them until the group has answered.
  const std::string host = context.connection.host();
  const std::string owner = owner_of(context.connection);
  Group::JoinContext terms;
  terms.client_id = context.header.client_id.value_or("");
  terms.client_host = host;
  terms.owner = owner;
  terms.needs_known_id = context.version() >= 4;
  terms.can_skip = context.version() >= 9;
  // To copy megabytes would hold the group's shard.
  std::vector<GroupProtocol> protocols;
  if (context.header.body.size() > decoded_here) {
    auto copy = [&request] { return protocols_of(request); };
    protocols = co_await context.shard.blocking(std::move(copy));
    terms.protocols = &protocols;
  }
  const CancelOnClose cancel_on_close(context.connection, context.shard, there);
  auto work = [&there, &request, terms, token = cancel_on_close.token()] {
    return there.groups().join(request, terms, token);
  };
  auto response = co_await broker.on(context.shard, there, std::move(work));
  // The leader gets the metadata of all members, perhaps megabytes: they are encoded on the pool.
  for (const auto& member : response.members) context.answer_bytes += member.metadata.size();
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_join_group(RequestContext context) {
  return run<protocol::JoinGroupRequest, join_group>(std::move(context));
}

}  // namespace tarry::broker
