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

constexpr std::uint8_t id_is_pending = 0;  // Else the GoneHow of its end.

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

Buffer entry_value(const Parked& parked) {
  Buffer out;
  out.reserve(38 + parked.id.size() + parked.record.size());
  put(out, parked.partition);
  put(out, parked.accepted);
  put(out, parked.expires);
  put_short(out, parked.id);
  append_bytes(out, parked.record);
  return out;
}

// What an entry says, viewed where it lies.
struct EntryView {
  PendingKey key;
  TopicPartition partition;
  WallTime accepted;
  WallTime expires;
  std::string_view id;
  Bytes record;

  PendingRecord owned() const {
    return {key,     partition,       accepted,
            expires, std::string(id), Buffer(record.begin(), record.end())};
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
  out.id = fields.short_text();
  out.record = fields.rest();
  if (!key_fields.good() || !fields.good()) return std::nullopt;
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
};

Buffer encode(const IdRow& row) {
  Buffer out;
  out.push_back(row.state);
  put(out, row.key.due);
  append_be(out, row.key.sequence);
  if (row.state != id_is_pending) put(out, row.ended);
  return out;
}

std::optional<IdRow> decode_id(Bytes value) {
  Fields fields(value);
  IdRow row;
  row.state = fields.number<std::uint8_t>();
  row.key.due = fields.time();
  row.key.sequence = fields.number<Sequence>();
  if (row.state != id_is_pending) row.ended = fields.time();
  if (!fields.good() || row.state > static_cast<std::uint8_t>(GoneHow::expired))
    return std::nullopt;
  return row;
}

Buffer topic_key(char mark, const TopicId& topic) {
  Buffer out{static_cast<std::uint8_t>(mark)};
  put(out, topic);
  return out;
}

// `*` is any bytes, `?` any one.  Linear but for what one star has to try again.
bool matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, tried = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      tried = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++tried;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::unexpected<Error> bad_row(const std::string& directory, std::string_view family, Bytes key) {
  return fail(Errc::corrupt,
              fmt::format("database {}: a row of {} does not fit its format (key {}); put back a "
                          "copy of the whole data directory",
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
    return entry && topics->contains(entry->partition.topic);
  }
  bool is_dead_id(rocksdb::Slice, rocksdb::Slice value) const override {
    const auto row = decode_id(bytes_of(value));
    return row && is_forgotten(*row, from_ms(swept_at.load()));
  }
  bool is_forgotten(const IdRow& row, WallTime now) const {
    return row.state != id_is_pending && now >= row.ended && now - row.ended >= remember_;
  }

  Published<Topics> dropped;
  std::atomic<std::int64_t> swept_at{0};  // Wall ms of the last sweep().

 private:
  const std::chrono::milliseconds remember_;
};

}  // namespace

struct PendingStore::Inside {
  Inside(Rocks& where, const Limits& bounds)
      : rocks(where), limits(bounds), garbage(std::make_shared<PendingGarbage>(bounds.remember)) {}

  Rocks& rocks;
  const Limits limits;
  const std::shared_ptr<PendingGarbage> garbage;

  // Guards what follows and makes "is it there?  then write" one step.
  mutable std::mutex mutex;
  std::unordered_map<TopicId, std::uint64_t> counts;  // None is 0.
  std::uint64_t total = 0;
  // Nothing is pending below `floor`.  It moves up when somebody has looked (see first_entry())
  // and down when something is parked below; `floor_written` is what the database says.
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

  // Calls `take` for the entries of [from, until) whose topics are there; it says whether to go on.
  // Looks at `limit` entries at most.  Where it stopped; empty: at the end.
  template <typename Take>
  Result<std::optional<PendingKey>> scan(PendingKey from, PendingKey until, std::size_t limit,
                                         Take take);

