// FindCoordinator (key 10), versions 0 to 6; from 4 on many keys at once.
//
// There is one broker, so every group's coordinator is this one, also of a group that there is not.
// There are no transactions: a transactional id gets the answer that InitProducerId gives, which
// ends the client's attempts.  Share groups are refused as a request that is not understood.

#include "protocol/messages/find_coordinator.h"
#include "broker/broker.h"
#include "broker/context/yield_budget.h"
#include "broker/handlers/advertised.h"
#include "broker/handlers/all.h"
#include "broker/handlers/answer_room.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/run.h"

namespace tarry::broker {

using protocol::ErrorCode;

namespace {

constexpr std::int8_t group_key = 0;
constexpr std::int8_t transaction_key = 1;
// With a host name or a message, and once more as it is sent.
constexpr std::size_t bytes_a_coordinator =
    sizeof(protocol::FindCoordinatorResponse::Coordinator) + 128;

boost::asio::awaitable<protocol::FindCoordinatorResponse> find_coordinator(
    RequestContext& context, const protocol::FindCoordinatorRequest& request) {
  const auto& config = context.broker.identity();
  protocol::FindCoordinatorResponse::Coordinator here;
  if (request.key_type == group_key) {
    here.node_id = config.node_id;
    const auto address = advertised_to(context);
    here.host = address.host;
    here.port = address.port;
  } else {
    here.node_id = -1;
    here.port = -1;
    const bool transaction = request.key_type == transaction_key;
    here.error_code =
        transaction ? ErrorCode::transactional_id_authorization_failed : ErrorCode::invalid_request;
    here.error_message =
        transaction ? "transactions are not supported"
                    : fmt::format("key type {} is not supported; use 0 (group)", request.key_type);
  }

  const auto of_key = [&](std::string_view key) {
    if (request.key_type != group_key || authorize_group(context, AclOperation::describe, key))
      return here;
    protocol::FindCoordinatorResponse::Coordinator refused;
    refused.node_id = -1;
    refused.port = -1;
    refused.error_code = ErrorCode::group_authorization_failed;
    refused.error_message = "Group authorization failed.";
    return refused;
  };

  protocol::FindCoordinatorResponse response;
  if (context.version() < 4) {
    here = of_key(request.key);
    response.error_code = here.error_code;
    response.error_message = here.error_message;
    response.node_id = here.node_id;
    response.host = here.host;
    response.port = here.port;
    co_return response;
  }
  YieldBudget budget(context.shard, &context.connection);
  AnswerMemory memory(context);
  const bool room =
      co_await reserve_charged(context, request.coordinator_keys.size(), response.coordinators);
  if (!room) co_return response;
  for (const auto key : request.coordinator_keys) {
    if (budget.spend() && !co_await budget.yield()) break;
    if (memory.spend(bytes_a_coordinator) && !co_await memory.take()) break;
    response.coordinators.push_back(of_key(key));
    response.coordinators.back().key = key;
  }
  co_return response;
}

}  // namespace

boost::asio::awaitable<Answer> run_find_coordinator(RequestContext context) {
  return run<protocol::FindCoordinatorRequest, find_coordinator>(std::move(context));
}

}  // namespace tarry::broker
