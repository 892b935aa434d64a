#pragma once

// BatchBuilder: makes a record batch.  Records are encoded straight into the buffer that becomes
// the batch, so an uncompressed batch is copied once: from where its bodies lie.
//
//   BatchBuilder builder({.codec = Codec::zstd});
//   builder.append(now, as_bytes("key"), as_bytes("value"), headers);
//   builder.append_body(due, body);    // RecordView::body of another batch, or from the store
//   builder.skip();                    // an offset that stays a hole
//   Buffer batch = builder.finish();
//
// A batch with holes is what compaction leaves in Kafka, and every client reads it; an empty one
// is read by some only, so finish() wants at least one record.
//
//     offsets   base   +1   +2   +3   +4     append, skip, append, skip, skip
//     record     a     -    b    -    -      lastOffsetDelta 4, recordCount 2
//
// Invariants: offset deltas go up; lastOffsetDelta counts all that was appended or skipped; the
// base timestamp is the first record's; lengths and checksum are right.  Used by one thread at a
// time, for one batch.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "records/compression.h"
#include "records/record_batch.h"

namespace tarry::records {

struct BatchOptions {
  Offset base_offset = 0;
  std::int32_t leader_epoch = -1;
  // A batch of a megabyte or more that would become larger by it is not compressed.
  Codec codec = Codec::none;
  // Set: the time of all records, and the timestamp type says so.
  std::optional<WallTime> log_append_time = {};
  ProducerId producer_id = -1;
  std::int16_t producer_epoch = -1;
  std::int32_t base_sequence = -1;
  bool transactional = false;
  bool control = false;
  std::size_t expected_size = 0;  // Memory to take at the start; growing past it copies.
};

class BatchBuilder {
 public:
  // The largest size of a record without its body: length, attributes and both deltas.
  static constexpr std::size_t max_record_overhead = 5 + 1 + 10 + 5;

  explicit BatchBuilder(const BatchOptions& options = {});

  void append(WallTime timestamp, std::optional<Bytes> key, std::optional<Bytes> value,
              std::span<const HeaderView> headers = {});
  // `body` is a record's body as RecordView has it, or as append_record_body() wrote it.
  void append_body(WallTime timestamp, Bytes body);
  // The same from a record's key_value and `header_count` encoded headers, for callers that change
  // the headers; `more_headers` are behind the others, and counted too.
  void append_parts(WallTime timestamp, Bytes key_value, std::int32_t header_count, Bytes headers,
                    Bytes more_headers = {});
  // The next `offsets` offsets have no record.
  void skip(std::int32_t offsets = 1);

  bool empty() const { return count_ == 0; }
  std::int32_t count() const { return count_; }                   // Records.
  std::int32_t next_offset_delta() const { return next_delta_; }  // The delta of the next append.
  // The size of the batch if it were finished now, before compression.
  std::size_t size() const { return used_; }

  // The batch; at least one record was appended.  The builder is used up.
  Buffer finish();

 private:
  // Makes room for a record whose body has `body_size` bytes and writes what stands before it;
  // returns where the body goes.
  std::uint8_t* begin_record(WallTime timestamp, std::size_t body_size);
  std::uint8_t* take_room(std::size_t count);

  const BatchOptions options_;
  Buffer buffer_;         // Header, and the records so far, uncompressed; then zeros.
  std::size_t used_ = 0;  // The bytes of it before the zeros.
  std::int32_t count_ = 0;
  std::int32_t next_delta_ = 0;
  WallTime base_timestamp_{};  // The first record's.
  WallTime max_timestamp_ = no_timestamp;
};

// The same batch with `records`, which are its own ones unpacked, in another codec.
Buffer repack(const BatchView& batch, Bytes records, Codec codec);

// A record's body, behind what `to` holds already.
void append_record_body(Buffer& to, std::optional<Bytes> key, std::optional<Bytes> value,
                        std::span<const HeaderView> headers = {});
// Its two parts: what RecordView calls key_value, and one header of those behind their number.
void append_key_value(Buffer& to, std::optional<Bytes> key, std::optional<Bytes> value);
void append_header(Buffer& to, std::string_view name, std::optional<Bytes> value);

// A zigzag varint of up to 64 bits.
void append_varint(Buffer& to, std::int64_t value);

}  // namespace tarry::records
