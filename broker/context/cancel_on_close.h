#pragma once

// CancelOnClose: a request's cancellation token on one shard, cancelled when the client
// disconnects.
//
//   CancelOnClose cancel_on_close(context.connection, context.shard, there);
//
//   connection's shard                                          the shard `there`
//   *cancel_on_close.token() ------ with the work ---------->   Attached(token, operation)
//   connection.close() --+-- is `there` here? a call ------->   token.cancel()
//                        '-- no: a post -------------------->   token.cancel()
//
// It lives in the coroutine that answers the request, and outlives the work that has its token. The
// token for the connection's own shard is a member, because thousands of Fetches wait with one and
// a Produce should not pay for an allocation.  The token for another shard is shared with the post,
// which may arrive when the request has been answered.

#include <memory>

#include "broker/context/cancellation_token.h"
#include "broker/context/connection.h"

namespace tarry::broker {

class ShardContext;

class CancelOnClose final : private Connection::CloseListener {
 public:
  // On the thread of `here`, the connection's shard.
  CancelOnClose(Connection& connection, ShardContext& here, ShardContext& there)
      : CancelOnClose(&connection, here, there) {}
  // Null: the request has no client that could go, and its token is never cancelled.
  CancelOnClose(Connection* connection, ShardContext& here, ShardContext& there);

  // Used on the thread of `there` alone.
  const std::shared_ptr<CancellationToken>& token() const { return token_; }

 private:
  void on_close() override;

  ShardContext& there_;
  CancellationToken own_;  // Unused for another shard.
  const std::shared_ptr<CancellationToken> token_;
};

}  // namespace tarry::broker
