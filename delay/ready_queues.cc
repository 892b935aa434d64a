#include "delay/ready_queues.h"

#include <algorithm>

#include "base/assert.h"

namespace tarry::delay {
namespace {

using std::chrono::milliseconds;

// Records leave the wheel so long before they are due, in strides of half of it: so that nobody
// wakes up twice for each.  Less than the horizon is always ahead (BucketTier).
constexpr milliseconds queued_ahead{900};
// A partition that has more due than a turn delivers is served after so many others.
constexpr int max_in_a_row = 3;
// So many partitions find their place in a step when their time comes, or when more is settled:
// some tenths of a millisecond.
constexpr std::size_t places_a_step = 1'024;
// A step frees so many pieces of what a burst of near records has left: a megabyte.
constexpr std::size_t ended_pieces_a_step = 16;
// A swept entry is in no cache, and neither is its place in the index: it takes some 2 us.
constexpr std::size_t swept_a_step = 1024;

}  // namespace

ReadyQueues::ReadyQueues(EngineContext& context) : context_(context), near_(context.time.wall()) {}

// --- Records

void ReadyQueues::file(const PendingKey& key, const TopicPartition& partition,
                       const Location& location) {
  const PartitionSlot slot = slot_of(partition);
  NearEntry* const entry = near_.insert(key, slot, location);
  if (entry != nullptr) {
    ++queues_[slot].entries;
    if (entry->state() == NearEntry::State::queued) {
      enqueue(*entry);
    } else if (key.due <= context_.time.now() + queued_ahead / 2) {
      context_.alarm.wake();  // The wheel stands still while nothing is in it.
    }
  }
  release_if_idle(slot);
}

void ReadyQueues::begin_leaving(Sequence sequence) {
  NearEntry* const entry = near_.find(sequence);
  if (entry == nullptr) return;
  const PartitionSlot slot = entry->partition();
  switch (entry->state()) {
    case NearEntry::State::queued:
      near_.set_abandoned(*entry);
      leaving_.begin(entry->key().due);
      if (!drop_abandoned(queues_[slot])) drop_later(slot);
      release_if_idle(slot);
      break;
    case NearEntry::State::waiting:
      erase(*entry);
      break;
    default:
      break;  // In flight, and it recurs: what leaves is its next run.
  }
}

void ReadyQueues::stay(const PendingKey& key, const TopicPartition& partition) {
  NearEntry* const entry = near_.find(key.sequence);
  // An abandoned entry may stand for the key that the record had before it was moved.
  if (entry != nullptr && entry->state() == NearEntry::State::abandoned && entry->key() == key) {
    near_.set_queued(*entry);  // Its partition's queue has it still.
    leaving_.end(key.due);
    find_place(entry->partition());
  } else if (context_.tier.is_near(key, partition)) {
    file(key, partition);
  }
}

void ReadyQueues::enqueue(NearEntry& entry) {
  const PartitionSlot slot = entry.partition();
  if (queues_[slot].deleted) return drop(entry);
  near_.set_queued(entry);
  queues_[slot].items.push({entry.key(), &entry});
  ++queued_;
  came(slot, entry.key().due);
}

// The wheel gives those of one millisecond in no order of theirs.  Sorted here, those of a
// partition are a run of its queue.
void ReadyQueues::enqueue_moved() {
  // The entries lie anywhere in memory, and a sort looks at each a dozen times.
  sorted_.clear();
  for (NearEntry* const entry : moved_)
    sorted_.push_back({entry->partition(), {entry->key(), entry}});
  const auto leaves_first = [](const Moved& a, const Moved& b) {
    return a.slot != b.slot ? a.slot < b.slot : a.item.key < b.item.key;
  };
  // Those of one partition that came one after the other leave the wheel in that order, or in the
  // opposite one.
  if (!sorted_.empty() && leaves_first(sorted_.back(), sorted_.front()))
    std::ranges::reverse(sorted_);
  if (!std::ranges::is_sorted(sorted_, leaves_first)) std::ranges::sort(sorted_, leaves_first);
  for (auto next = sorted_.begin(); next != sorted_.end();) {
    const PartitionSlot slot = next->slot;
    run_.clear();
    for (; next != sorted_.end() && next->slot == slot; ++next) run_.push_back(next->item);
    if (queues_[slot].deleted) {
      for (const auto& item : run_) drop(*item.entry);
    } else {
      queues_[slot].items.push_sorted(run_);
      queued_ += run_.size();
      came(slot, run_.front().key.due);
    }
  }
}

// A record that is due then is in its queue.
void ReadyQueues::came(PartitionSlot slot, WallTime due) {
  Queue& queue = queues_[slot];
  if (queue.place == Place::waiting && due < queue.waits_until) {
    waiting_.erase({queue.waits_until, slot});
    queue.place = Place::idle;
  }
  find_place(slot);
}

NearEntry& ReadyQueues::pop(Queue& queue) {
  NearEntry& first = *queue.items.front().entry;
  queue.items.pop();
  --queued_;
  return first;
}

// Its partition has not heard of it.
void ReadyQueues::forget(NearEntry& entry) {
  if (entry.state() == NearEntry::State::abandoned) leaving_.end(entry.key().due);
  near_.erase(entry);
  if (near_.has_ended()) context_.alarm.wake();  // A step frees what a burst has left.
}

void ReadyQueues::erase(NearEntry& entry) {
  const PartitionSlot slot = entry.partition();
  forget(entry);
  --queues_[slot].entries;
  release_if_idle(slot);
}

// Its topic is deleted.
void ReadyQueues::drop(NearEntry& entry) {
  ++context_.totals.dropped_total;
  erase(entry);
}

// --- Time

bool ReadyQueues::advance(WallTime now) {
  leaving_.pass(now);
  go_on_dropping();
  bool more = false;
  // Half a stride before anything has to be there.
  const auto first = near_.next_due();
  if ((first && *first <= now + queued_ahead / 2) || near_.complete_before() <= now) {
    moved_.clear();
    more = near_.advance(now + queued_ahead, context_.options.step_timers, moved_);
    enqueue_moved();
    if (!more) settle();
  }
  more |= settle_some();
  for (std::size_t left = places_a_step; !waiting_.empty() && waiting_.begin()->first <= now;
       --left) {
    if (left == 0) return true;
    const PartitionSlot slot = waiting_.begin()->second;
    waiting_.erase(waiting_.begin());
    queues_[slot].place = Place::idle;
    find_place(slot, now);
  }
  return more;
}

// True: there are more.
bool ReadyQueues::settle_some() {
  // One that is not settled stands behind them again.
  for (std::size_t left = places_a_step; to_settle_ > 0 && left > 0; --left, --to_settle_) {
    const PartitionSlot slot = unsettled_.front();
    unsettled_.pop_front();
    queues_[slot].place = Place::idle;
    find_place(slot);
    release_if_idle(slot);
  }
  return to_settle_ > 0;
}

void ReadyQueues::end_back_offs(MonoTime now) {
  // next_retry() tells of the others.
  for (std::size_t left = places_a_step;
       left > 0 && !backing_off_.empty() && backing_off_.begin()->first <= now; --left) {
    const PartitionSlot slot = backing_off_.begin()->second;
    backing_off_.erase(backing_off_.begin());
    queues_[slot].retry_at.reset();
    find_place(slot);
    release_if_idle(slot);
  }
}

std::optional<WallTime> ReadyQueues::next_work() const {
  std::optional<WallTime> next;
  if (!waiting_.empty()) next = waiting_.begin()->first;
  if (const auto due = near_.next_due()) {
    const WallTime moves = *due - queued_ahead / 2;
    next = next ? std::min(*next, moves) : moves;
  }
  return next;
}

std::optional<MonoTime> ReadyQueues::next_retry() const {
  if (backing_off_.empty()) return std::nullopt;
  return backing_off_.begin()->first;
}

// --- Turns

bool ReadyQueues::is_settled(const PendingKey& key, const Queue& queue) const {
  return key.due < near_.complete_before() && context_.tier.is_settled(key, queue.id);
}

// Takes the cancelled ones off the front of a queue.  False: this step may take no more of them.
bool ReadyQueues::drop_abandoned(Queue& queue) {
  while (!queue.items.empty() &&
         queue.items.front().entry->state() == NearEntry::State::abandoned) {
    if (drops_left_ == 0) return false;
    --drops_left_;
    forget(pop(queue));
    --queue.entries;
  }
  return true;
}

// The next step goes on with its queue; one that is in line or unsettled comes here in its turn.
void ReadyQueues::drop_later(PartitionSlot slot) {
  Queue& queue = queues_[slot];
  if (queue.place == Place::waiting) waiting_.erase({queue.waits_until, slot});
  if (queue.place != Place::waiting && queue.place != Place::idle) return;
  queue.place = Place::dropping;
  dropping_.push_back(slot);
  context_.alarm.wake();
}

void ReadyQueues::go_on_dropping() {
  drops_left_ = drops_a_step;
  // Those that this step does not come to are the first of the next one.
  for (std::size_t left = dropping_.size(); left > 0 && drops_left_ > 0; --left) {
    const PartitionSlot slot = dropping_.front();
    dropping_.pop_front();
    queues_[slot].place = Place::idle;
    // Also of one that is held or backs off: its memory is free all the same.
    if (!drop_abandoned(queues_[slot])) {
      drop_later(slot);
      continue;
    }
    find_place(slot);
    release_if_idle(slot);
  }
  if (!dropping_.empty()) context_.alarm.wake();
}

void ReadyQueues::find_place(PartitionSlot slot, WallTime latest) {
  Queue& queue = queues_[slot];
  if (queue.place != Place::idle || queue.full || queue.holds > 0 || queue.retry_at ||
      queue.deleted) {
    return;
  }
  if (!drop_abandoned(queue)) return drop_later(slot);
  if (queue.items.empty()) {
    queue.flooded = false;
    return;
  }
  const PendingKey& first = queue.items.front().key;
  if (first.due > latest) {
    queue.flooded = false;
    queue.place = Place::waiting;
    queue.waits_until = first.due;
    waiting_.emplace(first.due, slot);
  } else if (!is_settled(first, queue)) {
    queue.place = Place::unsettled;
    unsettled_.push_back(slot);
  } else {
    queue.place = Place::in_line;
    const std::size_t turn = context_.options.batch_records;
    queue.flooded |= queue.items.due_by(latest, turn + 1) > turn;
    (queue.flooded ? second_line_ : first_line_).push_back(slot);
  }
}

std::optional<PartitionSlot> ReadyQueues::next_turn(bool flooded) {
  while (true) {
    const bool second = flooded && !second_line_.empty();
    const bool first = !first_line_.empty() && !(second && first_in_a_row_ >= max_in_a_row);
    if (!first && !second) return std::nullopt;
    first_in_a_row_ = first ? first_in_a_row_ + 1 : 0;
    auto& line = first ? first_line_ : second_line_;
    const PartitionSlot slot = line.front();
    line.pop_front();
    Queue& queue = queues_[slot];
    queue.place = Place::served;
    if (!queue.retry_at && queue.holds == 0) return slot;
    end_turn(slot, context_.time.now());  // Held, or a removal was refused, since it got in line.
  }
}

void ReadyQueues::end_turn(PartitionSlot slot, WallTime latest) {
  Queue& queue = queues_[slot];
  TARRY_ASSERT(queue.place == Place::served, "a turn ends once");
  queue.place = Place::idle;
  queue.flooded = !queue.items.empty() && queue.items.front().key.due <= latest;
  find_place(slot, latest);
  release_if_idle(slot);
}

std::size_t ReadyQueues::take(PartitionSlot slot, WallTime latest, std::span<NearEntry*> taken) {
  Queue& queue = queues_[slot];
  std::size_t count = 0;
  while (count < taken.size() && drop_abandoned(queue) && !queue.items.empty()) {
    const PendingKey& first = queue.items.front().key;
    if (first.due > latest || !is_settled(first, queue)) break;
    taken[count++] = &pop(queue);
  }
  return count;
}

void ReadyQueues::put_back(NearEntry& entry) {
  enqueue(entry);
}

void ReadyQueues::end_delivery(PartitionSlot slot) {
  --queues_[slot].deliveries;
  find_place(slot);
  release_if_idle(slot);
}

void ReadyQueues::set_full(PartitionSlot slot, bool full) {
  queues_[slot].full = full;
  find_place(slot);
}

void ReadyQueues::release(const TopicPartition& partition) {
  const PartitionSlot slot = slot_of(partition);
  TARRY_ASSERT(queues_[slot].holds > 0, "a held record is released");
  --queues_[slot].holds;
  find_place(slot);
  release_if_idle(slot);
}

void ReadyQueues::back_off(const TopicPartition& partition) {
  const PartitionSlot slot = slot_of(partition);
  Queue& queue = queues_[slot];
  if (queue.retry_at) return;
  if (queue.place == Place::waiting) {
    waiting_.erase({queue.waits_until, slot});
    queue.place = Place::idle;
  }
  const auto& options = context_.options;
  queue.back_off = std::clamp(2 * queue.back_off, options.first_back_off, options.last_back_off);
  queue.retry_at = context_.time.mono() + queue.back_off;
  backing_off_.emplace(*queue.retry_at, slot);
}

PartitionSlot ReadyQueues::slot_of(const TopicPartition& partition) {
  if (const auto known = known_slot(partition)) return recent_slot_ = *known;
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
  return recent_slot_ = slot;
}

std::optional<PartitionSlot> ReadyQueues::known_slot(const TopicPartition& partition) const {
  // Records come and go by the thousand in one partition.
  if (slots_.empty()) return std::nullopt;
  const Queue& recent = queues_[recent_slot_];
  if (recent.id == partition && recent.place != Place::unused) return recent_slot_;
  const auto known = slots_.find(partition);
  return known == slots_.end() ? std::nullopt : std::optional(known->second);
}

void ReadyQueues::release_if_idle(PartitionSlot slot) {
  Queue& queue = queues_[slot];
  if (queue.entries != 0 || queue.deliveries != 0 || queue.holds > 0 || queue.retry_at) return;
  if (queue.place == Place::waiting) waiting_.erase({queue.waits_until, slot});
  if (queue.place != Place::waiting && queue.place != Place::idle) return;
  slots_.erase(queue.id);
  queue = Queue{};
  free_slots_.push_back(slot);
}

// --- Bounds

void ReadyQueues::begin_sweep() {
  // The sweep under way has passed entries that are unwanted only now.
  sweep_again_ = sweeping_;
  sweeping_ = true;
  context_.alarm.wake();
}

void ReadyQueues::topic_deleted(const TopicId& topic) {
  for (const auto& [id, slot] : slots_) {
    if (id.topic != topic) continue;
    queues_[slot].deleted = true;
    deleted_.push_back(slot);
  }
  if (!deleted_.empty()) begin_sweep();
}

// Empties the queues of deleted topics.  True: there is more to do.
bool ReadyQueues::sweep_deleted(std::size_t& budget) {
  for (; !deleted_.empty(); deleted_.pop_back()) {
    Queue& queue = queues_[deleted_.back()];
    // It may have been released since, and be another partition's by now.
    for (; queue.deleted && !queue.items.empty(); --budget) {
      if (budget == 0) return true;
      NearEntry& first = pop(queue);
      // A leaving record is counted by the change that removes it.
      if (first.state() != NearEntry::State::abandoned) ++context_.totals.dropped_total;
      forget(first);
      --queue.entries;
    }
    if (queue.deleted) release_if_idle(deleted_.back());
  }
  return false;
}

bool ReadyQueues::sweep() {
  const bool has_ended = near_.free_ended(ended_pieces_a_step);
  if (!sweeping_) return has_ended;
  std::size_t budget = std::min(context_.options.step_timers, swept_a_step);
  if (sweep_deleted(budget)) return true;
  std::vector<PartitionSlot> emptied;
  const bool ended = near_.sweep(budget, [&](const NearEntry& entry) {
    Queue& queue = queues_[entry.partition()];
    if (!queue.deleted && context_.tier.is_near(entry.key(), queue.id)) return false;
    if (queue.deleted) ++context_.totals.dropped_total;
    if (--queue.entries == 0) emptied.push_back(entry.partition());
    return true;
  });
  for (const PartitionSlot slot : emptied) release_if_idle(slot);
  if (ended) sweeping_ = std::exchange(sweep_again_, false);
  return sweeping_ || near_.has_ended();
}

bool ReadyQueues::has_much_of_all(const TopicPartition& partition) const {
  const auto known = known_slot(partition);
  if (!known) return false;
  const std::size_t entries = queues_[*known].entries;
  return entries > 2 * context_.options.batch_records && entries > near_.size() / 8;
}

std::size_t ReadyQueues::overdue() const {
  const WallTime now = context_.time.now();
  std::size_t due = 0;
  for (const auto& [id, slot] : slots_) due += queues_[slot].items.due_by(now);
  // A clock that was set back may make fewer of them due than were leaving.
  return due - std::min(due, leaving_.due_by(now));
}

void ReadyQueues::Leaving::end(WallTime due) {
  if (due <= passed_) {
    --due_;
    return;
  }
  const auto at = later_.find(due);
  TARRY_ASSERT(at != later_.end(), "a record ends to leave after it began");
  if (--at->second == 0) later_.erase(at);
}

void ReadyQueues::Leaving::pass(WallTime now) {
  if (now <= passed_) return;
  passed_ = now;
  while (!later_.empty() && later_.begin()->first <= now) {
    due_ += later_.begin()->second;
    later_.erase(later_.begin());
  }
}

std::size_t ReadyQueues::Leaving::due_by(WallTime now) const {
  std::size_t due = due_;
  for (auto at = later_.begin(); at != later_.end() && at->first <= now; ++at) due += at->second;
  return due;
}

bool ReadyQueues::visit(std::size_t& cursor, std::size_t limit, const Seen& seen) const {
  return near_.visit(cursor, limit, [&](const NearEntry& entry) {
    const Queue& queue = queues_[entry.partition()];
    if (!queue.deleted && entry.key().due > context_.time.now()) seen(queue.id, entry.key().due);
  });
}

}  // namespace tarry::delay
