#include "server/config_layers.h"

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "server/config_keys.h"
#include "server/properties_file.h"
#include "tests/server/contains.h"

namespace tarry::server {
namespace {

using Layers = std::vector<std::vector<Setting>>;

std::vector<Setting> file(std::string_view text) {
  auto settings = parse_properties(text, "x.properties");
  REQUIRE(settings.has_value());
  return *settings;
}
std::vector<Setting> set(std::initializer_list<std::pair<const char*, const char*>> words) {
  std::vector<Setting> settings;
  for (const auto& [key, value] : words) settings.push_back({"--set", key, value});
  return settings;
}
Config made(const Layers& layers) {
  auto config = make_config(layers);
  if (!config) FAIL(config.error().message);
  return *config;
}
std::string refused(const Layers& layers) {
  const auto config = make_config(layers);
  REQUIRE_FALSE(config.has_value());
  CHECK(config.error().message.find('\n') == std::string::npos);
  return config.error().message;
}
const broker::ConfigEntry& entry(const Config& config, std::string_view name) {
  const auto found = std::ranges::find(config.broker.entries, name, &broker::ConfigEntry::name);
  REQUIRE(found != config.broker.entries.end());
  return *found;
}

TEST_SUITE("config") {
  TEST_CASE("without any setting the defaults hold") {
    const auto config = made({});
    CHECK(config.listeners[0].listen == HostPort{"localhost", 9092});
    CHECK_FALSE(config.listeners[0].advertise.has_value());
    CHECK(config.admin == HostPort{"127.0.0.1", 8080});
    CHECK(config.shards == std::max(1u, std::thread::hardware_concurrency()));
    CHECK(config.log_level == LogLevel::info);
    CHECK(config.max_connections == 100'000);
    CHECK(config.broker.data_directory == "./tarry-data");
    CHECK(config.broker.log_directory.empty());
    CHECK(config.broker.topic_defaults.at("retention.ms") == "604800000");
    CHECK(config.broker.topic_defaults.at("segment.ms") == "604800000");
    // The structs' own defaults are those of the table.
    const broker::BrokerConfig plain;
    CHECK(config.broker.num_partitions == plain.num_partitions);
    CHECK(config.broker.auto_create_topics == plain.auto_create_topics);
    CHECK(config.broker.delete_topics == plain.delete_topics);
    CHECK(config.broker.fetch_max_bytes == plain.fetch_max_bytes);
    CHECK(config.broker.retention_check == plain.retention_check);
    CHECK(config.broker.producer_id_expiration == plain.producer_id_expiration);
    CHECK(config.broker.offset_metadata_bytes == plain.offset_metadata_bytes);
    CHECK(config.broker.offsets_commit_timeout == plain.offsets_commit_timeout);
    CHECK(config.broker.offsets_retention == plain.offsets_retention);
    CHECK(config.broker.offsets_retention_check == plain.offsets_retention_check);
    CHECK(config.broker.group_offsets_bytes == plain.group_offsets_bytes);
    CHECK(config.broker.max_partitions == plain.max_partitions);
    CHECK(config.broker.decompressed_max_bytes == plain.decompressed_max_bytes);
    CHECK(config.broker.tail_bytes == plain.tail_bytes);
    CHECK(config.broker.journal_max_bytes == plain.journal_max_bytes);
    CHECK(config.broker.journal_file_bytes == plain.journal_file_bytes);
    CHECK(config.broker.checkpoint_interval == plain.checkpoint_interval);
    CHECK(config.broker.disk_reserve_bytes == plain.disk_reserve_bytes);
    CHECK(config.broker.delay_memory_bytes == plain.delay_memory_bytes);
    CHECK(config.broker.delay_remember == plain.delay_remember);
    const SessionLimits limits;
    CHECK(config.sessions.frame_bytes == limits.frame_bytes);
    CHECK(config.broker.memory_bytes == plain.memory_bytes);
    CHECK(config.sessions.requests_in_flight == limits.requests_in_flight);
    CHECK(config.sessions.bytes_in_flight == limits.bytes_in_flight);
    CHECK(config.sessions.idle == limits.idle);
    CHECK(config.sessions.write_stall == limits.write_stall);
  }

  TEST_CASE("a file wins over the default, --set over the file, a flag over --set") {
    const auto from_file = file("num.partitions=2\nfetch.max.bytes=5000\ntarry.shards=3\n");
    const auto from_set = set({{"num.partitions", "4"}, {"tarry.shards", "5"}});
    const std::vector<Setting> flags{{"--shards", "tarry.shards", "6"}};
    const auto config = made({from_file, from_set, flags});
    CHECK(config.broker.fetch_max_bytes == 5000);
    CHECK(config.broker.num_partitions == 4);
    CHECK(config.shards == 6);
  }

  TEST_CASE("an unknown key is refused by file, line, key and value, with the key that was meant") {
    const auto said = refused({file("# one\n\nlog.retention.mss=5\n")});
    CHECK(contains(said, "x.properties:3: log.retention.mss=5"));
    CHECK(contains(said, "did you mean log.retention.ms?"));
    CHECK(contains(said, "--help-config"));
    const auto strange = refused({set({{"no.such.thing.at.all", "1"}})});
    CHECK(contains(strange, "--set no.such.thing.at.all=1"));
    CHECK_FALSE(contains(strange, "did you mean"));
  }

  TEST_CASE("a key that only Apache Kafka needs is refused with the advice to leave it out") {
    for (const char* key : {"broker.id", "zookeeper.connect", "num.network.threads",
                            "controller.quorum.voters", "log.cleaner.enable"}) {
      const auto said = refused({set({{key, "1"}})});
      CHECK(contains(said, "--set " + std::string(key) + "=1: a setting of Apache Kafka"));
      CHECK(contains(said, "leave it out"));
    }
    // A key of Tarry's that is mistyped is not one of Kafka's.
    for (const auto& key : config_keys())
      CHECK_FALSE(
          contains(refused({set({{(std::string(key.name) + "x").c_str(), "1"}})}), "leave it out"));
  }

  TEST_CASE("a bad value is refused with place, key and value, and with the allowed values") {
    CHECK(contains(refused({file("a.b\n")}), "x.properties:1: a.b=(nothing)"));
    auto said = refused({file("\nnum.partitions=abc")});
    CHECK(said == "x.properties:2: num.partitions=abc: expected a whole number from 1 to 100000");
    said = refused({set({{"log.segment.bytes", "-3"}})});
    CHECK(said ==
          "--set log.segment.bytes=-3: expected a whole number from 14 to 2147483647, in bytes, "
          "or as in 64KiB and 1GiB");
    CHECK(contains(refused({set({{"log.retention.ms", "forever"}})}), "or as in 90s and 7d"));
    CHECK(contains(refused({set({{"listeners", "localhost:9999"},
                                 {"tarry.admin.listener", "localhost:9999"}})}),
                   "tarry.admin.listener=localhost:9999: it uses the port of listeners"));
    said = refused({{{"--shards", "tarry.shards", "many"}}});
    CHECK(said == "--shards many: expected a whole number from 0 to 256");
    CHECK(check_setting({"--shards", "tarry.shards", "many"}).error().message == said);
    for (const auto& [key, value] : std::initializer_list<std::pair<const char*, const char*>>{
             {"num.partitions", ""},
             {"num.partitions", "0"},
             {"num.partitions", "1.5"},
             {"num.partitions", "99999999999999999999"},
             {"auto.create.topics.enable", "yes"},
             {"default.replication.factor", "3"},
             {"node.id", "2"},
             {"listeners", "localhost"},
             {"listeners", "PLAINTEXT://a:1,PLAINTEXT://b:2"},
             {"listeners", "localhost:9092,EXTERNAL://localhost:9093"},
             {"listeners", "A://localhost:9093,B://localhost:9093"},
             {"listeners", "A B://localhost:9093"},
             {"advertised.listeners", "PLAINTEXT://0.0.0.0:9092"},
             {"listener.security.protocol.map", "A:TLS"},
             {"listener.security.protocol.map", "A:SSL,a:SSL"},
             {"ssl.client.auth", "yes"},
             {"ssl.keystore.type", "JKS"},
             {"ssl.enabled.protocols", "TLSv1.1"},
             {"ssl.cipher.suites", "TLS_NONE"},
             {"ssl.principal.mapping.rules", "RULE:("},
             {"ssl.principal.mapping.rules", "RULE:(/$1/"},
             {"advertised.listeners", ":9092"},
             {"tarry.admin.listener", "on"},
             {"tarry.admin.allowed.hosts", "http://tarry.example.com"},
             {"tarry.admin.allowed.hosts", "localhost,,tarry"},
             {"tarry.admin.allowed.hosts", "*.example.com"},
             {"tarry.admin.open.reads", "yes"},
             {"tarry.durability", "sometimes"},
             {"tarry.log.level", "loud"},
             {"tarry.data.dir", ""},
             {"log.dirs", "/a,/b"},
             {"log.cleanup.policy", "compact"},
             {"log.retention.ms", "-2"},
             {"log.retention.ms", "a week"},
             {"socket.request.max.bytes", "3GiB"},
             {"tarry.journal.file.bytes", "100000"},
             {"connections.max.idle.ms", "0"},
         }) {
      INFO(key, "=", value);
      const auto bad = refused({set({{key, value}})});
      CHECK(contains(bad, key));
      CHECK(contains(bad, *value == 0 ? "(nothing)" : value));
      CHECK(contains(bad, "expected "));
    }
  }

  TEST_CASE("the admin's port may be a listener's only if no address has both") {
    const auto both = [](const char* listener, const char* admin) {
      return Layers{set({{"listeners", listener}, {"tarry.admin.listener", admin}})};
    };
    const char* const kafka = "127.0.0.1:9999";
    for (const char* admin : {"localhost:9999", "0.0.0.0:9999", "[::]:9999", "127.0.0.1:9999"})
      CHECK(contains(refused(both(kafka, admin)), "it uses the port of listeners"));
    CHECK(contains(refused(both("0.0.0.0:9999", "localhost:9999")), "it uses the port"));
    made(both(kafka, "127.0.0.2:9999"));
    made(both(kafka, "[::1]:9999"));
    made(both("0.0.0.0:9999", "[::1]:9999"));
    made(both(kafka, "0.0.0.0:9998"));
  }

  TEST_CASE("a value cannot make a line of its own in the error") {
    CHECK(contains(refused({file("num.partitions=a\\nb")}), "num.partitions=a\\x0ab"));
  }

  TEST_CASE("a key that stands twice in one place is refused with both lines") {
    const auto said = refused({file("num.partitions=1\n\nnum.partitions=2")});
    CHECK(contains(said, "x.properties:3: num.partitions=2"));
    CHECK(contains(said, "x.properties:1: num.partitions=1"));
    CHECK(contains(refused({set({{"num.partitions", "1"}, {"num.partitions", "1"}})}), "twice"));
  }

  TEST_CASE("a bad value is refused though a higher layer overrides it") {
    CHECK(contains(refused({file("num.partitions=x"), set({{"num.partitions", "1"}})}), "=x"));
  }

  TEST_CASE("times and sizes are plain numbers or have units") {
    const auto config = made({set({{"connections.max.idle.ms", "1h30m"},
                                   {"tarry.checkpoint.interval.ms", "250"},
                                   {"log.retention.ms", "7d"},
                                   {"tarry.disk.reserve.bytes", "2GiB"},
                                   {"log.segment.bytes", "64KiB"},
                                   {"log.retention.bytes", "-1"}})});
    CHECK(config.sessions.idle == std::chrono::minutes{90});
    CHECK(config.broker.checkpoint_interval == std::chrono::milliseconds{250});
    CHECK(config.broker.topic_defaults.at("retention.ms") == "604800000");
    CHECK(config.broker.disk_reserve_bytes == std::int64_t{2} << 30);
    CHECK(config.broker.topic_defaults.at("segment.bytes") == "65536");
    CHECK(config.broker.topic_defaults.at("retention.bytes") == "-1");
    CHECK(entry(config, "connections.max.idle.ms").value == "5400000");
  }

  TEST_CASE(
      "log.retention.ms wins over .minutes and .minutes over .hours, whichever layer they are in") {
    const auto retention = [](const Layers& layers) {
      return made(layers).broker.topic_defaults.at("retention.ms");
    };
    CHECK(retention({file("log.retention.hours=2")}) == "7200000");
    CHECK(retention({file("log.retention.minutes=3\nlog.retention.hours=2")}) == "180000");
    CHECK(retention({file("log.retention.ms=4"), set({{"log.retention.minutes", "3"}})}) == "4");
    CHECK(retention({file("log.retention.ms=4"), set({{"log.retention.ms", ""}})}) == "604800000");
    CHECK(retention({file("log.retention.hours=-1")}) == "-1");
    CHECK(retention({file("log.retention.ms=-1")}) == "-1");
    CHECK(retention({file("log.retention.hours=2147483647")}) == "7730941129200000");
  }

  TEST_CASE("log.roll.ms wins over log.roll.hours") {
    CHECK(made({file("log.roll.hours=1")}).broker.topic_defaults.at("segment.ms") == "3600000");
    CHECK(made({file("log.roll.hours=1\nlog.roll.ms=5")}).broker.topic_defaults.at("segment.ms") ==
          "5");
  }

  TEST_CASE("a journal that does not hold two of its files is refused with both keys") {
    const auto said = refused({set({{"tarry.journal.max.bytes", "40MiB"}})});
    CHECK(contains(said, "tarry.journal.max.bytes=41943040"));
    CHECK(contains(said, "tarry.journal.file.bytes=33554432"));
  }

  TEST_CASE("a journal that is too small for its reserve is refused") {
    const auto said = refused({set({{"tarry.journal.max.bytes", "33554431"}})});
    CHECK(contains(said, "tarry.journal.max.bytes"));
    CHECK(contains(said, "33554432"));
    CHECK(made({set({{"tarry.journal.max.bytes", "32MiB"}, {"tarry.journal.file.bytes", "64KiB"}})})
              .broker.journal_max_bytes == 33'554'432);
  }

  TEST_CASE("Kafka's form of a listener is understood, and off switches the admin off") {
    const auto config = made({set({{"listeners", "PLAINTEXT://:9093"},
                                   {"advertised.listeners", "PLAINTEXT://broker:9094"},
                                   {"tarry.admin.listener", "off"}})});
    CHECK(config.listeners[0].listen == HostPort{"", 9093});
    CHECK(config.listeners[0].advertise == HostPort{"broker", 9094});
    CHECK_FALSE(config.admin.has_value());
  }

  TEST_CASE("each listener has its protocol, its address for clients and settings of its own") {
    const auto config =
        made({file("listeners=internal://:9092,EXTERNAL://:9093\n"
                   "advertised.listeners=EXTERNAL://broker.example:19093\n"
                   "listener.security.protocol.map=INTERNAL:PLAINTEXT,external:SASL_SSL\n"
                   "inter.broker.listener.name=INTERNAL\n"
                   "ssl.client.auth=required\nssl.keystore.location=/a.pem\n"
                   "listener.name.external.ssl.keystore.location=/b.pem\n")});
    REQUIRE(config.listeners.size() == 2);
    CHECK(config.listeners[0].name == "INTERNAL");
    CHECK(config.listeners[0].protocol == broker::SecurityProtocol::plaintext);
    CHECK_FALSE(config.listeners[0].advertise.has_value());
    CHECK(config.listeners[0].setting("ssl.keystore.location") == "/a.pem");
    CHECK(config.listeners[1].name == "EXTERNAL");
    CHECK(config.listeners[1].protocol == broker::SecurityProtocol::sasl_ssl);
    CHECK(config.listeners[1].advertise == HostPort{"broker.example", 19'093});
    CHECK(config.listeners[1].setting("ssl.keystore.location") == "/b.pem");
    // As in Kafka, a certificate is asked for on SASL_SSL by the listener's own setting alone.
    CHECK(config.listeners[0].setting("ssl.client.auth") == "required");
    CHECK(config.listeners[1].setting("ssl.client.auth").empty());
  }

  TEST_CASE("a client is asked who it is by SASL, or by a certificate where there is TLS") {
    const auto config = made({set({{"listeners", "PLAINTEXT://:1,SSL://:2,SASL_PLAINTEXT://:3"},
                                   {"ssl.client.auth", "required"},
                                   {"sasl.enabled.mechanisms", "SCRAM-SHA-512"},
                                   {"ssl.keystore.location", "/a.pem"},
                                   {"ssl.truststore.location", "/ca.pem"}})});
    REQUIRE(config.listeners.size() == 3);
    // Without TLS there is no certificate to ask for.
    CHECK_FALSE(authenticates_clients(config.listeners[0]));
    CHECK(authenticates_clients(config.listeners[1]));
    CHECK(authenticates_clients(config.listeners[2]));
    const auto open = made({set({{"listeners", "SSL://:2"}, {"ssl.client.auth", "requested"}})});
    CHECK_FALSE(authenticates_clients(open.listeners[0]));
  }

  TEST_CASE("a setting of logins may be given for a mechanism of a listener") {
    const auto config = made({set({
        {"listeners", "SASL_PLAINTEXT://:1"},
        {"connections.max.reauth.ms", "1h"},
        {"listener.name.sasl_plaintext.connections.max.reauth.ms", "30m"},
        {"listener.name.sasl_plaintext.plain.connections.max.reauth.ms", "10m"},
        {"listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.expected.issuer", "me"},
    })});
    const auto& listener = config.listeners.at(0);
    CHECK(listener.setting("connections.max.reauth.ms") == "1800000");
    CHECK(listener.setting("plain.connections.max.reauth.ms") == "600000");
    CHECK(listener.setting("oauthbearer.sasl.oauthbearer.expected.issuer") == "me");
    CHECK(contains(refused({set({{"connections.max.reauth.ms", "-1"}})}), "not negative"));
    CHECK(contains(refused({set({{"sasl.oauthbearer.jwks.endpoint.url", "http://x"}})}),
                   "file:///etc/tarry/jwks.json"));
    CHECK(contains(refused({set({{"listener.name.plaintext.plain.max.connections", "1"}})}),
                   "there is no such key"));
  }

  TEST_CASE(
      "a listener's mechanism by which nobody can log in is a warning that says what to give") {
    const auto warnings = [](std::initializer_list<std::pair<const char*, const char*>> words) {
      return idle_mechanisms(made({set(words)}).listeners.at(0));
    };
    const auto none = warnings({{"listeners", "SASL_PLAINTEXT://:1"}});
    REQUIRE(none.size() == 1);
    CHECK(contains(none[0], "sasl.enabled.mechanisms is GSSAPI"));
    const auto plain = warnings(
        {{"listeners", "SASL_PLAINTEXT://:1"}, {"sasl.enabled.mechanisms", "SCRAM-SHA-512,PLAIN"}});
    REQUIRE(plain.size() == 1);
    CHECK(contains(plain[0], "listener.name.sasl_plaintext.plain.sasl.jaas.config"));
    CHECK(warnings({{"listeners", "SASL_PLAINTEXT://:1"},
                    {"sasl.enabled.mechanisms", "PLAIN"},
                    {"listener.name.sasl_plaintext.plain.sasl.jaas.config",
                     "org.apache.kafka.common.security.plain.PlainLoginModule required "
                     "user_alice=\"secret\";"}})
              .empty());
    CHECK(warnings({{"listeners", "SASL_PLAINTEXT://:1"},
                    {"sasl.enabled.mechanisms", "GSSAPI,SCRAM-SHA-256"}})
              .empty());
    CHECK(warnings({{"listeners", "PLAINTEXT://:1"}}).empty());
  }

  TEST_CASE("keys of listeners that do not go together are refused by key and value") {
    CHECK(contains(refused({set({{"listeners", "EXTERNAL://:1"}})}), "listener.security.protocol"));
    CHECK(contains(refused({set({{"advertised.listeners", "OTHER://a:1"}})}),
                   "advertised.listeners=OTHER://a:1"));
    CHECK(contains(refused({set({{"inter.broker.listener.name", "OTHER"}})}),
                   "inter.broker.listener.name=OTHER"));
    CHECK(contains(refused({set({{"listener.name.other.ssl.client.auth", "none"}})}),
                   "listener.name.OTHER.ssl.client.auth"));
    CHECK(contains(refused({set({{"listener.name.plaintext.num.partitions", "1"}})}),
                   "there is no such key"));
    CHECK(contains(refused({set({{"listener.name.plaintext.ssl.client.auth", "1"}})}),
                   "expected required"));
  }

  TEST_CASE("--listen is refused beside listeners, unless that is the default") {
    const std::vector<Setting> flag{{"--listen", "listeners", "127.0.0.1:0"}};
    CHECK(contains(refused({set({{"listeners", "SSL://:9093"}}), flag}), "--listen 127.0.0.1:0"));
    CHECK(made({file("listeners=PLAINTEXT://localhost:9092"), flag}).listeners[0].listen.port == 0);
  }

  TEST_CASE("--advertise means the only listener, and of several says nothing") {
    CHECK(made({set({{"listeners", "SSL://:1"}, {"advertised.listeners", "a:2"}})})
              .listeners[0]
              .advertise == HostPort{"a", 2});
    CHECK(contains(
        refused({set({{"listeners", "SSL://:1,PLAINTEXT://:2"}, {"advertised.listeners", "a:2"}})}),
        "give one of SSL, PLAINTEXT"));
  }

  TEST_CASE("a secret is neither in an error nor in DescribeConfigs") {
    CHECK_FALSE(contains(refused({set({{"ssl.keystore.key", "hunter2"}})}), "hunter2"));
    const auto config = made({set({{"ssl.key.password", "hunter2"}})});
    CHECK(entry(config, "ssl.key.password").is_sensitive);
    CHECK_FALSE(entry(config, "ssl.keystore.location").is_sensitive);
  }

  TEST_CASE("DescribeConfigs shows a listener with its protocol, however it was given") {
    const auto config =
        made({set({{"listeners", "127.0.0.1:9093"}, {"advertised.listeners", "broker:9094"}})});
    CHECK(config.listeners[0].listen == HostPort{"127.0.0.1", 9093});
    CHECK(entry(config, "listeners").value == "PLAINTEXT://127.0.0.1:9093");
    CHECK(entry(config, "advertised.listeners").value == "PLAINTEXT://broker:9094");
    CHECK(entry(made({set({{"listeners", "PLAINTEXT://[::1]:1"}})}), "listeners").value ==
          "PLAINTEXT://[::1]:1");
    const auto plain = made({set({{"listeners", "localhost:9092"}})});
    CHECK(entry(plain, "listeners").is_default);
    CHECK(entry(plain, "advertised.listeners").value == "");
  }

  TEST_CASE("DescribeConfigs shows a value in one form, however it was written") {
    const auto config = made({set({{"num.partitions", "0003"},
                                   {"message.max.bytes", "0001000"},
                                   {"auto.create.topics.enable", "False"},
                                   {"log.preallocate", "FALSE"},
                                   {"log.cleaner.min.cleanable.ratio", "0.250"},
                                   {"tarry.data.dir", "007"}})});
    CHECK(entry(config, "num.partitions").value == "3");
    CHECK(entry(config, "message.max.bytes").value == "1000");
    CHECK(config.broker.topic_defaults.at("max.message.bytes") == "1000");
    CHECK(entry(config, "auto.create.topics.enable").value == "false");
    CHECK_FALSE(config.broker.auto_create_topics);
    CHECK(entry(config, "log.preallocate").is_default);
    CHECK(entry(config, "log.cleaner.min.cleanable.ratio").value == "0.25");
    CHECK(config.broker.topic_defaults.at("min.cleanable.dirty.ratio") == "0.25");
    CHECK(config.broker.data_directory == "007");
    CHECK(entry(config, "tarry.data.dir").value == "007");
  }

  TEST_CASE(
      "Kafka's keys without a meaning here are accepted, unless their value asks for a missing "
      "feature") {
    made({set({{"log.flush.interval.messages", "10000"},
               {"log.flush.interval.ms", "1s"},
               {"log.cleaner.delete.retention.ms", "1d"},
               {"log.cleaner.max.compaction.lag.ms", "1"},
               {"log.roll.jitter.ms", "0"},
               {"unclean.leader.election.enable", "true"}})});
    CHECK(contains(refused({set({{"log.preallocate", "true"}})}), "log.preallocate=true"));
    const auto said =
        refused({set({{"tarry.durability", "os"}, {"log.flush.interval.messages", "1"}})});
    CHECK(contains(said, "log.flush.interval.messages"));
    CHECK(contains(said, "tarry.durability=os"));
  }

  TEST_CASE("DescribeConfigs gets every key, with its value and whether it is the default") {
    const auto config = made({set({{"num.partitions", "3"}, {"fetch.max.bytes", "57671680"}})});
    for (const auto& key : config_keys()) {
      CAPTURE(key.name);
      CHECK(std::ranges::count(config.broker.entries, key.name, &broker::ConfigEntry::name) == 1);
    }
    // And the one that each listener can have for itself while the broker runs.
    CHECK(entry(config, "listener.name.plaintext.max.connection.creation.rate").is_default);
    CHECK(config.broker.entries.size() == config_keys().size() + 1);
    CHECK(entry(config, "num.partitions").value == "3");
    CHECK(entry(config, "num.partitions").fallback == "1");
    CHECK_FALSE(entry(config, "num.partitions").is_default);
    CHECK(entry(config, "fetch.max.bytes").is_default);
    CHECK(entry(config, "message.max.bytes").type == broker::ConfigType::integer);
    CHECK_FALSE(entry(config, "message.max.bytes").reason.empty());
  }
}

}  // namespace
}  // namespace tarry::server
