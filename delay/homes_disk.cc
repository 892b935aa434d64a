// Homes: how records go to the disk and come back.

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "delay/homes.h"

namespace tarry::delay {

using storage::Bucket;
using storage::bucket_of;
using storage::BucketLevel;
using storage::Chunk;
using storage::ChunkKey;
using storage::HomeWrite;
using storage::JournalPlace;

bool Resident::has_near(const storage::PendingKey& horizon) const {
  if (live_count == 0 || chunk->earliest() > horizon.due) return false;
  if (chunk->latest() < horizon.due) return true;
  for (std::size_t i = 0; i < chunk->size(); ++i)
    if (live[i] && chunk->key_at(i) < horizon) return true;
  return false;
}

bool Home::is_ended() const {
  return !may_have_records() && gone.empty() && dead.empty() && !dirty && aside.empty();
}

std::vector<ChunkKey> Home::known_keys() const {
  // A dead chunk is on the disk until its home is written, and may not be loaded again.
  std::vector<ChunkKey> keys = dead;
  keys.insert(keys.end(), aside.begin(), aside.end());
  for (const auto& [bucket, shelf] : shelves)
    for (const auto& resident : shelf.residents)
      if (resident->is_written()) keys.push_back(*resident->key);
  return keys;
}

// --- Writing

HomeWrite Homes::seal(const Bucket& id, JournalPlace applied, Sealed& sealed, Removals& gone) {
  Home& home = homes_.at(id);
  HomeWrite out;
  out.home = id;
  // No operation belongs to a closed month any more, so its place in the journal stays.
  const bool is_closed = id.level == BucketLevel::month && id.start < hours_end_;
  out.place = is_closed ? home.written : applied;
  out.dead = std::exchange(home.dead, {});
  recent_use_ = {};
  for (const auto& [of, use] : std::exchange(home.uses, {})) {
    const auto& [topic, principal] = of;
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
      sealed_ += resident->live_count;
      resident->entries_on_disk = resident->live_count;  // When it is written.
      out.parts.push_back({resident->chunk, resident->live});
      sealed.emplace_back(bucket, resident);
    }
  }
  home.dirty = home.aside_unwritten = false;
  home.gone_on_disk += gone.of_home.size();
  if (home.gone_on_disk >= home.sweep_at) sweeps_.try_emplace(id);
  return out;
}

void Homes::written(const HomeWrite& change, const Sealed& sealed,
                    const std::vector<ChunkKey>& keys) {
  Home& home = homes_.at(change.home);
  home.written = change.place;
  forget_recent();
  for (std::size_t part = 0; part < sealed.size(); ++part) {
    const auto& [bucket, resident] = sealed[part];
    home.unwritten -= resident->charged;
    --home.tails;
    resident->writing = false;
    resident->key = keys[part];
    level_of(*resident).on_disk += resident->entries_on_disk;
    // The marks of what was removed while it was being written go with the next write.
    if (!resident->gone.empty()) home.dirty = true;
    // There may be thousands of which nothing is pending any more: evict() lets them go, in steps.
    if (resident->live_count > 0) set_down(*resident);
  }
  begin_eviction(change.home);
}

// --- Leaving memory

void Homes::begin_eviction(const Bucket& id) {
  const auto [eviction, is_new] = evictions_.try_emplace(id);
  if (!is_new && eviction->second.shelf) eviction->second.again = true;
}

std::vector<std::shared_ptr<Resident>> Homes::evict(const PendingKey& horizon, std::size_t budget) {
  std::vector<std::shared_ptr<Resident>> left;
  while (budget > 0 && !evictions_.empty()) {
    const auto eviction = evictions_.begin();
    const auto home = homes_.find(eviction->first);
    if (home != homes_.end() && !evict_from(home->second, eviction->second, horizon, budget, left))
      break;
    if (std::exchange(eviction->second.again, false))
      eviction->second = {};
    else
      evictions_.erase(eviction);
    budget -= std::min<std::size_t>(budget, 1);  // A home with nothing to look at costs something.
  }
  return left;
}

