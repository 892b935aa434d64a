#include "delay/bucket_tier.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "storage/bucket_store.h"
#include "storage/bucket_tables.h"
#include "tests/given.h"

namespace tarry::delay {
namespace {

using storage::Bucket;
using storage::BucketLevel;
using storage::BucketStore;
using storage::JournalPlace;
using storage::Owner;
using storage::PendingKey;
using storage::PendingView;

constexpr std::int64_t hour_ms = 3'600'000;
constexpr std::int64_t day_ms = 24 * hour_ms;
const WallTime begin = storage::bucket_of(BucketLevel::month, from_ms(1'795'000'000'000)).start +
                       std::chrono::hours(5);

TopicPartition numbered(int number) {
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
  std::string failed_with;
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
      CHECK(shard.wheel.emplace(view.key, location).second);
    };
    hooks.pulled_back = [&shard](const PendingKey& from) {
      shard.wheel.erase(shard.wheel.lower_bound(from), shard.wheel.end());
    };
    hooks.wake = [] {};
    hooks.failed = [this](const Error& error) { failed_with = error.message; };
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
      while (!shard.wheel.empty() && shard.wheel.begin()->first.due <= now &&
             shard.wheel.begin()->first < shard.tier->settled_before()) {
        const auto [key, location] = *shard.wheel.begin();
        const auto known = pending.find(key);
        REQUIRE(known != pending.end());
        for (auto earlier = pending.begin(); earlier != known; ++earlier)
          REQUIRE(&shard_of(earlier->second.partition) != &shard);
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

Record record(Sequence sequence, std::int64_t after_ms, std::string body = "body",
              int partition = 0) {
  const WallTime due = begin + std::chrono::milliseconds(after_ms);
  return {{due, sequence}, due, numbered(partition), std::move(body)};
}

TEST_SUITE("bucket tier") {
  TEST_CASE(
      "a record that is accepted and delivered between two checkpoints never reaches the store") {
    World world;
    for (Sequence s = 1; s <= 1'000; ++s) world.add(record(s, static_cast<std::int64_t>(s)));
    world.settle();
    world.now = begin + std::chrono::seconds(2);
    world.deliver_all();
    CHECK(world.pending.empty());
    world.checkpoint();
    const auto stats = world.shards[0].tier->stats();
    CHECK(stats.written == 0);
    CHECK(stats.spared == 1'000);
    CHECK(stats.memory_bytes == 0);
    CHECK(world.store->homes({0, 1})->empty());
    CHECK(world.store->totals()->empty());
  }

  TEST_CASE("the slots are the hours that have a record in memory, and a look at them is bounded") {
    World world;
    world.add(record(1, 3 * hour_ms));
    world.add(record(2, 3 * hour_ms + 5));
    world.add(record(3, 7 * hour_ms));
    const auto& tier = *world.shards[0].tier;
    const auto hours = [&](std::size_t max_looked) {
      return tier.slots(begin, max_looked)[static_cast<std::size_t>(BucketLevel::hour)];
    };
    CHECK(hours(100).used().count() == 2);
    CHECK(hours(100).used()[3]);
    CHECK(hours(100).used()[7]);
    CHECK_FALSE(hours(100).later());
    CHECK(hours(3).used().count() == 1);
    CHECK(hours(3).later());
    world.checkpoint();
    CHECK(hours(100).used().none());
  }

  TEST_CASE("a far record leaves memory with a checkpoint and comes back before it is due") {
    World world;
    world.add(record(1, 3 * hour_ms));
    world.checkpoint();
    CHECK(world.shards[0].tier->stats().memory_bytes == 0);
    CHECK(world.shards[0].wheel.empty());
    CHECK(world.shards[0].tier->next_load() ==
          begin + std::chrono::hours(3) - world.options.lead / 2);
    world.now = begin + std::chrono::hours(3) - std::chrono::seconds(50);
    world.settle();
    CHECK(world.shards[0].wheel.size() == 1);
    world.now += std::chrono::seconds(50);
    world.deliver_all();
    CHECK(world.pending.empty());
    world.checkpoint();
    world.checkpoint();
    CHECK(world.store->homes({0, 1})->empty());
    CHECK(world.store->totals()->empty());
    world.now += std::chrono::hours(2);
    world.settle();
    world.checkpoint();
    world.settle();
    CHECK(world.store->places(0)->empty());
  }

  TEST_CASE("tails that were written before a kill are not there twice after the replay") {
    World world;
    for (Sequence s = 1; s <= 100; ++s)
      world.add(record(s, static_cast<std::int64_t>(s) * 1'000'000));
    world.checkpoint();
    for (Sequence s = 101; s <= 200; ++s)
      world.add(record(s, static_cast<std::int64_t>(s) * 1'000'000));
    world.remove(record(7, 7'000'000));
    // Written and flushed, and killed before the journal's position is noted.
    world.shards[0].tier->write_all([] {});
    world.settle();
    REQUIRE(world.store->flush().has_value());
    world.add(record(201, 1));
    world.crash(1);
    std::uint64_t total = 0;
    world.checkpoint();
    const auto totals = world.store->totals();
    for (const auto& [topic, number] : *totals) total += number;
    CHECK(total == 200);
    world.now += std::chrono::days(10);
    world.deliver_all();
    CHECK(world.pending.empty());
  }

  TEST_CASE("a location that is out of date never gives or removes another record") {
    World world;
    BucketTier& tier = *world.shards[0].tier;
    for (Sequence s = 1; s <= 3; ++s) world.add(record(s, static_cast<std::int64_t>(s) * 60'000));
    world.settle();
    REQUIRE(world.shards[0].wheel.size() == 2);  // The third is behind the horizon.
    for (auto& [key, location] : world.shards[0].wheel) {
      for (const Location wrong : {Location{}, Location{0, 0}, Location{0, 1}, Location{0, 2},
                                   Location{0, 3}, Location{1, 0}, Location{100, 0}}) {
        const auto view = tier.read(key, wrong);
        REQUIRE(view.has_value());
        CHECK(view->key == key);
        CHECK_FALSE(tier.read({key.due, 77}, wrong).has_value());
        location = wrong;  // The last one is used for the removal.
      }
    }
    world.shards[0].wheel.begin()->second = Location{0, 1};  // The other's.
    world.deliver_all();
    world.now = begin + std::chrono::hours(1);
    world.deliver_all();
    CHECK(world.pending.empty());
    CHECK(tier.stats().records == 0);
  }

  TEST_CASE("the next occurrence is in the record of the delivery, and is there once") {
    World world;
    world.add(record(1, 1'000));
    world.checkpoint();
    for (int round = 1; round <= 5; ++round) {
      const Record now = world.pending.begin()->second;
      world.now = now.key.due;
      world.settle();
      REQUIRE(world.shards[0].wheel.contains(now.key));
      world.move(now, now.key.due + std::chrono::hours(1));  // Delivered, and pending again.
      if (round % 2 == 0) world.checkpoint();
      if (round % 3 == 0) world.crash(1);
      CHECK(world.pending.size() == 1);
      CHECK(world.find(now.key, numbered(0)) == std::nullopt);
      const auto found = world.find(record(1, 1'000).key, numbered(0), true);
      REQUIRE(found.has_value());
      CHECK(found->key == world.pending.begin()->first);
    }
  }

  TEST_CASE("a moved record is found by its handle wherever it is, until it is gone") {
    World world;
    const Record first = record(1, 40 * day_ms);
    world.add(first);
    world.checkpoint();
    world.move(first, begin + std::chrono::hours(100));
    CHECK(world.find(first.key, numbered(0), true)->key.due == begin + std::chrono::hours(100));
    world.checkpoint();
    CHECK(world.find(first.key, numbered(0), true)->key.due == begin + std::chrono::hours(100));
    CHECK_FALSE(world.find(first.key, numbered(0)).has_value());
    // And back to where it was.
    world.move(Record(world.pending.begin()->second), first.key.due);
    world.checkpoint();
    CHECK(world.find(first.key, numbered(0), true).has_value());
    CHECK(world.find(first.key, numbered(0)).has_value());
    world.remove(Record(world.pending.begin()->second));
    CHECK_FALSE(world.find(first.key, numbered(0), true).has_value());
    world.checkpoint();
    CHECK_FALSE(world.find(first.key, numbered(0), true).has_value());
  }

  TEST_CASE("a record that is cancelled while the disk is asked for it is not found") {
    World world;
    const Record far = record(1, 5 * hour_ms);
    world.add(far);
    world.checkpoint();
    int answers = 0;
    world.shards[0].tier->find(far.key, [&](const auto& result) {
      ++answers;
      CHECK_FALSE(result->has_value());
    });
    world.shards[0].tier->step(world.now);
    CHECK(answers == 0);  // It is being read.
    world.remove(far);
    world.settle();
    CHECK(answers == 1);
  }

  TEST_CASE("a far record that is gone is not found on the disk while its chunk is in memory too") {
    World world;
    const Record far = record(2, 1'800'000);
    world.add(record(1, 60'000));  // Keeps their chunk in memory.
    world.add(far);
    world.settle();
    world.checkpoint();
    world.add(record(3, 1'800'000));
    world.checkpoint();  // Nothing of this chunk is near: that hour is on disk, too.
    CHECK(world.shards[0].wheel.size() == 1);
    CHECK(world.shards[0].tier->stats().records == 2);
    CHECK(world.find(far.key, far.partition).has_value());
    world.remove(far);
    CHECK_FALSE(world.find(far.key, far.partition).has_value());
    CHECK_FALSE(world.find(far.key, far.partition, true).has_value());
    world.checkpoint();
    CHECK_FALSE(world.find(far.key, far.partition).has_value());
    world.now += std::chrono::hours(1);
    world.deliver_all();
    CHECK(world.pending.empty());
  }

  TEST_CASE(
      "a record that is moved again while its handle is looked up is found where it is then") {
    World world;
    const Record far = record(1, 5 * hour_ms);
    world.add(far);
    world.checkpoint();
    Record moved = far;
    moved.key.due += std::chrono::hours(1);
    world.move(far, moved.key.due);
    // Its hour is written, and memory still knows that it was moved.
    BucketTier& tier = *world.shards[0].tier;
    bool written = false;
    tier.write_all([&] { written = true; });
    for (int steps = 0; tier.stats().records > 0; ++steps) {
      REQUIRE(steps < 100);
      tier.step(world.now);
      world.background.step();
    }
    REQUIRE_FALSE(written);
    std::optional<storage::PendingRecord> found;
    tier.find_handle(far.key, [&](auto result) { found = std::move(result.value()); });
    REQUIRE_FALSE(found.has_value());  // It is being read.
    world.move(moved, moved.key.due + std::chrono::hours(1));
    world.settle();
    REQUIRE(found.has_value());
    CHECK(found->key.due == moved.key.due + std::chrono::hours(1));
  }

  TEST_CASE("a record that is cancelled while its hour is loaded does not come near") {
    World world;
    const Record far = record(1, 5 * hour_ms);
    world.add(far);
    world.add(record(2, 5 * hour_ms));
    world.checkpoint();
    world.now = far.key.due;
    while (world.background.size() == 0) world.shards[0].tier->step(world.now);
    world.remove(far);
    world.settle();
    CHECK(world.shards[0].wheel.size() == 1);
    world.deliver_all();
    CHECK(world.pending.empty());
  }

  TEST_CASE("an hour of which most was cancelled is loaded in steps, and nothing cancelled is") {
    World world;
    BucketTier& tier = *world.shards[0].tier;
    const auto one = [](Sequence s) {
      return record(s, 2 * hour_ms + static_cast<std::int64_t>(s), std::string(300, 'x'));
    };
    constexpr Sequence records = 20'000;
    for (Sequence s = 1; s <= records; ++s) world.add(one(s));
    world.checkpoint();
    REQUIRE(tier.stats().records == 0);  // All of it is on the disk, which knows of no cancel.
    for (Sequence s = 1; s <= records; ++s)
      if (s % 10 != 0) world.remove(one(s));

    world.now = begin + std::chrono::milliseconds(2 * hour_ms - 60'000);
    std::size_t turns = 0;
    const auto turn = [&](const auto& work) {
      const auto before = tier.stats().looked_for;
      const bool more = work();
      const auto looked = tier.stats().looked_for - before;
      CHECK(looked <= world.options.step_entries + 1'000);  // And the rest of a chunk.
      turns += looked > 0;
      return more;
    };
    bool changed = false, written = false;
    for (bool more = true; more;) {
      more = turn([&] { return tier.step(world.now); });
      more |= turn([&] { return world.background.step(); });
      if (turns < 4 || std::exchange(changed, true)) continue;
      // A part of the hour is in memory.  A checkpoint waits for the rest of it.
      REQUIRE(world.shards[0].wheel.empty());
      REQUIRE(tier.stats().records > 0);
      for (const Sequence s : {10u, 20u, 19'990u, 20'000u}) world.remove(one(s));
      tier.write_all([&written] { written = true; });
    }
    CHECK(turns >= records / (world.options.step_entries + 1'000));
    CHECK(written);
    CHECK(tier.stats().loads == 1);
    CHECK(world.shards[0].wheel.size() == records / 10 - 4);
    world.now = begin + std::chrono::milliseconds(2 * hour_ms + 30'000);
    world.deliver_all();
    CHECK(world.pending.empty());
    CHECK(tier.stats().records == 0);
    world.checkpoint();
    world.checkpoint();
    CHECK(world.store->homes({0, 1})->empty());
    CHECK(world.store->totals()->empty());
  }

  TEST_CASE("a load looks for the few records that are gone, and not for each of the hour") {
    World world;
    BucketTier& tier = *world.shards[0].tier;
    for (Sequence s = 1; s <= 20'000; ++s)
      world.add(record(s, 2 * hour_ms + static_cast<std::int64_t>(s)));
    world.checkpoint();
    for (const Sequence s : {7u, 19'999u})
      world.remove(record(s, 2 * hour_ms + static_cast<std::int64_t>(s)));
    world.now = begin + std::chrono::milliseconds(2 * hour_ms - 60'000);
    world.settle();
    CHECK(world.shards[0].wheel.size() == 19'998);
    CHECK(tier.stats().looked_for > 0);
    CHECK(tier.stats().looked_for < 200);
    world.now = begin + std::chrono::milliseconds(2 * hour_ms + 30'000);
    world.deliver_all();
    CHECK(world.pending.empty());
  }

  TEST_CASE("records of a dropped topic leave memory and are not handed over") {
    World world;
    for (int i = 0; i < 600; ++i)
      world.add(record(static_cast<Sequence>(i + 1), 1'000 + i * 600'000, "body", i % 3));
    world.settle();
    const TopicId topic = numbered(1).topic;
    REQUIRE(world.store->drop_topic(topic).has_value());
    world.shards[0].tier->topic_dropped(topic);
    std::erase_if(world.pending, [&](const auto& p) { return p.second.partition.topic == topic; });
    std::erase_if(world.shards[0].wheel,
                  [&](const auto& near) { return !world.pending.contains(near.first); });
    world.settle();
    CHECK(world.shards[0].tier->stats().records == 400);
    world.checkpoint();
    world.now += std::chrono::days(20);
    world.deliver_all();
    CHECK(world.pending.empty());
    CHECK(world.shards[0].tier->stats().records == 0);
  }

  TEST_CASE("a step frees a bounded number of a dropped topic's records") {
    World world;
    for (Sequence s = 1; s <= 20'000; ++s)
      world.add(record(s, static_cast<std::int64_t>(s % 60'000), "body"));
    world.settle();
    BucketTier& tier = *world.shards[0].tier;
    REQUIRE(tier.stats().records == 20'000);
    REQUIRE(world.store->drop_topic(numbered(0).topic).has_value());
    tier.topic_dropped(numbered(0).topic);
    std::size_t before = 20'000, steps = 0;
    for (; before > 0; ++steps) {
      REQUIRE(steps < 100);
      (void)tier.step(world.now);
      const std::size_t now = tier.stats().records;
      CHECK(before - now <= world.options.step_entries);
      before = now;
      world.background.run_all();
    }
    CHECK(steps >= 20'000 / world.options.step_entries);
    world.pending.clear();
    world.shards[0].wheel.clear();
  }

  TEST_CASE("a dropped topic is forgotten when nothing of it can be left, and no sooner") {
    World world;
    for (Sequence s = 1; s <= 300; ++s)
      world.add(record(s, static_cast<std::int64_t>(s) * 40'000, "body", static_cast<int>(s % 3)));
    world.checkpoint();
    BucketTier& tier = *world.shards[0].tier;
    // Its first hour is being loaded when the topic goes: the store has not heard of it.
    world.now += std::chrono::minutes(59) + std::chrono::seconds(30);
    const auto before = tier.stats().loads;
    for (int steps = 0; tier.stats().loads == before; ++steps) {
      REQUIRE(steps < 100);
      tier.step(world.now);
      world.background.step();
    }
    REQUIRE(world.store->drop_topic(numbered(0).topic).has_value());
    tier.topic_dropped(numbered(0).topic);
    std::erase_if(world.pending,
                  [](const auto& each) { return each.second.partition == numbered(0); });
    CHECK(tier.stats().dropped_topics == 1);
    world.settle();
    tier.noted({world.shards[0].lsn, 0});  // A checkpoint that was begun before.
    CHECK(tier.stats().dropped_topics == 1);
    world.checkpoint();
    CHECK(tier.stats().dropped_topics == 0);
    std::erase_if(world.shards[0].wheel,
                  [&](const auto& near) { return !world.pending.contains(near.first); });
    world.now = begin + std::chrono::hours(5);
    world.deliver_all();
    CHECK(world.pending.empty());
    CHECK(tier.stats().records == 0);
  }

  TEST_CASE("homes count as memory, and due records are loaded although homes use all of it") {
    BucketTier::Options options;
    options.memory_bytes = 1u << 20;
    World world(1, options);
    for (Sequence s = 1; s <= 8'000; ++s)
      world.add(record(s, static_cast<std::int64_t>(s) * hour_ms));
    world.checkpoint();
    BucketTier& tier = *world.shards[0].tier;
    CHECK(tier.is_full());
    CHECK(tier.stats().memory_bytes == 0);
    world.now = begin + std::chrono::hours(5);
    while (!world.pending.empty() && world.pending.begin()->first.due <= world.now) {
      world.settle();
      world.deliver();
    }
    CHECK(world.pending.size() == 7'995);
  }

  TEST_CASE("a turn looks at a bounded number of homes, and a checkpoint writes all of them") {
    BucketTier::Options options;
    options.write_homes = 100'000;
    World world(1, options);
    BucketTier& tier = *world.shards.at(0).tier;
    Sequence next = 1;
    constexpr int homes = 5'000;
    const auto add = [&](int month) {
      const Record of = record(next++, 30 * day_ms * (24 + month));
      storage::PendingAdded added;
      added.partition = of.partition;
      added.sequence = of.key.sequence;
      added.due = of.key.due;
      added.accepted = begin;
      added.record = as_bytes(of.body);
      tier.add({world.shards.at(0).lsn += 100, 0}, added);
    };
    const auto checkpoint = [&] {
      bool is_written = false;
      tier.write_all([&] { is_written = true; });
      for (bool more = true; more;) {
        const auto before = tier.stats().homes_seen;
        more = tier.step(world.now);
        CHECK(tier.stats().homes_seen - before <= 4'096);
        more |= world.background.step();
      }
      CHECK(is_written);
    };
    for (int month = 0; month < homes; ++month) add(month);
    checkpoint();
    CHECK(tier.stats().records == 0);
    CHECK(world.store->homes({0, 1}).value().size() == homes);
    // The last one of them alone is another one's than before.
    add(homes - 1);
    checkpoint();
    CHECK(tier.stats().records == 0);
    const auto first = tier.earliest();
    REQUIRE(first.has_value());
    CHECK(first->due <= record(1, 30 * day_ms * 24).key.due);
    CHECK(!first->exact);
    tier.noted({world.shards.at(0).lsn + 100, 0});
    world.settle();
  }

  TEST_CASE(
      "turns that look at three homes write what memory cannot hold, and forget what has ended") {
    BucketTier::Options options;
    options.homes_a_turn = 3;
    options.memory_bytes = 256 << 10;
    World world(1, options);
    BucketTier& tier = *world.shards.at(0).tier;
    Sequence next = 1;
    for (int i = 0; i < 400; ++i)
      world.add(record(next++, (3 + i % 40) * hour_ms + i, std::string(1'000, 'x')));
    CHECK(tier.stats().memory_bytes > options.memory_bytes);
    for (bool more = true; more;) {
      const auto before = tier.stats().homes_seen;
      more = tier.step(world.now);
      CHECK(tier.stats().homes_seen - before <= 3);
      more |= world.background.step();
    }
    CHECK(tier.stats().written > 100);
    CHECK(tier.stats().memory_bytes < options.memory_bytes * 3 / 4);
    CHECK(tier.stats().homes >= 40);
    while (!world.pending.empty()) {
      world.now = world.pending.begin()->first.due;
      world.deliver_all();
    }
    world.now += std::chrono::hours(2);
    for (int i = 0; i < 3; ++i) world.checkpoint();
    CHECK(tier.stats().homes <= 3);
    CHECK(world.store->places(0)->size() <= 3);
  }

  TEST_CASE("a checkpoint that looks for what to write does not wait for an hour that is dealt") {
    BucketTier::Options options;
    options.homes_a_turn = 2;
    options.memory_bytes = 1 << 20;
    BucketStore::Limits limits;
    limits.step_bytes = 1'000;
    World world(1, options, limits);
    BucketTier& tier = *world.shards.at(0).tier;
    Sequence next = 1;
    for (int i = 0; i < 100; ++i) {
      for (int j = 0; j < 20; ++j)
        world.add(record(next++, 5 * hour_ms + (i * 7'919 + j * 104'729) % hour_ms,
                         std::string(500, 'x')));
      if (i < 60) world.add(record(next++, (100 + i) * hour_ms));
      world.checkpoint();
    }
    world.add(record(next++, 159 * hour_ms + 1));  // This one is in the last of sixty homes.
    world.now = begin + std::chrono::milliseconds(5 * hour_ms - 60'000);
    bool written = false;
    const auto step = [&] {
      tier.step(world.now);
      world.background.step();
    };
    while (tier.stats().disk_downgrades == 0) step();
    const auto before = tier.stats().disk_downgrades;
    tier.write_all([&written] { written = true; });
    while (!written) step();
    // One before each of its two pieces of work: the home, and what belongs to none.
    CHECK(tier.stats().disk_downgrades - before <= 3);
    world.settle();
    CHECK(tier.stats().disk_downgrades - before > 20);
  }

  TEST_CASE("an hour that is dealt to milliseconds has a bounded number of tails") {
    BucketTier::Options options;
    options.memory_bytes = 6u << 20;
    World world(1, options);
    const auto tails = [&] {
      const auto levels = world.shards.at(0).tier->stats().levels;
      return levels[static_cast<std::size_t>(BucketLevel::tick)].chunks;
    };
    Sequence next = 1;
    // More in one second than may be loaded at once.
    for (int i = 0; i < 27'000; ++i)
      world.add(record(next++, 2 * hour_ms + i % 1'000, std::string(80, 'x')));
    world.checkpoint();
    world.now = begin + std::chrono::milliseconds(2 * hour_ms - 60'000);
    world.settle();
    const auto loaded = tails();
    for (int i = 0; i < 6'000; ++i) world.add(record(next++, 2 * hour_ms + 1'000 + i * 100));
    CHECK(tails() - loaded > 1'000);
    CHECK(tails() - loaded <= 4'096);
    world.now = begin + std::chrono::milliseconds(3 * hour_ms);
    world.deliver_all();
    CHECK(world.pending.empty());
  }

  TEST_CASE("an hour that grows too large to be loaded at once is in finer buckets from then on") {
    BucketTier::Options options;
    options.memory_bytes = 8u << 20;
    BucketStore::Limits limits;
    limits.step_bytes = 200u << 10;
    World world(1, options, limits);
    Sequence next = 1;
    // More than three pieces, due within ten seconds.
    for (int i = 0; i < 10'000; ++i)
      world.add(record(next++, 2 * hour_ms + i * 7'919 % 10'000, std::string(300, 'x')));
    world.checkpoint();
    world.now = begin + std::chrono::milliseconds(2 * hour_ms - 60'000);
    world.settle();
    // The first piece of it alone is dealt, in steps of a fifth.
    CHECK(world.shards.at(0).tier->stats().disk_downgrades <= 7);
    world.crash(1);
    world.now = begin + std::chrono::milliseconds(3 * hour_ms);
    world.deliver_all();
    CHECK(world.pending.empty());
  }

  TEST_CASE("months come last, although their level is the first: in memory, on disk, on a page") {
    World world;
    const Record later = record(1, 500 * day_ms), sooner = record(2, 364 * day_ms);
    const Record soonest = record(3, 2 * hour_ms), last = record(4, 900 * day_ms);
    for (const auto& one : {later, sooner, last, soonest}) world.add(one);
    const BucketTier& tier = *world.shards.at(0).tier;
    REQUIRE(tier.earliest().has_value());
    CHECK(tier.earliest()->due == soonest.key.due);
    CHECK(tier.earliest()->exact);
    world.checkpoint();
    REQUIRE(tier.earliest().has_value());
    CHECK(tier.earliest()->due == storage::bucket_of(BucketLevel::hour, soonest.key.due).start);
    const auto page = world.store->page({});
    REQUIRE(page.has_value());
    std::vector<Sequence> order;
    for (const auto& one : page->records) order.push_back(one.key.sequence);
    CHECK(order == std::vector<Sequence>{3, 2, 1, 4});
    for (const auto& one : {soonest, sooner, later, last}) {
      CHECK(world.pending.begin()->first == one.key);
      world.now = one.key.due - std::chrono::milliseconds(1);
      world.deliver_all();
      CHECK(world.pending.begin()->first == one.key);
      world.now = one.key.due;
      world.deliver_all();
      CHECK_FALSE(world.pending.contains(one.key));
    }
  }

  TEST_CASE("look-ups that wait for the disk are bounded") {
    World world;
    world.add(record(1, 3 * hour_ms));
    world.checkpoint();
    BucketTier& tier = *world.shards[0].tier;
    std::size_t refused = 0, found = 0;
    for (std::size_t i = 0; i < 70'000; ++i) {
      tier.find(record(1, 3 * hour_ms).key, [&](auto answer) {
        if (answer)
          ++found;
        else
          ++refused;
      });
    }
    CHECK(refused > 0);
    CHECK(refused < 10'000);
    world.settle();
    CHECK(found == 70'000 - refused);
  }

  TEST_CASE("a turn answers a bounded number of look-ups, and all of them are true when told") {
    World world;
    constexpr std::size_t answers_of_a_turn = 128;
    const Record far = record(1, 3 * hour_ms), gone = record(2, 3 * hour_ms);
    world.add(far);
    world.add(gone);
    world.checkpoint();
    BucketTier& tier = *world.shards[0].tier;
    std::size_t found = 0, missed = 0, events = 0;
    bool is_gone = false;
    for (int i = 0; i < 1'000; ++i) {
      tier.find(far.key, [&](auto answer) { found += answer->has_value(); });
      tier.find(gone.key, [&](auto answer) {
        CHECK(answer->has_value() == !is_gone);
        missed += !answer->has_value();
      });
      tier.find_id(far.partition, "nobody", [&](auto answer) { events += answer->empty(); });
    }
    const auto told = [&] { return found + missed + events; };
    std::size_t before = 0, turns = 0;
    bool written = false;
    const auto turn = [&](const auto& work) {
      const bool more = work();
      CHECK(told() - before <= answers_of_a_turn);
      turns += told() > before;
      before = told();
      if (is_gone || turns < 3) return more;
      // In the middle of the answers: those that follow know of it, whatever is written meanwhile.
      is_gone = true;
      world.remove(gone);
      tier.write_all([&written] { written = true; });
      return true;
    };
    for (bool more = true; more;) {
      more = turn([&] { return tier.step(world.now); });
      more |= turn([&] { return world.background.step(); });
    }
    CHECK(written);
    CHECK(found == 1'000);
    CHECK(events == 1'000);
    CHECK(missed > 500);
    CHECK(turns >= 2'500 / answers_of_a_turn);
  }

  TEST_CASE(
      "look-ups of large records bring some megabytes into memory at once, and all are found") {
    World world;
    const std::string body(1u << 20, 'b');
    for (Sequence s = 1; s <= 40; ++s) world.add(record(s, 3 * hour_ms, body));
    world.checkpoint();
    BucketTier& tier = *world.shards[0].tier;
    std::size_t found = 0;
    for (Sequence s = 1; s <= 40; ++s) {
      tier.find(record(s, 3 * hour_ms).key, [&](auto answer) {
        REQUIRE(answer->has_value());
        CHECK((*answer)->record.size() == body.size());
        ++found;
      });
    }
    // The first is on its way alone.
    for (std::size_t before = 0; found < 40; before = found) {
      (void)tier.step(world.now);
      REQUIRE(world.background.step());
      CHECK(found - before <= 9);
      CHECK(found > before);
    }
  }

  TEST_CASE("homes that are far and ended are forgotten once no replay can tell of them") {
    World world;
    BucketTier& tier = *world.shards[0].tier;
    std::vector<Record> hourly;
    for (Sequence s = 1; s <= 500; ++s)
      hourly.push_back(record(s, static_cast<std::int64_t>(3 + s) * hour_ms));
    for (const auto& one : hourly) world.add(one);
    for (const auto& one : hourly) world.remove(one);
    CHECK(tier.stats().homes >= 500);
    world.checkpoint();
    world.checkpoint();
    CHECK(tier.stats().homes <= 2);
    CHECK(world.store->places(0)->size() <= 2);
    // The same hours are used again, and a crash undoes nothing of it.
    for (auto& one : hourly) one.key.sequence += 1'000;
    for (const auto& one : hourly) world.add(one);
    world.crash(1);
    CHECK(world.find(hourly[400].key, hourly[400].partition).has_value());
    while (!world.pending.empty()) {
      world.now = world.pending.begin()->first.due;
      world.deliver_all();
    }
  }

  TEST_CASE(
      "an hour keeps what is marked in it as long as the month of these records is not dealt") {
    World world;
    // They are due in a month that becomes hours, but is not dealt yet.
    const Record gone = record(1, 370 * day_ms), stays = record(2, 370 * day_ms + 1);
    world.add(gone);
    world.add(stays);
    world.checkpoint();
    world.now = begin + std::chrono::days(60);
    // The lane is held up by a step, so the month is closed and on disk.
    for (int i = 0; i < 3; ++i) (void)world.shards[0].tier->step(world.now);
    world.remove(gone);
    for (int i = 0; i < 4; ++i) world.checkpoint();
    world.crash(1);
    CHECK_FALSE(world.find(gone.key, gone.partition).has_value());
    CHECK(world.find(stays.key, stays.partition).has_value());
  }

  TEST_CASE("a record that is due in more than a year waits in a month, and is dealt out in time") {
    World world;
    for (int i = 1; i <= 40; ++i)
      world.add(record(static_cast<Sequence>(i), i * 30 * day_ms + i * hour_ms));
    world.checkpoint();
    std::size_t months = 0;
    const auto homes = world.store->homes({0, 1});
    for (const auto& home : *homes) months += home.level == BucketLevel::month;
    CHECK(months == 29);
    for (int i = 1; i <= 40; ++i) {
      world.now = begin + std::chrono::milliseconds(i * 30 * day_ms + i * hour_ms - 1);
      world.deliver_all();
      CHECK(world.pending.size() == static_cast<std::size_t>(41 - i));
      world.now += std::chrono::milliseconds(1);
      world.deliver_all();
      CHECK(world.pending.size() == static_cast<std::size_t>(40 - i));
      if (i % 3 == 0) world.checkpoint();
      if (i % 7 == 0) world.crash(1);
    }
  }

  TEST_CASE(
      "a record that comes while its month becomes hours is there after a kill, and is there "
      "once") {
    World world;
    world.add(record(1, 375 * day_ms));
    world.add(record(4, 375 * day_ms));
    world.settle();
    world.now += std::chrono::days(40);
    while (world.background.size() == 0) world.shards[0].tier->step(world.now);
    world.add(record(2, 375 * day_ms));
    world.remove(record(1, 375 * day_ms));
    world.add(record(3, 375 * day_ms));
    world.settle();
    // The month is dealt out; what came meanwhile is in memory alone.
    const WallTime due = record(4, 375 * day_ms).key.due;
    CHECK(*world.store->homes({0, 1}) ==
          std::set<storage::Bucket>{storage::bucket_of(BucketLevel::hour, due)});
    REQUIRE(world.store->flush().has_value());
    world.crash(1);
    CHECK(world.find(record(2, 375 * day_ms).key, numbered(0)).has_value());
    CHECK_FALSE(world.find(record(1, 375 * day_ms).key, numbered(0)).has_value());
    world.checkpoint();
    CHECK(world.find(record(4, 375 * day_ms).key, numbered(0)).has_value());
    CHECK(world.store->totals()->at(numbered(0).topic) == 3);
    world.now = record(1, 375 * day_ms).key.due;
    world.deliver_all();
    CHECK(world.pending.empty());
  }

  TEST_CASE("memory stays within its budget when all is due in one hour, and all leaves in order") {
    BucketTier::Options options;
    options.memory_bytes = 1u << 20;
    options.write_bytes = 128u << 10;
    World world(1, options, {.step_bytes = 200u << 10});
    SeededRandom random(5);
    const std::string body(300, 'b');
    std::size_t most = 0;
    for (Sequence s = 1; s <= 20'000; ++s) {
      // Six megabytes in one hour, two of them in one second of it.
      const auto due =
          s % 3 == 0 ? 2 * hour_ms + 1'800'000 + static_cast<std::int64_t>(random.below(1'000))
                     : 2 * hour_ms + static_cast<std::int64_t>(random.below(hour_ms));
      world.add(record(s, due, body));
      if (s % 50 == 0) world.settle();
      most = std::max(most, world.shards[0].tier->stats().memory_bytes);
    }
    CHECK(most <= options.memory_bytes);
    world.checkpoint();
    for (world.now += std::chrono::minutes(119); !world.pending.empty();
         world.now += std::chrono::seconds(20)) {
      world.deliver_all();
      most = std::max(most, world.shards[0].tier->stats().memory_bytes);
    }
    CHECK(most <= options.memory_bytes + options.memory_bytes / 4);
    CHECK(world.shards[0].tier->stats().disk_downgrades > 10);
  }

  TEST_CASE("near records that spend the budget go back to the disk and are delivered in time") {
    BucketTier::Options options;
    options.memory_bytes = 1u << 20;
    options.write_bytes = 128u << 10;
    World world(1, options);
    world.settle();
    const std::string body(300, 'b');
    std::size_t most = 0;
    for (Sequence s = 1; s <= 10'000; ++s) {  // All due in the minute after the next one.
      world.add(record(s, 60'000 + static_cast<std::int64_t>(s * 7'919 % 60'000), body));
      if (s % 50 == 0) world.settle();
      most = std::max(most, world.shards[0].tier->stats().memory_bytes);
    }
    CHECK(world.shards[0].tier->stats().pulled_back > 0);
    CHECK(most <= options.memory_bytes + options.memory_bytes / 4);
    for (int ms = 0; !world.pending.empty(); ms += 500) {
      REQUIRE(ms <= 120'000);
      world.now = begin + std::chrono::milliseconds(ms);
      world.deliver_all();
    }
  }

  TEST_CASE("the pending records are always those of a simple model") {
    const char* const given = std::getenv("TARRY_SEED");
    const int first = given != nullptr ? std::atoi(given) : 1;
    const char* const runs = std::getenv("TARRY_RUNS");
    const int count = given != nullptr ? 1 : runs != nullptr ? std::atoi(runs) : tries(2);
    for (int seed = first; seed < first + count; ++seed) {
      CAPTURE(seed);
      SeededRandom random(static_cast<std::uint64_t>(seed));
      BucketTier::Options options;
      options.memory_bytes = std::size_t{16} << (10 + random.below(8));
      options.write_bytes = options.memory_bytes / 8;
      options.step_entries = 1 + random.below(300);
      options.write_homes = 1 + random.below(20);
      BucketStore::Limits limits;
      limits.step_bytes = std::size_t{4} << (10 + random.below(6));
      limits.write_buffer_bytes = 256u << 10;  // RocksDB flushes when it likes.
      World world(static_cast<std::uint16_t>(1 + random.below(3)), options, limits);
      Sequence next = 1;
      std::vector<Record> ended;

      const auto some_pending = [&]() -> std::optional<Record> {
        if (world.pending.empty()) return std::nullopt;
        auto at = world.pending.lower_bound({world.now, random.below(next)});
        for (auto n = random.below(20); n > 0 && at != world.pending.end(); --n) ++at;
        if (at == world.pending.end()) at = world.pending.begin();
        return at->second;
      };
      const auto some_due = [&] {
        static constexpr std::int64_t spans[] = {2'000,      60'000,      hour_ms,     3 * hour_ms,
                                                 3 * day_ms, 40 * day_ms, 500 * day_ms};
        const auto kind = random.below(40);
        const auto span = spans[kind < 10   ? 0
                                : kind < 20 ? 1
                                : kind < 27 ? 2
                                : kind < 32 ? 3
                                : kind < 36 ? 4
                                : kind < 39 ? 5
                                            : 6];
        // Often in the same millisecond.
        const auto due = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(span)));
        return world.now + std::chrono::milliseconds(random.below(3) == 0 ? span : due);
      };
      for (int step = 0; step < tries(1'500); ++step) {
        const auto kind = random.below(100);
        if (kind < 40) {
          for (auto n = 1 + random.below(20); n > 0; --n) {
            Record made;
            made.key = {some_due(), next++};
            made.first = made.key.due;
            made.partition = numbered(static_cast<int>(random.below(7)));
            made.body = "body " + std::to_string(next) + std::string(random.below(300), 'x');
            made.principal = static_cast<PrincipalId>(random.below(4));
            world.add(made);
          }
        } else if (kind < 50) {
          for (auto n = 1 + random.below(10); n > 0; --n) {
            const auto gone = some_pending();
            if (!gone) continue;
            world.remove(*gone);
            ended.push_back(*gone);
          }
        } else if (kind < 58) {
          const auto moved = some_pending();
          if (moved) {
            const WallTime due = random.below(3) == 0 ? moved->first : some_due();
            if (due != moved->key.due) world.move(*moved, due);
          }
        } else if (kind < 64) {
          if (const auto there = some_pending()) {
            const auto found = world.find(there->key, there->partition);
            REQUIRE(found.has_value());
            CHECK(as_text(found->record) == there->body);
            const auto by_handle =
                world.find({there->first, there->key.sequence}, there->partition, true);
            REQUIRE(by_handle.has_value());
            CHECK(by_handle->key == there->key);
          }
          if (!ended.empty()) {
            const Record& gone = ended[random.below(ended.size())];
            CHECK_FALSE(world.find(gone.key, gone.partition).has_value());
            CHECK_FALSE(
                world.find({gone.first, gone.key.sequence}, gone.partition, true).has_value());
          }
        } else if (kind < 80) {
          static constexpr std::int64_t leaps[] = {1,       100,    10'000,     600'000,
                                                   hour_ms, day_ms, 25 * day_ms};
          const auto leap = random.below(30);
          world.now += std::chrono::milliseconds(leaps[leap < 24   ? leap / 8
                                                       : leap < 26 ? 3
                                                       : leap < 28 ? 4
                                                       : leap < 29 ? 5
                                                                   : 6]);
          for (auto& [number, shard] : world.shards) shard.tier->step(world.now);
          if (random.below(2) == 0) world.deliver();
        } else if (kind < 90) {
          for (auto n = random.below(6); n > 0; --n) {
            for (auto& [number, shard] : world.shards) shard.tier->step(world.now);
            world.background.step();
          }
          world.deliver();
        } else if (kind < 93) {
          world.deliver_all();
        } else if (kind < 96) {
          world.checkpoint();
        } else if (kind < 98) {
          REQUIRE(world.store->flush().has_value());
        } else {
          world.crash(random.below(3) == 0 ? static_cast<std::uint16_t>(1 + random.below(4))
                                           : world.count);
        }
        REQUIRE(world.failed_with == "");
      }
      world.deliver_all();
      world.checkpoint();
      std::map<TopicId, std::uint64_t> expected;
      storage::PendingUses uses;
      for (const auto& [key, one] : world.pending) {
        ++expected[one.partition.topic];
        if (one.principal != unknown_principal)
          uses[{one.partition.topic, one.principal}].add(
              {1, static_cast<std::int64_t>(one.body.size())});
      }
      CHECK(*world.store->totals() == expected);
      CHECK(*world.store->uses() == uses);
      while (!world.pending.empty()) {
        world.now = world.pending.begin()->first.due +
                    std::chrono::milliseconds(random.below(static_cast<std::uint64_t>(hour_ms)));
        world.deliver_all();
      }
      world.checkpoint();
      CHECK(world.store->totals()->empty());
      CHECK(world.store->uses()->empty());
    }
  }
}

}  // namespace
}  // namespace tarry::delay
