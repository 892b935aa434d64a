#include "admin/wheel_routes.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <nlohmann/json.hpp>

#include "admin/json_reply.h"
#include "admin/overview.h"
#include "admin/wheel_json.h"
#include "broker/broker.h"
#include "broker/views/status.h"

namespace tarry::admin {

boost::asio::awaitable<Reply> get_wheel(Call& call) {
  auto& context = call.context;
  const auto pending = co_await pending_status(context);
  const auto shards = co_await broker::shard_statuses(context.broker, context.here);
  Json body;
  body["shards"] = Json::array();
  std::uint64_t near = 0, near_bytes = 0;
  for (const auto& shard : shards) {
    const auto& delay = shard.delay;
    Json each;
    each["shard"] = shard.index;
    each["requests"] = wheel_json({requests_wheel(shard)});
    each["requests"]["bytes"] = shard.wheel.bytes;
    each["delayed"] = wheel_json({delayed_wheel(shard)});
    each["delayed"]["near"] = delay.near;
    each["delayed"]["overdue"] = delay.overdue;
    each["delayed"]["in_flight"] = delay.in_flight;
    // Everything that is due before this is in memory; before the first look at the store: nothing.
    each["delayed"]["in_memory_until_ms"] =
        delay.horizon == WallTime::min() ? Json(nullptr) : Json(to_ms(delay.horizon));
    each["delayed"]["bytes"] = delay.bytes;
    body["shards"].push_back(std::move(each));
    near += delay.near;
    near_bytes += delay.bytes;
  }
  body["memory"] = Json{{"records", near}, {"bytes", near_bytes}};
  body["disk"] = Json{{"records", pending.total - std::min(pending.total, near)},
                      {"next_due_ms", ms_or_null(pending.next_due)}};
  co_return json_reply(body);
}

}  // namespace tarry::admin
