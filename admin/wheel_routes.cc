#include "admin/wheel_routes.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "admin/call.h"
#include "admin/overview.h"
#include "admin/wheel_json.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/views/status.h"
#include "web/json_reply.h"

namespace tarry::admin {

namespace {

// A level of the wheel that continues on disk; `upgrades` and `downgrades` are the records that
// moved up to it, and down to it.
struct LevelRow {
  const char* place;
  std::string level;
  // Not null: the rows of that place have these records already.
  const char* within = nullptr;
  std::uint64_t span_ms = 0;
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;
  std::uint64_t chunks = 0;
  std::uint64_t upgrades = 0;
  std::uint64_t downgrades = 0;
  Json slots = nullptr;

  bool is_empty() const { return records + bytes + chunks + upgrades + downgrades == 0; }
  Json json() const {
    return Json{{"place", place},
                {"level", level},
                {"within", within != nullptr ? Json(within) : Json(nullptr)},
                {"span_ms", span_ms},
                {"records", records},
                {"bytes", bytes},
                {"chunks", chunks},
                {"upgrades", upgrades},
                {"downgrades", downgrades},
                {"slots", slots}};
  }
};

constexpr std::array<const char*, storage::bucket_levels> level_names{"month",  "hour", "minute",
                                                                      "second", "tick", "run"};

Json bucket_slots_json(const storage::BucketSlots& slots) {
  return slots_json(slots.from(), storage::BucketSlots::count, slots.later(),
                    [&](std::size_t slot) { return slots.used()[slot]; });
}

// The finest level comes first.  Levels that are made for large hours alone are left out unless
// there is something to tell.
class LevelTable {
 public:
  explicit LevelTable(WallTime now) : now_(now), rows_(Json::array()) {}

  void add_wheel(const std::vector<broker::ShardStatus>& shards) {
    std::vector<const timing::TimingWheel::Stats*> wheels;
    for (const auto& shard : shards) wheels.push_back(&shard.delay.wheel);
    for (std::size_t i = 0; i < timing::DelayQueue::level_count; ++i) {
      LevelRow row{"wheel", std::to_string(i), "memory", std::uint64_t{1} << (8 * i)};
      bool exists = false;
      // A shard has only the levels that its records have needed.
      for (const auto& shard : shards) {
        const auto& level = shard.delay.wheel.levels[i];
        exists |= level.exists;
        row.records += level.timers;
        row.chunks += level.buckets;
        row.upgrades += level.upgrades;
        row.downgrades += level.downgrades;
      }
      row.bytes = row.records * sizeof(delay::NearEntry);
      // Its ticks are milliseconds of wall time.
      row.slots = wheel_slots_json(wheels, i, static_cast<timing::Tick>(to_ms(now_)), now_);
      if (exists) rows_.push_back(row.json());
    }
  }
  void add_memory(const delay::BucketTier::Levels& levels, const storage::LevelSlots& slots) {
    add("memory", [&](std::size_t level, LevelRow& row) {
      row.records = levels[level].records;
      row.bytes = levels[level].bytes;
      row.chunks = levels[level].chunks;
      row.upgrades = levels[level].came_back;
      row.downgrades = levels[level].loaded;
      row.slots = bucket_slots_json(slots[level]);
    });
  }
  void add_disk(const storage::BucketStore::LevelSizes& sizes,
                const delay::BucketTier::Levels& memory) {
    add("disk", [&](std::size_t level, LevelRow& row) {
      // A record that is in memory too counts there.
      row.records = sizes[level].records -
                    std::min<std::uint64_t>(sizes[level].records, memory[level].on_disk);
      row.bytes = sizes[level].bytes;
      row.chunks = sizes[level].chunks;
      row.upgrades = memory[level].to_disk;
      row.downgrades = sizes[level].downgrades;
      row.slots = bucket_slots_json(sizes[level].slots);
      on_disk_ += row.records;
    });
  }
  // The records in the rows of the disk.
  std::uint64_t on_disk() const { return on_disk_; }
  Json take() { return std::move(rows_); }

 private:
  template <typename Fill>
  void add(const char* place, const Fill& fill) {
    for (std::size_t level = storage::bucket_levels; level-- > 0;) {
      LevelRow row{place, level_names[level], nullptr,
                   static_cast<std::uint64_t>(storage::bucket_span_ms[level])};
      fill(level, row);
      if (level <= static_cast<std::size_t>(storage::BucketLevel::hour) || !row.is_empty())
        rows_.push_back(row.json());
    }
  }

