// SyncGroup (key 14), versions 0 to 5.  The leader brings what everybody is assigned; all are
// answered when that is durable.

#include "protocol/messages/sync_group.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "broker/broker.h"
#include "broker/context/cancel_on_close.h"
#include "broker/groups/groups.h"
#include "broker/handlers/all.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/run.h"

namespace tarry::broker {

namespace asio = boost::asio;

namespace {

// This many are looked up in a few milliseconds.
constexpr std::size_t max_assignments = 10'000;

asio::awaitable<protocol::SyncGroupResponse> sync_group(RequestContext& context,
                                                        const protocol::SyncGroupRequest& request) {
  if (!authorize_group(context, AclOperation::read, request.group_id)) {
    protocol::SyncGroupResponse refused;
    refused.error_code = protocol::ErrorCode::group_authorization_failed;
    co_return refused;
  }
  // A leader assigns to the members that there are; all of them are looked up in one go.  A group
  // that was larger than its limit before that was lowered stays so.
  const auto max_size = static_cast<std::size_t>(context.shard.config().group_max_size);
  if (request.assignments.size() > std::max(max_size, max_assignments)) {
    protocol::SyncGroupResponse refused;
    refused.error_code = protocol::ErrorCode::invalid_request;
    co_return refused;
  }
  Broker& broker = context.broker;
  Shard& there = broker.shard_of_group(request.group_id);
  // To copy megabytes would hold the shard.
  GroupAssignments assignments;
  if (context.header.body.size() > decoded_here) {
    auto copy = [&request] { return assignments_of(request); };
    assignments = co_await context.shard.blocking(std::move(copy));
  } else {
    assignments = assignments_of(request);
  }
  const CancelOnClose cancel_on_close(context.connection, context.shard, there);
  auto work = [&there, &request, &assignments, token = cancel_on_close.token()] {
    return there.groups().sync(request, std::move(assignments), token);
  };
  SyncAnswer told = co_await broker.on(context.shard, there, std::move(work));
  protocol::SyncGroupResponse response;
  response.error_code = told.error_code;
  response.protocol_type = std::move(told.protocol_type);
  response.protocol_name = std::move(told.protocol_name);
  // A member asks with a few bytes for what may be megabytes: they are copied and encoded on the
  // pool.
  context.answer_bytes += told.assignment.size();
  auto copy = [bytes = told.assignment] { return Buffer(bytes.begin(), bytes.end()); };
  if (told.assignment.size() > encoded_here) {
    response.assignment = co_await context.shard.blocking(std::move(copy));
  } else {
    response.assignment = copy();
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_sync_group(RequestContext context) {
  return run<protocol::SyncGroupRequest, sync_group>(std::move(context));
}

}  // namespace tarry::broker
