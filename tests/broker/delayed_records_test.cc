// The views of pending records for people.

#include "broker/views/delayed_records.h"

#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <boost/asio/co_spawn.hpp>

#include "tests/broker/batches.h"

namespace tarry::broker::test {
namespace {

using storage::ScheduleEvent;
using EventKind = ScheduleEvent::Kind;

// An event of the record `sequence`, which was due at `first` when it came.
ScheduleEvent event(EventKind kind, int at, int due, Sequence sequence, int first,
                    Offset offset = -1) {
  return {kind, from_ms(at), {from_ms(due), sequence}, from_ms(first), offset};
}

using Told = std::vector<std::tuple<EventKind, int, int, Offset>>;
Told told(const std::vector<ScheduleEvent>& events) {
  Told out;
  for (const auto& one : folded(3, events)) {
    CHECK(one.partition == 3);
    out.emplace_back(one.kind, static_cast<int>(to_ms(one.at)), static_cast<int>(to_ms(one.due)),
                     one.offset);
  }
  return out;
}

void schedule(World& world, std::string_view key) {
  const std::vector<records::HeaderView> headers{{"x-delay", as_bytes("1h")}};
  records::BatchBuilder builder{records::BatchOptions{}};
  builder.append(world.clock.wall(), as_bytes(key), as_bytes("value"), headers);
  const Buffer batch = builder.finish();
  REQUIRE(produce(world, "t", 0, batch).error_code == ErrorCode::none);
}

struct Listed {
  std::size_t records = 0;
  std::size_t pool_steps = 0;  // The pieces of work that the pool had for it.
};
// `written`: the shards' memory is in the store.
Listed list_by_key(World& world, const std::string& key, bool written) {
  DelayedQuery query;
  query.key = key;
  std::optional<Result<DelayedPage>> page;
  boost::asio::co_spawn(
      world.shard().executor(), list_delayed(world.broker(), world.shard(), query, written),
      [&](std::exception_ptr, Result<DelayedPage> found) { page = std::move(found); });
  Listed listed;
  if (!written) {
    world.run();
  } else {
    for (int turns = 0; turns < 1000 && !page; ++turns) {
      world.turn();
      if (world.background().step()) ++listed.pool_steps;
    }
  }
  REQUIRE(page.has_value());
  REQUIRE(page->has_value());
  listed.records = (*page)->records.size();
  return listed;
}

TEST_SUITE("delayed records") {
  TEST_CASE("a pattern is looked for in a long key on the pool, for its shard would be held up") {
    World world({.shards = 1});
    create_topic(world, "t");
    schedule(world, "aaaa");
    CHECK(list_by_key(world, "*aa", false).records == 1);
    const auto of_short = list_by_key(world, "*aa", true);
    CHECK(of_short.records == 1);
    schedule(world, std::string(300'000, 'a'));
    CHECK(list_by_key(world, "*aa", false).records == 2);
    const auto of_both = list_by_key(world, "*aa", true);
    CHECK(of_both.records == 2);
    CHECK(of_both.pool_steps == of_short.pool_steps + 1);
    CHECK(list_by_key(world, "*ab", true).records == 0);
  }

  TEST_CASE("a trace tells of a replacement and of a move once, with the new due time") {
    CHECK(told({event(EventKind::scheduled, 10, 500, 1, 500),
                event(EventKind::replaced, 20, 500, 1, 500),
                event(EventKind::scheduled, 21, 700, 2, 700),
                event(EventKind::moved, 30, 700, 2, 700),
                event(EventKind::scheduled, 21, 900, 2, 700),
                event(EventKind::delivered, 900, 900, 2, 700, 42)}) ==
          Told{{EventKind::scheduled, 10, 500, -1},
               {EventKind::replaced, 21, 700, -1},
               {EventKind::moved, 30, 900, -1},
               {EventKind::delivered, 900, 900, 42}});
  }

  TEST_CASE("a record that is moved back to its first due time was moved") {
    CHECK(told({event(EventKind::scheduled, 10, 500, 1, 500),
                event(EventKind::moved, 20, 500, 1, 500),
                event(EventKind::scheduled, 10, 900, 1, 500),
                event(EventKind::moved, 30, 900, 1, 500),
                event(EventKind::scheduled, 10, 500, 1, 500),
                event(EventKind::cancelled, 40, 500, 1, 500)}) ==
          Told{{EventKind::scheduled, 10, 500, -1},
               {EventKind::moved, 20, 900, -1},
               {EventKind::moved, 30, 500, -1},
               {EventKind::cancelled, 40, 500, -1}});
  }

  TEST_CASE("the next times of a recurring record are no events, its deliveries are") {
    CHECK(told({event(EventKind::scheduled, 10, 500, 1, 500),
                event(EventKind::delivered, 500, 500, 1, 500, 7),
                event(EventKind::scheduled, 10, 600, 1, 500),
                event(EventKind::delivered, 600, 600, 1, 500, 8)}) ==
          Told{{EventKind::scheduled, 10, 500, -1},
               {EventKind::delivered, 500, 500, 7},
               {EventKind::delivered, 600, 600, 8}});
    // Also when its delivery is too long ago to be remembered.
    CHECK(told({event(EventKind::scheduled, 10, 600, 1, 500),
                event(EventKind::delivered, 600, 600, 1, 500, 8)}) ==
          Told{{EventKind::delivered, 600, 600, 8}});
  }

  TEST_CASE("an id that is given again after its end is scheduled again") {
    CHECK(told({event(EventKind::scheduled, 10, 500, 1, 500),
                event(EventKind::cancelled, 20, 500, 1, 500),
                event(EventKind::scheduled, 30, 800, 2, 800)}) ==
          Told{{EventKind::scheduled, 10, 500, -1},
               {EventKind::cancelled, 20, 500, -1},
               {EventKind::scheduled, 30, 800, -1}});
    // By a record that is due at once.
    CHECK(told({event(EventKind::scheduled, 10, 500, 1, 500),
                event(EventKind::replaced, 20, 500, 1, 500),
                event(EventKind::delivered, 20, 20, 2, 20, 9)}) ==
          Told{{EventKind::scheduled, 10, 500, -1},
               {EventKind::replaced, 20, 500, -1},
               {EventKind::delivered, 20, 20, 9}});
  }
}

}  // namespace
}  // namespace tarry::broker::test