  struct Change;
};

PendingStore::PendingStore(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {}

PendingStore::~PendingStore() {
  inside_->rocks.garbage->garbage.store(nullptr);
}

Result<std::unique_ptr<PendingStore>> PendingStore::open(Database& pending) {
  return open(pending, Limits());
}

Result<std::unique_ptr<PendingStore>> PendingStore::open(Database& pending, const Limits& limits) {
  auto inside = std::make_unique<Inside>(pending.rocks(), limits);
  if (const auto loaded = inside->load(); !loaded) return std::unexpected(loaded.error());
  pending.rocks().garbage->garbage.store(inside->garbage);
  return std::unique_ptr<PendingStore>(new PendingStore(std::move(inside)));
}

Result<> PendingStore::Inside::load() {
  Topics dropped;
  BoundedIterator at(rocks, pending_family::counts, {}, Buffer(1, 0xff));
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

Result<std::optional<IdRow>> PendingStore::Inside::id_row(const Buffer& key) const {
  rocksdb::PinnableSlice value;
  const auto found = rocks.get(pending_family::ids, slice(key), value);
  if (!found) return std::unexpected(found.error());
  if (!*found) return std::nullopt;
  const auto row = decode_id(bytes_of(value));
  if (!row) return bad("ids", key);
  return row;
}

void PendingStore::Inside::put_floor(rocksdb::WriteBatch& batch) {
  if (floor == floor_written) return;
  batch.Put(rocks.family(pending_family::counts), slice(as_bytes(floor_key)),
            slice(entry_key(floor)));
  floor_written = floor;
}

// What one apply() writes, under the mutex.
struct PendingStore::Inside::Change {
  explicit Change(Inside& inside) : in(inside), dropped(in.garbage->dropped.load()) {}

  Inside& in;
  const std::shared_ptr<const Topics> dropped;
  Family* const entries = in.rocks.family(pending_family::entries);
  Family* const ids = in.rocks.family(pending_family::ids);
  rocksdb::WriteBatch batch;

  // What it has written so far, which a look into the database does not show.
  std::map<PendingKey, bool> there;
  std::map<Buffer, IdRow> rows;
  std::map<TopicId, std::int64_t> counts;

  Result<> park(const Parked& parked);
  Result<> end(const Gone& gone);
  Result<> write();

 private:
  Result<bool> is_there(PendingKey key, const Buffer& bytes) const;
  Result<std::optional<IdRow>> row_of(const Buffer& key) const;
  void put_row(const Buffer& key, const IdRow& row);
};

Result<bool> PendingStore::Inside::Change::is_there(PendingKey key, const Buffer& bytes) const {
  if (const auto written = there.find(key); written != there.end()) return written->second;
  rocksdb::PinnableSlice value;
  return in.rocks.get(pending_family::entries, slice(bytes), value);
}

Result<std::optional<IdRow>> PendingStore::Inside::Change::row_of(const Buffer& key) const {
  if (const auto written = rows.find(key); written != rows.end()) return written->second;
  return in.id_row(key);
}

void PendingStore::Inside::Change::put_row(const Buffer& key, const IdRow& row) {
  batch.Put(ids, slice(key), slice(encode(row)));
  rows.insert_or_assign(key, row);
}

Result<> PendingStore::Inside::Change::park(const Parked& parked) {
  if (dropped->contains(parked.partition.topic)) return {};
  const PendingKey key{parked.due, parked.sequence};
  const Buffer bytes = entry_key(key);
  const auto known = is_there(key, bytes);
  if (!known) return std::unexpected(known.error());
  if (!*known) {
    batch.Put(entries, slice(bytes), slice(entry_value(parked)));
    there.insert_or_assign(key, true);
    ++counts[parked.partition.topic];
    if (key < in.floor) in.floor = key;
    if (key < in.parked_since) in.parked_since = key;
  }
  if (parked.id.empty()) return {};
  const Buffer name = id_key(parked.partition, parked.id);
  const auto row = row_of(name);
  if (!row) return std::unexpected(row.error());
  if (!*row || (*row)->key.sequence <= parked.sequence) put_row(name, {id_is_pending, key, {}});
  return {};
}

Result<> PendingStore::Inside::Change::end(const Gone& gone) {
  if (gone.how < GoneHow::delivered || gone.how > GoneHow::expired) {
    return fail(Errc::corrupt,
                fmt::format("a journal record says that record {} ended in way {}, which there is "
                            "not",
                            gone.sequence, static_cast<int>(gone.how)));
  }
  if (dropped->contains(gone.partition.topic)) return {};
  const PendingKey key{gone.due, gone.sequence};
  const Buffer bytes = entry_key(key);
  const auto known = is_there(key, bytes);
  if (!known) return std::unexpected(known.error());
  if (*known) {
    batch.Delete(entries, slice(bytes));
    there.insert_or_assign(key, false);
    --counts[gone.partition.topic];
  }
  if (gone.id.empty()) return {};
  const Buffer name = id_key(gone.partition, gone.id);
  const auto row = row_of(name);
  if (!row) return std::unexpected(row.error());
  // What never waited has no row before its end.
  if (!*row || (*row)->key.sequence < gone.sequence ||
      ((*row)->key == key && (*row)->state == id_is_pending))
    put_row(name, {static_cast<std::uint8_t>(gone.how), key, gone.at});
  return {};
}

Result<> PendingStore::Inside::Change::write() {
  std::vector<std::pair<TopicId, std::uint64_t>> counted;
  for (const auto& [topic, change] : counts) {
    if (change == 0) continue;
    const auto at = in.counts.find(topic);
    const std::uint64_t before = at == in.counts.end() ? 0 : at->second;
    const std::uint64_t now = before + static_cast<std::uint64_t>(change);
    if (change < 0 && now >= before) return in.bad("counts", topic_key(count_mark, topic));
    const Buffer key = topic_key(count_mark, topic);
    Buffer bytes;
    append_be(bytes, now);
    Family* const family = in.rocks.family(pending_family::counts);
    if (now == 0)
      batch.Delete(family, slice(key));
    else
      batch.Put(family, slice(key), slice(bytes));
    counted.emplace_back(topic, now);
  }
  in.put_floor(batch);
  if (const auto written = in.rocks.write(batch); !written) return written;

  for (const auto& [topic, now] : counted) {
    std::uint64_t& count = in.counts[topic];
    in.total += now - count;
    count = now;
    if (now == 0) in.counts.erase(topic);
  }
  return {};
}

Result<> PendingStore::apply(std::span<const Operation> operations) {
  Inside& in = *inside_;
  const std::lock_guard lock(in.mutex);
  Inside::Change change(in);
  for (const Operation& operation : operations) {
    if (const auto* parked = std::get_if<Parked>(&operation)) {
      if (auto taken = change.park(*parked); !taken) return taken;
    } else if (const auto* gone = std::get_if<Gone>(&operation)) {
      if (auto taken = change.end(*gone); !taken) return taken;
    }
  }
  return change.write();
}

Result<> PendingStore::drop_topic(const TopicId& topic) {
  Inside& in = *inside_;
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
Result<std::optional<PendingKey>> PendingStore::Inside::scan(PendingKey from, PendingKey until,
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
  const auto stopped = inside_->scan(from, {until, 0}, limit, [&](const EntryView& entry) {
    out.locators.push_back(entry.locator());
    return true;
  });
  if (!stopped) return std::unexpected(stopped.error());
  if (*stopped) out.next = behind(**stopped);
  return out;
}

Result<std::vector<std::optional<PendingRecord>>> PendingStore::read(
    std::span<const PendingKey> keys) {
  const Inside& in = *inside_;
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
  const auto row = inside_->id_row(id_key(partition, id));
  if (!row) return std::unexpected(row.error());
  if (!*row || inside_->is_dropped(partition.topic)) return IdUnknown{};
  const IdRow& found = **row;
  if (found.state == id_is_pending) return IdPending{found.key};
  if (inside_->garbage->is_forgotten(found, now)) return IdUnknown{};
  return IdEnded{static_cast<GoneHow>(found.state), found.ended, found.key};
}

Result<PendingPage> PendingStore::list(const PendingQuery& query) {
  PendingPage page;
  if (query.limit == 0) return page;
  PendingKey from{query.from, 0};
  if (query.after) from = std::max(from, behind(*query.after));
  const Limits& limits = inside_->limits;
  std::size_t bytes = 0;
  const auto take = [&](const EntryView& entry) {
    const bool fits = (!query.topic || entry.partition.topic == *query.topic) &&
                      (!query.partition || entry.partition.partition == *query.partition) &&
                      (query.id.empty() || (!entry.id.empty() && matches(query.id, entry.id)));
    if (fits) {
      bytes += entry.record.size();
      page.records.push_back(entry.owned());
    }
    return page.records.size() < query.limit && bytes < limits.bytes_per_page;
  };
  const auto stopped = inside_->scan(from, {query.until, 0}, limits.scanned_per_page, take);
  if (!stopped) return std::unexpected(stopped.error());
  page.next = *stopped;
  return page;
}

std::vector<TopicId> PendingStore::topics() const {
  const std::lock_guard lock(inside_->mutex);
  std::vector<TopicId> out;
  for (const auto& [topic, count] : inside_->counts) out.push_back(topic);
  return out;
}

std::uint64_t PendingStore::pending_of(const TopicId& topic) const {
  const std::lock_guard lock(inside_->mutex);
  const auto at = inside_->counts.find(topic);
  return at == inside_->counts.end() ? 0 : at->second;
}

std::uint64_t PendingStore::total() const {
  const std::lock_guard lock(inside_->mutex);
  return inside_->total;
}

Result<PendingFirst> PendingStore::Inside::first_entry(std::size_t limit) {
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
  return inside_->first_entry(inside_->limits.scanned_per_page);
}

Result<bool> PendingStore::sweep(WallTime now, std::size_t limit) {
  Inside& in = *inside_;
  in.garbage->swept_at.store(to_ms(now));
  if (const auto first = in.first_entry(limit); !first) return std::unexpected(first.error());

  const std::lock_guard one_at_a_time(in.sweep_mutex);
  rocksdb::WriteBatch batch;
  bool all_the_way = false;
  if (in.sweeping.empty()) {
    in.sweeping = *in.garbage->dropped.load();
    in.sweep_from = first_key;
  }
  // No lock: nobody else writes entries of these topics any more.
  if (!in.sweeping.empty()) {
    BoundedIterator at(in.rocks, pending_family::entries, entry_key(in.sweep_from),
                       entry_key(last_key));
    std::size_t looked_at = 0;
    for (at.seek_to_first(); at.valid() && looked_at < limit; at.next(), ++looked_at) {
      const auto entry = decode_entry(at.key(), at.value());
      if (!entry) return in.bad("entries", at.key());
      in.sweep_from = behind(entry->key);
      if (in.sweeping.contains(entry->partition.topic))
        batch.Delete(in.rocks.family(pending_family::entries), slice(at.key()));
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
