#include "storage/pending_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/assert.h"
#include "base/glob.h"
#include "base/log.h"
#include "storage/database.h"
#include "storage/fields.h"
#include "storage/rocks.h"

namespace tarry::storage {
namespace {

// Keys of the family `counts`, by their first byte.
constexpr char count_mark = 'c';             // c topic 16 -> u64: what is pending in it
constexpr char dropped_mark = 'd';           // d topic 16 -> nothing: its entries are garbage
constexpr std::string_view floor_key = "f";  // -> entry key: nothing is pending below
constexpr char move_mark = 'm';              // m entry key that it had first -> entry key
constexpr char before_moves = 'l';

// In the length of an entry's id: the first due time stands before the id.
constexpr std::uint16_t was_moved = 0x8000;

constexpr std::uint8_t id_is_pending = 0;  // Else the RemovalReason of its end.

constexpr PendingKey first_key{WallTime::min(), 0};
constexpr PendingKey last_key{WallTime::max(), std::numeric_limits<Sequence>::max()};

using Topics = std::unordered_set<TopicId>;

// The next possible key: sequence numbers never reach their largest value.
PendingKey behind(PendingKey key) {
  return {key.due, key.sequence + 1};
}

// Signed milliseconds, so that their order as bytes is theirs.
Buffer entry_key(PendingKey key) {
  Buffer out;
  append_be(out, static_cast<std::uint64_t>(to_ms(key.due)) ^ (std::uint64_t{1} << 63));
  append_be(out, key.sequence);
  return out;
}

PendingKey take_entry_key(Fields& fields) {
  const auto due = fields.number<std::uint64_t>() ^ (std::uint64_t{1} << 63);
  return {from_ms(static_cast<std::int64_t>(due)), fields.number<std::uint64_t>()};
}

Buffer entry_value(const PendingAdded& parked) {
  Buffer out;
  out.reserve(38 + parked.id.size() + parked.record.size());
  put(out, parked.partition);
  put(out, parked.accepted);
  put(out, parked.expires);
  if (parked.first_due) {
    append_be(out, static_cast<std::uint16_t>(parked.id.size() | was_moved));
    put(out, *parked.first_due);
    append_bytes(out, as_bytes(parked.id));
  } else {
    put_short(out, parked.id);
  }
  append_bytes(out, parked.record);
  return out;
}

// The fields of an entry, as views of its value.
struct EntryView {
  PendingKey key;
  TopicPartition partition;
  WallTime accepted;
  WallTime expires;
  WallTime first_due;
  std::string_view id;
  Bytes record;

  PendingRecord owned() const {
    return {key,      partition,       accepted,
            expires,  std::string(id), Buffer(record.begin(), record.end()),
            first_due};
  }
  // Where its row of `moves` is; empty: it has none.
  std::optional<PendingKey> moved_from() const {
    if (first_due == key.due) return std::nullopt;
    return PendingKey{first_due, key.sequence};
  }
  PendingLocator locator() const {
    return {key, partition, expires, static_cast<std::uint32_t>(record.size()), !id.empty()};
  }
};

std::optional<EntryView> decode_entry(Bytes key, Bytes value) {
  Fields key_fields(key), fields(value);
  EntryView out;
  out.key = take_entry_key(key_fields);
  out.partition = fields.partition();
  out.accepted = fields.time();
  out.expires = fields.time();
  const auto length = fields.number<std::uint16_t>();
  out.first_due = (length & was_moved) != 0 ? fields.time() : out.key.due;
  out.id = as_text(fields.take(length & ~was_moved));
  out.record = fields.rest();
  if (!key_fields.good() || !fields.good()) return std::nullopt;
  return out;
}

Buffer move_key(PendingKey first) {
  Buffer out{static_cast<std::uint8_t>(move_mark)};
  append_bytes(out, entry_key(first));
  return out;
}

Buffer id_key(const TopicPartition& partition, std::string_view id) {
  Buffer out;
  put(out, partition);
  append_bytes(out, as_bytes(id));
  return out;
}

struct IdRow {
  std::uint8_t state = id_is_pending;
  PendingKey key;
  WallTime ended;  // Unless it is pending.
  std::vector<IdEvent> events;

