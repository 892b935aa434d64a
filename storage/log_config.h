#pragma once

// LogConfig: what a topic's configuration says of the log of each of its partitions.

#include <chrono>
#include <cstdint>

namespace tarry::storage {

// Kafka's topic configs of these names, as far as a log uses them; the defaults are Kafka's.
struct LogConfig {
  std::int64_t segment_bytes = std::int64_t{1} << 30;  // At most 2^31 - 1: positions are i32.
  std::chrono::milliseconds segment_ms = std::chrono::days{7};
  std::int64_t segment_index_bytes = 10 << 20;  // The limit of either index file.
  std::int64_t index_interval_bytes = 4096;
  std::chrono::milliseconds retention_ms = std::chrono::days{7};  // -1: for ever.
  std::int64_t retention_bytes = -1;                              // -1: any number.
  bool cleanup_delete = true;  // cleanup.policy has "delete": retention removes segments.

  bool operator==(const LogConfig&) const = default;
};

}  // namespace tarry::storage
