#pragma once

// BrokerConfig: the settings that the broker itself uses, read by server/config.  Names in the
// properties file stand beside each.
//
// Each shard has its own, which changes between two turns of its thread when a client changes a
// setting (dynamic_settings.h); so what is read before a co_await may have changed behind it.  The
// BrokerIdentity in it is constant.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "broker/security/security_image.h"
#include "broker/settings/dynamic_settings.h"
#include "broker/settings/topic_config.h"

namespace tarry::broker {

// One key of the configuration as DescribeConfigs shows it.
struct ConfigEntry {
  std::string name;
  std::string value;     // From the file, the flags or the default; a dynamic one wins over it.
  std::string fallback;  // The built-in default.
  ConfigType type = ConfigType::string;
  bool is_default = true;
  bool is_sensitive = false;
  bool is_dynamic = false;  // It can be changed while the broker runs.
  std::string reason;
};

struct BrokerIdentity {
  std::int32_t node_id = 1;                   // node.id
  std::string cluster_id;                     // In meta.properties.
  std::string start_id;                       // Made at each start: copies share the cluster id.
  std::string advertised_host = "127.0.0.1";  // advertised.listeners
  std::int32_t advertised_port = 9092;
  std::string data_directory;  // tarry.data.dir, absolute
  std::string log_directory;   // log.dirs, absolute
  std::string version;
};

struct BrokerConfig : BrokerIdentity {
  std::int32_t num_partitions = 1;                               // num.partitions
  bool auto_create_topics = true;                                // auto.create.topics.enable
  bool delete_topics = true;                                     // delete.topic.enable
  std::int32_t fetch_max_bytes = 57'671'680;                     // fetch.max.bytes
  std::chrono::milliseconds retention_check{300'000};            // log.retention.check.interval.ms
  std::chrono::milliseconds producer_id_expiration{86'400'000};  // producer.id.expiration.ms

  std::int32_t offset_metadata_bytes = 4096;                 // offset.metadata.max.bytes
  std::chrono::milliseconds offsets_retention{604'800'000};  // offsets.retention.minutes
  std::chrono::milliseconds offsets_retention_check{
      600'000};                                             // offsets.retention.check.interval.ms
  std::chrono::milliseconds offsets_commit_timeout{5'000};  // offsets.commit.timeout.ms
  std::int64_t group_offsets_bytes = 67'108'864;            // tarry.group.offsets.bytes, a shard

  std::chrono::milliseconds group_initial_rebalance_delay{
      3000};                                                  // group.initial.rebalance.delay.ms
  std::chrono::milliseconds group_min_session_timeout{6000};  // group.min.session.timeout.ms
  std::chrono::milliseconds group_max_session_timeout{1'800'000};  // group.max.session.timeout.ms
  std::int32_t group_max_size = 10'000;                            // group.max.size
  std::int64_t group_max_bytes = 16'777'216;                       // tarry.group.max.bytes
  std::int32_t max_groups = 100'000;                               // tarry.max.groups

  std::int64_t memory_bytes = 536'870'912;                // tarry.memory.bytes, all shards
  std::int32_t max_partitions = 200'000;                  // tarry.max.partitions
  std::int32_t metrics_max_series = 1000;                 // tarry.metrics.max.series
  std::int64_t decompressed_max_bytes = 134'217'728;      // tarry.decompressed.max.bytes
  std::int64_t tail_bytes = 67'108'864;                   // tarry.log.tail.bytes, a shard
  std::int64_t journal_max_bytes = 268'435'456;           // tarry.journal.max.bytes, a shard
  std::int64_t journal_file_bytes = 33'554'432;           // tarry.journal.file.bytes
  std::chrono::milliseconds checkpoint_interval{60'000};  // tarry.checkpoint.interval.ms
  std::int64_t disk_reserve_bytes = 268'435'456;          // tarry.disk.reserve.bytes
  std::int64_t delay_memory_bytes = 268'435'456;          // tarry.delay.memory.bytes, all shards
  std::chrono::milliseconds delay_remember{3'600'000};    // tarry.delay.remember.ms

  AuthorizerTerms authorizer;                         // authorizer.class.name and its like
  std::chrono::milliseconds failed_login_delay{100};  // connection.failed.authentication.delay.ms

  std::int32_t quota_windows = 11;        // quota.window.num
  std::int32_t quota_window_seconds = 1;  // quota.window.size.seconds

  storage::Configs topic_defaults;        // Under the topics' names.
  storage::Configs given_topic_defaults;  // The same without `dynamic`.
  std::vector<ConfigEntry> entries;       // Every key, for DescribeConfigs.
  DynamicSettings dynamic;                // Already in all of the above but `entries`.
};

}  // namespace tarry::broker
