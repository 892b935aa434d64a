#include "admin/wheel_json.h"

#include <algorithm>
#include <chrono>
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

std::optional<WallTime> next_due_of(const delay::Engine::Stats& delay) {
  if (!delay.next_due || delay.next_due_exact || delay.overdue != 0) return delay.next_due;
  return std::max(*delay.next_due, std::min(delay.now, delay.horizon));
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
    // No wheel has needed this level yet.
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
    // These are on none of the levels.
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

Json wheel_slots_json(const std::vector<const timing::TimingWheel::Stats*>& wheels,
                      std::size_t level, timing::Tick tick, WallTime now) {
  constexpr std::size_t slots = 256;
  // The buckets of a level are named by one digit of their time; those before it are this.
  const auto round_of = [level](timing::Tick at) { return level == 7 ? 0 : at >> (8 * level + 8); };
  timing::DelayQueue::Bits used{};
  for (const auto* wheel : wheels) {
    // All of an earlier round is over, and nothing is placed there any more.
    if (round_of(wheel->placed_from) != round_of(tick)) continue;
    for (std::size_t word = 0; word < used.size(); ++word)
      used[word] |= wheel->levels[level].used[word];
  }
  const timing::Tick begun = level == 7 ? tick : tick - (round_of(tick) << (8 * level + 8));
  return slots_json(now - std::chrono::milliseconds{static_cast<std::int64_t>(begun)}, slots, false,
                    [&](std::size_t slot) { return (used[slot / 64] >> (slot % 64) & 1) != 0; });
}

}  // namespace tarry::admin
