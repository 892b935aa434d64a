// Topics: created, described, altered, deleted.

#include <doctest/doctest.h>
#include <boost/asio/co_spawn.hpp>

#include <algorithm>
#include <filesystem>
#include <new>
#include <string>

#include "broker/handlers/table.h"
#include "protocol/messages/alter_configs.h"
#include "protocol/messages/api_versions.h"
#include "protocol/messages/create_partitions.h"
#include "protocol/messages/delete_topics.h"
#include "protocol/messages/describe_cluster.h"
#include "protocol/messages/describe_configs.h"
#include "protocol/messages/describe_topic_partitions.h"
#include "protocol/messages/incremental_alter_configs.h"
#include "protocol/messages/metadata.h"
#include "tests/broker/batches.h"

namespace tarry::broker::test {
namespace {

protocol::MetadataResponse metadata_of(World& world, std::string_view name, int version = 12,
                                       bool create = false) {
  protocol::MetadataRequest request;
  request.allow_auto_topic_creation = create;
  request.topics.emplace().push_back({{}, name});
  return world.call<protocol::MetadataResponse>(request, version);
}

ErrorCode create(World& world, std::string_view name, std::int32_t partitions,
                 std::int16_t replication = 1,
                 std::vector<protocol::CreateTopicsRequest::Config> configs = {}) {
  protocol::CreateTopicsRequest request;
  request.topics.push_back({name, partitions, replication, {}, std::move(configs)});
  return world.call<protocol::CreateTopicsResponse>(request, 7).topics[0].error_code;
}

// Why there can be no such topic; empty when there can.
std::string refusal_of(World& world, std::string_view name, std::int32_t partitions,
                       std::vector<protocol::CreateTopicsRequest::Config> configs = {}) {
  protocol::CreateTopicsRequest request;
  request.topics.push_back({name, partitions, 1, {}, std::move(configs)});
  request.validate_only = true;
  return std::string(
      world.call<protocol::CreateTopicsResponse>(request, 7).topics[0].error_message.value_or(""));
}

ErrorCode set_config(World& world, std::string_view topic, std::string_view key,
                     std::string_view value) {
  protocol::IncrementalAlterConfigsRequest request;
  request.resources.push_back({2, topic, {{key, 0, value}}});
  return world.call<protocol::IncrementalAlterConfigsResponse>(request, 1).responses[0].error_code;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

std::string config_of(World& world, std::string_view topic, std::string_view key) {
  protocol::DescribeConfigsRequest request;
  request.resources.push_back({2, topic, std::vector{key}});
  const auto response = world.call<protocol::DescribeConfigsResponse>(request, 4);
  REQUIRE(response.results[0].configs.size() == 1);
  return response.results[0].configs[0].value.value_or("<null>");
}

TEST_SUITE("topics") {
  TEST_CASE("ApiVersions above ours is answered in version 0 with an array of four-byte count") {
    World world;
    protocol::ApiVersionsRequest request;
    request.client_software_name = "client";
    request.client_software_version = "1";
    Buffer frame = protocol::encode_request_frame(7, "test", request, 4);
    store_be(frame.data() + 6, std::int16_t{99});
    // The version is patched, so the world's own begin() cannot be used.
    const auto header = protocol::parse_request_header(Bytes(frame).subspan(4));
    REQUIRE(header.has_value());
    CHECK(refusal_reason(*header).empty());
    std::optional<Answer> answer;
    boost::asio::co_spawn(
        world.shard().executor(),
        find_handler(18)->run({world.broker(), world.shard(), world.connection(), *header}),
        [&](std::exception_ptr, Answer given) { answer = std::move(given); });
    world.run();
    REQUIRE(answer.has_value());
    Buffer bytes;
    for (const auto& piece : answer->frame) append_bytes(bytes, piece.view());
    CHECK(load_be<std::int32_t>(bytes.data() + 4) == 7);
    CHECK(load_be<std::int16_t>(bytes.data() + 8) == 35);
    const auto count = load_be<std::int32_t>(bytes.data() + 10);
    CHECK(count == static_cast<std::int32_t>(handlers().size()));
    CHECK(bytes.size() == 14 + static_cast<std::size_t>(count) * 6);  // No throttle time, no tags.
  }

  TEST_CASE("Produce is advertised from version 0 and served from 3") {
    World world;
    protocol::ApiVersionsRequest request;
    request.client_software_name = "client";
    request.client_software_version = "1";
    const auto response = world.call<protocol::ApiVersionsResponse>(request, 3);
    CHECK(response.api_keys[0].api_key == 0);
    CHECK(response.api_keys[0].min_version == 0);
    CHECK(response.api_keys[0].max_version == 12);
    protocol::RequestHeader header;
    header.key = 0;
    header.version = 2;
    CHECK_FALSE(refusal_reason(header).empty());
    header.version = 3;
    CHECK(refusal_reason(header).empty());
  }

  TEST_CASE("every advertised API has a handler") {
    for (const auto& handler : handlers()) {
      CHECK((handler.run != nullptr));
      CHECK(protocol::find_api(handler.key)->has_version(handler.min_served));
      CHECK(protocol::find_api(handler.key)->has_version(handler.max_version));
    }
    CHECK(find_handler(24) == nullptr);  // AddPartitionsToTxn: no transactions.
  }

  TEST_CASE("a topic is created once, known to all shards and there after a kill") {
    World world;
    CHECK(create(world, "orders", 5) == ErrorCode::none);
    CHECK(create(world, "orders", 5) == ErrorCode::topic_already_exists);
    for (std::size_t i = 0; i < 2; ++i)
      CHECK(world.shard(i).topics().find("orders")->partitions == 5);
    world.restart();
    const auto metadata = metadata_of(world, "orders");
    CHECK(metadata.topics[0].partitions.size() == 5);
    CHECK(metadata.brokers[0].node_id == metadata.topics[0].partitions[0].leader_id);
  }

  TEST_CASE("an unknown topic is refused with Kafka's code") {
    World world;
    CHECK(create(world, "", 1) == ErrorCode::invalid_topic);
    CHECK(create(world, ".", 1) == ErrorCode::invalid_topic);
    CHECK(create(world, "../../etc", 1) == ErrorCode::invalid_topic);
    CHECK(create(world, std::string(250, 'a'), 1) == ErrorCode::invalid_topic);
    CHECK(create(world, "t", 0) == ErrorCode::invalid_partitions);
    CHECK(create(world, "t", 2'000'000'000) == ErrorCode::invalid_partitions);
    CHECK(create(world, "t", 1, 3) == ErrorCode::invalid_replication_factor);
    CHECK(create(world, "t", 1, 1, {{"no.such.key", "1"}}) == ErrorCode::invalid_config);
    CHECK(create(world, "t", 1, 1, {{"retention.ms", "soon"}}) == ErrorCode::invalid_config);
    CHECK(create(world, "t", 1, 1, {{"cleanup.policy", "compact"}}) == ErrorCode::invalid_config);
    CHECK(world.shard().topics().size() == 0);
  }

  TEST_CASE("Metadata creates a topic when the client allows it and not otherwise") {
    World world;
    CHECK(metadata_of(world, "auto").topics[0].error_code == ErrorCode::unknown_topic_or_partition);
    CHECK(metadata_of(world, "auto", 12, true).topics[0].error_code == ErrorCode::none);
    CHECK(metadata_of(world, "bad name", 12, true).topics[0].error_code ==
          ErrorCode::invalid_topic);
  }

  TEST_CASE("a deleted topic is gone for all, and its name can be given again with nothing in it") {
    World world;
    create_topic(world, "t", 3);
    produce(world, "t", 1, batch_of(world.clock.wall(), {{"old"}}));
    const auto waiting = world.begin(fetch_request("t", 1, 1, 60'000), 12);
    protocol::DeleteTopicsRequest request;
    request.timeout_ms = 30'000;
    request.topics.push_back({"t", {}});
    CHECK(world.call<protocol::DeleteTopicsResponse>(request, 6).responses[0].error_code ==
          ErrorCode::none);
    REQUIRE(waiting->answer.has_value());  // The client that waited is answered.
    CHECK(world.read<protocol::FetchResponse>(*waiting, 12).responses[0].partitions[0].error_code ==
          ErrorCode::unknown_topic_or_partition);
    create_topic(world, "t", 3);
    CHECK(read_all(world, "t", 1).empty());
    CHECK(produce(world, "t", 1, batch_of(world.clock.wall(), {{"new"}})).base_offset == 0);
    world.restart();
    CHECK(values(read_all(world, "t", 1)) == std::vector<std::string>{"new"});
  }

  TEST_CASE("a topic may be deleted while a checkpoint writes its logs") {
    World world({.shards = 1, .configure = [](BrokerConfig& config) {
                   config.checkpoint_interval = std::chrono::milliseconds{50};
                 }});
    for (int round = 0; round < 10; ++round) {
      CAPTURE(round);
      create_topic(world, "t", 2);
      produce(world, "t", 0, batch_of(world.clock.wall(), {{"old"}}));
      produce(world, "t", 1, batch_of(world.clock.wall(), {{"old"}}));
      // The checkpoint is wanted in the turn in which the deletion comes.
      world.clock.now_mono += std::chrono::milliseconds{60};
      protocol::DeleteTopicsRequest request;
      request.timeout_ms = 30'000;
      request.topics.push_back({"t", {}});
      CHECK(world.call<protocol::DeleteTopicsResponse>(request, 6).responses[0].error_code ==
            ErrorCode::none);
      world.pass(std::chrono::milliseconds{10 * round});
    }
    CHECK_FALSE(world.failure.has_value());
  }

  TEST_CASE("the partitions of a deleted topic count no more, although the deletion lacks memory") {
    World world(
        {.shards = 1, .configure = [](BrokerConfig& config) { config.max_partitions = 10; }});
    create_topic(world, "a", 10);
    REQUIRE(create(world, "b", 10) == ErrorCode::invalid_partitions);
    protocol::DeleteTopicsRequest request;
    request.topics.push_back({"a", {}});
    request.timeout_ms = 1000;
    world.background_stands_still = true;
    const auto deletion = world.begin(request, 6);
    // Its round becomes durable, and what the pool is asked for next finds no memory.
    REQUIRE(world.background().size() == 1);
    world.background().no_memory = true;
    bool has_thrown = false;
    try {
      REQUIRE(world.background().step());
      world.turn();
    } catch (const std::bad_alloc&) {
      has_thrown = true;  // The request's: it ends the connection of a real client.
    }
    CHECK(has_thrown);
    CHECK(deletion->has_failed);
    REQUIRE_FALSE(world.background().no_memory);
    REQUIRE_FALSE(world.broker().topics().image()->find("a"));
    world.background_stands_still = false;
    world.run();
    CHECK(create(world, "b", 10) == ErrorCode::none);
  }

  TEST_CASE("the files of a deleted topic are removed by one thread of the pool at a time") {
    constexpr std::int32_t many = 5000;
    World world({.shards = 1});
    create_topic(world, "wide", many);
    // One of them is open, and has files.
    produce(world, "wide", many - 1, batch_of(world.clock.wall(), {{"a"}}));
    const auto files = world.directory() + "/data/logs/wide-" + std::to_string(many - 1);
    REQUIRE(std::filesystem::exists(files));
    protocol::DeleteTopicsRequest request;
    request.topics.push_back({"wide", {}});
    request.timeout_ms = 1000;
    world.background_stands_still = true;
    const auto deletion = world.begin(request, 6);
    // The latest work first: the journal's rounds, while the removals wait.
    std::size_t most = 0;
    for (bool busy = true; busy && !deletion->answer;) {
      busy = world.turn();
      most = std::max(most, world.background().size());
      busy = world.background().step_last() || busy;
    }
    REQUIRE(deletion->answer);
    CHECK(most < 10);
    world.background_stands_still = false;
    world.run();
    CHECK_FALSE(std::filesystem::exists(files));
  }

  TEST_CASE("partitions are added, never taken away") {
    World world;
    create_topic(world, "t", 2);
    const auto change = [&](std::int32_t count) {
      protocol::CreatePartitionsRequest request;
      request.timeout_ms = 30'000;
      request.topics.push_back({"t", count, std::nullopt});
      return world.call<protocol::CreatePartitionsResponse>(request, 3).results[0].error_code;
    };
    CHECK(change(2) == ErrorCode::invalid_partitions);
    CHECK(change(1) == ErrorCode::invalid_partitions);
    CHECK(change(4) == ErrorCode::none);
    CHECK(produce(world, "t", 3, batch_of(world.clock.wall(), {{"a"}})).base_offset == 0);
    world.restart();
    CHECK(metadata_of(world, "t").topics[0].partitions.size() == 4);
  }

  TEST_CASE("configs are described with source and synonyms, altered, and hold after a kill") {
    World world;
    create_topic(world, "t", 1, {{"retention.ms", "1000"}});
    CHECK(config_of(world, "t", "retention.ms") == "1000");
    CHECK(config_of(world, "t", "segment.bytes") == "1073741824");

    protocol::IncrementalAlterConfigsRequest incremental;
    incremental.resources.push_back(
        {2, "t", {{"segment.bytes", 0, "5000"}, {"retention.ms", 1, std::nullopt}}});
    CHECK(world.call<protocol::IncrementalAlterConfigsResponse>(incremental, 1)
              .responses[0]
              .error_code == ErrorCode::none);
    world.restart();
    CHECK(config_of(world, "t", "segment.bytes") == "5000");
    CHECK(config_of(world, "t", "retention.ms") == "604800000");

    protocol::AlterConfigsRequest replace;
    replace.resources.push_back({2, "t", {{"max.message.bytes", "77"}}});
    CHECK(world.call<protocol::AlterConfigsResponse>(replace, 2).responses[0].error_code ==
          ErrorCode::none);
    CHECK(config_of(world, "t", "segment.bytes") == "1073741824");
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {{std::string(100, 'x')}}))
              .error_code == ErrorCode::message_too_large);

    incremental.resources[0].configs = {{"segment.bytes", 0, "-5"}};
    CHECK(world.call<protocol::IncrementalAlterConfigsResponse>(incremental, 1)
              .responses[0]
              .error_code == ErrorCode::invalid_config);
  }

  TEST_CASE("DescribeConfigs with no keys, like without a list of them, describes all") {
    World world({.configure = [](BrokerConfig& config) {
      config.entries.emplace_back().name = "num.partitions";
    }});
    create_topic(world, "t");
    const auto count = [&](std::int8_t type, std::string_view name,
                           std::optional<std::vector<std::string_view>> keys) {
      protocol::DescribeConfigsRequest request;
      request.resources.push_back({type, name, std::move(keys)});
      const auto response = world.call<protocol::DescribeConfigsResponse>(request, 4);
      return response.results[0].configs.size();
    };
    CHECK(count(2, "t", std::vector<std::string_view>{}) == topic_config_keys().size());
    CHECK(count(2, "t", std::nullopt) == topic_config_keys().size());
    CHECK(count(2, "t", std::vector<std::string_view>{"retention.ms", "no.such"}) == 1);
    CHECK(count(4, "1", std::vector<std::string_view>{}) == 2);  // Its one key, and the start id.
  }

  TEST_CASE("Kafka's topic configs that have nothing to act on are taken, in Kafka's range") {
    World world;
    create_topic(world, "t");
    const auto takes = [&](std::string_view key, std::string_view value) {
      const bool taken = set_config(world, "t", key, value) == ErrorCode::none;
      CHECK(taken == refusal_of(world, "other", 1, {{key, value}}).empty());
      return taken;
    };
    constexpr std::string_view most = "9223372036854775807", above = "9223372036854775808";
    struct Number {
      std::string_view key, fallback;
      std::string_view least, below;
    };
    for (const auto& [key, fallback, least, below] : std::initializer_list<Number>{
             {"delete.retention.ms", "86400000", "0", "-1"},
             {"file.delete.delay.ms", "60000", "0", "-1"},
             {"flush.messages", most, "1", "0"},
             {"flush.ms", most, "0", "-1"},
             {"max.compaction.lag.ms", most, "1", "0"},
             {"min.compaction.lag.ms", "0", "0", "-1"},
             {"segment.jitter.ms", "0", "0", "-1"},
         }) {
      CAPTURE(key);
      CHECK(config_of(world, "t", key) == fallback);
      CHECK(takes(key, most));
      CHECK(takes(key, least));
      CHECK(config_of(world, "t", key) == least);
      CHECK_FALSE(takes(key, below));
      CHECK_FALSE(takes(key, above));
      CHECK_FALSE(takes(key, "soon"));
      CHECK_FALSE(takes(key, ""));
    }
    CHECK(config_of(world, "t", "min.cleanable.dirty.ratio") == "0.5");
    for (const char* value : {"0", "1", "0.25", "1e-3"})
      CHECK(takes("min.cleanable.dirty.ratio", value));
    for (const char* value : {"1.01", "-0.1", "nan", "half", "0.5x"})
      CHECK_FALSE(takes("min.cleanable.dirty.ratio", value));
    for (const char* value : {"true", "false", "True"})
      CHECK(takes("unclean.leader.election.enable", value));
    CHECK(config_of(world, "t", "unclean.leader.election.enable") == "true");
    CHECK_FALSE(takes("unclean.leader.election.enable", "yes"));
    world.restart();
    CHECK(config_of(world, "t", "flush.messages") == "1");
  }

  TEST_CASE("a topic config whose effect would be missed is refused with key, value and reason") {
    World world;
    struct Refused {
      std::string_view key, value, reason;
    };
    for (const auto& [key, value, reason] : std::initializer_list<Refused>{
             {"preallocate", "true", "a segment grows as it is written"},
             {"remote.storage.enable", "true", "there is no remote storage"},
             {"cleanup.policy", "compact", "compaction is not supported"},
         }) {
      CAPTURE(key);
      const auto said = refusal_of(world, "t", 1, {{key, value}});
      CHECK(contains(said, key));
      CHECK(contains(said, value));
      CHECK(contains(said, reason));
      CHECK(create(world, "t", 1, 1, {{key, value}}) == ErrorCode::invalid_config);
    }
    CHECK(
        create(world, "t", 1, 1, {{"preallocate", "false"}, {"remote.storage.enable", "false"}}) ==
        ErrorCode::none);
    CHECK(config_of(world, "t", "remote.storage.enable") == "false");
  }

  TEST_CASE("flush.messages and flush.ms are refused where records are not synced before the ack") {
    World world;
    const auto said =
        refusal_of(world, "t", 1, {{"tarry.durability", "os"}, {"flush.messages", "1"}});
    CHECK(contains(said, "flush.messages"));
    CHECK(contains(said, "tarry.durability=os"));
    create_topic(world, "t", 1, {{"flush.ms", "1000"}});
    CHECK(set_config(world, "t", "tarry.durability", "os") == ErrorCode::invalid_config);
    CHECK(set_config(world, "t", "flush.ms", "9223372036854775807") == ErrorCode::none);
    CHECK(set_config(world, "t", "tarry.durability", "os") == ErrorCode::none);
    World by_default({.configure = [](BrokerConfig& config) {
      config.topic_defaults["tarry.durability"] = "os";
    }});
    CHECK(create(by_default, "t", 1, 1, {{"flush.ms", "1000"}}) == ErrorCode::invalid_config);
  }

  TEST_CASE("a config is stored as its value, however it was written, and a long one is refused") {
    World world;
    create_topic(world, "t", 1, {{"retention.ms", "0000000000000000000000000001000"}});
    CHECK(config_of(world, "t", "retention.ms") == "1000");
    CHECK(set_config(world, "t", "segment.bytes", "000005000") == ErrorCode::none);
    CHECK(set_config(world, "t", "tarry.delay.enable", "FALSE") == ErrorCode::none);
    CHECK(set_config(world, "t", "min.cleanable.dirty.ratio", "0.5000") == ErrorCode::none);
    const auto& stored = world.shard().topics().find("t")->configs;
    CHECK(stored == storage::Configs{{"min.cleanable.dirty.ratio", "0.5"},
                                     {"retention.ms", "1000"},
                                     {"segment.bytes", "5000"},
                                     {"tarry.delay.enable", "false"}});

    const std::string long_one = std::string(30'000, '0') + "1000";
    CHECK(set_config(world, "t", "retention.ms", long_one) == ErrorCode::invalid_config);
    const auto said = refusal_of(world, "other", 1, {{"retention.ms", long_one}});
    CHECK(contains(said, "retention.ms"));
    CHECK(contains(said, "30004 bytes"));
    CHECK(said.size() < 300);
    CHECK(config_of(world, "t", "retention.ms") == "1000");
  }

  TEST_CASE("a topic has only as many partitions as there can be directories with its name") {
    World world;
    const std::string name(249, 'n');
    CHECK(refusal_of(world, name, 100'000).empty());  // The last one is NAME-99999: 255 bytes.
    const auto said = refusal_of(world, name, 100'001);
    CHECK(contains(said, "100001 partitions"));
    CHECK(contains(said, "256 bytes"));
    CHECK(refusal_of(world, name.substr(1), 100'001).empty());
    CHECK(create(world, name, 100'001) == ErrorCode::invalid_partitions);
    CHECK(create(world, name, 1) == ErrorCode::none);
    protocol::CreatePartitionsRequest more;
    more.timeout_ms = 1000;
    more.validate_only = true;
    more.topics.push_back({name, 100'000, std::nullopt});
    CHECK(world.call<protocol::CreatePartitionsResponse>(more, 3).results[0].error_code ==
          ErrorCode::none);
    more.topics[0].count = 100'001;
    const auto answer = world.call<protocol::CreatePartitionsResponse>(more, 3);
    CHECK(answer.results[0].error_code == ErrorCode::invalid_partitions);
    CHECK(contains(answer.results[0].error_message.value_or(""), "256 bytes"));
  }

  TEST_CASE(
      "authorized operations are what Kafka without an authorizer answers, and only if asked") {
    constexpr std::int32_t of_cluster = 8096, of_topic = 3576;  // As Kafka 4.3.1 answers.
    constexpr auto not_asked = std::numeric_limits<std::int32_t>::min();
    World world;
    create_topic(world, "t");
    for (const bool asked : {false, true}) {
      CAPTURE(asked);
      for (std::int16_t version = 8; version <= 12; ++version) {
        CAPTURE(version);
        protocol::MetadataRequest request;
        request.include_cluster_authorized_operations = asked && version <= 10;
        request.include_topic_authorized_operations = asked;
        request.allow_auto_topic_creation = false;
        request.topics.emplace();
        request.topics->push_back({{}, "t"});
        request.topics->push_back({{}, "unknown"});
        auto answer = world.call<protocol::MetadataResponse>(request, version);
        CHECK(answer.cluster_authorized_operations ==
              (asked && version <= 10 ? of_cluster : not_asked));
        REQUIRE(answer.topics.size() == 2);
        for (const auto& topic : answer.topics)
          CHECK(topic.topic_authorized_operations == (asked ? of_topic : not_asked));
        request.topics.reset();
        answer = world.call<protocol::MetadataResponse>(request, version);
        REQUIRE(answer.topics.size() == 1);
        CHECK(answer.topics[0].topic_authorized_operations == (asked ? of_topic : not_asked));
      }
      protocol::DescribeClusterRequest cluster;
      cluster.include_cluster_authorized_operations = asked;
      CHECK(
          world.call<protocol::DescribeClusterResponse>(cluster, 0).cluster_authorized_operations ==
          (asked ? of_cluster : not_asked));
    }
    protocol::DescribeTopicPartitionsRequest partitions;
    partitions.response_partition_limit = 10;
    partitions.topics = {{"t"}, {"unknown"}};
    const auto answer = world.call<protocol::DescribeTopicPartitionsResponse>(partitions, 0);
    REQUIRE(answer.topics.size() == 2);
    for (const auto& topic : answer.topics) CHECK(topic.topic_authorized_operations == of_topic);
  }

  TEST_CASE("DescribeTopicPartitions pages through topics in the order of their names") {
    World world;
    for (const char* name : {"b", "a", "c"}) create_topic(world, name, 3);
    protocol::DescribeTopicPartitionsRequest request;
    request.response_partition_limit = 4;
    std::vector<std::string> seen;
    for (int page = 0; page < 10; ++page) {
      const auto response = world.call<protocol::DescribeTopicPartitionsResponse>(request, 0);
      for (const auto& topic : response.topics) {
        for (const auto& partition : topic.partitions)
          seen.push_back(*topic.name + std::to_string(partition.partition_index));
      }
      if (!response.next_cursor) break;
      static std::string name;
      name = response.next_cursor->topic_name;
      request.cursor = {name, response.next_cursor->partition_index};
    }
    CHECK(seen == std::vector<std::string>{"a0", "a1", "a2", "b0", "b1", "b2", "c0", "c1", "c2"});
  }
}

}  // namespace
}  // namespace tarry::broker::test
