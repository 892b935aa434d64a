#include "storage/pending_store.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <thread>

#include "scratch.h"
#include "storage/database.h"
#include "storage/rocks.h"

namespace tarry::storage {
namespace {

using Kind = Database::Kind;

const TopicPartition orders{test_topic(1), 0};
const TopicPartition orders_1{test_topic(1), 1};
const TopicPartition others{test_topic(2), 0};

struct Fixture {
  ScratchDirectory scratch;
  Database::Limits limits;
  std::unique_ptr<Database> database;
  std::unique_ptr<PendingStore> store;

  explicit Fixture(Database::Limits of = {}) : limits(of) {
    auto made = Database::make(scratch.path("db"), Kind::pending, limits);
    REQUIRE(made.has_value());
    database = std::move(*made);
    open_store();
  }
  ~Fixture() { store.reset(); }

  void open_store(const PendingStore::Limits& of = {}) {
    store.reset();
    auto opened = PendingStore::open(*database, of);
    REQUIRE(opened.has_value());
    store = std::move(*opened);
  }
  // As after kill -9: what was flushed (by whom ever) is there.
  void crash() {
    store.reset();
    database.reset();
    auto opened = Database::open(scratch.path("db"), Kind::pending, limits);
    REQUIRE(opened.has_value());
    database = std::move(*opened);
    open_store();
  }

