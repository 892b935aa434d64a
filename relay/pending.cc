#include "relay/pending.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include <fmt/format.h>

namespace tarry::relay {

using storage::behind_all_of;

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

constexpr std::size_t number_bytes = 8;

std::string number_key(std::int64_t number) {
  Buffer bytes;
  // With the sign bit turned around numbers sort as their bytes do, negative ones first.
  append_be(bytes, static_cast<std::uint64_t>(number) ^ (std::uint64_t{1} << 63));
  return std::string(as_text(bytes));
}

std::string place_key(const PendingRecords::Place& place) {
  return number_key(to_ms(place.first)) + number_key(place.second);
}

std::int64_t number_at(std::string_view bytes, std::size_t index) {
  if (bytes.size() < (index + 1) * number_bytes)
    throw storage::RowsFailed("the store of pending records has a malformed row",
                              storage::RowsFailed::Kind::damaged);
  const auto number = load_be<std::uint64_t>(as_bytes(bytes).data() + index * number_bytes);
  return static_cast<std::int64_t>(number ^ (std::uint64_t{1} << 63));
}

std::string source_key(const Source& source) {
  Buffer bytes;
  append_bytes(bytes, as_bytes(source.topic));
  // No name has this byte, so no topic's keys lie among those of another one that begins like it.
  bytes.push_back(0);
  append_be(bytes, source.partition);
  return std::string(as_text(bytes));
}

Pending stored_row(std::string_view row) {
  auto record = decode_row(as_bytes(row));
  if (!record)
    throw storage::RowsFailed("the store of pending records: " + record.error().message,
                              storage::RowsFailed::Kind::damaged);
  return std::move(*record);
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

// --- In the store.

PendingRecords::PendingRecords(storage::SortedRows& store, const Source& source)
    : store_(store), source_(source_key(source)) {
  const auto place = store_.get(key('p'));
  // Without a place the rows that may be there do not count: rows_from() forgets them.
  if (!place || place->size() != 4 * number_bytes) return;
  place_ = {number_at(*place, 0), number_at(*place, 1), from_ms(number_at(*place, 2))};
  bytes_ = static_cast<std::size_t>(number_at(*place, 3));
  const std::string minutes = key('m');
  for (auto at = store_.walk(minutes, behind_all_of(minutes)); at->valid(); at->next()) {
    const auto count = static_cast<std::size_t>(number_at(at->value(), 0));
    const std::chrono::minutes minute(number_at(at->key().substr(minutes.size()), 0));
    by_minute_[ByMinute::key_type(minute)] = count;
    size_ += count;
  }
  find_first({WallTime::min(), std::numeric_limits<Offset>::min()});
}

std::string PendingRecords::key(char kind, std::string_view rest) const {
  std::string key;
  key.reserve(1 + source_.size() + rest.size());
  key += kind;
  key += source_;
  key += rest;
  return key;
}

std::optional<std::string> PendingRecords::get(const std::string& key) const {
  const auto changed = changes_.rows.find(key);
  return changed == changes_.rows.end() ? store_.get(key) : changed->second;
}

std::optional<WallTime> PendingRecords::due_of(Offset offset) const {
  const auto known = get(key('r', number_key(offset)));
  if (!known) return std::nullopt;
  return from_ms(number_at(*known, 0));
}

void PendingRecords::count(WallTime due, int by) {
  const auto minute = by_minute_.try_emplace(minute_of(due), 0).first;
  minute->second += static_cast<std::size_t>(by);
  size_ += static_cast<std::size_t>(by);
  changed_minutes_.insert(minute->first);
  if (minute->second == 0) by_minute_.erase(minute);
}

void PendingRecords::put(Offset offset, const Pending& record) {
  // A record that recurs or was moved is put again, and its old due time has a row.
  erase(offset);
  if (!record.id.empty()) {
    if (const auto known = find_id(record.id)) erase(*known);
    changes_.rows[key('i', record.id)] = number_key(offset);
  }
  const Buffer row = encode_row(record);
  changes_.rows[key('d', place_key({record.due, offset}))] = std::string(as_text(row));
  changes_.rows[key('r', number_key(offset))] = number_key(to_ms(record.due)) + record.id;
  count(record.due, 1);
  bytes_ += row.size();
  const Place place(record.due, offset);
  if (!first_ || place < *first_) {
    first_ = place;
    is_first_gone_ = false;
  }
}

void PendingRecords::erase(Offset offset) {
  const std::string by_offset = key('r', number_key(offset));
  const auto known = get(by_offset);
  if (!known) return;
  const Place place(from_ms(number_at(*known, 0)), offset);
  const std::string by_due = key('d', place_key(place));
  if (const auto row = get(by_due)) bytes_ -= std::min(bytes_, row->size());
  changes_.rows[by_due] = std::nullopt;
  changes_.rows[by_offset] = std::nullopt;
  if (known->size() > number_bytes)
    changes_.rows[key('i', std::string_view(*known).substr(number_bytes))] = std::nullopt;
  count(place.first, -1);
  if (first_ == place) is_first_gone_ = true;
}

void PendingRecords::clear() {
  changes_ = {};
  for (const char kind : {'d', 'r', 'i', 'm'})
    changes_.removed_ranges.emplace_back(key(kind), behind_all_of(key(kind)));
  changes_.rows[key('p')] = std::nullopt;
  store_.write(changes_);
  changes_ = {};
  changed_minutes_.clear();
  place_ = {};
  first_.reset();
  is_first_gone_ = false;
  by_minute_.clear();
  size_ = bytes_ = 0;
}

void PendingRecords::commit(const RowsPlace& place) {
  for (const auto& minute : changed_minutes_) {
    // Without a value the row is removed: a minute without records has none.
    auto& row = changes_.rows[key('m', number_key(minute.time_since_epoch().count()))];
    if (const auto count = by_minute_.find(minute); count != by_minute_.end())
      row = number_key(static_cast<std::int64_t>(count->second));
  }
  changes_.rows[key('p')] = number_key(place.next) + number_key(place.source) +
                            number_key(to_ms(place.complete_at)) +
                            number_key(static_cast<std::int64_t>(bytes_));
  store_.write(changes_);
  changes_ = {};
  changed_minutes_.clear();
  place_ = place;
  // Behind the write, because a walk sees only what is in the store.
  if (is_first_gone_) find_first(*first_);
}

// None is before `from`: the rows that were removed there need not be passed again.
void PendingRecords::find_first(const Place& from) {
  const Walk first = walk(from);
  first_ = first.valid() ? std::optional(first.place()) : std::nullopt;
  is_first_gone_ = false;
}

std::optional<Pending> PendingRecords::find(Offset offset) const {
  const auto due = due_of(offset);
  if (!due) return std::nullopt;
  const auto row = get(key('d', place_key({*due, offset})));
  if (!row)
    throw storage::RowsFailed("the store of pending records lacks a row",
                              storage::RowsFailed::Kind::damaged);
  return stored_row(*row);
}

std::optional<Offset> PendingRecords::find_id(const std::string& id) const {
  const auto known = get(key('i', id));
  if (!known) return std::nullopt;
  return number_at(*known, 0);
}

PendingRecords::Walk PendingRecords::walk(const Place& from) const {
  const std::string all = key('d');
  return Walk(store_.walk(key('d', place_key(from)), behind_all_of(all)));
}

PendingRecords::Place PendingRecords::Walk::place() const {
  const auto key = cursor_->key();
  const auto numbers = key.substr(key.size() - 2 * number_bytes);
  return {from_ms(number_at(numbers, 0)), number_at(numbers, 1)};
}

Pending PendingRecords::Walk::record() const {
  return stored_row(cursor_->value());
}

std::vector<Source> PendingRecords::older(const storage::SortedRows& store, WallTime before) {
  std::vector<Source> sources;
  for (auto at = store.walk("p", "q"); at->valid(); at->next()) {
    if (from_ms(number_at(at->value(), 2)) >= before) continue;
    const std::string_view source = at->key().substr(1);
    const auto topic_end = source.find('\0');
    sources.push_back({std::string(source.substr(0, topic_end)),
                       load_be<PartitionIndex>(as_bytes(source.substr(topic_end + 1)).data())});
  }
  return sources;
}

}  // namespace tarry::relay
