#pragma once

// The figures of a wheel, level by level; reported under the labels of the wheel and the level.
//
// The sink is any class with gauge() and counter(), in the broker that of base/metrics.h: timing/
// is installed with base/assert.h alone and may not include more.  This file is not installed.

#include "timing/timing_wheel.h"

namespace tarry::timing {

template <typename Sink>
void report(const TimingWheel::LevelStats& level, Sink& sink) {
  sink.gauge({"tarry_timing_timers", "Timers in a level of the wheels."}, level.timers);
  sink.gauge({"tarry_timing_buckets", "Buckets in use in a level of the wheels.", "buckets_in_use"},
             level.buckets);
  sink.counter({"tarry_timing_upgrades_total",
                "Timers that were placed above level 0, or moved up to the level.", "upgrades"},
               level.upgrades);
  sink.counter({"tarry_timing_downgrades_total",
                "Timers that moved down to the level from a higher one.", "downgrades"},
               level.downgrades);
}

}  // namespace tarry::timing