// Goes on with a home; true: it is at the end of it.
bool Homes::evict_from(Home& home, Eviction& eviction, const PendingKey& horizon,
                       std::size_t& budget, std::vector<std::shared_ptr<Resident>>& left) {
  const auto leaves = [&](const std::shared_ptr<Resident>& resident) {
    // Only a chunk on both sides of the horizon is looked at entry by entry.
    const bool is_parted =
        resident->chunk->earliest() <= horizon.due && resident->chunk->latest() >= horizon.due;
    const bool is_pending = resident->live_count > 0;
    std::size_t cost = 1;
    if (is_pending) cost += (is_parted ? resident->chunk->size() : 0) + resident->gone.size();
    if (is_pending && eviction.near_before)
      cost += count_back(*resident, *eviction.near_before, horizon);
    budget -= std::min(budget, cost);
    if (!resident->is_written() || resident->writing || resident->has_near(horizon)) return false;
    // It ended while it was being written.
    if (!is_pending) {
      home.dead.push_back(*resident->key);
      home.dirty = true;
      leave(*resident);
      return true;
    }
    // Its marks are not on the disk yet.
    home.gone.insert(resident->gone.begin(), resident->gone.end());
    home.on_disk = true;
    level_of(*resident).to_disk += resident->live_count;
    leave(*resident);
    return true;
  };
  auto shelf = eviction.shelf ? home.shelves.lower_bound(*eviction.shelf) : home.shelves.begin();
  while (shelf != home.shelves.end()) {
    // The shelf where it stopped may have gone, or have fewer residents by now.
    auto& residents = shelf->second.residents;
    std::size_t at = eviction.shelf == shelf->first ? std::min(eviction.at, residents.size()) : 0;
    std::size_t kept = at;
    for (; at < residents.size() && budget > 0; ++at) {
      if (leaves(residents[at]))
        left.push_back(std::move(residents[at]));
      else
        std::swap(residents[kept++], residents[at]);
    }
    const bool is_whole = at == residents.size();
    const auto begin = residents.begin();
    residents.erase(begin + static_cast<std::ptrdiff_t>(kept),
                    begin + static_cast<std::ptrdiff_t>(at));
    eviction.shelf = shelf->first;
    eviction.at = kept;
    if (!is_whole) return false;
    shelf = residents.empty() ? home.shelves.erase(shelf) : std::next(shelf);
  }
  return true;
}

// --- Loading

bool Homes::has_gone(const Bucket& id) const {
  const Home* const home = find(id);
  const Home* const month = find(bucket_of(BucketLevel::month, id.start));
  return (home != nullptr && !home->gone.empty()) || (month != nullptr && !month->gone.empty());
}

// Records removed since the disk was written are not pending, although the chunk has them.  The
// marks are looked for in the chunk, or its entries among the marks, whichever are fewer.
std::size_t Homes::leave_out_gone(const Bucket& id, storage::LoadedChunk& loaded) const {
  const Chunk& chunk = *loaded.chunk;
  std::size_t looked = 0;
  for (const Home* const home : {find(id), find(bucket_of(BucketLevel::month, id.start))}) {
    if (home == nullptr) continue;
    const auto& gone = home->gone;
    if (gone.size() < chunk.size()) {
      const auto end = gone.upper_bound(chunk.last());
      for (auto mark = gone.lower_bound(chunk.first()); mark != end; ++mark, ++looked)
        if (const auto at = chunk.find(*mark)) loaded.live[*at] = false;
    } else {
      for (std::size_t i = 0; i < chunk.size(); ++i)
        if (loaded.live[i] && gone.contains(chunk.key_at(i).sequence)) loaded.live[i] = false;
      looked += chunk.size();
    }
  }
  return looked;
}

