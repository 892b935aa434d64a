#include "storage/bucket_store.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/assert.h"
#include "storage/bucket_tables.h"
#include "storage/fields.h"

namespace tarry::storage {
namespace {

// Rows of ids are written in batches of about so many bytes.
constexpr std::size_t id_batch_bytes = 4u << 20;

// How many bytes all ids begin with.
template <typename Ids, typename IdOf>
std::size_t shared_by_all(const Ids& ids, const IdOf& id_of) {
  if (ids.empty()) return 0;
  std::string_view shared = id_of(ids.front());
  for (const auto& each : ids) {
    const std::string_view id = id_of(each);
    shared = shared.substr(
        0, static_cast<std::size_t>(std::ranges::mismatch(shared, id).in1 - shared.begin()));
  }
  return shared.size();
}

// The bytes from there on as a number that has their order.  Nearly all comparisons of a sort need
// no more of the ids, which lie anywhere in memory.
std::uint64_t head_of(std::string_view id, std::size_t from) {
  std::array<std::uint8_t, sizeof(std::uint64_t)> bytes{};
  std::ranges::copy(as_bytes(id.substr(from, bytes.size())), bytes.begin());
  return load_be<std::uint64_t>(bytes.data());
}

struct IdAndHead {
  std::uint64_t head;
  const IdChange* change;
};

// In the order of their keys; those of one id in the order in which they came.
std::vector<IdAndHead> sorted_by_key(std::span<const IdChange> ids) {
  const std::size_t shared = shared_by_all(ids, [](const IdChange& one) { return one.id; });
  std::vector<IdAndHead> out;
  out.reserve(ids.size());
  bool is_one_partition = true;
  for (const auto& change : ids) {
    out.push_back({head_of(change.id, shared), &change});
    is_one_partition &= change.partition == ids.front().partition;
  }
  std::ranges::sort(out, [is_one_partition](const IdAndHead& a, const IdAndHead& b) {
    if (!is_one_partition && a.change->partition != b.change->partition)
      return a.change->partition < b.change->partition;
    if (a.head != b.head) return a.head < b.head;
    const int order = a.change->id.compare(b.change->id);
    return order != 0 ? order < 0 : a.change < b.change;
  });
  return out;
}

}  // namespace

Result<std::unique_ptr<BucketStore>> BucketStore::make(const std::string& directory,
                                                       const Limits& limits) {
  auto tables = BucketTables::make(directory, limits);
  if (!tables) return std::unexpected(tables.error());
  return std::unique_ptr<BucketStore>(new BucketStore(std::move(*tables)));
}

Result<std::unique_ptr<BucketStore>> BucketStore::open(const std::string& directory,
                                                       const Limits& limits) {
  auto tables = BucketTables::open(directory, limits);
  if (!tables) return std::unexpected(tables.error());
  std::unique_ptr<BucketStore> store(new BucketStore(std::move(*tables)));
  // A crash came between the two halves of their deletion.
  for (const auto& topic : std::exchange(store->tables_->hidden, {}))
    if (auto dropped = store->drop_topic(topic); !dropped) return std::unexpected(dropped.error());
  return store;
}

BucketStore::BucketStore(std::unique_ptr<BucketTables> tables) : tables_(std::move(tables)) {}
BucketStore::~BucketStore() = default;

// --- Start

Result<std::uint16_t> BucketStore::shards() const {
  const auto known = tables_->layout();
  if (!known) return std::unexpected(known.error());
  return known->shards;
}

Result<std::map<Bucket, JournalPlace>> BucketStore::places(std::uint16_t shard) {
  std::map<Bucket, JournalPlace> out;
  Buffer from(1, row::place);
  append_be(from, shard);
  BoundedIterator at(*tables_->rocks, bucket_family::rows, from, behind_prefix(from));
  for (at.seek_to_first(); at.valid(); at.next()) {
    const auto home = decode_home_key(at.key());
    const auto found = decode_place(at.value());
    if (!home || !found) return tables_->bad_row(at.key());
    out.emplace(home->second, found->place);
  }
  if (auto status = at.status(); !status) return std::unexpected(status.error());
  return out;
}

Result<std::set<Bucket>> BucketStore::homes(const Owner& owner) {
  return tables_->homes(owner);
}

Result<std::uint32_t> BucketStore::epoch(std::uint16_t shards) {
  // Every shard asks, and one alone begins the epoch.
  const std::lock_guard lock(tables_->adopting);
  const auto known = tables_->layout();
  if (!known) return std::unexpected(known.error());
  // Places and marks stay comparable as long as the shards are the same.
  if (known->shards == shards) return known->epoch;
  const std::uint32_t epoch = known->epoch + 1;
  Buffer now;
  append_be(now, epoch);
  append_be(now, shards);
  rocksdb::WriteBatch batch;
  batch.Put(tables_->rocks->family(bucket_family::rows), slice(Buffer(1, row::layout)), slice(now));
  if (auto written = tables_->rocks->write(batch); !written)
    return std::unexpected(written.error());
  return epoch;
}

Result<std::set<Bucket>> BucketStore::foreign_homes(std::uint16_t shards) {
  std::set<Bucket> out;
  const auto found = tables_->owners();
  if (!found) return std::unexpected(found.error());
  for (const auto& owner : *found) {
    if (owner.shards == shards) continue;
    const auto there = homes(owner);
    if (!there) return std::unexpected(there.error());
    out.insert(there->begin(), there->end());
  }
  return out;
}

// --- Writing

namespace {

// The key of a part, and how many entries it has.
std::pair<ChunkKey, std::size_t> key_of(const HomeWrite::Part& part, const JournalPlace& place) {
  TARRY_ASSERT(part.chunk->size() > 0, "a chunk without records is not written");
  // All of it is pending, as a rule, and it knows its smallest number.
  if (part.live.empty() || std::ranges::find(part.live, false) == part.live.end())
    return {ChunkKey{part.chunk->bucket(), part.chunk->first(), place}, part.chunk->size()};
  ChunkKey key{part.chunk->bucket(), std::numeric_limits<Sequence>::max(), place};
  std::size_t entries = 0;
  for (std::size_t i = 0; i < part.chunk->size(); ++i) {
    if (!part.live.empty() && !part.live[i]) continue;
    key.first = std::min(key.first, part.chunk->key_at(i).sequence);
    ++entries;
  }
  TARRY_ASSERT(entries > 0, "a chunk without pending records is not written");
  return {key, entries};
}

}  // namespace

Result<std::vector<ChunkKey>> BucketStore::write(const Owner& owner, const HomeWrite& change) {
  const BucketTables& in = *tables_;
  Rocks& rocks = *in.rocks;
  Family* const rows = rocks.family(bucket_family::rows);
  std::vector<ChunkKey> keys;
  std::vector<std::size_t> entries;
  for (const auto& part : change.parts) {
    const auto [key, count] = key_of(part, change.place);
    keys.push_back(key);
    entries.push_back(count);
  }
  rocksdb::WriteBatch batch;
  bool in_parts = false;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const HomeWrite::Part& part = change.parts[i];
    if (batch.GetDataSize() >= in.limits.step_bytes) {
      // Noted with the first batch: after a crash open() removes what there is of the others.
      if (!std::exchange(in_parts, true)) {
        if (auto noted = in.note_unfinished(batch, owner, change.home, keys); !noted)
          return std::unexpected(noted.error());
      }
      if (auto written = rocks.write(batch); !written) return std::unexpected(written.error());
      batch.Clear();
    }
    in.put_chunk(batch, owner, keys[i], *part.chunk, part.chunk->encode(part.live), entries[i]);
  }
  // With the last batch: until then the old chunks are what counts.
  for (const auto& key : change.dead) in.delete_chunk(batch, owner, key);
  if (!change.gone.empty()) {
    batch.Put(rows, slice(gone_key(change.home, change.place, owner.shard)),
              slice(gone_value(change.gone)));
  }
  for (const auto& [topic, difference] : change.counts) {
    // A row of zero would be written only to be dropped by the next compaction.
    if (difference == 0) continue;
    in.add_count(batch, count_key(topic, change.home), difference);
    in.add_count(batch, total_key(topic), difference);
  }
  for (const auto& [of, use] : change.uses) {
    const auto& [topic, principal] = of;
    if (use.records != 0)
      in.add_count(batch, use_key(topic, principal, UseKind::records), use.records);
    if (use.bytes != 0) in.add_count(batch, use_key(topic, principal, UseKind::bytes), use.bytes);
  }
  // With this row the write counts: it has the place, and no chunk is unfinished any more.
  batch.Put(rows, slice(home_key(row::place, owner.shard, change.home)),
            slice(place_value({change.place, owner.shards, {}})));
  if (auto written = rocks.write(batch); !written) return std::unexpected(written.error());
  return keys;
}

