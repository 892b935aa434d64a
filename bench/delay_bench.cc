// The cost of the delay engine, without broker, journal or network; the pending store is real.
//
//   cmake --preset release -DTARRY_BENCH=ON && ninja -C build/release delay_bench
//   build/release/bench/delay_bench
//
//   search   for header names in batches that have none
//   accept   batches of 100 delayed records of 100 bytes, until they are in the store and armed
//   drain    what is due in one millisecond, until its removal is in the store; `longest_step_us`
//            is the longest time that the engine held its thread

#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "delay/engine.h"
#include "records/batch_builder.h"
#include "storage/bucket_store.h"
#include "tests/given.h"

namespace tarry::delay {
namespace {

using std::chrono::milliseconds;
using Steady = std::chrono::steady_clock;

struct HandClock final : Clock {
  std::int64_t ms = 1'000;
  WallTime wall() const override { return from_ms(1'795'000'000'000 + ms); }
  MonoTime mono() const override { return MonoTime(milliseconds(ms)); }
};

// A host whose journal is durable when next asked.
class Host final : public Sink {
 public:
  Host() {
    std::string name = (std::filesystem::temp_directory_path() / "tarry-bench-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    directory_ = name;
    store_ = storage::BucketStore::make(name + "/pending", {}).value();
    engine = std::make_unique<Engine>(
        clock, wheel,
        Engine::Storage{*store_, background_, {0, 1}, [](const auto&) { return 0; }, counts_},
        *this, Engine::Options{});
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
  void deliver(const TopicPartition&, Buffer, Departures, DeliveryTold told) override {
    told.appended({++appended_, 0});
    done_.push_back(std::move(told.done));
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
  // The longest piece of work that the engine did at once.
  Steady::duration turn() {
    Steady::duration longest{};
    const auto timed = [&longest](auto&& work) {
      const auto begun = Steady::now();
      work();
      longest = std::max(longest, Steady::now() - begun);
    };
    timed([&] { wheel.advance(static_cast<timing::Tick>(clock.ms), 4'096); });
    for (auto& done : std::exchange(done_, {})) timed([&] { done(Offset{0}); });
    background_.run_all();
    return longest;
  }

  HandClock clock;
  timing::TimingWheel wheel;
  std::unique_ptr<Engine> engine;

 private:
  std::filesystem::path directory_;
  std::unique_ptr<storage::BucketStore> store_;
  storage::PendingCounts counts_;
  QueuedBackground background_;
  std::vector<std::move_only_function<void(Result<Offset>)>> done_;
  Sequence next_ = 1;
  Lsn appended_ = 0;
};

Buffer batch_of(std::size_t count, std::string_view header, const std::string& value) {
  records::BatchBuilder builder;
  const std::string body(100, 'b');
  const records::HeaderView headers[] = {{header, as_bytes(value)}};
  for (std::size_t i = 0; i < count; ++i) {
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

void drain(benchmark::State& state) {
  const auto pending = static_cast<std::size_t>(state.range(0));
  Steady::duration longest{};
  for (auto _ : state) {
    state.PauseTiming();
    auto host = std::make_unique<Host>();
    const Buffer bytes = batch_of(100, "x-delay", "10s");
    const auto batch = records::check_produced(bytes, {}).value();
    for (std::size_t i = 0; i < pending; i += 100) {
      host->accept(batch);
      host->turn();
    }
    host->clock.ms += 10'000;
    state.ResumeTiming();
    while (host->engine->stats().delivered_total < pending) {
      longest = std::max(longest, host->turn());
    }
    state.PauseTiming();
    host.reset();
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.counters["longest_step_us"] = std::chrono::duration<double, std::micro>(longest).count();
}
BENCHMARK(drain)->Arg(1'000)->Arg(100'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tarry::delay
