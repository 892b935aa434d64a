// How long a shard's thread is busy with its pending records at a time, when they lie as badly as
// they can: the CPU of the longest call of each kind to a BucketTier or a NearTier, without what
// the Background does.
//
//   cmake --preset release -DTARRY_BENCH=ON && ninja -C build/release tier_steps
//   build/release/bench/tier_steps [RECORDS]
//
// months   RECORDS (100 000) records, each in a month of its own, until the year 9999
// hours    one in each hour of a year
// ticks    an hour that has too many in one second, and is dealt to milliseconds
// stuck    records that are overdue and that nobody takes
// gone     an hour on the disk, nine of ten of its records cancelled before it is loaded
// near     records that are near, in a NearTier alone: they come, fall due and go

#include <fmt/core.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "delay/bucket_tier.h"
#include "delay/near_tier.h"
#include "storage/bucket_store.h"
#include "tests/given.h"

namespace tarry {
namespace {

using std::chrono::milliseconds;
using storage::PendingKey;

const WallTime begin =
    storage::bucket_of(storage::BucketLevel::hour, from_ms(1'795'000'000'000)).start;

[[noreturn]] void stop(const std::string& why) {
  fmt::print(stderr, "tier_steps: {}\n", why);
  std::exit(1);
}

// Other work on the machine is not in it.
std::chrono::nanoseconds thread_cpu() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

// Work is done at once, what follows it when the shard's turn comes; the work is not measured.
class Beside final : public Background {
 public:
  void run_and_then(Work work, Work then) override {
    works_.push_back({std::move(work), std::move(then)});
  }
  std::optional<Work> next() {
    if (works_.empty()) return std::nullopt;
    auto [work, then] = std::move(works_.front());
    works_.pop_front();
    work();
    work = {};
    return std::move(then);
  }

 private:
  std::deque<std::pair<Work, Work>> works_;
};

// The longest call of each kind.
class Longest {
 public:
  explicit Longest(const char* name) : name_(name) {}
  ~Longest() {
    fmt::print("{:8}", name_);
    for (const auto& [call, time] : longest_)
      fmt::print("  {} {:.2f} ms", call, std::chrono::duration<double, std::milli>(time).count());
    fmt::print("\n");
  }
  template <typename Work>
  void timed(const char* call, const Work& work) {
    const auto before = thread_cpu();
    work();
    auto& longest = longest_[call];
    longest = std::max(longest, thread_cpu() - before);
  }
  const std::string& name() const { return name_; }

 private:
  const std::string name_;
  std::map<std::string, std::chrono::nanoseconds> longest_;
};

class Measured {
 public:
  explicit Measured(const char* name, std::size_t memory_bytes) : longest_(name) {
    std::string root = (std::filesystem::temp_directory_path() / "tarry-steps-XXXXXX").string();
    if (::mkdtemp(root.data()) == nullptr) stop("no directory can be made in " + root);
    root_ = root;
    auto made = storage::BucketStore::make(root_ + "/db", {});
    if (!made) stop(made.error().message);
    store_ = std::move(*made);
    delay::BucketTier::Options options;
    options.memory_bytes = memory_bytes;
    delay::BucketTier::Hooks hooks;
    hooks.near = [this](const storage::PendingView& view, const auto&) { near_.emplace(view.key); };
    hooks.pulled_back = [this](const PendingKey& from) {
      near_.erase(near_.lower_bound(from), near_.end());
    };
    hooks.wake = [] {};
    hooks.failed = [](const Error& error) { stop(error.message); };
    hooks.owner_of = [](const TopicPartition&) { return std::uint16_t{0}; };
    tier_ = std::make_unique<delay::BucketTier>(*store_, beside_, storage::Owner{0, 1}, options,
                                                std::move(hooks));
    if (auto opened = tier_->open(now_); !opened) stop(opened.error().message);
  }
  ~Measured() {
    tier_.reset();
    store_.reset();
    std::filesystem::remove_all(root_);
  }

  void add(WallTime due) {
    storage::PendingAdded added;
    added.partition.topic.bytes.fill(7);
    added.sequence = next_++;
    added.due = due;
    added.accepted = begin;
    added.record = Bytes(body_);
    bool is_near = false;
    timed("add", [&] { is_near = tier_->add({lsn_++, 0}, added).has_value(); });
    if (is_near) near_.emplace(due, added.sequence);
    if (tier_->is_short() || tier_->is_full()) settle();
  }
  void settle() {
    for (bool more = true; more;) {
      timed("step", [&] { more = tier_->step(now_); });
      if (auto then = beside_.next()) {
        timed("then", [&] { (*then)(); });
        more = true;
      }
    }
  }
  void checkpoint() {
    bool is_written = false;
    timed("write_all", [&] { tier_->write_all([&] { is_written = true; }); });
    settle();
    if (!is_written) stop("the checkpoint did not end");
    if (auto flushed = store_->flush(); !flushed) stop(flushed.error().message);
    tier_->noted({lsn_, 0});
    settle();
  }
  void look() {
    timed("earliest", [&] { tier_->earliest(); });
    timed("next_load", [&] { tier_->next_load(); });
    timed("stats", [&] { tier_->stats(); });
  }
  void pass(milliseconds time) { now_ += time; }
  void take(std::size_t max_records) {
    for (; max_records > 0 && !near_.empty() && near_.begin()->due <= now_; --max_records) {
      remove(*near_.begin());
      near_.erase(near_.begin());
    }
  }
  void remove(const PendingKey& key) {
    storage::PendingRemoved gone;
    gone.partition.topic.bytes.fill(7);
    gone.sequence = key.sequence;
    gone.due = key.due;
    timed("remove", [&] { tier_->remove({lsn_++, 0}, gone); });
  }
  std::string figures() const {
    const auto stats = tier_->stats();
    return fmt::format("{} in memory, {} MiB, {} homes, {} chunks", stats.records,
                       stats.memory_bytes >> 20, stats.homes, stats.chunks);
  }
  void show(const char* when) const {
    fmt::print("  {} {}: {}\n", longest_.name(), when, figures());
  }

