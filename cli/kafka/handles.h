#pragma once

// Owners of librdkafka's objects: each kind is destroyed by the function that librdkafka has for
// it.  The relay has most of them; those that only the commands need are here.
//
// Objects of a client (topics, queues, events, messages) have to be destroyed before the client:
// declare them after the KafkaConnection.

#include <librdkafka/rdkafka.h>

#include "relay/kafka_handles.h"

namespace tarry::cli {

using relay::in_ms;
using relay::KafkaConf;
using relay::KafkaError;
using relay::KafkaEvent;
using relay::KafkaHeaders;
using relay::KafkaMessage;
using relay::KafkaMetadata;
using relay::KafkaPartitions;
using relay::KafkaQueue;
using relay::KafkaTopic;

template <typename T, auto destroy>
using Owned = relay::KafkaOwned<T, destroy>;

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

}  // namespace tarry::cli
