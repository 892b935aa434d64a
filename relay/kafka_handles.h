#pragma once

// Owners of librdkafka's objects, and the making of a client.
//
// Objects of a client (topics, queues, messages) are destroyed before it: declare them after it.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <librdkafka/rdkafka.h>

#include "base/free_by.h"
#include "base/result.h"

namespace tarry::relay {

template <typename T, auto destroy>
using KafkaOwned = std::unique_ptr<T, FreeBy<destroy>>;

using KafkaClient = KafkaOwned<rd_kafka_t, rd_kafka_destroy>;
using KafkaConf = KafkaOwned<rd_kafka_conf_t, rd_kafka_conf_destroy>;
using KafkaMessage = KafkaOwned<rd_kafka_message_t, rd_kafka_message_destroy>;
using KafkaError = KafkaOwned<rd_kafka_error_t, rd_kafka_error_destroy>;
using KafkaQueue = KafkaOwned<rd_kafka_queue_t, rd_kafka_queue_destroy>;
using KafkaEvent = KafkaOwned<rd_kafka_event_t, rd_kafka_event_destroy>;
using KafkaTopic = KafkaOwned<rd_kafka_topic_t, rd_kafka_topic_destroy>;
using KafkaPartitions =
    KafkaOwned<rd_kafka_topic_partition_list_t, rd_kafka_topic_partition_list_destroy>;
using KafkaMetadata = KafkaOwned<const struct rd_kafka_metadata, rd_kafka_metadata_destroy>;
using KafkaHeaders = KafkaOwned<rd_kafka_headers_t, rd_kafka_headers_destroy>;
using KafkaGroupMetadata =
    KafkaOwned<rd_kafka_consumer_group_metadata_t, rd_kafka_consumer_group_metadata_destroy>;

// A time as librdkafka takes it.  It reads -1 as "however long", and accepts no more than an hour
// for an admin request.
inline int in_ms(std::chrono::milliseconds time) {
  return static_cast<int>(std::clamp<std::int64_t>(time.count(), 0, 3'600'000));
}

// "key=value" each; a later one overrides an earlier one.  The error names key and value.
Result<> set_properties(rd_kafka_conf_t* conf, const std::vector<std::string>& properties);

// "NAME: text", in Kafka's words.
std::string error_text(rd_kafka_resp_err_t error, std::string_view what);
std::string error_text(const rd_kafka_error_t* error, std::string_view what);

// Makes a client of `properties`, with callbacks that `prepare` sets.
Result<KafkaClient> open_client(rd_kafka_type_t type, const std::vector<std::string>& properties,
                                const std::function<void(rd_kafka_conf_t*)>& prepare = {});

}  // namespace tarry::relay
