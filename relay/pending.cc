#include "relay/pending.h"

#include <charconv>

#include <fmt/format.h>

namespace tarry::relay {
namespace {

constexpr std::uint8_t row_version = 1;
constexpr std::uint8_t plain_flag = 1;
constexpr std::size_t id_at = 18;

void append_short(Buffer& to, std::string_view text) {
  append_be(to, static_cast<std::uint16_t>(text.size()));
  append_bytes(to, as_bytes(text));
}

// Takes a text off the front of `rest`; false: it is too short.
bool take_short(Bytes& rest, std::string& text) {
  if (rest.size() < 2) return false;
  const std::size_t size = load_be<std::uint16_t>(rest.data());
  if (rest.size() - 2 < size) return false;
  text = as_text(rest.subspan(2, size));
  rest = rest.subspan(2 + size);
  return true;
}

auto minute_of(WallTime due) {
  return std::chrono::floor<std::chrono::minutes>(due);
}

std::string handle_front(const Source& source) {
  return fmt::format("@{}-{}-", source.topic, source.partition);
}

}  // namespace

std::string handle_of(const Source& source, Offset offset) {
  return fmt::format("{}{}", handle_front(source), offset);
}

std::optional<Offset> offset_in_handle(const Source& source, std::string_view handle) {
  const std::string front = handle_front(source);
  if (!handle.starts_with(front)) return std::nullopt;
  handle.remove_prefix(front.size());
  Offset offset = -1;
  const auto read = std::from_chars(handle.data(), handle.data() + handle.size(), offset);
  const bool is_all = read.ec == std::errc{} && read.ptr == handle.data() + handle.size();
  if (!is_all || offset < 0) return std::nullopt;
  return offset;
}

Buffer encode_row(const Pending& record) {
  Buffer row;
  row.reserve(id_at + 4 + record.id.size() + record.target.size() + record.body.size());
  row.push_back(row_version);
  row.push_back(record.is_plain ? plain_flag : std::uint8_t{0});
  append_be(row, to_ms(record.due));
  append_be(row, to_ms(record.expires));
  append_short(row, record.id);
  append_short(row, record.target);
  append_bytes(row, record.body);
  return row;
}

Result<Pending> decode_row(Bytes bytes) {
  if (bytes.size() < id_at)
    return fail(Errc::corrupt, fmt::format("a row of {} bytes ends early", bytes.size()));
  if (bytes[0] != row_version)
    return fail(Errc::unsupported, fmt::format("a row has version {}", bytes[0]));
  Pending record;
  record.is_plain = (bytes[1] & plain_flag) != 0;
  record.due = from_ms(load_be<std::int64_t>(bytes.data() + 2));
  record.expires = from_ms(load_be<std::int64_t>(bytes.data() + 10));
  Bytes rest = bytes.subspan(id_at);
  if (!take_short(rest, record.id) || !take_short(rest, record.target))
    return fail(Errc::corrupt, fmt::format("a row of {} bytes ends early", bytes.size()));
  append_bytes(record.body, rest);
  return record;
}

void PendingRecords::put(Offset offset, Pending record) {
  erase(offset);
  if (!record.id.empty()) {
    if (const auto known = by_id_.find(record.id); known != by_id_.end()) erase(known->second);
    by_id_[record.id] = offset;
  }
  bytes_ += record.bytes();
  by_due_.emplace(record.due, offset);
  ++by_minute_[minute_of(record.due)];
  records_.emplace(offset, std::move(record));
}

void PendingRecords::erase(Offset offset) {
  const auto found = records_.find(offset);
  if (found == records_.end()) return;
  const Pending& record = found->second;
  bytes_ -= record.bytes();
  by_due_.erase({record.due, offset});
  const auto minute = by_minute_.find(minute_of(record.due));
  if (--minute->second == 0) by_minute_.erase(minute);
  if (!record.id.empty()) by_id_.erase(record.id);
  records_.erase(found);
}

void PendingRecords::clear() {
  records_.clear();
  by_due_.clear();
  by_minute_.clear();
  by_id_.clear();
  bytes_ = 0;
}

const Pending* PendingRecords::find(Offset offset) const {
  const auto found = records_.find(offset);
  return found == records_.end() ? nullptr : &found->second;
}

std::optional<Offset> PendingRecords::find_id(const std::string& id) const {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return std::nullopt;
  return found->second;
}

}  // namespace tarry::relay
