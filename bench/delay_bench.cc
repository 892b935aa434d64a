// The cost of the delay engine, without broker, journal or network; the pending store is real.
//
//   cmake --preset release -DTARRY_BENCH=ON && ninja -C build/release delay_bench
//   build/release/bench/delay_bench
//
//   search   for header names in batches that have none
//   accept   batches of 100 delayed records of 100 bytes, until they are in the store and armed
//   drain    what is due in one millisecond, until its removal is in the store; `longest_step_us`
//            is the longest time that the engine held its thread, `cpu_ns` a record's share.  What
//            the journal gets is encoded as the broker does it, and goes nowhere
//   overdue  the same of a backlog that is on disk: what the pool reads is not in `cpu_ns`
//   long     one batch of 100 000 delayed records: without ids; with ids; with ids that replace.
//            `longest_turn_ms` is the longest of its turns on the shard's thread, in CPU time, and
//            `shard_ms` all of them; what the pool does is not in them
//
// Other work on the machine does not change the number of instructions: where the processor counts
// none, valgrind's callgrind does, of deliver_all() in drain/20000.

#include <benchmark/benchmark.h>
#include <stdlib.h>
#include <time.h>

#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/background.h"
#include "delay/engine.h"
#include "records/batch_builder.h"
#include "storage/bucket_store.h"

namespace tarry::delay {
namespace {

using std::chrono::milliseconds;
using Steady = std::chrono::steady_clock;

// The CPU time that this thread has taken.
double cpu_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// The turns of a shard's thread.
struct TurnTimes {
  double longest = 0, sum = 0;
  template <typename Work>
  void take(Work&& work) {
    const double begun = cpu_ms();
    work();
    const double took = cpu_ms() - begun;
    longest = std::max(longest, took);
    sum += took;
  }
};

// Runs work when asked; what follows it is a turn.
class TurnsBackground final : public Background {
 public:
  void run_and_then(Work work, Work then) override {
    queue_.emplace_back(std::move(work), std::move(then));
  }
  // Apart, so that a profile tells the pool's work from the shard's.
  [[gnu::noinline]] static void run_work(Work& work) { work(); }
  void run_all(TurnTimes& turns) {
    while (!queue_.empty()) {
      auto [work, then] = std::move(queue_.front());
      queue_.pop_front();
      run_work(work);
      work = nullptr;
      turns.take(then);
    }
  }
  void run_all() {
    TurnTimes ignored;
    run_all(ignored);
  }
  void forget() { queue_.clear(); }

