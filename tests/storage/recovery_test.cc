#include "storage/recovery.h"

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "base/log.h"
#include "scratch.h"
#include "storage/bucket_store.h"
#include "storage/catalog.h"
#include "storage/database.h"
#include "storage/journal.h"
#include "storage/offset_store.h"
#include "tests/given.h"
#include "tests/memory_disk.h"

namespace tarry::storage {
namespace {

const TopicPartition first_topic{test_topic(1), 0};
const TopicPartition second_topic{test_topic(2), 0};

// A batch of `count` records at `base`: as much of it as recovery looks at.
Buffer batch_at(Offset base, std::int32_t count) {
  Buffer out(61 + 4);
  store_be(out.data(), base);
  store_be(out.data() + 8, static_cast<std::int32_t>(out.size() - 12));
  store_be(out.data() + 23, count - 1);
  store_be(out.data() + 43, std::int64_t{-1});
  return out;
}

// Logs in memory: where each batch begins and ends.
struct FakeLogs final : LogReplay {
  struct FakeLog {
    Offset first = 0;  // Retention took what was before.
    std::map<Offset, Offset> batches;
    Offset end() const { return batches.empty() ? first : batches.rbegin()->second; }
    bool operator==(const FakeLog&) const = default;
  };

  Result<Offset> cut(const TopicPartition& partition, Offset base) override {
    if (fails) return fail(Errc::io, "disk gone");
    cuts.push_back(partition);
    FakeLog& log = logs[partition];
    const Offset from = std::max(base, log.first);
    log.batches.erase(log.batches.lower_bound(from), log.batches.end());
    return log.end();
  }
  Result<> append(const TopicPartition& partition, Bytes batches, WallTime) override {
    FakeLog& log = logs[partition];
    while (!batches.empty()) {
      const auto base = load_be<Offset>(batches.data());
      CHECK(base == log.end());
      log.batches[base] = base + load_be<std::int32_t>(batches.data() + 23) + 1;
      batches = batches.subspan(65);
    }
    return {};
  }
  Result<> producer_answered(const ProducerAnswered& answer) override {
    answered.push_back(answer.producer_id);
    return {};
  }
  Result<> start_moved(const TopicPartition& partition, Offset start) override {
    starts[partition] = start;
    return {};
  }
  void fence(const TopicPartition& partition, const std::string& why) override {
    fenced[partition] = why;
  }
  Result<> keep(const TopicPartition& partition, Bytes batches) override {
    append_bytes(kept[partition], batches);
    return {};
  }

  std::map<TopicPartition, FakeLog> logs;
  std::map<TopicPartition, Offset> starts;
  std::map<TopicPartition, std::string> fenced;
  std::map<TopicPartition, Buffer> kept;
  std::vector<TopicPartition> cuts;
  std::vector<ProducerId> answered;
  bool fails = false;
};

// A shard's tier (delay/bucket_tier.h), at its simplest: nothing stays in memory behind
// end(), and it skips what lies before the place of its home.
struct FakeTier final : PendingReplay {
  struct Home {
    JournalPlace written;
    std::unique_ptr<Chunk> chunk;
    LiveEntries live;
    std::vector<Sequence> gone;
    std::map<TopicId, std::int64_t> counts;
    bool dirty = false;
  };

  explicit FakeTier(BucketStore& to) : store(to) {}

