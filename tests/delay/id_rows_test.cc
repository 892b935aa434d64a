// BucketTier: the ids of a batch, asked for before it is accepted.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "delay/bucket_tier.h"
#include "storage/bucket_store.h"
#include "tests/given.h"

namespace tarry::delay {
namespace {

using storage::BucketStore;
using storage::RemovalReason;
using storage::ScheduleEvent;
using IdRows = BucketTier::IdRows;

const WallTime beginning = from_ms(1'795'000'000'000);

// A tier whose records all have ids, with the Background that a test steps.
struct IdWorld {
  std::string directory = [] {
    std::string name = (std::filesystem::temp_directory_path() / "tarry-test-XXXXXX").string();
    return std::string(::mkdtemp(name.data()));
  }();
  TopicPartition partition;
  QueuedBackground background;
  std::unique_ptr<BucketStore> store;
  std::unique_ptr<BucketTier> tier;
  std::uint64_t lsn = 100;
  Sequence sequence = 1;

  explicit IdWorld(const BucketTier::Options& options = {}) {
    partition.topic.bytes.fill(7);
    store = std::move(*BucketStore::make(directory + "/db", {}));
    BucketTier::Hooks hooks;
    hooks.near = [](const auto&, const auto&) {};
    hooks.pulled_back = [](const auto&) {};
    hooks.wake = [] {};
    hooks.failed = [](const Error&) {};
    tier = std::make_unique<BucketTier>(*store, background, storage::Owner{0, 1}, options,
                                        std::move(hooks));
    REQUIRE(tier->open(beginning).has_value());
  }
  ~IdWorld() {
    tier.reset();
    store.reset();
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
  }

