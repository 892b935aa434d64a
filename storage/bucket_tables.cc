#include "storage/bucket_tables.h"

#include <fmt/core.h>
#include <rocksdb/compaction_filter.h>

#include <algorithm>

#include "base/log.h"
#include "storage/fields.h"
#include "storage/format_families.h"
#include "storage/rocks_options.h"

namespace tarry::storage {
namespace {

// The names are in the order of bucket_family.
const FormatFamilies pending_families{
    .prefix = "tarry-pending-",
    .names = {"tarry-pending-3", "chunks", "rows", "counts", "ids"},
};

// Chunks below it stay in the tables, which compaction rewrites.
constexpr std::uint64_t min_blob_bytes = 1024;
constexpr std::uint64_t blob_file_bytes = 64u << 20;
constexpr std::size_t pending_table_bytes = 16u << 20;
// A hundred million ids have more bytes than everything else in the tables: some 100 of these, so
// that all of them stay open (BucketLimits::max_open_files).
constexpr std::size_t id_table_bytes = 64u << 20;
// So many runs of young rows are merged at once.  Each costs a question a look into its filter,
// which is far cheaper than to write all rows anew twice as often.
constexpr int id_runs_merged = 8;
// The filter of the ids that are in RocksDB's memory takes this part of it, a megabyte: enough for
// some hundred thousand.
constexpr double id_filter_share = 1.0 / 256;

class ForgottenFilter final : public rocksdb::CompactionFilter {
 public:
  explicit ForgottenFilter(std::shared_ptr<const ForgottenIds> ids)
      : ids_(std::move(ids)), dropped_(ids_->dropped.load()) {}
  bool Filter(int, const rocksdb::Slice& key, const rocksdb::Slice& value, std::string*,
              bool*) const override {
    return ids_->is_forgotten(*dropped_, bytes_of(key), bytes_of(value));
  }
  const char* Name() const override { return "tarry.forgotten"; }

 private:
  const std::shared_ptr<const ForgottenIds> ids_;
  const std::shared_ptr<const TopicSet> dropped_;
};

class ForgottenFilterFactory final : public rocksdb::CompactionFilterFactory {
 public:
  explicit ForgottenFilterFactory(std::shared_ptr<const ForgottenIds> ids) : ids_(std::move(ids)) {}
  std::unique_ptr<rocksdb::CompactionFilter> CreateCompactionFilter(
      const rocksdb::CompactionFilter::Context&) override {
    return std::make_unique<ForgottenFilter>(ids_);
  }
  const char* Name() const override { return "tarry.forgotten"; }

