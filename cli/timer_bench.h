#pragma once

// What a timer costs on this machine: the wheel of a broker beside a sorted map, which is what one
// takes who has no wheel, and TimerService as several threads use it.
//
// Short (seconds for a million) and without anybody else's library; bench/timing_bench measures
// more, and more exactly.  Time is virtual, in ticks of a millisecond, but for the threads. Figures
// are CPU time of the thread, so that a busy machine does not count.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tarry::cli {

struct TimerBenchOptions {
  std::size_t pending = 1'000'000;  // Timers that stand, their deadlines uniform over an hour.
  std::size_t budget = 512;         // Of one step of the wheel.
  unsigned threads = 2;             // That share a TimerService; 0: this is left out.
  std::uint64_t seed = 1;
};

struct TimerFigures {
  std::string name;
  double insert_ns = 0;
  double hot_pair_ns = 0;    // Cancel and schedule one that was scheduled a moment ago.
  double cold_pair_ns = 0;   // The same, any of those that stand.
  double reschedule_ns = 0;  // Moved later, any of those that stand.
  double expiry_ns = 0;      // Each, spread over 10 s, the ways down the levels included.
  struct {
    double p50 = 0, p99 = 0, p9999 = 0, max = 0;
  } step_us;         // Steps of a millisecond, or of what the budget allows, through ten minutes.
  double bytes = 0;  // A timer, with all that is kept for it but its user's own.
};

struct TimerBench {
  std::vector<TimerFigures> figures;  // Ours first.
  double pairs_per_second = 0;        // Schedule and cancel, all threads, real time.
};

// `progress` is told before each of its parts, from 0, and of how many there are.
TimerBench measure_timers(const TimerBenchOptions& options,
                          const std::function<void(int part, int parts)>& progress);

}  // namespace tarry::cli
