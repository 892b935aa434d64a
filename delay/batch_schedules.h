#pragma once

// BatchSchedules: the schedules that the records of one produced batch ask for.
//
// They are read once, where the batch is checked (a large one on the pool), and travel with the
// batch to Engine::accept(), which only carries them out.
//
// Pure; any thread.  The ids view the batch's records.

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "delay/header_slips.h"
#include "delay/schedule.h"
#include "delay/sink.h"
#include "records/batch_check.h"

namespace tarry::delay {

// The limit of records in a batch that schedules any: more than fit into a batch of the default
// largest size unless they are compressed, and ten times what librdkafka sends at once.  Each one
// costs its shard some microseconds when it is durable; other durable changes of the shard wait
// behind a batch, so a malicious client can hold these up for some tenths of a second only.
inline constexpr std::int32_t max_scheduled_records = 100'000;

// The reason why a batch was not accepted.  Nothing has changed then.
struct ScheduleErrors {
  enum class Kind {
    invalid,   // The producer's mistake: Kafka's INVALID_RECORD (87).
    too_many,  // More than max_scheduled_records, or than there may ever be pending:
               // MESSAGE_TOO_LARGE (10), some clients split it.
    busy,      // Not at the moment: `reason` says for want of what.  The producer may try again.
    failed,    // The pending store cannot be read.
    denied,    // Its producer may not do this: TOPIC_AUTHORIZATION_FAILED (29).
  };
  Kind kind = Kind::invalid;
  std::string message;                      // Says what is wrong with the batch.
  std::vector<records::BadRecord> records;  // The bad ones, at most max_bad_records_told.
  std::string_view reason = {};             // A label: of the first of these (delay/schedule.h).
};

struct BatchSchedules {
  // One for each record of the batch, in its order; empty when none of them asks for anything.
  std::vector<Schedule> of_records;
  std::size_t sequences = 0;  // Sequence numbers that accepting them takes.
  std::size_t delayed = 0;    // Records that are.
  std::size_t ids = 0;        // Records for which Schedule::takes_id().
  std::size_t cancels = 0;    // Records that only cancel.
  // The records of kind `invalid`, in the batch's order, and what is wrong with them.
  std::vector<records::BadRecord> invalid;
  // The slips in all records, if any name was found in the batch; also when nothing is scheduled.
  HeaderSlips slips;

  bool any() const { return !of_records.empty(); }
  // The ids that those records take, in the batch's order.
  std::vector<std::string_view> ids_taken() const;
};

// Names that are one letter off from ours are counted, too.  One that does not even begin with "x-"
// (x_delay) is noticed when the batch's first record has it, or any of its records has a name that
// does: a producer that slips does so in every record, and nobody else pays for the search.
//
// How a bad record affects its batch.
enum class InvalidHeaders {
  refuse,    // The batch is refused.
  set_aside  // The record becomes one of BatchSchedules::invalid, and the rest is accepted.
};

// Reads the schedules of the records of `batch`.  Delays count from `arrived`; a record that is
// due by `believed` is due on arrival (schedule.h).
std::expected<BatchSchedules, ScheduleErrors> read_schedules(
    const records::CheckedBatch& batch, const TopicDelay& topic, WallTime arrived,
    WallTime believed, InvalidHeaders invalid = InvalidHeaders::refuse);

}  // namespace tarry::delay
