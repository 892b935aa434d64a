#include "delay/bucket_tier.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <limits>
#include <new>

#include "base/assert.h"

namespace tarry::delay {

using storage::before_all;
using storage::Bucket;
using storage::bucket_of;
using storage::BucketLevel;
using storage::Chunk;
using storage::JournalPlace;
using storage::level_to_deal_to;
using storage::RemovalReason;
using storage::ScheduleEvent;

namespace {

// Short enough to need no allocation.
constexpr const char* no_memory = "no memory";

// The memory of a resident beside its chunk, its bits included.
constexpr std::size_t resident_overhead = 256;
// The horizon is not pulled back further.
constexpr std::chrono::milliseconds least_lead{1'000};
// And it does not go ahead again at once.
constexpr std::chrono::milliseconds lead_grows_after{30'000};

constexpr const char* too_many_lookups = "too many requests wait for the disk; try again";

// The memory of a removed record's mark until it is written.
constexpr std::size_t mark_bytes = 48;
// The memory of the key of a chunk that was set aside.
constexpr std::size_t aside_bytes = 96;
// So many ids are looked up in memory before the store is asked for all of them.
constexpr std::size_t max_ids_known = 256;
// And the store is asked for so many at once for batches of few: some milliseconds.
constexpr std::size_t max_ids_asked = 2'048;
// The memory of an id's event until it is written, beside the id.
constexpr std::size_t event_bytes = 160;

JournalPlace behind(const JournalPlace& at) {
  return {at.lsn, at.operation + 1, at.epoch};
}

ScheduleEvent::Kind kind_of(RemovalReason how) {
  switch (how) {
    case RemovalReason::cancelled:
      return ScheduleEvent::Kind::cancelled;
    case RemovalReason::replaced:
      return ScheduleEvent::Kind::replaced;
    case RemovalReason::expired:
      return ScheduleEvent::Kind::expired;
    case RemovalReason::moved:
      return ScheduleEvent::Kind::moved;
    default:
      return ScheduleEvent::Kind::delivered;
  }
}

}  // namespace

BucketTier::BucketTier(storage::BucketStore& store, Background& background, storage::Owner owner,
                       const Options& options, Hooks hooks)
    : store_(store),
      background_(background),
      owner_(owner),
      options_(options),
      hooks_(std::move(hooks)),
      horizon_{before_all, 0},
      lead_(options.lead),
      handing_from_{before_all, 0} {}

BucketTier::~BucketTier() {
  *alive_ = false;
}

Result<> BucketTier::open(WallTime now) {
  const auto epoch = store_.epoch(owner_.shards);
  if (!epoch) return std::unexpected(epoch.error());
  epoch_ = *epoch;
  hours_end_ = bucket_of(BucketLevel::month, now + options_.hours_ahead).start;
  const auto places = store_.places(owner_.shard);
  if (!places) return std::unexpected(places.error());
  for (const auto& [home, place] : *places) {
    homes_[home].written = place;
    applied_ = std::max(applied_, place);
  }
  // First: what another shard adopts meanwhile is among the others then.
  const auto foreign = store_.foreign_homes(owner_.shards);
  if (!foreign) return std::unexpected(foreign.error());
  const auto there = store_.homes(owner_);
  if (!there) return std::unexpected(there.error());
  for (const auto& home : *there) homes_[home].on_disk = true;
  for (const auto& home : *foreign) homes_[home].foreign = true;
  return {};
}

Bucket BucketTier::home_of(WallTime due) const {
  return bucket_of(due < hours_end_ ? BucketLevel::hour : BucketLevel::month, due);
}

BucketTier::Recent BucketTier::home_for(WallTime due) {
  if (recent_.home != nullptr && recent_.id.start <= due && due < recent_.id.end()) return recent_;
  const Bucket id = home_of(due);
  Recent out{id, &homes_[id], {}};
  // A home may have been a month when it was written, and be hours now.
  for (const BucketLevel level : {BucketLevel::hour, BucketLevel::month}) {
    const auto home = homes_.find(bucket_of(level, due));
    if (home != homes_.end()) out.written = std::max(out.written, home->second.written);
  }
  // A month has several hours, and each may be written by itself.
  if (id.level == BucketLevel::hour) recent_ = out;
  return out;
}

// --- Durable operations

// The level of new tails.  In a home of many a coarser one has to do: a write seals all of them in
// one turn.
BucketLevel BucketTier::tail_level(const Bucket& id, const Home& home) {
  if (id.level == BucketLevel::month) return BucketLevel::month;
  const bool has_many = home.tails >= max_fine_tails && home.split > BucketLevel::second;
  return has_many ? BucketLevel::second : home.split;
}

// The hour is too large to be loaded at once.
void BucketTier::split_tails(Home& home) {
  WallTime first = WallTime::max(), last = WallTime::min();
  for (const auto& [bucket, shelf] : home.shelves) {
    for (const auto& resident : shelf.residents) {
      first = std::min(first, resident->chunk->earliest());
      last = std::max(last, resident->chunk->latest());
    }
  }
  home.split = level_to_deal_to(BucketLevel::minute, BucketLevel::second, first, last);
}

void BucketTier::number(const std::shared_ptr<Resident>& resident) {
  if (free_numbers_.empty()) {
    free_numbers_.push_back(static_cast<std::uint32_t>(numbered_.size()));
    numbered_.emplace_back();
  }
  resident->number = free_numbers_.back();
  free_numbers_.pop_back();
  numbered_[resident->number] = resident;
}

// The pending record that is there, perhaps another one than was meant.
BucketTier::Place BucketTier::place_at(const Location& location) const {
  if (location.chunk >= numbered_.size()) return {};
  Resident* const resident = numbered_[location.chunk].get();
  const bool is_there = resident != nullptr && location.index < resident->live.size() &&
                        resident->live[location.index];
  return is_there ? Place{resident, location.index} : Place{};
}

BucketTier::Resident& BucketTier::tail(Home& home, Shelf& shelf, const Bucket& home_id,
                                       const Bucket& bucket) {
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

void BucketTier::charge(Home& home, Resident& resident) {
  const std::size_t now = resident.chunk->memory_bytes() + resident_overhead;
  memory_ += now - resident.charged;
  level_of(resident).bytes += now - resident.charged;
  if (!resident.is_written()) home.unwritten += now - resident.charged;
  resident.charged = now;
}

std::optional<Location> BucketTier::add(JournalPlace at, const storage::PendingAdded& added) {
  const PendingView record{{added.due, added.sequence},
                           added.first_due.value_or(added.due),
                           added.partition,
                           added.accepted,
                           added.expires,
                           added.id,
                           added.record,
                           added.principal};
  if (!record.id.empty()) {
    tell(record.partition, record.id,
         {ScheduleEvent::Kind::scheduled, record.accepted, record.key, record.first,
          ScheduleEvent::offset_of(record.share())});
  }
  return this->added(at, record);
}

void BucketTier::remove(JournalPlace at, const storage::PendingRemoved& removed,
                        const Location& location) {
  const PendingKey key{removed.due, removed.sequence};
  const WallTime first = removed.first_due.value_or(removed.due);
  if (!removed.id.empty()) {
    const Offset offset = removed.how == RemovalReason::moved
                              ? ScheduleEvent::offset_of(removed.share)
                              : removed.offset;
    tell(removed.partition, removed.id, {kind_of(removed.how), removed.at, key, first, offset});
  }
  // Such a record was never pending, so there is nothing to mark.
  if (removed.how == RemovalReason::delivered_on_arrival) return;
  this->removed(at, key, removed.partition, first, removed.share, location);
}

void BucketTier::tell(const TopicPartition& partition, std::string_view id,
                      const ScheduleEvent& event) {
  if (dropped_.contains(partition.topic)) return;
  const auto [known, is_new] = told_->ids.of(partition, id);
  if (is_new) charge_told(id.size());
  auto& events = *known;
  if (events.size() == storage::max_id_events)
    events.erase(events.begin());
  else
    charge_told(event_bytes);
  events.push_back(event);
}

// Ids and forwarding rows wait in memory for the next checkpoint.
void BucketTier::charge_told(std::size_t bytes) {
  told_->bytes += bytes;
  memory_ += bytes;
}

void BucketTier::forward(const PendingKey& handle, std::optional<PendingKey> now) {
  const auto [at, is_new] = told_->forwards.insert_or_assign(handle, now);
  if (is_new) charge_told(event_bytes);
}

// A record more of the home, the topic and the principal, or one less.
void BucketTier::count(Home& home, const TopicId& topic, const storage::PendingShare& share,
                       int change) {
  const storage::PendingUse more{change, change * std::int64_t{share.bytes}};
  home.uses[{topic, share.principal}].add(more);
  if (options_.counts == nullptr) return;
  Counted& to = counted(topic, share.principal);
  // Shards add to the same counter, and nothing else follows from its value.
  to.topic->fetch_add(change, std::memory_order_relaxed);
  to.untold.add(more);
}

void BucketTier::tell_account() {
  if (last_counted_ == nullptr) return;
  Counted& of = last_counted_->second;
  if (of.account != nullptr && of.untold != storage::PendingUse{}) {
    of.account->add(of.untold);
    of.use.add(of.untold);
  }
  of.untold = {};
}

BucketTier::Counted& BucketTier::counted(const TopicId& topic, PrincipalId principal) {
  const std::pair of(topic, principal);
  if (last_counted_ != nullptr && last_counted_->first == of) return last_counted_->second;
  tell_account();
  auto at = counted_.find(of);
  if (at == counted_.end()) {
    Counted made{&counter(topic), nullptr, {}, {}};
    if (principal != unknown_principal) made.account = options_.counts->account(principal);
    at = counted_.emplace(of, std::move(made)).first;
  }
  last_counted_ = &*at;
  return at->second;
}

storage::PendingCounts::Counter& BucketTier::counter(const TopicId& topic) {
  auto& [last, last_counter] = recent_counter_;
  if (last_counter != nullptr && last == topic) return *last_counter;
  auto& known = counters_[topic];
  if (known == nullptr) known = &options_.counts->counter(topic);
  recent_counter_ = {topic, known};
  return *known;
}

std::int64_t BucketTier::pending_of(const TopicId& topic) {
  return options_.counts == nullptr ? 0 : counter(topic).load(std::memory_order_relaxed);
}

IntakeCharge::Sums BucketTier::coming(const TopicId& topic) {
  if (options_.counts == nullptr) return {&coming_bytes_, nullptr, alive_};
  auto& known = coming_[topic];
  if (known == nullptr) known = &options_.counts->coming(topic);
  return {&coming_bytes_, known, alive_};
}

std::int64_t BucketTier::coming_of(const TopicId& topic) {
  const auto known = coming(topic).records;
  return known == nullptr ? 0 : known->load(std::memory_order_relaxed);
}

std::optional<Location> BucketTier::added(JournalPlace at, const PendingView& record) {
  at.epoch = epoch_;
  applied_ = std::max(applied_, behind(at));
  // One that is back where it was first is where its handle says.
  if (record.was_moved() || forwarded(record.handle()) != nullptr)
    forward(record.handle(), record.key);
  if (dropped_.contains(record.partition.topic)) return std::nullopt;
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
  if (bucket.level == BucketLevel::hour && home.unwritten >= split_from()) split_tails(home);
  if (shelf.residents.size() > 1) {
    const Chunk& before = *shelf.residents[shelf.residents.size() - 2]->chunk;
    if (resident.chunk->first() <= before.last()) shelf.in_order = false;
  }
  count(home, record.partition.topic, record.share(), 1);
  home.dirty = true;
  // A far record is filed later, when it comes near.
  if (!(record.key < horizon_)) return std::nullopt;
  return Location{resident.number, static_cast<std::uint32_t>(resident.live.size() - 1)};
}

void BucketTier::removed(JournalPlace at, const PendingKey& key, const TopicPartition& partition,
                         WallTime first, const storage::PendingShare& share,
                         const Location& location) {
  at.epoch = epoch_;
  applied_ = std::max(applied_, behind(at));
  if (first != key.due) forward({first, key.sequence}, std::nullopt);
  if (dropped_.contains(partition.topic)) return;
  // This is the home of today: an hour, although the record may have been written in the month.
  const auto [id, of_id, written] = home_for(key.due);
  if (at < written) return;
  Home& home = *of_id;
  count(home, partition.topic, share, -1);
  home.dirty = true;
  const Place place = locate(key, location, last_removed_);
  if (place.resident == nullptr) {
    mark(home);
    home.gone.insert(key.sequence);
    return;
  }
  // A month that is closed takes no marks: its place in the journal is fixed.
  const bool is_on_disk = place.resident->is_written() || place.resident->writing;
  if (is_on_disk && place.resident->home == id)
    place.resident->gone.push_back(key.sequence);
  else if (is_on_disk)
    home.gone.insert(key.sequence);
  else
    ++stats_.spared;
  if (is_on_disk) mark(home);
  kill(place);
}

void BucketTier::mark(Home& home) {
  home.marks += mark_bytes;
  memory_ += mark_bytes;
}

void BucketTier::kill(const Place& place) {
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

// It leaves its shelf, and memory.
void BucketTier::leave(Resident& resident) {
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
  numbered_[resident.number].reset();  // Its shelf has it still.
}

// Nothing of it is pending: memory forgets it, and with the next write of its home the disk does.
void BucketTier::let_go(Home& home, Resident& resident) {
  if (resident.is_written()) {
    home.dead.push_back(*resident.key);
    home.dirty = true;
  } else {
    home.unwritten -= resident.charged;
    --home.tails;
  }
  take_off_shelf(home, resident);
}

void BucketTier::take_off_shelf(Home& home, Resident& resident) {
  leave(resident);
  const auto shelf = home.shelves.find(resident.bucket());
  TARRY_ASSERT(shelf != home.shelves.end(), "a resident stands on its bucket's shelf");
  auto& residents = shelf->second.residents;
  std::erase_if(residents, [&](const auto& one) { return one.get() == &resident; });
  if (residents.empty()) home.shelves.erase(shelf);
}

// --- Set aside

bool BucketTier::set_aside(const PendingKey& key, const Location& location) {
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
void BucketTier::set_down(Resident& resident) {
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

void BucketTier::topic_dropped(const TopicId& topic) {
  // One that was begun before may have something of it, the next one has not.
  constexpr int checkpoints = 2;
  counters_.erase(topic);
  coming_.erase(topic);
  recent_counter_ = {};
  tell_account();
  last_counted_ = nullptr;
  for (auto of = counted_.lower_bound({topic, 0}); of != counted_.end() && of->first.first == topic;
       of = counted_.erase(of)) {
    if (of->second.account != nullptr) of->second.account->take_off(of->second.use);
  }
  if (!dropped_.try_emplace(topic, checkpoints).second) return;
  if (!homes_.empty()) drop_from_ = homes_.begin()->first;
}

// Notes what may have something of dropped topics.
void BucketTier::sweep_homes(std::size_t budget) {
  if (!drop_from_) return;
  auto at = homes_.lower_bound(*drop_from_);
  for (; budget > 0 && at != homes_.end(); --budget, ++at) {
    auto& [id, home] = *at;
    if (home.on_disk || home.foreign) {
      home.gone_on_disk = std::numeric_limits<std::uint32_t>::max();  // Nobody knows how much.
      disk_sweeps_.try_emplace(id);
    }
    for (const auto& [bucket, shelf] : home.shelves)
      for (const auto& resident : shelf.residents) sweeping_.push_back({resident, 0});
    budget -= std::min(budget - 1, home.shelves.size());
  }
  drop_from_ = at == homes_.end() ? std::nullopt : std::optional(at->first);
}

// A checkpoint is noted.
void BucketTier::forget_topics() {
  const bool swept = !drop_from_ && sweeping_.empty() && handing_.empty();
  for (auto& [topic, checkpoints] : dropped_) checkpoints = std::max(0, checkpoints - 1);
  if (swept) std::erase_if(dropped_, [](const auto& topic) { return topic.second == 0; });
}

// Frees what memory has of dropped topics.  The store leaves them out by itself.
void BucketTier::sweep(std::size_t budget) {
  sweep_homes(budget);
  for (; budget > 0 && !sweeping_.empty(); --budget) {
    auto& [resident, next] = sweeping_.front();
    if (!resident->on_shelf || next >= resident->live.size()) {
      sweeping_.pop_front();
      continue;
    }
    const std::size_t index = next++;
    if (resident->live[index] && dropped_.contains(resident->chunk->at(index).partition.topic))
      kill({resident.get(), index});
  }
}

// --- Reading

BucketTier::Place BucketTier::covering(const Shelf& shelf, const PendingKey& key) {
  const auto in = [&key](const std::shared_ptr<Resident>& resident) -> Place {
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

BucketTier::Place BucketTier::locate(const PendingKey& key) const {
  for (const BucketLevel home_level : {BucketLevel::hour, BucketLevel::month}) {
    const auto home = homes_.find(bucket_of(home_level, key.due));
    if (home == homes_.end()) continue;
    for (BucketLevel level = home_level;; level = finer(level)) {
      const auto shelf = home->second.shelves.find(bucket_of(level, key.due));
      if (shelf != home->second.shelves.end()) {
        if (Place found = covering(shelf->second, key); found.resident != nullptr) return found;
      }
      // A month has no finer tails (tail_level()).
      if (level == BucketLevel::run || home_level == BucketLevel::month) break;
    }
  }
  return {};
}

// The same, after a look at `location`, or behind `last`, which becomes the place then.
BucketTier::Place BucketTier::locate(const PendingKey& key, const Location& location,
                                     Place& last) const {
  // The number may be another chunk's by now, so the key decides.
  const Place there = place_at(location);
  if (there.resident != nullptr && there.resident->chunk->key_at(there.index) == key) return there;
  if (last.resident != nullptr && last.resident->has(key, last.index + 1))
    ++last.index;
  else
    last = locate(key);
  return last;
}

bool BucketTier::is_gone(const PendingKey& key) const {
  for (const BucketLevel level : {BucketLevel::hour, BucketLevel::month}) {
    const auto home = homes_.find(bucket_of(level, key.due));
    if (home != homes_.end() && home->second.gone.contains(key.sequence)) return true;
  }
  return false;
}

// If a chunk is on disk and in memory, its marks are with it until its home is written.
bool BucketTier::is_gone_from_memory(const PendingKey& key) const {
  const auto is_in = [&](const std::shared_ptr<Resident>& resident) {
    const auto& gone = resident->gone;
    const storage::Chunk& chunk = *resident->chunk;
    return chunk.first() <= key.sequence && key.sequence <= chunk.last() &&
           std::ranges::find(gone, key.sequence) != gone.end();
  };
  for (const BucketLevel home_level : {BucketLevel::hour, BucketLevel::month}) {
    const auto home = homes_.find(bucket_of(home_level, key.due));
    if (home == homes_.end()) continue;
    for (BucketLevel level = home_level;; level = finer(level)) {
      const auto shelf = home->second.shelves.find(bucket_of(level, key.due));
      if (shelf != home->second.shelves.end() &&
          std::ranges::any_of(shelf->second.residents, is_in))
        return true;
      if (level == BucketLevel::run || home_level == BucketLevel::month) break;
    }
  }
  return false;
}

std::optional<BucketTier::PendingView> BucketTier::read(const PendingKey& key,
                                                        const Location& location) const {
  const Place place = locate(key, location, last_read_);
  if (place.resident == nullptr) return std::nullopt;
  const PendingView view = place.resident->chunk->at(place.index);
  if (dropped_.contains(view.partition.topic)) return std::nullopt;
  return view;
}

// The record that is pending under a key, if memory knows it; empty: the disk has to be asked.
std::optional<std::optional<storage::PendingRecord>> BucketTier::known(
    const PendingKey& key) const {
  if (const auto view = read(key)) return view->owned();
  // Before the horizon everything that is pending is in memory.
  if (key < horizon_ || is_gone(key) || is_gone_from_memory(key))
    return std::optional<storage::PendingRecord>();
  for (const BucketLevel level : {BucketLevel::hour, BucketLevel::month}) {
    const auto home = homes_.find(bucket_of(level, key.due));
    if (home != homes_.end() && (home->second.on_disk || home->second.foreign)) return std::nullopt;
  }
  return std::optional<storage::PendingRecord>();
}

void BucketTier::find(const PendingKey& key, Found found) {
  if (auto now = known(key)) return found(std::move(*now));
  // Each holds a request, whose client would otherwise wait with all the others.
  if (lookups_.size() >= max_waiting_lookups) return found(fail(Errc::exhausted, too_many_lookups));
  lookups_.push_back({key, std::move(found), false});
  if (!busy_ && !failed_) begin_finds();
}

// The present key of the record with this handle, as far as memory knows; null: unknown.
const std::optional<BucketTier::PendingKey>* BucketTier::forwarded(const PendingKey& handle) const {
  if (const auto at = told_->forwards.find(handle); at != told_->forwards.end()) return &at->second;
  if (!told_writing_) return nullptr;
  const auto at = told_writing_->forwards.find(handle);
  return at != told_writing_->forwards.end() ? &at->second : nullptr;
}

void BucketTier::find_handle(const PendingKey& handle, Found found) {
  if (const auto* const moved = forwarded(handle)) {
    if (!*moved) return found(std::optional<storage::PendingRecord>());
    return find(**moved, unless_moved(handle, **moved, std::move(found)));
  }
  if (auto now = known(handle); now && *now) return found(std::move(*now));
  if (lookups_.size() >= max_waiting_lookups) return found(fail(Errc::exhausted, too_many_lookups));
  lookups_.push_back({handle, std::move(found), true});
  if (!busy_ && !failed_) begin_finds();
}

// For the record of a handle, which is looked up where it was last: it may be moved again before it
// is found.
BucketTier::Found BucketTier::unless_moved(const PendingKey& handle, const PendingKey& at,
                                           Found found) {
  return [=, this, found = std::move(found)](auto record) mutable {
    const auto* const now = forwarded(handle);
    const bool is_gone_for_good = now != nullptr && (!*now || **now == at);
    if (!record || *record || is_gone_for_good) return found(std::move(record));
    find_handle(handle, std::move(found));
  };
}

void BucketTier::find_id(const TopicPartition& partition, std::string id, Events events) {
  if (id_lookups_.size() >= max_waiting_lookups)
    return events(fail(Errc::exhausted, too_many_lookups));
  id_lookups_.push_back({partition, std::move(id), std::move(events)});
  if (!busy_ && !failed_) begin_finds();
}

// The last event of an id in memory, since Told `since`; null: none.
const ScheduleEvent* BucketTier::last_told(const TopicPartition& partition, std::string_view id,
                                           std::uint64_t since) const {
  const auto in = [&](const Told& told) -> const ScheduleEvent* {
    const auto* const known = told.ids.find(partition, id);
    return known != nullptr ? &known->back() : nullptr;
  };
  if (const auto* const last = in(*told_)) return last;
  if (told_writing_)
    if (const auto* const last = in(*told_writing_)) return last;
  for (auto told = told_kept_.rbegin(); told != told_kept_.rend() && (*told)->number >= since;
       ++told)
    if (const auto* const last = in(**told)) return last;
  return nullptr;
}

void BucketTier::read_ids(const TopicPartition& partition, std::vector<std::string_view> ids,
                          std::move_only_function<void(Result<IdRows>)> rows) {
  IdRows out;
  // The store's answer may lack the events that are being written now.
  const Told& oldest = told_writing_ ? *told_writing_ : *told_;
  out.since_ = oldest.number;
  out.pin_ = oldest.pin;
  const auto is_told = [&](std::string_view id) {
    return last_told(partition, id, out.since_) != nullptr;
  };
  const bool knows_all = dropped_.contains(partition.topic) ||
                         (ids.size() <= max_ids_known && std::ranges::all_of(ids, is_told));
  if (knows_all) return rows(std::move(out));
  const std::size_t bytes = ids.size() * sizeof(out.last_[0]);
  auto held = std::make_shared<const bool>(true);
  // They count for as long as the request holds them.
  rows_held_.emplace_back(held, bytes);
  out.held_ = std::move(held);
  memory_ += bytes;
  const bool is_for_few = ids.size() <= max_ids_known;
  IdQuestion question{partition, std::move(ids), std::move(out), std::move(rows)};
  if (is_for_few) {
    id_questions_->waiting.push_back(std::move(question));
    if (!id_questions_->asking) ask_next();
  } else {
    auto alone = std::make_shared<std::vector<IdQuestion>>();
    alone->push_back(std::move(question));
    ask(std::move(alone), false);
  }
}

// Everything that waits for rows of a few ids, up to a bound, becomes one piece of work.
void BucketTier::ask_next() {
  auto& waiting = id_questions_->waiting;
  auto end = waiting.begin();
  for (std::size_t ids = 0; end != waiting.end() && ids < max_ids_asked; ++end)
    ids += end->ids.size();
  std::shared_ptr<std::vector<IdQuestion>> next;
  try {
    next = std::make_shared<std::vector<IdQuestion>>();
    next->reserve(static_cast<std::size_t>(end - waiting.begin()));
  } catch (const std::bad_alloc&) {
    // Each is answered here: whoever waits for one that stays may be gone before the next one asks.
    auto left = std::exchange(waiting, {});
    return answer(left, fail(Errc::exhausted, no_memory));
  }
  std::move(waiting.begin(), end, std::back_inserter(*next));
  waiting.erase(waiting.begin(), end);
  id_questions_->asking = true;
  ask(std::move(next), true);
}

void BucketTier::ask(std::shared_ptr<std::vector<IdQuestion>> asked, bool is_for_few) {
  const auto work = [&store = store_, asked]() -> Result<IdLasts> {
    IdLasts lasts;
    for (const auto& question : *asked) {
      auto last = store.last_events(question.partition, question.ids);
      if (!last) return std::unexpected(last.error());
      lasts.push_back(std::move(*last));
    }
    return lasts;
  };
  auto then = [this, alive = alive_, all = id_questions_, asked,
               is_for_few](Result<IdLasts> lasts) {
    if (!lasts && *alive) failed(lasts.error());
    if (is_for_few) all->asking = false;
    answer(*asked, std::move(lasts));
    if (!is_for_few || all->asking || all->waiting.empty()) return;
    if (*alive) return ask_next();
    auto left = std::exchange(all->waiting, {});
    answer(left, fail(Errc::exhausted, "the pending store has stopped"));
  };
  try {
    background_.run(work, std::move(then));
  } catch (const std::exception&) {
    if (is_for_few) id_questions_->asking = false;
    answer(*asked, fail(Errc::exhausted, no_memory));
  }
}

void BucketTier::answer(std::vector<IdQuestion>& asked, Result<IdLasts> lasts) {
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (!lasts) {
      asked[i].answer(std::unexpected(lasts.error()));
      continue;
    }
    asked[i].rows.last_ = std::move((*lasts)[i]);
    asked[i].answer(std::move(asked[i].rows));
  }
}

std::optional<ScheduleEvent> BucketTier::last_event(const TopicPartition& partition,
                                                    std::string_view id, const IdRows& rows,
                                                    std::size_t at) const {
  if (dropped_.contains(partition.topic)) return std::nullopt;
  if (const auto* const last = last_told(partition, id, rows.since_)) return *last;
  return rows.last_.empty() ? std::nullopt : rows.last_.at(at);
}

// --- Time

bool BucketTier::has_near(const Resident& resident) const {
  const Chunk& chunk = *resident.chunk;
  if (resident.live_count == 0 || chunk.earliest() > horizon_.due) return false;
  if (chunk.latest() < horizon_.due) return true;
  for (std::size_t i = 0; i < chunk.size(); ++i)
    if (resident.live[i] && chunk.key_at(i) < horizon_) return true;
  return false;
}

// Moves the horizon to `until`: everything before it that is pending is in memory.
void BucketTier::begin_handing(const PendingKey& until) {
  TARRY_ASSERT(handing_.empty(), "one range is handed over at a time");
  TARRY_ASSERT(horizon_ < until, "the horizon moves ahead");
  handing_from_ = horizon_;
  handed_ = 0;
  horizon_ = until;
  for (auto home = homes_.lower_bound(bucket_of(BucketLevel::hour, handing_from_.due));
       home != homes_.end() && home->first.level == BucketLevel::hour &&
       home->first.start <= until.due;
       ++home) {
    for (const auto& [bucket, shelf] : home->second.shelves) {
      if (bucket.end() <= handing_from_.due || bucket.start > until.due) continue;
      for (const auto& resident : shelf.residents)
        if (resident->chunk->earliest() <= until.due &&
            resident->chunk->latest() >= handing_from_.due)
          handing_.emplace_back(resident, resident->chunk->size());
    }
  }
}

void BucketTier::hand_over(std::size_t budget) {
  constexpr std::size_t ahead = 8;
  while (budget > 0 && !handing_.empty()) {
    const auto& [resident, size] = handing_.front();
    if (handed_ == size) {
      handing_.pop_front();
      handed_ = 0;
      continue;
    }
    const std::size_t index = handed_++;
    --budget;
    if (hooks_.near_soon && index + ahead < size)
      hooks_.near_soon(resident->chunk->key_at(index + ahead).sequence);
    if (!resident->live[index]) continue;
    const PendingView view = resident->chunk->at(index);
    if (view.key < handing_from_ || !(view.key < horizon_)) continue;
    if (dropped_.contains(view.partition.topic)) continue;
    ++stats_.downgrades;
    hooks_.near(view, {resident->number, static_cast<std::uint32_t>(index)});
  }
}

// Near records spend the memory.  A record that is due later than half of the time that it was
// loaded ahead is far again; once it is written it leaves memory.
void BucketTier::pull_back(WallTime now) {
  lead_ = std::max(lead_ / 2, least_lead);
  lead_from_ = now + lead_grows_after;
  const BucketLevel level =
      lead_ >= span_of(BucketLevel::minute) ? BucketLevel::minute : BucketLevel::second;
  const Bucket last = bucket_of(level, now + lead_);
  const PendingKey to{last.end(), 0};
  if (!(to < horizon_)) return;
  const PendingKey before = std::exchange(horizon_, to);
  ++stats_.pulled_back;
  // So that what comes later is not in one chunk with what is near.
  const auto split = homes_.find(bucket_of(BucketLevel::hour, to.due));
  if (split != homes_.end()) split->second.split = std::max(split->second.split, level);
  hooks_.pulled_back(horizon_);
  // Nothing that is due later is in memory and written.
  for (auto home = homes_.lower_bound(bucket_of(BucketLevel::hour, to.due));
       home != homes_.end() && home->first.start <= before.due; ++home) {
    count_back(home->second, before);
    evict(home->second);
  }
}

// Counts the records that were near until now.
void BucketTier::count_back(const Home& home, const PendingKey& horizon) {
  for (const auto& [bucket, shelf] : home.shelves) {
    for (const auto& resident : shelf.residents) {
      const Chunk& chunk = *resident->chunk;
      auto& count = level_of(*resident).came_back;
      // Most chunks lie on one side as a whole, and need no look at each record.
      if (chunk.latest() < horizon_.due || chunk.earliest() >= horizon.due) continue;
      if (chunk.earliest() >= horizon_.due && chunk.latest() < horizon.due) {
        count += resident->live_count;
        continue;
      }
      for (std::size_t i = 0; i < chunk.size(); ++i) {
        const PendingKey key = chunk.key_at(i);
        count += resident->live[i] && !(key < horizon_) && key < horizon;
      }
    }
  }
}

// Chunks that are written and far leave memory.
void BucketTier::evict(Home& home) {
  for (auto shelf = home.shelves.begin(); shelf != home.shelves.end();) {
    auto& residents = shelf->second.residents;
    std::erase_if(residents, [&](const std::shared_ptr<Resident>& resident) {
      if (!resident->is_written() || resident->writing || has_near(*resident)) return false;
      // Its marks are not on the disk yet.
      home.gone.insert(resident->gone.begin(), resident->gone.end());
      home.on_disk = true;
      level_of(*resident).to_disk += resident->live_count;
      leave(*resident);
      return true;
    });
    shelf = residents.empty() ? home.shelves.erase(shelf) : std::next(shelf);
  }
}

bool BucketTier::is_ended(const Home& home) const {
  return home.shelves.empty() && home.gone.empty() && home.dead.empty() && !home.dirty &&
         !home.on_disk && !home.foreign && home.aside.empty();
}

// Nothing needs its place and its marks any more.  The hour that is coming near is about to be used
// again.
bool BucketTier::may_forget(const Bucket& id, const Home& home) const {
  const bool is_now = id.start <= horizon_.due && horizon_.due < id.end();
  if (!is_ended(home) || noted_ < home.written || is_now) return false;
  // What is gone of a month that is not dealt yet is marked in its hours.
  const auto month = homes_.find(bucket_of(BucketLevel::month, id.start));
  return id.level == BucketLevel::month || month == homes_.end() || is_ended(month->second);
}

std::optional<Bucket> BucketTier::next_home(WallTime from) const {
  for (auto home = homes_.lower_bound(bucket_of(BucketLevel::hour, from)); home != homes_.end();
       ++home)
    if (!home->second.shelves.empty() || home->second.on_disk || home->second.foreign)
      return home->first;
  return std::nullopt;
}

std::optional<WallTime> BucketTier::next_load() const {
  // Otherwise what is under way wakes the host.
  if (busy_ || load_waits_ || !handing_.empty()) return std::nullopt;
  std::optional<WallTime> at;
  if (const auto next = next_home(horizon_.due))
    at = std::max(next->start, horizon_.due) - lead_ / 2;
  // A month that is near enough becomes hours.
  const auto month = homes_.lower_bound({BucketLevel::month, hours_end_});
  if (month != homes_.end() && month->first.level == BucketLevel::month) {
    const WallTime opens = month->first.end() - options_.hours_ahead;
    at = at ? std::min(*at, opens) : opens;
  }
  return at;
}

bool BucketTier::step(WallTime now) {
  if (failed_) return false;
  hand_over(options_.step_entries);
  sweep(options_.step_entries);
  forget_told();
  const bool begun = !busy_ && begin_work(now);
  return !failed_ && (!handing_.empty() || drop_from_ || !sweeping_.empty() || (begun && !busy_));
}

// --- Checkpoints

void BucketTier::write_all(std::move_only_function<void()> done) {
  checkpoint_next_.push_back(std::move(done));
  if (checkpoint_done_.empty()) begin_write_all();
}

void BucketTier::begin_write_all() {
  checkpoint_done_ = std::exchange(checkpoint_next_, {});
  if (!homes_.empty()) write_next_ = homes_.begin()->first;
  told_due_ = true;
  hooks_.wake();
}

void BucketTier::noted(JournalPlace place) {
  place.epoch = epoch_;
  noted_ = place;
  if (!forget_next_ && !homes_.empty()) forget_next_ = homes_.begin()->first;
  // The checkpoint could be written, so there is room.
  no_room_ = false;
  forget_topics();
  hooks_.wake();
}

std::optional<BucketTier::Earliest> BucketTier::earliest() const {
  std::optional<Earliest> first;
  std::size_t homes = options_.homes_a_turn;
  std::size_t entries = 4'096;
  for (const BucketLevel level : {BucketLevel::month, BucketLevel::hour}) {
    for (auto home = homes_.lower_bound({level, WallTime::min()});
         home != homes_.end() && home->first.level == level; ++home) {
      const WallTime start = home->first.start;
      if (first && first->due < start) break;
      if (homes == 0) {  // Nothing is due before it.
        first = {start, false};
        break;
      }
      --homes;
      look_for_earliest(*home, first, entries);
    }
  }
  return first;
}

// The first due time of a home, if it is before `first`.
void BucketTier::look_for_earliest(const Homes::value_type& at, std::optional<Earliest>& first,
                                   std::size_t& entries) const {
  const auto& [id, home] = at;
  const auto consider = [&first](WallTime due, bool exact) {
    if (!first || due < first->due) first = {due, exact};
  };
  // Near records are in memory, so the rest of the home is behind the horizon.
  if ((home.on_disk || home.foreign) && horizon_.due < id.end())
    consider(std::max(id.start, horizon_.due), false);
  for (const auto& [bucket, shelf] : home.shelves) {
    for (const auto& resident : shelf.residents) {
      if (resident->live_count == 0) continue;
      const Chunk& chunk = *resident->chunk;
      if (first && first->due <= chunk.earliest()) continue;
      if (entries < chunk.size()) {
        consider(chunk.earliest(), false);
        continue;
      }
      entries -= chunk.size();
      for (std::size_t i = 0; i < chunk.size(); ++i)
        if (resident->live[i]) consider(chunk.key_at(i).due, true);
    }
  }
}

BucketTier::Stats BucketTier::stats() const {
  Stats out = stats_;
  out.memory_bytes = memory_;
  out.records = live_;
  out.homes = homes_.size();
  out.dropped_topics = dropped_.size();
  for (const auto& level : out.levels) out.chunks += level.chunks;
  return out;
}

storage::LevelSlots BucketTier::slots(WallTime now, std::size_t max_looked) const {
  auto slots = storage::level_slots(now);
  std::size_t looked = 0;
  for (const auto& [id, home] : homes_) {
    ++looked;
    for (const auto& [bucket, shelf] : home.shelves) {
      if (++looked > max_looked) {
        for (auto& level : slots) level.add_later();
        return slots;
      }
      if (!shelf.residents.empty()) slots[static_cast<std::size_t>(bucket.level)].add(bucket);
    }
  }
  return slots;
}

}  // namespace tarry::delay
