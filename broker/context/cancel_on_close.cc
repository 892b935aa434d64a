#include "broker/context/cancel_on_close.h"

#include <boost/asio/post.hpp>

#include "broker/context/shard_context.h"

namespace tarry::broker {

CancelOnClose::CancelOnClose(Connection* connection, ShardContext& here, ShardContext& there)
    : CloseListener(connection),
      there_(there),
      // A shared pointer that owns nothing needs no allocation.
      token_(&here == &there ? std::shared_ptr<CancellationToken>(std::shared_ptr<void>(), &own_)
                             : std::make_shared<CancellationToken>()) {
  // A client that has gone before would never call on_close().
  if (connection != nullptr && connection->closed()) on_close();
}

void CancelOnClose::on_close() {
  if (token_.get() == &own_) return own_.cancel();
  boost::asio::post(there_.executor(), [token = token_] { token->cancel(); });
}

}  // namespace tarry::broker
