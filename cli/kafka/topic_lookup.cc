#include "cli/kafka/topic_lookup.h"

#include <algorithm>

#include <fmt/core.h>

#include "cli/kafka/error_text.h"

namespace tarry::cli {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

// A consumer that prints records must not stand still for longer when a broker is slow.
constexpr milliseconds service_check_patience = 1s;

}  // namespace

Result<KafkaMetadata> fetch_metadata(KafkaConnection& connection, rd_kafka_topic_t* topic,
                                     milliseconds timeout) {
  const struct rd_kafka_metadata* metadata = nullptr;
  // 1: all topics of the cluster; 0: the one that is named.
  const auto error = rd_kafka_metadata(connection.client(), topic == nullptr ? 1 : 0, topic,
                                       &metadata, in_ms(timeout));
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR) return connection.error_of("metadata", error);
  return KafkaMetadata(metadata);
}

Result<TopicInfo> find_topic(KafkaConnection& connection, const std::string& name,
                             rd_kafka_topic_t* topic, milliseconds patience) {
  const auto until = steady_clock::now() + std::min(patience, connection.timeout());
  while (true) {
    const auto found = fetch_metadata(connection, topic, connection.timeout());
    if (!found) return std::unexpected(found.error());
    if ((*found)->topic_cnt != 1)
      return fail(Errc::io, fmt::format("{}: the broker's answer does not name it", name));
    const auto& one = (*found)->topics[0];
    if (one.err == RD_KAFKA_RESP_ERR_NO_ERROR) return topic_info(one);
    // A topic that a producer asks for is made meanwhile, and then waits for its leader.
    const bool may_come = one.err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART ||
                          one.err == RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE;
    if (!may_come || steady_clock::now() >= until)
      return connection.error_of(name_text(name), one.err);
    connection.poll(100ms);
  }
}

TopicInfo topic_info(const rd_kafka_metadata_topic& topic) {
  TopicInfo info;
  info.name = topic.topic;
  for (int i = 0; i < topic.partition_cnt; ++i) {
    const auto& partition = topic.partitions[i];
    PartitionInfo& one = info.partitions.emplace_back();
    one.partition = partition.id;
    one.leader = partition.leader;
    one.replicas.assign(partition.replicas, partition.replicas + partition.replica_cnt);
    one.in_sync.assign(partition.isrs, partition.isrs + partition.isr_cnt);
  }
  // Brokers answer in an order of their own.
  std::ranges::sort(info.partitions, {}, &PartitionInfo::partition);
  return info;
}

Result<PartitionOffsets> find_offsets(KafkaConnection& connection, const std::string& topic,
                                      const std::vector<PartitionIndex>& partitions,
                                      std::int64_t when) {
  const KafkaPartitions list(
      rd_kafka_topic_partition_list_new(static_cast<int>(partitions.size())));
  for (const auto partition : partitions)
    // The field takes the time, or -1 and -2 for end and start, and gives the offset back.
    rd_kafka_topic_partition_list_add(list.get(), topic.c_str(), partition)->offset = when;
  const auto error =
      rd_kafka_offsets_for_times(connection.client(), list.get(), in_ms(connection.timeout()));
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR) return connection.error_of(name_text(topic), error);
  PartitionOffsets offsets;
  for (int i = 0; i < list->cnt; ++i) {
    const auto& one = list->elems[i];
    // One partition that fails fails all: half of the offsets would pass for the whole.
    if (one.err != RD_KAFKA_RESP_ERR_NO_ERROR) {
      return connection.error_of(fmt::format("{} partition {}", name_text(topic), one.partition),
                                 one.err);
    }
    offsets.emplace_back(one.partition, one.offset);
  }
  return offsets;
}

Result<> check_in_service(KafkaConnection& connection, const std::string& topic,
                          const std::vector<PartitionIndex>& partitions) {
  if (partitions.empty()) return {};
  const KafkaPartitions list(
      rd_kafka_topic_partition_list_new(static_cast<int>(partitions.size())));
  for (const auto partition : partitions)
    rd_kafka_topic_partition_list_add(list.get(), topic.c_str(), partition)->offset = log_end;
  auto error =
      rd_kafka_offsets_for_times(connection.client(), list.get(),
                                 in_ms(std::min(connection.timeout(), service_check_patience)));
  for (int i = 0; i < list->cnt; ++i)
    if (list->elems[i].err == RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR) error = list->elems[i].err;
  if (error != RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR) return {};
  return connection.error_of(name_text(topic), error);
}

}  // namespace tarry::cli
