#include "delay/engine.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/assert.h"
#include "base/log.h"

namespace tarry::delay {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// While anything is pending a step of the wall clock is noticed within this (docs/adr/0001).
constexpr milliseconds max_sleep{1'000};

// The share of the near budget that loading may fill, so that newly accepted records find room.
constexpr std::size_t load_share_percent = 75;

std::size_t ready_limit(const Engine::Options& options) {
  return std::max(options.near_entries / 8, 4 * options.batch_records);
}

// A heap whose front is what leaves first.
bool leaves_later(const NearEntry* a, const NearEntry* b) {
  return b->key() < a->key();
}

}  // namespace

Engine::Engine(const Clock& clock, timing::TimingWheel& shard_wheel, storage::PendingStore& store,
               Sink& sink, const Options& options)
    : clock_(clock),
      shard_wheel_(shard_wheel),
      store_(store),
      sink_(sink),
      options_(options),
      alarm_([this] { step(); }),
      near_(clock.wall()),
      far_(store, options.step_loads) {
  wall_.observe(clock_);
}

Engine::~Engine() {
  *alive_ = false;
}

void Engine::start() {
  TARRY_ASSERT(!started_, "an engine is started once");
  started_ = true;
  running_since_ = last_now_ = wall_.observe(clock_);
  last_mono_ = clock_.mono();
  request_sequences_if_low();
  more_ = true;
  set_alarm();
}

// What became due while the clock jumped ahead was missed, as if nobody had been here; what is
// accepted after it was set back was not.
void Engine::note_clock(WallTime now) {
  constexpr milliseconds jump = std::chrono::minutes{1};
  const MonoTime mono = clock_.mono();
  const WallTime expected = last_now_ + std::chrono::floor<milliseconds>(mono - last_mono_);
  running_since_ = now > expected + jump ? now : std::min(running_since_, now);
  last_now_ = now;
  last_mono_ = mono;
}

// --- One step: what has become due, what comes near, what may leave.

void Engine::step() {
  if (!started_ || stopped_ || stepping_) return;
  stepping_ = true;
  const WallTime now = wall_.observe(clock_);
  note_clock(now);
  end_back_offs(clock_.mono());

  bool more = load_step(now);
  if (!stopped_) more |= refill_step();
  fired_.clear();
  if (!stopped_) more |= near_.advance(now, options_.step_timers, fired_);
  for (NearEntry* entry : fired_) {
    const PartitionSlot slot = entry->partition();
    enqueue(*entry);
    release_if_idle(slot);
  }
  if (!stopped_) more |= dispatch(now);
  if (!stopped_) more |= sweep_step();
  stepping_ = false;
  more_ = more;
  set_alarm();
}

// Brings the horizon forward once half of the window is used up; little by little, and not when
// near is nearly full.
bool Engine::load_step(WallTime now) {
  const WallTime wanted = now + options_.near_window;
  bool more = false;
  if (far_.horizon().due < now + options_.near_window / 2 || loading_) {
    if (near_.size() * 100 >= options_.near_entries * load_share_percent) {
      // What is overdue and stuck may not keep out what is due.
      if (far_.horizon().due <= now) make_room();
      return false;
    }
    const auto loaded = far_.load(wanted, [this](const storage::PendingLocator& locator) {
      const auto& partition = locator.partition;
      if (!sink_.owns(partition) || leaving_.contains(locator.key.sequence)) return;
      const PartitionSlot slot = slot_of(partition);
      if (partitions_[slot].ready.size() >= ready_limit(options_)) {
        far_.hold_back(slot, locator.key);
      }
      file(locator.key, slot);
      release_if_idle(slot);
    });
    if (!loaded) {
      failed(loaded.error());
      return false;
    }
    loading_ = *loaded;
    more = loading_;
  }
  if (!far_.first_far_known() && !loading_) {
    const auto looked = far_.search_first(
        [this](const storage::PendingLocator& locator) { return sink_.owns(locator.partition); });
    if (!looked) {
      failed(looked.error());
      return false;
    }
    more |= !far_.first_far_known();
  }
  return more;
}

// A step for one of the partitions that were held back and have room again, in turn.
bool Engine::refill_step() {
  for (std::size_t tries = far_.holds(); tries != 0; --tries) {
    const PartitionSlot slot = far_.next_held(refilled_);
    refilled_ = slot;
    Partition& partition = partitions_[slot];
    if (partition.ready.size() >= options_.batch_records || partition.retry_at) continue;
    const auto refilled = far_.refill(slot, [&](const storage::PendingLocator& locator) {
      if (locator.partition != partition.id || leaving_.contains(locator.key.sequence)) return;
      file(locator.key, slot);
    });
    if (!refilled) {
      failed(refilled.error());
      return false;
    }
    release_if_idle(slot);
    return true;
  }
  return false;
}

bool Engine::sweep_step() {
  if (!sweeping_) return false;
  bool ended = false;
  const PendingKey horizon = far_.horizon();
  std::vector<PartitionSlot> emptied;
  ended = near_.sweep(options_.step_timers, [&](const NearEntry& entry) {
    Partition& partition = partitions_[entry.partition()];
    if (entry.key() < horizon && !partition.deleted) return false;
    if (--partition.entries == 0) emptied.push_back(entry.partition());
    return true;
  });
  for (const PartitionSlot slot : emptied) release_if_idle(slot);
  if (ended) sweeping_ = sweep_again_;
  if (ended) sweep_again_ = false;
  return sweeping_;
}

void Engine::end_back_offs(MonoTime now) {
  while (!backing_off_.empty() && backing_off_.begin()->first <= now) {
    const PartitionSlot slot = backing_off_.begin()->second;
    backing_off_.erase(backing_off_.begin());
    partitions_[slot].retry_at.reset();
    take_turn(slot);
    release_if_idle(slot);
  }
}

// For what is to be done next: at once, when its time comes, or never.
void Engine::set_alarm() {
  if (!started_ || stopped_ || stepping_) return;
  if (more_) {
    shard_wheel_.schedule(alarm_, shard_wheel_.now());
    return;
  }
  const MonoTime now = clock_.mono();
  std::optional<MonoTime> next;
  const auto consider = [&next](MonoTime time) { next = next ? std::min(*next, time) : time; };
  if (const auto due = near_.next_work()) consider(wall_.mono_of(*due));
  if (const auto due = far_.first_far()) {
    consider(wall_.mono_of(*due - options_.near_window / 2));
  }
  if (!backing_off_.empty()) consider(backing_off_.begin()->first);
  if (!next && !wall_.confirms_at()) {
    alarm_.cancel();
    return;
  }
  if (next) {
    consider(now + max_sleep);
    // A time that has come already and found nothing to do is a matter of rounding.
    next = std::max(*next, now + nanoseconds{100'000});
  }
  if (const auto decides = wall_.confirms_at()) consider(*decides);
  shard_wheel_.schedule(alarm_, tick_of(*next));
}

timing::Tick Engine::tick_of(MonoTime time) const {
  const auto ticks = std::chrono::ceil<milliseconds>(time - options_.wheel_start).count();
  return std::max(shard_wheel_.now(), static_cast<timing::Tick>(std::max<std::int64_t>(0, ticks)));
}

// --- Entries.

// A durable entry that may have to be in memory.
void Engine::arm(const PendingKey& key, const TopicPartition& partition) {
  if (key >= far_.horizon()) {
    far_.parked(key);
    return;
  }
  const PartitionSlot slot = slot_of(partition);
  file(key, slot);
  release_if_idle(slot);
  if (near_.size() > options_.near_entries) make_room();
}

void Engine::file(const PendingKey& key, PartitionSlot slot) {
  const auto held = far_.held_from(slot);
  if (held && key >= *held) return;
  NearEntry* const entry = near_.insert(key, slot, wall_.now());
  if (entry == nullptr) return;
  ++partitions_[slot].entries;
  if (entry->state() == NearEntry::State::ready) enqueue(*entry);
}

void Engine::enqueue(NearEntry& entry) {
  const PartitionSlot slot = entry.partition();
  Partition& partition = partitions_[slot];
  const auto held = far_.held_from(slot);
  if (partition.deleted || (held && entry.key() >= *held)) {
    erase(entry);
    return;
  }
  near_.set_ready(entry);
  partition.ready.push_back(&entry);
  std::push_heap(partition.ready.begin(), partition.ready.end(), leaves_later);
  take_turn(slot);
}

void Engine::take_turn(PartitionSlot slot) {
  Partition& partition = partitions_[slot];
  if (partition.in_turn || partition.in_flight || partition.retry_at || partition.ready.empty()) {
    return;
  }
  partition.in_turn = true;
  turns_.push_back(slot);
}

void Engine::erase(NearEntry& entry) {
  const PartitionSlot slot = entry.partition();
  near_.erase(entry);
  --partitions_[slot].entries;
}

// Near is full.  What waits farthest goes first; when nearly everything is due already, half of
// what the partition with the longest queue has.
void Engine::make_room() {
  if (sweeping_) return;  // Room is on its way.
  if (near_.waiting() >= options_.near_entries / 4) {
    if (const auto horizon = near_.horizon_for(0.75)) {
      far_.pull_back(*horizon);
      loading_ = false;
      sweeping_ = more_ = true;
    }
    return;
  }
  PartitionSlot longest = 0;
  std::size_t length = 0;
  for (const auto& [id, slot] : slots_) {
    if (partitions_[slot].ready.size() > length) {
      longest = slot;
      length = partitions_[slot].ready.size();
    }
  }
  if (length >= 2 * options_.batch_records) hold_back_half(longest);
}

void Engine::hold_back_half(PartitionSlot slot) {
  auto& ready = partitions_[slot].ready;
  const auto middle = ready.begin() + static_cast<std::ptrdiff_t>(ready.size() / 2);
  std::nth_element(ready.begin(), middle, ready.end(),
                   [](const NearEntry* a, const NearEntry* b) { return a->key() < b->key(); });
  far_.hold_back(slot, (*middle)->key());
  const std::vector<NearEntry*> later(middle, ready.end());
  ready.erase(middle, ready.end());
  std::make_heap(ready.begin(), ready.end(), leaves_later);
  for (NearEntry* entry : later) erase(*entry);
}

PartitionSlot Engine::slot_of(const TopicPartition& partition) {
  if (const auto known = slots_.find(partition); known != slots_.end()) return known->second;
  PartitionSlot slot;
  if (free_slots_.empty()) {
    slot = static_cast<PartitionSlot>(partitions_.size());
    partitions_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  partitions_[slot].id = partition;
  partitions_[slot].in_use = true;
  slots_.emplace(partition, slot);
  return slot;
}

void Engine::release_if_idle(PartitionSlot slot) {
  Partition& partition = partitions_[slot];
  if (!partition.in_use || partition.entries != 0 || partition.in_flight || partition.retry_at ||
      partition.in_turn || far_.held_from(slot)) {
    return;
  }
  slots_.erase(partition.id);
  partition = Partition{};
  free_slots_.push_back(slot);
}

// Its removal is appended: it is handed out no more.
void Engine::begin_leaving(const PendingKey& key) {
  leaving_.try_emplace(key.sequence);
  NearEntry* const entry = near_.find(key.sequence);
  if (entry == nullptr) return;
  switch (entry->state()) {
    case NearEntry::State::ready:
      near_.set_abandoned(*entry);
      break;
    case NearEntry::State::waiting:
    case NearEntry::State::early: {
      const PartitionSlot slot = entry->partition();
      erase(*entry);
      release_if_idle(slot);
      break;
    }
    default:
      break;  // In flight: the removal behind it tells nothing new, or holds if it is refused.
  }
}

void Engine::end_leaving(Sequence sequence) {
  const auto at = leaving_.find(sequence);
  if (at == leaving_.end()) return;
  auto waiters = std::move(at->second.waiters);
  leaving_.erase(at);
  for (auto& waiter : waiters) waiter();
}

void Engine::failed(const Error& error) {
  if (std::exchange(stopped_, true)) return;
  alarm_.cancel();
  log_error("delay", "the pending store failed; delivery has stopped: {}", error.message);
  sink_.store_failed(error);
}

void Engine::topic_deleted(const TopicId& topic) {
  std::vector<PartitionSlot> deleted;
  for (const auto& [id, slot] : slots_) {
    if (id.topic == topic) deleted.push_back(slot);
  }
  for (const PartitionSlot slot : deleted) {
    Partition& partition = partitions_[slot];
    partition.deleted = true;
    far_.forget(slot);
    const auto ready = std::exchange(partition.ready, {});
    stats_.dropped_total += partition.entries;
    for (NearEntry* entry : ready) erase(*entry);
    release_if_idle(slot);
  }
  if (!deleted.empty()) {
    sweep_again_ = sweeping_;
    sweeping_ = true;
  }
  std::vector<Sequence> awaited;
  for (const auto& [sequence, asked] : awaiting_) {
    if (asked.front()->partition.topic == topic) awaited.push_back(sequence);
  }
  for (const Sequence sequence : awaited) answer_awaiting(sequence, Controlled{});
  far_.look_again();  // What is first in the store may have been of this topic.
  more_ = true;
  set_alarm();
}

std::size_t Engine::arriving_of(const TopicId& topic) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      arriving_, [&](const auto& arriving) { return arriving.second.partition.topic == topic; }));
}

Engine::Stats Engine::stats() const {
  Stats stats = stats_;
  stats.now = wall_.now();
  stats.near = near_.size();
  stats.arriving = arriving_.size();
  stats.horizon = far_.horizon().due;
  stats.next_due = near_.next_work();
  const auto consider = [&stats](WallTime due) {
    stats.next_due = stats.next_due ? std::min(*stats.next_due, due) : due;
  };
  for (const auto& [id, slot] : slots_) {
    const Partition& partition = partitions_[slot];
    stats.overdue += partition.ready.size();
    if (!partition.ready.empty()) consider(partition.ready.front()->key().due);
    if (partition.in_flight) {
      stats.in_flight += partition.in_flight->entries.size();
      consider(partition.in_flight->entries.front()->key().due);
    }
  }
  stats.overdue += stats.in_flight;
  if (const auto due = far_.first_far()) consider(*due);
  stats.wheel = near_.wheel_stats();
  stats.bytes = near_.bytes();
  stats.lag_us = lag_us_.distribution(clock_.mono());
  return stats;
}

}  // namespace tarry::delay
