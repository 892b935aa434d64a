#include "records/record_batch.h"

#include <limits>

#include <fmt/core.h>

#include "base/assert.h"

namespace tarry::records {
namespace {

// Walks over bytes that may be anything; every take says whether there was enough.
class Reader {
 public:
  explicit Reader(Bytes bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }
  Bytes rest() const { return {at_, end_}; }
  const std::uint8_t* at() const { return at_; }

  bool skip_byte() {
    if (at_ == end_) return false;
    ++at_;
    return true;
  }

  // Zigzag, of at most 5 bytes; false also when it does not fit into 32 bits.
  bool take_int(std::int32_t& value) {
    if (at_ != end_ && *at_ < 0x80) {  // Nearly always.
      value = unzigzag(*at_++);
      return true;
    }
    std::uint64_t raw = 0;
    if (!take_raw(raw, 5) || raw > std::numeric_limits<std::uint32_t>::max()) return false;
    value = unzigzag(static_cast<std::uint32_t>(raw));
    return true;
  }
  bool take_long(std::int64_t& value) {
    std::uint64_t raw = 0;
    if (!take_raw(raw, 10)) return false;
    value = static_cast<std::int64_t>((raw >> 1) ^ (0 - (raw & 1)));
    return true;
  }
  // A length, then so many bytes; -1 is null.
  bool take_bytes(std::optional<Bytes>& bytes) {
    std::int32_t length = 0;
    if (!take_int(length) || length < -1) return false;
    if (length == -1) {
      bytes.reset();
      return true;
    }
    const auto size = static_cast<std::size_t>(length);
    if (size > left()) return false;
    bytes.emplace(at_, size);
    at_ += size;
    return true;
  }

 private:
  static std::int32_t unzigzag(std::uint32_t raw) {
    return static_cast<std::int32_t>((raw >> 1) ^ (0 - (raw & 1)));
  }

