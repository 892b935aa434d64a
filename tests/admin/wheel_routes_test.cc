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
    // What is far waits in memory to be written.
    CHECK(wheel["memory"]["records"] == 2);
    CHECK(wheel["disk"]["records"] == 0);
    admin.get_json("/delayed");  // Every shard writes what it has.
    const auto written = admin.get_json("/wheel");
    CHECK(written["memory"]["records"] == 1);
    CHECK(written["disk"]["records"] == 1);
    REQUIRE(written["levels"].size() == 2);
    for (const auto& level : written["levels"])
      CHECK(has(level, {"level", "records", "bytes", "chunks", "upgrades", "downgrades"}));
    CHECK(written["levels"][0]["level"] == "memory");
    CHECK(written["levels"][0]["records"] == 1);
    CHECK(written["levels"][0]["bytes"].get<std::size_t>() > 0);
    CHECK(written["levels"][1]["level"] == "disk");
    CHECK(written["levels"][1]["records"] == 1);
    CHECK(written["levels"][1]["upgrades"].get<std::size_t>() >= 1);
  }
}

}  // namespace
}  // namespace tarry::admin::test
