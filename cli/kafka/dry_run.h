#pragma once

// What a broker has against a record, in its own words.
//
// librdkafka 2.0.2 asks in a version of Produce whose answers hold error codes alone.  So a record
// that was refused is sent once more, over a connection of our own and in a version whose answers
// say why; with acks that no broker allows, so that it cannot be accepted now.  Tarry checks acks
// last and names what else is wrong; Kafka checks them first, and then the reason stays unknown.
//
// What always holds: nothing is written by it, and it takes no longer than `patience`.

#include <chrono>
#include <optional>
#include <string>

#include "base/ids.h"
#include "cli/kafka/consumed_record.h"
#include "protocol/error_code.h"

namespace tarry::cli {

struct Refusal {
  protocol::ErrorCode code;
  std::string reason;  // As it came; may be empty.
};

// None: there was no answer.  With INVALID_REQUIRED_ACKS the broker has nothing else against it.
std::optional<Refusal> dry_run(const std::string& host, int port, const std::string& topic,
                               const ConsumedRecord& record, std::chrono::milliseconds patience);

}  // namespace tarry::cli