Result<> BucketStore::write(std::span<const Forward> forwards, std::span<const IdChange> ids) {
  Rocks& rocks = *tables_->rocks;
  Family* const rows = rocks.family(bucket_family::rows);
  rocksdb::WriteBatch batch;
  for (const auto& forward : forwards) {
    const Buffer key = forward_key(forward.handle);
    if (!forward.now) {
      batch.Delete(rows, slice(key));
      continue;
    }
    Buffer value;
    put(value, forward.now->due);
    batch.Put(rows, slice(key), slice(value));
  }
  // RocksDB looks for the place of a key after the one before it, and in another order that is most
  // of the work.
  Buffer key, value;
  for (const auto& [head, change] : sorted_by_key(ids)) {
    key.clear();
    value.clear();
    put_id_row_key(key, change->partition, change->id);
    put_events(value, change->events);
    batch.Merge(rocks.family(bucket_family::ids), slice(key), slice(value));
    if (batch.GetDataSize() < id_batch_bytes) continue;
    if (auto written = rocks.write(batch); !written) return written;
    batch.Clear();
  }
  return rocks.write(batch);
}

Result<> BucketStore::forget_places(std::uint16_t shard, JournalPlace noted,
                                    const std::set<Bucket>& homes) {
  Rocks& rocks = *tables_->rocks;
  Family* const rows = rocks.family(bucket_family::rows);
  rocksdb::WriteBatch batch;
  // Chunks that move between owners meanwhile might be taken for none.
  const std::lock_guard lock(tables_->adopting);
  const auto known = places(shard);
  if (!known) return std::unexpected(known.error());
  for (const auto& home : homes) {
    const auto at = known->find(home);
    // The home was written after the checkpoint, and a replay has to know how far.
    if (at == known->end() || noted < at->second) continue;
    batch.Delete(rows, slice(home_key(row::place, shard, home)));
    // Marks of a former number of shards are for chunks of any owner, as long as there are some.
    const auto chunks = tables_->has_chunks(home);
    if (!chunks) return std::unexpected(chunks.error());
    const auto marks = tables_->mark_keys(home, [&](std::uint16_t by, std::uint32_t epoch) {
      return epoch == noted.epoch ? by == shard : epoch < noted.epoch && !*chunks;
    });
    if (!marks) return std::unexpected(marks.error());
    for (const auto& key : *marks) batch.Delete(rows, slice(key));
  }
  return rocks.write(batch);
}