 private:
  std::deque<std::pair<Work, Work>> queue_;
};

struct HandClock final : Clock {
  std::int64_t ms = 1'000;
  WallTime wall() const override { return from_ms(1'795'000'000'000 + ms); }
  MonoTime mono() const override { return MonoTime(milliseconds(ms)); }
};

// A host whose journal is durable when next asked.
class Host final : public Sink {
 public:
  explicit Host(const Engine::Options& options = {}) {
    std::string name = (std::filesystem::temp_directory_path() / "tarry-bench-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    directory_ = name;
    store_ = storage::BucketStore::make(name + "/pending", {}).value();
    engine = std::make_unique<Engine>(
        clock, wheel,
        Engine::Storage{*store_, background_, {0, 1}, [](const auto&) { return 0; }, counts_},
        *this, options);
    if (!engine->open()) std::abort();
    engine->start();
  }
  ~Host() override {
    background_.forget();
    engine.reset();
    store_.reset();
    std::filesystem::remove_all(directory_);
  }

  std::optional<TopicDelay> target(const TopicPartition&) override { return TopicDelay{}; }
  void deliver(const TopicPartition&, Buffer batch, Departures departures,
               DeliveryTold told) override {
    benchmark::DoNotOptimize(batch.data());
    storage::JournalTransaction transaction;
    transaction.add(storage::DeliveredRecords{departures.gone, static_cast<Offset>(delivered)});
    transaction.tell_appended(++appended_);
    told.appended({appended_, 0});
    done_.push_back(std::move(told.done));
    delivered += departures.gone.size();
  }
  void commit(storage::JournalTransaction transaction) override {
    transaction.tell_appended(++appended_);
    transaction.tell_settled({});
  }
  void request_sequences() override {
    engine->give_sequences(next_, next_ + 10'000'000);
    next_ += 10'000'000;
  }
  void store_failed(const Error&) override { std::abort(); }

  void accept(const records::CheckedBatch& batch) {
    const WallTime arrived = clock.wall();
    const auto schedules = read_schedules(batch, {}, arrived, engine->believed(arrived));
    auto accepted = engine->accept({}, batch, *schedules, {}, arrived, {});
    storage::JournalTransaction transaction;
    engine->add_to(transaction, std::move(*accepted), 0);
    commit(std::move(transaction));
  }
  // The same in steps; until its records are in the store.
  void accept_long(const records::CheckedBatch& batch, TurnTimes& turns) {
    const WallTime arrived = clock.wall();
    const auto schedules = read_schedules(batch, {}, arrived, engine->believed(arrived)).value();
    std::optional<Engine::IdRows> ids;
    turns.take([&] {
      engine->read_ids({}, schedules, [&](auto rows) { ids = std::move(rows.value()); });
    });
    background_.run_all(turns);
    bool durable = false;
    std::optional<storage::JournalTransaction> committed;
    turns.take([&] {
      engine->accept_in_steps({}, batch, schedules, {}, arrived, std::move(*ids),
                              [&](auto accepted) {
                                storage::JournalTransaction transaction;
                                engine->add_to(transaction, std::move(accepted.value()), 0);
                                Buffer journal;  // As the journal copies it.
                                for (const Bytes piece : transaction.pieces())
                                  append_bytes(journal, piece);
                                transaction.tell_appended(++appended_);
                                committed = std::move(transaction);
                              });
    });
    while (!durable || engine->stats().arriving > 0) {
      background_.run_all(turns);
      turns.take([&] { wheel.advance(static_cast<timing::Tick>(clock.ms), 4'096); });
      if (committed && !durable) turns.take([&] { committed->tell_settled({}); });
      durable = committed.has_value();
    }
    background_.run_all(turns);
  }
  // The longest piece of work that the engine did at once.
  Steady::duration turn() {
    TurnTimes ignored;
    return turn(ignored);
  }
  Steady::duration turn(TurnTimes& turns) {
    Steady::duration longest{};
    const auto timed = [&longest, &turns](auto&& work) {
      const auto begun = Steady::now();
      turns.take(work);
      longest = std::max(longest, Steady::now() - begun);
    };
    timed([&] { wheel.advance(static_cast<timing::Tick>(clock.ms), 4'096); });
    for (auto& done : std::exchange(done_, {})) timed([&] { done(Offset{0}); });
    background_.run_all(turns);
    return longest;
  }

  HandClock clock;
  timing::TimingWheel wheel;
  std::unique_ptr<Engine> engine;
  std::size_t delivered = 0;  // Handed over, that is.

 private:
  std::filesystem::path directory_;
  std::unique_ptr<storage::BucketStore> store_;
  storage::PendingCounts counts_;
  TurnsBackground background_;
  std::vector<std::move_only_function<void(Result<Offset>)>> done_;
  Sequence next_ = 1;
  Lsn appended_ = 0;
};

Buffer batch_of(std::size_t count, std::string_view header, const std::string& value,
                bool with_ids = false) {
  records::BatchBuilder builder;
  const std::string body(100, 'b');
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<records::HeaderView> headers{{header, as_bytes(value)}};
    const std::string id = "order-" + std::to_string(i);
    if (with_ids) headers.push_back({"x-schedule-id", as_bytes(id)});
    builder.append(from_ms(1'795'000'000'000), as_bytes("key"), as_bytes(body), headers);
  }
  return builder.finish();
}

void search(benchmark::State& state) {
  const Buffer batch = batch_of(8'000, "x-trace-id", "0123456789abcdef");
  const Bytes records = records::BatchView::parse(batch)->records();
  for (auto _ : state) benchmark::DoNotOptimize(search_names(records));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(records.size()));
}
BENCHMARK(search);

void accept(benchmark::State& state) {
  Host host;
  const Buffer bytes = batch_of(100, "x-delay", "300s");
  const auto batch = records::check_produced(bytes, {}).value();
  for (auto _ : state) host.accept(batch);
  state.SetItemsProcessed(state.iterations() * 100);
}
BENCHMARK(accept);

void long_batch(benchmark::State& state) {
  const bool with_ids = state.range(0) > 0;
  const Buffer bytes = batch_of(100'000, "x-delay", "300s", with_ids);
  const auto batch = records::check_produced(bytes, {.max_message_bytes = 64u << 20}).value();
  TurnTimes turns;
  for (auto _ : state) {
    state.PauseTiming();
    auto host = std::make_unique<Host>();
    TurnTimes before;
    if (state.range(0) == 2) host->accept_long(batch, before);
    state.ResumeTiming();
    host->accept_long(batch, turns);
    state.PauseTiming();
    host.reset();
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * 100'000);
  state.counters["longest_turn_ms"] = turns.longest;
  state.counters["shard_ms"] = turns.sum / static_cast<double>(state.iterations());
}
BENCHMARK(long_batch)->Name("long")->DenseRange(0, 2)->Unit(benchmark::kMillisecond);

// Apart, so that a profiler can be told to count this alone.
[[gnu::noinline]] void deliver_all(Host& host, std::size_t pending, TurnTimes& turns,
                                   Steady::duration& longest) {
  while (host.delivered < pending) longest = std::max(longest, host.turn(turns));
  longest = std::max(longest, host.turn(turns));
}

void deliver_burst(benchmark::State& state, const Engine::Options& options, bool is_on_disk) {
  const auto pending = static_cast<std::size_t>(state.range(0));
  Steady::duration longest{};
  TurnTimes turns;
  for (auto _ : state) {
    state.PauseTiming();
    auto host = std::make_unique<Host>(options);
    const Buffer bytes = batch_of(100, "x-delay", is_on_disk ? "1h" : "10s");
    const auto batch = records::check_produced(bytes, {}).value();
    for (std::size_t i = 0; i < pending; i += 100) {
      host->accept(batch);
      host->turn();
    }
    host->clock.ms += is_on_disk ? 3'600'000 : 10'000;
    state.ResumeTiming();
    deliver_all(*host, pending, turns, longest);
    state.PauseTiming();
    host.reset();
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.counters["longest_step_us"] = std::chrono::duration<double, std::micro>(longest).count();
  state.counters["cpu_ns"] =
      turns.sum * 1e6 / static_cast<double>(state.iterations() * state.range(0));
}

void drain(benchmark::State& state) {
  deliver_burst(state, {}, false);
}
BENCHMARK(drain)->Arg(1'000)->Arg(20'000)->Arg(100'000)->Unit(benchmark::kMillisecond);

// With so little memory most of it is on disk.
void overdue(benchmark::State& state) {
  Engine::Options options;
  options.memory_bytes = 4u << 20;
  deliver_burst(state, options, true);
}
BENCHMARK(overdue)->Arg(20'000)->Arg(100'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tarry::delay