  // Replay brings what is there already.
  void note(const IdEvent& event) {
    const auto kind = [](const IdEvent& one) {
      return one.kind == IdEvent::Kind::replaced ? IdEvent::Kind::scheduled : one.kind;
    };
    const auto same = [&](const IdEvent& one) {
      return kind(one) == kind(event) && one.at == event.at && one.due == event.due;
    };
    if (std::ranges::any_of(events, same)) return;
    if (events.size() == max_id_events) events.erase(events.begin());
    events.push_back(event);
  }
};

Buffer encode(const IdRow& row) {
  Buffer out;
  out.push_back(row.state);
  put(out, row.key.due);
  append_be(out, row.key.sequence);
  if (row.state != id_is_pending) put(out, row.ended);
  for (const IdEvent& event : row.events) {
    out.push_back(static_cast<std::uint8_t>(event.kind));
    put(out, event.at);
    put(out, event.due);
    append_be(out, event.offset);
  }
  return out;
}

std::optional<IdRow> decode_id(Bytes value) {
  Fields fields(value);
  IdRow row;
  row.state = fields.number<std::uint8_t>();
  row.key.due = fields.time();
  row.key.sequence = fields.number<Sequence>();
  if (row.state != id_is_pending) row.ended = fields.time();
  while (fields.whole() && !fields.at_end()) {
    const auto kind = static_cast<IdEvent::Kind>(fields.number<std::uint8_t>());
    row.events.push_back({kind, fields.time(), fields.time(), fields.number<Offset>()});
    if (kind > IdEvent::Kind::moved || row.events.size() > max_id_events) return std::nullopt;
  }
  if (!fields.good() || row.state > static_cast<std::uint8_t>(RemovalReason::expired))
    return std::nullopt;
  return row;
}

Buffer topic_key(char mark, const TopicId& topic) {
  Buffer out{static_cast<std::uint8_t>(mark)};
  put(out, topic);
  return out;
}

std::unexpected<Error> bad_row(const std::string& directory, std::string_view family, Bytes key) {
  return fail(Errc::corrupt,
              fmt::format("database {}: a row of {} is malformed (key {}); restore the whole data "
                          "directory from a copy",
                          directory, family, printable(as_text(key))));
}

// What compaction may let go.  Read by RocksDB's threads, and by every reader for the topics.
class PendingGarbage final : public Garbage {
 public:
  explicit PendingGarbage(std::chrono::milliseconds remember) : remember_(remember) {
    dropped.store(std::make_shared<const Topics>());
  }

  bool is_dead_entry(rocksdb::Slice key, rocksdb::Slice value) const override {
    const auto topics = dropped.load();
    if (topics->empty()) return false;
    const auto entry = decode_entry(bytes_of(key), bytes_of(value));
    // sweep() removes one that was moved, with its row of `moves`.
    return entry && !entry->moved_from() && topics->contains(entry->partition.topic);
  }
  bool is_dead_id(rocksdb::Slice, rocksdb::Slice value) const override {
    const auto row = decode_id(bytes_of(value));
    return row && is_forgotten(*row, from_ms(swept_at.load()));
  }
  bool is_forgotten(const IdRow& row, WallTime now) const {
    return row.state != id_is_pending && now >= row.ended && now - row.ended >= remember_;
  }

  AtomicSnapshot<Topics> dropped;
  std::atomic<std::int64_t> swept_at{0};  // Wall ms of the last sweep().

 private:
  const std::chrono::milliseconds remember_;
};

}  // namespace

struct PendingStore::Impl {
  class Applying;

  Impl(Rocks& where, const Limits& bounds)
      : rocks(where), limits(bounds), garbage(std::make_shared<PendingGarbage>(bounds.remember)) {}

  Rocks& rocks;
  const Limits limits;
  const std::shared_ptr<PendingGarbage> garbage;

