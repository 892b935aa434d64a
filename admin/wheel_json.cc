#include "admin/wheel_json.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "web/json_fields.h"

namespace tarry::admin {
namespace {

std::uint64_t tick_ms(std::size_t level) {
  return std::uint64_t{1} << (8 * level);  // 256 buckets a level.
}

}  // namespace

WheelStatus requests_wheel(const broker::ShardStatus& shard) {
  return {shard.wheel, shard.wheel_next_due};
}
WheelStatus delayed_wheel(const broker::ShardStatus& shard) {
  return {shard.delay.wheel, shard.delay.next_due};
}

Json wheel_json(const std::vector<WheelStatus>& wheels) {
  Json levels = Json::array();
  for (std::size_t i = 0; i < timing::DelayQueue::level_count; ++i) {
    bool exists = false;
    web::JsonFields figures;
    for (const auto& wheel : wheels) {
      exists |= wheel.stats.levels[i].exists;
      report(wheel.stats.levels[i], figures);
    }
    if (!exists) continue;
    Json level;
    level["level"] = i;
    level["tick_ms"] = tick_ms(i);
    figures.put_into(level);
    levels.push_back(std::move(level));
  }

  std::size_t timers = 0;
  std::optional<WallTime> next_due;
  for (const auto& [stats, due] : wheels) {
    timers += stats.overdue;
    for (const auto& level : stats.levels) timers += level.timers;
    if (due) next_due = next_due ? std::min(*next_due, *due) : *due;
  }
  Json json;
  json["timers"] = timers;
  json["levels"] = std::move(levels);
  json["next_due_ms"] = ms_or_null(next_due);
  return json;
}

}  // namespace tarry::admin
