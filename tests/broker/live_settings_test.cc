// The broker's own settings: described, changed while it runs, and kept.

#include <doctest/doctest.h>

#include <charconv>
#include <functional>
#include <map>
#include <string>

#include "protocol/messages/alter_configs.h"
#include "protocol/messages/describe_configs.h"
#include "protocol/messages/incremental_alter_configs.h"
#include "tests/broker/batches.h"
#include "tests/broker/offset_requests.h"
#include "tests/captured_log.h"

namespace tarry::broker::test {
namespace {

using namespace std::chrono_literals;

// A table of few settings, numbers all: tarry.max.partitions and message.max.bytes are dynamic,
// tarry.shards is not.
class FewSettings final : public SettingsTable {
 public:
  FewSettings() {
    for (const auto& [name, value] :
         {std::pair("message.max.bytes", "1048588"), std::pair("tarry.max.partitions", "100"),
          std::pair("tarry.shards", "2")}) {
      auto& entry = config.entries.emplace_back();
      entry.name = name;
      entry.value = entry.fallback = value;
      entry.is_dynamic = entry.name != "tarry.shards";
      entry.reason = "A reason.";
    }
    config.disk_reserve_bytes = 0;
    config.max_partitions = 100;
  }

  Result<std::string> canonical(std::string_view, std::string_view value) const override {
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc{} || end != value.data() + value.size() || number < 1 || number > most)
      return fail(Errc::invalid, "a whole number from 1 to " + std::to_string(most));
    return std::to_string(number);
  }
  Result<BrokerConfig> config_with(const DynamicSettings& dynamic) const override {
    BrokerConfig out = config;
    if (const auto* value = dynamic.find("tarry.max.partitions"))
      out.max_partitions = std::stoi(*value);
    if (const auto* value = dynamic.find("message.max.bytes"))
      out.topic_defaults["max.message.bytes"] = *value;
    if (out.max_partitions == 13) return fail(Errc::invalid, "13 goes with nothing");
    return out;
  }
  void changed(const DynamicSettings& dynamic) override { told = dynamic; }

  BrokerConfig config;
  int most = 1000;
  DynamicSettings told;
};

struct SettingsWorld {
  FewSettings table;
  World world{{.configure =
                   [this](BrokerConfig& config) {
                     const BrokerIdentity identity = config;
                     config = table.config;
                     static_cast<BrokerIdentity&>(config) = identity;
                   },
               .settings = &table}};

  using Config = protocol::IncrementalAlterConfigsRequest::Config;
  struct Answer {
    ErrorCode code;
    std::string message;
  };
  Answer alter(std::vector<Config> configs, std::string_view broker = "1",
               bool validate_only = false) {
    protocol::IncrementalAlterConfigsRequest request;
    request.validate_only = validate_only;
    request.resources.push_back({4, broker, std::move(configs)});
    const auto response = world.call<protocol::IncrementalAlterConfigsResponse>(request, 1);
    const auto& answer = response.responses[0];
    return {answer.error_code, std::string(answer.error_message.value_or(""))};
  }
  ErrorCode set(std::string_view key, std::string_view value, std::string_view broker = "1") {
    return alter({{key, 0, value}}, broker).code;
  }
  ErrorCode remove(std::string_view key, std::string_view broker = "1") {
    return alter({{key, 1, std::nullopt}}, broker).code;
  }

