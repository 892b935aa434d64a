#include "cli/kafka/error_text.h"

#include <fmt/core.h>

#include "base/log.h"
#include "base/log_thread.h"

namespace tarry::cli {

Errc errc_of(rd_kafka_resp_err_t error) {
  switch (error) {
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
    case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
      return Errc::not_found;
    case RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS:
      return Errc::exists;
    case RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND:
      return Errc::not_found;
    case RD_KAFKA_RESP_ERR_POLICY_VIOLATION:
    case RD_KAFKA_RESP_ERR_NON_EMPTY_GROUP:
    // The answer to a commit from outside a group that has members.
    case RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID:
      return Errc::in_use;
    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
      return Errc::too_large;
    case RD_KAFKA_RESP_ERR__TRANSPORT:
    case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
    case RD_KAFKA_RESP_ERR__TIMED_OUT:
    case RD_KAFKA_RESP_ERR__MSG_TIMED_OUT:
    case RD_KAFKA_RESP_ERR__RESOLVE:
      return Errc::io;
    default:
      return Errc::invalid;
  }
}

bool is_connection_error(rd_kafka_resp_err_t error) {
  return error == RD_KAFKA_RESP_ERR__TRANSPORT || error == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN ||
         error == RD_KAFKA_RESP_ERR__RESOLVE || error == RD_KAFKA_RESP_ERR__TIMED_OUT;
}

std::string error_text(rd_kafka_resp_err_t error, const char* text) {
  const std::string name = rd_kafka_err2name(error);
  std::string reason = text != nullptr && *text != '\0' ? text : rd_kafka_err2str(error);
  for (const std::string_view prefix : {"Broker: ", "Local: "})
    if (reason.starts_with(prefix)) reason.erase(0, prefix.size());
  // librdkafka's own errors begin with an underscore, which tells a user nothing.
  return fmt::format("{}: {}", name.starts_with('_') ? name.substr(1) : name, broker_text(reason));
}

// "127.0.0.1:9092/bootstrap: Connect to ipv4#127.0.0.1:9092 failed: Connection refused (after 0ms
// in state CONNECT)" -> "Connect to ipv4#127.0.0.1:9092 failed: Connection refused"
std::string connection_error_text(std::string_view reason) {
  // The number is "HTTP", the beginning of an answer, where Kafka has the size of one.
  if (reason.contains("Invalid response size 1213486160"))
    return "it speaks HTTP: is it the admin's port? -b takes Kafka's, --admin takes the admin's";
  const auto colon = reason.find(": ");
  if (colon != reason.npos) reason.remove_prefix(colon + 2);
  const auto bracket = reason.find(" (after ");
  if (bracket != reason.npos) reason = reason.substr(0, bracket);
  return printable(reason, 500);
}

// A broker may answer anything, of any length, and the text goes to a terminal.
std::string broker_text(std::string_view text) {
  return escape_control_characters(text.substr(0, 1000));
}

std::string name_text(std::string_view name) {
  return printable(name, 249);  // Kafka's longest name of a topic.
}

}  // namespace tarry::cli
