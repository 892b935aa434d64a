// The cost of a timer: ours, its five ancestors, Kafka's, std::multimap and three event loops side
// by side in one run.
//
//   scripts/install_deps --bench
//   cmake --preset release -DTARRY_BENCH=ON && ninja -C build/release timing_bench
//   build/release/bench/timing_bench            # six minutes: three repetitions
//   build/release/bench/timing_bench --quick    # a minute or two: one, and nothing with 10 M
//   ... --benchmark_filter='insert/.*' --benchmark_out=FILE
//
// Time is virtual and a tick is a millisecond.  Figures are CPU time of the thread, so that a busy
// machine does not count as theirs.  Timers lie in memory in an order that has nothing to do with
// their deadlines, as they do in a broker.  A callback touches the object that its timer is about.
// Everybody is woken at exactly the ticks at which something is due, where it says nothing else;
// what a design does in between (rings that tick) it does within.

#include <benchmark/benchmark.h>

#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "bench/loops.h"
#include "bench/peers.h"
#include "bench/timing_report.h"
#include "bench/timing_threads.h"

namespace tarry::bench {
namespace {

using peers::no_budget;
using peers::Tick;

constexpr Tick hour = 3'600'000;
// The budget that server/wheel_driver gives a step.
constexpr std::size_t step_budget = 512;

// The amount of work; --quick and the test reduce it.
struct Scale {
  std::size_t thousand = 1'000;
  std::size_t million = 1'000'000;
  std::size_t ten_million = 10'000'000;
  std::size_t pairs = 2'000'000;
  std::size_t cold_pairs = 500'000;
  Tick move_ticks = 2'000;  // A thousand moves each.
  Tick steady_ticks = 2'000;
  Tick steps = 600'000;
};
Scale scale;

std::uint64_t fired = 0;
void (*on_fired)(std::uint32_t index) = nullptr;  // Beside the counting, when somebody wants it.

// The object of a timer: 8 bytes of a connection.
struct Owner {
  std::uint32_t index = 0;
  std::uint32_t count = 0;

  void fire() {
    ++count;
    ++fired;
    if (on_fired != nullptr) on_fired(index);
  }
};

std::vector<std::uint32_t> random_numbers(std::size_t count, std::uint64_t bound,
                                          std::uint64_t seed = 42) {
  std::mt19937_64 random(seed);
  std::vector<std::uint32_t> numbers(count);
  for (auto& number : numbers) number = static_cast<std::uint32_t>(1 + random() % bound);
  return numbers;
}

double cpu_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}
double wall_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC_RAW, &time);  // Not the one that event loops are told.
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

double heap_bytes() {
  return static_cast<double>(::mallinfo2().uordblks);
}

void put(benchmark::State& state, double value, double total_ns) {
  state.counters["value"] = value;
  state.SetIterationTime(total_ns / 1e9);
}

template <class Peer>
void arm_all(Peer& peer, const std::vector<std::uint32_t>& deadlines) {
  for (std::size_t i = 0; i < deadlines.size(); ++i) peer.arm(i, deadlines[i]);
}

// A million (or so) timers over an hour, not measured.
template <class Peer>
std::unique_ptr<Peer> standing(std::size_t more = 0) {
  auto peer = std::make_unique<Peer>(scale.million + more);
  arm_all(*peer, random_numbers(scale.million, hour));
  peer->settle();
  return peer;
}

// Deadlines uniform over an hour, into a structure that was empty.
template <class Peer>
void insert(benchmark::State& state, std::size_t count) {
  const auto deadlines = random_numbers(count, hour);
  for (auto _ : state) {
    const double before = heap_bytes();
    auto peer = std::make_unique<Peer>(count);
    const double begin = cpu_ns();
    arm_all(*peer, deadlines);
    peer->settle();
    const double ns = cpu_ns() - begin;
    // All but what the timers are about; a handle that the owner has to keep counts.
    state.counters["bytes"] =
        (heap_bytes() - before) / static_cast<double>(count) - static_cast<double>(sizeof(Owner));
    if constexpr (requires { peer->structure_bytes(); }) {
      state.counters["structure_bytes"] =
          static_cast<double>(peer->structure_bytes()) / static_cast<double>(count);
    }
    put(state, ns / static_cast<double>(count), ns);
  }
}

