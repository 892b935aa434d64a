#include "admin/purgatory_routes.h"

#include "admin/call.h"
#include "admin/purgatory_json.h"
#include "broker/broker.h"
#include "broker/views/status.h"
#include "web/json_reply.h"

namespace tarry::admin {

boost::asio::awaitable<Reply> get_purgatory(Call& call) {
  const auto shards = co_await broker::shard_statuses(call.context.broker, call.context.here);
  co_return json_reply(purgatory_json(shards, JsonFields::Histograms::whole));
}

}  // namespace tarry::admin
