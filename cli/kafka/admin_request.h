#pragma once

// ask_admin(): one request of librdkafka's admin API and its answer, on the calling thread.

#include <functional>

#include <librdkafka/rdkafka.h>

#include "base/result.h"
#include "cli/kafka/connection.h"
#include "cli/kafka/handles.h"

namespace tarry::cli {

// `send` passes the options and the queue on to the function of librdkafka that sends a request of
// this kind.  An error that the answer has as a whole is an error here; those of single topics or
// groups are in the event.
Result<KafkaEvent> ask_admin(
    KafkaConnection& connection, rd_kafka_admin_op_t kind,
    const std::function<void(rd_kafka_AdminOptions_t* options, rd_kafka_queue_t* queue)>& send);

}  // namespace tarry::cli
