#include "server/live_config.h"

#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "server/config_keys.h"
#include "server/config_layers.h"

namespace tarry::server {
namespace {

struct Live {
  explicit Live(std::vector<Setting> file = {})
      : config(std::move(*make_config(std::vector<std::vector<Setting>>{std::move(file)}))),
        live(config, [this](const Config& now) { changed = now; }) {}

  Config config;
  Config changed;
  LiveConfig live;
};

TEST_SUITE("live config") {
  TEST_CASE("a dynamic setting wins over the file's, and the broker's over the cluster's") {
    Live l({{"f:1", "log.retention.ms", "1d"}, {"f:2", "num.partitions", "3"}});
    broker::DynamicSettings dynamic;
    dynamic.of_cluster = {{"log.retention.ms", "1000"}, {"num.partitions", "5"}};
    dynamic.of_broker = {{"num.partitions", "7"}};
    const auto config = l.live.config_with(dynamic);
    REQUIRE(config.has_value());
    CHECK(config->topic_defaults.at("retention.ms") == "1000");
    CHECK(config->given_topic_defaults.at("retention.ms") == "86400000");
    CHECK(config->num_partitions == 7);
    for (const auto& entry : config->entries) {
      if (entry.name == "num.partitions") CHECK(entry.value == "3");
    }
  }

  TEST_CASE("values are brought into their canonical form, or refused with the allowed ones") {
    Live l;
    CHECK(*l.live.canonical("log.retention.ms", "7d") == "604800000");
    CHECK(*l.live.canonical("log.segment.bytes", "1MiB") == "1048576");
    CHECK(*l.live.canonical("tarry.delay.enable", "False") == "false");
    const auto refused = l.live.canonical("tarry.log.level", "loud");
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().message == "debug, info, warn, error or off");
  }

  TEST_CASE("settings that do not go together are refused together") {
    Live l({{"f:1", "log.flush.interval.messages", "100"}});
    broker::DynamicSettings dynamic;
    dynamic.of_broker = {{"tarry.durability", "os"}};
    const auto refused = l.live.config_with(dynamic);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().message.find("log.flush.interval.messages") != std::string::npos);
  }

  TEST_CASE("the rest of the program learns which settings are in effect from now on") {
    Live l;
    broker::DynamicSettings dynamic;
    dynamic.of_broker = {{"tarry.log.level", "debug"},
                         {"tarry.log.format", "json"},
                         {"socket.request.max.bytes", "5000"}};
    l.live.changed(dynamic);
    CHECK(l.changed.log_level == LogLevel::debug);
    CHECK(l.changed.log_format == LogFormat::json);
    CHECK(l.changed.sessions.frame_bytes == 5000);
  }

  TEST_CASE("a setting that is read once at the start cannot be changed, a topic's default can") {
    for (const char* name :
         {"listeners", "tarry.shards", "tarry.data.dir", "tarry.delay.memory.bytes",
          "tarry.journal.max.bytes", "log.retention.hours", "tarry.delay.header.aliases"}) {
      CAPTURE(name);
      CHECK_FALSE(find_config_key(name)->is_dynamic);
    }
    for (const char* name : {"log.retention.ms", "message.max.bytes", "tarry.delay.max.pending",
                             "tarry.log.level", "tarry.disk.reserve.bytes", "max.connections",
                             "max.connections.per.ip", "producer.id.expiration.ms"}) {
      CAPTURE(name);
      CHECK(find_config_key(name)->is_dynamic);
    }
  }
}

}  // namespace
}  // namespace tarry::server