Result<> BucketStore::drop_topic(const TopicId& topic) {
  BucketTables& in = *tables_;
  // First, so that nobody reads a topic of which a part is gone.
  hide_topic(topic);
  const std::lock_guard lock(in.adopting);  // One at a time.
  const auto pending = counts(topic);
  if (!pending) return std::unexpected(pending.error());
  rocksdb::WriteBatch batch;
  Buffer key(1, row::dropped), value;
  put(key, topic);
  WallTime end = WallTime::min();
  for (const auto& [home, count] : *pending) end = std::max(end, home.end());
  // It may be dropped again, by a replay or once its shards know, and then the counts are gone.
  rocksdb::PinnableSlice known;
  const auto before = in.rocks->get(bucket_family::rows, slice(key), known);
  if (!before) return std::unexpected(before.error());
  if (*before) {
    Fields fields(bytes_of(known));
    const WallTime told = fields.time();
    if (!fields.good()) return in.bad_row(key);
    if (told != BucketTables::end_unknown) end = std::max(end, told);
  }
  put(value, end);
  batch.Put(in.rocks->family(bucket_family::rows), slice(key), slice(value));
  // Not row by row: a topic may have millions of ids.
  const Buffer behind = behind_prefix(topic.bytes);
  for (const auto family : {bucket_family::counts, bucket_family::ids})
    batch.DeleteRange(in.rocks->family(family), slice(topic.bytes), slice(behind));
  const std::lock_guard marking(in.marking);
  if (auto written = in.rocks->write(batch); !written) return written;
  const std::lock_guard hiding(in.hiding);
  in.hidden.erase(topic);
  return {};
}