// The same with a thousand: so short that it is done again and again, and the median counts.
template <class Peer>
void insert_few(benchmark::State& state) {
  const auto deadlines = random_numbers(scale.thousand, hour);
  std::vector<double> rounds;
  for (auto _ : state) {
    for (int round = 0; round < 101; ++round) {
      auto peer = std::make_unique<Peer>(scale.thousand);
      const double begin = wall_ns();
      arm_all(*peer, deadlines);
      peer->settle();
      rounds.push_back(wall_ns() - begin);
    }
    std::ranges::sort(rounds);
    const double ns = rounds[rounds.size() / 2];
    put(state, ns / static_cast<double>(scale.thousand), ns);
  }
}

template <class Peer>
void memory(benchmark::State& state) {
  const auto deadlines = random_numbers(scale.million, hour);
  for (auto _ : state) {
    const double before = heap_bytes();
    auto peer = std::make_unique<Peer>(scale.million);
    arm_all(*peer, deadlines);
    peer->settle();
    const double count = static_cast<double>(scale.million);
    put(state, (heap_bytes() - before) / count - static_cast<double>(sizeof(Owner)), 1);
    if constexpr (requires { peer->structure_bytes(); }) {
      state.counters["wheel_alone"] = static_cast<double>(peer->structure_bytes()) / count;
    }
  }
}

