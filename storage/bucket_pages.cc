// BucketStore's answers that go over many buckets: page() and count().

#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "base/assert.h"
#include "base/glob.h"
#include "storage/bucket_store.h"
#include "storage/bucket_tables.h"

namespace tarry::storage {
namespace {

// Goes over the chunks of an owner, or of all, as of one moment, in the order of the first keys
// that they may have.  A chunk of an hour may have any key of it: so where many have not been dealt
// yet, all of them come before the first key is certain.
class Sweep {
 public:
  Sweep(const BucketTables& in, const std::optional<Owner>& owner)
      : in_(in), moment_(in), owner_(owner) {}

  // Calls `take` with each chunk that may have a key from `from` on and is due before `until`.
  // `ends` is asked before each, with a key; all smaller ones have been taken.  Returns whether it
  // came to the end.
  template <typename Ends, typename Take>
  Result<bool> run(PendingKey from, WallTime until, const Ends& ends, const Take& take) {
    if (from.due >= until) return true;
    if (auto found = find_owners(); !found) return std::unexpected(found.error());
    for (WallTime at = std::max(from.due, before_all);;) {
      const auto span = next_span(at);
      if (!span) return std::unexpected(span.error());
      if (!*span || (*span)->start >= until) return true;
      at = std::max(at, (*span)->start);
      // Everything before this home has been taken, and its own chunks may be many.
      if (ends(PendingKey{at, 0})) return false;
      const auto chunks = chunks_of(**span, std::max(from, PendingKey{at, 0}), until);
      if (!chunks) return std::unexpected(chunks.error());
      const auto ended = take_all(**span, *chunks, ends, take);
      if (!ended || !*ended) return ended;
      at = (*span)->end();
    }
  }

  // Entries of the chunks so far, and the last key that one of them may have.
  std::size_t scanned() const { return scanned_; }
  PendingKey reach() const { return reach_; }

 private:
  using OwnedRow = std::pair<Owner, ChunkRow>;

  // The chunks of one home, more and more at once: each time its marks are read.
  template <typename Ends, typename Take>
  Result<bool> take_all(const Bucket& span, std::span<const OwnedRow> chunks, const Ends& ends,
                        const Take& take) {
    std::vector<BucketTables::OwnedKey> keys;
    for (std::uint64_t max_bytes = Chunk::full_bytes; !chunks.empty();
         max_bytes = std::min<std::uint64_t>(2 * max_bytes, in_.limits.step_bytes)) {
      // The chunks are in the order of their first possible keys, so no later one has a smaller
      // key.
      if (ends(first_of(chunks[0].second))) return false;
      keys.clear();
      std::uint64_t bytes = 0;
      for (const auto& [owner, row] : chunks) {
        if (bytes >= max_bytes) break;
        bytes += row.bytes;
        keys.push_back({owner, row.key});
      }
      const auto loaded = in_.load_chunks(span, keys, &moment_);
      if (!loaded) return std::unexpected(loaded.error());
      for (std::size_t i = 0; i < loaded->size(); ++i) {
        const ChunkRow& row = chunks[i].second;
        if (ends(first_of(row))) return false;
        scanned_ += (*loaded)[i].chunk->size();
        reach_ = std::max(reach_, last_of(row));
        take((*loaded)[i]);
      }
      chunks = chunks.subspan(loaded->size());
    }
    return true;
  }

  static PendingKey first_of(const ChunkRow& row) { return {row.key.bucket.start, row.key.first}; }
  static PendingKey last_of(const ChunkRow& row) {
    const Bucket& bucket = row.key.bucket;
    // From here on all keys have the same time, so the sequences of the chunk bound them.
    if (bucket.level >= BucketLevel::tick) return {bucket.start, row.last};
    // The row does not say which time is the last, so it may be the last of the bucket.
    return {bucket.end() - std::chrono::milliseconds(1), std::numeric_limits<Sequence>::max()};
  }

  Result<> find_owners() {
    if (owner_) {
      owners_ = {*owner_};
      return {};
    }
    auto found = in_.owners(&moment_);
    if (!found) return std::unexpected(found.error());
    owners_ = std::move(*found);
    return {};
  }

