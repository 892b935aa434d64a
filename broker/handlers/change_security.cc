#include "broker/handlers/change_security.h"

#include <utility>

#include "broker/broker.h"
#include "broker/context/request_context.h"
#include "broker/shard.h"

namespace tarry::broker {

boost::asio::awaitable<Result<>> change_security(const RequestContext& context,
                                                 std::vector<LiveSecurity::Change> changes) {
  auto work = [&broker = context.broker, &changes]() -> boost::asio::awaitable<Result<>> {
    co_return co_await broker.live_security().change(std::move(changes));
  };
  co_return co_await context.broker.on(context.shard, context.broker.shard(0), std::move(work));
}

}  // namespace tarry::broker