// The life of most timers: armed for 30 s and cancelled 256 arms later, a thousand each ms.
template <class Peer>
void hot_pair(benchmark::State& state) {
  constexpr std::size_t hot = 256;
  const auto peer = standing<Peer>(hot);
  for (auto _ : state) {
    for (std::size_t i = 0; i < hot; ++i) peer->arm(scale.million + i, 30'000);
    const Tick ticks = std::max<Tick>(scale.pairs / 1'000, 1);
    const std::size_t first = scale.million;
    Peer& timers = *peer;
    std::size_t next = 0;
    const double begin = cpu_ns();
    for (Tick now = 1; now <= ticks; ++now) {
      for (int i = 0; i < 1'000; ++i, ++next) {
        timers.disarm(first + next % hot);
        timers.arm(first + next % hot, now + 30'000);
      }
      timers.advance(now);
    }
    const double ns = cpu_ns() - begin;
    put(state, ns / static_cast<double>(ticks * 1'000), ns);
  }
}

// A random one of a million is cancelled and armed anew.
template <class Peer>
void cold_pair(benchmark::State& state) {
  const auto picks = random_numbers(scale.cold_pairs, scale.million, 7);
  const auto deadlines = random_numbers(scale.cold_pairs, hour, 8);
  auto peer = standing<Peer>();
  for (auto _ : state) {
    const double begin = cpu_ns();
    for (std::size_t i = 0; i < scale.cold_pairs; ++i) {
      peer->disarm(picks[i] - 1);
      peer->arm(picks[i] - 1, deadlines[i]);
      if (i % 1'000 == 999) peer->settle();
    }
    const double ns = cpu_ns() - begin;
    put(state, ns / static_cast<double>(scale.cold_pairs), ns);
  }
}

// Idle timeouts: a million connections, each heard of once a second in an order that has nothing to
// do with memory, each time its end is 10 s away again.  Work that a design puts off (a move that
// is only noted) comes due here as it does in the long run: each was armed at some earlier time.
template <class Peer>
void reschedule(benchmark::State& state) {
  const std::size_t each_tick = std::max<std::size_t>(scale.million / 1'000, 1);
  constexpr Tick timeout = 10'000;
  std::vector<std::uint32_t> order(scale.million);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(9));
  const auto earlier = random_numbers(scale.million, timeout - 1'000, 10);
  auto peer = std::make_unique<Peer>(scale.million);
  for (std::size_t i = 0; i < scale.million; ++i) peer->arm(i, earlier[i]);
  peer->settle();
  for (std::size_t i = 0; i < scale.million; ++i) {
    peer->move(order[i], timeout - 1'000 + i / each_tick);
  }
  peer->settle();
  for (auto _ : state) {
    const std::uint64_t before = fired;
    std::size_t next = 0;
    const double begin = cpu_ns();
    for (Tick now = 1; now <= scale.move_ticks; ++now) {
      peer->advance(now);
      for (std::size_t i = 0; i < each_tick; ++i) {
        peer->move(order[next], now + timeout);
        if (++next == scale.million) next = 0;
      }
    }
    const double ns = cpu_ns() - begin;
    if (fired != before) state.SkipWithError("fired though it was moved");
    put(state, ns / static_cast<double>(scale.move_ticks * each_tick), ns);
  }
}

// A million within `spread`, the ways down to their deadlines included.
template <class Peer>
void expire(benchmark::State& state, Tick spread) {
  const auto deadlines = random_numbers(scale.million, spread);
  auto ticks = deadlines;
  std::ranges::sort(ticks);
  ticks.erase(std::unique(ticks.begin(), ticks.end()), ticks.end());
  for (auto _ : state) {
    auto peer = std::make_unique<Peer>(scale.million);
    arm_all(*peer, deadlines);
    peer->settle();
    const std::uint64_t before = fired;
    const double begin = cpu_ns();
    for (const Tick now : ticks) peer->advance(now);
    const double ns = cpu_ns() - begin;
    if (fired - before != scale.million) state.SkipWithError("not all fired");
    put(state, ns / static_cast<double>(scale.million), ns);
  }
}

// A million in one tick, 5 s away.
template <class Peer>
void burst(benchmark::State& state) {
  constexpr Tick due = 5'000;
  const std::vector<std::uint32_t> deadlines(scale.million, due);
  for (auto _ : state) {
    auto peer = std::make_unique<Peer>(scale.million);
    arm_all(*peer, deadlines);
    peer->settle();
    const std::uint64_t before = fired;
    const double begin = cpu_ns();
    peer->advance(due);
    const double ns = cpu_ns() - begin;
    if (fired - before != scale.million) state.SkipWithError("not all fired");
    put(state, ns / static_cast<double>(scale.million), ns);
  }
}

// A million stand, a thousand are due each millisecond and are armed again by their callbacks.
template <class Peer>
void steady(benchmark::State& state) {
  const auto delays = random_numbers(1 << 16, 2'000);
  static Peer* rearmed = nullptr;
  static const std::uint32_t* delay = nullptr;
  static Tick now = 0;
  for (auto _ : state) {
    auto peer = std::make_unique<Peer>(scale.million);
    for (std::size_t i = 0; i < scale.million; ++i) {
      peer->user(i).index = static_cast<std::uint32_t>(i);
      peer->arm(i, delays[i & 0xffff]);
    }
    peer->settle();
    rearmed = peer.get();
    delay = delays.data();
    on_fired = [](std::uint32_t index) { rearmed->arm(index, now + delay[fired & 0xffff]); };
    const std::uint64_t before = fired;
    const double begin = cpu_ns();
    for (now = 1; now <= scale.steady_ticks; ++now) peer->advance(now);
    const double ns = cpu_ns() - begin;
    on_fired = nullptr;
    put(state, ns / static_cast<double>(fired - before), ns);
  }
}

// Steps are short, and the machine has interrupts and a host that take tens of microseconds from
// whoever runs.  Every round does the same work, step by step; so of each step the shortest of all
// rounds counts, and what is left is the design's own.
constexpr int step_rounds = 5;

// A round's steps, in microseconds.  `budget` only means something to those that have one.
template <class Peer>
std::vector<float> steps_of(const std::vector<std::uint32_t>& deadlines, Tick ticks) {
  auto peer = std::make_unique<Peer>(scale.million);
  arm_all(*peer, deadlines);
  peer->settle();
  std::vector<float> steps;
  steps.reserve(ticks + 8 * scale.million / step_budget + ticks / 8);
  double end = cpu_ns();
  for (Tick now = 1; now <= ticks; ++now) {
    for (bool more = true; more;) {
      more = peer->advance(now, step_budget);
      const double start = std::exchange(end, cpu_ns());
      steps.push_back(static_cast<float>((end - start) / 1e3));
    }
  }
  return steps;
}

// Nothing but the clock, as often: what the machine adds to a step.
struct Idle {
  explicit Idle(std::size_t) {}
  void arm(std::size_t, Tick) {}
  void settle() {}
  static bool advance(Tick, std::size_t) { return false; }
};

float longest_of(const std::vector<float>& steps) {
  return *std::ranges::max_element(steps);
}

// The time that other work on a loop waits: single steps of a millisecond, or what a budget allows
// where there is one.  Reading the clock is in it, 0.2 us or so.
template <class Peer>
void longest(benchmark::State& state, const std::vector<std::uint32_t>& deadlines, Tick ticks) {
  for (auto _ : state) {
    const double begin = cpu_ns();
    auto steps = steps_of<Peer>(deadlines, ticks);
    float raw = longest_of(steps);
    for (int round = 1; round < step_rounds; ++round) {
      const auto again = steps_of<Peer>(deadlines, ticks);
      if (again.size() != steps.size()) {
        state.SkipWithError("two rounds did not take the same steps");
        return;
      }
      for (std::size_t i = 0; i < steps.size(); ++i) steps[i] = std::min(steps[i], again[i]);
      raw = std::min(raw, longest_of(again));
    }
    const float idle = longest_of(steps_of<Idle>({}, steps.size()));
    const double ns = cpu_ns() - begin;
    std::ranges::sort(steps);
    const auto at = [&](double share) {
      return steps[static_cast<std::size_t>(share * static_cast<double>(steps.size() - 1))];
    };
    state.counters["p50_us"] = at(0.5);
    state.counters["p99_us"] = at(0.99);
    state.counters["p99.99_us"] = at(0.9999);
    state.counters["raw_us"] = raw;
    state.counters["idle_us"] = idle;
    // The number of steps that took up to 1, 2, 5, ... microseconds.
    for (const int us : {1, 2, 5, 10, 20, 50, 100, 1'000, 10'000}) {
      const auto up_to = std::ranges::upper_bound(steps, static_cast<float>(us)) - steps.begin();
      state.counters["up_to_" + std::to_string(us) + "_us"] = static_cast<double>(up_to);
    }
    state.counters["steps"] = static_cast<double>(steps.size());
    put(state, steps.back(), ns);
  }
}

// With a million standing over an hour.
template <class Peer>
void longest_step(benchmark::State& state) {
  longest<Peer>(state, random_numbers(scale.million, hour), scale.steps);
}

// A million in one tick, 5 s away.
template <class Peer>
void longest_burst(benchmark::State& state) {
  longest<Peer>(state, std::vector<std::uint32_t>(scale.million, 5'000), 5'000);
}

const std::vector<Row> rows = {
    {"insert_1k", "insert, 1 k pending", "ns"},
    {"insert_1M", "insert, 1 M pending", "ns"},
    {"insert_10M", "insert, 10 M pending", "ns"},
    {"hot_pair", "schedule + cancel, hot", "ns"},
    {"cold_pair", "cancel + schedule, cold", "ns"},
    {"reschedule", "reschedule later", "ns"},
    {"expire_10s", "expiry over 10 s", "ns"},
    {"expire_1h", "expiry over 1 h", "ns"},
    {"expire_tick", "expiry in one tick", "ns"},
    {"steady", "fire + schedule, 1 M/s", "ns"},
    {"longest_step", "longest step", "us"},
    {"longest_burst", "longest step, all in one tick", "us"},
    {"memory", "memory a timer", "bytes"},
    {"threads_1", "pairs, 1 thread", "M/s"},
    {"threads_2", "pairs, 2 threads", "M/s"},
};

template <class Function>
void add(const char* name, const char* peer, Function function) {
  const auto row = std::ranges::find(rows, std::string_view(name),
                                     [](const Row& each) { return std::string_view(each.name); });
  auto* const added = benchmark::RegisterBenchmark((std::string(name) + "/" + peer).c_str(),
                                                   [=](benchmark::State& state) {
                                                     state.SetLabel(row->label());
                                                     function(state);
                                                   });
  added->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);
  // To build and take down ten million takes some of them half a minute; steps have their own
  // rounds.
  const std::string_view row_name = name;
  if (row_name == "insert_10M" || row_name.starts_with("longest")) added->Repetitions(1);
}

template <class... Peers>
void add_all(bool with_ten_million) {
  const auto of_each = [](const char* row, auto function) {
    (add(row, Peers::name,
         [=](benchmark::State& state) { function.template operator()<Peers>(state); }),
     ...);
  };
  const auto for_each_cancelling_peer = [](const char* row, auto function) {
    const auto one = [&]<class Peer>() {
      if constexpr (Peer::can_cancel && Peer::can_move) {
        add(row, Peer::name,
            [=](benchmark::State& state) { function.template operator()<Peer>(state); });
      }
    };
    (one.template operator()<Peers>(), ...);
  };
  using State = benchmark::State;
  of_each("insert_1k", []<class Peer>(State& state) { insert_few<Peer>(state); });
  of_each("insert_1M", []<class Peer>(State& state) { insert<Peer>(state, scale.million); });
  if (with_ten_million) {
    of_each("insert_10M", []<class Peer>(State& state) { insert<Peer>(state, scale.ten_million); });
  }
  for_each_cancelling_peer("hot_pair", []<class Peer>(State& state) { hot_pair<Peer>(state); });
  for_each_cancelling_peer("cold_pair", []<class Peer>(State& state) { cold_pair<Peer>(state); });
  for_each_cancelling_peer("reschedule", []<class Peer>(State& state) { reschedule<Peer>(state); });
  of_each("expire_10s", []<class Peer>(State& state) { expire<Peer>(state, 10'000); });
  of_each("expire_1h", []<class Peer>(State& state) { expire<Peer>(state, hour); });
  of_each("expire_tick", []<class Peer>(State& state) { burst<Peer>(state); });
  of_each("steady", []<class Peer>(State& state) { steady<Peer>(state); });
  of_each("longest_step", []<class Peer>(State& state) { longest_step<Peer>(state); });
  of_each("longest_burst", []<class Peer>(State& state) { longest_burst<Peer>(state); });
  of_each("memory", []<class Peer>(State& state) { memory<Peer>(state); });
}

// Memory that was used once stays the process's, and there is some from the beginning: no peer pays
// for pages of the kernel's that another one has fetched for it.
void warm_memory(std::size_t bytes) {
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, -1);
  const auto memory = std::make_unique_for_overwrite<char[]>(bytes);
  for (std::size_t i = 0; i < bytes; i += 4096) {
    memory[i] = 1;
    benchmark::DoNotOptimize(memory[i]);
  }
}

// Takes `flag` out of the words.
bool taken(int& count, char** words, const char* flag) {
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(words[i], flag) != 0) continue;
    std::copy(words + i + 1, words + count, words + i);
    --count;
    return true;
  }
  return false;
}

int run(int count, char** words) {
  const bool test = taken(count, words, "--test");
  const bool quick = taken(count, words, "--quick") || test;
  if (quick) {
    scale.pairs = 1'000'000;
    scale.cold_pairs = 200'000;
    scale.move_ticks = 500;
    scale.steady_ticks = 500;
    scale.steps = 200'000;
  }
  if (test)
    scale = {.thousand = 10,
             .million = 2'000,
             .pairs = 2'000,
             .cold_pairs = 2'000,
             .move_ticks = 20,
             .steady_ticks = 20,
             .steps = 2'000};
  warm_memory(test ? 1 << 20 : 1 << 30);

  add_all<peers::Tarry<Owner>, peers::KeyedRound<Owner>, peers::PooledHeap<Owner>,
          peers::Hashed<Owner>, peers::Levels<Owner>, peers::ThreeLevels<Owner>,
          peers::Kafka<Owner>, peers::Multimap<Owner>, peers::Asio<Owner>
#ifdef TARRY_HAS_LIBEVENT
          ,
          peers::Libevent<Owner>
#endif
#ifdef TARRY_HAS_LIBUV
          ,
          peers::Libuv<Owner>
#endif
          >(!quick);
  add_thread_benchmarks(test ? 0.01 : quick ? 0.3 : 1.0);

  // Without other flags the results are medians of three.
  std::vector<char*> given(words, words + count);
  std::string repetitions = quick ? "--benchmark_repetitions=1" : "--benchmark_repetitions=3";
  given.insert(given.begin() + 1, repetitions.data());
  int given_count = static_cast<int>(given.size());
  benchmark::Initialize(&given_count, given.data());
  if (benchmark::ReportUnrecognizedArguments(given_count, given.data())) return 2;
  TableReporter reporter(rows);
  benchmark::RunSpecifiedBenchmarks(&reporter);
  return reporter.has_failed() ? 1 : 0;
}

}  // namespace
}  // namespace tarry::bench

int main(int count, char** words) {
  return tarry::bench::run(count, words);
}
