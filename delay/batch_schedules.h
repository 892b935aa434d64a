#pragma once

// BatchSchedules: what the records of one produced batch ask for.
//
// It is read once, where the batch is checked (a large one on the pool), and travels with the
// batch to Engine::accept(), which only has to carry it out.
//
// Pure; any thread.  The ids view the batch's records.

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>
#include <vector>

#include "base/clock.h"
#include "delay/schedule.h"
#include "delay/sink.h"
#include "records/batch_check.h"

namespace tarry::delay {

// A batch that schedules anything may have so many records: more than fit into one of the default
// largest size unless they are compressed, and ten times what librdkafka sends at once.  Each one
// costs its shard 2 us when it is accepted and 3 when it is durable, and both happen in one step,
// so this bounds the harm that a client can mean to do to some tenths of a second.
inline constexpr std::int32_t max_scheduled_records = 100'000;

// Why a batch was not accepted.  Then nothing has changed.
struct ScheduleErrors {
  enum class Kind {
    invalid,   // The producer's mistake: Kafka's INVALID_RECORD (87).
    too_many,  // More than max_scheduled_records: MESSAGE_TOO_LARGE (10), some clients split it.
    busy,      // There are no sequence numbers at hand.  The producer may try again.
    failed,    // The pending store cannot be read.
  };
  Kind kind = Kind::invalid;
  std::string message;                      // Says what is wrong with the batch.
  std::vector<records::BadRecord> records;  // The bad ones, at most max_bad_records_told.
};

struct BatchSchedules {
  // One for each record of the batch, in its order; empty when none of them asks for anything.
  std::vector<Schedule> of_records;
  std::size_t sequences = 0;  // How many sequence numbers it takes to accept them.

  bool any() const { return !of_records.empty(); }
};

// Reads what the records of `batch` ask for.  Delays count from `arrived`; what is due by
// `believed` is due on arrival (schedule.h).
std::expected<BatchSchedules, ScheduleErrors> read_schedules(const records::CheckedBatch& batch,
                                                             const TopicDelay& topic,
                                                             WallTime arrived, WallTime believed);

}  // namespace tarry::delay
