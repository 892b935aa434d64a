#include "storage/bucket_rows.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/crc32c.h"
#include "storage/fields.h"
#include "storage/rocks.h"

namespace tarry::storage {
namespace {

constexpr std::size_t event_bytes = 41;
constexpr std::uint8_t total_mark = 0xff;  // After every level.

// Signed, so that their order as bytes is theirs.
void put_ordered(Buffer& out, WallTime time) {
  append_be(out, static_cast<std::uint64_t>(to_ms(time)) ^ (std::uint64_t{1} << 63));
}
WallTime ordered_time(Fields& fields) {
  return from_ms(
      static_cast<std::int64_t>(fields.number<std::uint64_t>() ^ (std::uint64_t{1} << 63)));
}

void put_owner(Buffer& out, const Owner& owner) {
  append_be(out, owner.shards);
  append_be(out, owner.shard);
}

std::optional<Bucket> take_bucket(Fields& fields) {
  const auto level = fields.number<std::uint8_t>();
  const WallTime start = ordered_time(fields);
  if (!fields.whole() || level >= bucket_levels) return std::nullopt;
  const Bucket out{static_cast<BucketLevel>(level), start};
  // Further from now than any due time, so that the bucket's bounds are numbers.
  const auto since = start.time_since_epoch(), longest = -2 * before_all.time_since_epoch();
  if (since < -longest || since > longest) return std::nullopt;
  // Everything else takes a bucket's beginning for a multiple of its span.
  if (bucket_of(out.level, start) != out) return std::nullopt;
  return out;
}

JournalPlace take_place(Fields& fields) {
  JournalPlace out;
  out.epoch = fields.number<std::uint32_t>();
  out.lsn = fields.number<std::uint64_t>();
  out.operation = fields.number<std::uint32_t>();
  return out;
}

void put_chunk_key(Buffer& out, const ChunkKey& key) {
  put(out, key.bucket);
  append_be(out, key.first);
  put(out, key.place);
}

std::optional<ChunkKey> take_chunk_key(Fields& fields) {
  const auto bucket = take_bucket(fields);
  if (!bucket) return std::nullopt;
  ChunkKey out;
  out.bucket = *bucket;
  out.first = fields.number<Sequence>();
  out.place = take_place(fields);
  return out;
}

Buffer one(char kind) {
  return {static_cast<std::uint8_t>(kind)};
}

// Sums of signed numbers.
class CountMerge final : public rocksdb::AssociativeMergeOperator {
 public:
  bool Merge(const rocksdb::Slice&, const rocksdb::Slice* before, const rocksdb::Slice& more,
             std::string* out, rocksdb::Logger*) const override {
    // A merge that fails makes the row unreadable, which is reported; a guess would be kept for
    // good.
    if (more.size() != 8 || (before != nullptr && before->size() != 8)) return false;
    const auto number = [](const rocksdb::Slice& of) {
      return load_be<std::uint64_t>(bytes_of(of).data());
    };
    Buffer sum;
    append_be(sum, (before != nullptr ? number(*before) : 0) + number(more));
    out->assign(as_text(sum));
    return true;
  }
  const char* Name() const override { return "tarry.sum"; }
};

constexpr auto last_event_kind = static_cast<std::uint8_t>(ScheduleEvent::Kind::moved);

bool are_events(Bytes value) {
  if (value.size() % event_bytes != 0) return false;
  for (std::size_t at = 0; at < value.size(); at += event_bytes)
    if (value[at] > last_event_kind) return false;
  return true;
}

// Compared as bytes: an event has one encoding.
bool has_event(Bytes events, Bytes event) {
  for (; !events.empty(); events = events.subspan(event_bytes))
    if (std::ranges::equal(events.first(event_bytes), event)) return true;
  return false;
}

std::optional<ScheduleEvent> take_event(Fields& fields) {
  ScheduleEvent event;
  const auto kind = fields.number<std::uint8_t>();
  if (kind > last_event_kind) return std::nullopt;
  event.kind = static_cast<ScheduleEvent::Kind>(kind);
  event.at = fields.time();
  event.key.due = fields.time();
  event.key.sequence = fields.number<Sequence>();
  event.first = fields.time();
  event.offset = fields.number<Offset>();
  return event;
}

// The last events, each where it was reported last: a replay reports some again, and all after
// them.
class IdMerge final : public rocksdb::AssociativeMergeOperator {
 public:
  bool Merge(const rocksdb::Slice&, const rocksdb::Slice* before, const rocksdb::Slice& more,
             std::string* out, rocksdb::Logger*) const override {
    const Bytes known = before != nullptr ? bytes_of(*before) : Bytes();
    Bytes added = bytes_of(more);
    if (!are_events(known) || !are_events(added)) return false;
    out->clear();
    out->reserve(known.size() + added.size());
    const auto append_unless_in = [out](Bytes later, Bytes event) {
      if (!has_event(later, event)) out->append(as_text(event));
    };
    for (Bytes left = known; !left.empty(); left = left.subspan(event_bytes))
      append_unless_in(added, left.first(event_bytes));
    for (; !added.empty(); added = added.subspan(event_bytes))
      append_unless_in(added.subspan(event_bytes), added.first(event_bytes));
    // A row that grew with every schedule of its id would make each merge dearer.
    constexpr std::size_t max_bytes = max_id_events * event_bytes;
    if (out->size() > max_bytes) out->erase(0, out->size() - max_bytes);
    return true;
  }
  const char* Name() const override { return "tarry.events"; }
};

}  // namespace

void put(Buffer& out, const Bucket& bucket) {
  out.push_back(static_cast<std::uint8_t>(bucket.level));
  put_ordered(out, bucket.start);
}

void put(Buffer& out, const JournalPlace& place) {
  append_be(out, place.epoch);
  append_be(out, place.lsn);
  append_be(out, place.operation);
}

Buffer chunk_key(const Owner& owner, const ChunkKey& key) {
  Buffer out;
  put_owner(out, owner);
  put_chunk_key(out, key);
  return out;
}

Buffer chunk_row_key(const Owner& owner, const ChunkKey& key) {
  Buffer out = one(row::chunk);
  append_bytes(out, chunk_key(owner, key));
  return out;
}

Buffer chunk_row_value(const ChunkRow& row) {
  Buffer out;
  append_be(out, row.last);
  append_be(out, row.entries);
  append_be(out, row.bytes);
  return out;
}

std::optional<std::pair<Owner, ChunkRow>> decode_chunk_row(Bytes key, Bytes value) {
  Fields names(key), fields(value);
  names.number<std::uint8_t>();
  Owner owner;
  owner.shards = names.number<std::uint16_t>();
  owner.shard = names.number<std::uint16_t>();
  const auto chunk = take_chunk_key(names);
  if (!chunk) return std::nullopt;
  ChunkRow out;
  out.key = *chunk;
  out.last = fields.number<Sequence>();
  out.entries = fields.number<std::uint32_t>();
  out.bytes = fields.number<std::uint32_t>();
  if (!names.good() || !fields.good()) return std::nullopt;
  return std::pair(owner, out);
}

Buffer chunk_rows_from(const Owner& owner, const Bucket& bucket) {
  Buffer out = one(row::chunk);
  put_owner(out, owner);
  put(out, bucket);
  return out;
}

Buffer home_key(char kind, std::uint16_t shard, const Bucket& home) {
  Buffer out = one(kind);
  append_be(out, shard);
  put(out, home);
  return out;
}

std::optional<std::pair<std::uint16_t, Bucket>> decode_home_key(Bytes key) {
  Fields fields(key);
  fields.number<std::uint8_t>();
  const auto shard = fields.number<std::uint16_t>();
  const auto home = take_bucket(fields);
  if (!home || !fields.good()) return std::nullopt;
  return std::pair(shard, *home);
}

Buffer place_value(const PlaceRow& row) {
  Buffer out;
  put(out, row.place);
  append_be(out, row.shards);
  for (const auto& key : row.unfinished) put_chunk_key(out, key);
  return out;
}

std::optional<PlaceRow> decode_place(Bytes value) {
  Fields fields(value);
  PlaceRow out;
  out.place = take_place(fields);
  out.shards = fields.number<std::uint16_t>();
  // The number of unfinished chunks is not written down: they go up to the end of the row.
  while (fields.whole() && !fields.good()) {
    const auto key = take_chunk_key(fields);
    if (!key) return std::nullopt;
    out.unfinished.push_back(*key);
  }
  if (!fields.good()) return std::nullopt;
  return out;
}

Buffer gone_rows_from(const Bucket& home) {
  Buffer out = one(row::gone);
  put(out, home);
  return out;
}

Buffer gone_key(const Bucket& home, const JournalPlace& place, std::uint16_t shard) {
  Buffer out = gone_rows_from(home);
  put(out, place);
  append_be(out, shard);
  return out;
}

std::uint16_t gone_shard(Bytes key) {
  return load_be<std::uint16_t>(key.last(2).data());
}

std::uint32_t gone_epoch(Bytes key) {
  return load_be<std::uint32_t>(key.last(18).data());
}

Buffer gone_value(std::vector<Sequence> gone) {
  std::ranges::sort(gone);
  // A record counts once, however often it was marked.
  gone.erase(std::ranges::unique(gone).begin(), gone.end());
  // The checksum has its place here; a mark that is lost would bring a record back.
  Buffer out(4);
  append_be(out, static_cast<std::uint32_t>(gone.size()));
  Sequence before = 0;
  for (const Sequence sequence : gone) {
    for (auto delta = sequence - before;; delta >>= 7) {
      if (delta < 0x80) {
        out.push_back(static_cast<std::uint8_t>(delta));
        break;
      }
      out.push_back(static_cast<std::uint8_t>(delta | 0x80));
    }
    before = sequence;
  }
  store_be(out.data(), crc32c(Bytes(out).subspan(4)));
  return out;
}

bool Marks::add(Bytes key, Bytes value) {
  if (key.size() != gone_key_bytes || value.size() < 8 ||
      load_be<std::uint32_t>(value.data()) != crc32c(value.subspan(4)))
    return false;
  Fields names(key.last(18));
  const JournalPlace place = take_place(names);
  auto count = load_be<std::uint32_t>(value.data() + 4);
  std::size_t at = 8;
  Sequence sequence = 0;
  std::size_t next = 0;  // The first of wanted_ that is not smaller than the last number.
  const auto is_wanted = [&] {
    if (!wanted_) return true;
    // Few steps where both are dense, and a search where they are not.
    constexpr std::size_t few = 8;
    const Wanted& wanted = *wanted_;
    for (std::size_t i = 0; i < few && next < wanted.size() && wanted[next] < sequence; ++i) ++next;
    if (next < wanted.size() && wanted[next] < sequence) {
      const auto from = wanted.begin() + static_cast<std::ptrdiff_t>(next);
      next += static_cast<std::size_t>(std::lower_bound(from, wanted.end(), sequence) - from);
    }
    return next < wanted.size() && wanted[next] == sequence;
  };
  for (; count > 0; --count) {
    std::uint64_t delta = 0;
    for (int shift = 0;; shift += 7) {
      // More bytes than a number has would shift past its end.
      if (at == value.size() || shift > 63) return false;
      const std::uint8_t byte = value[at++];
      delta |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    sequence += delta;
    if (is_wanted()) marks_.push_back({sequence, place});
  }
  // Bytes after the last number mean that the count is wrong.
  return at == value.size();
}

void Marks::finish() {
  wanted_.reset();
  std::ranges::sort(marks_, [](const Mark& a, const Mark& b) {
    return a.sequence != b.sequence ? a.sequence < b.sequence : b.place < a.place;
  });
  // The newest mark applies to the most chunks, so it alone is kept.
  marks_.erase(std::ranges::unique(marks_, {}, &Mark::sequence).begin(), marks_.end());
}

Buffer forward_key(const PendingKey& handle) {
  Buffer out = one(row::forward);
  put_ordered(out, handle.due);
  append_be(out, handle.sequence);
  return out;
}

Buffer count_key(const TopicId& topic, const Bucket& home) {
  Buffer out;
  put(out, topic);
  put(out, home);
  return out;
}

std::optional<Bucket> decode_count_key(Bytes key) {
  Fields fields(key);
  fields.topic();
  const auto home = take_bucket(fields);
  return fields.good() ? home : std::nullopt;
}

Buffer total_key(const TopicId& topic) {
  Buffer out;
  put(out, topic);
  out.push_back(total_mark);
  return out;
}

Buffer use_key(const TopicId& topic, PrincipalId principal, UseKind kind) {
  Buffer out = total_key(topic);
  append_be(out, principal);
  out.push_back(static_cast<std::uint8_t>(kind));
  return out;
}

std::optional<UseKey> decode_use_key(Bytes key) {
  Fields fields(key);
  fields.topic();
  const auto mark = fields.number<std::uint8_t>();
  const auto principal = fields.number<PrincipalId>();
  const auto kind = static_cast<UseKind>(fields.number<std::uint8_t>());
  const bool is_known = kind == UseKind::records || kind == UseKind::bytes;
  if (!fields.good() || mark != total_mark || !is_known) return std::nullopt;
  return UseKey{principal, kind};
}

Buffer id_row_key(const TopicPartition& partition, std::string_view id) {
  Buffer out;
  put_id_row_key(out, partition, id);
  return out;
}

void put_id_row_key(Buffer& out, const TopicPartition& partition, std::string_view id) {
  put(out, partition);
  append_bytes(out, as_bytes(id));
}

Buffer encode_events(std::span<const ScheduleEvent> events) {
  Buffer out;
  out.reserve(events.size() * event_bytes);
  put_events(out, events);
  return out;
}

void put_events(Buffer& out, std::span<const ScheduleEvent> events) {
  for (const auto& event : events) {
    out.push_back(static_cast<std::uint8_t>(event.kind));
    put(out, event.at);
    put(out, event.key.due);
    append_be(out, event.key.sequence);
    put(out, event.first);
    append_be(out, event.offset);
  }
}

std::optional<ScheduleEvent> decode_last_event(Bytes value) {
  if (value.empty() || value.size() % event_bytes != 0) return std::nullopt;
  Fields fields(value.last(event_bytes));
  return take_event(fields);
}

std::optional<std::vector<ScheduleEvent>> decode_events(Bytes value) {
  if (value.size() % event_bytes != 0) return std::nullopt;
  std::vector<ScheduleEvent> out;
  Fields fields(value);
  for (auto left = value.size() / event_bytes; left > 0; --left) {
    const auto event = take_event(fields);
    if (!event) return std::nullopt;
    out.push_back(*event);
  }
  return out;
}

std::shared_ptr<rocksdb::MergeOperator> count_merge() {
  return std::make_shared<CountMerge>();
}
std::shared_ptr<rocksdb::MergeOperator> id_merge() {
  return std::make_shared<IdMerge>();
}

}  // namespace tarry::storage