  // "value source[ source of a synonym=its value]..."
  std::string described(std::string_view key, std::string_view broker = "1") {
    protocol::DescribeConfigsRequest request;
    request.include_synonyms = true;
    request.resources.push_back({4, broker, std::vector{key}});
    const auto response = world.call<protocol::DescribeConfigsResponse>(request, 4);
    std::string text;
    for (const auto& config : response.results[0].configs) {
      text += fmt::format("{} {}{}:", config.value.value_or("(null)"), config.config_source,
                          config.read_only ? " read-only" : "");
      for (const auto& synonym : config.synonyms)
        text += fmt::format(" {}={}", synonym.source, synonym.value.value_or("(null)"));
    }
    return text;
  }
  ErrorCode create(std::string_view name, std::int32_t partitions) {
    protocol::CreateTopicsRequest request;
    request.topics.push_back({name, partitions, 1, {}, {}});
    return world.call<protocol::CreateTopicsResponse>(request, 7, 1).topics[0].error_code;
  }
};

bool tells(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_SUITE("live settings") {
  TEST_CASE("a changed setting holds at once, on every shard, and after a kill") {
    SettingsWorld s;
    CHECK(s.create("before", 50) == ErrorCode::none);
    CHECK(s.set("tarry.max.partitions", "007") == ErrorCode::none);
    for (std::size_t i = 0; i < s.world.shard_count(); ++i)
      CHECK(s.world.shard(i).config().max_partitions == 7);
    CHECK(s.create("t", 8) == ErrorCode::invalid_partitions);
    CHECK(s.described("tarry.max.partitions") == "7 2: 2=7 5=100");
    CHECK(s.table.told.of_broker == storage::Configs{{"tarry.max.partitions", "7"}});

    s.table.told = {};
    s.world.restart();
    CHECK(s.world.shard(1).config().max_partitions == 7);
    CHECK(s.table.told.of_broker == storage::Configs{{"tarry.max.partitions", "7"}});
    CHECK(s.world.shard(0).config().data_directory == s.world.broker().identity().data_directory);

    CHECK(s.remove("tarry.max.partitions") == ErrorCode::none);
    CHECK(s.world.shard(1).config().max_partitions == 100);
    s.world.stop();
    s.world.restart();
    CHECK(s.described("tarry.max.partitions") == "100 5: 5=100");
  }

  TEST_CASE("the log says which principal has set or removed a setting, and from which address") {
    SettingsWorld s;
    CapturedLog log;
    CHECK(s.set("tarry.max.partitions", "007") == ErrorCode::none);
    CHECK(log.count("audit: User:ANONYMOUS from 127.0.0.1:1 has set tarry.max.partitions=7") == 1);
    CHECK(s.remove("tarry.max.partitions") == ErrorCode::none);
    CHECK(log.count("audit: User:ANONYMOUS from 127.0.0.1:1 has removed the setting "
                    "tarry.max.partitions=7") == 1);
  }

  TEST_CASE("each start has an id of its own, which clients can read and not change") {
    SettingsWorld s;
    const auto cluster = s.world.broker().identity().cluster_id;
    const auto first = s.world.broker().identity().start_id;
    CHECK(s.described("tarry.start.id") == first + " 5 read-only:");
    CHECK(s.described("tarry.start.id", "").empty());
    CHECK(s.set("tarry.start.id", "mine") == ErrorCode::invalid_config);
    CHECK(s.set("tarry.max.partitions", "20") == ErrorCode::none);
    CHECK(s.described("tarry.start.id") == first + " 5 read-only:");
    s.world.restart();
    CHECK(s.world.broker().identity().cluster_id == cluster);
    CHECK(s.world.broker().identity().start_id != first);
    CHECK(s.described("tarry.start.id") == s.world.broker().identity().start_id + " 5 read-only:");
  }

  TEST_CASE("this broker's setting wins over the cluster's default, and that over the file's") {
    SettingsWorld s;
    s.table.config.entries[1].value = "60";
    s.table.config.entries[1].is_default = false;
    s.table.config.max_partitions = 60;
    s.world.restart();
    CHECK(s.set("tarry.max.partitions", "10", "") == ErrorCode::none);
    CHECK(s.world.shard().config().max_partitions == 10);
    CHECK(s.set("tarry.max.partitions", "20") == ErrorCode::none);
    CHECK(s.world.shard().config().max_partitions == 20);
    CHECK(s.described("tarry.max.partitions") == "20 2: 2=20 3=10 4=60 5=100");
    CHECK(s.described("tarry.max.partitions", "") == "10 3: 3=10");
    s.world.restart();
    CHECK(s.remove("tarry.max.partitions") == ErrorCode::none);
    CHECK(s.described("tarry.max.partitions") == "10 3: 3=10 4=60 5=100");
    CHECK(s.remove("tarry.max.partitions", "") == ErrorCode::none);
    CHECK(s.world.shard().config().max_partitions == 60);
    CHECK(s.described("tarry.max.partitions", "").empty());
  }

  TEST_CASE(
      "a topic's default that is changed holds for open partitions without a value of their own") {
    SettingsWorld s;
    create_topic(s.world, "plain", 2);
    create_topic(s.world, "own", 1, {{"max.message.bytes", "5000"}});
    const auto refused = [&](std::string_view topic, PartitionIndex partition) {
      return produce(s.world, topic, partition,
                     batch_of(s.world.clock.wall(), {{std::string(300, 'x')}}))
                 .error_code == ErrorCode::message_too_large;
    };
    CHECK_FALSE(refused("plain", 0));
    CHECK_FALSE(refused("plain", 1));
    CHECK(s.set("message.max.bytes", "200") == ErrorCode::none);
    CHECK(refused("plain", 0));
    CHECK(refused("plain", 1));
    CHECK_FALSE(refused("own", 0));
    s.world.restart();
    CHECK(refused("plain", 1));
    CHECK_FALSE(refused("own", 0));
  }

  TEST_CASE(
      "a setting that cannot be changed is refused with the reason, and nothing of its request is "
      "applied") {
    SettingsWorld s;
    const auto restart = s.alter({{"tarry.max.partitions", 0, "5"}, {"tarry.shards", 0, "4"}});
    CHECK(restart.code == ErrorCode::invalid_request);
    CHECK(tells(restart.message, "tarry.shards cannot be changed while the broker runs"));
    CHECK(tells(restart.message, "restart"));
    CHECK(s.remove("tarry.shards") == ErrorCode::invalid_request);
    const auto range =
        s.alter({{"message.max.bytes", 0, "5"}, {"tarry.max.partitions", 0, "5000"}});
    CHECK(range.code == ErrorCode::invalid_config);
    CHECK(tells(range.message,
                "Invalid value 5000 for configuration tarry.max.partitions: expected "
                "a whole number from 1 to 1000"));
    CHECK(s.set("tarry.max.partition", "5") == ErrorCode::invalid_config);
    CHECK(s.remove("tarry.max.partition") == ErrorCode::invalid_config);
    CHECK(s.set("tarry.max.partitions", std::string(300, '1')) == ErrorCode::invalid_config);
    CHECK(s.alter({{"tarry.max.partitions", 0, "13"}}).message == "13 goes with nothing");
    CHECK(s.alter({{"tarry.max.partitions", 2, "5"}}).code == ErrorCode::invalid_config);
    CHECK(s.set("tarry.max.partitions", "5", "2") == ErrorCode::invalid_request);
    CHECK(s.alter({{"tarry.max.partitions", 0, "5"}}, "1", true).code == ErrorCode::none);
    CHECK(s.world.shard().config().max_partitions == 100);
    CHECK(s.described("tarry.max.partitions") == "100 5: 5=100");
    CHECK(s.described("tarry.shards") == "2 5 read-only: 5=2");
  }

  TEST_CASE("AlterConfigs replaces all that was set for the broker, and leaves the cluster's") {
    SettingsWorld s;
    CHECK(s.set("tarry.max.partitions", "10", "") == ErrorCode::none);
    CHECK(s.set("tarry.max.partitions", "20") == ErrorCode::none);
    protocol::AlterConfigsRequest replace;
    replace.resources.push_back({4, "1", {{"message.max.bytes", "500"}}});
    CHECK(s.world.call<protocol::AlterConfigsResponse>(replace, 2).responses[0].error_code ==
          ErrorCode::none);
    CHECK(s.described("message.max.bytes") == "500 2: 2=500 5=1048588");
    CHECK(s.world.shard().config().max_partitions == 10);
  }

  TEST_CASE("two changes at once are both there, and every shard ends with both") {
    SettingsWorld s;
    protocol::IncrementalAlterConfigsRequest one, other;
    one.resources.push_back({4, "1", {{"tarry.max.partitions", 0, "30"}}});
    other.resources.push_back({4, "1", {{"message.max.bytes", 0, "700"}}});
    s.world.runs_at_once = false;
    const auto first = s.world.begin(one, 1, 0);
    const auto second = s.world.begin(other, 1, 1);
    s.world.run();
    REQUIRE(first->answer.has_value());
    REQUIRE(second->answer.has_value());
    for (std::size_t i = 0; i < s.world.shard_count(); ++i) {
      CHECK(s.world.shard(i).config().max_partitions == 30);
      CHECK(s.world.shard(i).config().topic_defaults.at("max.message.bytes") == "700");
    }
    s.world.restart();
    CHECK(s.world.shard(1).config().max_partitions == 30);
    CHECK(s.world.shard(1).config().topic_defaults.at("max.message.bytes") == "700");
  }

  TEST_CASE("a stored setting that is no longer valid is ignored, and the broker starts") {
    SettingsWorld s;
    CHECK(s.set("tarry.max.partitions", "900") == ErrorCode::none);
    CHECK(s.set("message.max.bytes", "90") == ErrorCode::none);
    s.table.most = 100;
    s.world.restart();
    CHECK(s.world.shard().config().max_partitions == 100);
    CHECK(s.world.shard().config().topic_defaults.at("max.message.bytes") == "90");
  }
}

}  // namespace
}  // namespace tarry::broker::test