  // Guards what follows and makes "is it there?  then write" one step.
  mutable std::mutex mutex;
  std::unordered_map<TopicId, std::uint64_t> counts;  // None is 0.
  std::uint64_t total = 0;
  // Nothing is pending below `floor`.  It moves up when somebody has looked (see first_entry()) and
  // down when a record is added below; `floor_written` is what the database says.
  PendingKey floor = first_key;
  PendingKey floor_written = first_key;
  bool looking = false;               // Somebody looks for the first entry,
  PendingKey parked_since{last_key};  // and this is the smallest key parked since he began.

  // sweep()'s alone: where it goes on, and which topics it looks for on this way through.
  std::mutex sweep_mutex;  // Taken before `mutex`.
  PendingKey sweep_from = first_key;
  Topics sweeping;

  Result<> load();
  Result<PendingFirst> first_entry(std::size_t limit);
  bool is_dropped(const TopicId& topic) const { return garbage->dropped.load()->contains(topic); }
  std::unexpected<Error> bad(std::string_view family, Bytes key) const {
    return bad_row(rocks.directory, family, key);
  }
  Result<std::optional<IdRow>> id_row(const Buffer& key) const;
  void put_floor(rocksdb::WriteBatch& batch);

  // Calls `take` for the entries of [from, until) whose topics exist; `take` returns whether to
  // continue.  Looks at `limit` entries at most.  Returns where it stopped; empty: at the end.
  template <typename Take>
  Result<std::optional<PendingKey>> scan(PendingKey from, PendingKey until, std::size_t limit,
                                         Take take);
};

PendingStore::PendingStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

PendingStore::~PendingStore() {
  impl_->rocks.garbage->garbage.store(nullptr);
}

Result<std::unique_ptr<PendingStore>> PendingStore::open(Database& pending) {
  return open(pending, Limits());
}

Result<std::unique_ptr<PendingStore>> PendingStore::open(Database& pending, const Limits& limits) {
  auto impl = std::make_unique<Impl>(pending.rocks(), limits);
  if (const auto loaded = impl->load(); !loaded) return std::unexpected(loaded.error());
  pending.rocks().garbage->garbage.store(impl->garbage);
  return std::unique_ptr<PendingStore>(new PendingStore(std::move(impl)));
}

Result<> PendingStore::Impl::load() {
  Topics dropped;
  BoundedIterator at(rocks, pending_family::counts, {}, Buffer(1, before_moves));
  for (at.seek_to_first(); at.valid(); at.next()) {
    Fields key(at.key()), value(at.value());
    const char mark = static_cast<char>(key.number<std::uint8_t>());
    if (mark == count_mark) {
      const TopicId topic = key.topic();
      const auto count = value.number<std::uint64_t>();
      counts.emplace(topic, count);
      total += count;
    } else if (mark == dropped_mark) {
      dropped.insert(key.topic());
    } else if (mark == floor_key.front()) {
      floor = floor_written = take_entry_key(value);
    } else {
      return bad("counts", at.key());
    }
    if (!key.good() || !value.good()) return bad("counts", at.key());
  }
  garbage->dropped.store(std::make_shared<const Topics>(std::move(dropped)));
  return at.status();
}

Result<std::optional<IdRow>> PendingStore::Impl::id_row(const Buffer& key) const {
  rocksdb::PinnableSlice value;
  const auto found = rocks.get(pending_family::ids, slice(key), value);
  if (!found) return std::unexpected(found.error());
  if (!*found) return std::nullopt;
  auto row = decode_id(bytes_of(value));
  if (!row) return bad("ids", key);
  return row;
}

void PendingStore::Impl::put_floor(rocksdb::WriteBatch& batch) {
  if (floor == floor_written) return;
  batch.Put(rocks.family(pending_family::counts), slice(as_bytes(floor_key)),
            slice(entry_key(floor)));
  floor_written = floor;
}

// The changes of one apply(), under the mutex.  A look into the database does not show what the
// same call has put into its batch, so that is kept beside it.
class PendingStore::Impl::Applying {
 public:
  explicit Applying(Impl& store) : store_(store) {}

