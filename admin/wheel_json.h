#pragma once

// One or more wheels in JSON, as /status and /wheel show them: {timers levels[] next_due_ms}.
//
// For .cc files alone: it brings nlohmann/json with it.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "admin/call.h"
#include "base/clock.h"
#include "broker/views/status.h"
#include "web/json_reply.h"

namespace tarry::admin {

// A wheel, and when it has its next work, in wall time.
struct WheelStatus {
  const timing::TimingWheel::Stats& stats;
  const std::optional<WallTime>& next_due;
};

WheelStatus requests_wheel(const broker::ShardStatus& shard);
WheelStatus delayed_wheel(const broker::ShardStatus& shard);

// The due time of a shard's next record, or a time before it (next_due_exact).  In the second case
// the engine's time may be that of a record that is gone, long past.  But every record that is due
// before the horizon is in memory, so while nothing is overdue the next one is due from now on.
std::optional<WallTime> next_due_of(const delay::Engine::Stats& delay);

// All of them together.
Json wheel_json(const std::vector<WheelStatus>& wheels);

// The slots of a picture of buckets: {from_ms, bits, later}.  `bits` are hexadecimal digits, the
// first slot the highest bit of the first one; what is left out behind them is empty.
template <typename Used>
Json slots_json(WallTime from, std::size_t count, bool later, const Used& used) {
  std::string bits;
  std::size_t written = 0;
  for (std::size_t slot = 0; slot < count; slot += 4) {
    unsigned digit = 0;
    for (std::size_t i = 0; i < 4; ++i) digit = digit << 1 | (used(slot + i) ? 1U : 0U);
    bits += "0123456789abcdef"[digit];
    if (digit != 0) written = bits.size();
  }
  bits.resize(written);
  return Json{{"from_ms", to_ms(from)}, {"bits", bits}, {"later", later}};
}

// The slots of a wheel's level, whose ticks are milliseconds; `now` is the moment of `tick`.
Json wheel_slots_json(const std::vector<const timing::TimingWheel::Stats*>& wheels,
                      std::size_t level, timing::Tick tick, WallTime now);

// Epoch milliseconds, or null.
inline Json ms_or_null(const std::optional<WallTime>& time) {
  return time ? Json(to_ms(*time)) : Json(nullptr);
}

}  // namespace tarry::admin
