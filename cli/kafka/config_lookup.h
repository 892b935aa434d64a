#pragma once

// The configs of a topic, which admin and producer both ask for.
//
// The call waits for an answer, at most for the connection's timeout, on the calling thread.  It
// may be made within a callback of librdkafka: the answer has a queue of its own.

#include <cstddef>
#include <string>
#include <vector>

#include <librdkafka/rdkafka.h>

#include "base/result.h"
#include "cli/kafka/connection.h"
#include "cli/kafka/topic_info.h"

namespace tarry::cli {

// By name.  Errors name the topic.
Result<std::vector<ConfigEntry>> find_configs(KafkaConnection& connection,
                                              const std::string& topic);

// The error in the answer to a request about one topic's configs.
Result<> config_result(KafkaConnection& connection, const std::string& topic,
                       const rd_kafka_ConfigResource_t** results, std::size_t count);

}  // namespace tarry::cli
