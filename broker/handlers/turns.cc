#include "broker/handlers/turns.h"

#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "broker/connection.h"
#include "broker/shard.h"

namespace tarry::broker {

boost::asio::awaitable<bool> Turns::next() {
  spent_ = 0;
  co_await boost::asio::post(shard_.executor(), boost::asio::use_awaitable);
  co_return !shard_.stopping() && (connection_ == nullptr || !connection_->closed());
}

}  // namespace tarry::broker
