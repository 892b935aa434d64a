#pragma once

// measure_timers(): what a timer costs on this machine, in a broker's wheel and in a sorted map,
// the usual choice without a wheel, and in a TimerService that several threads share.
//
// It takes seconds for a million timers and needs no other library; bench/timing_bench measures
// more, and more exactly.  Time is virtual, in ticks of a millisecond, except for the threads.
// Figures are the thread's CPU time, so that a busy machine does not change them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tarry::cli {

struct TimerBenchOptions {
  std::size_t pending = 1'000'000;  // Pending timers, with deadlines uniform over an hour.
  std::size_t budget = 512;         // The most timers that one step of the wheel handles.
  unsigned threads = 2;             // They share a TimerService; 0: not measured.
  std::uint64_t seed = 1;
};

struct TimerFigures {
  std::string name;
  double insert_ns = 0;
  double hot_pair_ns = 0;    // Cancel and schedule a timer that was scheduled a moment ago.
  double cold_pair_ns = 0;   // The same for any pending timer.
  double reschedule_ns = 0;  // Any pending timer, moved later.
  double expiry_ns = 0;      // Each, spread over 10 s, moves between levels included.
  struct {
    double p50 = 0, p99 = 0, p9999 = 0, max = 0;
  } step_us;         // Steps of a millisecond, or of what the budget allows, through ten minutes.
  double bytes = 0;  // For one timer, without its user's own data.
};

struct TimerBench {
  std::vector<TimerFigures> figures;  // Ours first.
  double pairs_per_second = 0;        // Schedule and cancel, all threads, real time.
};

// Calls `progress` before each part, with its number, from 0, and the number of parts.
TimerBench measure_timers(const TimerBenchOptions& options,
                          const std::function<void(int part, int parts)>& progress);

}  // namespace tarry::cli