  storage::PendingKey add(std::string_view id) {
    const storage::PendingKey key{beginning + std::chrono::hours(30), sequence++};
    tier->add({lsn++, 0}, {partition, key.sequence, key.due, beginning, storage::never_expires, id,
                           as_bytes("body")});
    return key;
  }
  void cancel(std::string_view id, const storage::PendingKey& key) {
    tier->remove({lsn++, 0},
                 {partition, key.sequence, key.due, RemovalReason::cancelled, beginning, id});
  }
  void settle() {
    while (tier->step(beginning) || background.step()) {
    }
  }
  void begin_work() {
    for (int steps = 0; background.size() == 0; ++steps) {
      REQUIRE(steps < 100);
      tier->step(beginning);
    }
  }
  // All that was told is in the store.
  void write() {
    tier->write_all([] {});
    settle();
  }
  // As memory does when it needs the room.
  void forget_written() {
    tier->set_locator_bytes(BucketTier::Options{}.memory_bytes / 2);
    settle();
    tier->set_locator_bytes(0);
  }
  void write_and_forget() {
    write();
    forget_written();
  }
  // The answer comes into `rows`.
  void ask(std::vector<std::string_view> ids, std::optional<IdRows>& rows) {
    tier->read_ids(partition, std::move(ids), [&rows](Result<IdRows> read) {
      REQUIRE(read.has_value());
      rows = std::move(*read);
    });
  }
  // How it ended, or that it is pending.
  std::optional<ScheduleEvent::Kind> last(std::string_view id, const IdRows& rows, std::size_t at) {
    const auto event = tier->last_event(partition, id, rows, at);
    return event ? std::optional(event->kind) : std::nullopt;
  }
};

TEST_SUITE("ids of a batch") {
  TEST_CASE("an event of an id after the store was asked counts, written meanwhile or not") {
    IdWorld world;
    const auto a = world.add("a");
    const auto b = world.add("b");
    world.write_and_forget();

    std::optional<IdRows> rows;
    world.ask({"a", "b", "c", "d"}, rows);
    REQUIRE(!rows);
    REQUIRE(world.background.step());
    REQUIRE(rows);
    world.cancel("a", a);
    world.add("c");
    world.write_and_forget();
    world.cancel("b", b);
    CHECK(world.last("a", *rows, 0) == ScheduleEvent::Kind::cancelled);
    CHECK(world.last("b", *rows, 1) == ScheduleEvent::Kind::cancelled);
    CHECK(world.last("c", *rows, 2) == ScheduleEvent::Kind::scheduled);
    CHECK(!world.last("d", *rows, 3));
  }

  TEST_CASE("ids that are asked for while a question is on its way go with the next one") {
    IdWorld world;
    world.add("a");
    world.add("b");
    world.write_and_forget();
    std::optional<IdRows> a, b, c, many;
    world.ask({"a"}, a);
    world.ask({"c", "b"}, b);
    world.ask({"c"}, c);
    CHECK(world.background.size() == 1);
    world.ask(std::vector<std::string_view>(1'000, "b"), many);
    CHECK(world.background.size() == 2);  // It would be in the way of the others.
    REQUIRE(world.background.step());
    CHECK((a && !b && !c && !many));
    world.ask({"b"}, a);  // The question for the others has begun.
    CHECK(world.background.size() == 2);
    REQUIRE(world.background.step());
    CHECK((many && !b && !c));
    REQUIRE(world.background.step());
    REQUIRE((b && c));
    REQUIRE(world.background.step());
    CHECK(world.background.size() == 0);
    CHECK(world.last("b", *a, 0) == ScheduleEvent::Kind::scheduled);
    CHECK(world.last("c", *b, 0) == std::nullopt);
    CHECK(world.last("b", *b, 1) == ScheduleEvent::Kind::scheduled);
    CHECK(world.last("c", *c, 0) == std::nullopt);
    CHECK(world.last("b", *many, 999) == ScheduleEvent::Kind::scheduled);
  }

  TEST_CASE("a turn answers requests for a few hundred ids, and the store is asked meanwhile") {
    IdWorld world;
    world.add("a");
    world.write_and_forget();
    std::optional<IdRows> first, last;
    std::vector<std::optional<IdRows>> many(1'000);
    world.ask({"a"}, first);
    for (auto& one : many) world.ask({"a"}, one);
    REQUIRE(world.background.step());
    CHECK(first);
    world.ask({"a"}, last);  // It goes with the next question.
    CHECK(world.background.size() == 1);
    const auto answered = [&] {
      return std::ranges::count_if(many, [](const auto& one) { return one.has_value(); });
    };
    std::ptrdiff_t before = 0;
    for (int turns = 0; before < 1'000; ++turns) {
      REQUIRE(turns < 10);
      REQUIRE(world.background.step());
      CHECK(answered() <= before + 256);
      before = answered();
    }
    CHECK(world.last("a", *many.back(), 0) == ScheduleEvent::Kind::scheduled);
    CHECK(last);  // Between them.
    CHECK(world.background.size() == 0);
  }

  TEST_CASE("every request for ids is answered, also when the tier has gone or memory is used up") {
    IdWorld world;
    world.add("a");
    world.write_and_forget();
    std::vector<std::optional<Result<IdRows>>> told(4);
    const auto ask = [&](std::size_t i) {
      world.tier->read_ids(world.partition, {"a"},
                           [&told, i](Result<IdRows> rows) { told[i] = std::move(rows); });
    };
    world.background.no_memory = true;
    ask(0);
    REQUIRE(told[0].has_value());
    CHECK_FALSE(told[0]->has_value());
    for (const std::size_t i : {1, 2, 3}) ask(i);
    world.tier.reset();
    world.background.run_all();
    REQUIRE((told[1] && told[2] && told[3]));
    CHECK(told[1]->has_value());
    CHECK_FALSE(told[2]->has_value());
    CHECK_FALSE(told[3]->has_value());
  }

  TEST_CASE("when there is no memory for a question all that wait are answered, however many") {
    IdWorld world;
    world.add("a");
    world.write_and_forget();
    // More than one question asks for.
    std::vector<std::optional<Result<IdRows>>> told(3'000);
    for (std::size_t i = 0; i < told.size(); ++i)
      world.tier->read_ids(world.partition, {"a"},
                           [&told, i](Result<IdRows> rows) { told[i] = std::move(rows); });
    world.background.no_memory = true;  // The first question is under way.
    REQUIRE(world.background.step());
    CHECK(world.background.size() == 0);
    for (const auto& one : told) REQUIRE(one.has_value());
    CHECK(told.front()->has_value());
    CHECK_FALSE(told.back()->has_value());
  }

  TEST_CASE("events that are being written when the ids are asked for count") {
    IdWorld world;
    world.add("a");
    world.settle();
    world.tier->write_all([] {});
    world.begin_work();  // The home.
    REQUIRE(world.background.step());
    world.begin_work();  // The ids: on their way.
    std::optional<IdRows> rows;
    world.ask({"a", "z"}, rows);
    REQUIRE(world.background.step_last());  // The question is quicker.
    REQUIRE(rows);
    CHECK(world.last("a", *rows, 0) == ScheduleEvent::Kind::scheduled);
    world.settle();
    CHECK(world.last("a", *rows, 0) == ScheduleEvent::Kind::scheduled);
    CHECK(!world.last("z", *rows, 1));
  }

  TEST_CASE("if memory knows all of a few ids, nobody reads the store") {
    IdWorld world;
    world.add("a");
    const auto b = world.add("b");
    world.cancel("b", b);
    std::optional<IdRows> rows;
    world.ask({"a", "b"}, rows);
    REQUIRE(rows);
    CHECK(world.background.size() == 0);
    world.write_and_forget();
    CHECK(world.last("a", *rows, 0) == ScheduleEvent::Kind::scheduled);
    CHECK(world.last("b", *rows, 1) == ScheduleEvent::Kind::cancelled);
  }

  TEST_CASE("a batch whose ids memory has written lately is answered at once") {
    IdWorld world;
    const auto a = world.add("a");
    world.write();
    world.add("b");
    world.write();
    std::optional<IdRows> rows, later;
    world.ask({"a", "b"}, rows);
    REQUIRE(rows);
    CHECK(world.background.size() == 0);
    CHECK(world.last("a", *rows, 0) == ScheduleEvent::Kind::scheduled);
    CHECK(world.last("b", *rows, 1) == ScheduleEvent::Kind::scheduled);
    world.cancel("a", a);
    world.write();
    world.ask({"a"}, later);
    REQUIRE(later);
    CHECK(world.last("a", *later, 0) == ScheduleEvent::Kind::cancelled);
    // What a request has been promised is here until it ends.
    world.forget_written();
    CHECK(world.last("a", *rows, 0) == ScheduleEvent::Kind::cancelled);
    CHECK(world.last("b", *rows, 1) == ScheduleEvent::Kind::scheduled);
    std::optional<IdRows> asks;
    world.ask({"b"}, asks);
    CHECK(!asks);
    REQUIRE(world.background.step());
    CHECK(world.last("b", *asks, 0) == ScheduleEvent::Kind::scheduled);
  }

  TEST_CASE("written events take an eighth of memory at most, and the oldest go first") {
    BucketTier::Options options;
    options.memory_bytes = 4u << 20;
    IdWorld world(options);
    const auto id_of = [](int round, int i) {
      return std::to_string(round) + "-" + std::to_string(i);
    };
    std::optional<IdRows> rows;
    for (int round = 0; round < 20; ++round) {
      for (int i = 0; i < 500; ++i) world.add(id_of(round, i));
      world.write();
      CHECK(world.tier->stats().memory_bytes <= options.memory_bytes / 8);
    }
    CHECK(world.tier->stats().memory_bytes > options.memory_bytes / 16);
    const auto asks_store = [&](int round) {
      rows.reset();
      const std::string id = id_of(round, 0);
      world.ask({id}, rows);
      const bool asked = !rows;
      world.background.run_all();
      CHECK(world.last(id, *rows, 0) == ScheduleEvent::Kind::scheduled);
      return asked;
    };
    CHECK(!asks_store(19));
    CHECK(!asks_store(18));
    CHECK(asks_store(0));
  }

  TEST_CASE("requests that follow each other do not keep written events for ever") {
    IdWorld world;
    world.add("a");
    world.write();
    std::optional<IdRows> first, second;
    world.ask({"a"}, first);
    REQUIRE(first);
    world.forget_written();
    CHECK(world.tier->stats().memory_bytes > 0);
    world.ask({"a"}, second);  // While the first one needs them, they are for no other.
    REQUIRE(world.background.step());
    first.reset();
    world.settle();
    CHECK(world.tier->stats().memory_bytes <= sizeof(IdRows::Lasts::value_type));
    CHECK(world.last("a", *second, 0) == ScheduleEvent::Kind::scheduled);
  }

  TEST_CASE("memory that is short keeps written events only while a request needs them") {
    IdWorld world;
    std::optional<IdRows> first, second;
    world.ask({"x"}, first);
    REQUIRE(world.background.step());
    for (int i = 0; i < 100; ++i) world.add("id-" + std::to_string(i));
    world.write_and_forget();
    const std::size_t kept = world.tier->stats().memory_bytes;
    CHECK(kept > 100 * sizeof(ScheduleEvent));
    world.ask({"x"}, second);
    REQUIRE(world.background.step());
    first.reset();
    world.settle();
    CHECK(world.tier->stats().memory_bytes < kept);
    second.reset();
    world.settle();
    CHECK(world.tier->stats().memory_bytes == 0);
  }

  TEST_CASE("rows read for a batch's ids count as memory until the batch has gone") {
    IdWorld world;
    std::vector<std::string> ids;
    for (int i = 0; i < 1'000; ++i) ids.push_back("id-" + std::to_string(i));
    std::optional<IdRows> first, second;
    world.ask({ids.begin(), ids.end()}, first);
    const std::size_t asked = world.tier->stats().memory_bytes;
    CHECK(asked >= 1'000 * sizeof(ScheduleEvent));
    world.ask({ids.begin(), ids.begin() + 500}, second);
    CHECK(world.tier->stats().memory_bytes >= asked + 500 * sizeof(ScheduleEvent));
    REQUIRE(world.background.step());
    REQUIRE(world.background.step());
    second.reset();
    first.reset();
    world.settle();
    CHECK(world.tier->stats().memory_bytes == 0);
  }

  TEST_CASE("a thousand ids that memory knows are not asked of the store") {
    IdWorld world;
    std::vector<std::string> ids;
    for (int i = 0; i < 1'000; ++i) {
      ids.push_back("id-" + std::to_string(i));
      world.add(ids.back());
    }
    std::optional<IdRows> known, unknown;
    world.ask({ids.begin(), ids.end()}, known);
    REQUIRE(known);
    CHECK(world.last(ids[999], *known, 999) == ScheduleEvent::Kind::scheduled);
    ids.emplace_back("another");
    world.ask({ids.begin(), ids.end()}, unknown);
    CHECK(!unknown);
    REQUIRE(world.background.step());
    REQUIRE(unknown);
    CHECK(world.last(ids[999], *unknown, 999) == ScheduleEvent::Kind::scheduled);
    CHECK(!world.last(ids[1'000], *unknown, 1'000));
  }

  TEST_CASE("an id that changes all the time costs the memory of its last events") {
    IdWorld world;
    for (std::size_t i = 0; i < 2 * storage::max_id_events; ++i) world.cancel("a", world.add("a"));
    const std::size_t used = world.tier->stats().memory_bytes;
    for (std::size_t i = 0; i < 200; ++i) world.cancel("a", world.add("a"));
    CHECK(world.tier->stats().memory_bytes <= used + 1'024);
    std::optional<std::vector<ScheduleEvent>> events;
    world.tier->find_id(world.partition, "a", [&](auto found) { events = std::move(*found); });
    world.settle();
    REQUIRE(events);
    CHECK(events->size() == storage::max_id_events);
    CHECK(events->back().key.sequence == world.sequence - 1);
  }

  TEST_CASE("the ids of a dropped topic are unknown, whenever they were asked for") {
    IdWorld world;
    world.add("a");
    world.write_and_forget();
    std::optional<IdRows> rows;
    world.ask({"a"}, rows);
    REQUIRE(world.background.step());
    world.tier->topic_dropped(world.partition.topic);
    CHECK(!world.last("a", *rows, 0));
  }
}

}  // namespace
}  // namespace tarry::delay
