#pragma once

// The pending records of some shards on one store, and a model of them: for the tests of BucketTier
// and of its rooms.  The test sets the time, and says when the Background works.

#include <doctest/doctest.h>
#include <stdlib.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "delay/bucket_tier.h"
#include "delay/location.h"
#include "storage/bucket_store.h"
#include "storage/journal_record.h"
#include "tests/given.h"

namespace tarry::delay::tier_test {

using storage::Bucket;
using storage::BucketLevel;
using storage::BucketStore;
using storage::JournalPlace;
using storage::Owner;
using storage::PendingKey;
using storage::PendingView;

constexpr std::int64_t hour_ms = 3'600'000;
constexpr std::int64_t day_ms = 24 * hour_ms;
inline const WallTime begin =
    storage::bucket_of(BucketLevel::month, from_ms(1'795'000'000'000)).start +
    std::chrono::hours(5);

inline TopicPartition numbered(int number) {
  TopicPartition out;
  out.topic.bytes.fill(static_cast<std::uint8_t>(1 + number % 3));
  out.partition = number;
  return out;
}

// A pending record, as a journal's operation has it.
struct Record {
  PendingKey key;
  WallTime first;
  TopicPartition partition;
  std::string body;
  PrincipalId principal = unknown_principal;

  PendingView view() const {
    PendingView out;
    out.key = key;
    out.first = first;
    out.partition = partition;
    out.accepted = begin;
    out.record = as_bytes(body);
    out.principal = principal;
    return out;
  }
};
struct Operation {
  bool adds = false;
  Record record;
};
struct JournalRecord {
  std::uint64_t lsn;
  std::vector<Operation> operations;
};

class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "tarry-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path() const { return path_ + "/db"; }

 private:
  std::string path_;
};

// A shard: its tier, its journal, and a map in the place of the engine's wheel.
struct Shard {
  std::unique_ptr<BucketTier> tier;
  std::map<PendingKey, Location> wheel;
  std::vector<JournalRecord> journal;  // Since the last checkpoint.
  std::uint64_t lsn = 1'000;
};

struct World {
  Scratch scratch;
  QueuedBackground background;
  std::unique_ptr<BucketStore> store;
  BucketStore::Limits limits;
  BucketTier::Options options;
  std::map<std::uint16_t, Shard> shards;
  std::uint16_t count = 1;
  WallTime now = begin;
  std::map<PendingKey, Record> pending;  // The model.
  std::set<TopicPartition> stuck;        // Nothing of these is delivered.
  std::string failed_with;
  std::function<void()> during_flush;  // Once, before the next flush that a tier asks for is done.
  bool is_disk_full = false;           // For those flushes.
  std::map<std::uint16_t, std::uint64_t> lsns;  // Where former journals ended.

  explicit World(std::uint16_t shards_now = 1, BucketTier::Options of = {},
                 BucketStore::Limits bounds = {})
      : limits(bounds), options(of), count(shards_now) {
    auto made = BucketStore::make(scratch.path(), limits);
    REQUIRE(made.has_value());
    store = std::move(*made);
    for (std::uint16_t shard = 0; shard < count; ++shard) open(shard, {shard, count});
  }

  Shard& shard_of(const TopicPartition& partition) {
    return shards.at(static_cast<std::uint16_t>(partition.partition % count));
  }

  void open(std::uint16_t number, Owner owner) {
    Shard& shard = shards[number];
    shard.wheel.clear();
    BucketTier::Hooks hooks;
    hooks.near = [&shard](const PendingView& view, const Location& location) {
      const bool is_new = shard.wheel.insert_or_assign(view.key, location).second;
      CHECK((is_new || shard.tier->stats().rescues > 0));
    };
    hooks.pulled_back = [&shard](const PendingKey& from) {
      shard.wheel.erase(shard.wheel.lower_bound(from), shard.wheel.end());
    };
    hooks.wake = [] {};
    hooks.failed = [this](const Error& error) { failed_with = error.message; };
    hooks.flush = [this]() -> Result<> {
      if (const auto during = std::exchange(during_flush, nullptr)) during();
      if (is_disk_full) return fail(Errc::no_space, "full");
      return store->flush();
    };
    hooks.owner_of = [shards_now = owner.shards](const TopicPartition& partition) {
      return static_cast<std::uint16_t>(partition.partition % shards_now);
    };
    shard.tier = std::make_unique<BucketTier>(*store, background, owner, options, std::move(hooks));
    REQUIRE(shard.tier->open(now).has_value());
  }