 private:
  const std::shared_ptr<const ForgottenIds> ids_;
};

// Counters that came back to zero: all of an hour that has passed do.
class ZeroFilter final : public rocksdb::CompactionFilter {
 public:
  bool Filter(int, const rocksdb::Slice&, const rocksdb::Slice& value, std::string*,
              bool*) const override {
    return std::ranges::all_of(bytes_of(value), [](std::uint8_t byte) { return byte == 0; });
  }
  const char* Name() const override { return "tarry.zero"; }
};

rocksdb::ColumnFamilyOptions family_options(const BucketLimits& limits,
                                            const std::shared_ptr<rocksdb::Cache>& cache,
                                            std::string_view name,
                                            const std::shared_ptr<const ForgottenIds>& forgotten) {
  auto options = rocks_family_options(limits.write_buffer_bytes,
                                      name == "ids" ? id_table_bytes : pending_table_bytes, cache);
  if (name == "chunks") {
    options.enable_blob_files = true;
    options.min_blob_size = min_blob_bytes;
    options.blob_file_size = blob_file_bytes;
    options.blob_compression_type = rocksdb::kLZ4Compression;
    // By age it costs two to three times the writes; reclaim() does it where it pays.
    options.enable_blob_garbage_collection = false;
  }
  if (name == "counts") {
    static const ZeroFilter zero;
    options.merge_operator = count_merge();
    options.compaction_filter = &zero;
  }
  if (name == "ids") {
    // Most of the ids that are asked for are new ones, and the filters know that without a read.
    options.memtable_whole_key_filtering = true;
    options.memtable_prefix_bloom_size_ratio = id_filter_share;
    options.merge_operator = id_merge();
    options.level0_file_num_compaction_trigger = id_runs_merged;
    options.compaction_filter_factory = std::make_shared<ForgottenFilterFactory>(forgotten);
  }
  return options;
}

}  // namespace

bool ForgottenIds::is_forgotten(const TopicSet& gone, Bytes key, Bytes value) const {
  if (!gone.empty() && gone.contains(Fields(key).topic())) return true;
  const auto last = decode_last_event(value);
  // A compaction is no place to report damage: the row stays, and its reader does.
  if (!last) return false;
  // An id that is still pending is never forgotten, however old it is.
  return !last->is_pending() && now_ms.load() - to_ms(last->at) >= remember.count();
}

std::unexpected<Error> BucketTables::bad_row(Bytes key) const {
  return fail(Errc::corrupt,
              // Marks and chunks are only right together, so a copy of a part would not do.
              fmt::format("database {}: a row is malformed (key {}); restore the whole data "
                          "directory from a copy",
                          rocks->directory, printable(as_text(key))));
}

Result<std::unique_ptr<BucketTables>> BucketTables::start(const std::string& directory,
                                                          const BucketLimits& limits, Opening how) {
  const bool create = how == Opening::make;
  auto made = std::make_unique<BucketTables>(limits);
  made->forgotten->remember = limits.remember;
  made->forgotten->dropped.store(std::make_shared<const TopicSet>());
  made->rocks = std::make_unique<Rocks>();
  Rocks& rocks = *made->rocks;
  rocks.directory = directory;
  rocks.cache = rocksdb::NewLRUCache(limits.block_cache_bytes, 2);
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  const auto describe = [&](const std::string& name) {
    families.emplace_back(name, family_options(limits, rocks.cache, name, made->forgotten));
  };
  describe(rocksdb::kDefaultColumnFamilyName);
  if (!create)
    for (const auto& name : pending_families.names) describe(name);

  rocksdb::DB* db = nullptr;
  auto status = how == Opening::read
                    ? rocksdb::DB::OpenForReadOnly(rocks_options(limits.max_open_files, false),
                                                   directory, families, &rocks.families, &db)
                    : rocksdb::DB::Open(rocks_options(limits.max_open_files, create), directory,
                                        families, &rocks.families, &db);
  if (!status.ok()) return std::unexpected(rocks_error(status, directory));
  rocks.db.reset(db);
  if (create) {
    families.clear();
    for (const auto& name : pending_families.names) describe(name);
    std::vector<Family*> opened;
    status = db->CreateColumnFamilies(families, &opened);
    // Before the status is looked at: handles that were opened have to be closed.
    rocks.families.insert(rocks.families.end(), opened.begin(), opened.end());
    if (!status.ok()) return std::unexpected(rocks_error(status, directory));
  }
  if (auto loaded = made->load(how != Opening::read); !loaded)
    return std::unexpected(loaded.error());
  return made;
}

Result<std::unique_ptr<BucketTables>> BucketTables::make(const std::string& directory,
                                                         const BucketLimits& limits) {
  if (auto made = make_rocks_directory(directory); !made) return std::unexpected(made.error());
  auto made = start(directory, limits, Opening::make);
  if (!made) return made;
  if (auto synced = sync_rocks_directory(directory); !synced)
    return std::unexpected(synced.error());
  return made;
}

Result<std::unique_ptr<BucketTables>> BucketTables::open(const std::string& directory,
                                                         const BucketLimits& limits) {
  if (auto checked = check_format(directory, pending_families); !checked)
    return std::unexpected(checked.error());
  return start(directory, limits, Opening::open);
}

Result<std::unique_ptr<BucketTables>> BucketTables::open_to_read(const std::string& directory) {
  if (auto checked = check_format(directory, pending_families); !checked)
    return std::unexpected(checked.error());
  return start(directory, {}, Opening::read);
}

// Dropped topics, and what an unfinished write left.
Result<> BucketTables::load(bool may_write) {
  rocksdb::PinnableSlice flushes;
  const Buffer key(1, row::generation);
  const auto known = rocks->get(bucket_family::rows, slice(key), flushes);
  if (!known) return std::unexpected(known.error());
  if (*known) {
    Fields fields(bytes_of(flushes));
    generation = fields.number<std::uint64_t>();
    if (!fields.good()) return bad_row(key);
  }
  TopicSet topics;
  BoundedIterator marks(*rocks, bucket_family::rows, Buffer(1, row::dropped),
                        Buffer(1, row::dropped + 1));
  for (marks.seek_to_first(); marks.valid(); marks.next()) {
    Fields fields(marks.key().subspan(1));
    const TopicId topic = fields.topic();
    Fields value(marks.value());
    const WallTime end = value.time();
    if (!fields.good() || !value.good()) return bad_row(marks.key());
    topics.insert(topic);
    if (end == end_unknown) hidden.insert(topic);
  }
  if (auto status = marks.status(); !status) return status;
  forgotten->dropped.store(std::make_shared<const TopicSet>(std::move(topics)));

  BoundedIterator places(*rocks, bucket_family::rows, Buffer(1, row::place),
                         Buffer(1, row::place + 1));
  for (places.seek_to_first(); places.valid(); places.next()) {
    const auto home = decode_home_key(places.key());
    const auto found = decode_place(places.value());
    if (!home || !found) return bad_row(places.key());
    // A copy that is only looked at stays as it is; readers leave out what is unfinished.
    if (found->unfinished.empty() || !may_write) continue;
    if (auto removed = remove_unfinished(home->first, home->second, *found); !removed)
      return removed;
  }
  return places.status();
}

Result<> BucketTables::remove_unfinished(std::uint16_t shard, const Bucket& home, PlaceRow found) {
  rocksdb::WriteBatch batch;
  for (const auto& key : found.unfinished) delete_chunk(batch, {shard, found.shards}, key);
  found.unfinished.clear();
  // In the same batch as the deletes: a note that is cleared first would leave chunks for good.
  batch.Put(rocks->family(bucket_family::rows), slice(home_key(row::place, shard, home)),
            slice(place_value(found)));
  return rocks->write(batch);
}

// --- Rows

Result<bool> BucketTables::for_each(const Buffer& from, const Buffer& until,
                                    const BucketMoment* as_of, const Take& take) const {
  rocksdb::ReadOptions options;
  const rocksdb::Slice lower = slice(from), upper = slice(until);
  options.iterate_lower_bound = &lower;
  options.iterate_upper_bound = &upper;
  if (as_of != nullptr) options.snapshot = as_of->snapshot();
  const std::unique_ptr<rocksdb::Iterator> at(
      rocks->db->NewIterator(options, rocks->family(bucket_family::rows)));
  for (at->SeekToFirst(); at->Valid(); at->Next()) {
    const auto goes_on = take(bytes_of(at->key()), bytes_of(at->value()));
    if (!goes_on || !*goes_on) return goes_on;
  }
  if (!at->status().ok()) return std::unexpected(rocks_error(at->status(), rocks->directory));
  return true;
}

Result<bool> BucketTables::for_level(const Owner& owner, BucketLevel level, WallTime from,
                                     WallTime until, const TakeRow& take,
                                     const BucketMoment* as_of) const {
  return for_each(chunk_rows_from(owner, bucket_of(level, from)),
                  chunk_rows_from(owner, {level, until}), as_of,
                  [&](Bytes key, Bytes value) -> Result<bool> {
                    const auto decoded = decode_chunk_row(key, value);
                    if (!decoded) return bad_row(key);
                    return take(decoded->second);
                  });
}

Result<> BucketTables::for_rows(const Owner& owner, BucketLevel level, WallTime from,
                                WallTime until, const TakeRow& take,
                                const BucketMoment* as_of) const {
  for (;; level = finer(level)) {
    const auto done = for_level(owner, level, from, until, take, as_of);
    if (!done) return std::unexpected(done.error());
    if (!*done || level == BucketLevel::run) return {};
  }
}

Result<std::vector<ChunkRow>> BucketTables::rows_within(const Owner& owner, const Bucket& bucket,
                                                        const ChunkKeys& have,
                                                        std::uint64_t max_bytes,
                                                        const PendingKey& from) const {
  std::vector<ChunkRow> rows;
  std::uint64_t bytes = 0;
  auto looked = for_rows(owner, bucket.level, bucket.start, bucket.end(),
                         [&](const ChunkRow& row) -> Result<bool> {
                           if (have.contains(row.key)) return true;
                           // A row of a longer bucket does not say when its last record is due.
                           if (row.key.bucket.level >= BucketLevel::tick &&
                               PendingKey{row.key.bucket.start, row.last} < from)
                             return true;
                           rows.push_back(row);
                           // The one that goes past the bound is kept: the caller sees by it that
                           // there are too many.
                           return (bytes += row.bytes) <= max_bytes;
                         });
  if (!looked) return std::unexpected(looked.error());
  return rows;
}

Result<std::vector<Owner>> BucketTables::owners(const BucketMoment* as_of) const {
  std::vector<Owner> out;
  for (Buffer from(1, row::chunk), next;; from = next) {
    // The first row of each.
    const auto none = for_each(from, Buffer(1, row::chunk + 1), as_of,
                               [&](Bytes key, Bytes value) -> Result<bool> {
                                 const auto decoded = decode_chunk_row(key, value);
                                 if (!decoded) return bad_row(key);
                                 out.push_back(decoded->first);
                                 // The kind and the owner are the first five bytes.
                                 next = behind_prefix(key.first(5));
                                 return false;
                               });
    if (!none) return std::unexpected(none.error());
    if (*none) return out;
  }
}

Result<ChunkKeys> BucketTables::unfinished_in(const Owner& owner, const Bucket& span,
                                              const BucketMoment* as_of) const {
  ChunkKeys out;
  const auto take = [&](Bytes key, Bytes value) -> Result<bool> {
    const auto found = decode_place(value);
    if (!found) return bad_row(key);
    // A write of a former number of shards had other owners.
    if (found->shards == owner.shards)
      out.insert(found->unfinished.begin(), found->unfinished.end());
    return true;
  };
  const Bucket month = bucket_of(BucketLevel::month, span.start);
  const auto look = [&](BucketLevel level, WallTime from, WallTime until) {
    return for_each(home_key(row::place, owner.shard, {level, from}),
                    home_key(row::place, owner.shard, {level, until}), as_of, take);
  };
  if (auto looked = look(BucketLevel::month, month.start, month.end()); !looked)
    return std::unexpected(looked.error());
  if (auto looked = look(BucketLevel::hour, span.start, span.end()); !looked)
    return std::unexpected(looked.error());
  return out;
}

// Returns whether it went on to the end.
Result<bool> BucketTables::for_marks(const Bucket& bucket, const BucketMoment* as_of,
                                     const Take& take) const {
  const auto look = [&](const Bucket& from, WallTime until) {
    return for_each(gone_rows_from(from), gone_rows_from({from.level, until}), as_of, take);
  };
  const Bucket month = bucket_of(BucketLevel::month, bucket.start);
  const Bucket hour = bucket_of(BucketLevel::hour, bucket.start);
  auto done = look(month, month.end());
  if (!done || !*done) return done;
  // Records of a month's chunk may have been marked in any of its hours.
  return look(hour, bucket.level == BucketLevel::month ? month.end() : hour.end());
}

Result<Marks> BucketTables::marks_of(const Bucket& bucket, Marks marks,
                                     const BucketMoment* as_of) const {
  const auto done = for_marks(bucket, as_of, [&](Bytes key, Bytes value) -> Result<bool> {
    if (!marks.add(key, value)) return bad_row(key);
    return true;
  });
  if (!done) return std::unexpected(done.error());
  marks.finish();
  return marks;
}

Result<bool> BucketTables::has_marks(const Bucket& bucket, const BucketMoment* as_of) const {
  const auto none = for_marks(bucket, as_of, [](Bytes, Bytes) -> Result<bool> { return false; });
  if (!none) return std::unexpected(none.error());
  return !*none;
}

Result<std::vector<Buffer>> BucketTables::mark_keys(const Bucket& home,
                                                    const IsMark& wanted) const {
  std::vector<Buffer> keys;
  BoundedIterator at(*rocks, bucket_family::rows, gone_rows_from(home),
                     gone_rows_from({home.level, home.end()}));
  for (at.seek_to_first(); at.valid(); at.next()) {
    const Bytes key = at.key();
    // The shard and the epoch are read from fixed places.
    if (key.size() != gone_key_bytes) return bad_row(key);
    if (wanted(gone_shard(key), gone_epoch(key))) keys.emplace_back(key.begin(), key.end());
  }
  if (auto status = at.status(); !status) return std::unexpected(status.error());
  return keys;
}

Result<BucketTables::Layout> BucketTables::layout() const {
  Layout out;
  const Buffer key(1, row::layout);
  rocksdb::PinnableSlice value;
  const auto found = rocks->get(bucket_family::rows, slice(key), value);
  if (!found) return std::unexpected(found.error());
  if (!*found) return out;
  Fields fields(bytes_of(value));
  out.epoch = fields.number<std::uint32_t>();
  out.shards = fields.number<std::uint16_t>();
  if (!fields.good()) return bad_row(key);
  return out;
}

// From the month down, as chunks go: one that is dealt meanwhile is met in one place or the other.
Result<bool> BucketTables::has_chunks(const Bucket& home) const {
  const auto known = owners();
  if (!known) return std::unexpected(known.error());
  bool found = false;
  const auto take = [&](const ChunkRow&) -> Result<bool> {
    found = true;
    return false;
  };
  const Bucket month = bucket_of(BucketLevel::month, home.start);
  for (const auto& owner : *known) {
    if (auto looked = for_level(owner, month.level, month.start, month.end(), take); !looked)
      return looked;
    if (auto looked = for_rows(owner, home.level, home.start, home.end(), take); !looked)
      return std::unexpected(looked.error());
    if (found) break;
  }
  return found;
}

Result<Chunk> BucketTables::read(const Owner& owner, const ChunkKey& key,
                                 const BucketMoment* as_of) const {
  chunks_read.fetch_add(1, std::memory_order_relaxed);
  rocksdb::ReadOptions options;
  if (as_of != nullptr) options.snapshot = as_of->snapshot();
  rocksdb::PinnableSlice value;
  const auto got = rocks->db->Get(options, rocks->family(bucket_family::chunks),
                                  slice(chunk_key(owner, key)), &value);
  if (!got.ok() && !got.IsNotFound()) return std::unexpected(rocks_error(got, rocks->directory));
  if (got.IsNotFound()) {
    return std::unexpected(damaged_database(
        // The row and the chunk are written together, so only damage parts them.
        rocks->directory, fmt::format("a chunk of {} is missing", key.bucket.text())));
  }
  const Bytes bytes = bytes_of(value);
  auto chunk = Chunk::parse(key.bucket, SharedBytes(Buffer(bytes.begin(), bytes.end())));
  if (!chunk) {
    // A newer Tarry wrote it; restoring a copy would not help.
    if (chunk.error().code == Errc::unsupported) return chunk;
    return std::unexpected(damaged_database(rocks->directory, chunk.error().message));
  }
  return chunk;
}

LiveEntries BucketTables::live_of(const Chunk& chunk, const JournalPlace& place, const Marks& marks,
                                  const TopicSet& dropped) const {
  LiveEntries live(chunk.size(), true);
  // No entry need be decoded then.
  if (marks.empty() && dropped.empty()) return live;
  for (std::size_t i = 0; i < chunk.size(); ++i) {
    if (marks.is_gone(chunk.key_at(i).sequence, place)) live[i] = false;
    if (live[i] && !dropped.empty() && dropped.contains(chunk.at(i).partition.topic))
      live[i] = false;
  }
  return live;
}

Result<std::vector<LoadedChunk>> BucketTables::load_chunks(const Bucket& bucket,
                                                           std::span<const OwnedKey> keys,
                                                           const BucketMoment* as_of) const {
  std::vector<LoadedChunk> out;
  for (const auto& [owner, key] : keys) {
    auto chunk = read(owner, key, as_of);
    if (!chunk) return std::unexpected(chunk.error());
    out.push_back({key, std::make_shared<const Chunk>(std::move(*chunk)), {}});
  }
  if (out.empty()) return out;
  // Most homes have none, and then nobody has to know which records these are.
  const auto any = has_marks(bucket, as_of);
  if (!any) return std::unexpected(any.error());
  Marks marks;
  if (*any) {
    Marks::Wanted wanted;
    for (const auto& one : out)
      for (std::size_t i = 0; i < one.chunk->size(); ++i)
        wanted.push_back(one.chunk->key_at(i).sequence);
    std::ranges::sort(wanted);
    auto found = marks_of(bucket, Marks(std::move(wanted)), as_of);
    if (!found) return std::unexpected(found.error());
    marks = std::move(*found);
  }
  // Held until live_of() is through, which has a reference to it.
  const auto now = dropped();
  for (auto& one : out)
    one.live =
        live_of(*one.chunk, one.key.place, marks, as_of != nullptr ? as_of->dropped() : *now);
  return out;
}

// Goes from home to home, whatever is in them.
Result<std::set<Bucket>> BucketTables::homes(const Owner& owner) const {
  std::set<Bucket> out;
  for (BucketLevel level = BucketLevel::month;; level = finer(level)) {
    // One iterator for all: to make it costs far more than to move it.
    BoundedIterator at(*rocks, bucket_family::rows,
                       chunk_rows_from(owner, {level, WallTime::min()}),
                       chunk_rows_from(owner, {level, WallTime::max()}));
    at.seek_to_first();
    while (at.valid()) {
      const auto row = decode_chunk_row(at.key(), at.value());
      if (!row) return bad_row(at.key());
      const Bucket home =
          // Finer levels belong to the hour that they lie in.
          bucket_of(std::min(level, BucketLevel::hour), row->second.key.bucket.start);
      out.insert(home);
      at.seek(chunk_rows_from(owner, {level, home.end()}));
    }
    if (auto status = at.status(); !status) return std::unexpected(status.error());
    if (level == BucketLevel::run) return out;
  }
}

void BucketTables::put_chunk(rocksdb::WriteBatch& batch, const Owner& owner, const ChunkKey& key,
                             const Chunk& chunk, const Buffer& encoded, std::size_t entries) const {
  ChunkRow row;
  row.key = key;
  row.last = chunk.last();
  row.entries = static_cast<std::uint32_t>(entries);
  row.bytes = static_cast<std::uint32_t>(encoded.size());
  batch.Put(rocks->family(bucket_family::chunks), slice(chunk_key(owner, key)), slice(encoded));
  batch.Put(rocks->family(bucket_family::rows), slice(chunk_row_key(owner, key)),
            slice(chunk_row_value(row)));
}

void BucketTables::delete_chunk(rocksdb::WriteBatch& batch, const Owner& owner,
                                const ChunkKey& key) const {
  batch.Delete(rocks->family(bucket_family::chunks), slice(chunk_key(owner, key)));
  batch.Delete(rocks->family(bucket_family::rows), slice(chunk_row_key(owner, key)));
}

void BucketTables::add_count(rocksdb::WriteBatch& batch, const Buffer& key,
                             std::int64_t change) const {
  Buffer value;
  append_be(value, change);
  batch.Merge(rocks->family(bucket_family::counts), slice(key), slice(value));
}

// Notes the chunks of a write that takes several batches, with the first of them.
Result<> BucketTables::note_unfinished(rocksdb::WriteBatch& batch, const Owner& owner,
                                       const Bucket& home,
                                       const std::vector<ChunkKey>& chunks) const {
  const Buffer key = home_key(row::place, owner.shard, home);
  PlaceRow before;
  rocksdb::PinnableSlice value;
  const auto found = rocks->get(bucket_family::rows, slice(key), value);
  if (!found) return std::unexpected(found.error());
  if (*found) {
    const auto decoded = decode_place(bytes_of(value));
    if (!decoded) return bad_row(key);
    // It stays that of the last write that counts: a replay begins there if a crash undoes this
    // one.
    before.place = decoded->place;
  }
  before.shards = owner.shards;
  before.unfinished = chunks;
  batch.Put(rocks->family(bucket_family::rows), slice(key), slice(place_value(before)));
  return {};
}

// A topic's mark is kept until everything is gone that was due as late as its last record.
Result<> BucketTables::forget_dropped(const std::set<Bucket>& homes) {
  // drop_topic() must not note a later end meanwhile.
  const std::lock_guard lock(adopting);
  if (dropped()->empty()) return {};
  TopicSet ended;
  rocksdb::WriteBatch batch;
  BoundedIterator at(*rocks, bucket_family::rows, Buffer(1, row::dropped),
                     Buffer(1, row::dropped + 1));
  for (at.seek_to_first(); at.valid(); at.next()) {
    Fields key(at.key().subspan(1)), value(at.value());
    const TopicId topic = key.topic();
    const WallTime end = value.time();
    if (!key.good() || !value.good()) return bad_row(at.key());
    // Nobody knows yet when its last record is due.
    if (end == end_unknown) continue;
    if (std::ranges::any_of(homes, [&](const Bucket& home) { return home.start < end; })) continue;
    batch.Delete(rocks->family(bucket_family::rows), slice(at.key()));
    ended.insert(topic);
  }
  if (auto status = at.status(); !status) return status;
  if (auto written = rocks->write(batch); !written) return written;
  const std::lock_guard hides(hiding);
  TopicSet topics = *dropped();
  for (const auto& topic : ended) topics.erase(topic);
  forgotten->dropped.store(std::make_shared<const TopicSet>(std::move(topics)));
  return {};
}

// hide_topic() does not write; drop_topic() says where the topics end.
Result<> BucketTables::mark_hidden() {
  rocksdb::WriteBatch batch;
  const std::lock_guard marks(marking);
  {
    const std::lock_guard lock(hiding);
    for (const auto& topic : hidden) {
      Buffer key, value;
      key.push_back(row::dropped);
      put(key, topic);
      put(value, end_unknown);
      batch.Put(rocks->family(bucket_family::rows), slice(key), slice(value));
    }
  }
  return batch.Count() == 0 ? Result<>{} : rocks->write(batch);
}

}  // namespace tarry::storage
