#include "server/config_keys.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/time_text.h"
#include "broker/settings/topic_config.h"
#include "server/listener_keys.h"
#include "server/security_keys.h"

namespace tarry::server {
namespace {

using broker::BrokerConfig;
using broker::ConfigType;

constexpr std::string_view retention_reason =
    "How long records are kept after their append; -1: for ever. log.retention.ms takes "
    "precedence over .minutes, and .minutes over .hours.";
constexpr std::string_view roll_reason =
    "How old a segment may grow before the next one begins. log.roll.ms takes precedence over "
    ".hours.";

// The table: name, default, unit, type, reason, and the check that puts a value into the Config.
// The rows of one subject stand together; config_keys() sorts them all.

std::vector<ConfigKey> process_keys() {
  return {
      {"node.id", "1", "", ConfigType::integer,
       "The broker's id in its cluster of one; the data directory keeps it, and it cannot be "
       "changed later.",
       number(1, 1, [](Config&, std::int64_t) {})},
      {"tarry.log.format", "text", "", ConfigType::string,
       "The format of log lines: text, or json: one object per line with time, level, component "
       "and message.",
       set_log_format_key},
      {"tarry.log.level", "info", "", ConfigType::string,
       "The lowest level of log lines that the broker writes to stderr.", set_log_level_key},
      {"tarry.metrics.max.series", "1000", "", ConfigType::integer,
       "The largest number of topics, or partitions of groups, that one metric in /metrics lists, "
       "in the order of their names; the others are summed under the label \"(other)\".",
       broker_number(&BrokerConfig::metrics_max_series, 0, 1'000'000)},
      {"tarry.shards", "0", "", ConfigType::integer,
       "The number of threads that serve clients; 0: one for each core. It may be changed at any "
       "restart.",
       number(0, 256,
              [](Config& config, std::int64_t value) {
                config.shards = static_cast<std::uint32_t>(value);
              })},
      {"tarry.shutdown.timeout.ms", "30000", "ms", ConfigType::long_,
       "How long a stopping broker waits for the last requests; then it ends without them and logs "
       "it. Everything acknowledged is in the journal.",
       number(1, max_time_ms,
              [](Config& config, std::int64_t value) {
                config.shutdown_timeout = std::chrono::milliseconds{value};
              })},
  };
}

std::vector<ConfigKey> connection_keys() {
  return {
      {"max.connections", "100000", "", ConfigType::integer,
       "The largest number of open connections; the broker closes new ones above it. The limit of "
       "open files, minus a reserve for the broker's own files, may lower it: a log line at the "
       "start says so, and /status has the number.",
       number(1, max_int,
              [](Config& config, std::int64_t value) {
                config.max_connections = static_cast<std::size_t>(value);
              })},
      {"max.connections.per.ip", "2147483647", "", ConfigType::integer,
       "The largest number of open connections from one address; the broker closes new ones above "
       "it.",
       number(0, max_int,
              [](Config& config, std::int64_t value) {
                config.max_connections_per_ip = static_cast<std::size_t>(value);
              })},
      {"connections.max.idle.ms", "600000", "ms", ConfigType::long_,
       "The broker closes a connection that sends no request for this long.",
       session_number(&SessionLimits::idle, 1, max_time_ms)},
      {"tarry.admin.allowed.hosts", "", "", ConfigType::list,
       "Additional host names under which clients may reach the admin, for instance through an SSH "
       "tunnel, a container's port or a proxy: localhost allows any port, tarry.example.com:8443 "
       "only this one. * allows every name, even one that a hostile page has pointed at this "
       "machine (DNS rebinding).",
       set_admin_allowed_hosts},
      {"tarry.admin.open.reads", "false", "", ConfigType::boolean,
       "Whether anyone who can connect may read the admin without a token, even if the admin "
       "listens beyond loopback. "
       "Changes still need the token, and the names that clients use must be in "
       "tarry.admin.allowed.hosts.",
       set_admin_open_reads},
      {"tarry.admin.loopback.reads", "open", "", ConfigType::string,
       "Whether every user of this machine may read an admin that listens on loopback alone "
       "(open), pending payloads included, or only those who have a token (token).",
       set_admin_loopback_reads},
      {"tarry.admin.listener", "127.0.0.1:8080", "", ConfigType::string,
       "The address of the admin, the broker's HTTP interface for operators, or off. Beyond "
       "loopback, reading needs the token too.",
       set_admin_listener},
  };
}

std::vector<ConfigKey> request_keys() {
  return {
      {"fetch.max.bytes", "57671680", "bytes", ConfigType::integer,
       "The limit of bytes in one Fetch response, whatever the client asks for.",
       broker_number(&BrokerConfig::fetch_max_bytes, 1024, max_int)},
      {"quota.window.num", "11", "", ConfigType::integer,
       "The number of time windows over which the rate of a client with a quota is measured.",
       broker_number(&BrokerConfig::quota_windows, 1, 100)},
      {"quota.window.size.seconds", "1", "seconds", ConfigType::integer,
       "The length of each window of quota.window.num; also the longest time for which a client "
       "that exceeds its quota of request time is throttled.",
       broker_number(&BrokerConfig::quota_window_seconds, 1, 3600)},
      {"socket.request.max.bytes", "104857600", "bytes", ConfigType::integer,
       "The largest request; the broker closes a connection that announces a larger one.",
       session_number(&SessionLimits::frame_bytes, 1, max_int)},
      {"tarry.connection.max.bytes", "134217728", "bytes", ConfigType::long_,
       "The limit of bytes in flight on one connection, requests and responses together. At the "
       "limit the broker neither reads from it nor begins a Fetch until responses have been sent.",
       session_number(&SessionLimits::bytes_in_flight, 1, max_long)},
      {"tarry.connection.max.requests", "1000", "", ConfigType::integer,
       "The limit of requests in flight on one connection. At the limit the broker stops reading "
       "from it until some are answered.",
       session_number(&SessionLimits::requests_in_flight, 1, 1'000'000)},
      {"tarry.connection.write.stall.ms", "60000", "ms", ConfigType::long_,
       "The broker disconnects a client that reads none of its responses for this long.",
       session_number(&SessionLimits::write_stall, 1, max_time_ms)},
      {"tarry.memory.bytes", "536870912", "bytes", ConfigType::long_,
       "The limit of memory that clients can make the broker hold, on all connections together: "
       "requests, their decoded form, responses, and the metadata of group members. Above it "
       "requests wait, then are refused, and the broker closes the connections that hold the most.",
       broker_number(&BrokerConfig::memory_bytes, std::int64_t{16} << 20, std::int64_t{1} << 46)},
  };
}

std::vector<ConfigKey> topic_keys() {
  return {
      {"auto.create.topics.enable", "true", "", ConfigType::boolean,
       "Whether the broker creates a topic when a client asks for one that does not exist.",
       broker_flag(&BrokerConfig::auto_create_topics)},
      {"default.replication.factor", "1", "", ConfigType::integer,
       "Always 1: there is one broker, so there is one replica.",
       number(1, 1, [](Config&, std::int64_t) {})},
      {"delete.topic.enable", "true", "", ConfigType::boolean, "Whether topics may be deleted.",
       broker_flag(&BrokerConfig::delete_topics)},
      {"num.partitions", "1", "", ConfigType::integer,
       "The number of partitions of a topic that is created without a number.",
       broker_number(&BrokerConfig::num_partitions, 1, 100'000)},
      {"tarry.max.partitions", "200000", "", ConfigType::integer,
       "The largest number of partitions of all topics together.",
       broker_number(&BrokerConfig::max_partitions, 1, 10'000'000)},
  };
}

std::vector<ConfigKey> producer_keys() {
  return {
      {"producer.id.expiration.ms", "86400000", "ms", ConfigType::integer,
       "How long the broker remembers an idempotent producer that sends nothing, to recognise its "
       "retries.",
       broker_time(&BrokerConfig::producer_id_expiration, 1)},
      {"tarry.decompressed.max.bytes", "134217728", "bytes", ConfigType::long_,
       "The largest size to which a batch may decompress; a few compressed kilobytes can claim "
       "gigabytes. All decompressed batches of one shard together take at most twice as much.",
       broker_number(&BrokerConfig::decompressed_max_bytes, 1024, std::int64_t{1} << 31)},
      {"tarry.delay.header.aliases", "", "", ConfigType::list,
       "Additional names for the headers that schedule a record, so that producers of another "
       "scheduler need not change; the values have the original's form. An original may have "
       "several aliases.",
       set_header_aliases_key},
      {"tarry.delay.memory.bytes", "268435456", "bytes", ConfigType::long_,
       "The memory for pending records, of all shards together; each shard has an equal share, but "
       "at least 4 MiB. Records that do not fit are on disk until their due time is near.",
       broker_number(&BrokerConfig::delay_memory_bytes, std::int64_t{16} << 20,
                     std::int64_t{1} << 40)},
      {"tarry.delay.remember.ms", "3600000", "ms", ConfigType::long_,
       "How long the broker remembers that a schedule id was delivered, to answer a cancel that "
       "comes too late.",
       broker_time(&BrokerConfig::delay_remember, 0)},
  };
}

std::vector<ConfigKey> group_keys() {
  return {
      {"group.initial.rebalance.delay.ms", "3000", "ms", ConfigType::integer,
       "How long an empty group waits for more members after the first one has joined; it waits "
       "again while members keep joining.",
       broker_time(&BrokerConfig::group_initial_rebalance_delay, 0)},
      {"group.max.session.timeout.ms", "1800000", "ms", ConfigType::integer,
       "The longest session timeout that a consumer may ask for.",
       broker_time(&BrokerConfig::group_max_session_timeout, 1)},
      {"group.max.size", "10000", "", ConfigType::integer,
       "The largest number of members of a group; the broker refuses members above it.",
       broker_number(&BrokerConfig::group_max_size, 1, 1'000'000)},
      {"group.min.session.timeout.ms", "6000", "ms", ConfigType::integer,
       "The shortest session timeout that a consumer may ask for.",
       broker_time(&BrokerConfig::group_min_session_timeout, 1)},
      {"tarry.group.max.bytes", "16777216", "bytes", ConfigType::long_,
       "The largest size of the subscriptions of a group's members together, and likewise of their "
       "assignments. Each is also limited to a quarter of tarry.journal.max.bytes.",
       broker_number(&BrokerConfig::group_max_bytes, 65'536, 33'554'432)},
      {"tarry.max.groups", "100000", "", ConfigType::integer,
       "The largest number of consumer groups. No user (or address, without logins) may have more "
       "groups than it leaves free for others.",
       broker_number(&BrokerConfig::max_groups, 1, 10'000'000)},
  };
}

std::vector<ConfigKey> offset_keys() {
  return {
      {"offset.metadata.max.bytes", "4096", "bytes", ConfigType::integer,
       "The longest metadata text that a consumer may commit with an offset.",
       broker_number(&BrokerConfig::offset_metadata_bytes, 0, 32'767)},
      {"offsets.commit.timeout.ms", "5000", "ms", ConfigType::integer,
       "How long a commit may take to become durable; after that the client is told to try again.",
       broker_time(&BrokerConfig::offsets_commit_timeout, 1)},
      {"offsets.retention.check.interval.ms", "600000", "ms", ConfigType::long_,
       "How often the broker looks for committed offsets that have expired; offsets of one group "
       "that expire within this time of each other are removed together.",
       broker_time(&BrokerConfig::offsets_retention_check, 1)},
      {"offsets.retention.minutes", "10080", "minutes", ConfigType::integer,
       "How long the offsets of a group are kept after its last member has left, or after each "
       "commit if its consumers never join.",
       number(1, max_int,
              [](Config& config, std::int64_t value) {
                config.broker.offsets_retention = std::chrono::minutes{value};
              })},
      {"tarry.group.offsets.bytes", "67108864", "bytes", ConfigType::long_,
       "The memory that committed offsets of all groups may take on one shard; the broker refuses "
       "commits above it, and new groups when offsets and group names exceed it. No user (or "
       "address, without logins) may use more than it leaves free for others.",
       broker_number(&BrokerConfig::group_offsets_bytes, 4096, std::int64_t{1} << 40)},
  };
}

std::vector<ConfigKey> log_keys() {
  return {
      {"log.retention.check.interval.ms", "300000", "ms", ConfigType::long_,
       "How often retention looks for segments to delete.",
       broker_time(&BrokerConfig::retention_check, 1)},
      {"log.retention.hours", "168", "hours", ConfigType::integer, retention_reason,
       optional_time(&Config::Times::retention_hours, -1, max_int)},
      {"log.retention.minutes", "", "minutes", ConfigType::integer, retention_reason,
       optional_time(&Config::Times::retention_minutes, -1, max_int)},
      {"log.retention.ms", "", "ms", ConfigType::long_, retention_reason,
       optional_time(&Config::Times::retention_ms, -1, max_long)},
      {"log.roll.hours", "168", "hours", ConfigType::integer, roll_reason,
       optional_time(&Config::Times::roll_hours, 1, max_int)},
      {"log.roll.ms", "", "ms", ConfigType::long_, roll_reason,
       optional_time(&Config::Times::roll_ms, 1, max_long)},
      {"tarry.log.tail.bytes", "67108864", "bytes", ConfigType::long_,
       "The memory of each shard for the newest records of its logs; consumers at the end of a log "
       "read from it.",
       broker_number(&BrokerConfig::tail_bytes, 65'536, std::int64_t{1} << 40)},
  };
}

std::vector<ConfigKey> storage_keys() {
  return {
      {"log.dirs", "", "", ConfigType::string,
       "The directory of the segments. Empty: logs/ in tarry.data.dir.", set_log_directory},
      {"tarry.data.dir", "./tarry-data", "", ConfigType::string,
       "The data directory; one broker uses it at a time.", set_data_directory},
      {"tarry.checkpoint.interval.ms", "60000", "ms", ConfigType::long_,
       "The longest time between a change and the checkpoint that covers it; a shorter time leaves "
       "less for recovery to read.",
       broker_time(&BrokerConfig::checkpoint_interval, 1)},
      {"tarry.disk.reserve.bytes", "268435456", "bytes", ConfigType::long_,
       "The free space that the broker keeps for deliveries and checkpoints. With less free it "
       "accepts no new records.",
       broker_number(&BrokerConfig::disk_reserve_bytes, 0, max_long)},
      {"tarry.journal.file.bytes", "33554432", "bytes", ConfigType::long_,
       "The size of one journal file; at least two of them must fit into tarry.journal.max.bytes.",
       set_journal_file_bytes},
      {"tarry.journal.max.bytes", "268435456", "bytes", ConfigType::long_,
       "The largest size of a shard's journal; recovery reads at most this much for each shard.",
       broker_number(&BrokerConfig::journal_max_bytes, 33'554'432, std::int64_t{1} << 40)},
  };
}

// The keys that clients can change while the broker runs, besides the defaults of topics.  The
// others are read once: what is made from them is there for the life of the process.
constexpr std::array<std::string_view, 34> dynamic_keys = {
    "auto.create.topics.enable",
    "connections.max.idle.ms",
    "delete.topic.enable",
    "fetch.max.bytes",
    "group.initial.rebalance.delay.ms",
    "group.max.session.timeout.ms",
    "group.max.size",
    "group.min.session.timeout.ms",
    "log.retention.check.interval.ms",
    "log.retention.ms",
    "log.roll.ms",
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "num.partitions",
    "offset.metadata.max.bytes",
    "offsets.commit.timeout.ms",
    "offsets.retention.check.interval.ms",
    "offsets.retention.minutes",
    "producer.id.expiration.ms",
    "socket.request.max.bytes",
    "tarry.connection.max.bytes",
    "tarry.connection.max.requests",
    "tarry.connection.write.stall.ms",
    "tarry.disk.reserve.bytes",
    "tarry.group.max.bytes",
    "tarry.group.offsets.bytes",
    "tarry.log.format",
    "tarry.log.level",
    "tarry.log.tail.bytes",
    "tarry.max.groups",
    "tarry.max.partitions",
    "tarry.metrics.max.series",
    "tarry.shutdown.timeout.ms",
};

std::string_view unit_of(std::string_view name) {
  if (name.ends_with(".ms")) return "ms";
  if (name.ends_with(".bytes")) return "bytes";
  return "";
}

// The broker's defaults for what a topic may override: the topic's own checks hold for them.
void add_topic_defaults(std::vector<ConfigKey>& keys) {
  for (const auto& key : broker::topic_config_keys()) {
    if (key.broker_name.empty() ||
        std::ranges::any_of(keys, [&](const auto& own) { return own.name == key.broker_name; })) {
      continue;  // It has no default, or stands in the table because Kafka gives it several names.
    }
    keys.push_back({key.broker_name, key.fallback, unit_of(key.broker_name), key.type, key.reason,
                    [&key](Config& config, std::string_view value) -> Result<> {
                      broker::TopicConfig checked;
                      auto set = key.set(checked, value);
                      if (!set) return std::unexpected(set.error());
                      config.broker.topic_defaults[std::string(key.name)] = std::move(*set);
                      return {};
                    },
                    true});
  }
}

std::vector<ConfigKey> make_keys() {
  std::vector<ConfigKey> keys;
  for (const auto table :
       {process_keys, connection_keys, listener_keys, tls_keys, admin_tls_keys, security_keys,
        request_keys, topic_keys, producer_keys, group_keys, offset_keys, log_keys, storage_keys})
    std::ranges::move(table(), std::back_inserter(keys));
  for (auto& key : keys)
    // The rows of TLS have marked themselves.
    key.is_dynamic |= std::ranges::find(dynamic_keys, key.name) != dynamic_keys.end();
  add_topic_defaults(keys);
  // False sorts before true, so Kafka's names come first.
  std::ranges::sort(keys, [](const auto& a, const auto& b) {
    return std::pair(a.name.starts_with("tarry."), a.name) <
           std::pair(b.name.starts_with("tarry."), b.name);
  });
  return keys;
}

}  // namespace

std::span<const ConfigKey> config_keys() {
  static const std::vector<ConfigKey> keys = make_keys();
  return keys;
}

const ConfigKey* find_config_key(std::string_view name) {
  for (const auto& key : config_keys()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

const ConfigKey* find_setting_key(std::string_view name) {
  const auto split = split_listener_key(name);
  if (!split) return find_config_key(name);
  const auto* key = find_config_key(split->second);
  // The first part may be a mechanism: plain.sasl.jaas.config.
  if (key == nullptr) {
    const auto dot = split->second.find('.');
    const auto rest = split->second.substr(dot == std::string_view::npos ? 0 : dot + 1);
    if (rest.starts_with("sasl.") || rest == "connections.max.reauth.ms")
      key = find_config_key(rest);
  }
  return key != nullptr && key->is_per_listener ? key : nullptr;
}

}  // namespace tarry::server