  // The first home from `at` on that has chunks.  A month that is being dealt out and its hours are
  // looked at together.
  Result<std::optional<Bucket>> next_span(WallTime at) const {
    std::optional<Bucket> month, hour;
    for (const auto& owner : owners_) {
      for (BucketLevel level = BucketLevel::month;; level = finer(level)) {
        auto& first = level == BucketLevel::month ? month : hour;
        const auto looked = in_.for_level(
            owner, level, at, WallTime::max(),
            [&](const ChunkRow& row) -> Result<bool> {
              const Bucket home =
                  bucket_of(std::min(level, BucketLevel::hour), row.key.bucket.start);
              // Each owner has its own chunks; the earliest home of all of them counts.
              if (!first || home.start < first->start) first = home;
              return false;
            },
            &moment_);
        if (!looked) return std::unexpected(looked.error());
        if (level == BucketLevel::run) break;
      }
    }
    if (!month || !hour) return month ? month : hour;
    return hour->start < month->start ? hour : month;
  }

  // Chunks that have not been asked for are left out, and so are those of writes that do not count
  // yet.
  Result<std::vector<OwnedRow>> chunks_of(const Bucket& span, PendingKey from,
                                          WallTime until) const {
    std::vector<OwnedRow> out;
    for (const auto& owner : owners_) {
      const auto unfinished = in_.unfinished_in(owner, span, &moment_);
      if (!unfinished) return std::unexpected(unfinished.error());
      auto looked = in_.for_rows(
          owner, span.level, from.due, std::min(span.end(), until),
          [&](const ChunkRow& row) -> Result<bool> {
            if (!unfinished->contains(row.key) && last_of(row) >= from)
              out.emplace_back(owner, row);
            return true;
          },
          &moment_);
      if (!looked) return std::unexpected(looked.error());
    }
    std::ranges::sort(out, {}, [](const OwnedRow& each) { return first_of(each.second); });
    return out;
  }

  const BucketTables& in_;
  const BucketMoment moment_;
  const std::optional<Owner> owner_;
  std::vector<Owner> owners_;
  std::size_t scanned_ = 0;
  PendingKey reach_{before_all, 0};
};

// The records of a page: the smallest ones of those that were seen.
class PageRecords {
 public:
  PageRecords(std::size_t limit, std::size_t bytes) : limit_(limit), max_bytes_(bytes) {}

  bool wants(const PendingKey& key) const { return !is_full() || key < records_.rbegin()->first; }
  void add(const PendingView& entry) {
    if (!wants(entry.key)) {
      cut_ = true;
      return;
    }
    const auto added = records_.emplace(entry.key, entry.owned());
    if (added.second) bytes_ += entry.record.size();
    // One record is kept however large it is, or the reader would never come past it.
    while (records_.size() > limit_ || (bytes_ > max_bytes_ && records_.size() > 1)) {
      const auto last = std::prev(records_.end());
      bytes_ -= last->second.record.size();
      records_.erase(last);
      cut_ = true;
    }
  }
  bool is_full() const { return cut_ || records_.size() >= limit_ || bytes_ >= max_bytes_; }
  bool is_cut() const { return cut_; }  // There are more than these.
  std::vector<PendingRecord> take() {
    std::vector<PendingRecord> out;
    for (auto& [key, record] : records_) out.push_back(std::move(record));
    return out;
  }

