// The admin's answers on a broker's status, over HTTP.

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>

#include "base/block.h"
#include "tests/admin/client.h"

namespace tarry::admin::test {
namespace {

using namespace std::chrono_literals;
using broker::test::batch_of;
using broker::test::create_topic;
using broker::test::fetch_request;
using broker::test::produce;

TEST_SUITE("status routes") {
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

  TEST_CASE(
      "/status names a partition that is out of service, with its reason and the due records that "
      "wait, until its topic is deleted; /metrics and /topics/NAME show it") {
    Admin admin;
    create_topic(admin.world, "orders", 2);
    for (PartitionIndex p = 0; p < 2; ++p)
      produce(admin.world, "orders", p,
              batch_of(admin.world.clock.wall(), {{"v", {{"x-delay", "2s"}}}}));
    CHECK(admin.get_json("/status")["out_of_service"] == Json::array());
    auto& broker = admin.world.broker();
    const auto topic = broker.shard(0).topics().find("orders");
    const TopicPartition damaged{topic->id, 1};
    auto& shard = broker.shard_of(damaged);
    shard.partitions().find(damaged)->fence("its log is cut");
    admin.world.pass(3s);
    const auto status = admin.get_json("/status");
    CHECK(status["out_of_service"] == Json{{{"topic", "orders"},
                                            {"partition", 1},
                                            {"shard", shard.index()},
                                            {"reason", "its log is cut"},
                                            {"set_aside", 1}}});
    CHECK(status["delayed"]["out_of_service"] == 1);
    CHECK(status["delayed"]["overdue"] == 1);
    CHECK(status["delayed"]["delivered_total"] == 1);
    const std::string line = "tarry_broker_partitions_out_of_service{shard=\"" +
                             std::to_string(shard.index()) + "\"} 1\n";
    CHECK(admin.get("/metrics").body.find(line) != std::string::npos);
    // A record of another partition is found and cancelled by its id as always.
    produce(admin.world, "orders", 0,
            batch_of(admin.world.clock.wall(),
                     {{"w", {{"x-delay", "1h"}, {"x-schedule-id", "later"}}}}));
    CHECK(admin.get("/delayed/orders/later").status == 200);
    CHECK(admin.remove("/delayed/orders/later").json()["result"] == "cancelled");
    const auto unknown = admin.remove("/delayed/orders/nobody");
    CHECK(unknown.status == 503);
    CHECK(unknown.body.find("partition orders-1 is out of service: its log is cut") !=
          std::string::npos);
    const auto partitions = admin.get_json("/topics/orders")["partitions"];
    CHECK(partitions[1]["reason"] == "its log is cut");
    CHECK(!partitions[0].contains("reason"));
    REQUIRE(admin.remove("/topics/orders?force=true").status == 200);
    admin.world.pass(1s);
    CHECK(admin.get_json("/status")["out_of_service"] == Json::array());
    CHECK(admin.get_json("/status")["delayed"]["out_of_service"] == 0);
  }

  TEST_CASE("/status has every field that programs may rely on, numbers as numbers") {
    Admin admin;
    create_topic(admin.world, "orders", 3);
    produce(admin.world, "orders", 0,
            batch_of(admin.world.clock.wall(), {{"now"}, {"later", {{"x-delay", "1h"}}}}));
    const auto status = admin.get_json("/status");
    REQUIRE(has(status, {"version", "cluster_id", "start_id", "node_id", "state", "uptime_ms",
                         "window_ms", "data", "listeners", "shards", "topics", "partitions",
                         "connections", "delayed", "purgatory", "wheel", "storage", "process"}));
    CHECK(status["version"] == "test");
    CHECK(status["start_id"] == admin.world.broker().identity().start_id);
    CHECK(status["state"] == "running");
    CHECK(status["data"] == admin.world.directory() + "/data");
    CHECK(status["listeners"]["kafka"] == "127.0.0.1:9092");
    CHECK(status["listeners"]["advertised"] == "PLAINTEXT://broker.example:9092");
    CHECK(status["listeners"]["admin"] == admin.server->address());
    CHECK(status["shards"].size() == 2);
    CHECK(status["topics"] == 1);
    CHECK(status["partitions"] == 3);
    CHECK(status["delayed"]["pending"] == 1);
    CHECK(status["delayed"]["next_due"] == to_ms(admin.world.clock.wall()) + 3'600'000);
    CHECK(has(status["delayed"],
              {"overdue", "delivered_total", "early_total", "cancelled_total", "lag_ms"}));
    CHECK(has(status["delayed"]["lag_ms"], {"p50", "p99", "max", "count"}));
    CHECK(has(status["purgatory"], {"fetch", "produce", "join"}));
    CHECK(has(status["purgatory"]["fetch"],
              {"waiting", "satisfied", "expired", "cancelled", "waited_ms", "late_ms"}));
    CHECK(has(status["wheel"], {"timers", "levels", "next_due_ms"}));
    for (const auto& level : status["wheel"]["levels"])
      CHECK(has(level, {"level", "tick_ms", "buckets_in_use", "timers", "upgrades", "downgrades"}));
    CHECK(status["storage"]["fsyncs_total"].get<std::uint64_t>() > 0);
    CHECK(status["storage"]["bytes"].get<std::uint64_t>() > 0);
    // The journals have their full size from the beginning, and nothing is counted twice.
    const auto journals = status["storage"]["journal_files_bytes"].get<std::uint64_t>();
    const auto logs = status["storage"]["logs_bytes"].get<std::uint64_t>();
    CHECK(journals > 0);
    CHECK(journals + logs <= status["storage"]["bytes"].get<std::uint64_t>());
    CHECK(status["process"]["rss_bytes"].get<std::uint64_t>() > 1'000'000);
    CHECK(status["process"]["blocks_kept_bytes"].get<std::uint64_t>() <= Block::max_kept_bytes);
    CHECK(status["process"]["cpu_seconds"].is_number());
    CHECK(status["process"]["open_fds"].get<int>() > 3);

    // On disk alone it is looked up.
    CHECK(admin.get_json("/delayed")["records"].size() == 1);
    CHECK(admin.get_json("/status")["delayed"]["next_due"] == status["delayed"]["next_due"]);
    CHECK(admin.get_json("/status")["delayed"]["memory_records"] == 0);
    CHECK(admin.get_json("/status")["delayed"]["written_total"] == 1);

    admin.world.pass(3601s);
    const auto after = admin.get_json("/status");
    CHECK(after["delayed"]["pending"] == 0);
    CHECK(after["delayed"]["next_due"].is_null());
    CHECK(after["delayed"]["delivered_total"] == 1);
    CHECK(after["delayed"]["early_total"] == 0);
    CHECK(after["uptime_ms"].get<std::int64_t>() >= 3'600'000);
  }

  TEST_CASE("without the data directory /status does not take the disk of log.dirs for its disk") {
    Admin admin({}, {.configure = [](broker::BrokerConfig& config) {
                  config.log_directory = config.data_directory + "-elsewhere";
                }});
    const auto data = admin.world.broker().identity().data_directory;
    const auto whole = admin.get_json("/status")["storage"];
    CHECK(whole["free_bytes"].get<std::int64_t>() > 0);
    const auto& disk = whole["file_systems"][0];
    CHECK(disk["directory"] == data);
    // As df counts: blocks that are kept for root are neither used nor free.
    CHECK(disk["used_bytes"].get<std::int64_t>() > 0);
    CHECK(disk["used_bytes"].get<std::int64_t>() + disk["free_bytes"].get<std::int64_t>() <=
          disk["total_bytes"].get<std::int64_t>());
    std::filesystem::rename(data, data + "-away");
    const auto storage = admin.get_json("/status")["storage"];
    std::filesystem::rename(data + "-away", data);
    CHECK(storage["file_systems"][0]["directory"] == data + "-elsewhere");
    CHECK(storage["free_bytes"].is_null());
    CHECK(storage["total_bytes"].is_null());
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
    const auto recent = [&] {
      return admin.get_json("/status")["purgatory"]["fetch"]["waited_ms"];
    };
    CHECK(recent()["max"].get<int>() >= 20'000);
    admin.world.pass(301s);
    CHECK(recent()["max"] == 0);
    CHECK(admin.get_json("/purgatory")["fetch"]["waited_ms"]["count"] == 1);
    CHECK(admin.get_json("/purgatory")["fetch"]["waited_ms"]["recent"]["count"] == 0);
  }
}

}  // namespace
}  // namespace tarry::admin::test
