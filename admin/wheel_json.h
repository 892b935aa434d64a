#pragma once

// One or more wheels in JSON, as /status and /wheel show them: {timers levels[] next_due_ms}.
//
// For .cc files alone: it brings nlohmann/json with it.

#include <optional>
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

// All of them together.
Json wheel_json(const std::vector<WheelStatus>& wheels);

// Epoch milliseconds, or null.
inline Json ms_or_null(const std::optional<WallTime>& time) {
  return time ? Json(to_ms(*time)) : Json(nullptr);
}

}  // namespace tarry::admin
