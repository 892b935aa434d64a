#include "storage/bucket_store.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "scratch.h"
#include "storage/bucket_tables.h"
#include "storage/database.h"
#include "storage/pending_dump.h"
#include "storage/store_generation.h"

namespace tarry::storage {

namespace {

constexpr std::int64_t hour_ms = 3'600'000;
const WallTime begin = bucket_of(BucketLevel::month, from_ms(1'795'000'000'000)).start;
const Bucket hour = bucket_of(BucketLevel::hour, begin);
const Bucket month = bucket_of(BucketLevel::month, begin);
const TopicPartition orders{test_topic(1), 0};
const TopicPartition others{test_topic(2), 3};

WallTime after(std::int64_t ms) {
  return begin + std::chrono::milliseconds(ms);
}

struct Record {
  Sequence sequence;
  std::int64_t due;  // After `begin`.
  TopicPartition partition = orders;
  std::string record = "record";
};

struct StoreFixture {
  ScratchDirectory scratch;
  BucketStore::Limits limits;
  std::unique_ptr<BucketStore> store;
  Owner owner{0, 1};
  std::uint64_t lsn = 100;
  std::uint32_t epoch = 0;

  explicit StoreFixture(BucketStore::Limits of = {}) : limits(of) {
    auto made = BucketStore::make(scratch.path("db"), limits);
    REQUIRE(made.has_value());
    store = std::move(*made);
  }
  // As after kill -9: what was flushed (by whom ever) is there.
  void crash() {
    store.reset();
    auto opened = BucketStore::open(scratch.path("db"), limits);
    REQUIRE(opened.has_value());
    store = std::move(*opened);
  }

  static HomeWrite change(const Bucket& home, const std::vector<Record>& records,
                          BucketLevel level) {
    HomeWrite out;
    out.home = home;
    std::map<Bucket, Chunk> chunks;
    for (const auto& record : records) {
      const Bucket bucket = bucket_of(level, after(record.due));
      PendingView view;
      view.key = {after(record.due), record.sequence};
      view.first = view.key.due;
      view.partition = record.partition;
      view.id = "id";
      view.record = as_bytes(record.record);
      chunks.try_emplace(bucket, bucket).first->second.append(view);
      ++out.counts[record.partition.topic];
    }
    for (auto& [bucket, chunk] : chunks)
      out.parts.push_back({std::make_shared<const Chunk>(std::move(chunk)), {}});
    return out;
  }
  // Adds `records` to `home` and removes `gone` from it.
  std::vector<ChunkKey> write(const Bucket& home, const std::vector<Record>& records,
                              std::vector<Sequence> gone = {},
                              BucketLevel level = BucketLevel::hour) {
    HomeWrite out = change(home, records, level);
    out.counts[orders.topic] -= static_cast<std::int64_t>(gone.size());
    out.gone = std::move(gone);
    out.place = {lsn += 10, 0, epoch};
    const auto keys = store->write(owner, out);
    REQUIRE(keys.has_value());
    return *keys;
  }

  // All that is pending in an hour, by pieces; each is at most of `max_bytes` unless it is a chunk.
  std::vector<Sequence> load(std::size_t max_bytes = 1u << 30, const ChunkKeys& have = {},
                             std::size_t* largest = nullptr) {
    std::vector<Sequence> out;
    PendingKey from{hour.start, 0};
    std::map<PendingKey, Sequence> waiting;
    ChunkKeys known = have;
    std::size_t most = 0;
    while (from.due < hour.end()) {
      const auto piece = store->next_piece(owner, hour, from, max_bytes, known);
      REQUIRE(piece.has_value());
      if (!piece->loaded) continue;
      for (const auto& loaded : piece->chunks) {
        known.insert(loaded.key);
        for (std::size_t i = 0; i < loaded.chunk->size(); ++i) {
          const PendingKey key = loaded.chunk->key_at(i);
          if (loaded.live[i]) CHECK(waiting.emplace(key, key.sequence).second);
        }
      }
      most = std::max(most, waiting.size());
      REQUIRE(from < piece->until);
      from = piece->until;
      while (!waiting.empty() && waiting.begin()->first < from) {
        out.push_back(waiting.begin()->second);
        waiting.erase(waiting.begin());
      }
    }
    CHECK(waiting.empty());
    if (largest != nullptr) *largest = most;
    return out;
  }
  bool is_pending(std::int64_t due, Sequence sequence) {
    const PendingKey key{after(due), sequence};
    const auto found = store->find(owner, std::span(&key, 1));
    REQUIRE(found.has_value());
    return found->front().has_value();
  }
  std::vector<Sequence> listed(PendingQuery query = {}) {
    std::vector<Sequence> out;
    for (;;) {
      const auto page = store->page(owner, query);
      REQUIRE(page.has_value());
      CHECK(page->records.size() <= query.limit);
      for (const auto& record : page->records) out.push_back(record.key.sequence);
      if (!page->next) return out;
      query.after = page->next;
    }
  }
  // Lists the records of all owners; `between` is called after each page.
  std::vector<Sequence> listed_of_all(
      PendingQuery query = {}, const std::function<void()>& between = [] {}) {
    std::vector<Sequence> out;
    for (;;) {
      const auto page = store->page(query);
      REQUIRE(page.has_value());
      CHECK(page->records.size() <= query.limit);
      for (const auto& record : page->records) out.push_back(record.key.sequence);
      between();
      if (!page->next) return out;
      if (query.after) REQUIRE(*query.after < *page->next);
      query.after = page->next;
    }
  }
  std::map<WallTime, std::uint64_t> counted(const PendingQuery& query, std::chrono::milliseconds by,
                                            int* pieces = nullptr) {
    std::map<WallTime, std::uint64_t> out;
    for (std::optional<WallTime> from = query.from; from;) {
      const auto piece = store->count(query, *from, by);
      REQUIRE(piece.has_value());
      for (const auto& [start, count] : piece->counts) out[start] += count;
      if (piece->next) REQUIRE(*from < *piece->next);
      from = piece->next;
      if (pieces != nullptr) ++*pieces;
    }
    return out;
  }
  std::uint64_t total(const TopicPartition& of = orders) {
    const auto totals = store->totals();
    REQUIRE(totals.has_value());
    const auto at = totals->find(of.topic);
    return at == totals->end() ? 0 : at->second;
  }
};

// Some hundreds of records of several shards, near and in a month that has not been dealt out, of
// which one topic's are dropped and some are moved.
struct Crowd {
  StoreFixture f;
  std::map<PendingKey, TopicPartition> pending;

  explicit Crowd(BucketStore::Limits limits) : f(limits) {
    f.epoch = f.store->epoch(2).value();
    SeededRandom random(7);
    std::map<std::pair<std::uint16_t, Bucket>, std::vector<Record>> writes;
    for (Sequence s = 1; s <= 600; ++s) {
      const bool is_far = s % 5 == 0;
      const auto due =
          is_far ? 30 * 24 * hour_ms + static_cast<std::int64_t>(random.below(30 * 24 * hour_ms))
                 : static_cast<std::int64_t>(random.below(6 * hour_ms));
      const TopicPartition partition =
          s % 10 == 1 ? others : TopicPartition{orders.topic, static_cast<PartitionIndex>(s % 12)};
      const Bucket home = bucket_of(is_far ? BucketLevel::month : BucketLevel::hour, after(due));
      writes[{owner_of(2)(partition), home}].push_back({s, due, partition});
      if (partition != others) pending[{after(due), s}] = partition;
    }
    for (const auto& [of, records] : writes) {
      f.owner = {of.first, 2};
      f.write(of.second, records, {}, of.second.level);
    }
    // Every twentieth goes to another hour, where it was before it is gone from its own.
    const auto before = pending;
    for (const auto& [key, partition] : before) {
      if (key.sequence % 20 != 3) continue;
      const std::int64_t due = (key.due - begin).count() / 2 + 17;
      f.owner = {owner_of(2)(partition), 2};
      f.write(bucket_of(BucketLevel::hour, key.due), {}, {key.sequence});
      f.write(bucket_of(BucketLevel::hour, after(due)), {{key.sequence, due, partition}});
      pending.erase(key);
      pending[{after(due), key.sequence}] = partition;
    }
    REQUIRE(f.store->drop_topic(others.topic).has_value());
  }