void BucketStore::hide_topic(const TopicId& topic) {
  BucketTables& in = *tables_;
  const std::lock_guard lock(in.hiding);
  auto topics = *in.dropped();
  // It may be hidden already, and a mark with a known end stays.
  if (!topics.insert(topic).second) return;
  in.hidden.insert(topic);
  // Readers hold the former set as long as they need it, so nothing is changed in place.
  in.forgotten->dropped.store(std::make_shared<const TopicSet>(std::move(topics)));
}

Result<> BucketStore::flush() {
  BucketTables& in = *tables_;
  const std::lock_guard lock(in.flushing);
  Rocks& rocks = *in.rocks;
  if (auto marked = in.mark_hidden(); !marked) return marked;
  std::uint64_t active = 0, waiting = 0;
  // Otherwise each checkpoint of an idle broker would write a table with nothing but its number.
  if (rocks.db->GetAggregatedIntProperty("rocksdb.num-entries-active-mem-table", &active) &&
      rocks.db->GetAggregatedIntProperty("rocksdb.num-entries-imm-mem-tables", &waiting) &&
      active + waiting == 0)
    return {};
  Buffer value;
  // Part of the same flush, so the files say themselves how new they are.
  append_be(value, in.generation.load() + 1);
  rocksdb::WriteBatch batch;
  batch.Put(rocks.family(bucket_family::rows), slice(Buffer(1, row::generation)), slice(value));
  if (auto written = rocks.write(batch); !written) return written;
  rocksdb::FlushOptions options;
  options.wait = true;
  auto flushed = rocks.db->Flush(options, rocks.families);
  // It may be an earlier one that found the disk full, and there is room now.
  if (flushed.IsNoSpace() && rocks.db->Resume().ok())
    flushed = rocks.db->Flush(options, rocks.families);
  if (!flushed.ok()) return std::unexpected(rocks_error(flushed, rocks.directory));
  // Only now: a flush that failed must not be noted elsewhere as one that there was.
  ++in.generation;
  return {};
}

std::uint64_t BucketStore::generation() const {
  return tables_->generation.load();
}

std::uint64_t BucketStore::unflushed_bytes() const {
  std::uint64_t bytes = 0;
  tables_->rocks->db->GetAggregatedIntProperty("rocksdb.cur-size-all-mem-tables", &bytes);
  return bytes;
}

// --- Reading

namespace {

// Looks up records, by rising keys: what it has read for one is often right for the next.
class KeyFinder {
 public:
  KeyFinder(const BucketTables& in, const Owner& owner, Marks::Wanted wanted)
      : in_(in), owner_(owner), wanted_(std::move(wanted)), dropped_(in.dropped()) {}

  Result<std::optional<PendingRecord>> find(const PendingKey& key) {
    // Reading and checking a chunk is far dearer than this look.
    if (last_ && last_->first.bucket.holds(key.due)) {
      auto found = look(key);
      if (!found || *found) return found;
    }
    for (std::size_t level = 0; level < bucket_levels; ++level) {
      auto found = find_in(bucket_of(static_cast<BucketLevel>(level), key.due), key);
      if (!found || *found) return found;
    }
    return std::nullopt;
  }

