#include "delay/pending_record.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "delay/schedule.h"

namespace tarry::delay {
namespace {

constexpr std::uint8_t plain_version = 1;
constexpr std::uint8_t recurring_version = 2;
constexpr std::uint8_t version_mask = 0x0f;
constexpr unsigned codec_shift = 4;
constexpr std::size_t body_at = 9;

void append_recurrence(Buffer& to, const Recurrence& recurrence) {
  const std::size_t at = to.size();
  // The length comes first, so that a reader without time zones can skip the rule.
  append_be(to, std::uint16_t{0});
  recurrence.append_to(to);
  store_be(to.data() + at, static_cast<std::uint16_t>(to.size() - at - 2));
}

// A length below 64 as it stands in a record: zigzag, in one byte.
char short_length(std::size_t size) {
  return static_cast<char>(2 * size);
}

char* put_name(char* to, std::string_view name) {
  *to++ = short_length(name.size());
  return std::ranges::copy(name, to).out;
}

}  // namespace

Result<PendingRecordBody> PendingRecordBody::parse(Bytes bytes) {
  PendingRecordBody body;
  if (auto read = body.read(bytes); !read) return std::unexpected(std::move(read.error()));
  return body;
}

Result<> PendingRecordBody::read(Bytes bytes) {
  const auto too_short = [size = bytes.size()] {
    return fail(Errc::corrupt,
                fmt::format("a pending record of {} bytes ends within its header", size));
  };
  if (bytes.size() < body_at) return too_short();
  const std::uint8_t version = bytes[0] & version_mask;
  const auto codec_read = records::codec_of(bytes[0] >> codec_shift);
  // Both stand in one byte, so a newer version is told from damage by nothing else.
  if ((version != plain_version && version != recurring_version) || !codec_read)
    return fail(Errc::unsupported, fmt::format("a pending record has version {}", bytes[0]));
  original = from_ms(load_be<std::int64_t>(bytes.data() + 1));
  codec = *codec_read;
  Bytes rest = bytes.subspan(body_at);
  if (version == recurring_version) {
    if (rest.size() < 2) return too_short();
    const std::size_t size = load_be<std::uint16_t>(rest.data());
    // A recurrence of no bytes is none, and the version says that there is one.
    if (rest.size() - 2 < size || size == 0) return too_short();
    recurrence = rest.subspan(2, size);
    rest = rest.subspan(2 + size);
  }
  if (const char* const wrong = records::read_record_body(rest, record))
    return fail(Errc::corrupt, fmt::format("a record's body: {}", wrong));
  return {};
}

Buffer with_recurrence(Bytes bytes, const Recurrence& recurrence) {
  // The bytes are those of a record that was parsed, so they have a recurrence.
  const std::size_t size = load_be<std::uint16_t>(bytes.data() + body_at);
  Buffer out(bytes.begin(), bytes.begin() + body_at);
  append_recurrence(out, recurrence);
  append_bytes(out, bytes.subspan(body_at + 2 + size));
  return out;
}

PlainHeaders plain_headers(const records::RecordView& record) {
  PlainHeaders plain;
  plain_headers(record, plain);
  return plain;
}

void plain_headers(const records::RecordView& record, PlainHeaders& plain) {
  plain.count = 0;
  plain.encoded.clear();
  for (const auto& header : record.headers) {
    if (is_taken_out(header.name)) continue;
    records::append_header(plain.encoded, header.name, header.value);
    ++plain.count;
  }
}

void append_pending_body(Buffer& to, WallTime original, const Recurrence* recurrence,
                         const records::RecordView& record, const PlainHeaders& headers,
                         records::Codec codec) {
  // Nearly all records are plain, and spend no byte on a recurrence.
  const std::uint8_t version = recurrence == nullptr ? plain_version : recurring_version;
  to.push_back(static_cast<std::uint8_t>(version | static_cast<unsigned>(codec) << codec_shift));
  append_be(to, to_ms(original));
  if (recurrence != nullptr) append_recurrence(to, *recurrence);
  append_bytes(to, record.key_value);
  records::append_varint(to, headers.count);
  append_bytes(to, headers.encoded);
}

void DeliveredHeaders::begin(WallTime due, WallTime first_due) {
  static_assert(header::scheduled_for.size() < 64 && header::schedule_handle.size() < 64);
  due_ = due;
  first_due_ = first_due;
  char* const value = put_name(text_.data(), header::scheduled_for) + 1;
  constexpr std::size_t max_digits = 20;
  char* const end = std::to_chars(value, value + max_digits, to_ms(due)).ptr;
  value[-1] = short_length(static_cast<std::size_t>(end - value));
  handle_ = put_name(end, header::schedule_handle) + 1;
  sequence_ = storage::put_handle_begin(first_due, handle_);
}

Bytes DeliveredHeaders::of(WallTime due, const PendingKey& first) {
  if (handle_ == nullptr || due != due_ || first.due != first_due_) begin(due, first.due);
  const char* const end = storage::put_handle_end(first.sequence, sequence_);
  handle_[-1] = short_length(static_cast<std::size_t>(end - handle_));
  return as_bytes({text_.data(), end});
}

}  // namespace tarry::delay
