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

namespace {

// Of the overflow wheel; `upgrades` and `downgrades` are what moved up to the level, and down to
// it.
Json level_json(const char* name, std::uint64_t records, std::uint64_t bytes, std::uint64_t chunks,
                std::uint64_t upgrades, std::uint64_t downgrades) {
  return Json{{"level", name},    {"records", records},   {"bytes", bytes},
              {"chunks", chunks}, {"upgrades", upgrades}, {"downgrades", downgrades}};
}

Json shard_json(const broker::ShardStatus& shard) {
  const auto& delay = shard.delay;
  Json json;
  json["shard"] = shard.index;
  json["requests"] = wheel_json({requests_wheel(shard)});
  json["requests"]["bytes"] = shard.wheel.bytes;
  Json& delayed = json["delayed"] = wheel_json({delayed_wheel(shard)});
  delayed["near"] = delay.near;
  delayed["overdue"] = delay.overdue;
  delayed["in_flight"] = delay.in_flight;
  // Everything that is due before this is in memory; before the first look at the store: nothing.
  delayed["in_memory_until_ms"] =
      delay.horizon == WallTime::min() ? Json(nullptr) : Json(to_ms(delay.horizon));
  delayed["bytes"] = delay.bytes;
  return json;
}

}  // namespace

boost::asio::awaitable<Json> wheel_page_json(Context& context) {
  const auto shards = co_await broker::shard_statuses(context.broker, context.here);
  const auto pending = co_await pending_status(context, shards);
  const auto disk = co_await broker::pending_files(context.broker, context.here);
  Json body;
  body["shards"] = Json::array();
  delay::BucketTier::Stats all;
  std::uint64_t bytes = 0;
  for (const auto& shard : shards) {
    body["shards"].push_back(shard_json(shard));
    const auto& tier = shard.delay.tier;
    all.records += tier.records;
    all.chunks += tier.chunks;
    all.written += tier.written;
    all.downgrades += tier.downgrades;
    all.pulled_back += tier.pulled_back;
    all.disk_downgrades += tier.disk_downgrades;
    bytes += shard.delay.bytes;
  }
  const auto on_disk = pending.total - std::min<std::uint64_t>(pending.total, all.records);
  body["levels"] = Json::array(
      {level_json("memory", all.records, bytes, all.chunks, all.pulled_back, all.downgrades),
       level_json("disk", on_disk, disk.blob_bytes + disk.table_bytes, disk.chunks, all.written,
                  all.disk_downgrades)});
  body["memory"] = Json{{"records", all.records}, {"bytes", bytes}};
  body["disk"] = Json{{"records", on_disk}, {"next_due_ms", ms_or_null(pending.next_due)}};
  co_return body;
}

boost::asio::awaitable<Reply> get_wheel(Call& call) {
  co_return json_reply(co_await wheel_page_json(call.context));
}

}  // namespace tarry::admin
