#pragma once

// Owners of librdkafka's objects: each kind is destroyed by the function that librdkafka has for
// it.
//
// Objects of a client (topics, queues, events, messages) have to be destroyed before the client:
// declare them after the KafkaConnection.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>

#include <librdkafka/rdkafka.h>

#include "base/free_by.h"

namespace tarry::cli {

template <typename T, auto destroy>
using Owned = std::unique_ptr<T, FreeBy<destroy>>;

using ClientConfig = Owned<rd_kafka_conf_t, rd_kafka_conf_destroy>;
using TopicHandle = Owned<rd_kafka_topic_t, rd_kafka_topic_destroy>;
using Queue = Owned<rd_kafka_queue_t, rd_kafka_queue_destroy>;
using Event = Owned<rd_kafka_event_t, rd_kafka_event_destroy>;
using Message = Owned<rd_kafka_message_t, rd_kafka_message_destroy>;
using Headers = Owned<rd_kafka_headers_t, rd_kafka_headers_destroy>;
using KafkaError = Owned<rd_kafka_error_t, rd_kafka_error_destroy>;
using PartitionList = Owned<rd_kafka_topic_partition_list_t, rd_kafka_topic_partition_list_destroy>;
using Metadata = Owned<const struct rd_kafka_metadata, rd_kafka_metadata_destroy>;
using GroupList = Owned<const struct rd_kafka_group_list, rd_kafka_group_list_destroy>;

using AdminOptions = Owned<rd_kafka_AdminOptions_t, rd_kafka_AdminOptions_destroy>;
using NewTopic = Owned<rd_kafka_NewTopic_t, rd_kafka_NewTopic_destroy>;
using NewPartitions = Owned<rd_kafka_NewPartitions_t, rd_kafka_NewPartitions_destroy>;
using DeleteTopic = Owned<rd_kafka_DeleteTopic_t, rd_kafka_DeleteTopic_destroy>;
using ConfigResource = Owned<rd_kafka_ConfigResource_t, rd_kafka_ConfigResource_destroy>;
using DeleteGroup = Owned<rd_kafka_DeleteGroup_t, rd_kafka_DeleteGroup_destroy>;
using ListGroupOffsets =
    Owned<rd_kafka_ListConsumerGroupOffsets_t, rd_kafka_ListConsumerGroupOffsets_destroy>;
using AlterGroupOffsets =
    Owned<rd_kafka_AlterConsumerGroupOffsets_t, rd_kafka_AlterConsumerGroupOffsets_destroy>;

// A time as librdkafka takes it.  It accepts no more than an hour for an admin request.
inline int in_ms(std::chrono::milliseconds time) {
  return static_cast<int>(std::clamp<std::int64_t>(time.count(), 1, 3'600'000));
}

}  // namespace tarry::cli
