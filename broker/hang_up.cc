#include "broker/hang_up.h"

#include <boost/asio/post.hpp>

#include "broker/shard_context.h"

namespace tarry::broker {

HangUp::HangUp(Connection& connection, ShardContext& here, ShardContext& there)
    : on_close_(connection, [line = line_, same = &here == &there, &there] {
        if (same) return hang_up(*line);
        boost::asio::post(there.executor(), [line] { hang_up(*line); });
      }) {}

void HangUp::hang_up(Line& line) {
  line.hung_up_ = true;
  if (line.operation_ != nullptr) line.operation_->cancel();
}

}  // namespace tarry::broker
