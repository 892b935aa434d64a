#pragma once

// dry_run(): the reason why a broker refuses a record, in the broker's own words.
//
// librdkafka 2.0.2 uses a version of Produce whose answers have error codes only.  So a record that
// was refused is sent once more, over a WireClient and in a version whose answers give reasons;
// with acks that no broker allows, so that it cannot be accepted now.  Tarry checks acks last and
// names the other error; Kafka checks them first, and then the reason stays unknown.
//
// Invariant: the broker writes nothing, and the call takes no longer than the client's timeout.
// One thread, the caller's.

#include <optional>
#include <string>

#include "cli/kafka/consumed_record.h"
#include "cli/kafka/wire_client.h"
#include "protocol/error_code.h"

namespace tarry::cli {

struct Refusal {
  protocol::ErrorCode code;
  std::string reason;  // As the broker sent it; may be empty.
};

// Nullopt: there was no answer.  INVALID_REQUIRED_ACKS: the broker found no other error.
std::optional<Refusal> dry_run(WireClient& leader, const std::string& topic,
                               const ConsumedRecord& record);

}  // namespace tarry::cli