  void apply(Shard& shard, const JournalRecord& record) {
    std::uint32_t number = 0;
    for (const auto& operation : record.operations) {
      const JournalPlace at{record.lsn, number++};
      const Record& of = operation.record;
      if (operation.adds) {
        const PendingView view = of.view();
        storage::PendingAdded added{view.partition, view.key.sequence, view.key.due, view.accepted,
                                    view.expires,   view.id,           view.record};
        if (view.was_moved()) added.first_due = view.first;
        added.principal = view.principal;
        if (const auto location = shard.tier->add(at, added))
          CHECK(shard.wheel.emplace(of.key, *location).second);
      } else {
        const auto near = shard.wheel.extract(of.key);
        const Location location = near.empty() ? Location{} : near.mapped();
        storage::PendingRemoved removed{
            of.partition, of.key.sequence, of.key.due, storage::RemovalReason::delivered, now, {}};
        if (of.first != of.key.due) removed.first_due = of.first;
        removed.share = of.view().share();
        shard.tier->remove(at, removed, location);
      }
    }
  }
  // A durable record of the journal: the model, the journal, the tier.
  void commit(Shard& shard, std::vector<Operation> operations) {
    for (const auto& operation : operations) {
      if (operation.adds)
        pending[operation.record.key] = operation.record;
      else
        pending.erase(operation.record.key);
    }
    shard.journal.push_back({shard.lsn += 100, std::move(operations)});
    apply(shard, shard.journal.back());
  }
  void add(const Record& record) { commit(shard_of(record.partition), {{true, record}}); }
  void remove(const Record& record) { commit(shard_of(record.partition), {{false, record}}); }
  void move(const Record& record, WallTime due) {
    Record to = record;
    to.key.due = due;
    commit(shard_of(record.partition), {{false, record}, {true, to}});
  }

  // Until nothing is left to do.
  void settle() {
    for (bool more = true; more;) {
      more = false;
      for (auto& [number, shard] : shards) more |= shard.tier->step(now);
      more |= background.step();
    }
  }
  // Hands over everything that is due, in order, and checks it with the model.
  void deliver() {
    for (auto& [number, shard] : shards) {
      const PendingKey settled = shard.tier->settled_before();
      for (auto at = shard.wheel.begin(); at != shard.wheel.end() && at->first.due <= now;) {
        const auto [key, location] = *at++;
        const auto known = pending.find(key);
        REQUIRE(known != pending.end());
        const TopicPartition& partition = known->second.partition;
        if (stuck.contains(partition) || !shard.tier->is_settled(key, partition)) continue;
        const bool is_alone = key < settled && stuck.empty();
        bool is_first = true;
        for (auto earlier = pending.begin(); earlier != known && is_first; ++earlier) {
          const TopicPartition& before = earlier->second.partition;
          is_first = is_alone ? &shard_of(before) != &shard : before != partition;
        }
        REQUIRE(is_first);
        const auto view = shard.tier->read(key, location);
        REQUIRE(view.has_value());
        CHECK(as_text(view->record) == known->second.body);
        CHECK(view->partition == known->second.partition);
        CHECK(view->first == known->second.first);
        CHECK(view->principal == known->second.principal);
        remove(Record(known->second));
      }
    }
  }
  void deliver_all() {
    for (int rounds = 0;; ++rounds) {
      settle();
      deliver();
      if (pending.empty() || now < pending.begin()->first.due) return;
      REQUIRE(rounds < 10'000);
    }
  }
  void checkpoint() {
    std::size_t left = shards.size();
    std::map<std::uint16_t, std::size_t> upto;
    for (auto& [number, shard] : shards) {
      upto[number] = shard.journal.size();
      shard.tier->write_all([&left] { --left; });
    }
    settle();
    REQUIRE(left == 0);
    REQUIRE(store->flush().has_value());
    for (auto& [number, shard] : shards) {
      const auto until = static_cast<std::ptrdiff_t>(upto[number]);
      shard.journal.erase(shard.journal.begin(), shard.journal.begin() + until);
      shard.tier->noted({shard.journal.empty() ? shard.lsn + 1 : shard.journal.front().lsn, 0});
    }
    settle();
  }
  // Kill -9, and another start, perhaps with another number of shards.
  void crash(std::uint16_t shards_now) {
    background.forget();
    for (auto& [number, shard] : shards) shard.tier.reset();
    store.reset();
    auto opened = BucketStore::open(scratch.path(), limits);
    REQUIRE(opened.has_value());
    store = std::move(*opened);
    // All former journals are replayed, each by an owner of its time.
    for (auto& [number, shard] : shards) {
      open(number, {number, count});
      for (const auto& record : shard.journal) apply(shard, record);
    }
    if (shards_now == count) return;
    checkpoint();
    for (auto& [number, shard] : shards) shard.tier.reset();
    count = shards_now;
    for (auto& [number, shard] : shards) lsns[number] = shard.lsn;
    shards.clear();
    for (std::uint16_t number = 0; number < count; ++number) {
      shards[number].lsn = lsns[number] + 1'000;
      open(number, {number, count});
    }
  }
  std::optional<storage::PendingRecord> find(const PendingKey& key, const TopicPartition& partition,
                                             bool by_handle = false) {
    std::optional<storage::PendingRecord> out;
    bool answered = false;
    auto found = [&](Result<std::optional<storage::PendingRecord>> result) {
      REQUIRE(result.has_value());
      out = std::move(*result);
      answered = true;
    };
    BucketTier& tier = *shard_of(partition).tier;
    if (by_handle)
      tier.find_handle(key, found);
    else
      tier.find(key, found);
    settle();
    CHECK(answered);
    return out;
  }
};

inline Record record(Sequence sequence, std::int64_t after_ms, std::string body = "body",
                     int partition = 0) {
  const WallTime due = begin + std::chrono::milliseconds(after_ms);
  return {{due, sequence}, due, numbered(partition), std::move(body)};
}

}  // namespace tarry::delay::tier_test
