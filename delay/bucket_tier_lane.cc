// BucketTier: its work on the Background, one piece at a time.

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "delay/bucket_tier.h"

namespace tarry::delay {

using storage::Bucket;
using storage::bucket_of;
using storage::BucketLevel;
using storage::ChunkKey;
using storage::ChunkKeys;
using storage::HomeWrite;

namespace {

// So many chunks that leave memory in a turn are freed on the shard's thread.
constexpr std::size_t chunks_freed_here = 16;
// The use of the budget from which near records become far again.
constexpr std::size_t pull_back_from(std::size_t budget) {
  return budget - budget / 8;
}

}  // namespace

// Visits homes from `from` on, until `seen` has enough; `from` becomes the next one to be seen, or
// empty at the end.
template <typename Seen>
void BucketTier::for_homes(std::optional<Bucket>& from, Seen seen) {
  if (!from) return;
  const auto& homes = homes_.all();
  auto home = homes.lower_bound(*from);
  for (std::size_t left = options_.homes_a_turn; left > 0 && home != homes.end(); --left) {
    const auto& [id, of] = *home++;
    ++stats_.homes_seen;
    if (!seen(id, of)) break;
  }
  from = home == homes.end() ? std::nullopt : std::optional(home->first);
}

// Begins the next piece of work; false: there is none.
bool BucketTier::begin_work(WallTime now) {
  // First, so that all else sees what is really in memory.
  if (homes_.is_evicting() && evict()) return true;
  // Lookups and other work take turns, so that neither can hold up the other for long.
  if (!std::exchange(found_last_, false) && lookups_.begin()) {
    found_last_ = true;
    return true;
  }
  // A large home is dealt out in many pieces; writes come in between.  A turn that only looked for
  // something to write is not the writes' turn yet.
  if (dealt_last_) {
    const bool begun = begin_checkpoint_write() || begin_spill(now);
    dealt_last_ = begun && !lane_.is_busy();
    if (begun) return true;
  }
  // What is rescued does not wait for all of a flood to be loaded.
  const bool is_its_turn = rescue_.is_on() && !std::exchange(rescued_last_, false);
  if (is_its_turn && begin_rescue(now)) {
    rescued_last_ = true;
    return true;
  }
  // Nor do writes wait until it has passed over all of a flood: a load may wait for the memory that
  // they free.
  return begin_load(now) || (!rescue_.is_on() && begin_rescue(now)) || begin_checkpoint_write() ||
         begin_spill(now) || begin_rescue(now) || begin_deal_ahead(now) || lookups_.begin() ||
         (!is_flush_behind_ && deal_months(WallTime::max())) || begin_forget() ||
         (!is_flush_behind_ && begin_disk_sweep());
}

// --- Loading

// The months that are near enough to be hours are closed: what memory has of them is written, and
// from the same turn on no operation belongs to them.
bool BucketTier::open_months(WallTime now) {
  const WallTime until = bucket_of(BucketLevel::month, now + options_.hours_ahead).start;
  if (until <= homes_.hours_end()) return false;
  const auto& homes = homes_.all();
  for (auto month = homes.lower_bound({BucketLevel::month, homes_.hours_end()});
       month != homes.end() && month->first.level == BucketLevel::month &&
       month->first.start < until;
       ++month) {
    // Nothing of this month is in memory, so there is nothing to write.
    if (!month->second.dirty && month->second.shelves.empty()) continue;
    write_homes({month->first});
    homes_.set_hours_end(month->first.end());
    return true;
  }
  homes_.set_hours_end(until);
  return false;
}

// Closed months that begin before `until` are dealt out to hours.
bool BucketTier::deal_months(WallTime until) {
  for (const auto& [id, home] : homes_.all()) {
    if (id.level != BucketLevel::month || id.start >= std::min(homes_.hours_end(), until)) break;
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
  if (horizon_.is_handing()) return false;
  if (used() < options_.memory_bytes / 2) horizon_.lengthen_lead(now);
  const WallTime horizon = horizon_.at().due;
  const WallTime want = bucket_of(BucketLevel::second, now + horizon_.lead()).end();
  // The horizon does not move a little at a time, because each move looks at all that is in memory
  // of an hour.
  if (now + horizon_.lead() / 2 < horizon) return false;
  if (deal_months(want)) return true;
  const auto next = homes_.next_home(horizon);
  const auto advance = [this](WallTime until) {
    horizon_.advance({until, 0}, homes_);
    return true;
  };
  // Nothing is due until then, so there is nothing to read.
  if (!next || next->start >= want) return advance(want);
  if (next->start > horizon) return advance(next->start);
  const Home& home = *homes_.find(*next);
  if (home.foreign) return begin_adopt(*next), true;
  if (!home.on_disk) return advance(std::min(next->end(), want));
  return begin_piece(*next);
}

// Reads a part of what the disk has of a home.
bool BucketTier::begin_piece(const Bucket& id) {
  // The near records have to be delivered first, and the far ones to be written.
  // Memory that is smaller than a piece must not stop loading for good.
  const std::size_t piece = load_bytes(id);
  const auto has_room = [&] { return used() + piece <= spill_from() || memory() <= piece; };
  // All near records of its chunks may have been delivered.
  const EvictedToLoad tried{id, applied_, horizon_.at()};
  if (!has_room() && evicted_to_load_ != tried) {
    evicted_to_load_ = tried;
    homes_.begin_eviction(id);
    if (evict()) return true;
  }
  load_waits_ = !has_room();
  if (load_waits_) return false;
  loading_from_ = horizon_.at();
  lane_.run<FoundPiece>(
      [&store = store_, owner = owner_, id, from = loading_from_, piece,
       have = homes_.find(id)->known_keys()]() -> Result<FoundPiece> {
        auto found = store.next_piece(owner, id, from, piece, ChunkKeys(have.begin(), have.end()));
        if (!found) return std::unexpected(found.error());
        return FoundPiece{std::move(*found), store.unflushed_bytes()};
      },
      [this, id](FoundPiece found) {
        if (found.piece.loaded) return loaded(id, std::move(found.piece));
        dealt(id, found.piece.level, found.unflushed);
      });
  return true;
}

// A second that is loaded at once is not dealt out to milliseconds, which costs as much as all else
// that is done with its records.  If records were removed, each of the piece is looked for, so that
// it may not be large.
std::size_t BucketTier::load_bytes(const Bucket& id) const {
  const std::size_t least = piece_bytes(options_);
  if (homes_.has_gone(id)) return least;
  const std::size_t room = spill_from() - std::min(spill_from(), used());
  return std::clamp(room / 2, least, options_.memory_bytes / 3);
}

// A step of dealing what was too large in buckets of `level`, which wrote to the store.
void BucketTier::dealt(const Bucket& id, BucketLevel level, std::uint64_t unflushed) {
  note_unflushed(unflushed);
  ++stats_.dealt_steps;
  dealt_last_ = true;
  homes_.split(id, std::min(finer(level), BucketLevel::tick));
}

void BucketTier::loaded(const Bucket& id, storage::Piece piece) {
  if (horizon_.at() != loading_from_) return;  // It was pulled back meanwhile.
  ++stats_.loads;
  loading_ = Loading{.home = id, .piece = std::move(piece)};
  add_loaded(options_.step_entries);
}

// Adds some of the chunks that were read, and moves the horizon when all are in memory.  If the
// disk does not know of many removals, each of the other records is looked for among them.
void BucketTier::add_loaded(std::size_t entries) {
  auto& [home, piece, added] = *loading_;
  for (std::size_t looked = 0; added < piece.chunks.size() && looked < entries;) {
    auto loaded = homes_.add_loaded(home, std::move(piece.chunks[added++]));
    looked += 1 + loaded.looked;
    stats_.looked_for += loaded.looked;
    if (loaded.resident) dropped_.look_at(std::move(loaded.resident));
  }
  if (added < piece.chunks.size()) return;
  const Loading ended = *std::exchange(loading_, std::nullopt);
  // The rest of it is in memory.
  if (ended.piece.until.due >= ended.home.end()) homes_.left_disk(ended.home);
  horizon_.advance(ended.piece.until, homes_);
}

// --- While the lead is short

// When begin_deal_ahead() has something to look at.
std::optional<WallTime> BucketTier::next_deal_ahead() const {
  // It writes, and a load that needs it may find room for a flush later.
  if (!options_.loads || !horizon_.is_short() || is_flush_behind_ || no_room_) return std::nullopt;
  const WallTime from = std::max(horizon_.at().due, dealt_ahead_);
  const auto next = homes_.next_home(from);
  if (!next) return std::nullopt;
  return std::max(next->start, from) - options_.lead / 2;
}

// What is too large to be loaded at once is dealt as long before it is due as if the lead were not
// short: to deal a flood takes longer than a short lead.
bool BucketTier::begin_deal_ahead(WallTime now) {
  const auto at = next_deal_ahead();
  if (!at || now < *at) return false;
  const WallTime begin = std::max(horizon_.at().due, dealt_ahead_);
  const Bucket id = *homes_.next_home(begin);
  const Home& home = *homes_.find(id);
  if (!home.on_disk || home.foreign) {
    dealt_ahead_ = id.end();
    return true;
  }
  const PendingKey from = begin > horizon_.at().due ? PendingKey{begin, 0} : horizon_.at();
  lane_.run<FoundPiece>(
      [&store = store_, owner = owner_, id, from, until = now + options_.lead,
       piece = load_bytes(id), have = home.known_keys(),
       horizon = horizon_.at()]() -> Result<FoundPiece> {
        auto found = store.deal_ahead(owner, id, from, until, piece,
                                      ChunkKeys(have.begin(), have.end()), horizon);
        if (!found) return std::unexpected(found.error());
        return FoundPiece{std::move(*found), store.unflushed_bytes()};
      },
      [this, id](const FoundPiece& found) {
        if (!found.piece.loaded) return dealt(id, found.piece.level, found.unflushed);
        dealt_ahead_ = found.piece.until.due;
      });
  return true;
}

// --- While a flood keeps the horizon before the clock

// When begin_rescue() has something to do.
std::optional<WallTime> BucketTier::next_rescue() const {
  // At once.
  if (rescue_.is_on() && rescue_.may_resume() && horizon_.at() < rescue_.at()) return WallTime{};
  return next_rescue_ahead();
}

// When it begins, or goes on with what it has not come to yet.
std::optional<WallTime> BucketTier::next_rescue_ahead() const {
  if (!options_.loads) return std::nullopt;
  if (!rescue_.is_on())
    return load_waits_ ? std::optional(horizon_.at().due - rescue_lead) : std::nullopt;
  // The horizon comes up to it.
  if (rescue_.is_handing() || rescue_.at() < horizon_.at()) return std::nullopt;
  const WallTime at = rescue_.at().due - rescue_lead / 2;
  // Its records make room as they leave.  If none do, each partition of those that are stuck stops
  // at its next record, and others have something left.
  return rescue_.may_go_on() ? at : std::max(at, no_room_to_rescue_.since + rescue_lead / 2);
}

// The memory of those that come and go does not count: it is the same again.
void BucketTier::note_room_to_rescue(WallTime now) {
  if (!rescue_.is_on()) {
    no_room_to_rescue_ = {};
    return;
  }
  const auto [since, least] = no_room_to_rescue_;
  const std::size_t bytes = rescue_.memory(), little = options_.memory_bytes / 512;
  if (rescue_.may_go_on() || bytes + little < least || now < since)
    no_room_to_rescue_ = {.since = now, .least = bytes};
}

// Begins to make near what is due soon, unless its partition floods.
bool BucketTier::begin_rescue(WallTime now) {
  note_room_to_rescue(now);
  const auto at = next_rescue_ahead();
  const bool is_due = at && *at <= now;
  if (!(std::exchange(resumed_last_, false) && is_due) && begin_rescue_again()) {
    resumed_last_ = true;
    return true;
  }
  if (!is_due) return false;
  if (!rescue_.is_on()) {
    rescue_.begin(horizon_.at());
    ++stats_.rescues;
  }
  const PendingKey from = rescue_.at();
  // Not all of a time that has passed at once, because there is room for some of it alone.
  const auto behind = (now + rescue_lead - from.due) / 8;
  const WallTime want =
      std::max(std::min(now, from.due + behind) + rescue_lead, from.due + rescue_lead / 2);
  if (deal_months(want)) return true;
  const auto next = homes_.next_home(from.due);
  const auto advance = [this](WallTime until) {
    rescue_.advance({until, 0}, homes_, {});
    return true;
  };
  if (!next || next->start >= want) return advance(want);
  if (next->start > from.due) return advance(next->start);
  const Home& home = *homes_.find(*next);
  if (home.foreign) return begin_adopt(*next), true;
  const WallTime until = std::min(next->end(), want);
  if (!home.on_disk) return advance(until);
  return begin_rescue_piece(*next, from, {until, 0}, {});
}

// Goes on with partitions that were stopped, up to where the others are.
bool BucketTier::begin_rescue_again() {
  // What is before the horizon is near by itself, once it was handed over.
  if (!rescue_.is_on() || horizon_.is_handing() || !(horizon_.at() < rescue_.at())) return false;
  const Rescue::Stops again = rescue_.resumable();
  if (again.empty()) return false;
  PendingKey from = rescue_.at();
  for (const auto& [partition, stop] : again) from = std::min(from, stop);
  from = std::max(from, horizon_.at());
  const auto resume = [&](const PendingKey& until) {
    rescue_.resume(from, until, again, homes_, {});
    return true;
  };
  const auto next = homes_.next_home(from.due);
  if (!next || !(PendingKey{next->start, 0} < rescue_.at())) return resume(rescue_.at());
  from = std::max(from, PendingKey{next->start, 0});
  const PendingKey until = std::min(PendingKey{next->end(), 0}, rescue_.at());
  const Home& home = *homes_.find(*next);
  if (home.foreign) {
    rescue_.look_again();
    return begin_adopt(*next), true;
  }
  if (!home.on_disk) return resume(until);
  return begin_rescue_piece(*next, from, until, again);
}

// Reads a part of what the disk has of a home before `until`; if there are stops, of their
// partitions alone.
bool BucketTier::begin_rescue_piece(const Bucket& id, const PendingKey& from,
                                    const PendingKey& until, const Rescue::Stops& again) {
  struct Ahead {
    storage::Piece piece;
    Rescue::Read read;
    std::uint64_t unflushed = 0;
  };
  const std::size_t piece_bytes = options_.memory_bytes / 16;
  rescue_.set_reading(piece_bytes);
  lane_.run<Ahead>(
      [&store = store_, owner = owner_, id, from, until, piece_bytes,
       have = homes_.find(id)->known_keys(), horizon = horizon_.at(), again,
       stops = again.empty() ? rescue_.stops() : Rescue::Stops{}]() -> Result<Ahead> {
        auto found = store.piece_ahead(owner, id, from, piece_bytes,
                                       ChunkKeys(have.begin(), have.end()), horizon);
        if (!found) return std::unexpected(found.error());
        Ahead ahead{.piece = std::move(*found), .read = {}};
        if (!ahead.piece.loaded) {
          ahead.unflushed = store.unflushed_bytes();
          return ahead;
        }
        ahead.piece.until = std::min(ahead.piece.until, until);
        ahead.read.chunks = std::move(ahead.piece.chunks);
        if (again.empty())
          ahead.read.choose(from, ahead.piece.until, stops);
        else
          ahead.read.choose_again(from, ahead.piece.until, again);
        return ahead;
      },
      [this, id, from, again](Ahead ahead) {
        if (ahead.piece.loaded) {
          if (again.empty())
            rescue_.advance(ahead.piece.until, homes_, std::move(ahead.read));
          else
            rescue_.resume(from, ahead.piece.until, again, homes_, std::move(ahead.read));
          return;
        }
        rescue_.set_reading(0);
        rescue_.look_again();
        dealt(id, ahead.piece.level, ahead.unflushed);
      });
  return true;
}

void BucketTier::go_on_rescuing(std::size_t entries) {
  if (rescue_.is_handing()) {
    stats_.rescued += rescue_.hand_over(entries, homes_, dropped_, hooks_.near);
    return;
  }
  if (lane_.is_busy()) return;  // It may read for it.
  const PendingKey settled = horizon_.settled_before();
  // While the load waits that it was begun for, it may not have come to anything yet.
  if (rescue_.at() < settled || (rescue_.at() == settled && !load_waits_)) end_rescue();
}

void BucketTier::end_rescue() {
  free_rescued(rescue_.end());
}

void BucketTier::free_rescued(Rescue::Freed freed) {
  if (freed.size() > chunks_freed_here)
    background_.run_and_then([freed = std::move(freed)]() mutable { freed = {}; }, [] {});
}

void BucketTier::begin_deal(const Bucket& month) {
  struct Dealt {
    bool more = false;
    std::set<Bucket> homes;
    std::uint64_t unflushed = 0;
  };
  lane_.run<Dealt>(
      [&store = store_, owner = owner_, month]() -> Result<Dealt> {
        Dealt out;
        const auto more = store.deal(owner, month, {});
        if (!more) return std::unexpected(more.error());
        out.more = *more;
        out.unflushed = store.unflushed_bytes();
        if (out.more) return out;
        const auto homes = store.homes(owner);
        if (!homes) return std::unexpected(homes.error());
        out.homes.insert(homes->lower_bound(bucket_of(BucketLevel::hour, month.start)),
                         homes->lower_bound({BucketLevel::hour, month.end()}));
        return out;
      },
      [this, month](const Dealt& dealt) {
        ++stats_.dealt_steps;
        dealt_last_ = true;
        note_unflushed(dealt.unflushed);
        if (dealt.more) return;
        homes_.left_disk(month);
        for (const auto& home : dealt.homes) homes_.set_on_disk(home);
      });
}

void BucketTier::begin_adopt(const Bucket& home) {
  struct Adopted {
    bool more = false;
    std::uint64_t unflushed = 0;
  };
  lane_.run<Adopted>(
      [&store = store_, shards = owner_.shards, home,
       owner_of = hooks_.owner_of]() -> Result<Adopted> {
        const auto more = store.adopt(shards, home, owner_of);
        if (!more) return std::unexpected(more.error());
        return Adopted{*more, store.unflushed_bytes()};
      },
      [this, home](const Adopted& adopted) {
        dealt_last_ = true;
        note_unflushed(adopted.unflushed);
        if (!adopted.more) homes_.adopted(home);
      });
}

// --- Writing

bool BucketTier::begin_checkpoint_write() {
  if (is_flush_behind_) return false;  // The end of the flush wakes it.
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
  if (rows_due_) return write_rows(true), true;
  return false;
}

bool BucketTier::is_worth_writing(const Bucket& id, const Home& home) const {
  const bool has_far = id.end() > horizon_.at().due;
  return (home.unwritten > 0 && (has_far || home.aside_unwritten)) || home.marks > 0;
}

// Memory is short: the fullest far homes go to the disk, or what is near is pulled back.
bool BucketTier::begin_spill(WallTime now) {
  // Deliveries wait for a load: one that waits for memory does not wait for a flush, too.
  const bool may_spill = load_waits_ || (wants_to_spill() && !is_flush_behind_);
  if (no_room_ || !may_spill) {
    spill_next_.reset();
    return false;
  }
  if (unwritten_.bytes_to_write() > piece_bytes(options_)) return write_rows(false), true;
  if (!spill_next_) {
    fullest_.clear();
    if (!homes_.all().empty()) spill_next_ = homes_.all().begin()->first;
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
    const Home* const home = homes_.find(id);
    if (home == nullptr || !is_worth_writing(id, *home)) continue;
    bytes += size;
    homes.push_back(id);
  }
  if (bytes < options_.write_bytes / 4 && used() >= pull_back_from(options_.memory_bytes))
    pull_back(now);
  if (homes.empty()) return false;
  write_homes(homes);
  return true;
}

// Near records spend the memory.  A record that is due later than half of the time that it was
// loaded ahead is far again; once it is written it leaves memory.
void BucketTier::pull_back(WallTime now) {
  const auto before = horizon_.pull_back(now);
  if (!before) return;
  ++stats_.pulled_back;
  end_rescue();
  // New tails are finer, so that what comes later is not in one chunk with what is near.
  homes_.split(bucket_of(BucketLevel::hour, horizon_.at().due), horizon_.split_level());
  hooks_.pulled_back(horizon_.at());
  homes_.pulled_back(*before, horizon_.at());
  (void)evict();
}

// Lets some of what is written and far leave memory; true: there is more of it.
bool BucketTier::evict() {
  auto left = homes_.evict(horizon_.at(), options_.step_entries);
  if (left.size() > chunks_freed_here)
    background_.run_and_then([left = std::move(left)]() mutable { left.clear(); }, [] {});
  return homes_.is_evicting();
}

HomeWrite BucketTier::seal(const Bucket& id, Homes::Sealed& sealed, Homes::Removals& gone) {
  HomeWrite change = homes_.seal(id, applied_, sealed, gone);
  // The counters of a dropped topic are gone, and this would make new ones.
  std::erase_if(change.counts, [&](const auto& of) { return dropped_.contains(of.first); });
  std::erase_if(change.uses, [&](const auto& of) { return dropped_.contains(of.first.first); });
  return change;
}

void BucketTier::write_homes(const std::vector<Bucket>& ids) {
  struct Written {
    std::vector<HomeWrite> changes;
    std::vector<Homes::Sealed> sealed;
    std::vector<Homes::Removals> gone;
    std::vector<std::vector<ChunkKey>> keys;
  };
  auto writing = std::make_shared<Written>();
  for (const auto& id : ids) {
    writing->changes.push_back(
        seal(id, writing->sealed.emplace_back(), writing->gone.emplace_back()));
  }
  lane_.run<std::uint64_t>(
      [&store = store_, owner = owner_, writing]() -> Result<std::uint64_t> {
        for (std::size_t i = 0; i < writing->changes.size(); ++i) {
          HomeWrite& change = writing->changes[i];
          // It is freed here on the Background, because it may be large.
          const Homes::Removals gone = std::exchange(writing->gone[i], {});
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
        for (std::size_t i = 0; i < writing->changes.size(); ++i) {
          homes_.written(writing->changes[i], writing->sealed[i], writing->keys[i]);
          dealt_ahead_ = std::min(dealt_ahead_, writing->changes[i].home.start);
        }
        (void)evict();  // The next turns do the rest.
        // Many chunks that leave memory take long to go.
        std::size_t chunks = 0;
        for (const auto& sealed : writing->sealed) chunks += sealed.size();
        if (chunks > chunks_freed_here)
          background_.run_and_then([ended = std::move(writing)]() mutable { ended.reset(); },
                                   [] {});
        note_unflushed(unflushed);
      });
}

// RocksDB would take eight times flush_bytes (BucketLimits::write_buffer_bytes) twice, and then
// hold up its writers, on the threads of the pool.  What is not written stays in this tier's
// memory, which is bounded: producers of delayed records wait when it is spent.
void BucketTier::note_unflushed(std::uint64_t bytes) {
  if (bytes < options_.flush_bytes) return;
  is_flush_behind_ = bytes >= 2 * options_.flush_bytes;
  // Its end, which a Background may reach at once, allows writes again.
  if (!flushing_) flush();
}

// Beside the lane: it changes nothing that anybody reads.
void BucketTier::flush() {
  flushing_ = true;
  background_.run(
      [&store = store_, by_host = hooks_.flush] { return by_host ? by_host() : store.flush(); },
      [this, alive = lane_.alive()](const Result<>& flushed) {
        if (!*alive) return;
        flushing_ = is_flush_behind_ = false;
        if (!flushed) {
          const Errc code = flushed.error().code;
          no_room_ = code == Errc::no_space || code == Errc::exhausted;
          if (!no_room_) return lane_.fail(flushed.error());
        }
        hooks_.wake();
      });
}

// Writes the rows that belong to no home, at the end of a checkpoint.
void BucketTier::write_rows(bool ends_checkpoint) {
  if (ends_checkpoint) rows_due_ = false;
  lane_.run<std::uint64_t>(
      [&store = store_, writing = unwritten_.begin_write()]() -> Result<std::uint64_t> {
        if (auto written = writing->write_to(store); !written)
          return std::unexpected(written.error());
        return store.unflushed_bytes();
      },
      [this, alive = lane_.alive(), ends_checkpoint](std::uint64_t unflushed) {
        note_unflushed(unflushed);
        unwritten_.written();
        forget_unneeded();
        if (!ends_checkpoint) return;
        for (auto& done : std::exchange(checkpoint_done_, {}))
          if (*alive) done();
        if (*alive && !checkpoint_next_.empty()) begin_write_all();
      });
}

// Memory keeps the rows that were read as long as a request needs them, and what is written while
// there is room for it.
void BucketTier::forget_unneeded() {
  id_reader_.forget_ended();
  const bool has_room = used() < options_.memory_bytes / 2;
  unwritten_.forget_unneeded(has_room ? options_.memory_bytes / 8 : 0);
}

// Homes of which nothing is left: their places go once no journal can tell of them again.
bool BucketTier::begin_forget() {
  if (!forget_next_) return false;
  std::set<Bucket> ended;
  for_homes(forget_next_, [&](const Bucket& id, const Home&) {
    if (homes_.may_forget(id, noted_, horizon_.at())) ended.insert(id);
    return true;
  });
  if (ended.empty()) return forget_next_.has_value();
  lane_.run<void>([&store = store_, shard = owner_.shard, noted = noted_,
                   ended] { return store.forget_places(shard, noted, ended); },
                  [this, ended] {
                    for (const auto& id : ended)
                      if (homes_.may_forget(id, noted_, horizon_.at())) homes_.forget(id);
                  });
  return true;
}

// Frees what was cancelled, or is of a deleted topic, in homes that do not come near soon.
bool BucketTier::begin_disk_sweep() {
  const auto sweep = homes_.next_sweep(horizon_.at());
  if (!sweep) return false;
  struct Done {
    storage::BucketStore::Swept swept;
    std::uint64_t unflushed = 0;
  };
  lane_.run<Done>(
      [&store = store_, owner = owner_, sweep = *sweep]() -> Result<Done> {
        auto swept = store.sweep(owner, sweep.home, sweep.after,
                                 ChunkKeys(sweep.have.begin(), sweep.have.end()), sweep.gone);
        if (!swept) return std::unexpected(swept.error());
        return Done{std::move(*swept), store.unflushed_bytes()};
      },
      [this, home = sweep->home](const Done& done) {
        note_unflushed(done.unflushed);
        stats_.freed_bytes += done.swept.freed;
        homes_.swept(home, done.swept);
      });
  return true;
}

}  // namespace tarry::delay
