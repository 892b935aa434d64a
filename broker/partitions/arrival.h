#pragma once

// Arrival: a producer's batch as it came, before its partition appends it.

#include <functional>
#include <memory>

#include "base/bytes.h"
#include "base/clock.h"
#include "broker/partitions/appended.h"
#include "broker/settings/topic_config.h"
#include "delay/pending_quota.h"

namespace tarry::broker {

// Its bytes live until `done` is called.
struct Arrival {
  Bytes records;
  std::shared_ptr<void> memory;  // Not null: what keeps `records`, to change and to keep.
  bool zstd_allowed = true;
  WallTime at{};
  std::shared_ptr<const TopicConfig> config;  // The config at its arrival, by which it is checked.
  bool only_checked = false;         // A valid batch is refused because of its request's acks.
  delay::PendingTerms pending = {};  // Its producer's.
  // Its producer may not write bad records to NAME.invalid.
  bool no_dead_letters = false;
  std::move_only_function<void(Appended)> done;
};

}  // namespace tarry::broker
