#include "delay/pending_record.h"

#include <array>
#include <string>

#include <fmt/format.h>

#include "delay/schedule.h"

namespace tarry::delay {
namespace {

constexpr std::uint8_t version = 1;
constexpr std::size_t body_at = 9;

}  // namespace

Result<PendingRecordBody> PendingRecordBody::parse(Bytes bytes) {
  if (bytes.size() < body_at) {
    return fail(Errc::corrupt,
                fmt::format("a pending record of {} bytes ends within its header", bytes.size()));
  }
  if (bytes[0] != version) {
    return fail(Errc::unsupported, fmt::format("a pending record has version {}", bytes[0]));
  }
  auto record = records::parse_record_body(bytes.subspan(body_at));
  if (!record) return std::unexpected(record.error());
  return PendingRecordBody{from_ms(load_be<std::int64_t>(bytes.data() + 1)), *record};
}

PlainHeaders plain_headers(const records::RecordView& record) {
  PlainHeaders plain;
  for (const auto& header : record.headers) {
    if (is_taken_out(header.name)) continue;
    records::append_header(plain.encoded, header.name, header.value);
    ++plain.count;
  }
  return plain;
}

void append_pending_body(Buffer& to, WallTime original, const records::RecordView& record,
                         const PlainHeaders& headers) {
  to.push_back(version);
  append_be(to, to_ms(original));
  append_bytes(to, record.key_value);
  records::append_varint(to, headers.count);
  append_bytes(to, headers.encoded);
}

void append_delivered(records::BatchBuilder& builder, WallTime timestamp, Bytes key_value,
                      std::int32_t header_count, Bytes headers, WallTime due,
                      const PendingKey& first) {
  Buffer all;
  all.reserve(headers.size() + delivered_overhead);
  append_bytes(all, headers);
  const std::string due_text = std::to_string(to_ms(due));
  records::append_header(all, header::scheduled_for, as_bytes(due_text));
  const std::string handle = storage::encode_handle(first);
  records::append_header(all, header::schedule_handle, as_bytes(handle));
  builder.append_parts(timestamp, key_value, header_count + 2, all);
}

}  // namespace tarry::delay