  Result<> add(const PendingAdded& added);
  Result<> remove(const PendingRemoved& removed);
  Result<> write();

 private:
  // An entry that this call finds, or has put into its batch.
  struct Entry {
    bool there = false;
    std::optional<PendingKey> moved_from{};
  };
  Result<Entry> find(PendingKey key, const Buffer& bytes);
  void end_row(const PendingRemoved& removed, const Buffer& name, IdRow row);
  Result<std::optional<IdRow>> row_of(const Buffer& name);
  void put_row(const Buffer& name, IdRow row);
  Result<> put_counts();
  void set_counts();

  Impl& store_;
  const std::shared_ptr<const Topics> dropped_ = store_.garbage->dropped.load();
  Family* const entries_ = store_.rocks.family(pending_family::entries);
  Family* const ids_ = store_.rocks.family(pending_family::ids);
  Family* const counts_family_ = store_.rocks.family(pending_family::counts);
  rocksdb::WriteBatch batch_;
  rocksdb::PinnableSlice value_;
  // The rows that this call has put into its batch; the database does not show them yet.
  std::map<PendingKey, Entry> there_;
  std::map<Buffer, IdRow> rows_;
  std::map<TopicId, std::int64_t> changes_;
  std::vector<std::pair<TopicId, std::uint64_t>> counts_;
};

Result<PendingStore::Impl::Applying::Entry> PendingStore::Impl::Applying::find(
    PendingKey key, const Buffer& bytes) {
  if (const auto written = there_.find(key); written != there_.end()) return written->second;
  const auto found = store_.rocks.get(pending_family::entries, slice(bytes), value_);
  if (!found) return std::unexpected(found.error());
  if (!*found) return Entry{};
  const auto entry = decode_entry(bytes, bytes_of(value_));
  if (!entry) return store_.bad("entries", bytes);
  return Entry{true, entry->moved_from()};
}

Result<std::optional<IdRow>> PendingStore::Impl::Applying::row_of(const Buffer& name) {
  if (const auto written = rows_.find(name); written != rows_.end()) return written->second;
  return store_.id_row(name);
}

void PendingStore::Impl::Applying::put_row(const Buffer& name, IdRow row) {
  batch_.Put(ids_, slice(name), slice(encode(row)));
  rows_.insert_or_assign(name, std::move(row));
}

Result<> PendingStore::Impl::Applying::add(const PendingAdded& added) {
  if (dropped_->contains(added.partition.topic)) return {};
  const PendingKey key{added.due, added.sequence};
  const Buffer bytes = entry_key(key);
  const auto known = find(key, bytes);
  if (!known) return std::unexpected(known.error());
  Entry entry{true};
  if (added.first_due && *added.first_due != added.due) {
    // Also when the entry is there: a replay of former moves has taken the row away.
    entry.moved_from = PendingKey{*added.first_due, added.sequence};
    batch_.Put(counts_family_, slice(move_key(*entry.moved_from)), slice(bytes));
  }
  if (!known->there) {
    batch_.Put(entries_, slice(bytes), slice(entry_value(added)));
    there_.insert_or_assign(key, entry);
    ++changes_[added.partition.topic];
    if (key < store_.floor) store_.floor = key;
    if (key < store_.parked_since) store_.parked_since = key;
  }
  if (added.id.empty()) return {};
  const Buffer name = id_key(added.partition, added.id);
  const auto row = row_of(name);
  if (!row) return std::unexpected(row.error());
  // When an id was given again the latest record counts, in whatever order replay brings them.
  if (*row && (*row)->key.sequence > added.sequence) return {};
  IdRow next = row->value_or(IdRow{});
  const bool replaces = *row && (*row)->key.sequence < added.sequence &&
                        (*row)->state == static_cast<std::uint8_t>(RemovalReason::replaced);
  if (!added.first_due) {
    next.note(
        {replaces ? IdEvent::Kind::replaced : IdEvent::Kind::scheduled, added.accepted, added.due});
  }
  next.state = id_is_pending;
  next.key = key;
  put_row(name, std::move(next));
  return {};
}

Result<> PendingStore::Impl::Applying::remove(const PendingRemoved& removed) {
  if (removed.how < RemovalReason::delivered || removed.how > RemovalReason::moved) {
    return fail(Errc::corrupt,
                fmt::format("a journal record removes pending record {} for the unknown "
                            "reason {}",
                            removed.sequence, static_cast<int>(removed.how)));
  }
  if (dropped_->contains(removed.partition.topic)) return {};
  const PendingKey key{removed.due, removed.sequence};
  const Buffer bytes = entry_key(key);
  const auto known = find(key, bytes);
  if (!known) return std::unexpected(known.error());
  if (known->there) {
    batch_.Delete(entries_, slice(bytes));
    if (known->moved_from) batch_.Delete(counts_family_, slice(move_key(*known->moved_from)));
    there_.insert_or_assign(key, Entry{});
    --changes_[removed.partition.topic];
  }
  if (removed.id.empty()) return {};
  const Buffer name = id_key(removed.partition, removed.id);
  auto row = row_of(name);
  if (!row) return std::unexpected(row.error());
  // A record that never waited has no row before its end.
  if (!*row || (*row)->key.sequence < removed.sequence ||
      ((*row)->key == key && (*row)->state == id_is_pending))
    end_row(removed, name, row->value_or(IdRow{}));
  return {};
}

// The row of an id whose record is removed.  One that is moved is pending on: what puts it where it
// goes follows.
void PendingStore::Impl::Applying::end_row(const PendingRemoved& removed, const Buffer& name,
                                           IdRow row) {
  // The record that replaces it says so, with its due time.
  if (removed.how != RemovalReason::replaced) {
    row.note({static_cast<IdEvent::Kind>(removed.how), removed.at,
              removed.moved_to.value_or(removed.due), removed.offset});
  }
  row.key = {removed.due, removed.sequence};
  if (removed.how != RemovalReason::moved) {
    row.state = static_cast<std::uint8_t>(removed.how);
    row.ended = removed.at;
  }
  put_row(name, std::move(row));
}

// The topics' new counts go into the batch, and are said once it is written.
Result<> PendingStore::Impl::Applying::put_counts() {
  for (const auto& [topic, change] : changes_) {
    if (change == 0) continue;
    const auto at = store_.counts.find(topic);
    const std::uint64_t before = at == store_.counts.end() ? 0 : at->second;
    const std::uint64_t now = before + static_cast<std::uint64_t>(change);
    const Buffer key = topic_key(count_mark, topic);
    if (change < 0 && now >= before) return store_.bad("counts", key);
    Buffer bytes;
    append_be(bytes, now);
    if (now == 0)
      batch_.Delete(counts_family_, slice(key));
    else
      batch_.Put(counts_family_, slice(key), slice(bytes));
    counts_.emplace_back(topic, now);
  }
  return {};
}

void PendingStore::Impl::Applying::set_counts() {
  for (const auto& [topic, now] : counts_) {
    std::uint64_t& count = store_.counts[topic];
    store_.total += now - count;
    count = now;
    if (now == 0) store_.counts.erase(topic);
  }
}

Result<> PendingStore::Impl::Applying::write() {
  if (auto put = put_counts(); !put) return put;
  store_.put_floor(batch_);
  if (auto written = store_.rocks.write(batch_); !written) return written;
  set_counts();
  return {};
}

Result<> PendingStore::apply(std::span<const Operation> operations) {
  const std::lock_guard lock(impl_->mutex);
  Impl::Applying applying(*impl_);
  for (const Operation& operation : operations) {
    if (const auto* added = std::get_if<PendingAdded>(&operation)) {
      if (auto done = applying.add(*added); !done) return done;
    } else if (const auto* removed = std::get_if<PendingRemoved>(&operation)) {
      if (auto done = applying.remove(*removed); !done) return done;
    }
  }
  return applying.write();
}

Result<> PendingStore::drop_topic(const TopicId& topic) {
  Impl& in = *impl_;
  const std::lock_guard lock(in.mutex);
  auto dropped = *in.garbage->dropped.load();
  dropped.insert(topic);

  rocksdb::WriteBatch batch;
  Family* const counts = in.rocks.family(pending_family::counts);
  batch.Put(counts, slice(topic_key(dropped_mark, topic)), rocksdb::Slice());
  batch.Delete(counts, slice(topic_key(count_mark, topic)));
  batch.DeleteRange(in.rocks.family(pending_family::ids), slice(topic.bytes),
                    slice(behind_prefix(topic.bytes)));
  if (const auto written = in.rocks.write(batch); !written) return written;

  if (const auto at = in.counts.find(topic); at != in.counts.end()) {
    in.total -= at->second;
    in.counts.erase(at);
  }
  in.garbage->dropped.store(std::make_shared<const Topics>(std::move(dropped)));
  return {};
}

template <typename Take>
Result<std::optional<PendingKey>> PendingStore::Impl::scan(PendingKey from, PendingKey until,
                                                           std::size_t limit, Take take) {
  if (!(from < until)) return std::nullopt;
  {
    const std::lock_guard lock(mutex);
    from = std::max(from, floor);
  }
  BoundedIterator at(rocks, pending_family::entries, entry_key(from), entry_key(until));
  const auto dropped = garbage->dropped.load();
  std::size_t looked_at = 0;
  for (at.seek_to_first(); at.valid(); at.next()) {
    const auto entry = decode_entry(at.key(), at.value());
    if (!entry) return bad("entries", at.key());
    const bool goes_on = dropped->contains(entry->partition.topic) || take(*entry);
    if (!goes_on || ++looked_at >= limit) return entry->key;
  }
  if (const auto status = at.status(); !status) return std::unexpected(status.error());
  return std::nullopt;
}

Result<PendingWindow> PendingStore::window(PendingKey from, WallTime until, std::size_t limit) {
  PendingWindow out;
  const auto stopped = impl_->scan(from, {until, 0}, limit, [&](const EntryView& entry) {
    out.locators.push_back(entry.locator());
    return true;
  });
  if (!stopped) return std::unexpected(stopped.error());
  if (*stopped) out.next = behind(**stopped);
  return out;
}

Result<std::vector<std::optional<PendingRecord>>> PendingStore::read(
    std::span<const PendingKey> keys) {
  const Impl& in = *impl_;
  std::vector<Buffer> bytes;
  std::vector<rocksdb::Slice> slices;
  bytes.reserve(keys.size());
  slices.reserve(keys.size());
  for (const PendingKey key : keys) {
    bytes.push_back(entry_key(key));
    slices.push_back(slice(bytes.back()));
  }
  std::vector<rocksdb::PinnableSlice> values(keys.size());
  std::vector<rocksdb::Status> statuses(keys.size());
  in.rocks.db->MultiGet(rocksdb::ReadOptions(), in.rocks.family(pending_family::entries),
                        keys.size(), slices.data(), values.data(), statuses.data());

  std::vector<std::optional<PendingRecord>> out(keys.size());
  const auto dropped = in.garbage->dropped.load();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (statuses[i].IsNotFound()) continue;
    if (!statuses[i].ok()) return std::unexpected(rocks_error(statuses[i], in.rocks.directory));
    const auto entry = decode_entry(bytes[i], bytes_of(values[i]));
    if (!entry) return in.bad("entries", bytes[i]);
    if (!dropped->contains(entry->partition.topic)) out[i] = entry->owned();
  }
  return out;
}

