// Where what waits stands, over HTTP.

#include <doctest/doctest.h>

#include "tests/admin/client.h"

namespace tarry::admin::test {
namespace {

using broker::test::batch_of;
using broker::test::create_topic;
using broker::test::produce;

TEST_SUITE("wheel routes") {
  TEST_CASE("/wheel shows both wheels of every shard and the records that are only on disk") {
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
    for (const auto& level : written["levels"])
      CHECK(has(level, {"place", "level", "span_ms", "records", "bytes", "chunks", "upgrades",
                        "downgrades"}));
  }

  TEST_CASE("each level of the wheel, in memory and on disk, shows its contents") {
    Admin admin;
    create_topic(admin.world, "t");
    const auto level = [&](const std::string& place, const std::string& name) {
      const auto wheel = admin.get_json("/wheel");
      for (const auto& each : wheel["levels"])
        if (each["place"] == place && each["level"] == name) return each;
      return Json();
    };
    const auto records = [&](const std::string& place, const std::string& name) {
      return level(place, name)["records"].get<std::size_t>();
    };
    // The month of 700 days is one by itself, whatever the time of day.
    produce(admin.world, "t", 0,
            batch_of(admin.world.clock.wall(), {{"soon", {{"x-delay", "5s"}}},
                                                {"far", {{"x-delay", "700d"}}},
                                                {"farther", {{"x-delay", "700d"}}}}));
    CHECK(records("memory", "hour") == 1);
    CHECK(records("memory", "month") == 2);
    CHECK(level("memory", "month")["bytes"].get<std::size_t>() > 0);
    CHECK(level("memory", "month")["chunks"] == 1);
    CHECK(records("disk", "month") == 0);
    std::size_t timers = 0;
    for (const char* name : {"0", "1", "2"})
      if (const auto found = level("wheel", name); found.is_object())
        timers += found["records"].get<std::size_t>();
    CHECK_MESSAGE(timers == 1, "what is near is in the wheel too");
    admin.get_json("/delayed");  // Every shard writes what it has.
    CHECK_MESSAGE(records("memory", "hour") == 1, "what is near stays in memory");
    CHECK_MESSAGE(records("disk", "hour") == 0, "and is not counted twice");
    CHECK(records("memory", "month") == 0);
    CHECK(records("disk", "month") == 2);
    CHECK(level("disk", "month")["chunks"] == 1);
    CHECK(level("disk", "month")["bytes"].get<std::size_t>() > 0);
    CHECK(level("disk", "month")["upgrades"] == 2);
    CHECK(level("disk", "hour")["chunks"] == 1);
    CHECK(level("disk", "minute").is_null());
  }
}

}  // namespace
}  // namespace tarry::admin::test