Homes::Loaded Homes::add_loaded(const Bucket& id, storage::LoadedChunk chunk) {
  Home& home = homes_.at(id);
  const std::size_t looked = leave_out_gone(id, chunk);
  auto resident = std::make_shared<Resident>();
  resident->live = std::move(chunk.live);
  resident->home = id;
  resident->sealed = true;
  resident->key = chunk.key;
  resident->live_count = static_cast<std::size_t>(std::ranges::count(resident->live, true));
  // The disk has only what is gone of it, so its chunk goes with the next write.
  if (resident->live_count == 0) {
    home.dead.push_back(chunk.key);
    home.dirty = true;
    return {nullptr, looked};
  }
  resident->chunk = std::const_pointer_cast<Chunk>(chunk.chunk);
  resident->entries_on_disk = chunk.chunk->size();
  number(resident);
  live_ += resident->live_count;
  Level& level = level_of(*resident);
  ++level.chunks;
  level.records += resident->live_count;
  level.loaded += resident->live_count;
  level.on_disk += resident->entries_on_disk;
  Shelf& shelf = home.shelves[chunk.key.bucket];
  shelf.residents.push_back(resident);
  charge(home, *resident);
  shelf.in_order = shelf.residents.size() == 1 ||
                   (shelf.in_order && shelf.residents[shelf.residents.size() - 2]->chunk->last() <
                                          resident->chunk->first());
  return {std::move(resident), looked};
}

void Homes::split(const Bucket& id, BucketLevel level) {
  const auto home = homes_.find(id);
  if (home != homes_.end()) home->second.split = std::max(home->second.split, level);
}

void Homes::pulled_back(const PendingKey& before, const PendingKey& horizon) {
  // Nothing that is due later is in memory and written.
  for (auto home = homes_.lower_bound(bucket_of(BucketLevel::hour, horizon.due));
       home != homes_.end() && home->first.start <= before.due; ++home) {
    begin_eviction(home->first);
    evictions_.at(home->first).near_before = before;
  }
}

// Counts the records that were near until now; returns how many it looked at.
std::size_t Homes::count_back(const Resident& resident, const PendingKey& before,
                              const PendingKey& horizon) {
  const Chunk& chunk = *resident.chunk;
  auto& count = level_of(resident).came_back;
  // Most chunks lie on one side as a whole, and need no look at each record.
  if (chunk.latest() < horizon.due || chunk.earliest() >= before.due) return 0;
  if (chunk.earliest() >= horizon.due && chunk.latest() < before.due) {
    count += resident.live_count;
    return 0;
  }
  for (std::size_t i = 0; i < chunk.size(); ++i) {
    const PendingKey key = chunk.key_at(i);
    count += resident.live[i] && !(key < horizon) && key < before;
  }
  return chunk.size();
}

// --- Forgetting and sweeping

// The hour that is coming near is about to be used again.
bool Homes::may_forget(const Bucket& id, const JournalPlace& noted,
                       const PendingKey& horizon) const {
  const Home* const home = find(id);
  if (home == nullptr) return false;
  const bool is_now = id.start <= horizon.due && horizon.due < id.end();
  if (!home->is_ended() || noted < home->written || is_now) return false;
  // Removals from a month that is not dealt yet are marked in its hours.
  const Home* const month = find(bucket_of(BucketLevel::month, id.start));
  return id.level == BucketLevel::month || month == nullptr || month->is_ended();
}

void Homes::forget(const Bucket& id) {
  homes_.erase(id);
  forget_recent();
}

std::optional<Homes::Sweep> Homes::next_sweep(const PendingKey& horizon) {
  while (!sweeps_.empty()) {
    const auto& [id, after] = *sweeps_.begin();
    const Home* const home = find(id);
    if (home != nullptr && home->on_disk && !home->foreign && id.start > horizon.due)
      return Sweep{id, after, home->known_keys(), home->gone_on_disk};
    sweeps_.erase(sweeps_.begin());
  }
  return std::nullopt;
}

void Homes::swept(const Bucket& id, const storage::BucketStore::Swept& swept) {
  const auto home = homes_.find(id);
  if (home == homes_.end()) return;
  if (swept.next) {
    sweeps_[id] = swept.next;
    return;
  }
  sweeps_.erase(id);
  if (swept.worth) {
    home->second.gone_on_disk = 0;
    home->second.sweep_at = Home::least_gone;
  } else {
    // It is looked at again when as much again is gone.
    home->second.sweep_at = 2 * home->second.gone_on_disk;
  }
}

void Homes::sweep_all_of(const Bucket& id) {
  homes_.at(id).gone_on_disk = std::numeric_limits<std::uint32_t>::max();
  sweeps_.try_emplace(id);
}

}  // namespace tarry::delay