 private:
  Result<std::optional<PendingRecord>> find_in(const Bucket& bucket, const PendingKey& key) {
    const Buffer from = chunk_rows_from(owner_, bucket);
    Buffer until = from;
    // A chunk that begins behind the record cannot have it.
    append_be(until, key.sequence + 1);
    rocksdb::ReadOptions options;
    const rocksdb::Slice lower = slice(from), upper = slice(until);
    options.iterate_lower_bound = &lower;
    options.iterate_upper_bound = &upper;
    const std::unique_ptr<rocksdb::Iterator> at(
        in_.rocks->db->NewIterator(options, in_.rocks->family(bucket_family::rows)));
    // Backwards: the chunk that begins last before the record is nearly always its own.
    for (at->SeekToLast(); at->Valid(); at->Prev()) {
      const auto row = decode_chunk_row(bytes_of(at->key()), bytes_of(at->value()));
      if (!row) return in_.bad_row(bytes_of(at->key()));
      if (row->second.last < key.sequence) continue;
      auto chunk = in_.read(owner_, row->second.key);
      if (!chunk) return std::unexpected(chunk.error());
      last_.emplace(row->second.key, std::move(*chunk));
      auto found = look(key);
      if (!found || *found) return found;
    }
    if (!at->status().ok()) return std::unexpected(rocks_error(at->status(), in_.rocks->directory));
    return std::nullopt;
  }

  // In the chunk that was read last.
  Result<std::optional<PendingRecord>> look(const PendingKey& key) {
    const auto& [place, chunk] = *last_;
    const auto at = chunk.find(key.sequence);
    // The number may be there with another time: the record was moved since.
    if (!at || chunk.key_at(*at) != key) return std::nullopt;
    const auto marks = marks_of(place.bucket);
    if (!marks) return std::unexpected(marks.error());
    if ((*marks)->is_gone(key.sequence, place.place)) return std::nullopt;
    const PendingView entry = chunk.at(*at);
    if (dropped_->contains(entry.partition.topic)) return std::nullopt;
    return entry.owned();
  }

  // The marks of a home are read once, however many of its records are asked for.
  Result<const Marks*> marks_of(const Bucket& bucket) {
    const BucketLevel level = std::min(bucket.level, BucketLevel::hour);
    auto& known = known_[static_cast<std::size_t>(level)];
    const Bucket home = bucket_of(level, bucket.start);
    if (!known || known->first != home) {
      auto marks = in_.marks_of(home, Marks(wanted_));
      if (!marks) return std::unexpected(marks.error());
      known.emplace(home, std::move(*marks));
    }
    return &known->second;
  }

  const BucketTables& in_;
  const Owner owner_;
  const Marks::Wanted wanted_;
  const std::shared_ptr<const TopicSet> dropped_;
  std::optional<std::pair<ChunkKey, Chunk>> last_;
  std::array<std::optional<std::pair<Bucket, Marks>>, 2> known_;  // A month's and an hour's.
};

}  // namespace

Result<std::vector<std::optional<PendingRecord>>> BucketStore::find(
    const Owner& owner, std::span<const PendingKey> keys, std::size_t max_bytes,
    std::vector<std::size_t>* left) {
  std::vector<std::optional<PendingRecord>> out(keys.size());
  std::vector<std::size_t> order(keys.size());
  Marks::Wanted wanted;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    order[i] = i;
    wanted.push_back(keys[i].sequence);
  }
  std::ranges::sort(order, {}, [&](std::size_t i) { return keys[i]; });
  std::ranges::sort(wanted);
  KeyFinder finder(*tables_, owner, std::move(wanted));
  std::size_t bytes = 0;
  for (const std::size_t i : order) {
    if (bytes >= max_bytes && left != nullptr) {
      left->push_back(i);
      continue;
    }
    auto found = finder.find(keys[i]);
    if (!found) return std::unexpected(found.error());
    if (*found) bytes += (*found)->record.size();
    out[i] = std::move(*found);
  }
  return out;
}

Result<std::optional<PendingKey>> BucketStore::forward(PendingKey handle) {
  rocksdb::PinnableSlice value;
  const Buffer key = forward_key(handle);
  const auto found = tables_->rocks->get(bucket_family::rows, slice(key), value);
  if (!found) return std::unexpected(found.error());
  if (!*found) return std::nullopt;
  Fields fields(bytes_of(value));
  const WallTime due = fields.time();
  if (!fields.good()) return tables_->bad_row(key);
  return PendingKey{due, handle.sequence};
}

