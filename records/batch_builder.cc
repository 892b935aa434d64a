#include "records/batch_builder.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/assert.h"

namespace tarry::records {
namespace {

// A body that is longer cannot stand in any batch: batchLength has 31 bits.
constexpr std::size_t max_batch_bytes = std::numeric_limits<std::int32_t>::max();

// Small negative numbers become small positive ones, which take few bytes.
std::uint64_t zigzag(std::int64_t value) {
  return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}

std::size_t varint_size(std::int64_t value) {
  // Seven bits to a byte; 0 takes one byte too.
  return (static_cast<std::size_t>(std::bit_width(zigzag(value) | 1)) + 6) / 7;
}

std::uint8_t* put_varint(std::uint8_t* to, std::int64_t value) {
  std::uint64_t raw = zigzag(value);
  for (; raw >= 0x80; raw >>= 7) *to++ = static_cast<std::uint8_t>(raw | 0x80);
  *to++ = static_cast<std::uint8_t>(raw);
  return to;
}

std::uint8_t* put(std::uint8_t* to, Bytes bytes) {
  if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
  return to + bytes.size();
}

std::int64_t length_of(Bytes bytes) {
  TARRY_ASSERT(bytes.size() <= max_batch_bytes, "a key, a value and a header fit into a batch");
  return static_cast<std::int64_t>(bytes.size());
}
std::int64_t length_of(const std::optional<Bytes>& bytes) {
  return bytes ? length_of(*bytes) : -1;
}

std::size_t size_of(const std::optional<Bytes>& bytes) {
  return varint_size(length_of(bytes)) + (bytes ? bytes->size() : 0);
}
std::uint8_t* put(std::uint8_t* to, const std::optional<Bytes>& bytes) {
  to = put_varint(to, length_of(bytes));
  return bytes ? put(to, *bytes) : to;
}

std::size_t body_size(const std::optional<Bytes>& key, const std::optional<Bytes>& value,
                      std::span<const HeaderView> headers) {
  std::size_t size =
      size_of(key) + size_of(value) + varint_size(static_cast<std::int64_t>(headers.size()));
  for (const HeaderView& header : headers)
    size += size_of(as_bytes(header.name)) + size_of(header.value);
  return size;
}

// A smaller batch has its codec also if that makes it larger: it is a matter of some bytes.
constexpr std::size_t packed_anyway = 1 << 20;

std::uint8_t* put_body(std::uint8_t* to, const std::optional<Bytes>& key,
                       const std::optional<Bytes>& value, std::span<const HeaderView> headers) {
  to = put(to, key);
  to = put(to, value);
  to = put_varint(to, static_cast<std::int64_t>(headers.size()));
  for (const HeaderView& header : headers) {
    to = put(to, std::optional(as_bytes(header.name)));
    to = put(to, header.value);
  }
  return to;
}

// Makes `to` longer by `count`; returns where the new bytes begin.
std::uint8_t* extend(Buffer& to, std::size_t count) {
  const std::size_t at = to.size();
  to.resize(at + count);
  return to.data() + at;
}

}  // namespace

BatchBuilder::BatchBuilder(const BatchOptions& options) : options_(options) {
  buffer_.reserve(std::max(options.expected_size, batch_header_size + 256));
  // finish() fills the header in, when all of it is known.
  take_room(batch_header_size);
}

// Makes the batch longer by `count`; returns where the new bytes begin.  A vector zeroes whatever
// it grows by, and does so for some records at once more cheaply than for each.
std::uint8_t* BatchBuilder::take_room(std::size_t count) {
  constexpr std::size_t step = 1'024;
  const std::size_t at = used_;
  used_ += count;
  if (used_ > buffer_.size())
    buffer_.resize(std::max(used_, std::min(buffer_.capacity(), at + step)));
  return buffer_.data() + at;
}

std::uint8_t* BatchBuilder::begin_record(WallTime timestamp, std::size_t body_size) {
  // The first record's time: the deltas of the others are small then.
  if (count_ == 0) base_timestamp_ = timestamp;
  max_timestamp_ = std::max(max_timestamp_, timestamp);
  // Wraps when it does not fit, as it will when it is read.
  const auto timestamp_delta =
      static_cast<std::int64_t>(static_cast<std::uint64_t>(to_ms(timestamp)) -
                                static_cast<std::uint64_t>(to_ms(base_timestamp_)));
  // It stands before everything that it counts, so it is computed first.
  const std::size_t length =
      1 + varint_size(timestamp_delta) + varint_size(next_delta_) + body_size;
  const std::size_t whole = varint_size(static_cast<std::int64_t>(length)) + length;
  TARRY_ASSERT(whole <= max_batch_bytes - used_, "a batch stays below 2 GiB");
  TARRY_ASSERT(next_delta_ < std::numeric_limits<std::int32_t>::max(),
               "a batch spans fewer than 2^31 offsets");
  std::uint8_t* to = take_room(whole);
  to = put_varint(to, static_cast<std::int64_t>(length));
  *to++ = 0;  // Attributes: none are defined.
  to = put_varint(to, timestamp_delta);
  to = put_varint(to, next_delta_);
  ++count_;
  ++next_delta_;
  return to;
}

void BatchBuilder::append(WallTime timestamp, std::optional<Bytes> key, std::optional<Bytes> value,
                          std::span<const HeaderView> headers) {
  put_body(begin_record(timestamp, body_size(key, value, headers)), key, value, headers);
}

void BatchBuilder::append_body(WallTime timestamp, Bytes body) {
  put(begin_record(timestamp, body.size()), body);
}

void BatchBuilder::append_parts(WallTime timestamp, Bytes key_value, std::int32_t header_count,
                                Bytes headers, Bytes more_headers) {
  const std::size_t size =
      key_value.size() + varint_size(header_count) + headers.size() + more_headers.size();
  std::uint8_t* to = put(begin_record(timestamp, size), key_value);
  put(put(put_varint(to, header_count), headers), more_headers);
}

void BatchBuilder::skip(std::int32_t offsets) {
  TARRY_ASSERT(offsets >= 0, "offsets only go up");
  TARRY_ASSERT(offsets < std::numeric_limits<std::int32_t>::max() - next_delta_,
               "a batch spans fewer than 2^31 offsets");
  next_delta_ += offsets;
}

Buffer BatchBuilder::finish() {
  TARRY_ASSERT(count_ > 0, "no client may be given an empty batch");
  buffer_.resize(used_);
  used_ = 0;
  Buffer batch;
  Codec codec = options_.codec;
  if (codec != Codec::none) {
    batch.resize(batch_header_size);
    compress_onto(codec, Bytes(buffer_).subspan(batch_header_size), batch);
    // A large record that was accepted has to fit into the journal again when it is delivered.
    if (batch.size() > buffer_.size() && buffer_.size() >= packed_anyway) codec = Codec::none;
  }
  // Without a copy: the records were encoded behind the room for the header.
  if (codec == Codec::none) batch = std::move(buffer_);
  TARRY_ASSERT(batch.size() <= max_batch_bytes, "a batch stays below 2 GiB");
  buffer_ = {};
  std::int16_t attributes = static_cast<std::int16_t>(codec);
  const auto set = [&](bool on, std::int16_t bit) {
    if (on) attributes = static_cast<std::int16_t>(attributes | bit);
  };
  set(options_.log_append_time.has_value(), log_append_time_bit);
  set(options_.transactional, transactional_bit);
  set(options_.control, control_bit);
  std::uint8_t* header = batch.data();
  store_be(header + field::base_offset, options_.base_offset);
  store_be(header + field::batch_length,
           static_cast<std::int32_t>(batch.size() - batch_length_end));
  store_be(header + field::leader_epoch, options_.leader_epoch);
  store_be(header + field::magic, current_magic);
  store_be(header + field::attributes, attributes);
  // Offsets that were skipped at the end count too.
  store_be(header + field::last_offset_delta, next_delta_ - 1);
  store_be(header + field::base_timestamp, to_ms(base_timestamp_));
  store_be(header + field::max_timestamp, to_ms(options_.log_append_time.value_or(max_timestamp_)));
  store_be(header + field::producer_id, options_.producer_id);
  store_be(header + field::producer_epoch, options_.producer_epoch);
  store_be(header + field::base_sequence, options_.base_sequence);
  store_be(header + field::record_count, count_);
  // Last, because the checksum covers most of the header.
  update_crc(batch);
  count_ = 0;
  return batch;
}

Buffer repack(const BatchView& batch, Bytes records, Codec codec) {
  const Bytes header = batch.bytes().first(batch_header_size);
  Buffer out;
  // Compressed records are shorter as a rule, so it does not grow.
  out.reserve(batch_header_size + records.size());
  append_bytes(out, header);
  if (codec == Codec::none) {
    append_bytes(out, records);
  } else {
    compress_onto(codec, records, out);
  }
  TARRY_ASSERT(out.size() <= max_batch_bytes, "a batch stays below 2 GiB");
  // Everything else that the header says stays true, because the records are the same.
  const int attributes = (batch.attributes() & ~codec_mask) | static_cast<int>(codec);
  store_be(out.data() + field::batch_length,
           static_cast<std::int32_t>(out.size() - batch_length_end));
  store_be(out.data() + field::attributes, static_cast<std::int16_t>(attributes));
  update_crc(out);
  return out;
}

void append_record_body(Buffer& to, std::optional<Bytes> key, std::optional<Bytes> value,
                        std::span<const HeaderView> headers) {
  put_body(extend(to, body_size(key, value, headers)), key, value, headers);
}

void append_key_value(Buffer& to, std::optional<Bytes> key, std::optional<Bytes> value) {
  put(put(extend(to, size_of(key) + size_of(value)), key), value);
}

void append_header(Buffer& to, std::string_view name, std::optional<Bytes> value) {
  const std::optional<Bytes> name_bytes = as_bytes(name);
  put(put(extend(to, size_of(name_bytes) + size_of(value)), name_bytes), value);
}

void append_varint(Buffer& to, std::int64_t value) {
  put_varint(extend(to, varint_size(value)), value);
}

}  // namespace tarry::records
