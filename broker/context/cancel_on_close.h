#pragma once

// CancelOnClose: cancels what waits for a client on another shard when the client goes.
//
//   connection's shard                                            the other shard
//   CancelOnClose on_close(connection, here, there) ----------->  on_close.token(), by value
//   connection.close() ------------- post --------------------->  token->cancel()
//
// When both are one shard nothing is posted.  It lives in the coroutine that answers the request.

#include <memory>

#include "broker/context/cancellation_token.h"
#include "broker/context/connection.h"

namespace tarry::broker {

class ShardContext;

class CancelOnClose {
 public:
  CancelOnClose(Connection& connection, ShardContext& here, ShardContext& there);

  // For the other shard alone.
  const std::shared_ptr<CancellationToken>& token() const { return token_; }

 private:
  const std::shared_ptr<CancellationToken> token_ = std::make_shared<CancellationToken>();
  const Connection::OnClose on_close_;
};

}  // namespace tarry::broker