Result<std::vector<ScheduleEvent>> BucketStore::id_events(const TopicPartition& partition,
                                                          std::string_view id) {
  // Its rows go later, by a compaction.
  if (tables_->dropped()->contains(partition.topic)) return std::vector<ScheduleEvent>();
  rocksdb::PinnableSlice value;
  const Buffer key = id_row_key(partition, id);
  const auto found = tables_->rocks->get(bucket_family::ids, slice(key), value);
  if (!found) return std::unexpected(found.error());
  if (!*found) return std::vector<ScheduleEvent>();
  auto events = decode_events(bytes_of(value));
  if (!events) return tables_->bad_row(key);
  return std::move(*events);
}

Result<std::optional<std::vector<std::string>>> BucketStore::pending_ids(
    const TopicPartition& partition, std::string_view prefix, std::size_t& rows) {
  std::vector<std::string> out;
  if (tables_->dropped()->contains(partition.topic)) return std::optional(std::move(out));
  const Buffer from = id_row_key(partition, prefix);
  const std::size_t before_id = from.size() - prefix.size();
  BoundedIterator at(*tables_->rocks, bucket_family::ids, from, behind_prefix(from));
  for (at.seek_to_first(); at.valid(); at.next()) {
    if (rows == 0) return std::optional<std::vector<std::string>>();
    --rows;
    const auto last = decode_last_event(at.value());
    if (!last) return tables_->bad_row(at.key());
    if (last->is_pending()) out.emplace_back(as_text(at.key().subspan(before_id)));
  }
  if (auto status = at.status(); !status) return std::unexpected(status.error());
  return std::optional(std::move(out));
}

Result<std::vector<std::optional<ScheduleEvent>>> BucketStore::last_events(
    const TopicPartition& partition, std::span<const std::string_view> ids) {
  // One call holds the values of all its keys in memory.
  constexpr std::size_t at_once = 256;
  std::vector<std::optional<ScheduleEvent>> out(ids.size());
  if (tables_->dropped()->contains(partition.topic)) return out;
  // In the order of their keys: those that are read together then lie in few tables and blocks.
  std::vector<std::uint32_t> order(ids.size());
  std::iota(order.begin(), order.end(), 0);
  if (!std::ranges::is_sorted(ids)) {
    const std::size_t shared = shared_by_all(ids, std::identity());
    std::vector<std::uint64_t> heads;
    heads.reserve(ids.size());
    for (const auto& id : ids) heads.push_back(head_of(id, shared));
    std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) {
      return heads[a] != heads[b] ? heads[a] < heads[b] : ids[a] < ids[b];
    });
  }
  Buffer keys;
  std::vector<std::size_t> ends;
  std::vector<rocksdb::Slice> slices;
  for (std::size_t from = 0; from < order.size(); from += at_once) {
    keys.clear();
    ends.clear();
    slices.clear();
    const auto some = std::span(order).subspan(from, std::min(at_once, order.size() - from));
    for (const auto at : some) {
      put_id_row_key(keys, partition, ids[at]);
      ends.push_back(keys.size());
    }
    // Now that their bytes move no more.
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      slices.push_back(slice(Bytes(keys).subspan(begin, end - begin)));
      begin = end;
    }
    auto read = tables_->rocks->get_several(bucket_family::ids, slices,
                                            [&](std::size_t at, Bytes value) -> Result<> {
                                              auto& last = out[some[at]];
                                              last = decode_last_event(value);
                                              if (!last)
                                                return tables_->bad_row(bytes_of(slices[at]));
                                              return {};
                                            });
    if (!read) return std::unexpected(read.error());
  }
  return out;
}

// --- Over many buckets: page() and count() are in bucket_pages.cc

