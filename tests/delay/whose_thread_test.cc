// BucketTier: on whose thread RocksDB is read, and how much of it.

#include <doctest/doctest.h>
#include <rocksdb/perf_context.h>
#include <rocksdb/perf_level.h>

#include <cstdlib>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "delay/bucket_tier.h"
#include "storage/bucket_store.h"
#include "tests/given.h"

namespace tarry::delay {
namespace {

using storage::BucketStore;
using storage::PendingKey;
using storage::PendingView;

const WallTime threads_begin = from_ms(1'795'000'000'000);

// Counts RocksDB's work in this thread.
class RocksWork {
 public:
  RocksWork() { rocksdb::SetPerfLevel(rocksdb::PerfLevel::kEnableCount), (void)take(); }
  std::uint64_t take() {
    const auto& all = *rocksdb::get_perf_context();
    const std::uint64_t sum = all.user_key_comparison_count + all.get_from_memtable_count +
                              all.seek_on_memtable_count + all.next_on_memtable_count +
                              all.internal_key_skipped_count + all.block_read_count +
                              all.block_cache_hit_count;
    return sum - std::exchange(taken_, sum);
  }

 private:
  std::uint64_t taken_ = 0;
};

// Each piece of work has a thread of its own; what follows it has the caller's.
class OtherThread final : public Background {
 public:
  void run_and_then(Work work, Work then) override {
    waiting_.emplace_back(std::move(work), std::move(then));
  }
  bool step() {
    if (waiting_.empty()) return false;
    auto [work, then] = std::move(waiting_.front());
    waiting_.pop_front();
    std::thread(std::move(work)).join();
    then();
    return true;
  }

 private:
  std::deque<std::pair<Work, Work>> waiting_;
};

struct TempStore {
  std::string directory = [] {
    std::string name = (std::filesystem::temp_directory_path() / "tarry-test-XXXXXX").string();
    return std::string(::mkdtemp(name.data()));
  }();
  std::unique_ptr<BucketStore> store = std::move(*BucketStore::make(directory + "/db", {}));