  bool take_raw(std::uint64_t& value, unsigned max_bytes) {
    value = 0;
    for (unsigned i = 0; i < max_bytes && at_ != end_; ++i) {
      const std::uint8_t byte = *at_++;
      // The tenth byte has room for the 64th bit alone.
      if (i == 9 && byte > 1) return false;
      value |= std::uint64_t{byte & 0x7fu} << (7 * i);
      if (byte < 0x80) return true;
    }
    return false;
  }

  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

bool take_header(Reader& reader, HeaderView& header) {
  std::optional<Bytes> name;
  // A header's value may be null, its name may not.
  if (!reader.take_bytes(name) || !name) return false;
  header.name = as_text(*name);
  return reader.take_bytes(header.value);
}

std::int32_t load_length(Bytes blob) {
  return load_be<std::int32_t>(blob.data() + field::batch_length);
}

void check_whole(MutableBatch batch) {
  TARRY_ASSERT(batch.size() >= batch_header_size, "a batch has its header");
}

}  // namespace

void HeaderRange::Iterator::decode() {
  if (left_ <= 0) return;
  Reader reader(rest_);
  const bool well_formed = take_header(reader, header_);
  TARRY_ASSERT(well_formed, "headers are looked through before a HeaderRange is made of them");
  rest_ = reader.rest();
}

Result<BatchView> BatchView::parse(Bytes bytes) {
  auto batch = next_batch(bytes);
  // Bytes behind the batch would be stored with it, and found by nobody.
  if (batch && batch->size() != bytes.size())
    return fail(Errc::corrupt, fmt::format("a record batch of {} bytes is followed by {} more",
                                           batch->size(), bytes.size() - batch->size()));
  return batch;
}

Result<std::size_t> batch_size(Bytes blob) {
  if (blob.size() < batch_header_size)
    return fail(Errc::corrupt, fmt::format("{} bytes are too few for the {} of a batch's header",
                                           blob.size(), batch_header_size));
  // It stands at the same place in the older formats, so it is read before the length.
  const auto magic = static_cast<std::int8_t>(blob[field::magic]);
  if (magic != current_magic)
    return fail(
        Errc::unsupported,
        fmt::format("record format (magic) {} is not supported, only {} is", magic, current_magic));
  const std::int32_t length = load_length(blob);
  if (length < static_cast<std::int32_t>(batch_header_size - batch_length_end))
    return fail(Errc::corrupt, fmt::format("a record batch cannot have the length {}", length));
  return batch_length_end + static_cast<std::size_t>(length);
}

Result<BatchView> next_batch(Bytes blob) {
  const auto size = batch_size(blob);
  if (!size) return std::unexpected(size.error());
  if (*size > blob.size())
    return fail(Errc::corrupt, fmt::format("a record batch of {} bytes is torn: {} are there",
                                           *size, blob.size()));
  return BatchView(blob.first(*size));
}

const char* read_record_body(Bytes body, RecordView& record) {
  Reader reader(body);
  if (!reader.take_bytes(record.key)) return "its key's length is invalid";
  if (!reader.take_bytes(record.value)) return "its value's length is invalid";
  const auto key_value = static_cast<std::size_t>(reader.at() - body.data());
  std::int32_t header_count = 0;
  if (!reader.take_int(header_count) || header_count < 0) return "its number of headers is invalid";
  // Two lengths are the least that a header takes.  A count that cannot be must not make a loop of
  // two thousand million turns.
  if (static_cast<std::size_t>(header_count) > reader.left() / 2)
    return "it is too short for its headers";
  const Bytes headers = reader.rest();
  HeaderView header;
  for (std::int32_t i = 0; i < header_count; ++i)
    if (!take_header(reader, header)) return "one of its headers is not well formed";
  if (reader.left() != 0) return "its length is larger than its contents";
  record.headers = HeaderRange(headers, header_count);
  record.body = body;
  record.key_value = body.first(key_value);
  return nullptr;
}

const char* take_record(Bytes& rest, RecordView& record) {
  Reader reader(rest);
  std::int32_t length = 0;
  if (rest.empty()) return "it is missing";
  if (!reader.take_int(length) || length < 0) return "its length is invalid";
  const auto size = static_cast<std::size_t>(length);
  if (size > reader.left()) return "it is longer than what remains of the batch";
  const Bytes whole = reader.rest().first(size);
  // Behind this record whatever is in it, so that a walk can go on after a bad one.
  rest = reader.rest().subspan(size);

  // A reader of its own, so that no field reaches beyond the record's length.
  Reader front(whole);
  // No attribute of a record is defined, so whatever is there is passed over.
  if (!front.skip_byte()) return "it has no attributes";
  if (!front.take_long(record.timestamp_delta)) return "its timestamp is not a number";
  if (!front.take_int(record.offset_delta)) return "its offset is not a number";
  return read_record_body(front.rest(), record);
}

Error record_error(std::int32_t index, const char* what) {
  return {Errc::corrupt, fmt::format("record {} of the batch: {}", index, what)};
}

Result<RecordView> parse_record_body(Bytes body) {
  RecordView record;
  if (const char* wrong = read_record_body(body, record))
    return fail(Errc::corrupt, fmt::format("a record's body: {}", wrong));
  return record;
}

void set_base_offset(MutableBatch batch, Offset offset) {
  check_whole(batch);
  store_be(batch.data() + field::base_offset, offset);
}

void set_leader_epoch(MutableBatch batch, std::int32_t epoch) {
  check_whole(batch);
  store_be(batch.data() + field::leader_epoch, epoch);
}

void set_max_timestamp(MutableBatch batch, WallTime max_timestamp) {
  check_whole(batch);
  store_be(batch.data() + field::max_timestamp, to_ms(max_timestamp));
  update_crc(batch);
}

void set_log_append_time(MutableBatch batch, WallTime now) {
  check_whole(batch);
  const auto attributes = load_be<std::int16_t>(batch.data() + field::attributes);
  store_be(batch.data() + field::attributes,
           static_cast<std::int16_t>(attributes | log_append_time_bit));
  // Under LogAppendTime this is the time of every record.
  set_max_timestamp(batch, now);
}

void update_crc(MutableBatch batch) {
  check_whole(batch);
  store_be(batch.data() + field::crc, crc32c(Bytes(batch).subspan(field::attributes)));
}

}  // namespace tarry::records