Result<std::optional<PendingRecord>> PendingStore::get(PendingKey key) {
  auto records = read(std::span(&key, 1));
  if (!records) return std::unexpected(records.error());
  return std::move(records->front());
}

Result<IdState> PendingStore::find_id(const TopicPartition& partition, std::string_view id,
                                      WallTime now) {
  const auto row = impl_->id_row(id_key(partition, id));
  if (!row) return std::unexpected(row.error());
  if (!*row || impl_->is_dropped(partition.topic)) return IdUnknown{};
  const IdRow& found = **row;
  if (found.state == id_is_pending) return IdPending{found.key};
  if (impl_->garbage->is_forgotten(found, now)) return IdUnknown{};
  return IdEnded{static_cast<RemovalReason>(found.state), found.ended, found.key};
}

Result<PendingKey> PendingStore::current_key(PendingKey first) {
  rocksdb::PinnableSlice value;
  const Buffer key = move_key(first);
  const auto found = impl_->rocks.get(pending_family::counts, slice(key), value);
  if (!found) return std::unexpected(found.error());
  if (!*found) return first;
  Fields fields(bytes_of(value));
  const PendingKey current = take_entry_key(fields);
  if (!fields.good()) return impl_->bad("counts", key);
  return current;
}

Result<std::vector<IdEvent>> PendingStore::trace(const TopicPartition& partition,
                                                 std::string_view id, WallTime now) {
  auto row = impl_->id_row(id_key(partition, id));
  if (!row) return std::unexpected(row.error());
  if (!*row || impl_->is_dropped(partition.topic) || impl_->garbage->is_forgotten(**row, now))
    return std::vector<IdEvent>();
  return std::move((*row)->events);
}

