#include "broker/context/cancel_on_close.h"

#include <boost/asio/post.hpp>

#include "broker/context/shard_context.h"

namespace tarry::broker {

CancelOnClose::CancelOnClose(Connection& connection, ShardContext& here, ShardContext& there)
    : on_close_(connection, [token = token_, same = &here == &there, &there] {
        if (same) return token->cancel();
        boost::asio::post(there.executor(), [token] { token->cancel(); });
      }) {}

}  // namespace tarry::broker
