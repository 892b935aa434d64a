// Pending records by the million: what it costs to accept them durably, keep them, find them again
// after a restart, and take them out in due order: BucketStore and BucketTier behind a journal, in
// groups of 1 000 records that are answered when their round is synced, with a checkpoint for each
// 64 MiB of it.
//
//   cmake --preset release -DTARRY_BENCH=ON && ninja -C build/release pending_bench
//   TMPDIR=/on/the/disk/in/question build/release/bench/pending_bench 50000000
//
//   RECORDS [--seconds N] [--days N] [--bytes N] [--drain N]
//
// Due times are uniformly random over --days (30), bodies are --bytes (100) random bytes, which do
// not compress.  It ends after --seconds of accepting (240) if it has not reached RECORDS.  Then it
// makes a checkpoint, opens the store again, and drains --drain seconds (20) of it.
//
// One thread is the shard, two are its Background.  `accepted/s` is of the last part, `late max`
// the longest time that the shard's thread did one thing.

#include <fmt/core.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "delay/bucket_tier.h"
#include "storage/bucket_store.h"
#include "storage/journal.h"
#include "storage/journal_record.h"
#include "tests/given.h"

namespace tarry {
namespace {

namespace fs = std::filesystem;
using Steady = std::chrono::steady_clock;
using storage::PendingAdded;
using storage::PendingKey;

constexpr std::size_t group_records = 1'000;
constexpr std::size_t max_groups = 8;  // Appended and not durable.
constexpr std::uint64_t max_group_bytes = group_records << 10;
constexpr std::uint64_t checkpoint_bytes = 64u << 20;
const WallTime begin = from_ms(1'795'000'000'000);

[[noreturn]] void stop(const std::string& why) {
  fmt::print(stderr, "pending_bench: {}\n", why);
  std::exit(1);
}
template <typename T>
T checked(Result<T> result) {
  if (!result) stop(result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

struct Settings {
  std::uint64_t records = 0;
  int seconds = 240;
  int days = 30;
  std::size_t bytes = 100;
  int drain = 20;
};

class MachineClock final : public Clock {
 public:
  WallTime wall() const override { return begin; }
  MonoTime mono() const override { return Steady::now(); }
};

// Two threads that work, and an inbox for what is to run on the one that asked.
class ThreadBackground final : public Background {
 public:
  ThreadBackground() {
    for (int i = 0; i < 2; ++i)
      threads_.emplace_back([this](const std::stop_token& token) { work(token); });
  }
  void run_and_then(Work work, Work then) override {
    const std::lock_guard lock(mutex_);
    todo_.push_back({std::move(work), std::move(then)});
    ++open_;
    has_work_.notify_one();
  }
  // Runs what is done; waits for something if `wait`, unless nothing is under way.
  void turn(bool wait) {
    std::deque<Work> done;
    {
      std::unique_lock lock(mutex_);
      if (wait) has_done_.wait(lock, [&] { return !done_.empty() || open_ == 0; });
      done.swap(done_);
      open_ -= done.size();
    }
    for (auto& then : done) then();
  }
  bool is_idle() {
    const std::lock_guard lock(mutex_);
    return open_ == 0;
  }

 private:
  void work(const std::stop_token& token) {
    std::unique_lock lock(mutex_);
    while (has_work_.wait(lock, token, [&] { return !todo_.empty(); })) {
      auto [work, then] = std::move(todo_.front());
      todo_.pop_front();
      lock.unlock();
      work();
      work = {};
      lock.lock();
      done_.push_back(std::move(then));
      has_done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any has_work_, has_done_;
  std::deque<std::pair<Work, Work>> todo_;
  std::deque<Work> done_;
  std::size_t open_ = 0;
  std::vector<std::jthread> threads_;  // Last: they use the others.
};

class Buckets {
 public:
  Buckets(std::string directory, ThreadBackground& background)
      : directory_(std::move(directory)), background_(background) {}

  void open(bool make) {
    store_ = checked(make ? storage::BucketStore::make(directory_, {})
                          : storage::BucketStore::open(directory_, {}));
    delay::BucketTier::Options options;
    options.memory_bytes = 256u << 20;  // One shard: all of the budget.
    delay::BucketTier::Hooks hooks;
    hooks.near = [this](const storage::PendingView& view, const auto&) {
      near_.emplace_back(view.key, view.partition);
    };
    hooks.pulled_back = [](const PendingKey&) {};
    hooks.wake = [] {};
    hooks.failed = [](const Error& error) { stop(error.message); };
    hooks.owner_of = [](const TopicPartition&) { return std::uint16_t{0}; };
    tier_ = std::make_unique<delay::BucketTier>(*store_, background_, storage::Owner{0, 1}, options,
                                                std::move(hooks));
    checked(tier_->open(now_));
  }
  void close() {
    tier_.reset();
    while (!background_.is_idle()) background_.turn(true);
    store_.reset();
  }
  void add(Lsn lsn, std::span<const PendingAdded> records) {
    lsn_ = lsn;
    operation_ = 0;
    for (const auto& added : records) {
      if (tier_->add({lsn_, operation_++}, added))
        near_.emplace_back(PendingKey{added.due, added.sequence}, added.partition);
    }
  }
  bool step() { return tier_->step(now_); }
  bool is_full() const { return tier_->is_full(); }
  void checkpoint(std::function<void()> done, Lsn lsn) {
    tier_->write_all([this, lsn, done = std::move(done)]() mutable {
      background_.run([this] { return store_->flush(); },
                      [this, lsn, done = std::move(done)](const Result<>& flushed) {
                        checked(flushed);
                        tier_->noted({lsn, 0});
                        done();
                      });
    });
  }
  void first() {
    now_ = begin + std::chrono::hours(1);
    while (near_.empty()) {
      if (!tier_->step(now_)) background_.turn(true);
    }
  }
  // The clock goes as fast as the records come.
  std::size_t drain() {
    while (taken_ == near_.size() || tier_->settled_before() != tier_->horizon()) {
      if (taken_ == near_.size()) {
        near_.clear();
        taken_ = 0;
        const auto next = tier_->next_load();
        // A hand-over under way may be done in the next step.
        const bool is_quiet = !next && background_.is_idle();
        if (is_quiet && !tier_->step(now_) && near_.empty()) return 0;
        if (next) now_ = std::max(now_, *next + std::chrono::minutes(1));
      }
      if (!tier_->step(now_)) background_.turn(!background_.is_idle() && near_.empty());
      sorted_ = false;
    }
    if (!sorted_) std::sort(near_.begin() + static_cast<std::ptrdiff_t>(taken_), near_.end());
    sorted_ = true;
    const std::size_t from = taken_;
    for (; taken_ < near_.size() && taken_ < from + 512; ++taken_) {
      const auto& [key, partition] = near_[taken_];
      const auto view = tier_->read(key);
      if (!view) stop("a pending record is missing");
      sum_ += view->record.back();
      storage::PendingRemoved gone;
      gone.partition = partition;
      gone.sequence = key.sequence;
      gone.due = key.due;
      tier_->remove({lsn_ + 1, operation_++}, gone);
    }
    // Like a checkpoint, removes from the disk what is gone.
    if ((drained_ += taken_ - from) >= 1'000'000 && !checkpointing_) {
      drained_ = 0;
      checkpointing_ = true;
      checkpoint([this] { checkpointing_ = false; }, lsn_ + 1);
    }
    if (!tier_->step(now_)) background_.turn(false);
    return taken_ - from;
  }
  std::string figures() {
    const auto stats = tier_->stats();
    const auto sizes = store_->sizes();
    return fmt::format(
        "tier {} MiB, {} chunks; written {}, spared {}, near {}, loads {}, dealt {}; blobs {} MiB, "
        "tables {} MiB, RocksDB {} MiB",
        stats.memory_bytes >> 20, stats.chunks, stats.written, stats.spared, stats.came_near,
        stats.loads, stats.dealt_steps, sizes.blob_bytes >> 20, sizes.table_bytes >> 20,
        store_->memory_bytes() >> 20);
  }

 private:
  const std::string directory_;
  ThreadBackground& background_;
  WallTime now_ = begin;
  std::unique_ptr<storage::BucketStore> store_;
  std::unique_ptr<delay::BucketTier> tier_;
  std::vector<std::pair<PendingKey, TopicPartition>> near_;
  std::size_t taken_ = 0;
  bool sorted_ = false;
  std::size_t drained_ = 0;
  bool checkpointing_ = false;
  Lsn lsn_ = 0;
  std::uint32_t operation_ = 0;
  std::uint64_t sum_ = 0;
};

std::uint64_t number_in(const char* file, std::string_view name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name)) return std::strtoull(line.c_str() + name.size(), nullptr, 10);
  return 0;
}
std::uint64_t rss_bytes() {
  return number_in("/proc/self/status", "VmRSS:") << 10;
}
std::uint64_t written_bytes() {
  return number_in("/proc/self/io", "write_bytes:");
}
std::uint64_t disk_bytes(const std::string& directory) {
  std::uint64_t sum = 0;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    std::error_code gone;  // RocksDB deletes files meanwhile.
    const auto bytes = entry.file_size(gone);
    if (!gone && entry.is_regular_file(gone)) sum += bytes;
  }
  return sum;
}

class Bench {
 public:
  explicit Bench(const Settings& settings) : settings_(settings) {
    std::string name = (fs::temp_directory_path() / "tarry-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) stop("no directory can be made in " + name);
    root_ = name;
    store_ = std::make_unique<Buckets>(root_ + "/db", background_);
    store_->open(true);
    storage::JournalOptions options;
    options.directory = root_ + "/journal";
    storage::JournalHooks hooks;
    hooks.on_ready = [this] { ready_ = true; };
    hooks.on_failure = [](const Error& error) { stop(error.message); };
    hooks.on_pressure = [] {};
    hooks.on_postponed = [](const Error& error) { stop(error.message); };
    journal_ = checked(
        storage::Journal::open(disk_, background_, random_, clock_, options, std::move(hooks), {}));
    bodies_.resize(1u << 20);
    for (auto& byte : bodies_) byte = static_cast<std::uint8_t>(random_.u64());
  }
  ~Bench() {
    journal_.reset();
    store_->close();
    fs::remove_all(root_);
  }

  void run() {
    accept();
    finish_checkpoint();
    report("checkpoint");
    reopen();
    drain();
  }

 private:
  struct Group {
    std::vector<PendingAdded> records;
    Lsn lsn = 0;
    Steady::time_point begun;
  };

  void accept() {
    fmt::print("{:>10} {:>11} {:>9} {:>9} {:>11} {:>9} {:>8} {:>8} {:>8}\n", "pending",
               "accepted/s", "ack p50", "ack p99", "late max", "RSS MiB", "B/rec", "written",
               "CPU us");
    const auto begun = Steady::now();
    std::uint64_t mark = std::min<std::uint64_t>(settings_.records, 1'000'000);
    start_part();
    while (accepted_ < settings_.records) {
      const auto before = Steady::now();
      if (before - begun > std::chrono::seconds(settings_.seconds)) break;
      const bool may =
          groups_.size() < max_groups && !store_->is_full() && journal_->has_room(max_group_bytes);
      if (may) append_group();
      if (std::exchange(ready_, false)) journal_->start_round();
      background_.turn(false);
      const bool more = store_->step();
      begin_checkpoint_if_wanted();
      late_ = std::max(late_, Steady::now() - before);
      if (!may && !more && !ready_) background_.turn(true);
      if (accepted_ >= mark) {
        report(std::to_string(accepted_));
        start_part();
        mark = mark < 10'000'000 ? mark * 10 : mark + 10'000'000;
        mark = std::min(mark, settings_.records);
      }
    }
    while (!groups_.empty()) turn();
    report(std::to_string(accepted_));
  }

  void append_group() {
    auto group = std::make_shared<Group>();
    group->begun = Steady::now();
    storage::RecordBuilder record;
    const auto span_ms = static_cast<std::uint64_t>(settings_.days) * 86'400'000;
    for (std::size_t i = 0; i < group_records; ++i) {
      PendingAdded added;
      added.partition.topic.bytes.fill(7);
      added.partition.partition = static_cast<PartitionIndex>(next_ % 12);
      added.sequence = next_++;
      added.due = begin + std::chrono::milliseconds(3'600'000 + random_.below(span_ms));
      added.accepted = begin;
      added.record =
          Bytes(bodies_).subspan(random_.below(bodies_.size() - settings_.bytes), settings_.bytes);
      group->records.push_back(added);
      record.add(added);
    }
    groups_.push_back(group);
    const auto pieces = record.pieces();
    const auto lsn = journal_->append(pieces, [this, group](const Result<>& durable) {
      checked(durable);
      store_->add(group->lsn, group->records);
      accepted_ += group->records.size();
      applied_ = journal_->durable_lsn();
      acks_.push_back(
          std::chrono::duration<double, std::milli>(Steady::now() - group->begun).count());
      std::erase(groups_, group);
    });
    group->lsn = checked(lsn);
  }

  void turn() {
    if (std::exchange(ready_, false)) journal_->start_round();
    const bool more = store_->step();
    background_.turn(!more && !ready_);
  }

  void begin_checkpoint_if_wanted() {
    if (checkpointing_ || applied_ - journal_->checkpoint_lsn() < checkpoint_bytes) return;
    begin_checkpoint();
  }
  void begin_checkpoint() {
    checkpointing_ = true;
    const Lsn lsn = applied_;
    store_->checkpoint(
        [this, lsn] {
          journal_->checkpoint(lsn, [this](const Result<>& noted) {
            checked(noted);
            checkpointing_ = false;
          });
        },
        lsn);
  }
  void finish_checkpoint() {
    while (checkpointing_) turn();
    begin_checkpoint();
    while (checkpointing_) turn();
    while (!background_.is_idle()) turn();
  }

  void start_part() {
    part_begun_ = Steady::now();
    part_from_ = accepted_;
    part_cpu_ = cpu_seconds();
    acks_.clear();
    late_ = {};
  }
  static double cpu_seconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
  }
  void report(const std::string& name) {
    const double seconds = std::chrono::duration<double>(Steady::now() - part_begun_).count();
    const auto part = static_cast<double>(accepted_ - part_from_);
    std::ranges::sort(acks_);
    const auto at = [&](double share) {
      return acks_.empty()
                 ? 0.0
                 : acks_[static_cast<std::size_t>(share * static_cast<double>(acks_.size() - 1))];
    };
    const auto all = static_cast<double>(std::max<std::uint64_t>(1, accepted_));
    fmt::print(
        "{:>10} {:>11.0f} {:>6.2f} ms {:>6.2f} ms {:>8.1f} ms {:>9} {:>8.1f} {:>8.2f} {:>8.2f}\n",
        name, part / seconds, at(0.5), at(0.99),
        std::chrono::duration<double, std::milli>(late_).count(), rss_bytes() >> 20,
        static_cast<double>(disk_bytes(root_ + "/db")) / all,
        static_cast<double>(written_bytes()) / (all * static_cast<double>(settings_.bytes)),
        part > 0 ? (cpu_seconds() - part_cpu_) * 1e6 / part : 0);
    const auto figures = store_->figures();
    if (!figures.empty()) fmt::print("           {}\n", figures);
    std::fflush(stdout);
  }

  void reopen() {
    store_->close();
    ::malloc_trim(0);
    const auto begun = Steady::now();
    store_->open(false);
    const auto opened = Steady::now();
    store_->first();
    const auto first = Steady::now();
    fmt::print("open again: {:.1f} ms, first record {:.1f} ms later, RSS {} MiB\n",
               std::chrono::duration<double, std::milli>(opened - begun).count(),
               std::chrono::duration<double, std::milli>(first - opened).count(),
               rss_bytes() >> 20);
  }

  void drain() {
    const auto begun = Steady::now();
    std::uint64_t count = 0;
    Steady::duration longest{};
    for (;;) {
      const auto before = Steady::now();
      if (before - begun > std::chrono::seconds(settings_.drain)) break;
      const std::size_t taken = store_->drain();
      longest = std::max(longest, Steady::now() - before);
      if (taken == 0) break;
      count += taken;
    }
    const double seconds = std::chrono::duration<double>(Steady::now() - begun).count();
    fmt::print("drained {} in due order: {:.0f}/s, RSS {} MiB\n", count,
               static_cast<double>(count) / seconds, rss_bytes() >> 20);
    const auto figures = store_->figures();
    if (!figures.empty()) fmt::print("           {}\n", figures);
  }

  const Settings settings_;
  std::string root_;
  storage::PosixDisk disk_;
  SeededRandom random_{1};
  MachineClock clock_;
  ThreadBackground background_;
  std::unique_ptr<Buckets> store_;
  std::unique_ptr<storage::Journal> journal_;
  Buffer bodies_;
  std::deque<std::shared_ptr<Group>> groups_;
  bool ready_ = false;
  bool checkpointing_ = false;
  Sequence next_ = 1;
  std::uint64_t accepted_ = 0;
  Lsn applied_ = 0;
  std::vector<double> acks_;
  Steady::duration late_{};
  Steady::time_point part_begun_;
  std::uint64_t part_from_ = 0;
  double part_cpu_ = 0;
};

Settings parse(int count, char** arguments) {
  constexpr std::string_view usage =
      "usage: pending_bench RECORDS [--seconds N] [--days N] [--bytes N] [--drain N]";
  Settings out;
  const auto number = [&](std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value == 0)
      stop(fmt::format("{} is not a number; {}", text, usage));
    return value;
  };
  if (count < 2 || count % 2 != 0) stop(std::string(usage));
  out.records = number(arguments[1]);
  for (int i = 2; i < count; i += 2) {
    const std::string_view name = arguments[i];
    const auto value = number(arguments[i + 1]);
    if (name == "--seconds")
      out.seconds = static_cast<int>(value);
    else if (name == "--days")
      out.days = static_cast<int>(value);
    else if (name == "--bytes" && value <= 900)
      out.bytes = value;
    else if (name == "--drain")
      out.drain = static_cast<int>(value);
    else
      stop(std::string(usage));
  }
  return out;
}

}  // namespace
}  // namespace tarry

int main(int count, char** arguments) {
  tarry::Bench bench(tarry::parse(count, arguments));
  bench.run();
}
