// JoinGroup (key 11), versions 0 to 9.  Answered when the group's next generation begins; see
// group.h.  From version 4 on who has no member id is given one first, and joins with it then.

#include "protocol/messages/join_group.h"

#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "broker/broker.h"
#include "broker/context/cancel_on_close.h"
#include "broker/groups/groups.h"
#include "broker/handlers/all.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/run.h"

namespace tarry::broker {

namespace asio = boost::asio;

namespace {

// Copies what all members say, for their leader.
protocol::JoinGroupResponse response_of(JoinAnswer told) {
  protocol::JoinGroupResponse response;
  response.error_code = told.error_code;
  response.generation_id = told.generation_id;
  response.protocol_type = std::move(told.protocol_type);
  response.protocol_name = std::move(told.protocol_name);
  response.leader = std::move(told.leader);
  response.skip_assignment = told.skip_assignment;
  response.member_id = std::move(told.member_id);
  response.members.reserve(told.members.size());
  for (auto& member : told.members) {
    response.members.push_back({std::move(member.member_id), std::move(member.group_instance_id),
                                Buffer(member.metadata.begin(), member.metadata.end())});
  }
  return response;
}

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
  JoinAnswer told = co_await broker.on(context.shard, there, std::move(work));
  // The leader gets the metadata of all members, perhaps megabytes: they are copied and encoded on
  // the pool.
  for (const auto& member : told.members) context.answer_bytes += member.metadata.size();
  auto respond = [told = std::move(told)]() mutable { return response_of(std::move(told)); };
  if (context.answer_bytes > encoded_here)
    co_return co_await context.shard.blocking(std::move(respond));
  co_return respond();
}

}  // namespace

asio::awaitable<Answer> run_join_group(RequestContext context) {
  return run<protocol::JoinGroupRequest, join_group>(std::move(context));
}

}  // namespace tarry::broker
