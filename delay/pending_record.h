#pragma once

// The stored form of a pending record: the part of a producer's record that
// storage::PendingAdded::record holds.
//
//      0  version             u8    = 1, or 2 with a recurrence, in the lower 4 bits; the upper
//                                   ones: the codec of the producer's batch
//      1  original timestamp  i64   the producer's, ms; big-endian
//      9  recurrence                of version 2 only: size u16, then as in recurrence.h
//         body                      as in Kafka's record from the key's length on: key, value,
//                                   headers, without those that scheduled it
//
// The batch around a record is not kept: on delivery it gets another one.  The headers that it gets
// then (x-scheduled-for, x-schedule-handle) are not kept either; both follow from its key.

#include <array>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "delay/recurrence.h"
#include "delay/sink.h"
#include "records/batch_builder.h"
#include "records/record_batch.h"
#include "storage/pending.h"

namespace tarry::delay {

using storage::PendingKey;

// A view of a stored pending record.
struct PendingRecordBody {
  WallTime original;           // The producer's timestamp.
  records::RecordView record;  // Key, value and headers; its deltas mean nothing.
  Bytes recurrence;            // Recurrence::parse() reads it; empty: it is delivered once.
  records::Codec codec = records::Codec::none;  // The codec of the producer's batch.

  // Errc::corrupt for malformed bytes, Errc::unsupported for an unknown version.
  static Result<PendingRecordBody> parse(Bytes bytes);
  // The same without a copy of the view, for one that is new.
  Result<> read(Bytes bytes);
};

// A record's headers without those that scheduled it.
struct PlainHeaders {
  std::int32_t count = 0;
  Buffer encoded;  // Without their number.
};
PlainHeaders plain_headers(const records::RecordView& record);
// The same in memory that was used before.
void plain_headers(const records::RecordView& record, PlainHeaders& plain);

// Appends `record` with `headers` to `to`, in the format above.  `recurrence` may be null.
void append_pending_body(Buffer& to, WallTime original, const Recurrence* recurrence,
                         const records::RecordView& record, const PlainHeaders& headers,
                         records::Codec codec = records::Codec::none);

// The stored form of the record in `bytes`, which has a recurrence, with another one.
Buffer with_recurrence(Bytes bytes, const Recurrence& recurrence);

// The timestamp of a delivered record.
inline WallTime delivered_time(DeliveredTimestamp which, WallTime due, WallTime original,
                               WallTime now) {
  if (which == DeliveredTimestamp::due) return due;
  return which == DeliveredTimestamp::original ? original : now;
}

// The largest size of a delivered record in its batch, without its stored body.
inline constexpr std::size_t delivered_overhead =
    records::BatchBuilder::max_record_overhead + 2 * 64;  // Two headers, handles of 42 bytes.

// The two headers that each delivered record gets: x-scheduled-for, and x-schedule-handle, which
// tells the key that the record had first.  Records that are due together have the same text up to
// the sequence number, so that stays from one to the next.
class DeliveredHeaders {
 public:
  static constexpr std::int32_t count = 2;

  DeliveredHeaders() = default;
  DeliveredHeaders(const DeliveredHeaders&) = delete;
  DeliveredHeaders& operator=(const DeliveredHeaders&) = delete;

  // Encoded, without their number; until the next call.
  Bytes of(WallTime due, const PendingKey& first);

 private:
  void begin(WallTime due, WallTime first_due);

  WallTime due_{}, first_due_{};
  std::array<char, 2 * 64> text_{};
  char* handle_ = nullptr;    // In text_, behind its size; null at first.
  char* sequence_ = nullptr;  // Where the text of the sequence number begins.
};

// Adds to `builder` the record that a consumer gets: key, value and `headers`, then `ours`.
inline void append_delivered(records::BatchBuilder& builder, WallTime timestamp, Bytes key_value,
                             std::int32_t header_count, Bytes headers, Bytes ours) {
  builder.append_parts(timestamp, key_value, header_count + DeliveredHeaders::count, headers, ours);
}

}  // namespace tarry::delay
