#pragma once

// The checks of a producer's batch before a broker takes it.  Clients' batches are not canonical
// (leader epochs of 0 or -1, sequences without a producer, a maximum timestamp of -1: all seen on
// the wire and fine), but what is in the log afterwards has to be, since every consumer believes
// it.
//
//   bytes -> one v2 batch? -> size -> checksum -> codec -> header's numbers -> unpacked -> each
//   record
//
// Invariants of a CheckedBatch with `opened`: its records are well formed to the last byte, as many
// as the header says, with the offset deltas 0 .. n-1, and each may stand in this topic.  No later
// code checks or decompresses them again.
//
// Pure: no clock, no state; any thread.  Memory: the unpacked records, within
// max_uncompressed_bytes, and a bounded list of bad records.

#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "records/compression.h"
#include "records/record_batch.h"

namespace tarry::records {

// The reasons to refuse a batch; the numbers are Kafka's error codes.
enum class Refusal : std::int16_t {
  corrupt = 2,  // Retried by clients: the bytes were damaged on their way.
  message_too_large = 10,
  invalid_timestamp = 32,
  unsupported_format = 43,  // Magic 0 or 1, or one that we do not know.
  unsupported_compression = 76,
  invalid_record = 87,
};

struct BadRecord {
  std::int32_t index;  // In the batch, from 0.
  std::string message;
};

struct BatchError {
  Refusal reason;
  std::string message;             // For the client's log: names what is wrong and its value.
  std::vector<BadRecord> records;  // Empty when it is the batch itself; the first 100 otherwise.

  std::int16_t kafka_code() const { return static_cast<std::int16_t>(reason); }
};

inline constexpr std::size_t max_bad_records_told = 100;

struct CheckLimits {
  std::size_t max_message_bytes = 1'048'588;  // The whole batch as it came: max.message.bytes.
  // The most bytes that its records may unpack to.  Text packs 10:1 or 20:1, a bomb 32 000:1.
  std::size_t max_uncompressed_bytes = std::size_t{64} << 20;
  bool zstd_allowed = true;     // Produce requests before version 7 must not carry it.
  bool open_compressed = true;  // False: trust the records of compressed batches unread.
  bool key_required = false;    // Compacted topics: a record without key is a bad record.
  // Bounds of record timestamps, both allowed; no_timestamp always is.  Not for LogAppendTime
  // topics.
  std::optional<WallTime> earliest = {};
  std::optional<WallTime> latest = {};
};

struct CheckedBatch {
  BatchView batch;  // A view of the checked bytes.
  Codec codec = Codec::none;
  bool opened = true;        // False: compressed, and open_compressed was off; records() is empty.
  bool has_headers = false;  // In any record.  True when not opened: it may be.
  std::int32_t count = 0;    // Records; the last offset delta is count - 1.
  WallTime max_timestamp{};  // The records' largest; the header's own when not opened.
  // The header says another one: set_max_timestamp() before the batch goes to a log.
  bool needs_max_timestamp_fix = false;
  Buffer unpacked;  // The records of a compressed batch.

  // The records section, uncompressed.
  Bytes records() const {
    if (codec == Codec::none) return batch.records();
    return unpacked;
  }
};

// `records` is the field of that name of one partition in a Produce request.
std::expected<CheckedBatch, BatchError> check_produced(Bytes records, const CheckLimits& limits);

}  // namespace tarry::records
