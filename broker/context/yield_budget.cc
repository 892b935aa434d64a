#include "broker/context/yield_budget.h"

#include "broker/context/connection.h"
#include "broker/context/shard_context.h"

namespace tarry::broker {

boost::asio::awaitable<bool> YieldBudget::yield() {
  spent_ = 0;
  co_await shard_.steps().next();
  // Without a connection the work is finished even if nobody waits for it.
  co_return !shard_.stopping() && (connection_ == nullptr || !connection_->closed());
}

}  // namespace tarry::broker
