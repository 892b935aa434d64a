// What waiting costs: an operation parked on a list that many watch, and completed by the change
// that it waited for.
//
//   cmake --preset release -DTARRY_BENCH=ON && ninja -C build/release purgatory_bench
//   build/release/bench/purgatory_bench --benchmark_repetitions=5

#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "purgatory/purgatory.h"

namespace tarry::purgatory {
namespace {

struct Waiter final : DelayedOperation {
  Waiter() : DelayedOperation(Kind::produce) {}
  const Threshold* number = nullptr;
  Threshold wanted = 0;

 private:
  bool is_satisfied() override { return *number >= wanted; }
  void on_complete(Outcome) override {}
};

// One key, `standing` that wait for what does not come, beside one that comes and is completed.
void park_and_complete(benchmark::State& state) {
  const auto standing = static_cast<std::size_t>(state.range(0));
  timing::TimingWheel wheel;
  Purgatory purgatory(wheel);
  WatchList list;
  Threshold number = 0;
  std::vector<std::unique_ptr<Waiter>> waiters;
  for (std::size_t i = 0; i < standing; ++i) {
    waiters.push_back(std::make_unique<Waiter>());
    waiters.back()->number = &number;
    waiters.back()->wanted = 1'000'000'000'000 + static_cast<Threshold>(i);
    const std::array watching{Watching{list, waiters.back()->wanted}};
    waiters.back()->start(purgatory, 0, 1 + i, watching);
  }
  Waiter waiter;
  waiter.number = &number;
  for (auto _ : state) {
    waiter.wanted = number + 1;
    const std::array watching{Watching{list, waiter.wanted}};
    waiter.start(purgatory, 0, 30'000, watching);
    list.advance_to(++number);
    purgatory.run_completions(0);
  }
}
BENCHMARK(park_and_complete)->Arg(0)->Arg(100'000);

// The same with those that wait in ascending order, as produces on a partition do: 1 000 parked,
// then completed by one flush.
void a_round(benchmark::State& state) {
  timing::TimingWheel wheel;
  Purgatory purgatory(wheel);
  WatchList list;
  Threshold number = 0;
  constexpr std::size_t count = 1000;
  std::vector<std::unique_ptr<Waiter>> waiters;
  for (std::size_t i = 0; i < count; ++i) {
    waiters.push_back(std::make_unique<Waiter>());
    waiters.back()->number = &number;
  }
  for (auto _ : state) {
    for (std::size_t i = 0; i < count; ++i) {
      waiters[i]->wanted = number + 1 + static_cast<Threshold>(i);
      const std::array watching{Watching{list, waiters[i]->wanted}};
      waiters[i]->start(purgatory, 0, 30'000, watching);
    }
    number += static_cast<Threshold>(count);
    list.advance_to(number);
    purgatory.run_completions(0);
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(count) * state.iterations());
  state.counters["each"] =
      benchmark::Counter(static_cast<double>(count) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(a_round);

}  // namespace
}  // namespace tarry::purgatory