Result<PendingPage> PendingStore::list(const PendingQuery& query) {
  PendingPage page;
  if (query.limit == 0) return page;
  PendingKey from{query.from, 0};
  if (query.after) from = std::max(from, behind(*query.after));
  const Limits& limits = impl_->limits;
  std::size_t bytes = 0;
  const auto take = [&](const EntryView& entry) {
    const bool fits = (!query.topic || entry.partition.topic == *query.topic) &&
                      (!query.partition || entry.partition.partition == *query.partition) &&
                      (query.id.empty() || (!entry.id.empty() && matches_glob(query.id, entry.id)));
    if (fits) {
      bytes += entry.record.size();
      page.records.push_back(entry.owned());
    }
    return page.records.size() < query.limit && bytes < limits.bytes_per_page;
  };
  const auto stopped = impl_->scan(from, {query.until, 0}, limits.scanned_per_page, take);
  if (!stopped) return std::unexpected(stopped.error());
  page.next = *stopped;
  return page;
}

std::vector<TopicId> PendingStore::topics() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<TopicId> out;
  for (const auto& [topic, count] : impl_->counts) out.push_back(topic);
  return out;
}

std::uint64_t PendingStore::pending_of(const TopicId& topic) const {
  const std::lock_guard lock(impl_->mutex);
  const auto at = impl_->counts.find(topic);
  return at == impl_->counts.end() ? 0 : at->second;
}