  void put(std::initializer_list<Operation> operations) {
    REQUIRE(store->apply(std::span(operations.begin(), operations.size())).has_value());
  }
  std::vector<Sequence> window(std::int64_t from, std::int64_t until, std::size_t limit = 1000) {
    const auto found = store->window({from_ms(from), 0}, from_ms(until), limit);
    REQUIRE(found.has_value());
    std::vector<Sequence> out;
    for (const auto& locator : found->locators) out.push_back(locator.key.sequence);
    return out;
  }
  std::optional<WallTime> next_due() {
    for (;;) {
      const auto first = store->next_due();
      REQUIRE(first.has_value());
      if (first->known) return first->due;
    }
  }
  std::string id(const TopicPartition& partition, std::string_view name, std::int64_t now = 0) {
    const auto state = store->find_id(partition, name, from_ms(now));
    REQUIRE(state.has_value());
    if (const auto* pending = std::get_if<IdPending>(&*state))
      return "pending " + std::to_string(pending->key.sequence);
    if (const auto* ended = std::get_if<IdEnded>(&*state))
      return "ended " + std::to_string(static_cast<int>(ended->how));
    return "unknown";
  }
};

PendingAdded park(const TopicPartition& partition, Sequence sequence, std::int64_t due,
                  std::string_view id = "", std::string_view body = "body") {
  return {partition, sequence, from_ms(due), from_ms(1), never_expires, id, as_bytes(body)};
}
PendingRemoved gone(const TopicPartition& partition, Sequence sequence, std::int64_t due,
                    std::string_view id = "", RemovalReason how = RemovalReason::delivered,
                    std::int64_t at = 0) {
  return {partition, sequence, from_ms(due), how, from_ms(at), id};
}

TEST_SUITE("pending store") {
  TEST_CASE("pending records come out in the order of due time, then of arrival") {
    Fixture f;
    f.put({park(orders, 5, 200), park(others, 2, 100), park(orders, 9, 100), park(orders, 3, 300),
           park(orders_1, 4, 100)});
    CHECK(f.window(0, 1000) == std::vector<Sequence>{2, 4, 9, 5, 3});
    CHECK(f.window(0, 200) == std::vector<Sequence>{2, 4, 9});
    CHECK(f.window(101, 300) == std::vector<Sequence>{5});
    CHECK(f.window(0, 1000, 2) == std::vector<Sequence>{2, 4});
    CHECK(f.window(300, 300).empty());
    const auto next = f.store->window({from_ms(100), 5}, from_ms(1000), 10);
    CHECK(next->locators.front().key.sequence == 9);
    CHECK(f.next_due() == from_ms(100));
    CHECK(f.store->total() == 5);
    CHECK(f.store->pending_of(orders.topic) == 4);
  }

  TEST_CASE("a body comes back as it was stored, and a removed record comes back empty") {
    Fixture f;
    f.put({park(orders, 1, 100, "id", std::string_view("a\0b", 3)), park(others, 2, 200)});
    f.put({gone(others, 2, 200)});
    const std::vector<PendingKey> keys{{from_ms(200), 2}, {from_ms(100), 1}, {from_ms(100), 7}};
    const auto read = f.store->read(keys);
    REQUIRE(read.has_value());
    CHECK_FALSE((*read)[0].has_value());
    CHECK_FALSE((*read)[2].has_value());
    REQUIRE((*read)[1].has_value());
    const PendingRecord& record = *(*read)[1];
    CHECK(as_text(record.record) == std::string_view("a\0b", 3));
    CHECK(record.id == "id");
    CHECK(record.partition == orders);
    CHECK(record.accepted == from_ms(1));
    CHECK(record.expires == never_expires);
    CHECK(f.store->get({from_ms(100), 1})->has_value());
  }

  TEST_CASE("an id is pending, then ended, and after an hour unknown") {
    Fixture f;
    CHECK(f.id(orders, "a") == "unknown");
    f.put({park(orders, 1, 100, "a")});
    CHECK(f.id(orders, "a") == "pending 1");
    CHECK(f.id(orders_1, "a") == "unknown");
    CHECK(f.id(orders, "a1") == "unknown");
    f.put({gone(orders, 1, 100, "a", RemovalReason::delivered, 5000)});
    CHECK(f.id(orders, "a", 5000) == "ended 1");
    CHECK(f.id(orders, "a", 3'604'999) == "ended 1");
    CHECK(f.id(orders, "a", 3'605'000) == "unknown");
  }

  TEST_CASE("an id that was replaced belongs to the new record, in whichever order it is told") {
    for (const bool removed_first : {true, false}) {
      CAPTURE(removed_first);
      Fixture f;
      f.put({park(orders, 1, 100, "a")});
      const auto old = gone(orders, 1, 100, "a", RemovalReason::replaced);
      const auto fresh = park(orders, 2, 50, "a");
      if (removed_first)
        f.put({old, fresh});
      else
        f.put({fresh, old});
      CHECK(f.id(orders, "a") == "pending 2");
      CHECK(f.window(0, 1000) == std::vector<Sequence>{2});
      CHECK(f.store->total() == 1);
    }
  }

  TEST_CASE(
      "a record that is added and removed in one journal record leaves an ended id and no count") {
    Fixture f;
    f.put({park(orders, 1, 100, "a"), gone(orders, 1, 100, "a", RemovalReason::cancelled)});
    CHECK(f.id(orders, "a") == "ended 2");
    CHECK(f.store->total() == 0);
    CHECK(f.window(0, 1000).empty());
  }

  TEST_CASE("ends that are told again, or of what was never pending, count nothing") {
    Fixture f;
    f.put({park(orders, 1, 100), park(orders, 2, 100)});
    f.put({park(orders, 1, 100), gone(orders, 2, 100), gone(orders, 2, 100), gone(orders, 3, 100)});
    CHECK(f.store->pending_of(orders.topic) == 1);
    CHECK(f.store->total() == 1);
  }

  TEST_CASE("an end is remembered of an id that never waited, unless a later record has the id") {
    Fixture f;
    f.put({gone(orders, 5, 100, "a", RemovalReason::delivered, 5000)});
    CHECK(f.id(orders, "a", 5000) == "ended 1");
    CHECK(f.id(orders_1, "a", 5000) == "unknown");
    CHECK(f.id(orders, "a", 3'605'000) == "unknown");
    CHECK(f.store->total() == 0);
    f.put({park(orders, 6, 200, "a")});
    CHECK(f.id(orders, "a", 5000) == "pending 6");
    f.put({gone(orders, 5, 100, "a", RemovalReason::delivered, 5000)});  // Replayed.
    CHECK(f.id(orders, "a", 5000) == "pending 6");
    f.put({gone(orders, 6, 200, "a", RemovalReason::replaced), gone(orders, 7, 100, "a")});
    CHECK(f.id(orders, "a") == "ended 1");
    CHECK(f.store->total() == 0);
  }

  TEST_CASE("an end of a kind that there is not is damage") {
    Fixture f;
    const std::vector<Operation> bad{gone(orders, 1, 100, "a", static_cast<RemovalReason>(0))};
    const auto applied = f.store->apply(bad);
    REQUIRE_FALSE(applied.has_value());
    CHECK(applied.error().code == Errc::corrupt);
  }

  TEST_CASE("a dropped topic's records are seen by nobody, at once and after a restart") {
    Fixture f;
    f.put({park(orders, 1, 100, "a"), park(others, 2, 200, "a"), park(orders_1, 3, 300)});
    REQUIRE(f.store->drop_topic(orders.topic).has_value());
    for (int round = 0; round < 2; ++round) {
      CHECK(f.window(0, 1000) == std::vector<Sequence>{2});
      CHECK_FALSE(f.store->get({from_ms(100), 1})->has_value());
      CHECK(f.id(orders, "a") == "unknown");
      CHECK(f.id(others, "a") == "pending 2");
      CHECK(f.store->pending_of(orders.topic) == 0);
      CHECK(f.store->total() == 1);
      CHECK(f.store->list({})->records.size() == 1);
      CHECK(f.next_due() == from_ms(200));
      f.put({park(orders, 4, 50, "b"), gone(orders, 1, 100, "a")});  // Replayed too late.
      CHECK(f.store->total() == 1);
      REQUIRE(f.database->flush().has_value());
      f.crash();
    }
  }

  TEST_CASE("sweeping frees what dropped topics left, in bounded steps, and then forgets them") {
    Fixture f;
    for (Sequence i = 1; i <= 100; ++i) {
      f.put({park(i % 2 == 0 ? orders : others, i, static_cast<std::int64_t>(i))});
    }
    REQUIRE(f.store->drop_topic(orders.topic).has_value());
    int steps = 0;
    for (bool more = true; more; ++steps) {
      REQUIRE(steps < 20);
      more = *f.store->sweep(from_ms(0), 10);
    }
    CHECK(steps >= 10);
    CHECK(f.store->total() == 50);
    BoundedIterator at(f.database->rocks(), pending_family::entries, {}, Buffer(20, 0xff));
    int left = 0;
    for (at.seek_to_first(); at.valid(); at.next()) ++left;
    CHECK(left == 50);
    BoundedIterator counts(f.database->rocks(), pending_family::counts, {'d'}, {'e'});
    counts.seek_to_first();
    CHECK_FALSE(counts.valid());
  }

  TEST_CASE("ends that nobody asks for any more go with a compaction") {
    Fixture f;
    f.put({park(orders, 1, 100, "old"), park(orders, 2, 100, "young"), park(orders, 3, 100, "here"),
           gone(orders, 1, 100, "old", RemovalReason::delivered, 0),
           gone(orders, 2, 100, "young", RemovalReason::delivered, 3'000'000)});
    REQUIRE(f.store->sweep(from_ms(4'000'000), 10).has_value());
    REQUIRE(f.database->flush().has_value());
    Rocks& rocks = f.database->rocks();
    rocksdb::CompactRangeOptions force;
    force.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
    REQUIRE(
        rocks.db->CompactRange(force, rocks.family(pending_family::ids), nullptr, nullptr).ok());
    BoundedIterator at(rocks, pending_family::ids, {}, Buffer(64, 0xff));
    int rows = 0;
    for (at.seek_to_first(); at.valid(); at.next()) ++rows;
    CHECK(rows == 2);
    CHECK(f.id(orders, "here") == "pending 3");
  }

  TEST_CASE("a list is filtered, and its pages are all of it without overlap") {
    Fixture f;
    f.put({park(orders, 1, 100, "pay-1"), park(orders_1, 2, 100, "pay-2"), park(others, 3, 150),
           park(orders, 4, 200, "mail-1"), park(orders, 5, 300)});
    const auto found = [&](PendingQuery query) {
      std::vector<Sequence> out;
      for (;;) {
        const auto page = f.store->list(query);
        REQUIRE(page.has_value());
        CHECK(page->records.size() <= query.limit);
        for (const auto& record : page->records) out.push_back(record.key.sequence);
        if (!page->next) return out;
        query.after = page->next;
      }
    };
    for (const std::size_t limit : {1, 2, 3, 100}) {
      CAPTURE(limit);
      CHECK(found({.limit = limit}) == std::vector<Sequence>{1, 2, 3, 4, 5});
      CHECK(found({.topic = orders.topic, .limit = limit}) == std::vector<Sequence>{1, 2, 4, 5});
      CHECK(found({.topic = orders.topic, .partition = 0, .limit = limit}) ==
            std::vector<Sequence>{1, 4, 5});
      CHECK(found({.from = from_ms(150), .until = from_ms(300), .limit = limit}) ==
            std::vector<Sequence>{3, 4});
      CHECK(found({.id = "pay-*", .limit = limit}) == std::vector<Sequence>{1, 2});
      CHECK(found({.id = "*-1", .limit = limit}) == std::vector<Sequence>{1, 4});
      CHECK(found({.id = "m?il*1*", .limit = limit}) == std::vector<Sequence>{4});
      CHECK(found({.id = "*", .limit = limit}) == std::vector<Sequence>{1, 2, 4});
      CHECK(found({.id = "pay", .limit = limit}).empty());
    }
  }

  TEST_CASE("a list that matches little ends with a cursor instead of scanning everything") {
    Fixture f;
    for (Sequence i = 1; i <= 50; ++i) f.put({park(orders, i, static_cast<std::int64_t>(i))});
    f.put({park(orders, 51, 51, "x")});
    f.store.reset();
    f.store = std::move(*PendingStore::open(*f.database, {.scanned_per_page = 20}));
    PendingQuery query{.id = "x"};
    auto page = f.store->list(query);
    CHECK(page->records.empty());
    REQUIRE(page->next.has_value());
    query.after = page->next;
    query.after = f.store->list(query)->next;
    page = f.store->list(query);
    CHECK(page->records.size() == 1);
    CHECK_FALSE(page->next.has_value());
  }

  TEST_CASE("a read looks at as many entries as it may, and those of dropped topics count") {
    Fixture f;
    for (Sequence i = 1; i <= 100; ++i) f.put({park(orders, i, static_cast<std::int64_t>(i))});
    f.put({park(others, 101, 101), park(others, 102, 102)});
    CHECK(f.store->topics().size() == 2);
    REQUIRE(f.store->drop_topic(orders.topic).has_value());
    CHECK(f.store->topics() == std::vector<TopicId>{others.topic});

    f.open_store({.scanned_per_page = 10});
    std::vector<Sequence> found;
    int windows = 0;
    std::optional<PendingKey> from = PendingKey{};
    for (; from; ++windows) {
      const auto window = f.store->window(*from, from_ms(1000), 10);
      REQUIRE(window.has_value());
      for (const auto& locator : window->locators) found.push_back(locator.key.sequence);
      from = window->next;
    }
    CHECK(found == std::vector<Sequence>{101, 102});
    CHECK(windows == 11);

    int pages = 0;
    found.clear();
    for (PendingQuery query; pages == 0 || query.after; ++pages) {
      const auto page = f.store->list(query);
      REQUIRE(page.has_value());
      for (const auto& record : page->records) found.push_back(record.key.sequence);
      query.after = page->next;
    }
    CHECK(found == std::vector<Sequence>{101, 102});
    CHECK(pages == 11);

    // What one look has seen the next one need not see again, nor does it miss what came since.
    for (int i = 0; i < 5; ++i) CHECK_FALSE(f.store->next_due()->known);
    f.put({park(others, 103, 20)});
    CHECK(f.store->next_due()->due == from_ms(20));
    f.put({gone(others, 103, 20)});
    CHECK(f.next_due() == from_ms(101));
    CHECK(f.store->next_due()->known);
  }

  TEST_CASE("a record that is added below the earliest one is found after drains and restarts") {
    Fixture f;
    f.put({park(orders, 1, 1000), park(orders, 2, 2000)});
    CHECK(f.next_due() == from_ms(1000));
    f.put({gone(orders, 1, 1000)});
    CHECK(f.next_due() == from_ms(2000));
    REQUIRE(f.store->sweep(from_ms(0), 1).has_value());
    REQUIRE(f.database->flush().has_value());
    f.crash();
    f.put({park(orders, 3, 10)});
    CHECK(f.window(0, 5000) == std::vector<Sequence>{3, 2});
    CHECK(f.next_due() == from_ms(10));
    f.put({gone(orders, 3, 10), gone(orders, 2, 2000)});
    CHECK_FALSE(f.next_due().has_value());
    f.put({park(orders, 4, 5)});
    CHECK(f.next_due() == from_ms(5));
    REQUIRE(f.database->flush().has_value());
    f.crash();
    CHECK(f.window(0, 5000) == std::vector<Sequence>{4});
  }

  TEST_CASE(
      "a handle leads back to its key, has one text only and nothing but letters and digits") {
    SeededRandom random(7);
    std::vector<PendingKey> keys{{from_ms(0), 0},
                                 {from_ms(0), 1},
                                 {from_ms(1), 0},
                                 {WallTime::max(), ~Sequence{0}},
                                 {from_ms(-1), 5}};
    for (int i = 0; i < 1000; ++i) {
      keys.push_back({from_ms(static_cast<std::int64_t>(random.u64() >> random.below(60))),
                      random.u64() >> random.below(64)});
    }
    std::set<std::string> texts;
    for (const PendingKey key : keys) {
      const std::string text = encode_handle(key);
      texts.insert(text);
      CHECK(text.find_first_not_of("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
                                   1) == std::string::npos);
      const auto parsed = parse_handle(text);
      REQUIRE(parsed.has_value());
      CHECK(*parsed == key);
    }
    CHECK(texts.size() == std::set<PendingKey>(keys.begin(), keys.end()).size());
    CHECK(encode_handle({from_ms(1'795'000'000'000), 17}).size() <= 12);
    for (const char* text : {"", "@", "x1A", "@1", "@9abc", "@1A0", "@101", "@1-", "@1A/", "@1A B",
                             "@Bzzzzzzzzzzz", "@0zzzzzzzzzzzz", "@/"})
      CHECK_FALSE(parse_handle(text).has_value());
  }

  TEST_CASE("shards that write, sweep and read at once leave exact counts") {
    Fixture f({.write_buffer_bytes = 256 << 10});
    constexpr int shards = 3, rounds = 150;
    std::vector<std::thread> threads;
    for (int shard = 0; shard < shards; ++shard) {
      threads.emplace_back([&, shard] {
        const TopicPartition partition{orders.topic, shard};
        for (int i = 0; i < rounds; ++i) {
          std::vector<Operation> record;
          for (int k = 0; k < 10; ++k) {
            const int n = i * 10 + k;
            const auto sequence = static_cast<Sequence>(shard * 1'000'000 + n);
            record.push_back(park(partition, sequence, n, "a"));
            if (k % 2 == 0) record.push_back(gone(partition, sequence, n, "a"));
          }
          if (!f.store->apply(record)) std::abort();
          if (i % 10 == 0) {
            const auto window = f.store->window({}, WallTime::max(), 20);
            const auto page = f.store->list({.limit = 5});
            const auto first = f.store->next_due();
            if (!window || !page || !first || !f.store->sweep(from_ms(i), 10)) std::abort();
          }
          if (shard == 0 && i % 50 == 0 && !f.store->drop_topic(test_topic(9))) std::abort();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(f.store->total() == shards * rounds * 5);
    CHECK(f.window(0, 1'000'000, 100'000).size() == shards * rounds * 5);
  }

  // A slow simple store, and a journal that both are fed from.
  struct Model {
    std::map<PendingKey, std::pair<TopicPartition, std::string>> pending;
    std::map<std::pair<TopicPartition, std::string>, std::pair<std::string, Sequence>> ids;
    std::set<TopicId> dropped;
  };

  TEST_CASE("after any crash and any replay everything is as a simple model says") {
    for (int seed = 1; seed <= tries(4); ++seed) {
      CAPTURE(seed);
      SeededRandom random(static_cast<std::uint64_t>(seed));
      Fixture f({.write_buffer_bytes = 64 << 10});  // So that RocksDB flushes when it likes.
      Model model;
      std::deque<std::string> names;
      const std::string body(200, 'b');
      std::vector<std::vector<Operation>> journal;
      std::vector<std::optional<TopicId>> drops;  // Beside journal: a drop instead of a record.
      std::size_t checkpoint = 0;
      Sequence next = 1;
      std::uint8_t next_topic = 4;
      std::vector<TopicId> topics{test_topic(1), test_topic(2), test_topic(3)};

      const auto end = [&](std::vector<Operation>& record, PendingKey key, RemovalReason how) {
        const auto& [partition, id] = model.pending.at(key);
        names.push_back(id);
        record.push_back(
            PendingRemoved{partition, key.sequence, key.due, how, from_ms(0), names.back()});
        if (!id.empty() &&
            model.ids[{partition, id}] == std::pair{std::string("pending"), key.sequence})
          model.ids[{partition, id}] = {"ended " + std::to_string(static_cast<int>(how)),
                                        key.sequence};
        model.pending.erase(key);
      };
      const auto any_pending = [&] {
        auto at =
            model.pending.lower_bound({from_ms(static_cast<std::int64_t>(random.below(1000))), 0});
        return at == model.pending.end() ? model.pending.begin() : at;
      };

      const auto check = [&] {
        REQUIRE(f.store->total() == model.pending.size());
        std::map<TopicId, std::uint64_t> counts;
        for (const auto& [key, record] : model.pending) ++counts[record.first.topic];
        for (int i = 1; i < next_topic; ++i) {
          const TopicId topic = test_topic(static_cast<std::uint8_t>(i));
          REQUIRE(f.store->pending_of(topic) == counts[topic]);
        }
        const auto all = f.store->window({}, from_ms(100'000), 1'000'000);
        REQUIRE(all.has_value());
        REQUIRE(all->locators.size() == model.pending.size());
        CHECK_FALSE(all->next.has_value());
        auto expected = model.pending.begin();
        for (const auto& locator : all->locators) {
          REQUIRE(locator.key == expected->first);
          REQUIRE(locator.partition == expected->second.first);
          ++expected;
        }
        for (const auto& [name, state] : model.ids) {
          const std::string text =
              state.first == "pending" ? "pending " + std::to_string(state.second) : state.first;
          REQUIRE(f.id(name.first, name.second) ==
                  (model.dropped.contains(name.first.topic) ? "unknown" : text));
        }
        const auto first = f.next_due();
        REQUIRE(first.has_value() == !model.pending.empty());
        if (first) REQUIRE(*first == model.pending.begin()->first.due);
      };

      for (int step = 0; step < tries(1500); ++step) {
        std::vector<Operation> record;
        const auto kind = random.below(100);
        if (kind < 55) {
          const TopicPartition partition{topics[random.below(topics.size())],
                                         static_cast<PartitionIndex>(random.below(2))};
          for (auto n = 1 + random.below(4); n > 0; --n) {
            const PendingKey key{from_ms(static_cast<std::int64_t>(random.below(1000))), next++};
            names.push_back(random.below(2) == 0 ? "" : "id" + std::to_string(random.below(30)));
            const std::string& id = names.back();
            if (!id.empty()) {
              const auto old = std::ranges::find_if(model.pending, [&](const auto& p) {
                return p.second == std::pair{partition, id};
              });
              if (old != model.pending.end()) end(record, old->first, RemovalReason::replaced);
              model.ids[{partition, id}] = {"pending", key.sequence};
            }
            record.push_back(PendingAdded{partition, key.sequence, key.due, from_ms(1),
                                          never_expires, id, as_bytes(body)});
            model.pending[key] = {partition, id};
          }
        } else if (kind < 95) {
          for (auto n = 1 + random.below(6); n > 0 && !model.pending.empty(); --n) {
            end(record, any_pending()->first,
                random.below(2) == 0 ? RemovalReason::delivered : RemovalReason::cancelled);
          }
        } else if (kind < 96) {
          // A topic deleted by force, and another one in its place.
          const std::size_t which = random.below(topics.size());
          const TopicId topic = topics[which];
          topics[which] = test_topic(next_topic++);
          std::erase_if(model.pending,
                        [&](const auto& p) { return p.second.first.topic == topic; });
          model.dropped.insert(topic);
          REQUIRE(f.store->drop_topic(topic).has_value());
          journal.push_back({});
          drops.push_back(topic);
          continue;
        } else if (kind < 98) {
          REQUIRE(f.store->sweep(from_ms(0), 1 + random.below(200)).has_value());
          if (random.below(2) == 0) {  // A checkpoint, perhaps older than what is flushed.
            const std::size_t captured = journal.size();
            REQUIRE(f.database->flush().has_value());
            checkpoint = captured;
          }
          continue;
        } else {
          f.crash();
          // Recovery knows first which topics there are in the end, and drops the others.
          std::set<TopicId> dropped;
          for (std::size_t i = checkpoint; i < journal.size(); ++i) {
            if (!drops[i]) continue;
            dropped.insert(*drops[i]);
            REQUIRE(f.store->drop_topic(*drops[i]).has_value());
          }
          const auto times = 1 + random.below(2);
          for (std::uint64_t time = 0; time < times; ++time) {
            for (std::size_t i = checkpoint; i < journal.size(); ++i) {
              auto again = journal[i];
              std::erase_if(again, [&](const Operation& operation) {
                const auto* p = std::get_if<PendingAdded>(&operation);
                const auto* g = std::get_if<PendingRemoved>(&operation);
                return model.dropped.contains(p ? p->partition.topic : g->partition.topic);
              });
              REQUIRE(f.store->apply(again).has_value());
            }
          }
          check();
          continue;
        }
        REQUIRE(f.store->apply(record).has_value());
        journal.push_back(std::move(record));
        drops.push_back(std::nullopt);
        if (step % 100 == 0) check();
      }
      check();
    }
  }
}

}  // namespace
}  // namespace tarry::storage
