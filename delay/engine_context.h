#pragma once

// EngineContext: what all parts of a delay engine share.  It decides nothing.

#include <functional>
#include <memory>

#include "base/result.h"
#include "delay/alarm.h"
#include "delay/bucket_tier.h"
#include "delay/engine_clock.h"
#include "delay/engine_options.h"
#include "delay/engine_stats.h"
#include "delay/sink.h"

namespace tarry::delay {

struct EngineContext {
  const EngineOptions& options;
  EngineClock& time;
  Alarm& alarm;
  BucketTier& tier;
  Sink& sink;

  // The pending store has failed: the incarnation is over.
  std::function<void(const Error&)> failed;
  bool stopped = false;  // It has.

  EngineTotals totals = {};
  // Callbacks that may outlive the engine check it.
  const std::shared_ptr<bool> alive = std::make_shared<bool>(true);
};

}  // namespace tarry::delay