std::uint64_t PendingStore::total() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->total;
}

Result<PendingFirst> PendingStore::Impl::first_entry(std::size_t limit) {
  bool moves_floor = false;
  {
    const std::lock_guard lock(mutex);
    // One at a time moves it, for parked_since counts from the start of one look.
    if (!looking) {
      looking = moves_floor = true;
      parked_since = last_key;
    }
  }
  std::optional<PendingKey> first;
  const auto stopped = scan(first_key, last_key, limit, [&](const EntryView& entry) {
    first = entry.key;
    return false;
  });
  if (moves_floor) {
    const std::lock_guard lock(mutex);
    looking = false;
    // What dropped topics left below is freed by sweep(), which does not start at the floor.
    if (stopped) {
      const PendingKey seen = first ? *first : *stopped ? behind(**stopped) : last_key;
      floor = std::min(seen, parked_since);
    }
  }
  if (!stopped) return std::unexpected(stopped.error());
  if (first) return PendingFirst{true, first->due};
  return PendingFirst{!*stopped, std::nullopt};
}

Result<PendingFirst> PendingStore::next_due() {
  return impl_->first_entry(impl_->limits.scanned_per_page);
}

Result<bool> PendingStore::sweep(WallTime now, std::size_t limit) {
  Impl& in = *impl_;
  in.garbage->swept_at.store(to_ms(now));
  if (const auto first = in.first_entry(limit); !first) return std::unexpected(first.error());

  const std::lock_guard one_at_a_time(in.sweep_mutex);
  rocksdb::WriteBatch batch;
  bool all_the_way = false;
  if (in.sweeping.empty()) {
    in.sweeping = *in.garbage->dropped.load();
    in.sweep_from = first_key;
  }
  // No lock: no other code writes entries of these topics any more.
  if (!in.sweeping.empty()) {
    BoundedIterator at(in.rocks, pending_family::entries, entry_key(in.sweep_from),
                       entry_key(last_key));
    std::size_t looked_at = 0;
    for (at.seek_to_first(); at.valid() && looked_at < limit; at.next(), ++looked_at) {
      const auto entry = decode_entry(at.key(), at.value());
      if (!entry) return in.bad("entries", at.key());
      in.sweep_from = behind(entry->key);
      if (!in.sweeping.contains(entry->partition.topic)) continue;
      batch.Delete(in.rocks.family(pending_family::entries), slice(at.key()));
      if (const auto first = entry->moved_from())
        batch.Delete(in.rocks.family(pending_family::counts), slice(move_key(*first)));
    }
    if (!at.valid()) {
      if (const auto status = at.status(); !status) return std::unexpected(status.error());
      all_the_way = true;
    }
  }

  const std::lock_guard lock(in.mutex);
  auto dropped = *in.garbage->dropped.load();
  if (all_the_way) {  // Nothing of these is left, and nothing comes after a drop.
    for (const TopicId& topic : in.sweeping) {
      batch.Delete(in.rocks.family(pending_family::counts), slice(topic_key(dropped_mark, topic)));
      dropped.erase(topic);
    }
    in.sweeping.clear();
  }
  in.put_floor(batch);
  if (const auto written = in.rocks.write(batch); !written) return std::unexpected(written.error());
  const bool more = !dropped.empty();
  if (all_the_way) in.garbage->dropped.store(std::make_shared<const Topics>(std::move(dropped)));
  return more;
}

