#include "broker/context/pool_part.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <doctest/doctest.h>

#include "broker/context/ledger.h"
#include "tests/broker/world.h"

namespace tarry::broker::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t mib = std::size_t{1} << 20;

// A connection that gives back what it holds when it is closed.
struct Hog final : Debtor {
  explicit Hog(Ledger& ledger) : Debtor(ledger), charge(ledger, this) {}
  void foreclose(std::string_view why) override {
    reason = why;
    charge.set(0);
  }
  Charge charge;
  std::string reason;
};

TEST_SUITE("a part of the memory pool") {
  TEST_CASE(
      "a part takes at most an eighth of the pool, and gives back what is not held any more") {
    const auto pool = std::make_shared<MemoryPool>(8 * mib);
    PoolPart part(pool);
    auto first = part.try_take(mib / 2);
    auto second = part.try_take(mib / 2);
    CHECK(first);
    CHECK(second);
    CHECK_FALSE(part.try_take(1));
    CHECK(part.used() == mib);
    CHECK(pool->used() == mib);
    // Another part has room of its own.
    CHECK(PoolPart(pool).try_take(mib));
    first = {};
    CHECK(part.used() == mib / 2);
    const auto moved = std::move(second);
    CHECK(part.used() == mib / 2);
    CHECK(part.try_take(mib / 2));
    CHECK(pool->used() == mib / 2);
  }

  TEST_CASE("what outlives its part goes back to the pool") {
    const auto pool = std::make_shared<MemoryPool>(8 * mib);
    auto held = std::make_optional<PoolPart>(pool)->try_take(1000);
    CHECK(pool->used() == 1000);
    held = {};
    CHECK(pool->used() == 0);
  }

  TEST_CASE("a part takes nothing of the eighth that is kept for bytes that have come") {
    World world({.shards = 1});
    const auto& pool = world.broker().memory();
    Charge clients(world.shard().ledger(), nullptr);
    clients.set(world.shard().ledger().room() - mib);
    PoolPart part(pool);
    CHECK_FALSE(part.try_take(2 * mib));
    CHECK(part.used() == 0);
    const auto held = part.try_take(mib / 2);
    CHECK(held);
    // And the clients' work has that much less.
    CHECK_FALSE(clients.try_grow(mib));
  }

  TEST_CASE("a part that finds the pool full has the connection closed that holds the most") {
    World world({.shards = 1});
    Hog small(world.shard().ledger()), large(world.shard().ledger());
    small.charge.set(mib);
    large.charge.set(world.shard().ledger().room());
    PoolPart part(world.broker().memory());
    CHECK_FALSE(part.try_take(mib / 8));
    part.ask_for_room(mib / 8);
    world.run();
    CHECK(large.reason.contains("tarry.memory.bytes"));
    CHECK(small.reason.empty());
    CHECK(part.try_take(mib / 8));
    // There is room now, so nobody else is closed.
    part.ask_for_room(mib / 8);
    world.run();
    CHECK(small.reason.empty());
  }

  TEST_CASE("a part that has no room of its own has nobody's connection closed") {
    World world({.shards = 1});
    const auto& pool = world.broker().memory();
    PoolPart part(pool);
    auto held = part.try_take(part.limit());
    REQUIRE(held);
    Hog large(world.shard().ledger());
    large.charge.set(pool->for_work() - part.limit());
    part.ask_for_room(mib);
    world.run();
    CHECK(large.reason.empty());
    held = {};
    large.charge.set(pool->for_work());
    part.ask_for_room(mib);
    world.run();
    CHECK_FALSE(large.reason.empty());
  }

  TEST_CASE(
      "what a part holds is no shard's: among shards that hold as much one still makes room") {
    World world({.shards = 2});
    PoolPart part(world.broker().memory());
    const auto held = part.try_take(part.limit());
    REQUIRE(held);
    Hog first(world.shard(0).ledger()), second(world.shard(1).ledger());
    const std::size_t half = world.shard().ledger().room() / 2;
    first.charge.set(half);
    second.charge.set(half);
    world.broker().memory()->ask_for_room(mib);
    world.run();
    CHECK(first.reason.empty() != second.reason.empty());
  }
}

}  // namespace
}  // namespace tarry::broker::test