  const WallTime now_;
  Json rows_;
  std::uint64_t on_disk_ = 0;
};

// The figures of one answer: where records are, in memory and on disk, and how many there are.
struct LevelsLook {
  std::vector<broker::ShardStatus> shards;
  std::uint64_t total = 0;
  Result<storage::BucketStore::LevelSizes> sizes = {};
};

// Two that differ: records went from one place to another.
std::uint64_t way_between_places(const std::vector<broker::ShardStatus>& shards) {
  std::uint64_t steps = 0;
  for (const auto& shard : shards) {
    const auto& tier = shard.delay.tier;
    steps += tier.written + tier.loads + tier.dealt_steps + tier.freed_bytes;
    for (const auto& level : tier.levels) steps += level.to_disk + level.loaded;
  }
  return steps;
}

// The disk is looked at between two looks at the shards; if records were on the way meanwhile, they
// would be counted in both places or in none, so it is done again, but a few times only.
boost::asio::awaitable<LevelsLook> look_at_levels(Context& context) {
  constexpr int tries = 3;
  LevelsLook look;
  look.shards = co_await broker::shard_statuses(context.broker, context.here);
  for (int i = 0; i < tries; ++i) {
    const std::uint64_t before = way_between_places(look.shards);
    look.sizes = co_await broker::pending_levels(context.broker, context.here);
    look.shards = co_await broker::shard_statuses(context.broker, context.here);
    look.total = context.broker.pending_counts().total();
    if (way_between_places(look.shards) == before) break;
  }
  co_return look;
}

void add_to(delay::BucketTier::Levels& sum, const delay::BucketTier::Levels& levels) {
  for (std::size_t i = 0; i < sum.size(); ++i) {
    sum[i].records += levels[i].records;
    sum[i].bytes += levels[i].bytes;
    sum[i].chunks += levels[i].chunks;
    sum[i].on_disk += levels[i].on_disk;
    sum[i].to_disk += levels[i].to_disk;
    sum[i].loaded += levels[i].loaded;
    sum[i].came_back += levels[i].came_back;
  }
}

void put_slots(Json& wheel, const timing::TimingWheel::Stats& stats, timing::Tick tick,
               WallTime now) {
  for (auto& level : wheel["levels"])
    level["slots"] = wheel_slots_json({&stats}, level["level"].get<std::size_t>(), tick, now);
}

Json shard_json(const broker::ShardStatus& shard, WallTime now) {
  const auto& delay = shard.delay;
  Json json;
  json["shard"] = shard.index;
  json["requests"] = wheel_json({requests_wheel(shard)});
  put_slots(json["requests"], shard.wheel, shard.wheel_tick, now);
  json["requests"]["bytes"] = shard.wheel.bytes;
  Json& delayed = json["delayed"] = wheel_json({delayed_wheel(shard)});
  put_slots(delayed, delay.wheel, static_cast<timing::Tick>(to_ms(now)), now);
  delayed["next_due_ms"] = ms_or_null(next_due_of(delay));
  delayed["next_due_exact"] = delay.next_due_exact;
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
  const auto look = co_await look_at_levels(context);
  const auto& [shards, total, sizes] = look;
  const auto pending = co_await pending_status(context, shards);
  const auto disk = co_await broker::pending_files(context.broker, context.here);
  const auto slots = co_await broker::memory_slots(context.broker, context.here);
  // Damage of a table does not blind those who watch the broker.
  if (!sizes) log_error("admin", "the levels on disk cannot be read: {}", sizes.error().message);
  const WallTime now = context.broker.clock().wall();
  Json body;
  body["at_ms"] = to_ms(now);
  body["pending"] = total;
  body["shards"] = Json::array();
  delay::BucketTier::Levels memory;
  std::uint64_t bytes = 0, records = 0, chunks = 0, came_near = 0;
  for (const auto& shard : shards) {
    body["shards"].push_back(shard_json(shard, now));
    const auto& tier = shard.delay.tier;
    add_to(memory, tier.levels);
    records += tier.records;
    chunks += tier.chunks;
    came_near += tier.came_near;
    bytes += shard.delay.bytes;
  }
  LevelTable levels(now);
  levels.add_wheel(shards);
  levels.add_memory(memory, slots);
  if (sizes) levels.add_disk(*sizes, memory);
  const auto in_chunks = levels.on_disk();
  body["levels"] = levels.take();
  const auto on_disk = total - std::min<std::uint64_t>(total, records);
  body["memory"] =
      Json{{"records", records}, {"bytes", bytes}, {"chunks", chunks}, {"came_near", came_near}};
  body["disk"] = Json{{"records", on_disk},
                      {"gone", in_chunks - std::min(in_chunks, on_disk)},
                      {"bytes", disk.blob_bytes + disk.table_bytes},
                      {"chunks", disk.chunks},
                      {"next_due_ms", ms_or_null(pending.next_due)}};
  co_return body;
}

boost::asio::awaitable<Reply> get_wheel(Call& call) {
  co_return json_reply(co_await wheel_page_json(call.context));
}

}  // namespace tarry::admin
