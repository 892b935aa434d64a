#pragma once

// The configs of a topic, which admin and producer both ask for, and those of a broker.
//
// The call waits for an answer, at most for the connection's timeout, on the calling thread.  It
// may be made within a callback of librdkafka: the answer has a queue of its own.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <librdkafka/rdkafka.h>

#include "base/result.h"
#include "cli/kafka/config_entry.h"
#include "cli/kafka/connection.h"

namespace tarry::cli {

// By name.  Errors name the topic.
Result<std::vector<ConfigEntry>> find_configs(KafkaConnection& connection,
                                              const std::string& topic);

// By name.  A source is "broker" (set while it runs), "cluster" (the same, for all brokers),
// "start" (given at the start, by the file, --set or a flag) or "default".
Result<std::vector<ConfigEntry>> find_broker_configs(KafkaConnection& connection,
                                                     std::int32_t broker);

// Among `configs`, the name that was probably meant by one that is not there; empty: none is
// similar.
std::string nearest_config(const std::vector<ConfigEntry>& configs, const std::string& word);

// The name of a broker in errors: "broker 1".
std::string broker_name(const std::string& id);

// The error in the answer to a request about the configs of one topic or broker; `whose` is its
// name for the reader.
Result<> config_result(KafkaConnection& connection, const std::string& whose,
                       const rd_kafka_ConfigResource_t** results, std::size_t count);

}  // namespace tarry::cli
