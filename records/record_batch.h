#pragma once

// A record batch of Kafka's format v2, read where it lies: nothing is copied, nothing allocated.
// The same bytes come from producers, lie in segments and go to consumers.
//
//      0  baseOffset           i64   \  outside the checksum: a broker sets these two
//      8  batchLength          i32    | without touching the rest
//     12  partitionLeaderEpoch i32   /
//     16  magic                i8    = 2
//     17  crc                  u32   CRC-32C of all that follows, from 21 to the end
//     21  attributes           i16   bits 0-2 codec, 3 LogAppendTime, 4 transactional,
//                                    5 control, 6 delete horizon
//     23  lastOffsetDelta      i32   a batch holds the offsets base .. base + this,
//     27  baseTimestamp        i64   though some may be holes
//     35  maxTimestamp         i64   under LogAppendTime the time of every record
//     43  producerId           i64   -1 none
//     51  producerEpoch        i16
//     53  baseSequence         i32
//     57  recordCount          i32
//     61  records                    one stream, compressed as a whole
//
// batchLength counts the bytes after itself: a batch is 12 + batchLength bytes long.  Numbers are
// big-endian.  A record (v: zigzag varint; in brackets what the views below call it):
//
//     v length of what follows | i8 attributes | v timestampDelta | v offsetDelta |
//     v keyLength (-1 null), key | v valueLength (-1 null), value |     [key_value]  \ [body]
//     v headerCount, { v nameLength, name | v valueLength (-1 null), value }*        /
//
// The body says nothing about the batch around it, so it can be carried into another one as it is.
//
// Invariants: a view does not outlive the bytes it views.  Every length is compared with the
// remaining bytes before it is used, and a RecordView exists only when all of its record, headers
// too, was found well formed.  A BatchView has its whole header and ends where batchLength says;
// batch_check judges the meaning of the header's fields.  Any thread.  Errors: Errc::corrupt for
// bytes that cannot be a batch or record, Errc::unsupported for another magic.
//
// Format: https://kafka.apache.org/documentation/#recordbatch

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/ids.h"
#include "base/result.h"
#include "records/compression.h"

namespace tarry::records {

// The positions of the header's fields.
namespace field {
inline constexpr std::size_t base_offset = 0;
inline constexpr std::size_t batch_length = 8;
inline constexpr std::size_t leader_epoch = 12;
inline constexpr std::size_t magic = 16;
inline constexpr std::size_t crc = 17;
inline constexpr std::size_t attributes = 21;
inline constexpr std::size_t last_offset_delta = 23;
inline constexpr std::size_t base_timestamp = 27;
inline constexpr std::size_t max_timestamp = 35;
inline constexpr std::size_t producer_id = 43;
inline constexpr std::size_t producer_epoch = 51;
inline constexpr std::size_t base_sequence = 53;
inline constexpr std::size_t record_count = 57;
inline constexpr std::size_t records = 61;
}  // namespace field

inline constexpr std::size_t batch_header_size = field::records;
inline constexpr std::size_t batch_length_end =
    field::leader_epoch;  // batchLength does not count the bytes before it.
inline constexpr std::int8_t current_magic = 2;

inline constexpr std::int16_t codec_mask = 0x07;
inline constexpr std::int16_t log_append_time_bit = 0x08;
inline constexpr std::int16_t transactional_bit = 0x10;
inline constexpr std::int16_t control_bit = 0x20;
inline constexpr std::int16_t delete_horizon_bit = 0x40;

// A timestamp a client need not give.
inline constexpr WallTime no_timestamp{std::chrono::milliseconds{-1}};

// One header of a record: name and value, null as a record's value may be.
struct HeaderView {
  std::string_view name;  // UTF-8 by agreement alone; nobody checks it, Kafka neither.
  std::optional<Bytes> value;
};

// The headers of a record, decoded as one walks over them.
class HeaderRange {
 public:
  class Iterator {
   public:
    using value_type = HeaderView;
    using reference = const HeaderView&;
    using pointer = const HeaderView*;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;

    Iterator() = default;
    Iterator(Bytes rest, std::int32_t left) : rest_(rest), left_(left) { decode(); }
    const HeaderView& operator*() const { return header_; }
    const HeaderView* operator->() const { return &header_; }
    Iterator& operator++() {
      --left_;
      decode();
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    // Compares iterators of one range: the number of remaining headers is the position.
    bool operator==(const Iterator& other) const { return left_ == other.left_; }

   private:
    void decode();  // The header at the front of rest_, which was checked before.

    Bytes rest_;
    std::int32_t left_ = 0;
    HeaderView header_;
  };

  HeaderRange() = default;
  // `encoded` are `count` headers that were found well formed.
  HeaderRange(Bytes encoded, std::int32_t count) : encoded_(encoded), count_(count) {}

  Iterator begin() const { return {encoded_, count_}; }
  Iterator end() const { return {}; }
  std::int32_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  Bytes encoded() const { return encoded_; }  // Without their number.

 private:
  Bytes encoded_;
  std::int32_t count_ = 0;
};

struct RecordView {
  std::int64_t timestamp_delta = 0;  // To the batch's base timestamp, ms; may be negative.
  std::int32_t offset_delta = 0;
  std::optional<Bytes> key;
  std::optional<Bytes> value;
  HeaderRange headers;
  Bytes body;       // From the key's length to the end of the record, as encoded.
  Bytes key_value;  // The front of body, up to the number of headers.
};

// Exactly one batch.
class BatchView {
 public:
  BatchView() = default;

  // `bytes` must be one whole batch with nothing behind it.
  static Result<BatchView> parse(Bytes bytes);

  Bytes bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }

