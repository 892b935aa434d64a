#include "relay/pending_records.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include <fmt/format.h>

namespace tarry::relay {

using storage::behind_all_of;

namespace {

constexpr std::uint8_t row_version = 1;
constexpr std::uint8_t plain_flag = 1;
constexpr std::size_t id_at = 18;

// To a Buffer for Kafka, and to a string for the store: a row is made for both of them.
template <typename To>
void append_part(To& to, Bytes bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

template <typename To, typename Number>
void append_field(To& to, Number number) {
  std::array<std::uint8_t, sizeof number> bytes{};
  store_be(bytes.data(), number);
  append_part(to, bytes);
}

template <typename To>
void append_short(To& to, std::string_view text) {
  append_field(to, static_cast<std::uint16_t>(text.size()));
  append_part(to, as_bytes(text));
}

template <typename To>
void append_row(To& to, const PendingRecord& record) {
  to.reserve(id_at + 4 + record.id.size() + record.target.size() + record.body.size());
  append_field(to, row_version);
  // A whole byte, so that later versions have room for more flags.
  append_field(to, record.is_plain ? plain_flag : std::uint8_t{0});
  append_field(to, to_ms(record.due));
  append_field(to, to_ms(record.expires));
  append_short(to, record.id);
  append_short(to, record.target);
  append_part(to, record.body);
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
// A transaction of a thousand records may have as many due minutes: a row for each of them would
// cost as much as the records.  A row of 256 has 1 280 bytes at most, for one record too.
constexpr std::int64_t minutes_in_block = 256;
constexpr std::size_t minute_bytes = 5;
constexpr std::size_t max_kept_buckets = 8'192;

storage::RowsFailed damaged_rows() {
  return storage::RowsFailed("the store of pending records has a malformed row",
                             storage::RowsFailed::Kind::damaged);
}

std::int64_t block_of(PendingRecords::ByMinute::key_type minute) {
  const std::int64_t number = minute.time_since_epoch().count();
  return number / minutes_in_block - (number % minutes_in_block < 0 ? 1 : 0);
}

// Without a buffer between: there are four such numbers for each record that is taken in.
void append_number(std::string& to, std::int64_t number) {
  // With the sign turned round the bytes sort as the numbers do, negative ones first.
  const std::uint64_t sortable = static_cast<std::uint64_t>(number) ^ (std::uint64_t{1} << 63);
  std::array<std::uint8_t, number_bytes> bytes{};
  store_be(bytes.data(), sortable);
  to.append(as_text(bytes));
}

std::string number_row(std::int64_t number) {
  std::string row;
  append_number(row, number);
  return row;
}

std::int64_t number_at(std::string_view bytes, std::size_t index) {
  if (bytes.size() < (index + 1) * number_bytes) throw damaged_rows();
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

PendingRecord stored_row(std::string_view row) {
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
  // Anybody may have typed the handle.
  if (!is_all || offset < 0) return std::nullopt;
  return offset;
}

Buffer encode_row(const PendingRecord& record) {
  Buffer row;
  append_row(row, record);
  return row;
}

Result<PendingRecord> decode_row(Bytes bytes) {
  if (bytes.size() < id_at)
    return fail(Errc::corrupt, fmt::format("a row of {} bytes ends early", bytes.size()));
  // Not damage: a newer member of the group may have written it.
  if (bytes[0] != row_version)
    return fail(Errc::unsupported, fmt::format("a row has version {}", bytes[0]));
  PendingRecord record;
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
  unused_from_.reset();
  place_ = {number_at(*place, 0), number_at(*place, 1), from_ms(number_at(*place, 2))};
  bytes_ = static_cast<std::size_t>(number_at(*place, 3));
  const std::string minutes = key('m');
  for (auto at = store_.walk(minutes, behind_all_of(minutes)); at->valid(); at->next())
    read_block(number_at(at->key().substr(minutes.size()), 0), at->value());
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

std::string PendingRecords::key(char kind, std::int64_t first, std::int64_t second) const {
  std::string key = this->key(kind, first);
  append_number(key, second);
  return key;
}

std::string PendingRecords::key(char kind, std::int64_t number) const {
  std::string key;
  key.reserve(1 + source_.size() + 2 * number_bytes);
  key += kind;
  key += source_;
  append_number(key, number);
  return key;
}

std::optional<std::string> PendingRecords::get(const std::string& key) const {
  const auto changed = changes_.rows.find(key);
  // The changes of the transaction that is being applied count first: a record may come and go in
  // it.
  return changed == changes_.rows.end() ? store_.get(key) : changed->second;
}

std::optional<WallTime> PendingRecords::due_of(Offset offset) const {
  const auto known = get(key('r', offset));
  if (!known) return std::nullopt;
  return from_ms(number_at(*known, 0));
}

void PendingRecords::read_block(std::int64_t block, std::string_view row) {
  // The store has checked its checksums, so a row of another size is an error of ours or of a disk.
  if (row.size() % minute_bytes != 0) throw damaged_rows();
  for (; !row.empty(); row.remove_prefix(minute_bytes)) {
    const std::uint8_t* bytes = as_bytes(row).data();
    const std::chrono::minutes minute(block * minutes_in_block + bytes[0]);
    const std::size_t count = load_be<std::uint32_t>(bytes + 1);
    by_minute_[ByMinute::key_type(minute)] = count;
    size_ += count;
  }
}

std::optional<std::string> PendingRecords::block_row(std::int64_t block) const {
  const auto minute_at = [](std::int64_t number) {
    return ByMinute::key_type(std::chrono::minutes(number));
  };
  const auto end = by_minute_.lower_bound(minute_at((block + 1) * minutes_in_block));
  std::string row;
  for (auto at = by_minute_.lower_bound(minute_at(block * minutes_in_block)); at != end; ++at) {
    const auto& [minute, count] = *at;
    append_field(row, static_cast<std::uint8_t>(minute.time_since_epoch().count() -
                                                block * minutes_in_block));
    append_field(row, static_cast<std::uint32_t>(count));
  }
  if (row.empty()) return std::nullopt;
  return row;
}

void PendingRecords::count(WallTime due, int by) {
  const auto minute = by_minute_.try_emplace(minute_of(due), 0).first;
  minute->second += static_cast<std::size_t>(by);
  size_ += static_cast<std::size_t>(by);
  changed_blocks_.insert(block_of(minute->first));
  // A minute without records would stay in memory for ever, and there are millions of them in a
  // year.
  if (minute->second == 0) by_minute_.erase(minute);
}

void PendingRecords::put(Offset offset, const PendingRecord& record) {
  // A record that recurs or was moved is put again, and its old due time has a row.
  if (!unused_from_ || offset < *unused_from_) erase(offset);
  if (!record.id.empty())
    if (const auto known = find_id(record.id)) erase(*known);
  add(offset, record);
}

void PendingRecords::add(Offset offset, const PendingRecord& record) {
  if (unused_from_) unused_from_ = std::max(*unused_from_, offset + 1);
  std::string row;
  append_row(row, record);
  bytes_ += row.size();
  std::string by_offset;
  by_offset.reserve(number_bytes + record.id.size());
  append_number(by_offset, to_ms(record.due));
  by_offset += record.id;
  if (!record.id.empty()) changes_.rows[key('i', record.id)] = number_row(offset);
  changes_.rows[key('d', to_ms(record.due), offset)] = std::move(row);
  changes_.rows[key('r', offset)] = std::move(by_offset);
  count(record.due, 1);
  const Place place(record.due, offset);
  if (!first_ || place < *first_) {
    first_ = place;
    is_first_gone_ = false;
  }
}

void PendingRecords::erase(Offset offset) {
  const std::string by_offset = key('r', offset);
  const auto known = get(by_offset);
  if (!known) return;
  const Place place(from_ms(number_at(*known, 0)), offset);
  const std::string by_due = key('d', to_ms(place.first), offset);
  if (const auto row = get(by_due)) bytes_ -= std::min(bytes_, row->size());
  changes_.rows[by_due] = std::nullopt;
  changes_.rows[by_offset] = std::nullopt;
  // The id stands behind the due time, so that a record's own row need not be read for it.
  if (known->size() > number_bytes)
    changes_.rows[key('i', std::string_view(*known).substr(number_bytes))] = std::nullopt;
  count(place.first, -1);
  if (first_ == place) is_first_gone_ = true;
}

Offset PendingRecords::unused_from(Offset next) {
  if (!unused_from_) {
    unused_from_ = next;
    for (auto at = store_.walk(key('r', next), behind_all_of(key('r'))); at->valid(); at->next())
      unused_from_ = number_at(at->key().substr(at->key().size() - number_bytes), 0) + 1;
  }
  return std::max(*unused_from_, next);
}

void PendingRecords::clear() {
  changes_ = {};
  for (const char kind : {'d', 'r', 'i', 'm'})
    changes_.removed_ranges.emplace_back(key(kind), behind_all_of(key(kind)));
  changes_.rows[key('p')] = std::nullopt;
  store_.write(changes_);
  forget_changes();
  place_ = {};
  first_.reset();
  is_first_gone_ = false;
  by_minute_.clear();
  size_ = bytes_ = 0;
  unused_from_ = 0;
}

void PendingRecords::forget_changes() {
  // The table is kept for the next commit, unless it was made for an unusual one.
  if (changes_.rows.bucket_count() > max_kept_buckets) {
    changes_ = {};
  } else {
    changes_.removed_ranges.clear();
    changes_.rows.clear();
  }
  changed_blocks_.clear();
}

void PendingRecords::commit(const RowsPlace& place) {
  for (const std::int64_t block : changed_blocks_)
    changes_.rows[key('m', block)] = block_row(block);
  std::string& known = changes_.rows[key('p')].emplace();
  for (const std::int64_t number :
       {place.next, place.source, to_ms(place.complete_at), static_cast<std::int64_t>(bytes_)})
    append_number(known, number);
  store_.write(changes_);
  forget_changes();
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

std::optional<PendingRecord> PendingRecords::find(Offset offset) const {
  const auto due = due_of(offset);
  if (!due) return std::nullopt;
  const auto row = get(key('d', to_ms(*due), offset));
  if (!row)
    // The two rows of a record are written together, so one without the other is damage.
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
  return Walk(store_.walk(key('d', to_ms(from.first), from.second), behind_all_of(all)));
}

PendingRecords::Place PendingRecords::Walk::place() const {
  const auto key = cursor_->key();
  const auto numbers = key.substr(key.size() - 2 * number_bytes);
  return {from_ms(number_at(numbers, 0)), number_at(numbers, 1)};
}

PendingRecord PendingRecords::Walk::record() const {
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
