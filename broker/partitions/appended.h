#pragma once

// Appended: what became of a produced batch, from its partition to the Produce handler.
//
//   Partition::append() --> [ queue, checks, journal ] --> done(Appended)
//                               --> wait_for is durable --> answer
//
// An answer may be made only when the journal has wait_for durably: the offset alone is no promise.
// A refused batch has an error, and nothing of it was taken, whatever it held.
//
// A value: made on the partition's shard, it goes with the request to the shard of its connection.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "protocol/error_code.h"
#include "records/batch_check.h"
#include "storage/journal.h"

namespace tarry::broker {

// The reason of a batch with bad records whose producer may not write them to NAME.invalid.
inline constexpr std::string_view may_not_dead_letter = "may_not_dead_letter";

struct Appended {
  protocol::ErrorCode error = protocol::ErrorCode::none;
  std::string message;  // The text of an error; may be empty.
  // The reason of a refusal by the partition: a label of /metrics.  A literal.
  std::string_view reason;
  std::vector<records::BadRecord> bad_records;
  // The first bad record says more than "3 records are not valid".
  std::string refusal_text() const {
    if (bad_records.empty()) return message;
    return "record " + std::to_string(bad_records[0].index) + ": " + bad_records[0].message;
  }

  Offset base_offset = -1;            // -n: all n records are delayed.
  std::int64_t log_append_time = -1;  // Set for topics with LogAppendTime.
  Offset log_start = -1;
  // Answered when the journal has this: nothing to wait for when empty.
  std::optional<Lsn> wait_for;
  storage::Durability durability = storage::Durability::fsync;
};

}  // namespace tarry::broker
