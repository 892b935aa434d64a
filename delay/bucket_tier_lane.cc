// BucketTier: its work on the Background, one piece at a time.

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/assert.h"
#include "delay/bucket_tier.h"

namespace tarry::delay {

using storage::Bucket;
using storage::bucket_of;
using storage::BucketLevel;
using storage::ChunkKey;
using storage::HomeWrite;
using storage::JournalPlace;

namespace {

// Lookups that go to the disk as one piece of work.
constexpr std::size_t max_lookups = 1'024;
// So many bytes of records, and one record more, they bring into memory; the others are looked up
// again.
constexpr std::size_t max_found_bytes = 8u << 20;
// Rows that belong to no home are written in batches of about so many bytes.
constexpr std::size_t told_batch_bytes = 4u << 20;
// So many are freed on the shard's thread.
constexpr std::size_t chunks_freed_here = 16;
// The use of the budget from which near records become far again.
constexpr std::size_t pull_back_from(std::size_t budget) {
  return budget - budget / 8;
}

}  // namespace

template <typename T, typename Then>
void BucketTier::run(std::move_only_function<Result<T>()> work, Then then) {
  busy_ = true;
  background_.run(std::move(work),
                  [this, alive = alive_, then = std::move(then)](Result<T> result) mutable {
                    if (!*alive) return;
                    busy_ = false;
                    if (failed_) return;
                    if (!result) return failed(result.error());
                    if constexpr (std::is_void_v<T>)
                      then();
                    else
                      then(std::move(*result));
                    // `then` may have told somebody who has destroyed the tier.
                    if (*alive) hooks_.wake();
                  });
}

void BucketTier::failed(const Error& error) {
  if (std::exchange(failed_, true)) return;
  hooks_.failed(error);
}

// Visits homes from `from` on, until `seen` has enough; `from` becomes the next one to be seen, or
// empty at the end.
template <typename Seen>
void BucketTier::for_homes(std::optional<Bucket>& from, Seen seen) {
  if (!from) return;
  auto home = homes_.lower_bound(*from);
  for (std::size_t left = options_.homes_a_turn; left > 0 && home != homes_.end(); --left) {
    const auto& [id, of] = *home++;
    ++stats_.homes_seen;
    if (!seen(id, of)) break;
  }
  from = home == homes_.end() ? std::nullopt : std::optional(home->first);
}

// Begins the next piece of work; false: there is none.
bool BucketTier::begin_work(WallTime now) {
  // Lookups and other work take turns, so that neither can hold up the other for long.
  if (!std::exchange(found_last_, false) && begin_finds()) {
    found_last_ = true;
    return true;
  }
  // A large home is dealt out in many pieces; writes come in between.  A turn that only looked for
  // something to write is not the writes' turn yet.
  if (dealt_last_) {
    const bool begun = begin_checkpoint_write() || begin_spill(now);
    dealt_last_ = begun && !busy_;
    if (begun) return true;
  }
  return begin_load(now) || begin_checkpoint_write() || begin_spill(now) || begin_finds() ||
         deal_months(WallTime::max()) || begin_forget() || begin_disk_sweep();
}

// --- Lookups

std::optional<Bucket> BucketTier::foreign_home(const PendingKey& key) const {
  for (const BucketLevel level : {BucketLevel::month, BucketLevel::hour}) {
    const auto home = homes_.find(bucket_of(level, key.due));
    if (home != homes_.end() && home->second.foreign) return home->first;
  }
  return std::nullopt;
}

bool BucketTier::begin_finds() {
  if (lookups_.empty() && id_lookups_.empty()) return false;
  // The chunks of a foreign home belong to no shard, so the store would not find the record there.
  for (const auto& lookup : lookups_) {
    const auto home = foreign_home(lookup.key);
    if (home) return begin_adopt(*home), true;
  }
  struct Asked {
    std::vector<Lookup> lookups;
    std::vector<PendingKey> keys;
    std::vector<std::optional<storage::PendingRecord>> records;
    std::vector<std::size_t> left;  // The numbers of those that are looked up again.
    std::vector<IdLookup> ids;
    std::vector<std::vector<storage::ScheduleEvent>> events;
  };
  auto asked = std::make_shared<Asked>();
  for (; !lookups_.empty() && asked->lookups.size() < max_lookups; lookups_.pop_front())
    asked->lookups.push_back(std::move(lookups_.front()));
  for (; !id_lookups_.empty() && asked->ids.size() < max_lookups; id_lookups_.pop_front())
    asked->ids.push_back(std::move(id_lookups_.front()));
  run<void>(
      [&store = store_, owner = owner_, asked]() -> Result<> {
        for (const auto& lookup : asked->lookups) {
          asked->keys.push_back(lookup.key);
          if (!lookup.by_handle) continue;
          const auto moved = store.forward(lookup.key);
          if (!moved) return std::unexpected(moved.error());
          if (*moved) asked->keys.back() = **moved;
        }
        auto found = store.find(owner, asked->keys, max_found_bytes, &asked->left);
        if (!found) return std::unexpected(found.error());
        asked->records = std::move(*found);
        for (const auto& lookup : asked->ids) {
          auto events = store.id_events(lookup.partition, lookup.id);
          if (!events) return std::unexpected(events.error());
          asked->events.push_back(std::move(*events));
        }
        return {};
      },
      [this, asked] {
        const std::set<std::size_t> left(asked->left.begin(), asked->left.end());
        // Memory may have learned more meanwhile: what it knows counts.
        for (std::size_t i = 0; i < asked->lookups.size(); ++i) {
          Lookup& lookup = asked->lookups[i];
          if (left.contains(i))
            lookups_.push_back(std::move(lookup));
          else if (lookup.by_handle && forwarded(lookup.key) != nullptr)
            find_handle(lookup.key, std::move(lookup.found));
          else if (foreign_home(asked->keys[i]))
            lookups_.push_back({asked->keys[i],
                                lookup.by_handle ? unless_moved(lookup.key, asked->keys[i],
                                                                std::move(lookup.found))
                                                 : std::move(lookup.found),
                                false});
          else if (auto now = known(asked->keys[i]))
            lookup.found(std::move(*now));
          else
            lookup.found(std::move(asked->records[i]));
        }
        for (std::size_t i = 0; i < asked->ids.size(); ++i) {
          IdLookup& lookup = asked->ids[i];
          auto& events = asked->events[i];
          if (dropped_.contains(lookup.partition.topic)) events.clear();
          if (const auto* const more = told_->ids.find(lookup.partition, lookup.id))
            events.insert(events.end(), more->begin(), more->end());
          lookup.events(std::move(events));
        }
      });
  return true;
}

// --- Loading

storage::ChunkKeys BucketTier::known_keys(const Home& home) {
  // A dead chunk is on the disk until its home is written, and may not be loaded again.
  storage::ChunkKeys keys(home.dead.begin(), home.dead.end());
  keys.insert(home.aside.begin(), home.aside.end());
  for (const auto& [bucket, shelf] : home.shelves)
    for (const auto& resident : shelf.residents)
      if (resident->is_written()) keys.insert(*resident->key);
  return keys;
}

// The months that are near enough to be hours are closed: what memory has of them is written, and
// from the same turn on no operation belongs to them.
bool BucketTier::open_months(WallTime now) {
  const WallTime until = bucket_of(BucketLevel::month, now + options_.hours_ahead).start;
  if (until <= hours_end_) return false;
  for (auto month = homes_.lower_bound({BucketLevel::month, hours_end_});
       month != homes_.end() && month->first.level == BucketLevel::month &&
       month->first.start < until;
       ++month) {
    // Nothing of this month is in memory, so there is nothing to write.
    if (!month->second.dirty && month->second.shelves.empty()) continue;
    write_homes({month->first});
    hours_end_ = month->first.end();
    recent_ = {};
    return true;
  }
  hours_end_ = until;
  recent_ = {};
  return false;
}

// Closed months that begin before `until` are dealt out to hours.
bool BucketTier::deal_months(WallTime until) {
  for (auto& [id, home] : homes_) {
    if (id.level != BucketLevel::month || id.start >= std::min(hours_end_, until)) break;
    if (home.foreign) return begin_adopt(id), true;
    if (home.dirty || !home.shelves.empty()) return write_homes({id}), true;
    if (home.on_disk) return begin_deal(id), true;
  }
  return false;
}

bool BucketTier::begin_load(WallTime now) {
  if (!options_.loads) return false;
  load_waits_ = false;
  if (open_months(now)) return true;
  if (!handing_.empty()) return false;
  if (lead_ < options_.lead && used() < options_.memory_bytes / 2 && now >= lead_from_)
    lead_ = std::min(lead_ * 2, options_.lead);
  const WallTime want = bucket_of(BucketLevel::second, now + lead_).end();
  // Not a little at a time: each time looks at all that is in memory of an hour.
  if (now + lead_ / 2 < horizon_.due) return false;
  if (deal_months(want)) return true;
  const auto next = next_home(horizon_.due);
  // Nothing is due until then, so there is nothing to read.
  if (!next || next->start >= want) return begin_handing({want, 0}), true;
  if (next->start > horizon_.due) return begin_handing({next->start, 0}), true;
  Home& home = homes_.at(*next);
  if (home.foreign) return begin_adopt(*next), true;
  if (!home.on_disk) return begin_handing({std::min(next->end(), want), 0}), true;
  // The near records have to be delivered first, and the far ones to be written.
  // Memory that is smaller than a piece must not stop loading for good.
  const std::size_t piece = load_bytes(*next, home);
  const auto has_room = [&] { return used() + piece <= spill_from() || memory_ <= piece; };
  if (!has_room()) evict(home);  // All near records of its chunks may have been delivered.
  load_waits_ = !has_room();
  if (load_waits_) return false;

  loading_from_ = horizon_;
  run<storage::Piece>(
      [&store = store_, owner = owner_, id = *next, from = horizon_, piece,
       have = known_keys(home)] { return store.next_piece(owner, id, from, piece, have); },
      [this, id = *next](storage::Piece found) { loaded(id, std::move(found)); });
  return true;
}

// A second that is loaded at once is not dealt out to milliseconds, which costs as much as all else
// that is done with its records.  Where records were removed each of the piece is looked for, so
// that it may not be large.
std::size_t BucketTier::load_bytes(const Bucket& id, const Home& home) const {
  if (has_gone(id, home)) return piece_bytes();
  const std::size_t room = spill_from() - std::min(spill_from(), used());
  return std::clamp(room / 2, piece_bytes(), options_.memory_bytes / 3);
}

// Whether records are gone that may be in chunks on the disk.
bool BucketTier::has_gone(const Bucket& id, const Home& home) const {
  if (!home.gone.empty()) return true;
  const auto month = homes_.find(bucket_of(BucketLevel::month, id.start));
  return month != homes_.end() && !month->second.gone.empty();
}

// The sequence numbers of what is gone, sorted, by which most chunks are seen to have nothing of
// it.
std::vector<Sequence> BucketTier::gone_of(const Bucket& id, const Home& home) const {
  std::vector<Sequence> gone(home.gone.begin(), home.gone.end());
  const auto month = homes_.find(bucket_of(BucketLevel::month, id.start));
  if (month != homes_.end() && id.level != BucketLevel::month)
    gone.insert(gone.end(), month->second.gone.begin(), month->second.gone.end());
  std::ranges::sort(gone);
  return gone;
}

void BucketTier::loaded(const Bucket& id, storage::Piece piece) {
  Home& home = homes_.at(id);
  if (!piece.loaded) {
    ++stats_.disk_downgrades;
    dealt_last_ = true;
    home.split = std::max(home.split, std::min(finer(piece.level), BucketLevel::tick));
    return;
  }
  if (horizon_ != loading_from_) return;  // It was pulled back meanwhile.
  ++stats_.loads;
  const std::vector<Sequence> gone = gone_of(id, home);
  for (auto& chunk : piece.chunks) {
    auto resident = std::make_shared<Resident>();
    resident->live = std::move(chunk.live);
    resident->home = id;
    resident->sealed = true;
    resident->key = chunk.key;
    // They were removed while the disk was read.
    const auto first_gone = std::ranges::lower_bound(gone, chunk.chunk->first());
    if (first_gone != gone.end() && *first_gone <= chunk.chunk->last()) {
      for (std::size_t i = 0; i < resident->live.size(); ++i)
        if (resident->live[i] && is_gone(chunk.chunk->key_at(i))) resident->live[i] = false;
    }
    resident->live_count = static_cast<std::size_t>(std::ranges::count(resident->live, true));
    // The disk has only what is gone of it, so its chunk goes with the next write.
    if (resident->live_count == 0) {
      home.dead.push_back(chunk.key);
      home.dirty = true;
      continue;
    }
    resident->chunk = std::const_pointer_cast<storage::Chunk>(chunk.chunk);
    resident->entries_on_disk = chunk.chunk->size();
    number(resident);
    live_ += resident->live_count;
    Level& level = level_of(*resident);
    ++level.chunks;
    level.records += resident->live_count;
    level.loaded += resident->live_count;
    level.on_disk += resident->entries_on_disk;
    // The store may have been asked before it knew of a topic.
    if (!dropped_.empty()) sweeping_.push_back({resident, 0});
    Shelf& shelf = home.shelves[chunk.key.bucket];
    shelf.residents.push_back(resident);
    charge(home, *resident);
    shelf.in_order = shelf.residents.size() == 1 ||
                     (shelf.in_order && shelf.residents[shelf.residents.size() - 2]->chunk->last() <
                                            resident->chunk->first());
  }
  if (piece.until.due >= id.end()) home.on_disk = false;  // The rest of it is in memory.
  begin_handing(piece.until);
}

void BucketTier::begin_deal(const Bucket& month) {
  struct Dealt {
    bool more = false;
    std::set<Bucket> homes;
  };
  run<Dealt>(
      [&store = store_, owner = owner_, month]() -> Result<Dealt> {
        Dealt out;
        const auto more = store.downgrade(owner, month, {});
        if (!more) return std::unexpected(more.error());
        out.more = *more;
        if (out.more) return out;
        const auto homes = store.homes(owner);
        if (!homes) return std::unexpected(homes.error());
        out.homes.insert(homes->lower_bound(bucket_of(BucketLevel::hour, month.start)),
                         homes->lower_bound({BucketLevel::hour, month.end()}));
        return out;
      },
      [this, month](const Dealt& dealt) {
        ++stats_.disk_downgrades;
        dealt_last_ = true;
        if (dealt.more) return;
        homes_.at(month).on_disk = false;
        for (const auto& home : dealt.homes) homes_[home].on_disk = true;
      });
}

void BucketTier::begin_adopt(const Bucket& home) {
  run<bool>([&store = store_, shards = owner_.shards, home,
             owner_of = hooks_.owner_of] { return store.adopt(shards, home, owner_of); },
            [this, home](bool more) {
              dealt_last_ = true;
              if (more) return;
              homes_.at(home).foreign = false;
              homes_.at(home).on_disk = true;
            });
}

// --- Writing

bool BucketTier::begin_checkpoint_write() {
  std::vector<Bucket> homes;
  std::size_t bytes = 0;
  for_homes(write_next_, [&](const Bucket& id, const Home& home) {
    if (!home.dirty) return true;
    homes.push_back(id);
    bytes += home.unwritten;
    return homes.size() < options_.write_homes && bytes < options_.write_bytes;
  });
  if (!homes.empty()) return write_homes(homes), true;
  // There are more homes than one turn may look at.
  if (write_next_) return true;
  if (told_due_) return write_told(true), true;
  return false;
}

bool BucketTier::is_worth_writing(const Bucket& id, const Home& home) const {
  const bool has_far = id.end() > horizon_.due;
  return (home.unwritten > 0 && (has_far || home.aside_unwritten)) || home.marks > 0;
}

// Memory is short: the fullest far homes go to the disk, or what is near is pulled back.
bool BucketTier::begin_spill(WallTime now) {
  if (no_room_ || (!wants_to_spill() && !load_waits_)) {
    spill_next_.reset();
    return false;
  }
  if (told_->bytes > piece_bytes()) return write_told(false), true;
  if (!spill_next_) {
    fullest_.clear();
    if (!homes_.empty()) spill_next_ = homes_.begin()->first;
  }
  for_homes(spill_next_, [&](const Bucket& id, const Home& home) {
    if (is_worth_writing(id, home)) fullest_.emplace_back(home.unwritten + home.marks, id);
    return true;
  });
  const auto count = std::min(fullest_.size(), options_.write_homes);
  std::ranges::partial_sort(fullest_, fullest_.begin() + static_cast<std::ptrdiff_t>(count),
                            std::ranges::greater());
  fullest_.resize(count);
  if (spill_next_) return true;  // There are more homes.
  std::vector<Bucket> homes;
  std::size_t bytes = 0;
  for (const auto& [size, id] : fullest_) {
    if (bytes >= options_.write_bytes) break;
    // A part of them was found some turns ago.
    const auto home = homes_.find(id);
    if (home == homes_.end() || !is_worth_writing(id, home->second)) continue;
    bytes += size;
    homes.push_back(id);
  }
  if (bytes < options_.write_bytes / 4 && used() >= pull_back_from(options_.memory_bytes))
    pull_back(now);
  if (homes.empty()) return false;
  write_homes(homes);
  return true;
}

// From now on nobody changes its tails; what is removed from them meanwhile is marked.
// `gone` is added to the marks where it is written: it may be large.
HomeWrite BucketTier::seal(const Bucket& id, Home& home, Sealed& sealed, Removals& gone) {
  HomeWrite out;
  out.home = id;
  // No operation belongs to a closed month any more, so its place in the journal stays.
  const bool is_closed = id.level == BucketLevel::month && id.start < hours_end_;
  out.place = is_closed ? home.written : applied_;
  out.dead = std::exchange(home.dead, {});
  for (const auto& [of, use] : std::exchange(home.uses, {})) {
    const auto& [topic, principal] = of;
    // The counters of a dropped topic are gone, and this would make new ones.
    if (dropped_.contains(topic)) continue;
    out.counts[topic] += use.records;
    if (principal != unknown_principal) out.uses.emplace(of, use);
  }
  memory_ -= std::exchange(home.marks, 0);
  gone.of_home = std::exchange(home.gone, {});
  for (auto& [bucket, shelf] : home.shelves) {
    for (const auto& resident : shelf.residents) {
      if (resident->is_written()) {
        if (resident->gone.empty()) continue;
        home.gone_on_disk += resident->gone.size();
        gone.of_chunks.push_back(std::exchange(resident->gone, {}));
        continue;
      }
      resident->sealed = resident->writing = true;
      stats_.written += resident->live_count;
      resident->entries_on_disk = resident->live_count;  // When it is written.
      out.parts.push_back({resident->chunk, resident->live});
      sealed.emplace_back(bucket, resident);
    }
  }
  home.dirty = home.aside_unwritten = false;
  home.gone_on_disk += gone.of_home.size();
  if (home.gone_on_disk >= home.sweep_at) disk_sweeps_.try_emplace(id);
  return out;
}

void BucketTier::write_homes(const std::vector<Bucket>& ids) {
  struct Written {
    std::vector<HomeWrite> changes;
    std::vector<Sealed> sealed;
    std::vector<Removals> gone;
    std::vector<std::vector<ChunkKey>> keys;
  };
  auto writing = std::make_shared<Written>();
  for (const auto& id : ids) {
    writing->changes.push_back(
        seal(id, homes_.at(id), writing->sealed.emplace_back(), writing->gone.emplace_back()));
  }
  run<std::uint64_t>(
      [&store = store_, owner = owner_, writing]() -> Result<std::uint64_t> {
        for (std::size_t i = 0; i < writing->changes.size(); ++i) {
          HomeWrite& change = writing->changes[i];
          // It is freed here on the Background, because it may be large.
          const Removals gone = std::exchange(writing->gone[i], {});
          change.gone.assign(gone.of_home.begin(), gone.of_home.end());
          for (const auto& marks : gone.of_chunks)
            change.gone.insert(change.gone.end(), marks.begin(), marks.end());
          auto keys = store.write(owner, change);
          if (!keys) return std::unexpected(keys.error());
          writing->keys.push_back(std::move(*keys));
        }
        return store.unflushed_bytes();
      },
      [this, writing](std::uint64_t unflushed) mutable {
        for (std::size_t i = 0; i < writing->changes.size(); ++i)
          written(writing->changes[i], writing->sealed[i], writing->keys[i]);
        // Many chunks that leave memory take long to go.
        std::size_t chunks = 0;
        for (const auto& sealed : writing->sealed) chunks += sealed.size();
        if (chunks > chunks_freed_here)
          background_.run_and_then([ended = std::move(writing)]() mutable { ended.reset(); },
                                   [] {});
        if (unflushed >= options_.flush_bytes && !flushing_) flush();
      });
}

void BucketTier::written(const HomeWrite& change, const Sealed& sealed,
                         const std::vector<ChunkKey>& keys) {
  Home& home = homes_.at(change.home);
  home.written = change.place;
  recent_ = {};
  for (std::size_t part = 0; part < sealed.size(); ++part) {
    const auto& [bucket, resident] = sealed[part];
    home.unwritten -= resident->charged;
    --home.tails;
    resident->writing = false;
    resident->key = keys[part];
    level_of(*resident).on_disk += resident->entries_on_disk;
    // The marks of what was removed while it was being written go with the next write.
    if (resident->live_count == 0) {
      let_go(home, *resident);
      continue;
    }
    if (!resident->gone.empty()) home.dirty = true;
    set_down(*resident);
  }
  evict(home);
}

// Beside the lane: it changes nothing that anybody reads.
void BucketTier::flush() {
  flushing_ = true;
  background_.run(
      [&store = store_, by_host = hooks_.flush] { return by_host ? by_host() : store.flush(); },
      [this, alive = alive_](const Result<>& flushed) {
        if (!*alive) return;
        flushing_ = false;
        if (flushed) return;
        const Errc code = flushed.error().code;
        no_room_ = code == Errc::no_space || code == Errc::exhausted;
        if (!no_room_) failed(flushed.error());
      });
}

// Writes the rows that belong to no home, at the end of a checkpoint.
void BucketTier::write_told(bool ends_checkpoint) {
  if (ends_checkpoint) told_due_ = false;
  auto next = std::make_shared<Told>();
  next->number = told_->number + 1;
  told_writing_ = std::exchange(told_, std::move(next));
  run<void>(
      [&store = store_, writing = told_writing_]() -> Result<> {
        std::vector<storage::Forward> forwards;
        std::vector<storage::IdChange> ids;
        std::size_t bytes = 0;
        Result<> written;
        // Each row stands alone, so a crash may come between them.
        const auto write = [&] {
          if (written) written = store.write(forwards, ids);
          forwards.clear();
          ids.clear();
          bytes = 0;
        };
        for (const auto& [handle, now] : writing->forwards) {
          // A record that is back at its handle's time needs no row.
          forwards.push_back({handle, now == handle ? std::nullopt : now});
          if ((bytes += sizeof(forwards[0])) >= told_batch_bytes) write();
        }
        writing->ids.for_each([&](const auto& partition, const auto& id, const auto& events) {
          ids.push_back({partition, id, events});
          bytes += sizeof(ids[0]) + id.size() + events.size() * sizeof(events[0]);
          if (bytes >= told_batch_bytes) write();
        });
        write();
        return written;
      },
      [this, alive = alive_, ends_checkpoint] {
        told_kept_.push_back(std::move(told_writing_));
        told_writing_.reset();
        forget_told();
        if (!ends_checkpoint) return;
        for (auto& done : std::exchange(checkpoint_done_, {}))
          if (*alive) done();
        if (*alive && !checkpoint_next_.empty()) begin_write_all();
      });
}

// Forgets events that are written and that no request needs, and the rows of requests that ended.
void BucketTier::forget_told() {
  for (; !rows_held_.empty() && rows_held_.front().first.expired(); rows_held_.pop_front())
    memory_ -= rows_held_.front().second;
  // A request that asked the store earlier may need what was told since.
  while (!told_kept_.empty() && told_kept_.front()->pin.use_count() == 1) {
    memory_ -= told_kept_.front()->bytes;
    // A large map takes long to go.
    background_.run_and_then([gone = std::move(told_kept_.front())]() mutable { gone.reset(); },
                             [] {});
    told_kept_.pop_front();
  }
}

// Homes of which nothing is left: their places go once no journal can tell of them again.
bool BucketTier::begin_forget() {
  if (!forget_next_) return false;
  std::set<Bucket> ended;
  for_homes(forget_next_, [&](const Bucket& id, const Home& home) {
    if (may_forget(id, home)) ended.insert(id);
    return true;
  });
  if (ended.empty()) return forget_next_.has_value();
  run<void>([&store = store_, shard = owner_.shard, noted = noted_,
             ended] { return store.forget_places(shard, noted, ended); },
            [this, ended] {
              for (const auto& id : ended) {
                const auto home = homes_.find(id);
                if (home != homes_.end() && may_forget(id, home->second)) homes_.erase(home);
              }
              recent_ = {};
            });
  return true;
}

// Frees what was cancelled, or is of a deleted topic, in homes that do not come near soon.
bool BucketTier::begin_disk_sweep() {
  while (!disk_sweeps_.empty()) {
    const auto& [id, after] = *disk_sweeps_.begin();
    const auto found = homes_.find(id);
    if (found != homes_.end() && found->second.on_disk && !found->second.foreign &&
        id.start > horizon_.due) {
      run<storage::BucketStore::Swept>(
          [&store = store_, owner = owner_, id = id, after = after,
           have = known_keys(found->second),
           gone = found->second.gone_on_disk] { return store.sweep(owner, id, after, have, gone); },
          [this, id = id](const storage::BucketStore::Swept& swept) {
            stats_.freed_bytes += swept.freed;
            const auto home = homes_.find(id);
            if (home == homes_.end()) return;
            if (swept.next) {
              disk_sweeps_[id] = swept.next;
              return;
            }
            disk_sweeps_.erase(id);
            if (swept.worth) {
              home->second.gone_on_disk = 0;
              home->second.sweep_at = least_gone;
            } else {
              // It is looked at again when as much again is gone.
              home->second.sweep_at = 2 * home->second.gone_on_disk;
            }
          });
      return true;
    }
    disk_sweeps_.erase(disk_sweeps_.begin());
  }
  return false;
}

}  // namespace tarry::delay