Result<std::map<Bucket, std::uint64_t>> BucketStore::counts(const TopicId& topic) {
  std::map<Bucket, std::uint64_t> out;
  Buffer from;
  put(from, topic);
  const Buffer until = total_key(topic);
  BoundedIterator at(*tables_->rocks, bucket_family::counts, from, until);
  for (at.seek_to_first(); at.valid(); at.next()) {
    const auto home = decode_count_key(at.key());
    if (!home || at.value().size() != 8) return tables_->bad_row(at.key());
    const auto count = load_be<std::int64_t>(at.value().data());
    if (count > 0) out[*home] = static_cast<std::uint64_t>(count);
  }
  if (auto status = at.status(); !status) return std::unexpected(status.error());
  return out;
}

Result<std::map<TopicId, std::uint64_t>> BucketStore::totals() {
  std::map<TopicId, std::uint64_t> out;
  const auto dropped = tables_->dropped();
  TopicId topic;
  rocksdb::PinnableSlice value;
  // From topic to topic, over the rows of its homes.
  for (Buffer from;;) {
    // Longer than a topic's name and larger than any.
    BoundedIterator at(*tables_->rocks, bucket_family::counts, from, Buffer(17, 0xff));
    at.seek_to_first();
    if (!at.valid()) {
      if (auto status = at.status(); !status) return std::unexpected(status.error());
      return out;
    }
    Fields fields(at.key());
    topic = fields.topic();
    const Buffer total = total_key(topic);
    const auto found = tables_->rocks->get(bucket_family::counts, slice(total), value);
    if (!found) return std::unexpected(found.error());
    if (*found && value.size() != 8) return tables_->bad_row(total);
    if (*found && !dropped->contains(topic)) {
      const auto count = load_be<std::int64_t>(bytes_of(value).data());
      if (count > 0) out[topic] = static_cast<std::uint64_t>(count);
    }
    // Behind the total are the rows of its principals.
    from = behind_prefix(total);
  }
}

Result<PendingUses> BucketStore::uses() {
  PendingUses out;
  const auto totals = this->totals();
  if (!totals) return std::unexpected(totals.error());
  for (const auto& [topic, records] : *totals) {
    const Buffer total = total_key(topic);
    BoundedIterator at(*tables_->rocks, bucket_family::counts, total, behind_prefix(total));
    for (at.seek_to_first(); at.valid(); at.next()) {
      if (at.key().size() == total.size()) continue;
      const auto key = decode_use_key(at.key());
      if (!key || at.value().size() != 8) return tables_->bad_row(at.key());
      PendingUse& use = out[{topic, key->principal}];
      auto& sum = key->kind == UseKind::records ? use.records : use.bytes;
      sum = load_be<std::int64_t>(at.value().data());
    }
    if (auto status = at.status(); !status) return std::unexpected(status.error());
  }
  std::erase_if(out, [](const auto& of) { return of.second == PendingUse{}; });
  return out;
}

// --- Space

BucketStore::Sizes BucketStore::sizes() const {
  Sizes out;
  rocksdb::DB& db = *tables_->rocks->db;
  Family* const chunks = tables_->rocks->family(bucket_family::chunks);
  db.GetIntProperty(chunks, "rocksdb.total-blob-file-size", &out.blob_bytes);
  db.GetIntProperty(chunks, "rocksdb.live-blob-file-garbage-size", &out.garbage_bytes);
  db.GetIntProperty(chunks, "rocksdb.estimate-num-keys", &out.chunks);
  for (Family* const family : tables_->rocks->families) {
    std::uint64_t bytes = 0;
    if (db.GetIntProperty(family, "rocksdb.total-sst-files-size", &bytes)) out.table_bytes += bytes;
  }
  return out;
}

void BucketStore::Sizes::report(MetricSink& sink) const {
  sink.gauge({"tarry_storage_pending_blob_bytes", "Size of the blob files of pending records."},
             blob_bytes);
  sink.gauge({"tarry_storage_pending_garbage_bytes",
              "Bytes of removed records in the blob files of pending records."},
             garbage_bytes);
  sink.gauge({"tarry_storage_pending_table_bytes",
              "Size of the tables that name the chunks of pending records."},
             table_bytes);
  sink.gauge({"tarry_storage_pending_chunks", "Chunks of pending records on disk, approximately."},
             chunks);
}

