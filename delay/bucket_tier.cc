#include "delay/bucket_tier.h"

#include <algorithm>

namespace tarry::delay {

using storage::Bucket;
using storage::bucket_of;
using storage::BucketLevel;
using storage::Chunk;
using storage::JournalPlace;
using storage::RemovalReason;
using storage::ScheduleEvent;

namespace {

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
      lane_(background, hooks_.wake, hooks_.failed),
      counts_(options.counts),
      homes_(options.split_bytes != 0 ? options.split_bytes : piece_bytes(options)),
      dropped_(homes_),
      unwritten_(background),
      horizon_(options.lead),
      id_reader_(store, background, lane_, unwritten_, dropped_),
      lookups_(store, owner, lane_, {homes_, horizon_, dropped_, unwritten_},
               [this](const Bucket& home) { begin_adopt(home); }),
      rescue_(options.memory_bytes / 8, hooks_.floods) {}

BucketTier::~BucketTier() {
  lane_.close();
}

Result<> BucketTier::open(WallTime now) {
  const auto epoch = store_.epoch(owner_.shards);
  if (!epoch) return std::unexpected(epoch.error());
  epoch_ = *epoch;
  homes_.set_hours_end(bucket_of(BucketLevel::month, now + options_.hours_ahead).start);
  const auto places = store_.places(owner_.shard);
  if (!places) return std::unexpected(places.error());
  for (const auto& [home, place] : *places) {
    homes_.set_written(home, place);
    applied_ = std::max(applied_, place);
  }
  // First: what another shard adopts meanwhile is among the others then.
  const auto foreign = store_.foreign_homes(owner_.shards);
  if (!foreign) return std::unexpected(foreign.error());
  const auto there = store_.homes(owner_);
  if (!there) return std::unexpected(there.error());
  for (const auto& home : *there) homes_.set_on_disk(home);
  for (const auto& home : *foreign) homes_.set_foreign(home);
  return {};
}

// --- Durable operations

void BucketTier::applied_until(JournalPlace& at) {
  at.epoch = epoch_;
  applied_ = std::max(applied_, behind(at));
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
  const TopicId& topic = record.partition.topic;
  const bool is_dropped = dropped_.contains(topic);
  if (!record.id.empty() && !is_dropped) {
    unwritten_.tell(record.partition, record.id,
                    {ScheduleEvent::Kind::scheduled, record.accepted, record.key, record.first,
                     ScheduleEvent::offset_of(record.share())});
  }
  applied_until(at);
  // One that is back where it was first is where its handle says.
  if (record.was_moved() || unwritten_.forwarded(record.handle()) != nullptr)
    unwritten_.forward(record.handle(), record.key);
  if (is_dropped) return std::nullopt;
  const auto there = homes_.add(at, record);
  if (!there) return std::nullopt;
  counts_.add(topic, record.share(), 1);
  if (record.key < horizon_.at()) return there;
  // A far record is filed later, when it comes near.
  return rescue_.is_near(record.key, record.partition) ? rescue_.keep(record) : std::nullopt;
}

void BucketTier::remove(JournalPlace at, const storage::PendingRemoved& removed,
                        const Location& location) {
  const PendingKey key{removed.due, removed.sequence};
  const WallTime first = removed.first_due.value_or(removed.due);
  const TopicId& topic = removed.partition.topic;
  const bool is_dropped = dropped_.contains(topic);
  if (!removed.id.empty() && !is_dropped) {
    const Offset offset = removed.how == RemovalReason::moved
                              ? ScheduleEvent::offset_of(removed.share)
                              : removed.offset;
    unwritten_.tell(removed.partition, removed.id,
                    {kind_of(removed.how), removed.at, key, first, offset});
  }
  // Such a record was never pending, so there is nothing to mark.
  if (removed.how == RemovalReason::delivered_on_arrival) return;
  applied_until(at);
  if (first != key.due) unwritten_.forward({first, key.sequence}, std::nullopt);
  if (is_dropped) return;
  if (rescue_.is_on()) rescue_.remove(key, removed.partition, location);
  if (homes_.remove(at, key, topic, removed.share, location)) counts_.add(topic, removed.share, -1);
}

void BucketTier::topic_dropped(const TopicId& topic) {
  counts_.topic_dropped(topic);
  dropped_.drop(topic);
  free_rescued(rescue_.topic_dropped(topic));
}

bool BucketTier::set_aside(const PendingKey& key, const TopicPartition& partition,
                           const Location& location) {
  if (rescue_.is_on()) rescue_.remove(key, partition, location);
  // Far chunks leave memory and come back, and do not keep what was set aside.
  if (!(key < horizon_.at())) return false;
  return homes_.set_aside(key, location);
}

std::optional<BucketTier::PendingView> BucketTier::read(const PendingKey& key,
                                                        const Location& location) const {
  std::optional<PendingView> view;
  if (rescue_.is_on()) view = rescue_.read(key, location);
  if (!view) view = homes_.read(key, location);
  if (!view && rescue_.is_on()) view = rescue_.find(key);
  if (view && dropped_.contains(view->partition.topic)) view.reset();
  return view;
}

// --- Time

std::optional<WallTime> BucketTier::next_load() const {
  // Otherwise what is under way wakes the host.
  if (is_at_work()) return std::nullopt;
  std::optional<WallTime> at = next_rescue();
  if (load_waits_ || horizon_.is_handing()) return at;
  const WallTime horizon = horizon_.at().due;
  if (const auto next = homes_.next_home(horizon)) {
    const WallTime loads = std::max(next->start, horizon) - horizon_.lead() / 2;
    at = at ? std::min(*at, loads) : loads;
  }
  if (const auto deals = next_deal_ahead()) at = at ? std::min(*at, *deals) : deals;
  // A month that is near enough becomes hours.
  const auto month = homes_.all().lower_bound({BucketLevel::month, homes_.hours_end()});
  if (month != homes_.all().end() && month->first.level == BucketLevel::month) {
    const WallTime opens = month->first.end() - options_.hours_ahead;
    at = at ? std::min(*at, opens) : opens;
  }
  return at;
}

bool BucketTier::step(WallTime now) {
  if (lane_.has_failed()) return false;
  const std::size_t entries = options_.step_entries;
  const std::size_t handed = horizon_.hand_over(entries, dropped_, hooks_.near, hooks_.near_soon);
  stats_.came_near += handed;
  // What is loaded or rescued has the rest of the step, but always some.
  const std::size_t left = std::max(entries - std::min(entries, handed), (entries + 3) / 4);
  dropped_.search(left);
  forget_unneeded();
  if (loading_) add_loaded(left);
  if (rescue_.is_on()) go_on_rescuing(left);
  if (lookups_.is_answering()) lookups_.answer();
  const bool begun = !is_at_work() && begin_work(now);
  const bool goes_on = (begun || homes_.is_evicting()) && !lane_.is_busy();
  return !lane_.has_failed() && (horizon_.is_handing() || dropped_.is_searching() || loading_ ||
                                 rescue_.is_handing() || lookups_.is_answering() || goes_on);
}

// --- Checkpoints

void BucketTier::write_all(std::move_only_function<void()> done) {
  checkpoint_next_.push_back(std::move(done));
  if (checkpoint_done_.empty()) begin_write_all();
}

void BucketTier::begin_write_all() {
  checkpoint_done_ = std::exchange(checkpoint_next_, {});
  if (!homes_.all().empty()) write_next_ = homes_.all().begin()->first;
  rows_due_ = true;
  hooks_.wake();
}

void BucketTier::noted(JournalPlace place) {
  place.epoch = epoch_;
  noted_ = place;
  if (!forget_next_ && !homes_.all().empty()) forget_next_ = homes_.all().begin()->first;
  // The checkpoint could be written, so there is room.
  no_room_ = false;
  dropped_.noted(horizon_.is_handing());
  hooks_.wake();
}

std::optional<BucketTier::Earliest> BucketTier::earliest() const {
  std::optional<Earliest> first;
  std::size_t homes = options_.homes_a_turn;
  std::size_t entries = 4'096;
  for (const BucketLevel level : {BucketLevel::month, BucketLevel::hour}) {
    for (auto home = homes_.all().lower_bound({level, WallTime::min()});
         home != homes_.all().end() && home->first.level == level; ++home) {
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
void BucketTier::look_for_earliest(const Homes::Map::value_type& at, std::optional<Earliest>& first,
                                   std::size_t& entries) const {
  const auto& [id, home] = at;
  const auto consider = [&first](WallTime due, bool exact) {
    if (!first || due < first->due) first = {due, exact};
  };
  // Near records are in memory, so the rest of the home is behind the horizon.
  if ((home.on_disk || home.foreign) && horizon_.at().due < id.end())
    consider(std::max(id.start, horizon_.at().due), false);
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
  out.rescue_bytes = rescue_.memory();
  out.memory_bytes = memory() + rescue_.memory();
  out.records = homes_.live();
  out.homes = homes_.all().size();
  out.dropped_topics = dropped_.size();
  out.written = homes_.sealed_total();
  out.spared = homes_.spared_total();
  out.levels = homes_.levels();
  for (const auto& level : out.levels) out.chunks += level.chunks;
  return out;
}

storage::LevelSlots BucketTier::slots(WallTime now, std::size_t max_looked) const {
  auto slots = storage::level_slots(now);
  std::size_t looked = 0;
  for (const auto& [id, home] : homes_.all()) {
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
