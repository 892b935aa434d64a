#pragma once

// Our codes for librdkafka's errors, and texts that show them and a broker's own words.

#include <string>
#include <string_view>

#include <librdkafka/rdkafka.h>

#include "base/result.h"

namespace tarry::cli {

// not_found, exists, in_use (POLICY_VIOLATION, or a group that has members), too_large, io (no
// answer) or invalid (everything else).
Errc errc_of(rd_kafka_resp_err_t error);

// The connection failed; librdkafka connects again by itself.
bool is_connection_error(rd_kafka_resp_err_t error);

// "INVALID_RECORD: Broker failed to validate record": Kafka's name of the error and its reason,
// which is `text`, or librdkafka's own when there is none.
std::string error_text(rd_kafka_resp_err_t error, const char* text = nullptr);

// librdkafka's text about a connection that failed, without the address before it and the state
// behind it.
std::string connection_error_text(std::string_view reason);

// Text from a broker, without control characters.  The broker may have escaped parts of it
// already, so printable(), which escapes the backslash too, would be wrong.
std::string broker_text(std::string_view text);

// A topic's or group's name in an error.
std::string name_text(std::string_view name);

}  // namespace tarry::cli
