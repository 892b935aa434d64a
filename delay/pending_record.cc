#include "delay/pending_record.h"

#include <algorithm>
#include <array>
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

// The name of a header as it stands in a record.
Buffer encoded_name(std::string_view name) {
  Buffer out;
  records::append_varint(out, static_cast<std::int64_t>(name.size()));
  append_bytes(out, as_bytes(name));
  return out;
}

// Returns the end of the header.
std::uint8_t* put_header(std::uint8_t* to, const Buffer& name, std::string_view value) {
  to = std::ranges::copy(name, to).out;
  *to++ = static_cast<std::uint8_t>(2 * value.size());  // Zigzag; one byte, for it is below 64.
  return std::ranges::copy(as_bytes(value), to).out;
}

}  // namespace

Result<PendingRecordBody> PendingRecordBody::parse(Bytes bytes) {
  const auto too_short = [size = bytes.size()] {
    return fail(Errc::corrupt,
                fmt::format("a pending record of {} bytes ends within its header", size));
  };
  if (bytes.size() < body_at) return too_short();
  const std::uint8_t version = bytes[0] & version_mask;
  const auto codec = records::codec_of(bytes[0] >> codec_shift);
  // Both stand in one byte, so a newer version is told from damage by nothing else.
  if ((version != plain_version && version != recurring_version) || !codec)
    return fail(Errc::unsupported, fmt::format("a pending record has version {}", bytes[0]));
  PendingRecordBody body{from_ms(load_be<std::int64_t>(bytes.data() + 1)), {}, {}, *codec};
  Bytes rest = bytes.subspan(body_at);
  if (version == recurring_version) {
    if (rest.size() < 2) return too_short();
    const std::size_t size = load_be<std::uint16_t>(rest.data());
    // A recurrence of no bytes is none, and the version says that there is one.
    if (rest.size() - 2 < size || size == 0) return too_short();
    body.recurrence = rest.subspan(2, size);
    rest = rest.subspan(2 + size);
  }
  auto record = records::parse_record_body(rest);
  if (!record) return std::unexpected(record.error());
  body.record = std::move(*record);
  return body;
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

void append_delivered(records::BatchBuilder& builder, WallTime timestamp, Bytes key_value,
                      std::int32_t header_count, Bytes headers, WallTime due,
                      const PendingKey& first) {
  // Each delivered record gets these two, so their names are encoded once, and nothing is
  // allocated.
  static const Buffer due_name = encoded_name(header::scheduled_for);
  static const Buffer handle_name = encoded_name(header::schedule_handle);
  std::array<char, 24> due_text;
  const auto due_end =
      std::to_chars(due_text.data(), due_text.data() + due_text.size(), to_ms(due)).ptr;
  std::array<char, storage::max_handle_bytes> handle;
  const char* const handle_end = storage::put_handle(first, handle);
  std::array<std::uint8_t, 2 * 64> ours;
  std::uint8_t* end = put_header(ours.data(), due_name, {due_text.data(), due_end});
  end = put_header(end, handle_name, {handle.data(), handle_end});
  builder.append_parts(timestamp, key_value, header_count + 2, headers, {ours.data(), end});
}

}  // namespace tarry::delay
