// Every figure, over HTTP: the text itself, and that it says what the JSON pages say.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "admin/process_status.h"
#include "broker/views/status.h"
#include "tests/admin/client.h"
#include "tests/admin/send_delayed.h"
#include "tests/broker/offset_requests.h"

namespace tarry::admin::test {
namespace {

using namespace std::chrono_literals;
using broker::test::batch_of;
using broker::test::commit;
using broker::test::create_topic;
using broker::test::fetch_request;
using broker::test::produce;

// Nothing ever waits as one of these.
const purgatory::Kind test_kind{"kind_of_a_test"};

// /metrics taken apart.
struct Scrape {
  explicit Scrape(const std::string& body) {
    std::istringstream lines(body);
    std::string family;
    for (std::string line; std::getline(lines, line);) {
      INFO(line);
      if (line.starts_with("# HELP ")) {
        family = line.substr(7, line.find(' ', 7) - 7);
        CHECK(line.size() > 8 + family.size());
        CHECK(types.try_emplace(family).second);
      } else if (line.starts_with("# TYPE ")) {
        REQUIRE(line.starts_with("# TYPE " + family + " "));
        CHECK(types[family].empty());
        types[family] = line.substr(8 + family.size());
      } else {
        CHECK(line.starts_with(family));
        const auto blank = line.rfind(' ');
        const auto value = line.substr(blank + 1);
        std::size_t read = 0;
        samples.emplace_back(line.substr(0, blank), std::stod(value, &read));
        CHECK(read == value.size());
        CHECK(names.insert(line.substr(0, blank)).second);
      }
    }
  }
  double value(const std::string& sample) const {
    for (const auto& [name, value] : samples)
      if (name == sample) return value;
    FAIL("no sample " << sample);
    return 0;
  }

  std::map<std::string, std::string> types;
  std::vector<std::pair<std::string, double>> samples;
  std::set<std::string> names;
};

// Notes the names and fields that a folder states.
class StatementSink final : public MetricSink {
 public:
  void histogram(const Metric& metric, const Distribution&, TimeUnit) override { note(metric); }
  std::map<std::string, std::string> fields;  // By name.

