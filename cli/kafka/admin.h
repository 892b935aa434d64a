#pragma once

// KafkaAdmin: topics, consumer groups and their offsets, the configs of topics and brokers, over
// the Kafka protocol.
//
// Invariant: nothing waits longer for a broker than KafkaSettings::timeout; errors name the
// topic, group or partition and carry Kafka's name of what is wrong.  Codes: not_found, exists,
// in_use (POLICY_VIOLATION, or a group that has members), too_large, invalid, io (no answer).
//
// It belongs to one command.  One thread; each call waits for its answer.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "cli/kafka/config_entry.h"
#include "cli/kafka/connection.h"
#include "cli/kafka/group_info.h"
#include "cli/kafka/offsets.h"
#include "cli/kafka/settings.h"
#include "cli/kafka/topic_info.h"

namespace tarry::cli {

class KafkaAdmin {
 public:
  static Result<KafkaAdmin> open(const KafkaSettings& settings);

  // Identifies this broker, or the cluster that it belongs to.
  Result<std::string> cluster_id();
  // Identifies the run of this Tarry broker; empty: it has no such id.
  Result<std::string> start_id(std::int32_t broker);

  Result<std::vector<TopicInfo>> topics();  // By name.
  Result<TopicInfo> topic(const std::string& name);
  Result<std::vector<ConfigEntry>> configs(const std::string& topic);  // By name.

  // Without a number of partitions, or of replicas, the broker's default holds.
  Result<> create(const std::string& topic, std::optional<std::int32_t> partitions,
                  const ConfigList& configs, std::optional<std::int32_t> replicas = {});
  // Sets these, unsets those and keeps the topic's others, which are read and written again.
  Result<> alter(const std::string& topic, const ConfigList& set,
                 const std::vector<std::string>& unset = {});
  // The topic has `total` of them then.
  Result<> add_partitions(const std::string& topic, std::int32_t total);
  Result<> remove(const std::string& topic);

  // An offset in each partition.  `when` is log_start, log_end, or epoch ms for the first record
  // from then on (the end of a partition that has no record that late).
  Result<PartitionOffsets> offsets(const std::string& topic,
                                   const std::vector<PartitionIndex>& partitions,
                                   std::int64_t when);

  // The ids of the brokers, ascending.
  Result<std::vector<std::int32_t>> brokers();
  Result<std::vector<ConfigEntry>> broker_configs(std::int32_t broker);  // By name.
  // Sets these and unsets those, and keeps what else was set while it runs: read and written again.
  Result<> alter_broker(std::int32_t broker, const ConfigList& set,
                        const std::vector<std::string>& unset);

  Result<std::vector<GroupListing>> groups();  // By name.
  // The state is "Dead" when there is no such group.
  Result<GroupInfo> group(const std::string& name);
  // By topic and partition.
  Result<std::vector<CommittedOffset>> committed(const std::string& group);
  // in_use when the group has members.
  Result<> commit(const std::string& group, const std::string& topic,
                  const PartitionOffsets& offsets);
  Result<> remove_group(const std::string& name);

 private:
  explicit KafkaAdmin(KafkaConnectionPtr connection) : connection_(std::move(connection)) {}

  KafkaConnectionPtr connection_;  // Null only after a move.
};

}  // namespace tarry::cli