 private:
  const std::size_t limit_, max_bytes_;
  std::size_t bytes_ = 0;
  bool cut_ = false;
  std::map<PendingKey, PendingRecord> records_;
};

bool is_in(const PendingQuery& query, const TopicPartition& partition) {
  return (!query.topic || partition.topic == *query.topic) &&
         (!query.partition || partition.partition == *query.partition) &&
         !query.hidden.contains(partition.topic);
}

bool fits(const PendingQuery& query, const PendingView& entry) {
  return is_in(query, entry.partition) && entry.key.due >= query.from &&
         entry.key.due < query.until && (!query.after || *query.after < entry.key) &&
         (query.id.empty() || (!entry.id.empty() && matches_glob(query.id, entry.id)));
}

// The next key that there may be.
PendingKey behind(const PendingKey& key) {
  if (key.sequence < std::numeric_limits<Sequence>::max()) return {key.due, key.sequence + 1};
  return {key.due + std::chrono::milliseconds(1), 0};
}

Result<PendingPage> page_of(const BucketTables& in, const std::optional<Owner>& owner,
                            const PendingQuery& query) {
  PendingPage page;
  if (query.limit == 0) return page;
  PendingKey from{query.from, 0};
  if (query.after) from = std::max(from, behind(*query.after));
  PageRecords records(query.limit, in.limits.bytes_per_page);
  Sweep sweep(in, owner);
  const auto ends = [&](const PendingKey& key) {
    if (records.is_full() && !records.wants(key)) return true;
    // Only where no chunk seen so far reaches on: the next page begins after the last of them.
    return sweep.scanned() >= in.limits.scanned_per_page && sweep.reach() < key;
  };
  const auto take = [&](const LoadedChunk& loaded) {
    for (std::size_t i = 0; i < loaded.chunk->size(); ++i) {
      if (!loaded.live[i]) continue;
      // A record for which the page has no place need not be decoded.
      if (records.is_cut() && !records.wants(loaded.chunk->key_at(i))) continue;
      const PendingView entry = loaded.chunk->at(i);
      if (fits(query, entry)) records.add(entry);
    }
  };
  const auto ended = sweep.run(from, query.until, ends, take);
  if (!ended) return std::unexpected(ended.error());
  const bool full = records.is_full(), cut = records.is_cut();
  page.records = records.take();
  if (full && (cut || !*ended)) {
    // The reader goes on after the last record that it was given, not after the last that was
    // looked at.
    page.next = page.records.back().key;
  } else if (!*ended) {
    page.next = sweep.reach();
  }
  return page;
}

// The stretch of `by` that holds `due`.
WallTime stretch_of(WallTime due, std::chrono::milliseconds by) {
  const std::int64_t ms = to_ms(due), span = by.count();
  std::int64_t index = ms / span;
  // Division rounds towards zero, so times before 1970 would share a stretch with those after it.
  if (ms % span < 0) --index;
  return from_ms(index * span);
}

}  // namespace

Result<PendingPage> BucketStore::page(const Owner& owner, const PendingQuery& query) {
  return page_of(*tables_, owner, query);
}

Result<PendingPage> BucketStore::page(const PendingQuery& query) {
  return page_of(*tables_, std::nullopt, query);
}

Result<BucketStore::Counted> BucketStore::count(const PendingQuery& query, WallTime from,
                                                std::chrono::milliseconds by, bool by_topic) {
  TARRY_ASSERT(by.count() > 0, "a stretch is not empty");
  Counted out;
  auto of_topic = out.topics.end();
  Sweep sweep(*tables_, std::nullopt);
  from = std::max(from, query.from);
  const auto ends = [&](const PendingKey& key) {
    // `next` is a time, so no chunk that reaches past it may have been counted.
    if (sweep.scanned() < tables_->limits.scanned_per_page || key.due <= sweep.reach().due)
      return false;
    out.next = key.due;
    return true;
  };
  const auto take = [&](const LoadedChunk& loaded) {
    for (std::size_t i = 0; i < loaded.chunk->size(); ++i) {
      if (!loaded.live[i]) continue;
      const WallTime due = loaded.chunk->key_at(i).due;
      if (due < from || due >= query.until) continue;
      const bool wants_some = query.topic || query.partition || !query.hidden.empty();
      if (wants_some && !is_in(query, loaded.chunk->at(i).partition)) continue;
      ++out.counts[stretch_of(due, by)];
      if (!by_topic) continue;
      const TopicId& topic = loaded.chunk->at(i).partition.topic;
      // Neighbours are mostly of one topic.
      if (of_topic == out.topics.end() || of_topic->first != topic)
        of_topic = out.topics.try_emplace(topic).first;
      ++of_topic->second[stretch_of(due, by)];
    }
  };
  const auto ended = sweep.run({from, 0}, query.until, ends, take);
  if (!ended) return std::unexpected(ended.error());
  return out;
}

}  // namespace tarry::storage