  Result<> begin(std::uint32_t shard, std::uint32_t journals) override {
    const auto known = store.shards();
    REQUIRE(known.has_value());
    owner = {static_cast<std::uint16_t>(shard),
             *known != 0 ? *known : static_cast<std::uint16_t>(journals)};
    REQUIRE(owner.shard < owner.shards);
    epoch = *store.epoch(owner.shards);
    homes.clear();
    const auto written = store.places(owner.shard);
    for (const auto& [home, place] : *written) homes[home].written = place;
    return {};
  }
  Result<> added(JournalPlace at, const PendingAdded& op) override {
    Home* const home = take(at, op.due);
    if (home == nullptr) return {};
    if (!home->chunk) home->chunk = std::make_unique<Chunk>(bucket_of(BucketLevel::hour, op.due));
    home->chunk->append({{op.due, op.sequence},
                         op.first_due.value_or(op.due),
                         op.partition,
                         op.accepted,
                         op.expires,
                         op.id,
                         op.record});
    home->live.push_back(true);
    ++home->counts[op.partition.topic];
    return {};
  }
  Result<> removed(JournalPlace at, const PendingRemoved& op) override {
    if (op.how == RemovalReason::delivered_on_arrival) return {};
    Home* const home = take(at, op.due);
    if (home == nullptr) return {};
    --home->counts[op.partition.topic];
    const auto index = home->chunk ? home->chunk->find(op.sequence) : std::nullopt;
    if (index) {
      home->live[*index] = false;
    } else {
      home->gone.push_back(op.sequence);
    }
    return {};
  }
  Result<> end() override {
    for (const auto& [bucket, home] : homes) {
      if (!home.dirty) continue;
      HomeWrite change{bucket, applied, {}, {}, home.gone, home.counts, {}};
      if (std::ranges::count(home.live, true) > 0)
        change.parts.push_back({std::make_shared<const Chunk>(*home.chunk), home.live});
      auto written = store.write(owner, change);
      if (!written) return std::unexpected(written.error());
    }
    homes.clear();
    return {};
  }
  Result<> topic_deleted(const TopicId& topic) override { return store.drop_topic(topic); }
  Result<std::vector<TopicId>> topics() override {
    std::vector<TopicId> out;
    const auto totals = store.totals();
    for (const auto& [topic, count] : *totals) out.push_back(topic);
    return out;
  }

  Home* take(JournalPlace at, WallTime due) {
    at.epoch = epoch;
    places.push_back(at);
    applied = {at.lsn, at.operation + 1, epoch};
    Home& home = homes[bucket_of(BucketLevel::hour, due)];
    if (at < home.written) return nullptr;
    home.dirty = true;
    return &home;
  }

  BucketStore& store;
  Owner owner;
  std::uint32_t epoch = 0;
  JournalPlace applied;
  std::map<Bucket, Home> homes;
  std::vector<JournalPlace> places;  // All that it was told.
};

// A broker's storage with its journals on a disk of memory.
struct RecoveryRig {
  explicit RecoveryRig(std::uint64_t seed = 1) : random(seed), disk(random) {
    set_log_level(LogLevel::off);  // Here what goes wrong is meant to.
    meta = std::move(*Database::make(scratch.path("meta"), small));
    store = std::move(*BucketStore::make(scratch.path("pending"), small_store));
    open_catalog();
  }
  ~RecoveryRig() { catalog.reset(); }

  void open_catalog() {
    catalog = std::make_unique<Catalog>(*meta);
    REQUIRE(catalog->load().has_value());
  }

  // kill -9: the databases keep what was flushed, the journals what was written.
  void crash() {
    journals.clear();
    store.reset();
    catalog.reset();
    meta.reset();
    disk.kill();
    meta = std::move(*Database::open(scratch.path("meta"), small));
    store = std::move(*BucketStore::open(scratch.path("pending"), small_store));
    open_catalog();
  }

  Result<Recovered> recover() {
    OffsetStore offsets(*meta);
    FakeTier tier(*store);
    auto recovered = storage::recover(disk, "journal", *catalog, tier, offsets, logs);
    places = tier.places;
    return recovered;
  }

  // As a start with another number of shards does it.
  void settle(std::uint32_t shards, Recovered& recovered) {
    REQUIRE(storage::settle(disk, "journal", *meta, *store, shards, recovered).has_value());
    REQUIRE(store->epoch(static_cast<std::uint16_t>(shards)).has_value());
    REQUIRE(store->flush().has_value());
  }

  // A shard's tier is told of its journal's record at `lsn`.
  void tell(std::uint32_t shard, Lsn lsn, std::span<const Operation> operations) {
    FakeTier tier(*store);
    REQUIRE(tier.begin(shard, static_cast<std::uint32_t>(journals.size())).has_value());
    JournalPlace at{lsn};
    for (const auto& operation : operations) {
      if (const auto* op = std::get_if<PendingAdded>(&operation))
        REQUIRE(tier.added(at, *op).has_value());
      if (const auto* op = std::get_if<PendingRemoved>(&operation))
        REQUIRE(tier.removed(at, *op).has_value());
      ++at.operation;
    }
    REQUIRE(tier.end().has_value());
  }
  void tell(std::uint32_t shard, Lsn lsn, std::initializer_list<Operation> operations) {
    tell(shard, lsn, std::span(operations.begin(), operations.size()));
  }