 private:
  template <typename Work>
  void timed(const char* call, const Work& work) {
    longest_.timed(call, work);
  }

  Longest longest_;
  std::string root_;
  Beside beside_;
  std::unique_ptr<storage::BucketStore> store_;
  std::unique_ptr<delay::BucketTier> tier_;
  std::set<PendingKey> near_;
  Buffer body_ = Buffer(100, std::uint8_t{7});
  WallTime now_ = begin;
  Sequence next_ = 1;
  Lsn lsn_ = 1'000;
};

// What was cancelled is not on the disk yet as such when its hour is loaded.
void run_gone(std::int64_t records) {
  constexpr milliseconds hour{3'600'000};
  Measured gone("gone", 128u << 20);
  const auto due_of = [&](std::int64_t i) {
    return begin + hour * 2 + milliseconds{(i * 7'919) % 3'600'000};
  };
  for (std::int64_t i = 0; i < records * 5; ++i) {
    gone.add(due_of(i));
    if (i % 100'000 == 99'999) gone.settle();
  }
  gone.checkpoint();
  gone.show("on disk");
  for (std::int64_t i = 0; i < records * 5; ++i)
    if (i % 10 != 0) gone.remove({due_of(i), static_cast<Sequence>(i + 1)});
  gone.pass(hour * 2 - milliseconds{60'000});
  for (int i = 0; i < 70; ++i) {
    gone.settle();
    gone.pass(milliseconds{60'000});
    gone.take(1'000'000);
  }
  gone.show("after");
}

void run_near(std::int64_t records) {
  Longest near("near");
  delay::NearTier tier(begin);
  std::vector<delay::NearEntry*> queued;
  for (std::int64_t i = 0; i < records * 20; ++i) {
    const PendingKey key{begin + milliseconds{1'000 + (i * 7'919) % 100'000},
                         static_cast<Sequence>(i + 1)};
    near.timed("insert", [&] { tier.insert(key, 0); });
  }
  fmt::print("  near {}: {} MiB\n", tier.size(), tier.bytes() >> 20);
  for (milliseconds time{0}; tier.size() > 0; time += milliseconds{10}) {
    for (bool more = true; more;)
      near.timed("advance", [&] { more = tier.advance(begin + time, 4'096, queued); });
    for (auto* const entry : queued) near.timed("erase", [&] { tier.erase(*entry); });
    queued.clear();
  }
  for (bool more = true; more;) near.timed("free", [&] { more = tier.free_ended(16); });
  fmt::print("  near after: {} KiB\n", tier.bytes() >> 10);
}

void run(std::int64_t records) {
  constexpr milliseconds hour{3'600'000};
  {
    Measured months("months", 256u << 20);
    for (std::int64_t i = 1; i <= std::min<std::int64_t>(records, 97'000); ++i)
      months.add(begin + hour * 720 * i);
    months.look();
    months.show("before");
    months.checkpoint();
    months.look();
    months.checkpoint();
    months.show("after");
  }
  {
    Measured hours("hours", 4u << 20);
    for (std::int64_t round = 0; round < 4; ++round)
      for (std::int64_t i = 1; i < 8'700; ++i) hours.add(begin + hour * i);
    hours.checkpoint();
    hours.look();
    for (int i = 0; i < 300; ++i) {
      hours.pass(hour);
      hours.settle();
      hours.take(100);
    }
    hours.checkpoint();
    hours.show("after");
  }
  {
    Measured ticks("ticks", 128u << 20);
    // So many in one second that the hour is dealt to milliseconds.
    for (std::int64_t i = 0; i < records * 20; ++i)
      ticks.add(begin + hour * 2 + milliseconds{i % 1'000});
    ticks.checkpoint();
    ticks.pass(hour * 2 - milliseconds{60'000});
    ticks.settle();
    ticks.show("dealt");
    for (std::int64_t i = 0; i < records * 3 / 2; ++i)
      ticks.add(begin + hour * 2 + milliseconds{1'000 + (i * 7'919) % 3'599'000});
    ticks.look();
    ticks.show("spread");
    ticks.checkpoint();
    for (int i = 0; i < 100; ++i) {
      ticks.settle();
      if (i % 10 == 0) ticks.look();
      ticks.pass(milliseconds{1'000});
      ticks.take(100'000);
      if (i % 20 == 0) ticks.checkpoint();
    }
    ticks.show("after");
  }
  {
    Measured stuck("stuck", 128u << 20);
    for (std::int64_t i = 0; i < records * 5; ++i)
      stuck.add(begin + hour + milliseconds{(i * 7'919) % 3'600'000});
    stuck.checkpoint();
    for (int i = 0; i < 240; ++i) {
      stuck.pass(milliseconds{60'000});
      stuck.settle();
      stuck.look();
      if (i % 60 == 0) stuck.checkpoint();
      if (i % 60 == 0) stuck.show("within");
    }
  }
  run_gone(records);
  run_near(records);
}

}  // namespace
}  // namespace tarry

int main(int argc, char** argv) {
  tarry::run(argc > 1 ? std::atoll(argv[1]) : 100'000);
}