  Offset base_offset() const { return get<std::int64_t>(field::base_offset); }
  std::int32_t batch_length() const { return get<std::int32_t>(field::batch_length); }
  std::int32_t leader_epoch() const { return get<std::int32_t>(field::leader_epoch); }
  std::int8_t magic() const { return get<std::int8_t>(field::magic); }
  std::uint32_t crc() const { return get<std::uint32_t>(field::crc); }
  std::int16_t attributes() const { return get<std::int16_t>(field::attributes); }
  std::int32_t last_offset_delta() const { return get<std::int32_t>(field::last_offset_delta); }
  WallTime base_timestamp() const { return from_ms(get<std::int64_t>(field::base_timestamp)); }
  WallTime max_timestamp() const { return from_ms(get<std::int64_t>(field::max_timestamp)); }
  ProducerId producer_id() const { return get<std::int64_t>(field::producer_id); }
  std::int16_t producer_epoch() const { return get<std::int16_t>(field::producer_epoch); }
  std::int32_t base_sequence() const { return get<std::int32_t>(field::base_sequence); }
  std::int32_t record_count() const { return get<std::int32_t>(field::record_count); }
  Bytes records() const { return bytes_.subspan(field::records); }  // Compressed, if codec() is.

  // Empty for the three numbers that no codec has.
  std::optional<Codec> codec() const { return codec_of(attributes() & codec_mask); }
  bool is_log_append_time() const { return (attributes() & log_append_time_bit) != 0; }
  bool is_transactional() const { return (attributes() & transactional_bit) != 0; }
  bool is_control() const { return (attributes() & control_bit) != 0; }

  // Sums of numbers from elsewhere wrap when they do not fit, as they do in every client.
  Offset last_offset() const { return wrapping_sum(base_offset(), last_offset_delta()); }
  Offset next_offset() const { return wrapping_sum(last_offset(), 1); }
  // The sequence number of the last record; they wrap from 2^31 - 1 to 0.  -1 without a producer.
  std::int32_t last_sequence() const {
    if (base_sequence() < 0) return -1;
    const std::uint32_t sum = static_cast<std::uint32_t>(base_sequence()) +
                              static_cast<std::uint32_t>(last_offset_delta());
    return static_cast<std::int32_t>(sum & 0x7fffffffu);
  }

  bool crc_matches() const { return crc32c(bytes_.subspan(field::attributes)) == crc(); }

  Offset offset_of(const RecordView& record) const {
    return wrapping_sum(base_offset(), record.offset_delta);
  }
  WallTime timestamp_of(const RecordView& record) const {
    if (is_log_append_time()) return max_timestamp();
    return from_ms(wrapping_sum(to_ms(base_timestamp()), record.timestamp_delta));
  }

 private:
  friend Result<BatchView> next_batch(Bytes blob);
  explicit BatchView(Bytes bytes) : bytes_(bytes) {}

  static std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  }

  template <typename T>
  T get(std::size_t at) const {
    return load_be<T>(bytes_.data() + at);
  }

  Bytes bytes_;
};

// Returns the length of the batch at the front of `blob`, from its header.  At least
// batch_header_size bytes must be there; the rest of the batch need not be.  So a reader can tell a
// torn batch (longer than the remaining bytes) from bytes that never were a batch (an error).
Result<std::size_t> batch_size(Bytes blob);

// The batch at the front of `blob`, which goes on behind it:
//
//   while (!blob.empty()) {
//     const auto batch = next_batch(blob);
//     if (!batch) return std::unexpected(batch.error());  // Torn, short, or no batch.
//     blob = blob.subspan(batch->size());
//   }
Result<BatchView> next_batch(Bytes blob);

// Takes the record at the front of `rest` off it.  Null when it is well formed, else what is wrong
// with it; `rest` and `record` are then undefined.
const char* take_record(Bytes& rest, RecordView& record);

// Reads all of `body` as a record with deltas of 0; pending records are stored as bodies.
Result<RecordView> parse_record_body(Bytes body);
// The same into a view of the caller's, whose deltas stay.  Null when it is well formed, else what
// is wrong with it; `record` is then undefined.
const char* read_record_body(Bytes body, RecordView& record);

// The error of record `index`, worded as every reader of records words it.
Error record_error(std::int32_t index, const char* what);

// Calls visit(const RecordView&) for each of `count` records in `records` (uncompressed), which
// must hold these and nothing else.  A visitor may return bool: false ends the walk, which is no
// error.  The records that it was shown before an error were well formed.
template <typename Visit>
Result<> for_each_record(Bytes records, std::int32_t count, Visit&& visit) {
  RecordView record;
  for (std::int32_t i = 0; i < count; ++i) {
    if (const char* wrong = take_record(records, record))
      return std::unexpected(record_error(i, wrong));
    if constexpr (std::is_same_v<std::invoke_result_t<Visit&, const RecordView&>, bool>) {
      if (!visit(std::as_const(record))) return {};
    } else {
      visit(std::as_const(record));
    }
  }
  if (!records.empty())
    return std::unexpected(record_error(count, "there are bytes after the last record"));
  return {};
}

// Changes to the header of a whole batch in memory of ours.  The first two are outside the
// checksum, the others compute it again.
using MutableBatch = std::span<std::uint8_t>;

void set_base_offset(MutableBatch batch, Offset offset);
void set_leader_epoch(MutableBatch batch, std::int32_t epoch);
void set_max_timestamp(MutableBatch batch, WallTime max_timestamp);
// From now on every record reads as having arrived at `now`.
void set_log_append_time(MutableBatch batch, WallTime now);
void update_crc(MutableBatch batch);

}  // namespace tarry::records
