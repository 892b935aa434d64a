// What the admin tells of a broker, over HTTP.

#include <doctest/doctest.h>

#include "tests/admin/client.h"

namespace tarry::admin::test {
namespace {

using namespace std::chrono_literals;
using broker::test::batch_of;
using broker::test::create_topic;
using broker::test::fetch_request;
using broker::test::produce;

bool has(const Json& json, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    INFO(name);
    CHECK(json.contains(name));
    if (!json.contains(name)) return false;
  }
  return true;
}

TEST_SUITE("status routes") {
  TEST_CASE("a full disk is the broker's state, not ready, until there is room again") {
    Admin admin;
    CHECK(admin.get_json("/readyz")["status"] == "running");
    auto& shard = admin.world.shard();
    shard.set_has_room(false);
    CHECK(admin.get_json("/status")["state"] == "disk full");
    const auto answer = admin.get("/readyz");
    CHECK(answer.status == 503);
    CHECK(answer.json()["status"] == "disk full");
    CHECK(answer.error().starts_with("disk full"));
    CHECK(admin.get("/healthz").status == 200);
    shard.free_space().look();
    admin.world.run();
    CHECK(admin.get_json("/status")["state"] == "running");
    CHECK(admin.get("/readyz").status == 200);
  }

  TEST_CASE("batches that were refused are counted by their error in /status and /metrics") {
    Admin admin;
    CHECK(admin.get_json("/status")["produce_errors"].empty());
    create_topic(admin.world, "t");
    for (int i = 0; i < 3; ++i) {
      produce(admin.world, "t", 0,
              batch_of(admin.world.clock.wall(), {{"a", {{"x-delay", "soon"}}}}));
    }
    const auto status = admin.get_json("/status");
    CHECK(status["produce_errors"] == Json{{"INVALID_RECORD", 3}});
    CHECK(admin.get("/metrics")
              .body.find("tarry_broker_produce_errors_total{error=\"INVALID_RECORD\"} 3\n") !=
          std::string::npos);
  }

  TEST_CASE("/status has every field that programs may rely on, numbers as numbers") {
    Admin admin;
    create_topic(admin.world, "orders", 3);
    produce(admin.world, "orders", 0,
            batch_of(admin.world.clock.wall(), {{"now"}, {"later", {{"x-delay", "1h"}}}}));
    const auto status = admin.get_json("/status");
    REQUIRE(has(status, {"version", "cluster_id", "node_id", "state", "uptime_ms", "data",
                         "listeners", "shards", "topics", "partitions", "connections", "delayed",
                         "purgatory", "wheel", "storage", "process"}));
    CHECK(status["version"] == "test");
    CHECK(status["state"] == "running");
    CHECK(status["data"] == admin.world.directory() + "/data");
    CHECK(status["listeners"]["kafka"] == "127.0.0.1:9092");
    CHECK(status["listeners"]["admin"] == admin.server->address());
    CHECK(status["shards"].size() == 2);
    CHECK(status["topics"] == 1);
    CHECK(status["partitions"] == 3);
    CHECK(status["delayed"]["pending"] == 1);
    CHECK(status["delayed"]["next_due"] == to_ms(admin.world.clock.wall()) + 3'600'000);
    CHECK(has(status["delayed"],
              {"overdue", "delivered_total", "early_total", "cancelled_total", "lag_ms"}));
    CHECK(has(status["delayed"]["lag_ms"], {"p50", "p99", "max"}));
    CHECK(has(status["purgatory"], {"fetch", "produce", "join"}));
    CHECK(has(status["purgatory"]["fetch"],
              {"waiting", "satisfied", "expired", "cancelled", "waited_ms", "late_ms"}));
    CHECK(has(status["wheel"], {"timers", "levels", "next_due_ms"}));
    for (const auto& level : status["wheel"]["levels"])
      CHECK(has(level, {"level", "tick_ms", "buckets_in_use", "timers", "upgrades", "downgrades"}));
    CHECK(status["storage"]["fsyncs_total"].get<std::uint64_t>() > 0);
    CHECK(status["storage"]["bytes"].get<std::uint64_t>() > 0);
    CHECK(status["process"]["rss_bytes"].get<std::uint64_t>() > 1'000'000);
    CHECK(status["process"]["cpu_seconds"].is_number());
    CHECK(status["process"]["open_fds"].get<int>() > 3);

    admin.world.pass(3601s);
    const auto after = admin.get_json("/status");
    CHECK(after["delayed"]["pending"] == 0);
    CHECK(after["delayed"]["next_due"].is_null());
    CHECK(after["delayed"]["delivered_total"] == 1);
    CHECK(after["delayed"]["early_total"] == 0);
    CHECK(after["uptime_ms"].get<std::int64_t>() >= 3'600'000);
  }

  TEST_CASE("a fetch that waits is counted, in /status and /purgatory, until it is answered") {
    Admin admin;
    create_topic(admin.world, "t");
    const auto waiting = admin.world.begin(fetch_request("t", 0, 0, 20'000), 12);
    CHECK(admin.get_json("/status")["purgatory"]["fetch"]["waiting"] == 1);
    CHECK(admin.get_json("/purgatory")["fetch"]["waiting"] == 1);
    admin.world.pass(21s);
    const auto fetch = admin.get_json("/purgatory")["fetch"];
    CHECK(fetch["waiting"] == 0);
    CHECK(fetch["expired"] == 1);
    CHECK(fetch["waited_ms"]["count"] == 1);
    CHECK(fetch["waited_ms"]["buckets"].size() == 1);
    CHECK(fetch["late_ms"]["max"].get<int>() <= 1);
    CHECK(waiting->answer.has_value());
  }

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

  TEST_CASE("/topics lists every topic with what is in its partitions, /topics/NAME each of them") {
    Admin admin;
    CHECK(admin.get_json("/topics")["topics"].empty());
    create_topic(admin.world, "orders", 3, {{"retention.ms", "123456"}});
    create_topic(admin.world, "bills");
    produce(admin.world, "orders", 1, batch_of(admin.world.clock.wall(), {{"a"}, {"b"}}));
    produce(admin.world, "orders", 2,
            batch_of(admin.world.clock.wall(), {{"c", {{"x-delay", "1h"}}}}));
    const auto topics = admin.get_json("/topics")["topics"];
    REQUIRE(topics.size() == 2);
    CHECK(topics[0]["name"] == "bills");
    CHECK(topics[1]["name"] == "orders");
    CHECK(topics[1]["partitions"] == 3);
    CHECK(topics[1]["id"].get<std::string>().size() == 22);
    CHECK(topics[1]["configs"]["retention.ms"] == "123456");
    CHECK(topics[1]["pending"] == 1);
    CHECK(topics[1]["offsets"] == 2);
    CHECK(topics[1]["bytes"].get<int>() > 60);
    const auto orders = admin.get_json("/topics/orders");
    REQUIRE(orders["partitions"].size() == 3);
    CHECK(orders["partitions"][1]["log_end"] == 2);
    CHECK(orders["partitions"][1]["high_watermark"] == 2);
    CHECK(orders["partitions"][0]["log_end"] == 0);
    CHECK(orders["partitions"][0]["fenced"] == false);
    CHECK(admin.get("/topics/nobody").status == 404);
    CHECK(admin.get("/topics/..").status == 404);
    CHECK(admin.get("/topics/%2e%2e%2fadmin.token").status == 404);
  }

  TEST_CASE("a topic with pending records is deleted by force alone: 409 and their number") {
    Admin admin;
    create_topic(admin.world, "orders", 2);
    for (PartitionIndex p : {0, 1}) {
      produce(admin.world, "orders", p,
              batch_of(admin.world.clock.wall(), {{"c", {{"x-delay", "1h"}}}}));
    }
    CHECK(admin.ask("DELETE", "/topics/orders?force=true").status == 401);
    const auto refused = admin.remove("/topics/orders");
    CHECK(refused.status == 409);
    CHECK(refused.error().find("2 pending") != std::string::npos);
    CHECK(refused.json()["pending"] == 2);
    CHECK(admin.remove("/topics/orders?force=yes").status == 400);
    CHECK(admin.remove("/topics/nobody?force=true").status == 404);
    const auto deleted = admin.remove("/topics/orders?force=true");
    CHECK(deleted.status == 200);
    CHECK(deleted.json()["result"] == "deleted");
    CHECK(deleted.json()["pending_dropped"] == 2);
    CHECK(admin.get_json("/delayed")["records"].empty());
    CHECK(admin.get("/topics/orders").status == 404);
  }

  TEST_CASE("/metrics is Prometheus' text: a help and a type for each name, a value a line") {
    Admin admin;
    create_topic(admin.world, "orders");
    produce(admin.world, "orders", 0,
            batch_of(admin.world.clock.wall(), {{"c", {{"x-delay", "1h"}}}}));
    const auto answer = admin.get("/metrics");
    CHECK(answer.status == 200);
    CHECK(answer.headers.at("Content-Type") == "text/plain; version=0.0.4; charset=utf-8");
    std::istringstream lines(answer.body);
    std::string line, family;
    std::map<std::string, int> families;
    while (std::getline(lines, line)) {
      INFO(line);
      if (line.starts_with("# HELP ")) {
        family = line.substr(7, line.find(' ', 7) - 7);
        CHECK(++families[family] == 1);
      } else if (line.starts_with("# TYPE ")) {
        CHECK(line.starts_with("# TYPE " + family + " "));
      } else {
        CHECK(line.starts_with(family));
        const auto value = line.substr(line.rfind(' ') + 1);
        std::size_t read = 0;
        std::stod(value, &read);
        CHECK(read == value.size());
      }
    }
    CHECK(answer.body.find("\ntarry_delay_pending 1\n") != std::string::npos);
    CHECK(answer.body.find("\ntarry_delay_topic_pending{topic=\"orders\"} 1\n") !=
          std::string::npos);
    CHECK(families.contains("tarry_timing_timers"));
    CHECK(families.contains("tarry_purgatory_waited_seconds"));
    CHECK(answer.body.find("\ntarry_purgatory_late_seconds_count{kind=\"join\"} 0\n") !=
          std::string::npos);
    CHECK(families.contains("tarry_storage_fsyncs_total"));
  }

  TEST_CASE("/healthz and /readyz say ok while all is well; /readyz 503 when we stop") {
    Admin admin;
    CHECK(admin.get("/healthz").status == 200);
    CHECK(admin.get("/readyz").status == 200);
    bool stopped = false;
    admin.world.broker().stop([&] { stopped = true; });
    const auto ready = admin.get("/readyz");
    CHECK(ready.status == 503);
    CHECK(ready.error().find("stopping") != std::string::npos);
    CHECK(admin.get("/healthz").status == 200);
    for (int i = 0; i < 1000 && !stopped; ++i) admin.world.pass(1ms);
    CHECK(stopped);
  }
}

}  // namespace
}  // namespace tarry::admin::test
