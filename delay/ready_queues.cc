#include "delay/ready_queues.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"

namespace tarry::delay {
namespace {

// Of a heap whose front leaves first.
bool leaves_later(const NearEntry* a, const NearEntry* b) {
  return b->key() < a->key();
}

}  // namespace

ReadyQueues::ReadyQueues(EngineContext& context) : context_(context), near_(context.time.wall()) {}

// --- Records

void ReadyQueues::file(const PendingKey& key, const TopicPartition& partition) {
  const PartitionSlot slot = slot_of(partition);
  NearEntry* const entry = near_.insert(key, slot, context_.time.now());
  if (entry != nullptr) {
    ++queues_[slot].entries;
    if (entry->state() == NearEntry::State::ready) enqueue(*entry);
  }
  release_if_idle(slot);
}

void ReadyQueues::begin_leaving(Sequence sequence) {
  NearEntry* const entry = near_.find(sequence);
  if (entry == nullptr) return;
  switch (entry->state()) {
    case NearEntry::State::ready:
      near_.set_abandoned(*entry);
      break;
    case NearEntry::State::waiting:
    case NearEntry::State::early:
      erase(*entry);
      break;
    default:
      break;  // In flight, and it recurs: what leaves is its next run.
  }
}

void ReadyQueues::stay(const PendingKey& key, const TopicPartition& partition) {
  NearEntry* const entry = near_.find(key.sequence);
  if (entry != nullptr && entry->state() == NearEntry::State::abandoned) {
    near_.set_ready(*entry);  // Its partition's queue has it still.
    get_in_line(entry->partition());
  } else if (key < context_.tier.horizon()) {
    file(key, partition);
  }
}

void ReadyQueues::enqueue(NearEntry& entry) {
  const PartitionSlot slot = entry.partition();
  if (queues_[slot].deleted) return erase(entry);
  near_.set_ready(entry);
  push(queues_[slot], entry);
  get_in_line(slot);
}

void ReadyQueues::push(Queue& queue, NearEntry& entry) {
  queue.ready.push_back(&entry);
  std::push_heap(queue.ready.begin(), queue.ready.end(), leaves_later);
}

void ReadyQueues::erase(NearEntry& entry) {
  const PartitionSlot slot = entry.partition();
  near_.erase(entry);
  --queues_[slot].entries;
  release_if_idle(slot);
}

// --- Time

bool ReadyQueues::advance(WallTime now) {
  fired_.clear();
  const bool more = near_.advance(now, context_.options.step_timers, fired_);
  for (NearEntry* entry : fired_) enqueue(*entry);
  return more;
}

void ReadyQueues::settle() {
  for (const PartitionSlot slot : std::exchange(unsettled_, {})) {
    queues_[slot].place = Place::idle;
    get_in_line(slot);
    release_if_idle(slot);
  }
}

void ReadyQueues::end_back_offs(MonoTime now) {
  while (!backing_off_.empty() && backing_off_.begin()->first <= now) {
    const PartitionSlot slot = backing_off_.begin()->second;
    backing_off_.erase(backing_off_.begin());
    queues_[slot].retry_at.reset();
    get_in_line(slot);
    release_if_idle(slot);
  }
}

std::optional<MonoTime> ReadyQueues::next_retry() const {
  if (backing_off_.empty()) return std::nullopt;
  return backing_off_.begin()->first;
}

// --- Turns

void ReadyQueues::get_in_line(PartitionSlot slot) {
  Queue& queue = queues_[slot];
  if (queue.place != Place::idle || queue.delivering || queue.holds > 0 || queue.retry_at ||
      queue.ready.empty()) {
    return;
  }
  queue.place = Place::in_line;
  line_.push_back(slot);
}

std::optional<PartitionSlot> ReadyQueues::next_turn() {
  while (!line_.empty()) {
    const PartitionSlot slot = line_.front();
    line_.pop_front();
    Queue& queue = queues_[slot];
    queue.place = Place::served;
    if (!queue.retry_at && queue.holds == 0) return slot;
    end_turn(slot);  // A removal was refused since it got in line, or it is held.
  }
  return std::nullopt;
}

void ReadyQueues::end_turn(PartitionSlot slot) {
  Queue& queue = queues_[slot];
  TARRY_ASSERT(queue.place == Place::served, "a turn ends once");
  queue.place = Place::idle;
  if (queue.ready.empty() || is_settled(*queue.ready.front())) {
    get_in_line(slot);
    release_if_idle(slot);
  } else {
    queue.place = Place::unsettled;
    unsettled_.push_back(slot);
  }
}

bool ReadyQueues::is_settled(const NearEntry& entry) const {
  return entry.state() == NearEntry::State::abandoned ||
         entry.key() < context_.tier.settled_before();
}

NearEntry* ReadyQueues::take(PartitionSlot slot) {
  auto& ready = queues_[slot].ready;
  while (!ready.empty() && is_settled(*ready.front())) {
    std::pop_heap(ready.begin(), ready.end(), leaves_later);
    NearEntry* const entry = ready.back();
    ready.pop_back();
    if (entry->state() != NearEntry::State::abandoned) return entry;
    erase(*entry);
  }
  return nullptr;
}

void ReadyQueues::put_back(NearEntry& entry) {
  enqueue(entry);
}

void ReadyQueues::end_delivery(PartitionSlot slot) {
  queues_[slot].delivering = false;
  get_in_line(slot);
  release_if_idle(slot);
}

void ReadyQueues::release(const TopicPartition& partition) {
  const PartitionSlot slot = slot_of(partition);
  TARRY_ASSERT(queues_[slot].holds > 0, "what is held is released");
  --queues_[slot].holds;
  get_in_line(slot);
  release_if_idle(slot);
}

void ReadyQueues::back_off(const TopicPartition& partition) {
  const PartitionSlot slot = slot_of(partition);
  Queue& queue = queues_[slot];
  if (queue.retry_at) return;
  const auto& options = context_.options;
  queue.back_off = std::clamp(2 * queue.back_off, options.first_back_off, options.last_back_off);
  queue.retry_at = context_.time.mono() + queue.back_off;
  backing_off_.emplace(*queue.retry_at, slot);
}

PartitionSlot ReadyQueues::slot_of(const TopicPartition& partition) {
  if (const auto known = slots_.find(partition); known != slots_.end()) return known->second;
  PartitionSlot slot;
  if (free_slots_.empty()) {
    slot = static_cast<PartitionSlot>(queues_.size());
    queues_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  queues_[slot].id = partition;
  queues_[slot].place = Place::idle;
  slots_.emplace(partition, slot);
  return slot;
}

void ReadyQueues::release_if_idle(PartitionSlot slot) {
  Queue& queue = queues_[slot];
  if (queue.place != Place::idle || queue.entries != 0 || queue.delivering || queue.holds > 0 ||
      queue.retry_at) {
    return;
  }
  slots_.erase(queue.id);
  queue = Queue{};
  free_slots_.push_back(slot);
}

// --- Bounds

void ReadyQueues::begin_sweep() {
  sweep_again_ = sweeping_;
  sweeping_ = true;
  context_.alarm.wake();
}

bool ReadyQueues::sweep() {
  if (!sweeping_) return false;
  const PendingKey horizon = context_.tier.horizon();
  std::vector<PartitionSlot> emptied;
  const bool ended = near_.sweep(context_.options.step_timers, [&](const NearEntry& entry) {
    Queue& queue = queues_[entry.partition()];
    if (entry.key() < horizon && !queue.deleted) return false;
    if (--queue.entries == 0) emptied.push_back(entry.partition());
    return true;
  });
  for (const PartitionSlot slot : emptied) release_if_idle(slot);
  if (ended) sweeping_ = std::exchange(sweep_again_, false);
  return sweeping_;
}

void ReadyQueues::topic_deleted(const TopicId& topic) {
  std::vector<PartitionSlot> deleted;
  for (const auto& [id, slot] : slots_) {
    if (id.topic == topic) deleted.push_back(slot);
  }
  for (const PartitionSlot slot : deleted) {
    Queue& queue = queues_[slot];
    queue.deleted = true;
    context_.totals.dropped_total += queue.entries;
    for (NearEntry* entry : std::exchange(queue.ready, {})) erase(*entry);
  }
  if (!deleted.empty()) begin_sweep();
}

std::size_t ReadyQueues::overdue() const {
  std::size_t overdue = 0;
  for (const auto& [id, slot] : slots_) overdue += queues_[slot].ready.size();
  return overdue;
}

bool ReadyQueues::visit(std::size_t& cursor, std::size_t limit, const Seen& seen) const {
  return near_.visit(cursor, limit, [&](const NearEntry& entry) {
    const Queue& queue = queues_[entry.partition()];
    if (!queue.deleted) seen(queue.id, entry.key().due);
  });
}

}  // namespace tarry::delay
