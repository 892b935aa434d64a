// Where what waits stands, over HTTP.

#include <doctest/doctest.h>

#include "tests/admin/client.h"

namespace tarry::admin::test {
namespace {

using broker::test::batch_of;
using broker::test::create_topic;
using broker::test::produce;

TEST_SUITE("wheel routes") {
  TEST_CASE("/wheel shows both wheels of every shard and what is on disk alone") {
    Admin admin;
    create_topic(admin.world, "t");
    produce(admin.world, "t", 0,
            batch_of(admin.world.clock.wall(),
                     {{"soon", {{"x-delay", "5s"}}}, {"far", {{"x-delay", "700d"}}}}));
    const auto wheel = admin.get_json("/wheel");
    REQUIRE(wheel["shards"].size() == 2);
    std::size_t near = 0;
    for (const auto& shard : wheel["shards"]) {
      CHECK(has(shard["requests"], {"timers", "levels", "next_due_ms"}));
      CHECK(has(shard["delayed"], {"timers", "levels", "next_due_ms", "near", "overdue"}));
      near += shard["delayed"]["near"].get<std::size_t>();
    }
    CHECK(near == 1);
    CHECK(wheel["memory"]["records"] == 1);
    CHECK(wheel["disk"]["records"] == 1);
  }
}

}  // namespace
}  // namespace tarry::admin::test
