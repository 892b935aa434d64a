#pragma once

// find_group(): a consumer group, its members and what each of them reads.
//
// librdkafka 2.0.2 ends the process when a member's assignment is not as it expects it, and any
// client may send such an assignment.  So a group is asked for twice: first in a form that
// librdkafka does not decode, and which our own parser reads; then, when librdkafka can read all
// assignments, in the form that tells more about each member.
//
// Waits at most for the connection's timeout, for each question, on the calling thread.

#include <string>

#include "base/result.h"
#include "cli/kafka/connection.h"
#include "cli/kafka/group_info.h"

namespace tarry::cli {

// The state is "Dead" when there is no such group.  A member whose assignment cannot be read is
// shown without partitions.
Result<GroupInfo> find_group(KafkaConnection& connection, const std::string& name);

}  // namespace tarry::cli