  ~TempStore() {
    store.reset();
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
  }
};

TopicPartition partition_in_test() {
  TopicPartition partition;
  partition.topic.bytes.fill(3);
  return partition;
}

storage::PendingAdded added_at(const TopicPartition& partition, const PendingKey& key,
                               std::string_view id, Bytes body) {
  return {partition, key.sequence, key.due, threads_begin, storage::never_expires, id, body};
}

BucketTier::Hooks hooks_for(std::map<PendingKey, Location>& near) {
  BucketTier::Hooks hooks;
  hooks.near = [&near](const PendingView& view, const Location& at) { near[view.key] = at; };
  hooks.pulled_back = [&near](const PendingKey& from) {
    near.erase(near.lower_bound(from), near.end());
  };
  hooks.wake = [] {};
  hooks.failed = [](const Error& error) { FAIL(error.message); };
  return hooks;
}

TEST_SUITE("whose thread") {
  TEST_CASE("RocksDB never runs on the shard's thread, whatever its records go through") {
    TempStore there;
    OtherThread background;
    std::map<PendingKey, Location> near;
    BucketTier::Options options;
    options.memory_bytes = 64 << 10;
    options.write_bytes = 8 << 10;
    BucketTier tier(*there.store, background, {0, 1}, options, hooks_for(near));
    REQUIRE(tier.open(threads_begin).has_value());
    const TopicPartition partition = partition_in_test();
    const Buffer body(200, 'b');
    WallTime now = threads_begin;
    std::uint64_t lsn = 1, removed = 0;
    const auto settle = [&] {
      while (tier.step(now) || background.step()) {
      }
    };
    const auto remove = [&](const PendingKey& key, const std::string& id) {
      tier.remove({lsn++, 0},
                  {partition, key.sequence, key.due, storage::RemovalReason::cancelled, now, id});
      ++removed;
    };
    const auto checkpoint = [&] {
      bool done = false;
      tier.write_all([&done] { done = true; });
      settle();
      REQUIRE(done);
      tier.noted({lsn, 0});
      settle();
    };

    RocksWork work;
    // Accepted, while memory is short.
    constexpr std::uint64_t count = 1'000;
    for (Sequence s = 1; s <= count; ++s) {
      const PendingKey key{threads_begin + std::chrono::seconds(s * 37 % 14'400), s};
      if (const auto at =
              tier.add({lsn++, 0}, added_at(partition, key, "id" + std::to_string(s), body)))
        near[key] = *at;
      if (s % 16 == 0) settle();
    }
    CHECK(tier.stats().written > 0);
    checkpoint();
    // Looked for and cancelled on disk, by key, handle and id.
    for (Sequence s = 900; s < 920; ++s) {
      const PendingKey key{threads_begin + std::chrono::seconds(s * 37 % 14'400), s};
      const std::string id = "id" + std::to_string(s);
      std::size_t answers = 0;
      tier.find(key, [&](auto found) { answers += found.has_value() && found->has_value(); });
      tier.find_handle(key, [&](auto found) { answers += found->has_value(); });
      tier.find_id(partition, id, [&](auto events) { answers += events->size(); });
      tier.read_ids(partition, {id}, [&](auto rows) { answers += rows.has_value(); });
      settle();
      CHECK(answers == 4);
      near.erase(key);
      remove(key, id);
    }
    // Loaded, dealt, delivered; with a checkpoint now and then.
    for (int minutes = 0; minutes <= 250; minutes += 10) {
      now = threads_begin + std::chrono::minutes(minutes);
      settle();
      while (!near.empty() && near.begin()->first.due <= now) {
        const auto [key, at] = *near.begin();
        near.erase(near.begin());
        REQUIRE(tier.read(key, at).has_value());
        remove(key, "id" + std::to_string(key.sequence));
        if (near.empty()) settle();
      }
      if (minutes % 60 == 0) checkpoint();
    }
    CHECK(removed == count);
    CHECK(tier.stats().loads > 0);
    CHECK(work.take() == 0);
    const PendingKey any{now, 1};
    REQUIRE(there.store->find({0, 1}, {&any, 1}).has_value());
    CHECK(work.take() > 0);  // So it would have been seen.
  }

  TEST_CASE("a record accepted without an id reads nothing of the store, however much it has") {
    TempStore there;
    QueuedBackground background;
    std::map<PendingKey, Location> near;
    BucketTier tier(*there.store, background, {0, 1}, {}, hooks_for(near));
    REQUIRE(tier.open(threads_begin).has_value());
    const Buffer body(100, 'b');
    Sequence next = 1;
    const auto add = [&](int count) {
      for (int i = 0; i < count; ++i, ++next) {
        const PendingKey key{threads_begin + std::chrono::minutes(120 + next * 37 % 10'000), next};
        (void)tier.add({next, 0}, added_at(partition_in_test(), key, "", body));
        (void)tier.step(threads_begin);
      }
    };
    const auto settle = [&] {
      while (tier.step(threads_begin) || background.step()) {
      }
    };
    settle();
    add(5'000);
    tier.write_all([] {});
    settle();
    REQUIRE(there.store->flush().has_value());
    RocksWork work;
    add(5'000);
    CHECK(background.size() == 0);
    CHECK(work.take() == 0);
    tier.write_all([] {});
    settle();
    CHECK(work.take() > 0);  // So it would have been seen.
  }

  TEST_CASE("a shard's reads at its start do not grow with the others' records") {
    const auto work_of_start = [](int others) {
      TempStore there;
      QueuedBackground background;
      std::map<PendingKey, Location> near;
      const auto fill = [&](std::uint16_t shard, int count) {
        BucketTier tier(*there.store, background, {shard, 2}, {}, hooks_for(near));
        REQUIRE(tier.open(threads_begin).has_value());
        for (int i = 0; i < count; ++i) {
          const PendingKey key{threads_begin + std::chrono::hours(2 + i),
                               static_cast<Sequence>(2 * i + shard)};
          tier.add({static_cast<std::uint64_t>(i + 1), 0},
                   added_at(partition_in_test(), key, "", as_bytes("body")));
        }
        tier.write_all([] {});
        while (tier.step(threads_begin) || background.step()) {
        }
      };
      fill(0, 5);
      fill(1, others);
      REQUIRE(there.store->flush().has_value());
      RocksWork work;
      BucketTier tier(*there.store, background, {0, 2}, {}, hooks_for(near));
      REQUIRE(tier.open(threads_begin).has_value());
      while (tier.step(threads_begin + std::chrono::hours(7)) || background.step()) {
      }
      CHECK(tier.stats().records == 5);
      return work.take();
    };
    const auto few = work_of_start(10), many = work_of_start(1'000);
    CHECK(few > 0);
    // A search in a larger table compares a few keys more.
    CHECK(many < 2 * few);
  }
}

}  // namespace
}  // namespace tarry::delay