  // Every group: its value and what it has committed.
  std::map<std::string, std::string> groups() {
    std::map<std::string, std::string> out;
    OffsetStore offsets(*meta);
    REQUIRE(offsets
                .load([&](const TopicId& id) { return catalog->has_topic(id); },
                      [&](const OffsetStore::StoredGroup& group) -> Result<> {
                        auto& text = out[std::string(group.id)];
                        text = group.value ? as_text(*group.value) : "-";
                        for (const auto& o : group.offsets)
                          text += fmt::format(" {}:{}", o.partition.partition, o.offset);
                        return {};
                      })
                .has_value());
    return out;
  }

  void open_journals(const Recovered& recovered, std::uint32_t shards) {
    journals.clear();
    for (std::uint32_t shard = 0; shard < shards; ++shard) {
      JournalOptions options;
      options.directory = fmt::format("journal/{}", shard);
      options.shard = shard;
      options.file_bytes = 64 << 10;
      options.max_bytes = 4 << 20;
      options.reserve_bytes = 64 << 10;
      auto opened =
          Journal::open(disk, background, random, clock, options, {}, recovered.journal(shard));
      REQUIRE(opened.has_value());
      journals.push_back(std::move(*opened));
    }
  }

  // One journal record, durable when this returns.
  Lsn write(std::uint32_t shard, std::initializer_list<Operation> operations) {
    return write(shard, std::span(operations.begin(), operations.size()));
  }
  Lsn write(std::uint32_t shard, std::span<const Operation> operations) {
    RecordBuilder record;
    for (const Operation& operation : operations)
      std::visit([&](const auto& op) { record.add(op); }, operation);
    Journal& journal = *journals.at(shard);
    bool durable = false;
    const auto lsn =
        journal.append(record.pieces(), [&](const Result<>& r) { durable = r.has_value(); });
    REQUIRE(lsn.has_value());
    journal.start_round();
    background.run_all();
    REQUIRE(durable);
    return *lsn;
  }

  void note_checkpoint(std::uint32_t shard) {
    bool noted = false;
    journals.at(shard)->checkpoint(journals[shard]->durable_lsn(),
                                   [&](const Result<>& r) { noted = r.has_value(); });
    background.run_all();
    REQUIRE(noted);
  }

  std::vector<Sequence> waiting() {
    std::vector<Sequence> out;
    for (PendingQuery query;;) {
      const auto page = store->page(query);
      REQUIRE(page.has_value());
      for (const auto& record : page->records) out.push_back(record.key.sequence);
      if (!page->next) return out;
      query.after = page->next;
    }
  }
  std::uint64_t total() {
    std::uint64_t sum = 0;
    const auto totals = store->totals();
    for (const auto& [topic, count] : *totals) sum += count;
    return sum;
  }

  const Database::Limits small{.write_buffer_bytes = 64 << 10};
  const BucketLimits small_store{.write_buffer_bytes = 64 << 10};
  ScratchDirectory scratch;
  SeededRandom random;
  MemoryDisk disk;
  QueuedBackground background;
  SetClock clock;
  std::unique_ptr<Database> meta;
  std::unique_ptr<Catalog> catalog;
  std::unique_ptr<BucketStore> store;
  FakeLogs logs;
  std::vector<JournalPlace> places;  // The places that the last recovery has told the tier.
  std::vector<std::unique_ptr<Journal>> journals;
};

PendingAdded pending_added(const TopicPartition& partition, Sequence sequence, std::int64_t due) {
  return {partition, sequence, from_ms(due), from_ms(1), never_expires, {}, as_bytes("body")};
}
PendingRemoved gone(const TopicPartition& partition, Sequence sequence, std::int64_t due) {
  return {partition, sequence, from_ms(due), RemovalReason::delivered, from_ms(1), {}};
}
TopicCreated topic(const TopicPartition& partition, std::string_view name) {
  return {partition.topic, 4, name, {}};
}
CommittedOffset committed(const TopicPartition& partition, Offset offset) {
  return {partition, offset, -1, from_ms(1), never_expires, {}};
}
LogAppended append(const TopicPartition& partition, Bytes batches) {
  return {partition, from_ms(1), batches};
}

// Shards whose journals get random operations, beside what must be there after a crash.
struct RandomShards {
  RecoveryRig rig;
  SeededRandom& random = rig.random;
  std::uint32_t shards = 2;
  std::map<TopicPartition, FakeLogs::FakeLog> logs;
  std::map<PendingKey, TopicPartition> waiting;
  std::map<std::string, std::string> groups;
  Sequence next = 1;