  static BucketStore::OwnerOf owner_of(std::uint16_t shards) {
    return [shards](const TopicPartition& of) {
      return static_cast<std::uint16_t>(of.partition % shards);
    };
  }
  std::vector<Sequence> in_order() const {
    std::vector<Sequence> out;
    for (const auto& [key, partition] : pending) out.push_back(key.sequence);
    return out;
  }
};

void check_dropped(StoreFixture& f, std::size_t marks) {
  CHECK(f.store->tables().dropped()->size() == marks);
}

TEST_SUITE("bucket store") {
  TEST_CASE("records that were written are read back in due order, by key, and on pages") {
    StoreFixture f;
    f.write(hour, {{5, 200}, {2, 100, others}, {9, 100}, {3, 3'599'999}});
    f.write(hour, {{4, 100}});
    CHECK(f.load() == std::vector<Sequence>{2, 4, 9, 5, 3});
    CHECK(f.is_pending(100, 9));
    CHECK_FALSE(f.is_pending(101, 9));
    CHECK_FALSE(f.is_pending(100, 8));
    CHECK(f.listed() == std::vector<Sequence>{2, 4, 9, 5, 3});
    CHECK(f.listed({.limit = 2}) == std::vector<Sequence>{2, 4, 9, 5, 3});
    CHECK(f.listed({.topic = others.topic}) == std::vector<Sequence>{2});
    CHECK(f.listed({.hidden = {others.topic}}) == std::vector<Sequence>{4, 9, 5, 3});
    CHECK(f.listed({.limit = 1, .hidden = {orders.topic}}) == std::vector<Sequence>{2});
    CHECK(f.listed({.from = after(101), .until = after(3'599'999)}) == std::vector<Sequence>{5});
    CHECK(f.total() == 4);
    CHECK(f.total(others) == 1);
    const PendingKey key{after(200), 5};
    const auto found = f.store->find(f.owner, std::span(&key, 1));
    CHECK(as_text(found->front()->record) == "record");
    CHECK(found->front()->partition == orders);
    CHECK(found->front()->id == "id");
  }

  TEST_CASE("a crash keeps a write of several families whole or not at all") {
    int flushed_by_itself = 0;
    for (int writes = 20; writes <= 200; writes += 60) {
      StoreFixture f({.write_buffer_bytes = 64u << 10});  // RocksDB flushes when it likes.
      for (Sequence s = 1; s <= static_cast<Sequence>(writes); ++s) {
        const std::vector<Sequence> gone(s > 1 ? 1 : 0, s - 1);
        f.write(hour, {{s, static_cast<std::int64_t>(s), orders, std::string(2'000, 'b')}}, gone);
      }
      f.crash();
      const auto places = f.store->places(0);
      const Sequence last = places->empty() ? 0 : (places->at(hour).lsn - 100) / 10;
      flushed_by_itself += last > 0;
      // All of the last write that is there, and nothing of the next one.
      CHECK(f.load() == (last > 0 ? std::vector<Sequence>{last} : std::vector<Sequence>{}));
      CHECK(f.total() == (last > 0 ? 1 : 0));
    }
    CHECK(flushed_by_itself > 0);
  }

  TEST_CASE("a write states how far its home is written, so a replay can skip the rest") {
    StoreFixture f;
    f.write(hour, {{1, 100}});
    f.write(bucket_of(BucketLevel::hour, after(hour_ms)), {{2, hour_ms}});
    REQUIRE(f.store->flush().has_value());
    f.write(hour, {}, {1});  // Lost.
    f.crash();
    const auto places = f.store->places(0);
    CHECK(places->at(hour) == JournalPlace{110, 0});
    CHECK(places->at(bucket_of(BucketLevel::hour, after(hour_ms))) == JournalPlace{120, 0});
    CHECK(f.is_pending(100, 1));
  }

  TEST_CASE("a write in several batches that a crash cut short leaves nothing") {
    const std::string body(2'000, 'b');
    StoreFixture f({.step_bytes = 20'000});
    f.write(hour, {{1, 100}});
    REQUIRE(f.store->flush().has_value());
    // Its first batches, as they stand before the last one: another family cannot be flushed alone,
    // so the crash is put between them by taking the finished place away again.
    std::vector<Record> many;
    for (Sequence s = 10; s < 110; ++s)
      many.push_back({s, static_cast<std::int64_t>(s) * 60'000 % hour_ms, orders, body});
    const auto keys = f.write(hour, many, {}, BucketLevel::minute);
    CHECK(keys.size() > 10);
    Rocks& rocks = *f.store->tables().rocks;
    rocksdb::WriteBatch undo;
    undo.Put(rocks.family(bucket_family::rows), slice(home_key(row::place, 0, hour)),
             slice(place_value({{110, 0}, 1, keys})));
    REQUIRE(rocks.write(undo).has_value());
    REQUIRE(f.store->flush().has_value());
    f.crash();
    CHECK(f.load() == std::vector<Sequence>{1});
    CHECK(f.store->places(0)->at(hour) == JournalPlace{110, 0});
    f.write(hour, many, {}, BucketLevel::minute);  // The replay.
    CHECK(f.load().size() == 101);
  }

  TEST_CASE("an hour that is dealt is there once, whatever a crash cuts off") {
    const std::string body(1'000, 'b');
    StoreFixture f({.step_bytes = 100'000});
    std::vector<Record> many;
    for (Sequence s = 1; s <= 1'000; ++s)
      many.push_back({s, static_cast<std::int64_t>(s * 7'919 % hour_ms), orders, body});
    for (std::size_t i = 0; i < many.size(); i += 100)
      f.write(hour, {many.begin() + static_cast<std::ptrdiff_t>(i),
                     many.begin() + static_cast<std::ptrdiff_t>(i + 100)});
    REQUIRE(f.store->flush().has_value());
    const auto expected = f.load();
    CHECK(expected.size() == 1'000);
    for (int steps = 1;; ++steps) {
      const auto more = f.store->deal(f.owner, hour, {});
      REQUIRE(more.has_value());
      if (steps % 2 == 0) REQUIRE(f.store->flush().has_value());
      f.crash();  // An odd step is lost, and its sources are there again.
      CHECK(f.load() == expected);
      CHECK(f.total() == 1'000);
      if (!*more && steps % 2 == 0) break;
      REQUIRE(steps < 100);
      if (steps % 2 == 1) REQUIRE(f.store->deal(f.owner, hour, {}).has_value());
      if (steps % 2 == 1) REQUIRE(f.store->flush().has_value());
    }
  }

  TEST_CASE("a chunk that comes while its bucket is dealt is not deleted with the others") {
    StoreFixture f;
    const auto known = f.write(hour, {{1, 100}, {2, 60'000}});
    const auto late = f.write(hour, {{3, 100}});
    // The caller has the late one in memory: it stays where it is.
    CHECK_FALSE(*f.store->deal(f.owner, hour, ChunkKeys(late.begin(), late.end())));
    CHECK(f.load(1u << 30, ChunkKeys(late.begin(), late.end())) == std::vector<Sequence>{1, 2});
    CHECK(f.load() == std::vector<Sequence>{1, 3, 2});
    CHECK(f.is_pending(100, 3));
  }

  TEST_CASE("ids that ended long ago are removed by a compaction, and not earlier") {
    StoreFixture f;
    const auto tell = [&](const std::string& id, const std::vector<ScheduleEvent>& events) {
      const IdChange change{orders, id, events};
      REQUIRE(f.store->write({}, std::span(&change, 1)).has_value());
    };
    const ScheduleEvent scheduled{
        ScheduleEvent::Kind::scheduled, after(0), {after(100), 1}, after(100), -1};
    ScheduleEvent delivered{
        ScheduleEvent::Kind::delivered, after(100), {after(100), 1}, after(100), 42};
    tell("ended", {scheduled});
    tell("ended", {delivered});
    tell("pending", {scheduled});
    CHECK(f.store->id_events(orders, "ended")->back().offset == 42);
    CHECK(f.store->id_events(orders, "ended")->size() == 2);
    CHECK(f.store->id_events(orders, "unknown")->empty());
    CHECK(f.store->id_events(others, "ended")->empty());

    Rocks& rocks = *f.store->tables().rocks;
    const auto compact = [&](WallTime now) {
      REQUIRE(f.store->reclaim(1, now).has_value());
      rocksdb::CompactRangeOptions all;
      all.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
      REQUIRE(rocks.db->CompactRange(all, rocks.family(bucket_family::ids), nullptr, nullptr).ok());
    };
    compact(after(100) + std::chrono::milliseconds(hour_ms - 1));
    CHECK(f.store->id_events(orders, "ended")->size() == 2);
    compact(after(100) + std::chrono::milliseconds(hour_ms));
    CHECK(f.store->id_events(orders, "ended")->empty());
    CHECK(f.store->id_events(orders, "pending")->size() == 1);
  }

  TEST_CASE("the events of an id are the last ones, and a replay does not double them") {
    StoreFixture f;
    std::vector<ScheduleEvent> all;
    for (int i = 0; i < static_cast<int>(max_id_events) + 4; ++i)
      all.push_back({i % 2 == 0 ? ScheduleEvent::Kind::scheduled : ScheduleEvent::Kind::replaced,
                     after(i),
                     {after(1'000), static_cast<Sequence>(i / 2)},
                     after(1'000),
                     -1});
    const auto tell = [&](std::size_t from) {
      for (std::size_t i = from; i < all.size(); ++i) {
        const IdChange change{orders, "id", {&all[i], 1}};
        REQUIRE(f.store->write({}, std::span(&change, 1)).has_value());
      }
    };
    tell(0);
    REQUIRE(f.store->flush().has_value());
    tell(5);
    const auto events = f.store->id_events(orders, "id");
    REQUIRE(events->size() == max_id_events);
    for (std::size_t i = 0; i < max_id_events; ++i) CHECK((*events)[i] == all[i + 4]);
  }

  TEST_CASE("many ids are written at once, in any order") {
    StoreFixture f;
    std::vector<std::string> ids;
    std::vector<ScheduleEvent> events;
    for (int i = 0; i < 500; ++i) {
      ids.push_back("order-" + std::to_string(i * 7919 % 1'000));
      events.push_back({ScheduleEvent::Kind::scheduled,
                        after(0),
                        {after(9), static_cast<Sequence>(i)},
                        after(9),
                        -1});
    }
    std::vector<IdChange> changes;
    for (std::size_t i = 0; i < ids.size(); ++i)
      changes.push_back({i % 2 == 0 ? orders : others, ids[i], {&events[i], 1}});
    // Two changes of one id are taken in their order.
    const ScheduleEvent later{
        ScheduleEvent::Kind::cancelled, after(1), {after(9), 0}, after(9), -1};
    changes.push_back({orders, ids[0], {&later, 1}});
    REQUIRE(f.store->write({}, changes).has_value());
    for (int flushed = 0; flushed < 2; ++flushed) {
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto told = f.store->id_events(changes[i].partition, ids[i]).value();
        REQUIRE(told.size() == (i == 0 ? 2 : 1));
        CHECK(told[0] == events[i]);
        if (i == 0) CHECK(told[1] == later);
      }
      CHECK(f.store->id_events(orders, "order-unknown").value().empty());
      REQUIRE(f.store->flush().has_value());
    }
  }

  TEST_CASE("the last events of an id are kept as they were told, whatever is merged with what") {
    const auto merge = id_merge();
    const auto* const one_by_one =
        dynamic_cast<const rocksdb::AssociativeMergeOperator*>(merge.get());
    REQUIRE(one_by_one != nullptr);
    const auto merged = [&](const std::optional<Buffer>& before, const Buffer& more) {
      const auto known = before ? slice(*before) : rocksdb::Slice();
      std::string out = "what was there";
      const bool taken =
          one_by_one->Merge({}, before ? &known : nullptr, slice(more), &out, nullptr);
      return taken ? std::optional(Buffer(out.begin(), out.end())) : std::nullopt;
    };
    std::mt19937_64 random(7);
    std::vector<ScheduleEvent> all;
    for (Sequence i = 0; i < 60; ++i)
      all.push_back(
          {static_cast<ScheduleEvent::Kind>(i % 6), after(1), {after(2), i}, after(3), -1});
    const auto some = [&](std::size_t most) {
      std::vector<ScheduleEvent> out;
      for (auto left = random() % (most + 1); left > 0; --left)
        out.push_back(all[random() % all.size()]);
      return out;
    };
    for (int i = 0; i < 2'000; ++i) {
      const auto before = some(max_id_events), more = some(i % 2 == 0 ? 2 : max_id_events);
      // The model: each is told after the other.
      auto expected = before;
      for (const auto& event : more) {
        std::erase(expected, event);
        expected.push_back(event);
      }
      if (expected.size() > max_id_events)
        expected.erase(expected.begin(), expected.end() - std::ptrdiff_t{max_id_events});
      const auto told = merged(encode_events(before), encode_events(more));
      REQUIRE(told);
      CHECK(decode_events(*told) == expected);
      if (before.empty()) CHECK(merged(std::nullopt, encode_events(more)) == told);
    }
    Buffer damaged = encode_events(std::span(all).first(2));
    damaged.pop_back();
    CHECK_FALSE(merged(std::nullopt, damaged));
    CHECK_FALSE(merged(damaged, encode_events(std::span(all).first(1))));
    Buffer unknown_kind = encode_events(std::span(all).first(2));
    unknown_kind[unknown_kind.size() / 2] = 6;
    CHECK_FALSE(merged(unknown_kind, encode_events(std::span(all).first(1))));
  }

  TEST_CASE("the tables of a hundred million ids can all be open at once") {
    StoreFixture f;
    constexpr std::uint64_t count = 20'000;
    const ScheduleEvent event{
        ScheduleEvent::Kind::scheduled, after(0), {after(9), 1}, after(9), -1};
    for (std::uint64_t i = 0; i < count; ++i) {
      // As long as a UUID, and as random.
      const std::string id =
          fmt::format("{:016x}-{:016x}", i * 0x9e3779b97f4a7c15u, i * 0xc2b2ae3d27d4eb4fu);
      const IdChange change{orders, id, {&event, 1}};
      REQUIRE(f.store->write({}, std::span(&change, 1)).has_value());
    }
    REQUIRE(f.store->flush().has_value());
    Rocks& rocks = *f.store->tables().rocks;
    Family* const ids = rocks.family(bucket_family::ids);
    std::uint64_t bytes = 0;
    REQUIRE(rocks.db->GetIntProperty(ids, "rocksdb.total-sst-files-size", &bytes));
    const auto tables =
        bytes * (100'000'000 / count) / rocks.db->GetOptions(ids).target_file_size_base;
    // The others are for chunks, which are few and large.
    CHECK(tables < static_cast<std::uint64_t>(f.limits.max_open_files) * 3 / 4);
  }

  TEST_CASE("many ids are asked for at once: each is told its last event, and unknown ones none") {
    StoreFixture f;
    std::vector<std::string> ids;
    for (int i = 0; i < 1'000; ++i) ids.push_back("order-" + std::to_string(i * 7919 % 1'000));
    const auto tell = [&](const std::string& id, Sequence sequence) {
      const ScheduleEvent event{
          ScheduleEvent::Kind::scheduled, after(0), {after(9), sequence}, after(9), -1};
      const IdChange change{orders, id, {&event, 1}};
      REQUIRE(f.store->write({}, std::span(&change, 1)).has_value());
    };
    for (std::size_t i = 0; i < ids.size(); i += 3) tell(ids[i], i);
    REQUIRE(f.store->flush().has_value());
    for (std::size_t i = 0; i < ids.size(); i += 6) tell(ids[i], i + 10'000);

    const std::vector<std::string_view> asked(ids.begin(), ids.end());
    const auto last = f.store->last_events(orders, asked);
    REQUIRE(last->size() == ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto& event = (*last)[i];
      REQUIRE(event.has_value() == (i % 3 == 0));
      if (event) CHECK(event->key.sequence == (i % 6 == 0 ? i + 10'000 : i));
    }
    CHECK(f.store->last_events(orders, {})->empty());
    const auto knows_none = [&](const TopicPartition& partition) {
      const auto events = f.store->last_events(partition, asked);
      return std::ranges::none_of(*events, [](const auto& event) { return event.has_value(); });
    };
    CHECK(knows_none(others));
    REQUIRE(f.store->drop_topic(orders.topic).has_value());
    CHECK(knows_none(orders));
  }

  TEST_CASE("a bucket of which most is cancelled is rewritten without it") {
    const std::string body(1'000, 'b');
    StoreFixture f({.step_bytes = 30'000});
    std::vector<Record> many;
    std::vector<Sequence> some, most, left;
    for (Sequence s = 1; s <= 100; ++s) {
      many.push_back({s, static_cast<std::int64_t>(s), orders, body});
      (s <= 50 ? some : s <= 90 ? most : left).push_back(s);
    }
    f.write(hour, {many.begin(), many.begin() + 60});
    f.write(hour, {many.begin() + 60, many.end()}, some);
    const auto sweep = [&](std::uint64_t gone) {
      std::uint64_t freed = 0;
      std::optional<ChunkKey> after;
      std::size_t steps = 0;
      do {
        const auto swept = f.store->sweep(f.owner, hour, after, {}, gone);
        REQUIRE(swept.has_value());
        after = swept->next;
        freed += swept->freed;
        REQUIRE(++steps < 100);
      } while (after);
      return freed;
    };
    CHECK_FALSE(f.store->sweep(f.owner, hour, {}, {}, some.size() / 2)->worth);
    f.write(hour, {}, most);
    const auto freed = sweep(90);
    CHECK(freed > 70'000);
    CHECK(freed < 95'000);
    CHECK(f.load() == left);
    CHECK(f.total() == 10);
    CHECK(sweep(90) == 0);
  }

  TEST_CASE("a store whose manifest lost its end is of an older flush, and db/meta knows it") {
    StoreFixture f;
    auto meta = Database::make(f.scratch.path("meta"));
    REQUIRE(meta.has_value());
    for (std::int64_t i = 1; i <= 3; ++i) {
      f.write(hour, {{static_cast<Sequence>(i), 100 * i}});
      REQUIRE(f.store->flush().has_value());
    }
    CHECK(f.store->generation() == 3);
    REQUIRE(f.store->flush().has_value());
    CHECK(f.store->generation() == 3);  // There was nothing to flush.
    REQUIRE(note_generation(**meta, 3).has_value());
    REQUIRE(note_generation(**meta, 2).has_value());  // Told late, by another shard.
    CHECK(check_generation(**meta, 3, "db/pending").has_value());
    CHECK(check_generation(**meta, 4, "db/pending").has_value());
    const auto older = check_generation(**meta, 2, "db/pending");
    REQUIRE_FALSE(older.has_value());
    CHECK(older.error().code == Errc::corrupt);
    CHECK(older.error().message.contains("db/pending: its newest part is missing"));
    f.crash();
    CHECK(f.store->generation() == 3);
  }

  TEST_CASE("the chunks of a dropped topic go when their home is swept, and others stay") {
    StoreFixture f;
    f.write(hour, {{1, 100}, {2, 200}});
    f.write(hour, {{3, 300, others}});
    REQUIRE(f.store->drop_topic(orders.topic).has_value());
    const auto swept = f.store->sweep(f.owner, hour, {}, {}, 1'000);
    REQUIRE(swept.has_value());
    CHECK(swept->freed > 0);
    CHECK(f.load() == std::vector<Sequence>{3});
    CHECK(f.store->sweep(f.owner, hour, {}, {}, 1'000)->freed == 0);
  }

  TEST_CASE("records of a dropped topic are seen by nobody, and its mark goes after them") {
    StoreFixture f;
    f.write(hour, {{1, 100}, {2, 200, others}});
    // Once more: a replay drops it again, and then there is nothing to count.
    for (int times = 0; times < 2; ++times) REQUIRE(f.store->drop_topic(orders.topic).has_value());
    const auto check = [&] {
      CHECK_FALSE(f.is_pending(100, 1));
      CHECK(f.load() == std::vector<Sequence>{2});
      CHECK(f.listed() == std::vector<Sequence>{2});
      CHECK(f.total() == 0);
      CHECK(f.total(others) == 1);
    };
    check();
    REQUIRE(f.store->flush().has_value());
    f.crash();
    check();
    // Made again: the new topic has another id.
    const TopicPartition again{test_topic(7), 0};
    f.write(hour, {{3, 100, again}});
    CHECK(f.load() == std::vector<Sequence>{3, 2});
    REQUIRE(f.store->reclaim(1, after(0)).has_value());
    check_dropped(f, 1);
    f.write(hour, {}, {2, 3});
    REQUIRE(f.store->deal(f.owner, hour, {}).has_value());  // Leaves nothing.
    REQUIRE(f.store->reclaim(1, after(0)).has_value());
    check_dropped(f, 0);
  }

  TEST_CASE(
      "a topic that is hidden stays so through any crash, and its deletion comes to its end") {
    for (int steps = 0; steps < 4; ++steps) {
      CAPTURE(steps);
      StoreFixture f;
      f.write(hour, {{1, 100}, {2, 200, others}});
      REQUIRE(f.store->flush().has_value());
      f.store->hide_topic(orders.topic);
      CHECK_FALSE(f.is_pending(100, 1));
      CHECK(f.listed() == std::vector<Sequence>{2});
      CHECK(f.total() == 0);
      if (steps > 0) REQUIRE(f.store->flush().has_value());
      if (steps > 1) REQUIRE(f.store->drop_topic(orders.topic).has_value());
      if (steps > 2) REQUIRE(f.store->flush().has_value());
      f.crash();
      // The journal still has what no flush has seen.
      if (steps == 0) REQUIRE(f.store->drop_topic(orders.topic).has_value());
      CHECK_FALSE(f.is_pending(100, 1));
      CHECK(f.listed() == std::vector<Sequence>{2});
      CHECK(f.total() == 0);
      CHECK(f.total(others) == 1);
      REQUIRE(f.store->reclaim(1, after(0)).has_value());
      check_dropped(f, 1);
      f.write(hour, {}, {2});
      REQUIRE(f.store->deal(f.owner, hour, {}).has_value());  // Leaves nothing.
      REQUIRE(f.store->reclaim(1, after(0)).has_value());
      check_dropped(f, 0);
    }
  }

  TEST_CASE("each level says what its chunks have, and what was dealt to it") {
    StoreFixture f;
    f.write(month, {{9, 40 * hour_ms}}, {}, BucketLevel::month);
    f.write(hour, {{1, 100}, {2, 200, others}, {3, 2'000'000}});
    const auto level = [&](BucketLevel of) {
      return f.store->levels(MonoTime{}, after(0)).value()[static_cast<std::size_t>(of)];
    };
    CHECK(level(BucketLevel::month).records == 1);
    CHECK(level(BucketLevel::hour).records == 3);
    CHECK(level(BucketLevel::hour).chunks == 1);
    CHECK(level(BucketLevel::hour).bytes > 0);
    CHECK(level(BucketLevel::minute).chunks == 0);
    REQUIRE(f.store->deal(f.owner, hour, {}).has_value());
    CHECK(level(BucketLevel::hour).records == 0);
    CHECK(level(BucketLevel::minute).records == 3);
    CHECK(level(BucketLevel::minute).chunks == 2);
    CHECK(level(BucketLevel::minute).downgrades == 3);
    CHECK(level(BucketLevel::hour).downgrades == 0);
  }

  TEST_CASE("the slots of a level are the buckets that have chunks, counted from now") {
    StoreFixture f;
    const auto used = [&](BucketLevel level, WallTime wall) {
      const auto slots =
          f.store->levels(MonoTime{}, wall).value()[static_cast<std::size_t>(level)].slots;
      std::vector<std::size_t> found;
      for (std::size_t i = 0; i < slots.used().size(); ++i)
        if (slots.used()[i]) found.push_back(i);
      if (slots.later()) found.push_back(slots.used().size());
      return found;
    };
    using Places = std::vector<std::size_t>;
    CHECK(used(BucketLevel::hour, after(0)).empty());
    f.write(hour, {{1, 100}});
    f.write({BucketLevel::hour, hour.start + std::chrono::hours(3)}, {{2, 3 * hour_ms + 5}});
    f.write({BucketLevel::hour, hour.start + std::chrono::hours(2'000)}, {{3, 2'000 * hour_ms}});
    CHECK(used(BucketLevel::hour, after(0)) == Places{0, 3, BucketSlots::count});
    CHECK(used(BucketLevel::hour, after(2 * hour_ms)) == Places{0, 1, BucketSlots::count});
    CHECK(used(BucketLevel::hour, after(990 * hour_ms)) == Places{0, 1'010});
    CHECK(used(BucketLevel::minute, after(0)).empty());
  }

  TEST_CASE("records that are close together are dealt once, whatever level parts them") {
    const std::string body(1'000, 'b');
    for (const auto& [span_ms, expected] : {std::pair{40, BucketLevel::tick},
                                            {20'000, BucketLevel::second},
                                            {600'000, BucketLevel::minute}}) {
      StoreFixture f;
      std::vector<Record> many;
      for (Sequence s = 1; s <= 100; ++s)
        many.push_back({s, 120'000 + static_cast<std::int64_t>(s * 7'919) % span_ms, orders, body});
      f.write(hour, many);
      std::size_t deals = 0;
      while (!f.store->next_piece(f.owner, hour, {hour.start, 0}, 50'000, {}).value().loaded)
        REQUIRE(++deals < 10);
      CHECK(deals == 1);
      const auto levels = f.store->levels(MonoTime{}, after(0)).value();
      CHECK(levels[static_cast<std::size_t>(expected)].downgrades == 100);
      CHECK(f.load(50'000).size() == 100);
    }
  }

  TEST_CASE("a record that was moved away and back is pending, and its former marks are not its") {
    StoreFixture f;
    f.write(hour, {{1, 100}, {2, 100}});
    f.write(hour, {}, {1});
    CHECK_FALSE(f.is_pending(100, 1));
    f.write(hour, {{1, 100}});
    CHECK(f.is_pending(100, 1));
    CHECK(f.load() == std::vector<Sequence>{1, 2});
    // Away and back between two writes: a mark for the old one beside the new one.
    f.write(hour, {{1, 100}}, {1});
    CHECK(f.load() == std::vector<Sequence>{1, 2});
    for (int i = 0; i < 3; ++i)
      REQUIRE(
          f.store
              ->deal(f.owner, {static_cast<BucketLevel>(1 + i), i == 0 ? hour.start : after(0)}, {})
              .has_value());
    CHECK(f.load() == std::vector<Sequence>{1, 2});
    f.write(hour, {}, {1});
    CHECK(f.load() == std::vector<Sequence>{2});
    CHECK_FALSE(f.is_pending(100, 1));
  }

  TEST_CASE("a month is dealt out to hours, and is counted in them then") {
    StoreFixture f({.step_bytes = 5'000});
    std::vector<Record> many;
    for (Sequence s = 1; s <= 300; ++s)
      many.push_back(
          {s, static_cast<std::int64_t>(s) * hour_ms * 2 + 5, orders, std::string(100, 'b')});
    for (std::size_t i = 0; i < many.size(); i += 30)
      f.write(month,
              {many.begin() + static_cast<std::ptrdiff_t>(i),
               many.begin() + static_cast<std::ptrdiff_t>(i + 30)},
              {}, BucketLevel::month);
    f.write(month, {}, {7});
    CHECK(f.store->counts(orders.topic)->at(month) == 299);
    const auto before = f.listed();
    CHECK(before.size() == 299);
    int steps = 1;
    for (; *f.store->deal(f.owner, month, {}); ++steps) CHECK(f.listed() == before);
    CHECK(steps > 3);
    CHECK(f.listed() == before);
    const auto counts = f.store->counts(orders.topic);
    CHECK(counts->size() == 299);
    CHECK(counts->at(bucket_of(BucketLevel::hour, after(12 * hour_ms))) == 1);
    CHECK(f.total() == 299);
    CHECK(f.store->homes(f.owner)->size() == 299);
    // A mark of an hour finds a record that is still in its month.
    f.write(month, {{1'000, 20, orders, "late"}}, {}, BucketLevel::month);
    f.write(hour, {}, {1'000});
    CHECK_FALSE(f.is_pending(20, 1'000));
  }

  TEST_CASE("an hour that is too large for memory is loaded in pieces, down to one millisecond") {
    const std::string body(1'000, 'b');
    StoreFixture f({.step_bytes = 400'000});
    SeededRandom random(3);
    std::vector<PendingKey> keys;
    std::vector<Sequence> order;
    for (Sequence s = 1; s <= 3'000; ++s) order.push_back(s);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    std::vector<Record> records;
    for (const Sequence s : order) {
      // A third each: over the hour, in one second, in one millisecond; their order of arrival has
      // nothing to do with the order in which they come, as when they were moved there.
      const auto kind = random.below(3);
      const std::int64_t due = kind == 0 ? static_cast<std::int64_t>(random.below(hour_ms))
                               : kind == 1
                                   ? 1'800'000 + static_cast<std::int64_t>(random.below(1'000))
                                   : 1'800'500;
      keys.push_back({after(due), s});
      records.push_back({s, due, orders, body});
      if (records.size() == 100) f.write(hour, std::exchange(records, {}));
    }
    std::ranges::sort(keys);
    std::vector<Sequence> expected;
    for (const auto& key : keys) expected.push_back(key.sequence);
    std::size_t largest = 0;
    CHECK(f.load(200'000, {}, &largest) == expected);
    CHECK(largest < 900);  // There are 3 000: it holds one piece's, and a chunk of each run.
    CHECK(f.load(200'000) == expected);
  }

  TEST_CASE("another number of shards finds everything, and each shard its own records") {
    StoreFixture f({.step_bytes = 3'000});
    const auto partition = [](Sequence s) {
      return TopicPartition{test_topic(1), static_cast<PartitionIndex>(s % 12)};
    };
    std::set<Sequence> expected;
    std::uint16_t now = 2;
    Sequence next = 1;
    for (const int number : {2, 5, 1, 3, 3}) {
      const auto shards = static_cast<std::uint16_t>(number);
      const auto owner_of = [&](const TopicPartition& tp) {
        return static_cast<std::uint16_t>(tp.partition % shards);
      };
      now = shards;
      f.epoch = f.store->epoch(now).value();
      const auto foreign = f.store->foreign_homes(now);
      REQUIRE(foreign.has_value());
      for (const auto& home : *foreign)
        for (int steps = 0; *f.store->adopt(now, home, owner_of); ++steps) REQUIRE(steps < 1'000);
      CHECK(f.store->foreign_homes(now)->empty());
      std::set<Sequence> found;
      for (std::uint16_t shard = 0; shard < now; ++shard) {
        f.owner = {shard, now};
        for (const Sequence s : f.load()) {
          CHECK(owner_of(partition(s)) == shard);
          CHECK(found.insert(s).second);
        }
        // New ones, some gone, and one that leaves and comes back.
        std::vector<Record> records;
        for (int i = 0; i < 60; ++i, ++next)
          if (owner_of(partition(next)) == shard) {
            records.push_back({next, static_cast<std::int64_t>(next), partition(next)});
            expected.insert(next);
          }
        std::vector<Sequence> gone;
        for (const Sequence s : found)
          if (owner_of(partition(s)) == shard && s % 5 == 0) gone.push_back(s), expected.erase(s);
        for (const Sequence s : found)
          if (owner_of(partition(s)) == shard && s % 7 == 1) {
            gone.push_back(s);
            if (expected.insert(s).second || expected.contains(s))
              records.push_back({s, static_cast<std::int64_t>(s), partition(s)});
          }
        f.write(hour, records, gone);
        f.write(bucket_of(BucketLevel::hour, after(0)), {}, {});
      }
      std::set<Sequence> all;
      for (std::uint16_t shard = 0; shard < now; ++shard) {
        f.owner = {shard, now};
        for (const Sequence s : f.load()) all.insert(s);
      }
      CHECK(all == expected);
    }
  }

  TEST_CASE(
      "a mark that was made before its chunk was adopted counts, however many shards follow") {
    StoreFixture f;
    const auto to_last = [](std::uint16_t shards) {
      return [shards](const TopicPartition&) { return static_cast<std::uint16_t>(shards - 1); };
    };
    f.epoch = f.store->epoch(1).value();
    f.write(hour, {{1, 100}, {2, 100}, {3, 100}});
    CHECK(f.store->epoch(1) == f.epoch);
    // A replay may tell of a removal before anything of the home was read.
    f.epoch = f.store->epoch(2).value();
    f.owner = {1, 2};
    f.write(hour, {}, {1});
    f.epoch = f.store->epoch(3).value();
    CHECK_FALSE(*f.store->adopt(3, hour, to_last(3)));
    f.owner = {2, 3};
    CHECK(f.load() == std::vector<Sequence>{2, 3});
    // Back to one: marks of its former time are not for what came since, although its journal is
    // shorter than the others were.
    f.write(hour, {{1, 100}}, {2});
    f.lsn = 50;
    f.epoch = f.store->epoch(1).value();
    CHECK_FALSE(*f.store->adopt(1, hour, to_last(1)));
    f.owner = {0, 1};
    CHECK(f.load() == std::vector<Sequence>{1, 3});
    f.write(hour, {}, {3});
    CHECK(f.load() == std::vector<Sequence>{1});
  }

  TEST_CASE("a moved record is found by its handle until it is gone") {
    StoreFixture f;
    const PendingKey handle{after(100), 1};
    const Forward moved{handle, PendingKey{after(900), 1}}, gone{handle, std::nullopt};
    CHECK_FALSE(f.store->forward(handle)->has_value());
    REQUIRE(f.store->write(std::span(&moved, 1), {}).has_value());
    CHECK(*f.store->forward(handle) == PendingKey{after(900), 1});
    REQUIRE(f.store->write(std::span(&gone, 1), {}).has_value());
    CHECK_FALSE(f.store->forward(handle)->has_value());
  }

  TEST_CASE("a home's place and marks are kept until a checkpoint has passed it") {
    StoreFixture f;
    f.write(hour, {{1, 100}});
    f.write(hour, {}, {1});
    REQUIRE(f.store->forget_places(0, {119, 0}, {hour}).has_value());
    CHECK(f.store->places(0)->size() == 1);
    REQUIRE(f.store->forget_places(0, {120, 0}, {hour}).has_value());
    CHECK(f.store->places(0)->empty());
  }

  TEST_CASE("marks of another number of shards are kept while anybody has a chunk in their home") {
    StoreFixture f;
    f.owner = {1, 2};
    f.epoch = f.store->epoch(2).value();
    const auto keys = f.write(hour, {{1, 100}});
    f.owner = {0, 1};
    f.epoch = f.store->epoch(1).value();
    f.write(hour, {}, {1});
    // Two again: the first shard has nothing in the hour, the second has what the mark is for.
    f.owner = {1, 2};
    f.epoch = f.store->epoch(2).value();
    REQUIRE(f.store->forget_places(0, {f.lsn + 100, 0, f.epoch}, {hour}).has_value());
    CHECK(f.load().empty());
    HomeWrite change;
    change.home = hour;
    change.place = {f.lsn += 10, 0, f.epoch};
    change.dead = keys;
    REQUIRE(f.store->write(f.owner, change).has_value());
    CHECK_FALSE(f.store->tables().marks_of(hour)->empty());
    REQUIRE(f.store->forget_places(1, {f.lsn + 100, 0, f.epoch}, {hour}).has_value());
    CHECK(f.store->tables().marks_of(hour)->empty());
  }

  TEST_CASE("a piece ahead takes nothing from what is loaded later") {
    const std::string body(1'000, 'b');
    StoreFixture f({.step_bytes = 400'000});
    std::vector<Sequence> expected;
    std::vector<Record> records;
    // Most are due in one millisecond; the others behind it, in the chunks of the same hour.
    for (Sequence s = 1; s <= 2'000; ++s) {
      const std::int64_t due = s % 10 == 0 ? 1'800'500 + static_cast<std::int64_t>(s) : 1'800'500;
      records.push_back({s, due, orders, body});
      if (records.size() == 100) f.write(hour, std::exchange(records, {}));
    }
    for (Sequence s = 1; s <= 2'000; ++s)
      if (s % 10 != 0) expected.push_back(s);
    for (Sequence s = 10; s <= 2'000; s += 10) expected.push_back(s);
    const PendingKey horizon{after(1'800'500), 500};
    std::set<Sequence> seen;
    const auto before = f.store->chunks_read();
    for (PendingKey from = horizon; from.due < hour.end();) {
      const auto piece = f.store->piece_ahead(f.owner, hour, from, 200'000, {}, horizon);
      REQUIRE(piece.has_value());
      if (!piece->loaded) continue;
      for (const auto& loaded : piece->chunks)
        for (std::size_t i = 0; i < loaded.chunk->size(); ++i)
          if (loaded.live[i] && !(loaded.chunk->key_at(i) < from) &&
              loaded.chunk->key_at(i) < piece->until)
            CHECK(seen.insert(loaded.chunk->key_at(i).sequence).second);
      REQUIRE(from < piece->until);
      from = piece->until;
    }
    const std::size_t passed = 450;  // Of the millisecond.
    CHECK(seen.size() >= 2'000 - passed - 1);
    CHECK(seen.size() <= 2'000 - passed);
    // What lies between is not read again for each piece: two thousand records are some twenty
    // chunks, read for each level that they are dealt to, and the last time a few more than once.
    CHECK(f.store->chunks_read() - before <= 200);
    auto left = f.load(200'000);
    // Those before the horizon are gone where they were dealt.
    left.erase(left.begin(), std::ranges::find(left, Sequence{501}));
    const auto from_there = std::ranges::find(expected, Sequence{501});
    CHECK(left == std::vector<Sequence>(from_there, expected.end()));
  }

  TEST_CASE("a deal leaves out records that are due before the requested piece") {
    StoreFixture f;
    f.write(hour, {{1, 100}, {2, 200}, {3, 3'000'000}});
    CHECK_FALSE(*f.store->deal(f.owner, hour, {}, {after(200), 0}));
    CHECK_FALSE(f.is_pending(100, 1));
    CHECK(f.is_pending(200, 2));
    CHECK(f.is_pending(3'000'000, 3));
  }

  TEST_CASE(
      "the pages of all owners have each record once and in order, whatever is adopted and dealt "
      "between two of them") {
    Crowd crowd({.step_bytes = 1'000});
    StoreFixture& f = crowd.f;
    const auto expected = crowd.in_order();
    CHECK(expected.size() == 540);
    CHECK(f.listed_of_all() == expected);
    CHECK(f.listed_of_all({.limit = 1'000}) == expected);
    CHECK(f.listed_of_all({.topic = others.topic}).empty());

    f.epoch = f.store->epoch(3).value();
    auto foreign = *f.store->foreign_homes(3);
    int adopted = 0;
    const auto adopt = [&] {
      if (foreign.empty()) return;
      if (!*f.store->adopt(3, *foreign.begin(), Crowd::owner_of(3))) foreign.erase(foreign.begin());
      ++adopted;
    };
    CHECK(f.listed_of_all({.limit = 7}, adopt) == expected);
    CHECK(foreign.empty());
    CHECK(adopted > 7);
    int dealt = 0;
    const auto deal = [&] {
      const Owner owner{static_cast<std::uint16_t>(dealt % 3), 3};
      const Bucket second = bucket_of(BucketLevel::month, month.end());
      const Bucket finer_hour = bucket_of(BucketLevel::hour, after(dealt / 6 % 6 * hour_ms));
      REQUIRE(f.store->deal(owner, dealt / 3 % 2 == 0 ? second : finer_hour, {}).has_value());
      ++dealt;
    };
    CHECK(f.listed_of_all({.limit = 7}, deal) == expected);
    CHECK(f.listed_of_all({.limit = 7}) == expected);
    CHECK(f.store->shards() == 3);

    std::vector<Sequence> some;
    for (const auto& [key, partition] : crowd.pending) {
      if (partition.partition == 4 && key.due >= after(hour_ms) && key.due < after(90 * hour_ms))
        some.push_back(key.sequence);
    }
    CHECK(some.size() > 10);
    CHECK(f.listed_of_all({.topic = orders.topic,
                           .partition = 4,
                           .from = after(hour_ms),
                           .until = after(90 * hour_ms),
                           .id = "i?",
                           .limit = 3}) == some);
  }

  TEST_CASE("a page is of one moment: what adopts and deals meanwhile takes nothing from it") {
    Crowd crowd({.step_bytes = 3'000});
    StoreFixture& f = crowd.f;
    const auto expected = crowd.in_order();
    std::atomic<bool> ended = false;
    std::thread other([&] {
      for (std::uint16_t shards = 3; shards < 12; ++shards) {
        (void)f.store->epoch(shards);
        const auto homes = f.store->foreign_homes(shards).value();
        for (const auto& home : homes) {
          while (*f.store->adopt(shards, home, Crowd::owner_of(shards))) {
          }
          const auto level = static_cast<BucketLevel>(std::min(shards - 2, 4));
          for (std::uint16_t shard = 0; shard < shards && level > BucketLevel::month; ++shard)
            (void)f.store->deal({shard, shards}, bucket_of(level, home.start), {});
        }
      }
      ended = true;
    });
    std::vector<std::vector<Sequence>> seen;
    std::vector<std::uint64_t> counts;
    std::string failed;
    while (failed.empty() && (!ended || seen.empty())) {
      const auto page = f.store->page({.limit = 1'000});
      const auto counted = f.store->count({}, WallTime::min(), std::chrono::hours(24));
      if (!page || !counted) {
        failed = (page ? counted.error() : page.error()).message;
        break;
      }
      auto& sequences = seen.emplace_back();
      for (const auto& record : page->records) sequences.push_back(record.key.sequence);
      std::uint64_t& sum = counts.emplace_back(0);
      for (const auto& [start, count] : counted->counts) sum += count;
    }
    other.join();
    CHECK(failed == "");
    for (const auto& sequences : seen) CHECK(sequences == expected);
    for (const auto sum : counts) CHECK(sum == expected.size());
  }

  TEST_CASE("a page that finds little ends after so many entries, and says where to go on") {
    Crowd crowd({.step_bytes = 3'000, .scanned_per_page = 50});
    StoreFixture& f = crowd.f;
    int pages = 0;
    CHECK(f.listed_of_all({.id = "nobody"}, [&] { ++pages; }).empty());
    CHECK(pages > 5);
    CHECK(pages < 20);
    CHECK(f.listed_of_all() == crowd.in_order());
  }

  TEST_CASE("pages go through the runs of one millisecond without reading all of them each time") {
    const std::string body(5'000, 'b');
    StoreFixture f({.scanned_per_page = 30, .bytes_per_page = 40'000});
    std::vector<Sequence> expected;
    std::vector<Record> records;
    for (Sequence s = 1; s <= 200; ++s) {
      records.push_back({s, 5'000, orders, body});
      expected.push_back(s);
    }
    f.write(hour, records);
    for (const auto level :
         {BucketLevel::hour, BucketLevel::minute, BucketLevel::second, BucketLevel::tick}) {
      CHECK(f.listed_of_all({.limit = 10}) == expected);
      while (*f.store->deal(f.owner, bucket_of(level, after(5'000)), {})) {
      }
    }
    std::size_t largest = 0;
    for (std::optional<PendingKey> at; expected.size() > 0;) {
      const auto page = f.store->page({.limit = 10, .after = at});
      REQUIRE(page.has_value());
      largest = std::max(largest, page->records.size());
      for (const auto& record : page->records) {
        REQUIRE(record.key.sequence == expected.front());
        expected.erase(expected.begin());
      }
      if (!page->next) break;
      at = page->next;
    }
    CHECK(expected.empty());
    CHECK(largest == 8);  // 40 000 bytes.
    // Nothing fits: a run or two are read for each page.
    int pages = 0;
    CHECK(f.listed_of_all({.id = "nobody"}, [&] { ++pages; }).empty());
    CHECK(pages > 3);
  }

  TEST_CASE("records of a write that has not ended are on no page and in no count") {
    const std::string body(2'000, 'b');
    StoreFixture f({.step_bytes = 20'000});
    f.write(hour, {{1, 100}});
    std::vector<Record> many;
    for (Sequence s = 10; s < 110; ++s)
      many.push_back({s, static_cast<std::int64_t>(s) * 60'000 % hour_ms, orders, body});
    const auto keys = f.write(hour, many, {}, BucketLevel::minute);
    CHECK(f.listed_of_all().size() == 101);
    Rocks& rocks = *f.store->tables().rocks;
    rocksdb::WriteBatch undo;
    undo.Put(rocks.family(bucket_family::rows), slice(home_key(row::place, 0, hour)),
             slice(place_value({{110, 0}, 1, keys})));
    REQUIRE(rocks.write(undo).has_value());
    CHECK(f.listed_of_all() == std::vector<Sequence>{1});
    CHECK(f.counted({}, std::chrono::hours(1)) ==
          std::map<WallTime, std::uint64_t>{{hour.start, 1}});
  }

  TEST_CASE("counts are those of a simple model, at every level, in pieces that are bounded") {
    Crowd crowd({.step_bytes = 3'000, .scanned_per_page = 50});
    StoreFixture& f = crowd.f;
    const auto check = [&] {
      for (const auto by : std::initializer_list<std::chrono::milliseconds>{
               std::chrono::minutes(1), std::chrono::hours(1), std::chrono::hours(24)}) {
        for (const PendingQuery& query :
             {PendingQuery{}, PendingQuery{.topic = orders.topic, .partition = 3},
              PendingQuery{.topic = others.topic}, PendingQuery{.hidden = {orders.topic}},
              PendingQuery{.from = after(90 * 60'000), .until = after(4 * hour_ms + 1)},
              PendingQuery{.from = after(35 * 24 * hour_ms)},
              PendingQuery{.from = after(5), .until = after(5)}}) {
          std::map<WallTime, std::uint64_t> expected;
          for (const auto& [key, partition] : crowd.pending) {
            if ((query.topic && partition.topic != *query.topic) ||
                (query.partition && partition.partition != *query.partition) ||
                query.hidden.contains(partition.topic) || key.due < query.from ||
                key.due >= query.until)
              continue;
            ++expected[WallTime(key.due.time_since_epoch() / by * by)];
          }
          CHECK(f.counted(query, by) == expected);
        }
      }
    };
    check();
    int pieces = 0;
    f.counted({}, std::chrono::hours(1), &pieces);
    CHECK(pieces > 5);
    for (int i = 0; i < 40; ++i) {
      const Bucket second = bucket_of(BucketLevel::month, month.end());
      const auto shard = static_cast<std::uint16_t>(i % 2);
      REQUIRE(f.store->deal({shard, 2}, second, {}).has_value());
      const Bucket finer_hour = bucket_of(BucketLevel::hour, after(i / 2 % 6 * hour_ms));
      REQUIRE(f.store->deal({shard, 2}, finer_hour, {}).has_value());
      if (i == 3) check();
    }
    check();
    // Times before 1970 belong to the stretch that they lie in.
    const std::int64_t early = -(to_ms(begin) + 1);
    f.owner = {0, 2};
    f.write(bucket_of(BucketLevel::hour, after(early)), {{1'000, early}});
    CHECK(f.counted({.until = after(0)}, std::chrono::hours(1)) ==
          std::map<WallTime, std::uint64_t>{{from_ms(-hour_ms), 1}});
  }

  TEST_CASE(
      "blob files of which nothing is left need no room to be given back, others ask for it") {
    for (const std::size_t dead : {std::size_t{20}, std::size_t{15}}) {
      CAPTURE(dead);
      StoreFixture f;
      SeededRandom random(1);
      std::vector<ChunkKey> keys;
      // All in one file.
      for (Sequence i = 1; i <= 20; ++i) {
        std::string body(5'000, 0);
        for (char& c : body) c = static_cast<char>(random.u64());
        const auto more = f.write(hour, {{i, 100, orders, body}});
        keys.insert(keys.end(), more.begin(), more.end());
      }
      REQUIRE(keys.size() == 20);
      REQUIRE(f.store->flush().has_value());
      const auto full = f.store->sizes().blob_bytes;
      REQUIRE(full > 100'000);
      HomeWrite change;
      change.home = hour;
      change.place = {f.lsn += 10, 0};
      change.dead.assign(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(dead));
      REQUIRE(f.store->write(f.owner, change).has_value());
      REQUIRE(f.store->flush().has_value());
      // Not known before the tables are written anew.
      CHECK(f.store->sizes().garbage_bytes == 0);
      std::uint64_t garbage = 0;
      const auto reclaimed =
          f.store->reclaim(0, after(0), [&](const BucketStore::Sizes& sizes) -> Result<> {
            garbage = sizes.garbage_bytes;
            return fail(Errc::no_space, "there is no room");
          });
      CHECK(reclaimed.has_value() == (dead == 20));
      CHECK((garbage > 0) == (dead == 15));
      CHECK(f.store->sizes().blob_bytes == (dead == 20 ? 0 : full));
      CHECK(f.load().size() == 20 - dead);
    }
  }

  TEST_CASE("blob files of which all or most is gone are given back") {
    StoreFixture f;
    SeededRandom random(1);
    std::vector<ChunkKey> keys;
    for (int i = 0; i < 20; ++i) {
      std::vector<Record> records;
      for (int k = 0; k < 100; ++k) {
        std::string body(1'000, 0);
        for (char& c : body) c = static_cast<char>(random.u64());
        records.push_back({static_cast<Sequence>(i * 100 + k), i, orders, body});
      }
      const auto more = f.write(hour, records);
      keys.insert(keys.end(), more.begin(), more.end());
      REQUIRE(f.store->flush().has_value());
    }
    const auto full = f.store->sizes().blob_bytes;
    CHECK(full > 2'000'000);
    HomeWrite change;
    change.home = hour;
    change.place = {f.lsn += 10, 0};
    change.dead.assign(keys.begin(), keys.begin() + 15);
    REQUIRE(f.store->write(f.owner, change).has_value());
    REQUIRE(f.store->flush().has_value());
    REQUIRE(f.store->reclaim(0.5, after(0)).has_value());
    CHECK(f.store->sizes().blob_bytes < full / 3);
    CHECK(f.load().size() == 500);
  }

  TEST_CASE("a directory of a former format is refused with one line, and is not changed") {
    ScratchDirectory scratch;
    const auto is_refused = [&](const std::string& format) {
      const auto before = contents(scratch.path("db"));
      const auto opened = BucketStore::open(scratch.path("db"), {});
      REQUIRE_FALSE(opened.has_value());
      CAPTURE(opened.error().message);
      CHECK(opened.error().code == Errc::unsupported);
      CHECK(opened.error().message.contains("has the format " + format + ";"));
      CHECK(opened.error().message.contains("nothing was changed"));
      CHECK(contents(scratch.path("db")) == before);
    };
    for (const std::string format : {"tarry-pending-2", "tarry-pending-1"}) {
      std::filesystem::remove_all(scratch.path("db"));
      {
        rocksdb::Options options;
        options.create_if_missing = true;
        rocksdb::DB* opened = nullptr;
        REQUIRE(rocksdb::DB::Open(options, scratch.path("db"), &opened).ok());
        const std::unique_ptr<rocksdb::DB> db(opened);
        Family* family = nullptr;
        REQUIRE(db->CreateColumnFamily({}, format, &family).ok());
        REQUIRE(db->DestroyColumnFamilyHandle(family).ok());
      }
      is_refused(format);
    }
    CHECK(BucketStore::open(scratch.path("nothing"), {}).error().message.contains("missing"));
  }

  TEST_CASE("a flipped bit in a blob file is an error of the read that meets it") {
    StoreFixture f;
    f.write(hour, {{1, 100, orders, std::string(5'000, 'b')}});
    REQUIRE(f.store->flush().has_value());
    f.store.reset();
    int flipped = 0;
    for (const auto& [file, bytes] : contents(f.scratch.path("db"))) {
      if (!file.ends_with(".blob")) continue;
      std::string changed = bytes;
      changed[changed.size() / 2] ^= 1;
      write_whole(file, changed);
      ++flipped;
    }
    REQUIRE(flipped == 1);
    auto opened = BucketStore::open(f.scratch.path("db"), f.limits);
    REQUIRE(opened.has_value());
    f.store = std::move(*opened);
    const auto piece = f.store->next_piece(f.owner, hour, {hour.start, 0}, 1 << 20, {});
    REQUIRE_FALSE(piece.has_value());
    CHECK(piece.error().code == Errc::corrupt);
    CHECK(piece.error().message.contains("restore the whole data directory"));
    // The rows have what /status shows.
    const auto levels = f.store->levels(MonoTime{}, after(0));
    REQUIRE(levels.has_value());
    CHECK((*levels)[static_cast<std::size_t>(BucketLevel::hour)].records == 1);
    CHECK(f.total() == 1);
    CHECK(f.store->sizes().blob_bytes > 0);
  }

  TEST_CASE("a chunk or a row that is changed or missing is damage, and the error names it") {
    const auto spoil = [](std::size_t family, const Buffer& key, std::optional<Buffer> value) {
      StoreFixture f;
      f.write(hour, {{1, 100}});
      f.write(hour, {}, {1});
      Rocks& rocks = *f.store->tables().rocks;
      rocksdb::WriteBatch batch;
      if (value)
        batch.Put(rocks.family(family), slice(key), slice(*value));
      else
        batch.Delete(rocks.family(family), slice(key));
      REQUIRE(rocks.write(batch).has_value());
      const auto piece = f.store->next_piece(f.owner, hour, {hour.start, 0}, 1 << 20, {});
      REQUIRE_FALSE(piece.has_value());
      CHECK(piece.error().code == Errc::corrupt);
      CHECK(piece.error().message.contains("restore the whole data directory"));
      return piece.error().message;
    };
    const Owner owner{0, 1};
    const ChunkKey chunk{hour, 1, {110, 0}};
    CHECK(spoil(bucket_family::chunks, chunk_key(owner, chunk), std::nullopt).contains("missing"));
    CHECK(
        spoil(bucket_family::chunks, chunk_key(owner, chunk), Buffer(100, 1)).contains("checksum"));
    CHECK(spoil(bucket_family::rows, chunk_row_key(owner, chunk), Buffer(3)).contains("malformed"));
    CHECK(spoil(bucket_family::rows, gone_key(hour, {120, 0}, 0), Buffer(9)).contains("malformed"));
  }

  TEST_CASE("a store is read without a change, and a damaged chunk of it hides no other one") {
    StoreFixture f;
    const auto keys = f.write(hour, {{1, 100}, {2, 200}});
    f.write(hour, {{3, 300}}, {2});
    f.write(month, {{4, 400, others}}, {}, BucketLevel::month);
    const auto read = [&](std::size_t damages) {
      REQUIRE(f.store->flush().has_value());
      f.store.reset();
      const auto before = contents(f.scratch.path("db"));
      const auto dump = PendingDump::open(f.scratch.path("db"));
      REQUIRE(dump.has_value());
      std::vector<Sequence> found;
      std::vector<std::string> damaged;
      (*dump)->for_each(
          [&](const PendingView& record) {
            found.push_back(record.key.sequence);
            return true;
          },
          [&](const Error& error) { damaged.push_back(error.message); });
      CHECK(damaged.size() == damages);
      if (damages > 0) CHECK(damaged[0].contains("missing"));
      CHECK(contents(f.scratch.path("db")) == before);
      f.crash();
      std::ranges::sort(found);
      return found;
    };
    CHECK(read(0) == std::vector<Sequence>{1, 3, 4});
    Rocks& rocks = *f.store->tables().rocks;
    rocksdb::WriteBatch batch;
    batch.Delete(rocks.family(bucket_family::chunks), slice(chunk_key(f.owner, keys[0])));
    REQUIRE(rocks.write(batch).has_value());
    CHECK(read(1) == std::vector<Sequence>{3, 4});
    CHECK_FALSE(PendingDump::open(f.scratch.path("none")).has_value());
  }
}

}  // namespace
}  // namespace tarry::storage
