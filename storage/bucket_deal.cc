// BucketStore: the way down.  Chunks are read, and what is pending in them is dealt to other
// chunks.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "storage/bucket_store.h"
#include "storage/bucket_tables.h"

namespace tarry::storage {
namespace {

// A piece of small buckets goes over so many at most.
constexpr int max_neighbours = 64;
// A piece has about this many chunks.
constexpr std::size_t max_piece_chunks = 2'048;

// Collects entries for their new chunks, and writes those in the place of the old ones.
class Deal {
 public:
  explicit Deal(const BucketTables& store) : store_(store) {}

  // Its live entries are for `to`, which says where each goes.  Entries before `from` are left out.
  template <typename To>
  void take(const Owner& owner, LoadedChunk loaded, const To& to,
            const PendingKey& from = {WallTime::min(), 0}) {
    const Chunk& chunk = *loaded.chunk;
    const auto source = static_cast<std::uint32_t>(sources_.size());
    for (std::uint32_t i = 0; i < chunk.size(); ++i) {
      if (!loaded.live[i]) continue;
      const PendingView entry = chunk.at(i);
      if (entry.key < from) continue;
      parts_[to(entry)].push_back({entry.key.sequence, source, i});
    }
    sources_.emplace_back(owner, loaded.key);
    read_.push_back(std::move(loaded.chunk));
  }

  // Returns the bytes of the new chunks.
  Result<std::uint64_t> write() {
    rocksdb::WriteBatch batch;
    // In the same batch as the new chunks: a crash leaves the one or the other, never both or
    // neither.
    for (const auto& [owner, key] : sources_) store_.delete_chunk(batch, owner, key);
    std::uint64_t bytes = 0;
    for (auto& [to, entries] : parts_) {
      const auto& [owner, bucket] = to;
      // A chunk whose numbers are in order is searched without a table of its own.  Those of a
      // bucket that was filled in order are so already.
      if (!std::ranges::is_sorted(entries, {}, &Part::sequence))
        std::ranges::sort(entries, {}, &Part::sequence);
      for (auto at = entries.begin(); at != entries.end();) {
        Chunk chunk(bucket);
        ChunkKey key{bucket, at->sequence, {}};
        for (; at != entries.end() && !chunk.is_full(); ++at) {
          chunk.append(entry_of(*at));
          // Only live entries are here: marks before the newest source have done their work.
          key.place = std::max(key.place, sources_[at->source].second.place);
        }
        const Buffer encoded = chunk.encode({});
        bytes += encoded.size();
        store_.put_chunk(batch, owner, key, chunk, encoded, chunk.size());
      }
      moved(batch, bucket, entries);
    }
    if (auto written = store_.rocks->write(batch); !written)
      return std::unexpected(written.error());
    return bytes;
  }

  void counts_move_from(const Bucket& month) { counted_in_ = month; }
  bool empty() const { return sources_.empty(); }
  std::size_t entries() const {
    std::size_t count = 0;
    for (const auto& [to, entries] : parts_) count += entries.size();
    return count;
  }

 private:
  // An entry, by its place: there are some ten thousand, and a view of one is large.
  struct Part {
    Sequence sequence;
    std::uint32_t source;  // Its chunk's place in read_.
    std::uint32_t entry;   // Its own in there.
  };
  PendingView entry_of(const Part& part) const { return read_[part.source]->at(part.entry); }

  // The records that a month has dealt out are counted in its hours from now on.
  void moved(rocksdb::WriteBatch& batch, const Bucket& bucket, const std::vector<Part>& entries) {
    if (!counted_in_) return;
    std::map<TopicId, std::int64_t> counts;
    for (const auto& part : entries) ++counts[entry_of(part).partition.topic];
    for (const auto& [topic, count] : counts) {
      store_.add_count(batch, count_key(topic, *counted_in_), -count);
      store_.add_count(batch, count_key(topic, bucket), count);
    }
  }

