#pragma once

// Questions about topics that admin, producer and consumers all ask.
//
// Each waits for an answer, at most for the connection's timeout, on the calling thread.  Errors
// name the topic, or the partition.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <librdkafka/rdkafka.h>

#include "base/result.h"
#include "cli/kafka/connection.h"
#include "cli/kafka/handles.h"
#include "cli/kafka/offsets.h"
#include "cli/kafka/topic_info.h"

namespace tarry::cli {

// About all topics, or about `topic` alone, which may have an error of its own.
Result<KafkaMetadata> fetch_metadata(KafkaConnection& connection, rd_kafka_topic_t* topic,
                                     std::chrono::milliseconds timeout);

// `name` as the broker knows it.  Asks again for at most `patience` while the topic, or its leader,
// does not exist yet: a broker that creates topics by itself takes a moment.
Result<TopicInfo> find_topic(KafkaConnection& connection, const std::string& name,
                             rd_kafka_topic_t* topic, std::chrono::milliseconds patience);

TopicInfo topic_info(const rd_kafka_metadata_topic& topic);

// `when`: epoch ms, log_start or log_end.  An offset of -1: no record is that late.
Result<PartitionOffsets> find_offsets(KafkaConnection& connection, const std::string& topic,
                                      const std::vector<PartitionIndex>& partitions,
                                      std::int64_t when);

// Fails when the broker has taken one of the partitions out of service.  librdkafka asks for their
// records again and again, and no call of its consumers tells so.  A broker that does not answer is
// no error here.
Result<> check_in_service(KafkaConnection& connection, const std::string& topic,
                          const std::vector<PartitionIndex>& partitions);

}  // namespace tarry::cli
