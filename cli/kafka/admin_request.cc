#include "cli/kafka/admin_request.h"

#include <array>
#include <chrono>

namespace tarry::cli {

using namespace std::chrono_literals;

Result<KafkaEvent> ask_admin(
    KafkaConnection& connection, rd_kafka_admin_op_t kind,
    const std::function<void(rd_kafka_AdminOptions_t*, rd_kafka_queue_t*)>& send) {
  const AdminOptions options(rd_kafka_AdminOptions_new(connection.client(), kind));
  const int timeout_ms = in_ms(connection.timeout());
  std::array<char, 512> wrong{};
  const auto set = [&](auto set_timeout) {
    return set_timeout(options.get(), timeout_ms, wrong.data(), wrong.size()) ==
           RD_KAFKA_RESP_ERR_NO_ERROR;
  };
  // Only these are carried out by the broker while the request waits.
  const bool broker_waits =
      kind == RD_KAFKA_ADMIN_OP_CREATETOPICS || kind == RD_KAFKA_ADMIN_OP_DELETETOPICS;
  if (!set(rd_kafka_AdminOptions_set_request_timeout) ||
      (broker_waits && !set(rd_kafka_AdminOptions_set_operation_timeout))) {
    return fail(Errc::invalid, wrong.data());
  }
  // The answer has a queue of its own, so this can be called within a callback of librdkafka.
  const KafkaQueue queue(rd_kafka_queue_new(connection.client()));
  send(options.get(), queue.get());
  // A second longer than the request, whose own error says more than a missing answer.
  KafkaEvent event(rd_kafka_queue_poll(queue.get(), in_ms(connection.timeout() + 1s)));
  if (!event) return connection.timeout_error();
  if (const auto error = rd_kafka_event_error(event.get()); error != RD_KAFKA_RESP_ERR_NO_ERROR)
    return connection.error_of("the broker", error, rd_kafka_event_error_string(event.get()));
  return event;
}

}  // namespace tarry::cli
