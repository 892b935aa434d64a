#pragma once

// DeadLetters: the bad records of one produced batch, as they go to the topic NAME.invalid
// (tarry.delay.invalid=dead-letter).
//
//   orders.invalid-3   key, value and headers as they came | x-error: why
//
// They go there before the rest of their batch is appended, so that none is lost:
//
//   first in the partition's queue, and the rest is accepted (delay/intake.h)
//        --next()--> NAME.invalid, until durable --> the rest is appended
//        '<---- more, a piece at a time -----'
//
// Invariant: a record is never dead-lettered while its batch may still be a duplicate, out of its
// producer's order, or refused by a quota or for another reason that the delay engine has.  A
// crash, or a failure, between the two leaves the records in NAME.invalid and the batch unanswered:
// its producer sends it again, and they are there twice.
//
// Pure; views the batch.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "records/batch_check.h"

namespace tarry::broker {

inline constexpr std::string_view dead_letter_suffix = ".invalid";
inline constexpr std::string_view dead_letter_error = "x-error";

// The topic for the bad records of `topic`; empty: it has none, because its own name is too long or
// is that of such a topic already.
std::string dead_letter_topic(std::string_view topic);

class DeadLetters {
 public:
  // The limit of one piece; a single record may be larger.
  static constexpr std::size_t max_bytes = 1 << 20;

  // `invalid` by their indexes.  Both outlive it.
  DeadLetters(const records::CheckedBatch& batch, std::span<const records::BadRecord> invalid)
      : batch_(&batch), invalid_(invalid), rest_(batch.records()) {}

  bool empty() const { return invalid_.empty(); }
  // The next records as a batch with offsets from 0.  Not for one that is empty.
  Buffer next();

 private:
  const records::CheckedBatch* batch_;
  std::span<const records::BadRecord> invalid_;  // The invalid records that are left.
  Bytes rest_;                                   // The records that were not looked at.
  std::int32_t index_ = 0;                       // The index of the first of these.
};

}  // namespace tarry::broker