  const BucketTables& store_;
  std::vector<std::pair<Owner, ChunkKey>> sources_;
  std::vector<std::shared_ptr<const Chunk>> read_;  // Their chunks, in the same order.
  std::map<std::pair<Owner, Bucket>, std::vector<Part>> parts_;
  std::optional<Bucket> counted_in_;
};

// The level to which these chunks of a bucket of `level` are dealt: the next finer one; or one
// after it, if they are so close together that the levels between would hardly part them.
BucketLevel level_for(BucketLevel level, const std::vector<LoadedChunk>& chunks) {
  const BucketLevel to = finer(level);
  if (level == BucketLevel::month) return to;  // The counts of its hours move too.
  WallTime first = WallTime::max(), last = WallTime::min();
  for (const auto& one : chunks) {
    first = std::min(first, one.chunk->earliest());
    last = std::max(last, one.chunk->latest());
  }
  return to < BucketLevel::tick ? level_to_deal_to(to, BucketLevel::tick, first, last) : to;
}

std::uint64_t bytes_of_rows(const std::vector<ChunkRow>& rows) {
  std::uint64_t sum = 0;
  for (const auto& row : rows) sum += row.bytes;
  return sum;
}

}  // namespace

Result<bool> BucketStore::deal(const Owner& owner, const Bucket& bucket, const ChunkKeys& have,
                               PendingKey from) {
  TARRY_ASSERT(bucket.level != BucketLevel::run, "no bucket is finer than a run");
  const BucketTables& in = *tables_;
  std::vector<BucketTables::OwnedKey> sources;
  std::uint64_t bytes = 0;
  bool more = false;
  auto looked = in.for_level(owner, bucket.level, bucket.start, bucket.end(),
                             [&](const ChunkRow& row) -> Result<bool> {
                               // The caller writes those that he has in memory.
                               if (have.contains(row.key)) return true;
                               more = bytes >= in.limits.step_bytes;
                               if (more) return false;
                               sources.push_back({owner, row.key});
                               bytes += row.bytes;
                               return true;
                             });
  if (!looked) return std::unexpected(looked.error());
  if (sources.empty()) return false;
  auto chunks = in.load_chunks(bucket, sources);
  if (!chunks) return std::unexpected(chunks.error());
  Deal deal(in);
  if (bucket.level == BucketLevel::month) deal.counts_move_from(bucket);
  const BucketLevel level = level_for(bucket.level, *chunks);
  for (auto& chunk : *chunks) {
    const auto to = [&](const PendingView& entry) {
      return std::pair(owner, bucket_of(level, entry.key.due));
    };
    deal.take(owner, std::move(chunk), to, from);
  }
  if (auto written = deal.write(); !written) return std::unexpected(written.error());
  tables_->dealt[static_cast<std::size_t>(level)] += deal.entries();
  return more;
}

Result<bool> BucketStore::adopt(std::uint16_t shards, const Bucket& home, const OwnerOf& owner_of) {
  BucketTables& in = *tables_;
  // Two shards may need the same home at once.
  const std::lock_guard lock(in.adopting);
  const auto found = in.owners();
  if (!found) return std::unexpected(found.error());
  Deal deal(in);
  std::uint64_t bytes = 0;
  bool more = false;
  for (const auto& owner : *found) {
    if (owner.shards == shards) continue;
    std::vector<BucketTables::OwnedKey> sources;
    auto looked = in.for_rows(
        owner, home.level, home.start, home.end(), [&](const ChunkRow& row) -> Result<bool> {
          more = bytes >= in.limits.step_bytes;
          if (more) return false;
          // A month's hours are homes of their own.
          if (home.level == BucketLevel::month && row.key.bucket.level != BucketLevel::month)
            return false;
          sources.push_back({owner, row.key});
          bytes += row.bytes;
          return true;
        });
    if (!looked) return std::unexpected(looked.error());
    auto loaded = in.load_chunks(home, sources);
    if (!loaded) return std::unexpected(loaded.error());
    for (auto& chunk : *loaded) {
      const Bucket same = chunk.key.bucket;
      deal.take(owner, std::move(chunk), [&](const PendingView& entry) {
        // Adopting changes the owner alone; the level stays as it was.
        return std::pair(Owner{owner_of(entry.partition), shards}, same);
      });
    }
    if (more) break;
  }
  if (deal.empty()) return false;
  if (auto written = deal.write(); !written) return std::unexpected(written.error());
  return more;
}

Result<BucketStore::Swept> BucketStore::sweep(const Owner& owner, const Bucket& home,
                                              const std::optional<ChunkKey>& after,
                                              const ChunkKeys& have, std::uint64_t gone) {
  const BucketTables& in = *tables_;
  auto rows = in.rows_within(owner, home, have);
  if (!rows) return std::unexpected(rows.error());
  std::erase_if(*rows, [&](const ChunkRow& row) {
    // A month's hours are homes of their own.
    return home.level == BucketLevel::month && row.key.bucket.level != BucketLevel::month;
  });
  std::uint64_t entries = 0;
  for (const auto& row : *rows) entries += row.entries;
  Swept out;
  // Rewriting less would cost more writes than it frees.
  out.worth = gone >= entries / 2;
  if (!out.worth) return out;

  // The rows come level by level, but `after` goes by keys.
  std::ranges::sort(*rows, {}, &ChunkRow::key);
  std::vector<BucketTables::OwnedKey> keys;
  std::vector<std::uint64_t> bytes;
  std::uint64_t read = 0, before = 0;
  for (const auto& row : *rows) {
    if (after && !(*after < row.key)) continue;
    if (read >= in.limits.step_bytes) {
      out.next = keys.back().key;
      break;
    }
    read += row.bytes;
    keys.push_back({owner, row.key});
    bytes.push_back(row.bytes);
  }
  auto loaded = in.load_chunks(home, keys);
  if (!loaded) return std::unexpected(loaded.error());
  Deal deal(in);
  for (std::size_t i = 0; i < loaded->size(); ++i) {
    LoadedChunk& chunk = (*loaded)[i];
    const auto live = static_cast<std::size_t>(std::ranges::count(chunk.live, true));
    // The home as a whole is worth it, this chunk alone is not.
    if (live * 2 > chunk.chunk->size()) continue;
    const Bucket to = chunk.key.bucket;
    deal.take(owner, std::move(chunk), [&](const PendingView&) { return std::pair(owner, to); });
    before += bytes[i];
  }
  if (deal.empty()) return out;
  const auto written = deal.write();
  if (!written) return std::unexpected(written.error());
  out.freed = before - std::min(before, *written);
  return out;
}

namespace {

// The chunks of one millisecond are read in the order of their first records, up to the first one
// that is left out.
PendingKey stream(std::vector<ChunkRow>& rows, const Bucket& bucket, PendingKey from,
                  std::size_t max_bytes) {
  std::ranges::sort(rows, {}, [](const ChunkRow& row) { return row.key.first; });
  std::uint64_t bytes = 0;
  const Sequence after = from.due == bucket.start ? from.sequence : 0;
  for (std::size_t taken = 0; taken < rows.size(); ++taken) {
    // Chunks that overlap are all needed for the first record of them.
    if (bytes > 0 && bytes + rows[taken].bytes > max_bytes && rows[taken].key.first > after) {
      const PendingKey until{bucket.start, rows[taken].key.first};
      rows.resize(taken);
      return until;
    }
    bytes += rows[taken].bytes;
  }
  return {bucket.end(), 0};
}

}  // namespace

Result<Piece> BucketStore::next_piece(const Owner& owner, const Bucket& home, PendingKey from,
                                      std::size_t max_bytes, const ChunkKeys& have) {
  return piece(owner, home, from, max_bytes, have, from, Reads::chunks);
}

Result<Piece> BucketStore::piece_ahead(const Owner& owner, const Bucket& home, PendingKey from,
                                       std::size_t max_bytes, const ChunkKeys& have,
                                       const PendingKey& horizon) {
  TARRY_ASSERT(!(from < horizon), "what is before the horizon is loaded");
  return piece(owner, home, from, max_bytes, have, horizon, Reads::chunks);
}

Result<Piece> BucketStore::deal_ahead(const Owner& owner, const Bucket& home, PendingKey from,
                                      WallTime until, std::size_t max_bytes, const ChunkKeys& have,
                                      const PendingKey& horizon) {
  TARRY_ASSERT(!(from < horizon), "what is before the horizon is loaded");
  constexpr int max_buckets = 64;
  for (int looked = 1;; ++looked) {
    auto found = piece(owner, home, from, max_bytes, have, horizon, Reads::nothing);
    if (!found || !found->loaded || looked == max_buckets) return found;
    from = found->until;
    if (from.due >= std::min(until, home.end())) return found;
  }
}

Result<Piece> BucketStore::piece(const Owner& owner, const Bucket& home, PendingKey from,
                                 std::size_t max_bytes, const ChunkKeys& have,
                                 const PendingKey& gone_before, Reads reads) {
  TARRY_ASSERT(home.level == BucketLevel::hour, "a month is dealt before it is loaded");
  const BucketTables& in = *tables_;
  // A load takes every chunk that has such entries, also to forget it.
  const PendingKey passed = gone_before < from ? from : PendingKey{WallTime::min(), 0};
  const WallTime at = std::max(from.due, home.start);
  Piece piece;
  std::vector<ChunkRow> rows;
  for (BucketLevel level = BucketLevel::hour;; level = finer(level)) {
    const Bucket bucket = bucket_of(level, at);
    bool own = false;
    auto looked = in.for_level(owner, level, bucket.start, bucket.end(),
                               [&](const ChunkRow& row) -> Result<bool> {
                                 own = !have.contains(row.key);
                                 return !own;
                               });
    if (!looked) return std::unexpected(looked.error());
    // Too many of a run are wanted all the same: they are sorted by what they begin with.
    const std::uint64_t bound =
        level == BucketLevel::run ? std::numeric_limits<std::uint64_t>::max() : max_bytes;
    auto within = in.rows_within(owner, bucket, have, bound, passed);
    if (!within) return std::unexpected(within.error());
    rows = std::move(*within);
    piece.level = level;
    piece.until = {bucket.end(), 0};
    if (bytes_of_rows(rows) <= max_bytes) break;
    if (level == BucketLevel::run) {
      if (reads == Reads::chunks) piece.until = stream(rows, bucket, from, max_bytes);
      break;
    }
    if (own) {
      // One step at a time: the caller asks again.
      if (auto dealt = deal(owner, bucket, have, gone_before); !dealt)
        return std::unexpected(dealt.error());
      return piece;
    }
  }
  piece.loaded = true;
  if (reads == Reads::nothing) return piece;

  // Small buckets go together.
  const WallTime end =
      piece.level == BucketLevel::hour
          ? home.end()
          : bucket_of(static_cast<BucketLevel>(static_cast<std::uint8_t>(piece.level) - 1), at)
                .end();
  std::uint64_t bytes = bytes_of_rows(rows);
  for (int i = 0; i < max_neighbours && rows.size() < max_piece_chunks &&
                  piece.level < BucketLevel::run && piece.until.due < end;
       ++i) {
    const Bucket next{piece.level, piece.until.due};
    const auto more = in.rows_within(owner, next, have, max_bytes);
    if (!more) return std::unexpected(more.error());
    // It comes with the next piece, whole.
    if (bytes + bytes_of_rows(*more) > max_bytes) break;
    bytes += bytes_of_rows(*more);
    rows.insert(rows.end(), more->begin(), more->end());
    piece.until.due = next.end();
  }

  std::vector<BucketTables::OwnedKey> keys;
  for (const auto& row : rows) keys.push_back({owner, row.key});
  auto chunks = in.load_chunks(home, keys);
  if (!chunks) return std::unexpected(chunks.error());
  piece.chunks = std::move(*chunks);
  return piece;
}

}  // namespace tarry::storage
