#include "delay/homes.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/assert.h"

namespace tarry::delay {

using storage::Bucket;
using storage::bucket_of;
using storage::BucketLevel;
using storage::Chunk;
using storage::JournalPlace;
using storage::level_to_deal_to;

namespace {

// The memory of a resident beside its chunk, its bits included.
constexpr std::size_t resident_overhead = 256;
// The memory of a removed record's mark until it is written.
constexpr std::size_t mark_bytes = 48;
// The memory of the key of a chunk that was set aside.
constexpr std::size_t aside_bytes = 96;
// From so many unwritten tails on, new ones of a home are of seconds.
constexpr std::size_t max_fine_tails = 4'096;

}  // namespace

// --- What is known

const Home* Homes::find(const Bucket& id) const {
  const auto home = homes_.find(id);
  return home == homes_.end() ? nullptr : &home->second;
}

std::optional<Bucket> Homes::next_home(WallTime from) const {
  for (auto home = homes_.lower_bound(bucket_of(BucketLevel::hour, from)); home != homes_.end();
       ++home)
    if (home->second.may_have_records()) return home->first;
  return std::nullopt;
}

void Homes::set_written(const Bucket& id, JournalPlace place) {
  homes_[id].written = place;
  forget_recent();
}

void Homes::set_foreign(const Bucket& id) {
  if (!std::exchange(homes_[id].foreign, true)) ++foreign_;
}

void Homes::adopted(const Bucket& id) {
  Home& home = homes_.at(id);
  if (std::exchange(home.foreign, false)) --foreign_;
  home.on_disk = true;
}

void Homes::set_hours_end(WallTime end) {
  hours_end_ = end;
  forget_recent();
}

// --- Operations

Homes::Recent Homes::home_for(WallTime due) {
  const Bucket hour = bucket_of(BucketLevel::hour, due);
  const auto hours = hour.start.time_since_epoch() / span_of(BucketLevel::hour);
  Kept& kept = recent_[static_cast<std::uint64_t>(hours) % kept_homes];
  if (kept.number == recent_number_ && kept.recent.id == hour) return kept.recent;
  const bool is_hour = due < hours_end_;
  const Bucket id = is_hour ? hour : bucket_of(BucketLevel::month, due);
  Home& own = homes_[id];
  Recent out{id, &own, own.written};
  // A home may have been a month when it was written, and be hours now.
  const Home* const other = find(is_hour ? bucket_of(BucketLevel::month, due) : hour);
  if (other != nullptr) out.written = std::max(out.written, other->written);
  // A month has several hours, and each may be written by itself.
  if (is_hour) kept = {out, recent_number_};
  return out;
}

storage::PendingUse& Homes::use_of(Home& home, const TopicId& topic, PrincipalId principal) {
  const std::pair of(topic, principal);
  if (recent_use_.home != &home || recent_use_.of != of) recent_use_ = {&home, of, &home.uses[of]};
  return *recent_use_.use;
}

// The level of new tails.  In a home of many a coarser one has to do: a write seals all of them in
// one turn.
BucketLevel Homes::tail_level(const Bucket& id, const Home& home) {
  if (id.level == BucketLevel::month) return BucketLevel::month;
  const bool has_many = home.tails >= max_fine_tails && home.split > BucketLevel::second;
  return has_many ? BucketLevel::second : home.split;
}

// The hour is too large to be loaded at once.
void Homes::split_tails(Home& home) {
  WallTime first = WallTime::max(), last = WallTime::min();
  for (const auto& [bucket, shelf] : home.shelves) {
    for (const auto& resident : shelf.residents) {
      first = std::min(first, resident->chunk->earliest());
      last = std::max(last, resident->chunk->latest());
    }
  }
  home.split = level_to_deal_to(BucketLevel::minute, BucketLevel::second, first, last);
}

void Homes::number(const std::shared_ptr<Resident>& resident) {
  if (free_numbers_.empty()) {
    free_numbers_.push_back(static_cast<std::uint32_t>(numbered_.size()));
    numbered_.emplace_back();
  }
  resident->number = free_numbers_.back();
  free_numbers_.pop_back();
  numbered_[resident->number] = resident;
}

Resident& Homes::tail(Home& home, Shelf& shelf, const Bucket& home_id, const Bucket& bucket) {
  if (shelf.residents.empty() || shelf.residents.back()->sealed ||
      shelf.residents.back()->chunk->is_full()) {
    auto made = std::make_shared<Resident>();
    made->chunk = std::make_shared<Chunk>(bucket);
    made->home = home_id;
    number(made);
    ++level_of(*made).chunks;
    ++home.tails;
    shelf.residents.push_back(std::move(made));
  }
  return *shelf.residents.back();
}

void Homes::charge(Home& home, Resident& resident) {
  const std::size_t now = resident.chunk->memory_bytes() + resident_overhead;
  memory_ += now - resident.charged;
  level_of(resident).bytes += now - resident.charged;
  if (!resident.is_written()) home.unwritten += now - resident.charged;
  resident.charged = now;
}

std::optional<Location> Homes::add(JournalPlace at, const PendingView& record) {
  const auto [id, of_id, written] = home_for(record.key.due);
  if (at < written) return std::nullopt;
  Home& home = *of_id;
  const Bucket bucket = bucket_of(tail_level(id, home), record.key.due);
  Shelf& shelf = home.shelves[bucket];
  Resident& resident = tail(home, shelf, id, bucket);
  resident.chunk->append(record);
  resident.live.push_back(true);
  ++resident.live_count;
  ++live_;
  ++level_of(resident).records;
  charge(home, resident);
  if (bucket.level == BucketLevel::hour && home.unwritten >= split_from_) split_tails(home);
  if (shelf.residents.size() > 1) {
    const Chunk& before = *shelf.residents[shelf.residents.size() - 2]->chunk;
    if (resident.chunk->first() <= before.last()) shelf.in_order = false;
  }
  use_of(home, record.partition.topic, record.principal)
      .add({1, std::int64_t{record.share().bytes}});
  home.dirty = true;
  return Location{resident.number, static_cast<std::uint32_t>(resident.live.size() - 1)};
}

bool Homes::remove(JournalPlace at, const PendingKey& key, const TopicId& topic,
                   const storage::PendingShare& share, const Location& location) {
  // This is the home of today: an hour, although the record may have been written in the month.
  const auto [id, of_id, written] = home_for(key.due);
  if (at < written) return false;
  Home& home = *of_id;
  use_of(home, topic, share.principal).add({-1, -std::int64_t{share.bytes}});
  home.dirty = true;
  const Place place = locate(key, location, last_removed_);
  if (place.resident == nullptr) {
    mark(home);
    home.gone.insert(home.gone.end(), key.sequence);  // They often come in order.
    return true;
  }
  // A month that is closed takes no marks: its place in the journal is fixed.
  const bool is_on_disk = place.resident->is_written() || place.resident->writing;
  if (is_on_disk && place.resident->home == id)
    place.resident->gone.push_back(key.sequence);
  else if (is_on_disk)
    home.gone.insert(key.sequence);
  else
    ++spared_;
  if (is_on_disk) mark(home);
  kill(place);
  return true;
}

void Homes::drop(const Resident& resident, std::size_t index) {
  TARRY_ASSERT(resident.on_shelf, "a resident that has left memory has no records");
  kill({numbered_[resident.number].get(), index});
}

void Homes::mark(Home& home) {
  home.marks += mark_bytes;
  memory_ += mark_bytes;
}

void Homes::kill(const Place& place) {
  Resident& resident = *place.resident;
  resident.live[place.index] = false;
  --resident.live_count;
  --live_;
  --level_of(resident).records;
  if (place.index < resident.aside.size() && resident.aside[place.index]) {
    resident.aside[place.index] = false;
    --resident.aside_count;
  }
  if (resident.live_count == 0 && !resident.writing)
    let_go(homes_.at(resident.home), resident);
  else
    set_down(resident);
}

// Nothing of it is pending: memory forgets it, and with the next write of its home the disk does.
void Homes::let_go(Home& home, Resident& resident) {
  if (resident.is_written()) {
    home.dead.push_back(*resident.key);
    home.dirty = true;
  } else {
    home.unwritten -= resident.charged;
    --home.tails;
  }
  take_off_shelf(home, resident);
}

void Homes::take_off_shelf(Home& home, Resident& resident) {
  leave(resident);
  const auto shelf = home.shelves.find(resident.bucket());
  TARRY_ASSERT(shelf != home.shelves.end(), "a resident stands on its bucket's shelf");
  auto& residents = shelf->second.residents;
  const auto at =
      std::ranges::find(residents, &resident, [](const auto& one) { return one.get(); });
  TARRY_ASSERT(at != residents.end(), "a resident stands on its bucket's shelf");
  // Otherwise an eviction that goes on there would pass over the one behind it.
  const auto eviction = evictions_.find(resident.home);
  if (eviction != evictions_.end() && eviction->second.shelf == shelf->first &&
      std::cmp_less(at - residents.begin(), eviction->second.at))
    --eviction->second.at;
  residents.erase(at);
  if (residents.empty()) home.shelves.erase(shelf);
}

// It gives back its memory and its number; its shelf has it still.
void Homes::leave(Resident& resident) {
  Level& level = level_of(resident);
  memory_ -= resident.charged;
  live_ -= resident.live_count;
  level.bytes -= resident.charged;
  level.records -= resident.live_count;
  level.on_disk -= resident.entries_on_disk;
  --level.chunks;
  resident.on_shelf = false;
  free_numbers_.push_back(resident.number);
  // They would keep its chunk in memory.
  for (Place* const last : {&last_read_, &last_removed_})
    if (last->resident == &resident) last->resident = nullptr;
  numbered_[resident.number].reset();
}

// --- Set aside

bool Homes::set_aside(const PendingKey& key, const Location& location) {
  const Place place = locate(key, location, last_read_);
  if (place.resident == nullptr) return false;
  Resident& resident = *place.resident;
  if (resident.aside.size() <= place.index) resident.aside.resize(resident.live.size());
  if (resident.aside[place.index]) return false;
  resident.aside[place.index] = true;
  ++resident.aside_count;
  // Otherwise a home whose records are about to leave is not written before a checkpoint.
  if (!resident.is_written()) homes_.at(resident.home).aside_unwritten = true;
  set_down(resident);
  return true;
}

// Leaves a chunk to the disk until the next start, when nothing is pending in it but what was set
// aside.  It is none of those that may be loaded again, because loading begins at the horizon and
// would pass over its records.
void Homes::set_down(Resident& resident) {
  if (resident.aside_count == 0 || resident.aside_count < resident.live_count) return;
  if (!resident.is_written() || resident.writing) return;
  Home& home = homes_.at(resident.home);
  // Its marks are not on the disk yet.
  home.gone.insert(resident.gone.begin(), resident.gone.end());
  home.aside.insert(*resident.key);
  memory_ += aside_bytes;
  level_of(resident).to_disk += resident.live_count;
  take_off_shelf(home, resident);
}

// --- Reading

// The pending record that is there, perhaps another one than was meant.
Homes::Place Homes::place_at(const Location& location) const {
  if (location.chunk >= numbered_.size()) return {};
  Resident* const resident = numbered_[location.chunk].get();
  const bool is_there = resident != nullptr && location.index < resident->live.size() &&
                        resident->live[location.index];
  return is_there ? Place{resident, location.index} : Place{};
}

Homes::Place Homes::covering(const Shelf& shelf, const PendingKey& key) {
  const auto in = [&key](const std::shared_ptr<Resident>& resident) -> Place {
    if (!resident->chunk->may_have(key)) return {};
    const auto found = resident->chunk->find(key.sequence);
    return found && resident->has(key, *found) ? Place{resident.get(), *found} : Place{};
  };
  const auto& residents = shelf.residents;
  if (shelf.in_order) {
    const auto behind_it = std::ranges::upper_bound(
        residents, key.sequence, {}, [](const auto& one) { return one->chunk->first(); });
    return behind_it == residents.begin() ? Place{} : in(*std::prev(behind_it));
  }
  for (auto at = residents.rbegin(); at != residents.rend(); ++at)
    if (const Place found = in(*at); found.resident != nullptr) return found;
  return {};
}

Homes::Place Homes::locate(const PendingKey& key) const {
  for (const BucketLevel home_level : {BucketLevel::hour, BucketLevel::month}) {
    const Home* const home = find(bucket_of(home_level, key.due));
    if (home == nullptr) continue;
    for (BucketLevel level = home_level;; level = finer(level)) {
      const auto shelf = home->shelves.find(bucket_of(level, key.due));
      if (shelf != home->shelves.end()) {
        if (Place found = covering(shelf->second, key); found.resident != nullptr) return found;
      }
      // A month has no finer tails (tail_level()).
      if (level == BucketLevel::run || home_level == BucketLevel::month) break;
    }
  }
  return {};
}

// Looks at `location` first, then behind `last`, and then everywhere; `last` becomes the place.
Homes::Place Homes::locate(const PendingKey& key, const Location& location, Place& last) const {
  // The number may be another chunk's by now, so the key decides.
  const Place there = place_at(location);
  if (there.resident != nullptr && there.resident->chunk->key_at(there.index) == key) return there;
  if (last.resident != nullptr && last.resident->has(key, last.index + 1))
    ++last.index;
  else
    last = locate(key);
  return last;
}

std::optional<Homes::PendingView> Homes::read(const PendingKey& key,
                                              const Location& location) const {
  // As locate() begins, but the entry is decoded once.
  if (const Place there = place_at(location); there.resident != nullptr) {
    std::optional<PendingView> view = there.resident->chunk->at(there.index);
    if (view->key == key) return view;
  }
  const Place place = locate(key, location, last_read_);
  if (place.resident == nullptr) return std::nullopt;
  return place.resident->chunk->at(place.index);
}

bool Homes::is_marked_in_home(const PendingKey& key) const {
  for (const BucketLevel level : {BucketLevel::hour, BucketLevel::month}) {
    const Home* const home = find(bucket_of(level, key.due));
    if (home != nullptr && home->gone.contains(key.sequence)) return true;
  }
  return false;
}

// If a chunk is on disk and in memory, its marks are with it until its home is written.
bool Homes::is_marked_in_resident(const PendingKey& key) const {
  const auto is_in = [&](const std::shared_ptr<Resident>& resident) {
    const auto& gone = resident->gone;
    const Chunk& chunk = *resident->chunk;
    return chunk.first() <= key.sequence && key.sequence <= chunk.last() &&
           std::ranges::find(gone, key.sequence) != gone.end();
  };
  for (const BucketLevel home_level : {BucketLevel::hour, BucketLevel::month}) {
    const Home* const home = find(bucket_of(home_level, key.due));
    if (home == nullptr) continue;
    for (BucketLevel level = home_level;; level = finer(level)) {
      const auto shelf = home->shelves.find(bucket_of(level, key.due));
      if (shelf != home->shelves.end() && std::ranges::any_of(shelf->second.residents, is_in))
        return true;
      if (level == BucketLevel::run || home_level == BucketLevel::month) break;
    }
  }
  return false;
}

bool Homes::may_be_on_disk(const PendingKey& key) const {
  for (const BucketLevel level : {BucketLevel::hour, BucketLevel::month}) {
    const Home* const home = find(bucket_of(level, key.due));
    if (home != nullptr && (home->on_disk || home->foreign)) return true;
  }
  return false;
}

std::optional<Bucket> Homes::foreign_home(const PendingKey& key) const {
  if (!any_foreign()) return std::nullopt;
  for (const BucketLevel level : {BucketLevel::month, BucketLevel::hour}) {
    const Bucket id = bucket_of(level, key.due);
    const Home* const home = find(id);
    if (home != nullptr && home->foreign) return id;
  }
  return std::nullopt;
}

}  // namespace tarry::delay
