// The cost of the journal on a real disk.
//
//   cmake --preset release -DTARRY_BENCH=ON && ninja -C build/release journal_bench
//   TMPDIR=/on/the/disk/in/question build/release/bench/journal_bench
//
// Times are wall time; `cpu_s_per_GB` is that of the whole process, all threads.  Files are used
// again after the first 64 MiB, as in a broker that has run for a while.

#include <benchmark/benchmark.h>

#include <condition_variable>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "storage/journal.h"
#include "tests/given.h"

namespace tarry::storage {
namespace {

double process_cpu_seconds() {
  timespec now;
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

class MachineClock final : public Clock {
 public:
  WallTime wall() const override { return {}; }
  MonoTime mono() const override { return std::chrono::steady_clock::now(); }
};

// Two threads that work, and an inbox for what is to run on the one that asked.
class ThreadBackground final : public Background {
 public:
  ThreadBackground() {
    for (int i = 0; i < 2; ++i)
      threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
  void run_and_then(Work work, Work then) override {
    const std::lock_guard lock(mutex_);
    todo_.push_back({std::move(work), std::move(then)});
    has_work_.notify_one();
  }
  // Waits for at least one piece to be done.
  void take_done() {
    std::deque<Work> done;
    {
      std::unique_lock lock(mutex_);
      has_done_.wait(lock, [&] { return !done_.empty(); });
      done.swap(done_);
    }
    for (auto& then : done) then();
  }

 private:
  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (has_work_.wait(lock, stop, [&] { return !todo_.empty(); })) {
      auto [work, then] = std::move(todo_.front());
      todo_.pop_front();
      lock.unlock();
      work();
      lock.lock();
      done_.push_back(std::move(then));
      has_done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any has_work_, has_done_;
  std::deque<std::pair<Work, Work>> todo_;
  std::deque<Work> done_;
  std::vector<std::jthread> threads_;  // Last: they use the others.
};

struct Rig {
  Rig() {
    std::string name = std::filesystem::temp_directory_path() / "tarry_journal_bench_XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    root = name;
    options.directory = root + "/journal/0";
    JournalHooks hooks;
    hooks.on_ready = [this] { ready = true; };
    hooks.on_failure = [](const Error&) { std::abort(); };
    hooks.on_pressure = [this] { pressure = true; };
    journal =
        std::move(*Journal::open(disk, background, random, clock, options, std::move(hooks), {}));
  }
  ~Rig() {
    journal.reset();
    std::filesystem::remove_all(root);
  }

  // Until all that was appended is durable.
  void flush() {
    while (!journal->is_idle()) turn();
  }
  void turn() {
    if (std::exchange(ready, false)) journal->start_round();
    if (std::exchange(pressure, false)) journal->checkpoint(journal->durable_lsn(), {});
    background.take_done();
  }

  std::string root;
  PosixDisk disk;
  SeededRandom random{1};
  MachineClock clock;
  JournalOptions options;
  ThreadBackground background;
  bool ready = false, pressure = false;
  std::unique_ptr<Journal> journal;
};

// Files that were written before, as far as it goes.
void warm_up(Rig& rig) {
  const Buffer record(1 << 20, 1);
  for (int i = 0; i < 300; ++i) {
    if (!rig.journal->append(record, {})) std::abort();
    rig.flush();
  }
}

// One round at a time: so many records, each of so many bytes, and wait for all.
void rounds(benchmark::State& state) {
  Rig rig;
  warm_up(rig);
  const Buffer record(static_cast<std::size_t>(state.range(1)), 7);
  const auto cpu = process_cpu_seconds();
  std::int64_t bytes = 0;
  for (auto _ : state) {
    for (int i = 0; i < state.range(0); ++i)
      if (!rig.journal->append(record, [](const Result<>&) {})) std::abort();
    rig.flush();
    bytes += state.range(0) * state.range(1);
  }
  state.SetBytesProcessed(bytes);
  state.counters["cpu_s_per_GB"] = (process_cpu_seconds() - cpu) / static_cast<double>(bytes) * 1e9;
}
BENCHMARK(rounds)
    ->Args({1, 100})
    ->Args({1, 16'000})
    ->Args({16, 1024})
    ->Args({128, 1024})
    ->Args({1024, 1024})
    ->Args({1, 1 << 20})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

// Appends go on while a round is in flight, up to so many bytes ahead of the disk.
void stream(benchmark::State& state) {
  Rig rig;
  warm_up(rig);
  const Buffer record(static_cast<std::size_t>(state.range(0)), 7);
  const auto cpu = process_cpu_seconds();
  const auto before = rig.journal->stats();
  std::int64_t bytes = 0;
  for (auto _ : state) {
    while (rig.journal->end_lsn() - rig.journal->durable_lsn() > (4 << 20)) rig.turn();
    if (!rig.journal->append(record, [](const Result<>&) {})) std::abort();
    if (!rig.journal->in_flight()) rig.journal->start_round();
    bytes += state.range(0);
  }
  rig.flush();
  state.SetBytesProcessed(bytes);
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()));
  state.counters["cpu_s_per_GB"] = (process_cpu_seconds() - cpu) / static_cast<double>(bytes) * 1e9;
  state.counters["records_per_round"] =
      static_cast<double>(rig.journal->stats().records - before.records) /
      static_cast<double>(rig.journal->stats().rounds - before.rounds);
}
BENCHMARK(stream)->Arg(100)->Arg(1024)->Arg(16'384)->UseRealTime();

// Reading again what lies behind the checkpoint.
void recovery(benchmark::State& state) {
  Rig rig;
  const Buffer record(1024, 7);
  for (int i = 0; i < state.range(0); ++i) {
    for (int k = 0; k < 1024; ++k)
      if (!rig.journal->append(record, {})) std::abort();
    rig.pressure = false;
    rig.flush();
  }
  std::uint64_t records = 0;
  for (auto _ : state) {
    const auto found = recover_journal(rig.disk, rig.options.directory, [&](Lsn, Bytes) {
      ++records;
      return Result<>{};
    });
    if (!found) std::abort();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(records * 1024));
}
BENCHMARK(recovery)->Arg(1)->Arg(100)->UseRealTime()->Unit(benchmark::kMillisecond);

// A journal that was not there before, until it can be appended to.
void opening(benchmark::State& state) {
  for (auto _ : state) {
    const Rig rig;
    benchmark::DoNotOptimize(rig.journal->durable_lsn());
  }
}
BENCHMARK(opening)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tarry::storage
