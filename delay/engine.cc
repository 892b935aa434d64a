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

// A locator with its places in the list of free ones and in the index.
constexpr std::size_t locator_bytes = sizeof(NearEntry) + 3 * sizeof(NearEntry*);

BucketTier::Options tier_options(const Engine::Options& options, storage::PendingCounts& counts) {
  BucketTier::Options out;
  out.memory_bytes = options.memory_bytes;
  out.lead = options.lead;
  out.step_entries = options.step_loads;
  out.counts = &counts;
  return out;
}

// A heap whose front is what leaves first.
bool leaves_later(const NearEntry* a, const NearEntry* b) {
  return b->key() < a->key();
}

}  // namespace

Engine::Engine(const Clock& clock, timing::TimingWheel& shard_wheel, const Storage& storage,
               Sink& sink, const Options& options)
    : clock_(clock),
      shard_wheel_(shard_wheel),
      sink_(sink),
      options_(options),
      alarm_([this] { step(); }),
      near_(clock.wall()),
      tier_(storage.store, storage.background, storage.owner, tier_options(options, storage.counts),
            hooks(storage)) {
  wall_.observe(clock_);
}

BucketTier::Hooks Engine::hooks(const Storage& storage) {
  BucketTier::Hooks out;
  out.near = [this](const storage::PendingView& record) { came_near(record); };
  out.pulled_back = [this](const PendingKey&) { begin_sweep(); };
  out.wake = [this] { wake(); };
  out.failed = [this](const Error& error) { failed(error); };
  out.owner_of = storage.owner_of;
  out.flush = storage.flush;
  return out;
}

Engine::~Engine() {
  *alive_ = false;
}

Result<> Engine::open() {
  return tier_.open(clock_.wall());
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

  more_ = false;
  tier_.set_locator_bytes(near_.size() * locator_bytes);
  bool more = tier_.step(now);
  if (!stopped_ && tier_.settled_before() == tier_.horizon()) {
    for (const PartitionSlot slot : std::exchange(unsettled_, {})) {
      partitions_[slot].unsettled = false;
      take_turn(slot);
      release_if_idle(slot);
    }
  }
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
  more_ |= more;
  set_alarm();
}

void Engine::came_near(const storage::PendingView& record) {
  if (!leaving_.contains(record.key.sequence)) file(record.key, record.partition);
}

// The tier has something to do.
void Engine::wake() {
  more_ = true;
  set_alarm();
}

void Engine::begin_sweep() {
  sweep_again_ = sweeping_;
  sweeping_ = more_ = true;
}

bool Engine::sweep_step() {
  if (!sweeping_) return false;
  bool ended = false;
  const PendingKey horizon = tier_.horizon();
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
  if (const auto load = tier_.next_load()) consider(wall_.mono_of(*load));
  if (tier_.waits_for_memory()) consider(now + max_sleep);
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

// Puts a near record into the wheel, unless it is there already.
void Engine::file(const PendingKey& key, const TopicPartition& partition) {
  const PartitionSlot slot = slot_of(partition);
  NearEntry* const entry = near_.insert(key, slot, wall_.now());
  if (entry != nullptr) {
    ++partitions_[slot].entries;
    if (entry->state() == NearEntry::State::ready) enqueue(*entry);
  }
  release_if_idle(slot);
}

void Engine::enqueue(NearEntry& entry) {
  const PartitionSlot slot = entry.partition();
  Partition& partition = partitions_[slot];
  if (partition.deleted) {
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
  if (partition.in_turn || partition.unsettled || partition.in_flight || partition.retry_at ||
      partition.ready.empty()) {
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
      partition.in_turn || partition.unsettled) {
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
      break;  // In flight, and it recurs: what leaves is its next run.
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
  tier_.topic_dropped(topic);
  std::vector<PartitionSlot> deleted;
  for (const auto& [id, slot] : slots_) {
    if (id.topic == topic) deleted.push_back(slot);
  }
  for (const PartitionSlot slot : deleted) {
    Partition& partition = partitions_[slot];
    partition.deleted = true;
    const auto ready = std::exchange(partition.ready, {});
    stats_.dropped_total += partition.entries;
    for (NearEntry* entry : ready) erase(*entry);
    release_if_idle(slot);
  }
  if (!deleted.empty()) begin_sweep();
  std::vector<Sequence> awaited;
  for (const auto& [sequence, asked] : awaiting_) {
    if (asked.front()->partition.topic == topic) awaited.push_back(sequence);
  }
  for (const Sequence sequence : awaited) answer_awaiting(sequence, Controlled{});
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
  stats.horizon = tier_.horizon().due;
  stats.tier = tier_.stats();
  if (const auto first = tier_.earliest()) {
    stats.next_due = first->due;
    stats.next_due_exact = first->exact;
  }
  for (const auto& [id, slot] : slots_) {
    const Partition& partition = partitions_[slot];
    stats.overdue += partition.ready.size();
    if (partition.in_flight) stats.in_flight += partition.in_flight->entries.size();
  }
  stats.overdue += stats.in_flight;
  stats.wheel = near_.wheel_stats();
  stats.bytes = near_.bytes() + stats.tier.memory_bytes;
  stats.lag_us = lag_us_.distribution(clock_.mono());
  return stats;
}

}  // namespace tarry::delay