// Handle: '@', one digit that says how many digits of due time follow, those, and the sequence
// number's; digits to the base 62, none for 0 and none in front that is 0, so that every key has
// one text.

namespace {

constexpr std::string_view digits =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

std::string in_digits(std::uint64_t number) {
  std::string out;
  for (; number > 0; number /= digits.size()) out += digits[number % digits.size()];
  std::ranges::reverse(out);
  return out;
}

std::optional<std::uint64_t> from_digits(std::string_view text) {
  if (text.starts_with('0')) return std::nullopt;
  std::uint64_t number = 0;
  for (const char c : text) {
    const auto digit = digits.find(c);
    if (digit == std::string_view::npos || __builtin_mul_overflow(number, digits.size(), &number) ||
        __builtin_add_overflow(number, digit, &number))
      return std::nullopt;
  }
  return number;
}

}  // namespace

std::string encode_handle(PendingKey first) {
  const std::string due = in_digits(static_cast<std::uint64_t>(to_ms(first.due)));
  return std::string{'@', digits[due.size()]} + due + in_digits(first.sequence);
}

std::optional<PendingKey> parse_handle(std::string_view text) {
  if (text.size() < 2 || text[0] != '@') return std::nullopt;
  const auto due_digits = digits.find(text[1]);
  if (due_digits == std::string_view::npos || due_digits > text.size() - 2) return std::nullopt;
  const auto due = from_digits(text.substr(2, due_digits));
  const auto sequence = from_digits(text.substr(2 + due_digits));
  if (!due || !sequence) return std::nullopt;
  return PendingKey{from_ms(static_cast<std::int64_t>(*due)), *sequence};
}

}  // namespace tarry::storage
