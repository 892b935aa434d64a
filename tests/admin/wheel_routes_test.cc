// Where what waits stands, over HTTP.

#include <doctest/doctest.h>

#include "admin/wheel_json.h"
#include "tests/admin/client.h"
#include "tests/admin/send_delayed.h"

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
    // Far records wait in memory to be written.
    CHECK(wheel["memory"]["records"] == 2);
    CHECK(wheel["disk"]["records"] == 0);
    admin.get_json("/delayed");  // Every shard writes what it has.
    const auto written = admin.get_json("/wheel");
    CHECK(written["memory"]["records"] == 1);
    CHECK(written["disk"]["records"] == 1);
    for (const auto& level : written["levels"])
      CHECK(has(level, {"place", "level", "span_ms", "records", "bytes", "chunks", "upgrades",
                        "downgrades", "slots"}));
  }

  TEST_CASE("a shard's next due time is not in the past while nothing is overdue") {
    const WallTime now{std::chrono::seconds(1'000'000)};
    delay::Engine::Stats stats;
    stats.now = now;
    stats.horizon = now + std::chrono::hours(1);
    CHECK_FALSE(next_due_of(stats).has_value());
    // Of a record that has been delivered, in a bucket that still has others.
    const WallTime gone = now - std::chrono::minutes(5);
    stats.next_due = gone;
    stats.next_due_exact = false;
    CHECK(next_due_of(stats) == now);
    // What is due from the horizon on may still be on disk.
    stats.horizon = now - std::chrono::minutes(1);
    CHECK(next_due_of(stats) == stats.horizon);
    stats.overdue = 1;
    CHECK(next_due_of(stats) == gone);
    stats.overdue = 0;
    stats.next_due_exact = true;
    CHECK(next_due_of(stats) == gone);
  }

  // The places of the slots that are in use, and the number of slots if there are others.
  std::vector<std::size_t> used(const Json& slots) {
    std::vector<std::size_t> found;
    const auto bits = slots["bits"].get<std::string>();
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const auto digit = std::stoul(bits.substr(i, 1), nullptr, 16);
      for (std::size_t bit = 0; bit < 4; ++bit)
        if ((digit >> (3 - bit) & 1) != 0) found.push_back(4 * i + bit);
    }
    if (slots["later"]) found.push_back(1024);
    return found;
  }

  TEST_CASE("the slots of each level are the buckets in use, in memory and on disk") {
    Admin admin;
    create_topic(admin.world, "t");
    const auto now = to_ms(admin.world.clock.wall());
    const auto schedule = [&](std::int64_t due) {
      const auto header = std::to_string(due);
      produce(admin.world, "t", 0,
              batch_of(admin.world.clock.wall(), {{"v", {{"x-deliver-at", header}}}}));
    };
    constexpr std::int64_t hour_ms = 3'600'000, month_ms = 720 * hour_ms;
    const auto soon = now + 60'000;
    schedule(soon);
    schedule(now + 48 * hour_ms);
    schedule(now + 1'100 * hour_ms);
    schedule(now + 30 * month_ms);
    using Places = std::vector<std::size_t>;
    // As the page finds the time of a slot.
    const auto check = [&](const Json& level, Places places) {
      INFO(level.dump());
      CHECK(used(level["slots"]) == places);
    };
    const auto wheel = admin.get_json("/wheel");
    std::size_t seen = 0;
    for (const auto& level : wheel["levels"]) {
      const auto span = level["span_ms"].get<std::int64_t>();
      const auto from = level["slots"]["from_ms"].get<std::int64_t>();
      if (level["place"] == "wheel") {
        CHECK(from % (256 * span) == 0);
        const bool here = level["records"].get<int>() > 0;
        check(level, here ? Places{static_cast<std::size_t>((soon - from) / span)} : Places{});
        seen += here;
      } else {
        CHECK(from % span == 0);
        CHECK(now - from < span);
      }
      if (level["place"] == "memory" && level["level"] == "hour") {
        const auto first = static_cast<std::size_t>((soon - from) / hour_ms);
        check(level, {first, 48, 1024});
      }
      if (level["place"] == "memory" && level["level"] == "month") check(level, {30});
      if (level["place"] == "disk") check(level, {});
    }
    CHECK(seen == 1);
    admin.get_json("/delayed");  // Every shard writes what it has.
    const auto written = admin.get_json("/wheel");
    for (const auto& level : written["levels"]) {
      if (level["place"] == "disk" && level["level"] == "month") check(level, {30});
      if (level["place"] == "disk" && level["level"] == "hour")
        CHECK(used(level["slots"]).back() == 1024);
      if (level["place"] == "memory" && level["level"] == "month") check(level, {});
    }
    // The wheel of a shard that has the record, by itself.
    std::size_t of_shards = 0;
    for (const auto& shard : written["shards"])
      for (const auto& level : shard["delayed"]["levels"]) of_shards += used(level["slots"]).size();
    CHECK(of_shards == 1);
  }

  TEST_CASE("the levels add up to what is pending, and cancelled records on disk are told apart") {
    Admin admin;
    create_topic(admin.world, "t");
    const auto check = [&](std::size_t pending, std::size_t in_memory, std::size_t gone) {
      const auto wheel = admin.get_json("/wheel");
      INFO(wheel["levels"].dump());
      std::size_t sum = 0, within = 0;
      for (const auto& level : wheel["levels"]) {
        CHECK(level["within"] == (level["place"] == "wheel" ? Json("memory") : Json(nullptr)));
        (level["within"].is_null() ? sum : within) += level["records"].get<std::size_t>();
      }
      CHECK(wheel["pending"] == pending);
      CHECK(wheel["memory"]["records"] == in_memory);
      CHECK(wheel["disk"]["records"] == pending - in_memory);
      CHECK(wheel["disk"]["gone"] == gone);
      CHECK(sum == pending + gone);
      CHECK(within <= in_memory);
      CHECK(admin.get_json("/status")["delayed"]["pending"] == pending);
    };
    check(0, 0, 0);
    for (const char* id : {"a", "b", "c", "d"}) send_delayed(admin, "t", 0, id, "700d", id);
    for (const char* delay : {"5s", "50s", "30h"}) send_delayed(admin, "t", 0, "v", delay);
    check(7, 7, 0);
    admin.get_json("/delayed");  // Every shard writes what it has.
    check(7, 2, 0);
    REQUIRE(admin.remove("/delayed/t/a").status == 200);
    REQUIRE(admin.remove("/delayed/t/b").status == 200);
    check(5, 2, 2);
    admin.world.pass(std::chrono::seconds(10));
    check(4, 1, 2);
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
