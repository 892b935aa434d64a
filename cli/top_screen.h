#pragma once

// The screen of `tarry top`, made of two looks at a broker one interval apart.
//
//   admin, each interval --> TopSample --> top_text(now, before) --> the screen, or a pipe
//
// Pure.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace tarry::cli {

// A broker's figures at one moment.
struct TopSample {
  struct Due {
    std::string topic, name, key;  // The name is its id, or its handle if it has none.
    WallTime due;
  };
  struct Topic {
    std::string name;
    std::uint64_t partitions = 0, pending = 0, records = 0, bytes = 0;
  };
  struct Group {
    std::string name, state;
    std::uint64_t members = 0;
    std::optional<std::uint64_t> lag;  // Empty: unknown.
  };

  WallTime at;
  std::string version, state, admin;
  std::chrono::milliseconds uptime{}, window{};
  std::uint64_t pending = 0, overdue = 0, connections = 0, memory_bytes = 0, disk_bytes = 0;
  std::optional<WallTime> next_due;              // The first overdue record's, if there is one.
  double lag_p50 = 0, lag_p99 = 0, lag_max = 0;  // Milliseconds, of the last `window`.
  // They only grow, until a restart.
  std::uint64_t requests = 0, appended = 0, delivered = 0, cancelled = 0;
  double cpu_seconds = 0;
  std::vector<Due> due;  // In due order; none that was overdue already.
  std::vector<Topic> topics;
  std::vector<Group> groups;
};

struct TopLayout {
  std::size_t columns = 0, rows = 0;  // 0: as many as it takes, and ten lines for each list.
  bool has_colours = false;
  std::string problem{};  // The reason if `now` is old; empty: it is not.
};

// Without a newline at its end.  `before` null: there are no rates yet.
std::string top_text(const TopSample& now, const TopSample* before, const TopLayout& layout);

// How many a second there were between the two; 0 if the broker has started again meanwhile.
double rate_of(std::uint64_t now, std::uint64_t before, std::chrono::milliseconds between);

}  // namespace tarry::cli