  explicit RandomShards(std::uint64_t seed) : rig(seed) {
    rig.open_journals({}, shards);
    create(first_topic, "orders");
    create(second_topic, "others");
  }

  void create(const TopicPartition& partition, std::string_view name) {
    const std::vector<Operation> created{topic(partition, name)};
    rig.write(0, created);
    REQUIRE(rig.catalog->apply(created[0]).has_value());
  }

  void change_group(int step) {
    const std::string id = fmt::format("group {}", random.below(5));
    const auto shard = static_cast<std::uint32_t>(std::hash<std::string>{}(id) % shards);
    const auto apply = [&](std::initializer_list<Operation> operations) {
      rig.write(shard, operations);
      OffsetStore store(*rig.meta);
      for (const auto& operation : operations) REQUIRE(store.apply(operation).has_value());
    };
    if (random.below(5) == 0) {
      apply({GroupRemoved{id}});
      groups.erase(id);
    } else {
      const auto value = fmt::format("v{}", step);
      apply({GroupStored{id, as_bytes(std::string_view(value))},
             OffsetsCommitted{id, {committed(first_topic, step)}}});
      groups[id] = fmt::format("{} 0:{}", value, step);
    }
  }

  // A batch of a partition, and pending records of it that come and leave.
  void write_record() {
    const TopicPartition partition{random.below(2) == 0 ? first_topic.topic : second_topic.topic,
                                   static_cast<PartitionIndex>(random.below(4))};
    std::vector<Operation> record;
    Buffer batch;
    if (random.below(3) > 0) {
      const Offset base = logs[partition].end();
      const auto count = static_cast<std::int32_t>(1 + random.below(9));
      batch = batch_at(base, count);
      record.push_back(append(partition, batch));
      logs[partition].batches[base] = base + count;
    }
    for (auto n = random.below(4); n > 0; --n) {
      // They are due in some hours, so that each is written further or less far than another.
      const auto due = static_cast<std::int64_t>(random.below(100) * 200'000);
      const PendingKey key{from_ms(due), next++};
      record.push_back(pending_added(partition, key.sequence, to_ms(key.due)));
      waiting[key] = partition;
    }
    for (auto at = waiting.begin(); at != waiting.end();) {
      const bool leaves = at->second == partition && random.below(3) == 0;
      if (leaves) record.push_back(gone(partition, at->first.sequence, to_ms(at->first.due)));
      at = leaves ? waiting.erase(at) : std::next(at);
    }
    if (record.empty()) return;
    const auto shard = static_cast<std::uint32_t>(std::hash<TopicPartition>{}(partition) % shards);
    const Lsn lsn = rig.write(shard, record);
    if (!batch.empty() && random.below(2) == 0) {  // Its flush comes early,
      auto& log = rig.logs.logs[partition];
      log.batches[logs[partition].batches.rbegin()->first] = logs[partition].end();
    }
    rig.tell(shard, lsn, record);
  }

  void checkpoint_one() {
    rig.logs.logs = logs;
    REQUIRE(rig.meta->flush().has_value());
    REQUIRE(rig.store->flush().has_value());
    rig.note_checkpoint(static_cast<std::uint32_t>(random.below(shards)));
  }

  void crash() {
    rig.crash();
    auto recovered = rig.recover();
    REQUIRE(recovered.has_value());
    if (random.below(3) == 0) {  // Once more: it died while it recovered.
      rig.crash();
      recovered = rig.recover();
      REQUIRE(recovered.has_value());
    }
    REQUIRE(rig.logs.fenced.empty());
    for (const auto& [partition, log] : logs) REQUIRE(rig.logs.logs[partition] == log);
    std::vector<Sequence> expected;
    for (const auto& [key, partition] : waiting) expected.push_back(key.sequence);
    REQUIRE(rig.waiting() == expected);
    REQUIRE(rig.total() == expected.size());
    REQUIRE(rig.groups() == groups);

    shards = 1 + static_cast<std::uint32_t>(random.below(4));
    if (recovered->other_shards(shards)) rig.settle(shards, *recovered);
    rig.open_journals(*recovered, shards);
  }
};

TEST_SUITE("recovery") {
  TEST_CASE("a new directory has nothing to recover") {
    RecoveryRig rig;
    const auto recovered = rig.recover();
    REQUIRE(recovered.has_value());
    CHECK(recovered->journals.empty());
    CHECK_FALSE(recovered->other_shards(2));
    CHECK_FALSE(recovered->journal(0).exists);
  }

  TEST_CASE("every operation reaches what it is for, and twice is as once") {
    RecoveryRig rig;
    rig.open_journals({}, 2);
    const Buffer batches = batch_at(0, 3);
    rig.write(0, {topic(first_topic, "orders"), SequencesGiven{100}});
    rig.write(1, {append(first_topic, batches), pending_added(first_topic, 7, 50)});
    rig.write(1, {pending_added(first_topic, 8, 40),
                  ProducerAnswered{first_topic, 99, 0, 0, 0, -1, from_ms(1)}});
    rig.write(1, {gone(first_topic, 7, 50), LogStartMoved{first_topic, 2}});
    rig.write(1, {GroupStored{"g", as_bytes("one")}, GroupStored{"old", as_bytes("one")}});
    rig.write(1, {OffsetsCommitted{"g", {committed(first_topic, 4), committed(second_topic, 5)}}});
    rig.write(1, {GroupStored{"g", as_bytes("two")}, GroupRemoved{"old"}});
    rig.crash();
    for (int round = 0; round < 2; ++round) {
      CAPTURE(round);
      const auto recovered = rig.recover();
      REQUIRE(recovered.has_value());
      CHECK(recovered->records == 7);
      CHECK(recovered->journals.size() == 2);
      CHECK_FALSE(recovered->other_shards(2));
      CHECK(recovered->other_shards(1));
      CHECK(recovered->other_shards(3));
      CHECK(rig.catalog->image()->find("orders")->id == first_topic.topic);
      CHECK(rig.catalog->next_sequence() == 100);
      CHECK(rig.waiting() == std::vector<Sequence>{8});
      CHECK(rig.total() == 1);
      CHECK(rig.logs.logs[first_topic].batches == std::map<Offset, Offset>{{0, 3}});
      CHECK(rig.logs.starts[first_topic] == 2);
      CHECK(rig.logs.answered.back() == 99);
      CHECK(rig.logs.fenced.empty());
      // There is no topic `second_topic`.
      CHECK(rig.groups() == std::map<std::string, std::string>{{"g", "two 0:4"}});
    }
  }

  TEST_CASE(
      "a pending record comes with its place: its journal record, and which operation of that") {
    RecoveryRig rig;
    rig.open_journals({}, 2);
    const Buffer batches = batch_at(0, 3);
    const Lsn first =
        rig.write(0, {topic(first_topic, "orders"), pending_added(first_topic, 1, 10)});
    const Lsn second =
        rig.write(0, {append(first_topic, batches), gone(first_topic, 1, 10),
                      pending_added(second_topic, 2, 20), pending_added(first_topic, 3, 30)});
    const Lsn third = rig.write(1, {pending_added(first_topic, 4, 40)});
    rig.crash();
    REQUIRE(rig.recover().has_value());
    const std::uint32_t epoch = *rig.store->epoch(2);
    CHECK(rig.places ==
          std::vector<JournalPlace>{{first, 1, epoch},
                                    {second, 1, epoch},
                                    {second, 3, epoch},  // There is no `second_topic`.
                                    {third, 0, epoch}});
  }

  TEST_CASE("a log that is ahead of the checkpoint gets nothing twice") {
    RecoveryRig rig;
    rig.open_journals({}, 1);
    rig.write(0, {topic(first_topic, "orders")});
    REQUIRE(rig.catalog->apply(topic(first_topic, "orders")).has_value());
    REQUIRE(rig.meta->flush().has_value());
    rig.logs.logs[first_topic].batches = {{0, 10}};
    rig.note_checkpoint(0);
    const Buffer second = batch_at(10, 5), third = batch_at(15, 1);
    rig.write(0, {append(first_topic, second)});
    rig.write(0, {append(first_topic, third)});
    // The first of them was written to the segment before the crash.
    rig.logs.logs[first_topic].batches = {{0, 10}, {10, 15}};
    rig.crash();
    REQUIRE(rig.recover().has_value());
    CHECK(rig.logs.logs[first_topic].batches ==
          std::map<Offset, Offset>{{0, 10}, {10, 15}, {15, 16}});
    CHECK(rig.logs.cuts == std::vector{first_topic});
  }

  TEST_CASE("batches that retention has taken are not asked for again") {
    RecoveryRig rig;
    rig.open_journals({}, 1);
    Buffer two = batch_at(0, 5);
    append_bytes(two, batch_at(5, 5));
    const Buffer third = batch_at(10, 2);
    rig.write(0, {topic(first_topic, "orders"), append(first_topic, two)});
    rig.write(0, {append(first_topic, third)});
    rig.logs.logs[first_topic].first = 5;  // The border lies within one journal record.
    rig.crash();
    REQUIRE(rig.recover().has_value());
    CHECK(rig.logs.logs[first_topic].batches == std::map<Offset, Offset>{{5, 10}, {10, 12}});
    CHECK(rig.logs.fenced.empty());
  }

  TEST_CASE("a log that lost what a checkpoint vouched for is fenced and the rest goes on") {
    RecoveryRig rig;
    rig.open_journals({}, 1);
    const Buffer far = batch_at(10, 5), farther = batch_at(15, 5), near = batch_at(0, 1);
    rig.write(
        0, {topic(first_topic, "orders"), topic(second_topic, "others"), append(first_topic, far)});
    rig.write(0, {append(first_topic, farther), append(second_topic, near),
                  pending_added(second_topic, 1, 10)});
    rig.logs.logs[first_topic].batches = {{0, 4}};
    rig.crash();
    const auto recovered = rig.recover();
    REQUIRE(recovered.has_value());
    CHECK(recovered->fenced == 1);
    CHECK(rig.logs.fenced.size() == 1);
    CHECK(rig.logs.fenced[first_topic].find("4") != std::string::npos);
    CHECK(rig.logs.fenced[first_topic].find("10") != std::string::npos);
    CHECK(rig.logs.logs[first_topic].batches == std::map<Offset, Offset>{{0, 4}});
    CHECK(rig.logs.logs[second_topic].batches == std::map<Offset, Offset>{{0, 1}});
    CHECK(rig.waiting() == std::vector<Sequence>{1});
  }

  TEST_CASE("nothing of a deleted topic comes back, even under its name") {
    RecoveryRig rig;
    rig.open_journals({}, 2);
    const Buffer batches = batch_at(0, 1);
    rig.write(0, {topic(first_topic, "orders")});
    const Lsn both =
        rig.write(1, {append(first_topic, batches), pending_added(first_topic, 1, 10)});
    rig.write(0, {TopicDeleted{first_topic.topic}});
    rig.write(0, {topic(second_topic, "orders")});
    rig.write(1, {pending_added(second_topic, 2, 20)});
    REQUIRE(rig.catalog->apply(topic(first_topic, "orders")).has_value());
    rig.tell(1, both, {append(first_topic, batches), pending_added(first_topic, 1, 10)});
    REQUIRE(rig.meta->flush().has_value());
    REQUIRE(rig.store->flush().has_value());  // It had been flushed before it was deleted.
    rig.crash();
    REQUIRE(rig.recover().has_value());
    CHECK(rig.logs.cuts.empty());
    CHECK(rig.waiting() == std::vector<Sequence>{2});
    CHECK(rig.total() == 1);
    CHECK(rig.catalog->image()->find("orders")->id == second_topic.topic);
  }

  TEST_CASE("pending records of a topic that does not exist at the end are dropped") {
    RecoveryRig rig;
    rig.open_journals({}, 2);
    rig.write(0, {topic(second_topic, "others"), pending_added(second_topic, 2, 20)});
    // Another shard kept it after the topic was gone here, and both were flushed.
    rig.tell(1, 0, {pending_added(first_topic, 1, 10)});
    REQUIRE(rig.store->flush().has_value());
    rig.crash();
    REQUIRE(rig.recover().has_value());
    CHECK(rig.waiting() == std::vector<Sequence>{2});
    CHECK(rig.total() == 1);
  }

  TEST_CASE("a number that a record carries is not given out again") {
    RecoveryRig rig;
    rig.open_journals({}, 1);
    rig.write(0, {topic(first_topic, "orders"), SequencesGiven{5}});
    rig.write(0, {pending_added(first_topic, 41, 10)});
    rig.crash();
    const auto recovered = rig.recover();
    REQUIRE(recovered.has_value());
    CHECK(rig.catalog->next_sequence() == 42);
    rig.open_journals(*recovered, 1);
    auto at_once = gone(first_topic, 50, 10);
    at_once.how = RemovalReason::delivered_on_arrival;
    rig.write(0, {at_once});
    rig.crash();
    REQUIRE(rig.recover().has_value());
    CHECK(rig.catalog->next_sequence() == 51);
  }

  TEST_CASE("a disk that fails and a damaged journal end the recovery with a line that names it") {
    RecoveryRig rig;
    rig.open_journals({}, 1);
    const Buffer batches = batch_at(0, 1);
    rig.write(0, {topic(first_topic, "orders"), append(first_topic, batches)});
    rig.write(0, {pending_added(first_topic, 1, 10)});
    rig.write(0, {pending_added(first_topic, 2, 10)});
    rig.crash();
    rig.logs.fails = true;
    const auto failed = rig.recover();
    REQUIRE_FALSE(failed.has_value());
    CHECK(failed.error().code == Errc::io);
    rig.logs.fails = false;

    // The second round; the third one says that it was synced.
    const auto files = rig.disk.list("journal/0");
    for (const auto& file : *files) {
      if (!parse_journal_file_name(file.name)) continue;
      const Buffer garbage(64, 0xee);
      rig.disk.poke("journal/0/" + file.name, 2 * 4096 + 80, garbage);
      break;
    }
    const auto damaged = rig.recover();
    REQUIRE_FALSE(damaged.has_value());
    CHECK(damaged.error().code == Errc::corrupt);
    CHECK(damaged.error().message.find("journal/0") != std::string::npos);
  }

  TEST_CASE("after another number of shards an old journal cannot bring back what is gone") {
    RecoveryRig rig;
    rig.open_journals({}, 3);
    rig.write(0, {topic(first_topic, "orders")});
    rig.write(2, {pending_added(first_topic, 1, 10)});  // The partition was shard 2's.
    rig.crash();
    auto recovered = rig.recover();
    REQUIRE(recovered.has_value());
    REQUIRE(recovered->other_shards(1));
    rig.settle(1, *recovered);
    CHECK(recovered->journals.size() == 1);
    CHECK(*journal_shards(rig.disk, "journal") == std::vector<std::uint32_t>{0});
    CHECK_FALSE(recovered->other_shards(1));

    rig.open_journals(*recovered, 1);
    const std::vector<Operation> delivered{gone(first_topic, 1, 10)};
    const Lsn lsn = rig.write(0, delivered);  // Now it is shard 0's.
    for (const bool told : {false, true}) {
      if (told) rig.tell(0, lsn, delivered);
      rig.crash();
      recovered = rig.recover();
      REQUIRE(recovered.has_value());
      CHECK(recovered->records == 1);
      CHECK(rig.waiting().empty());
      CHECK(rig.total() == 0);
    }
  }

  TEST_CASE(
      "a group's last state wins when --shards changes back and forth, wherever a start dies") {
    RecoveryRig rig;
    rig.open_journals({}, 2);
    rig.write(0, {topic(first_topic, "orders")});
    // Each number of shards gives the group to another journal.
    std::uint32_t shards = 2, owner = 1;
    Offset next = 0;
    for (const std::uint32_t then : {3, 1, 2, 3, 2}) {
      for (int i = 0; i < 3; ++i) {
        ++next;
        rig.write(owner, {GroupStored{"g", as_bytes("v")},
                          OffsetsCommitted{"g", {committed(first_topic, next)}}});
      }
      rig.crash();
      for (int died = 0; died < 2; ++died) {
        auto recovered = rig.recover();
        REQUIRE(recovered.has_value());
        CHECK(rig.groups()["g"] == fmt::format("v 0:{}", next));
        REQUIRE(recovered->other_shards(then));
        if (died == 0) {
          rig.crash();
          continue;
        }
        rig.settle(then, *recovered);
        rig.open_journals(*recovered, then);
      }
      shards = then;
      owner = (owner + 1) % shards;
    }
  }

  TEST_CASE(
      "over crashes, checkpoints and other numbers of shards nothing is lost and nothing "
      "comes twice") {
    for (int seed = 1; seed <= tries(3); ++seed) {
      CAPTURE(seed);
      RandomShards run(static_cast<std::uint64_t>(seed));
      for (int step = 0; step < tries(300); ++step) {
        const auto kind = run.random.below(100);
        if (kind < 20) {
          run.change_group(step);
        } else if (kind < 90) {
          run.write_record();
        } else if (kind < 95) {
          run.checkpoint_one();
        } else {
          run.crash();
        }
      }
    }
  }
}

}  // namespace
}  // namespace tarry::storage