Result<BucketStore::LevelSizes> BucketStore::levels(MonoTime now, WallTime wall) {
  // This many rows are read in some milliseconds.
  constexpr std::uint64_t few_chunks = 10'000;
  constexpr std::chrono::seconds kept{10};
  BucketTables& in = *tables_;
  const std::lock_guard lock(in.sizing);
  if (now < in.levels_until) return in.levels;
  LevelSizes out;
  const LevelSlots slots = level_slots(wall);
  for (std::size_t level = 0; level < bucket_levels; ++level) out[level].slots = slots[level];
  std::uint64_t chunks = 0;
  const auto owners = in.owners();
  if (!owners) return std::unexpected(owners.error());
  for (const auto& owner : *owners) {
    auto looked = in.for_rows(owner, BucketLevel::month, before_all, WallTime::max(),
                              [&](const ChunkRow& row) -> Result<bool> {
                                auto& level = out[static_cast<std::size_t>(row.key.bucket.level)];
                                level.records += row.entries;
                                level.bytes += row.bytes;
                                ++level.chunks;
                                level.slots.add(row.key.bucket);
                                ++chunks;
                                return true;
                              });
    if (!looked) return std::unexpected(looked.error());
  }
  for (std::size_t level = 0; level < bucket_levels; ++level)
    out[level].downgrades = in.dealt[level].load();
  // A small store is looked at each time, which keeps its numbers fresh.
  if (chunks >= few_chunks) in.levels_until = now + kept;
  in.levels = out;
  return out;
}

Result<> BucketStore::reclaim(double garbage_share, WallTime now,
                              const std::function<Result<>(const Sizes&)>& room_to_rewrite) {
  // Compactions of the ids, whenever they come, forget by this time.
  tables_->forgotten->now_ms.store(to_ms(now));
  std::set<Bucket> left;
  const auto owners = tables_->owners();
  if (!owners) return std::unexpected(owners.error());
  for (const auto& owner : *owners) {
    const auto there = homes(owner);
    if (!there) return std::unexpected(there.error());
    left.insert(there->begin(), there->end());
  }
  if (auto done = tables_->forget_dropped(left); !done) return done;
  Rocks& rocks = *tables_->rocks;
  Family* const chunks = rocks.family(bucket_family::chunks);
  rocksdb::CompactRangeOptions options;
  options.exclusive_manual_compaction = false;
  // The tables have keys alone: this is little work, and RocksDB then knows which blobs are dead.
  options.blob_garbage_collection_policy = rocksdb::BlobGarbageCollectionPolicy::kDisable;
  auto compacted = rocks.db->CompactRange(options, chunks, nullptr, nullptr);
  const Sizes found = sizes();
  if (compacted.ok() && static_cast<double>(found.garbage_bytes) >
                            garbage_share * static_cast<double>(found.blob_bytes)) {
    if (room_to_rewrite) {
      if (auto room = room_to_rewrite(found); !room) return room;
    }
    options.blob_garbage_collection_policy = rocksdb::BlobGarbageCollectionPolicy::kForce;
    options.blob_garbage_collection_age_cutoff = 1.0;
    options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
    compacted = rocks.db->CompactRange(options, chunks, nullptr, nullptr);
  }
  if (!compacted.ok()) return std::unexpected(rocks_error(compacted, rocks.directory));
  return {};
}

std::uint64_t BucketStore::chunks_read() const {
  return tables_->chunks_read.load(std::memory_order_relaxed);
}

std::uint64_t BucketStore::memory_bytes() const {
  std::uint64_t sum = tables_->rocks->cache->GetUsage();
  for (const char* property :
       {"rocksdb.cur-size-all-mem-tables", "rocksdb.estimate-table-readers-mem"}) {
    std::uint64_t value = 0;
    if (tables_->rocks->db->GetAggregatedIntProperty(property, &value)) sum += value;
  }
  return sum;
}

const std::string& BucketStore::directory() const {
  return tables_->rocks->directory;
}

}  // namespace tarry::storage
