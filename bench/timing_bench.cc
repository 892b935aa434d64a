// What a timer costs in TimingWheel: to join, to leave, to move, to fire.
//
//   cmake --preset release -DTARRY_BENCH=ON && ninja -C build/release timing_bench
//   build/release/bench/timing_bench --benchmark_repetitions=5
//
// Times are CPU time a timer unless a counter says otherwise.  Timers lie in memory in an order
// that has nothing to do with their deadlines, as they do in a broker.

#include <benchmark/benchmark.h>

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "timing/timing_wheel.h"

namespace tarry::timing {
namespace {

constexpr Tick hour = 3'600'000;

std::uint64_t fired = 0;

struct BenchTimer final : Timer {
  void on_expired() override { ++fired; }
};

std::vector<Tick> random_ticks(std::size_t count, Tick bound, std::uint64_t seed = 42) {
  std::mt19937_64 random(seed);
  std::vector<Tick> ticks(count);
  for (Tick& tick : ticks) tick = 1 + random() % bound;
  return ticks;
}

std::size_t pending(const benchmark::State& state) {
  return static_cast<std::size_t>(state.range(0));
}

void count_items(benchmark::State& state, std::size_t each) {
  state.SetItemsProcessed(static_cast<std::int64_t>(each) * state.iterations());
  state.counters["each"] =
      benchmark::Counter(static_cast<double>(each) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

// Deadlines uniform over an hour.
void insert(benchmark::State& state) {
  const std::size_t count = pending(state);
  const auto deadlines = random_ticks(count, hour);
  std::size_t bytes = 0;
  for (auto _ : state) {
    state.PauseTiming();
    auto timers = std::make_unique<BenchTimer[]>(count);
    auto wheel = std::make_unique<TimingWheel>();
    state.ResumeTiming();
    for (std::size_t i = 0; i < count; ++i) wheel->schedule(timers[i], deadlines[i]);
    state.PauseTiming();
    bytes = wheel->stats().bytes;
    wheel.reset();
    timers.reset();
    state.ResumeTiming();
  }
  count_items(state, count);
  state.counters["bytes_each"] = static_cast<double>(bytes) / static_cast<double>(count);
}
BENCHMARK(insert)->Arg(1000)->Arg(1'000'000)->Unit(benchmark::kMicrosecond);

// The life of most timers: armed for 30 s and cancelled 256 arms later, a million standing.
void hot_pair(benchmark::State& state) {
  const std::size_t count = pending(state);
  const auto deadlines = random_ticks(count, hour);
  auto standing = std::make_unique<BenchTimer[]>(count);
  auto hot = std::make_unique<BenchTimer[]>(256);
  TimingWheel wheel;
  for (std::size_t i = 0; i < count; ++i) wheel.schedule(standing[i], deadlines[i]);
  constexpr std::size_t pairs = 1000;
  Tick now = 0;
  std::size_t next = 0;
  for (auto _ : state) {
    for (std::size_t i = 0; i < pairs; ++i) {
      BenchTimer& timer = hot[next++ & 255];
      wheel.cancel(timer);
      wheel.schedule(timer, now + 30'000);
    }
    wheel.advance(++now);
  }
  count_items(state, pairs);
}
BENCHMARK(hot_pair)->Arg(1'000'000);

// Cancel a random one of a million and arm it anew.
void cold_pair(benchmark::State& state) {
  const std::size_t count = pending(state);
  const auto deadlines = random_ticks(count, hour);
  const auto picks = random_ticks(1 << 20, count, 7);
  auto timers = std::make_unique<BenchTimer[]>(count);
  TimingWheel wheel;
  for (std::size_t i = 0; i < count; ++i) wheel.schedule(timers[i], deadlines[i]);
  constexpr std::size_t pairs = 1000;
  std::size_t next = 0;
  for (auto _ : state) {
    for (std::size_t i = 0; i < pairs; ++i, ++next) {
      BenchTimer& timer = timers[picks[next & 0xfffff] - 1];
      wheel.cancel(timer);
      wheel.schedule(timer, deadlines[next * 7 % count]);
    }
  }
  count_items(state, pairs);
}
BENCHMARK(cold_pair)->Arg(1'000'000);

// An idle timeout that every request moves later, of random connections.
void postpone(benchmark::State& state) {
  const std::size_t count = pending(state);
  const auto picks = random_ticks(1 << 20, count, 7);
  auto timers = std::make_unique<BenchTimer[]>(count);
  TimingWheel wheel;
  Tick now = 0;
  for (std::size_t i = 0; i < count; ++i) wheel.schedule(timers[i], now + 600'000);
  constexpr std::size_t moves = 1000;
  std::size_t next = 0;
  for (auto _ : state) {
    for (std::size_t i = 0; i < moves; ++i, ++next) {
      wheel.reschedule(timers[picks[next & 0xfffff] - 1], now + 600'000);
    }
    wheel.advance(++now, 512);
  }
  count_items(state, moves);
}
BENCHMARK(postpone)->Arg(1'000)->Arg(1'000'000);

// All of them within `spread` ticks, in steps of one tick, downgrades included.
void expire(benchmark::State& state) {
  const std::size_t count = pending(state);
  const auto deadlines = random_ticks(count, static_cast<Tick>(state.range(1)));
  for (auto _ : state) {
    state.PauseTiming();
    auto timers = std::make_unique<BenchTimer[]>(count);
    auto wheel = std::make_unique<TimingWheel>();
    for (std::size_t i = 0; i < count; ++i) wheel->schedule(timers[i], deadlines[i]);
    const std::uint64_t before = fired;
    state.ResumeTiming();
    for (Tick now = 1; !wheel->empty(); ++now) wheel->advance(now);
    state.PauseTiming();
    if (fired - before != count) state.SkipWithError("not all fired");
    wheel.reset();
    timers.reset();
    state.ResumeTiming();
  }
  count_items(state, count);
}
BENCHMARK(expire)
    ->Args({10'000, 10'000})
    ->Args({1'000'000, 10'000})
    ->Args({1'000'000, static_cast<std::int64_t>(hour)})
    ->Args({1'000'000, 1})
    ->Unit(benchmark::kMillisecond);

// The CPU time of this thread, so that a busy machine does not count as ours.
double cpu_us() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

// The longest and the 99.99th percentile of single steps, each of one millisecond or what its
// budget allows, with a million standing over an hour: what others on the loop wait for us.
void longest_step(benchmark::State& state) {
  const std::size_t count = pending(state);
  const auto budget = static_cast<std::size_t>(state.range(1));
  const auto deadlines = random_ticks(count, hour);
  std::vector<double> steps;
  for (auto _ : state) {
    state.PauseTiming();
    auto timers = std::make_unique<BenchTimer[]>(count);
    auto wheel = std::make_unique<TimingWheel>();
    for (std::size_t i = 0; i < count; ++i) wheel->schedule(timers[i], deadlines[i]);
    state.ResumeTiming();
    for (Tick now = 1; now < 600'000; ++now) {
      bool more = true;
      while (more) {
        const double begin = cpu_us();
        more = wheel->advance(now, budget).more;
        steps.push_back(cpu_us() - begin);
      }
    }
    state.PauseTiming();
    wheel.reset();
    timers.reset();
    state.ResumeTiming();
  }
  std::sort(steps.begin(), steps.end());
  state.counters["longest_us"] = steps.back();
  state.counters["p99.99_us"] = steps[steps.size() - 1 - steps.size() / 10'000];
}
BENCHMARK(longest_step)
    ->Args({1'000'000, 256})
    ->Args({1'000'000, 512})
    ->Args({1'000'000, 1 << 30})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tarry::timing
