// InitProducerId (key 22), versions 0 to 5, for idempotent producers.  A transactional id is
// refused: there are no transactions, and a producer that was told otherwise would lose its
// guarantee silently.

#include <fmt/core.h>

#include "base/log.h"
#include "broker/broker.h"
#include "broker/context/cancel_on_close.h"
#include "broker/handlers/all.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/run.h"
#include "protocol/messages/init_producer_id.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

asio::awaitable<protocol::InitProducerIdResponse> init_producer_id(
    RequestContext& context, const protocol::InitProducerIdRequest& request) {
  protocol::InitProducerIdResponse response;
  if (request.transactional_id) {
    response.error_code = request.transactional_id->empty()
                              ? ErrorCode::invalid_request
                              : ErrorCode::transactional_id_authorization_failed;
    context.shard.log_transactions.warn(
        context.shard.clock().mono(), "broker",
        fmt::format("{} asked for transactions, which are not supported (transactional id {})",
                    context.connection.peer(), printable(*request.transactional_id)));
    co_return response;
  }
  // The right to write to any topic is enough, because the request names none.
  if (!is_allowed_somewhere(context, AclOperation::write, AclResource::topic) &&
      !authorize_cluster(context, AclOperation::idempotent_write)) {
    response.error_code = ErrorCode::cluster_authorization_failed;
    co_return response;
  }
  // The id and epoch that the client says it has do not count: nobody keeps whose an id is, so two
  // clients could be given the same.  An idempotent producer that keeps its id counts its epochs
  // itself.
  Broker& broker = context.broker;
  const CancelOnClose cancel_on_close(context.connection, context.shard, broker.shard(0));
  auto work = [&broker, token = cancel_on_close.token()] { return broker.next_producer_id(token); };
  const auto id = co_await broker.on(context.shard, broker.shard(0), std::move(work));
  if (!id) {
    response.error_code = ErrorCode::coordinator_not_available;  // Tried again.
    co_return response;
  }
  response.producer_id = *id;
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_init_producer_id(RequestContext context) {
  return run<protocol::InitProducerIdRequest, init_producer_id>(std::move(context));
}

}  // namespace tarry::broker