 private:
  void put(MetricType, const Metric& metric, const MetricValue&) override { note(metric); }
  void note(const Metric& metric) {
    fields[std::string(metric.name)] = std::string(metric.json_field());
  }
};

TEST_SUITE("metrics routes") {
  TEST_CASE("/metrics is Prometheus' text: a help and a type for each name, a value a line") {
    Admin admin;
    create_topic(admin.world, "orders");
    send_delayed(admin, "orders", 0, "c", "1h");
    const auto answer = admin.get("/metrics");
    CHECK(answer.status == 200);
    CHECK(answer.headers.at("Content-Type") == "text/plain; version=0.0.4; charset=utf-8");
    const Scrape scrape(answer.body);
    for (const auto& [family, type] : scrape.types) {
      INFO(family);
      const std::set<std::string> known{"counter", "gauge", "histogram"};
      CHECK(known.contains(type));
      CHECK((type == "counter") == family.ends_with("_total"));
    }
    CHECK(scrape.value("tarry_delay_pending") == 1);
    CHECK(scrape.value("tarry_delay_topic_pending{topic=\"orders\"}") == 1);
    CHECK(scrape.value("tarry_purgatory_late_seconds_count{kind=\"join\"}") == 0);
    CHECK(scrape.types.contains("tarry_timing_timers"));
    CHECK(scrape.types.contains("tarry_purgatory_waited_seconds"));
    CHECK(scrape.types.contains("tarry_storage_fsyncs_total"));
  }

  TEST_CASE("a name begins with the part that it measures, but for four that dashboards know") {
    Admin admin;
    const Scrape scrape(admin.get("/metrics").body);
    const std::set<std::string> shorter{
        "tarry_authorization_denied_total", "tarry_failed_logins_total",
        "tarry_throttled_requests_total", "tarry_throttled_seconds_total"};
    std::set<std::string> others;
    for (const auto& [family, type] : scrape.types) {
      const bool is_placed =
          std::ranges::any_of(std::array{"tarry_broker_", "tarry_delay_", "tarry_purgatory_",
                                         "tarry_storage_", "tarry_timing_", "process_"},
                              [&](const char* part) { return family.starts_with(part); });
      if (!is_placed) others.insert(family);
    }
    CHECK(others == shorter);
  }

  TEST_CASE("a client that asks for OpenMetrics gets it") {
    Admin admin;
    const auto answer =
        admin.ask("GET", "/metrics", {{"Accept", "application/openmetrics-text;version=1.0.0"}});
    CHECK(answer.headers.at("Content-Type") ==
          "application/openmetrics-text; version=1.0.0; charset=utf-8");
    CHECK(answer.body.ends_with("\n# EOF\n"));
    CHECK(answer.body.find("\n# TYPE tarry_storage_fsyncs counter\n") != std::string::npos);
    CHECK(answer.body.find("\ntarry_storage_fsyncs_total{") != std::string::npos);
  }

  TEST_CASE("a group's lag is reported by partition, from its commit to the high watermark") {
    Admin admin;
    create_topic(admin.world, "orders", 3);
    const auto fill = [&](PartitionIndex partition, int records) {
      for (int i = 0; i < records; ++i)
        produce(admin.world, "orders", partition, batch_of(admin.world.clock.wall(), {{"c"}}));
    };
    fill(0, 5);
    fill(1, 3);
    CHECK(commit(admin.world, "billing", "orders", 0, 1) == broker::test::ErrorCode::none);
    CHECK(commit(admin.world, "billing", "orders", 1, 3) == broker::test::ErrorCode::none);
    CHECK(commit(admin.world, "audit", "orders", 1, 0) == broker::test::ErrorCode::none);
    const auto lag = [](const Scrape& scrape, std::string_view group, std::string_view partition) {
      return scrape.value(
          fmt::format("tarry_broker_group_lag{{group=\"{}\",topic=\"orders\",partition=\"{}\"}}",
                      group, partition));
    };
    const Scrape scrape(admin.get("/metrics").body);
    CHECK(lag(scrape, "billing", "0") == 4);
    CHECK(lag(scrape, "billing", "1") == 0);
    CHECK(lag(scrape, "audit", "1") == 3);
    CHECK(scrape.value("tarry_broker_groups") == 2);
    CHECK(scrape.value("tarry_broker_group_members{group=\"audit\"}") == 0);
  }

  TEST_CASE("beyond tarry.metrics.max.series the rest of topics and groups is one sum") {
    Admin admin({},
                {.configure = [](broker::BrokerConfig& config) { config.metrics_max_series = 2; }});
    for (const char* topic : {"a", "b", "c", "d"}) {
      create_topic(admin.world, topic);
      for (const char* delay : {"2s", "1h"}) send_delayed(admin, topic, 0, "v", delay);
    }
    admin.world.pass(3s);
    for (const char* group : {"g1", "g2", "g3", "g4"}) commit(admin.world, group, "a", 0, 0);
    const Scrape scrape(admin.get("/metrics").body);
    CHECK(scrape.value("tarry_delay_topic_pending{topic=\"b\"}") == 1);
    CHECK(scrape.value("tarry_delay_topic_pending{topic=\"(other)\"}") == 2);
    CHECK(scrape.value("tarry_delay_topic_delivered_total{topic=\"a\"}") == 1);
    CHECK(scrape.value("tarry_delay_topic_delivered_total{topic=\"(other)\"}") == 2);
    CHECK(scrape.value("tarry_broker_group_lag{group=\"g2\",topic=\"a\",partition=\"0\"}") == 1);
    CHECK(
        scrape.value(
            "tarry_broker_group_lag{group=\"(other)\",topic=\"(other)\",partition=\"(other)\"}") ==
        2);
    CHECK(scrape.value("tarry_broker_group_members{group=\"(other)\"}") == 0);
    CHECK_FALSE(scrape.names.contains("tarry_delay_topic_pending{topic=\"c\"}"));
  }

  TEST_CASE("a topic's lag is the time from due until durable, summed over its records") {
    Admin admin;
    create_topic(admin.world, "t");
    produce(admin.world, "t", 0,
            batch_of(admin.world.clock.wall(),
                     {{"c", {{"x-delay", "2s"}}}, {"d", {{"x-delay", "4s"}}}}));
    admin.world.clock.now_mono += 5s;  // One late turn: both are due.
    admin.world.clock.now_wall += 5s;
    admin.world.run();
    const Scrape scrape(admin.get("/metrics").body);
    CHECK(scrape.value("tarry_delay_topic_delivered_total{topic=\"t\"}") == 2);
    CHECK(scrape.value("tarry_delay_topic_lag_seconds_total{topic=\"t\"}") == doctest::Approx(4));
    CHECK(scrape.value("tarry_delay_oldest_overdue_seconds") == 0);
  }

  TEST_CASE("the free bytes of the data directory's file system are reported, with the reserve") {
    Admin admin(
        {}, {.configure = [](broker::BrokerConfig& config) { config.disk_reserve_bytes = 4711; }});
    const Scrape scrape(admin.get("/metrics").body);
    const auto label =
        fmt::format("{{directory=\"{}\"}}", admin.world.broker().identity().data_directory);
    CHECK(scrape.value("tarry_storage_free_bytes" + label) > 0);
    CHECK(scrape.value("tarry_storage_capacity_bytes" + label) >=
          scrape.value("tarry_storage_free_bytes" + label));
    CHECK(scrape.value("tarry_storage_reserve_bytes") == 4711);
  }

  TEST_CASE("while /metrics waits for a disk that hangs, /groups answers") {
    Admin admin;
    const auto ask = [&admin](const std::string& target) {
      return std::async(std::launch::async, [&admin, target] {
        Connection connection(admin.port);
        connection.send("GET " + target + " HTTP/1.1\r\nHost: " + admin.server->address() +
                        "\r\n\r\n");
        return connection.read();
      });
    };
    const auto is_ready = [](const auto& answer) {
      return answer.wait_for(200us) == std::future_status::ready;
    };
    admin.world.run();  // What the broker does at its start.
    auto metrics = ask("/metrics");
    // Nothing that blocks is run, so its look at the disk does not end.
    while (admin.world.background().size() == 0 && !is_ready(metrics)) admin.world.turn();
    auto groups = ask("/groups");
    while (!is_ready(groups)) admin.world.turn();
    CHECK(groups.get().status == 200);
    CHECK_FALSE(is_ready(metrics));
    while (!is_ready(metrics)) admin.world.run();
    CHECK(metrics.get().status == 200);
  }

  TEST_CASE("the memory that clients make the broker hold is reported with its limit") {
    Admin admin({}, {.configure = [](broker::BrokerConfig& config) {
                  config.memory_bytes = std::int64_t{64} << 20;
                }});
    const auto figures = [&] {
      const Scrape scrape(admin.get("/metrics").body);
      const auto status = admin.get_json("/status");
      CHECK(scrape.value("tarry_broker_client_memory_limit_bytes") == 64 << 20);
      CHECK(status["client_memory_limit_bytes"] == 64 << 20);
      const auto used = status["client_memory_bytes"].get<double>();
      CHECK(scrape.value("tarry_broker_client_memory_bytes") == used);
      return used;
    };
    CHECK(figures() == 0);
    broker::Charge charge(admin.world.shard().ledger(), nullptr);
    charge.set(8 << 20);
    CHECK(figures() == 8 << 20);
    charge.set(0);
    CHECK(figures() == 0);
  }

  TEST_CASE("the buckets of a histogram are cumulative, and the last one, +Inf, is its count") {
    Admin admin;
    create_topic(admin.world, "t");
    const auto waiting = admin.world.begin(fetch_request("t", 0, 0, 20'000), 12);
    admin.world.pass(21s);
    const Scrape scrape(admin.get("/metrics").body);
    std::map<std::string, double> last;  // By all that stands before the bucket's bound.
    std::size_t buckets = 0;
    for (const auto& [name, value] : scrape.samples) {
      INFO(name);
      if (const auto bound = name.find("le=\""); bound != name.npos) {
        const auto series = name.substr(0, bound);
        CHECK(value >= last[series]);
        last[series] = name.ends_with("le=\"+Inf\"}") ? -1 : value;
        ++buckets;
      }
    }
    CHECK(buckets > 0);
    for (const auto& [series, value] : last) {
      INFO(series);
      CHECK(value == -1);  // Ended in +Inf.
    }
    const std::string waited = "tarry_purgatory_waited_seconds";
    CHECK(scrape.value(waited + "_bucket{kind=\"fetch\",le=\"16.383\"}") == 0);
    CHECK(scrape.value(waited + "_bucket{kind=\"fetch\",le=\"32.767\"}") == 1);
    CHECK(scrape.value(waited + "_bucket{kind=\"fetch\",le=\"+Inf\"}") == 1);
    CHECK(scrape.value(waited + "_count{kind=\"fetch\"}") == 1);
    CHECK(scrape.value(waited + "_sum{kind=\"fetch\"}") >= 20);
  }

  TEST_CASE("a metric that a folder declares once is in /metrics and in /status") {
    Admin admin;
    create_topic(admin.world, "t");  // For a level of a wheel.
    send_delayed(admin, "t", 0, "c", "5s");
    const Scrape scrape(admin.get("/metrics").body);
    const Json status = admin.get_json("/status");
    const auto in_both = [&](const Json& object, const std::function<void(MetricSink&)>& report) {
      StatementSink stated;
      report(stated);
      CHECK(!stated.fields.empty());
      for (const auto& [name, field] : stated.fields) {
        INFO(name);
        CHECK(scrape.types.contains(name));
        CHECK(object.contains(field));
      }
    };
    const broker::ShardStatus shard;
    in_both(status["shards"][1], [&](MetricSink& sink) { shard.report(sink); });
    in_both(status["delayed"], [&](MetricSink& sink) { shard.delay.report(sink); });
    in_both(status["storage"], [&](MetricSink& sink) { shard.journal.report(sink); });
    in_both(status["process"], [&](MetricSink& sink) { ProcessStatus().report(sink); });
    in_both(status["storage"], [&](MetricSink& sink) { broker::DatabaseMemory().report(sink); });
    in_both(status["wheel"]["levels"][0],
            [&](MetricSink& sink) { timing::report(timing::TimingWheel::LevelStats(), sink); });
    const purgatory::KindStats kind(purgatory::KindMetrics{}, MonoTime{});
    in_both(status["purgatory"]["fetch"], [&](MetricSink& sink) { kind.report(sink); });
    in_both(admin.get_json("/purgatory")["fetch"], [&](MetricSink& sink) { kind.report(sink); });
  }

  TEST_CASE("a metric whose name has no folder keeps its whole name in /status") {
    Admin admin;
    const Json status = admin.get_json("/status");
    const Json& shard = status["shards"][0];
    CHECK(shard["failed_logins_total"] == 0);
    CHECK(shard["authorization_denied_total"] == 0);
    CHECK_FALSE(shard.contains("logins_total"));
    CHECK_FALSE(shard.contains("denied_total"));
  }

  TEST_CASE("records count as appended when they are in a log: at once, or on delivery") {
    Admin admin;
    create_topic(admin.world, "t");
    const auto appended = [&] {
      const Json status = admin.get_json("/status");
      std::uint64_t sum = 0;
      for (const auto& shard : status["shards"])
        sum += shard["appended_records_total"].get<std::uint64_t>();
      CHECK(status["appended_records_total"] == sum);
      double scraped = 0;
      for (const auto& [name, value] : Scrape(admin.get("/metrics").body).samples)
        if (name.starts_with("tarry_broker_appended_records_total{")) scraped += value;
      CHECK(scraped == static_cast<double>(sum));
      return sum;
    };
    CHECK(appended() == 0);
    produce(admin.world, "t", 0,
            batch_of(admin.world.clock.wall(), {{"a"}, {"b"}, {"later", {{"x-delay", "2s"}}}}));
    CHECK(appended() == 2);
    admin.world.pass(3s);
    CHECK(appended() == 3);
  }

  TEST_CASE("the newest batches of logs count as memory until their topic is deleted") {
    Admin admin;
    create_topic(admin.world, "t", 2);
    const auto tails = [&] {
      const Json status = admin.get_json("/status");
      std::uint64_t sum = 0;
      for (const auto& shard : status["shards"])
        sum += shard["log_tail_bytes"].get<std::uint64_t>();
      double scraped = 0;
      for (const auto& [name, value] : Scrape(admin.get("/metrics").body).samples)
        if (name.starts_with("tarry_storage_log_tail_bytes{")) scraped += value;
      CHECK(scraped == static_cast<double>(sum));
      return sum;
    };
    CHECK(tails() == 0);
    const auto batch = batch_of(admin.world.clock.wall(), {{std::string(5000, 'v')}});
    produce(admin.world, "t", 0, batch);
    CHECK(tails() == batch.size());
    produce(admin.world, "t", 1, batch);
    CHECK(tails() == 2 * batch.size());
    REQUIRE(admin.remove("/topics/t?force=true").status == 200);
    admin.world.pass(1s);
    CHECK(tails() == 0);
  }

  TEST_CASE("the databases and the program are parts of the resident memory") {
    Admin admin;
    const Json status = admin.get_json("/status");
    CHECK(status["storage"]["database_memory_bytes"].get<std::uint64_t>() > 0);
    const auto program = status["process"]["program_bytes"].get<std::uint64_t>();
    CHECK(program > 100'000);
    CHECK(program < status["process"]["rss_bytes"].get<std::uint64_t>());
  }

  TEST_CASE("a kind of delayed operation is on every page from the start, wherever it stands") {
    Admin admin;
    const std::string name(test_kind.name());
    CHECK(admin.get_json("/status")["purgatory"][name]["waiting"] == 0);
    CHECK(admin.get_json("/purgatory")[name]["waited_ms"]["count"] == 0);
    const Scrape scrape(admin.get("/metrics").body);
    CHECK(scrape.value("tarry_purgatory_waiting{kind=\"" + name + "\"}") == 0);
    CHECK(scrape.value("tarry_purgatory_answered_total{kind=\"" + name +
                       "\",outcome=\"expired\"}") == 0);
    CHECK(scrape.value("tarry_purgatory_late_seconds_count{kind=\"" + name + "\"}") == 0);
  }

  TEST_CASE("the kinds that /status tells of are those that docs/http.md names") {
    Admin admin;
    std::set<std::string> told;
    const Json purgatory = admin.get_json("/status")["purgatory"];
    for (const auto& [kind, figures] : purgatory.items()) told.insert(kind);
    told.erase(std::string(test_kind.name()));
    CHECK(told == std::set<std::string>{"alter_configs", "create_partitions", "create_topics",
                                        "delete_groups", "delete_records", "delete_topics", "fetch",
                                        "fetch_watch", "heartbeat", "init_producer_id", "join",
                                        "offset_commit", "offset_delete", "produce", "sync"});
  }

  TEST_CASE("the lag is a histogram since the start in /metrics, and of the last minutes in JSON") {
    Admin admin;
    create_topic(admin.world, "t");
    send_delayed(admin, "t", 0, "c", "2s");
    admin.world.pass(3s);
    const auto lag = [&] { return admin.get_json("/status")["delayed"]["lag_ms"]; };
    const auto count = [&] {
      const Scrape scrape(admin.get("/metrics").body);
      CHECK(scrape.types.at("tarry_delay_lag_seconds") == "histogram");
      return scrape.value("tarry_delay_lag_seconds_count");
    };
    CHECK(lag()["count"] == 1);
    CHECK(count() == 1);
    CHECK(admin.get_json("/status")["window_ms"] == 300'000);
    admin.world.pass(301s);
    CHECK(lag() == Json{{"p50", 0.0}, {"p99", 0.0}, {"max", 0.0}, {"count", 0}});
    CHECK(count() == 1);
  }
}

}  // namespace
}  // namespace tarry::admin::test
