#include "timing/timing_wheel.h"

#include <algorithm>

#include "base/assert.h"

namespace tarry::timing {

void CallbackTimer::on_expired() {
  // Held here while it runs, for it may destroy the timer and must outlive that.
  bool destroyed = false;
  destroyed_ = &destroyed;
  auto callback = std::move(callback_);
  callback();
  if (destroyed) return;
  destroyed_ = nullptr;
  callback_ = std::move(callback);
}

TimingWheel::~TimingWheel() {
  TARRY_ASSERT(!advancing_, "a callback may not destroy its wheel");
  for (const auto& level : levels_) {
    if (!level) continue;
    for (Timer** last : level->last) {
      if (last == nullptr) continue;
      for (Chunk* chunk = chunk_of(last); chunk != nullptr; chunk = chunk->previous) {
        Timer** const end = chunk_of(last) == chunk ? last : chunk->last();
        for (Timer** timer = chunk->first(); timer <= end; ++timer) (*timer)->place_ = 0;
      }
    }
  }
}

TimingWheel::Progress TimingWheel::advance(Tick now, std::size_t budget) {
  TARRY_ASSERT(!advancing_, "a callback may not advance the wheel");
  advancing_ = true;
  now_ = std::max(now_, now);
  Progress progress;

  if (overdue() != 0) {
    Level& level = *levels_[overdue_level];
    if (level.last[overdue_draining_] == nullptr) overdue_draining_ = 1 - overdue_draining_;
    fire(BucketId::of(overdue_level, overdue_draining_), budget, progress.fired);
  }

  progress.more = true;
  while (true) {
    if (!in_work()) {
      working_.reset();
      if (queue_.empty() || start_of(queue_.first()) > now_) {
        cursor_ = now_;
        progress.more = overdue() != 0;
        break;
      }
    }
    if (budget == 0) break;
    if (!working_) {
      working_ = queue_.first();
      cursor_ = start_of(*working_);
    }
    // The bucket stays where it is while it is emptied, and nothing new can get into it, since
    // cursor_ is in its time now.  So cancel() needs to know nothing of it being in work.
    if (working_->level() == 0) {
      fire(*working_, budget, progress.fired);
    } else {
      move_down(*working_, budget);
    }
  }
  advancing_ = false;
  return progress;
}

std::optional<Tick> TimingWheel::next_due() const {
  if (overdue() != 0 || in_work()) return now_;
  if (queue_.empty()) return std::nullopt;
  return std::max(now_, start_of(queue_.first()));
}

std::size_t TimingWheel::size() const {
  std::size_t timers = 0;
  for (const auto& level : levels_) timers += level ? level->timers() : 0;
  return timers;
}

TimingWheel::Stats TimingWheel::stats() const {
  Stats stats;
  stats.overdue = overdue();
  stats.bytes = sizeof(*this) + pool_.bytes();
  for (const auto& level : levels_) stats.bytes += level ? sizeof(Level) : 0;
  for (unsigned i = 0; i < DelayQueue::level_count; ++i) {
    if (!levels_[i]) continue;
    const Level& level = *levels_[i];
    // Whoever came neither down nor from here came up: overflowed, from level 0 where every
    // deadline starts out, or was moved later.
    const std::uint64_t from_below = level.entered - level.downgrades - level.stayed;
    stats.levels[i] = {.exists = true,
                       .timers = level.timers(),
                       .buckets = queue_.buckets_on(i),
                       .upgrades = i == 0 ? 0 : from_below,
                       .downgrades = level.downgrades};
  }
  return stats;
}

void TimingWheel::ChunkPool::next_slab() {
  if (slabs_used_ == slabs_.size()) {
    // Doubling, so that a small wheel stays small, up to 256 KiB a slab.
    const std::size_t count = std::clamp<std::size_t>(bytes_ / sizeof(Chunk), 8, 512);
    slabs_.push_back({std::make_unique_for_overwrite<Chunk[]>(count), count});
    TARRY_ASSERT(
        reinterpret_cast<std::uintptr_t>(&slabs_.back().chunks[count]) >> address_bits == 0,
        "a timer's place has no room for longer addresses");
    bytes_ += count * sizeof(Chunk);
  }
  const Slab& slab = slabs_[slabs_used_++];
  fresh_ = slab.chunks.get();
  fresh_end_ = fresh_ + slab.count;
}

void TimingWheel::ChunkPool::start_over() {
  bytes_ -= slabs_.back().count * sizeof(Chunk);
  slabs_.pop_back();
  free_ = fresh_ = fresh_end_ = nullptr;
  slabs_used_ = 0;
}

// Fetches the timer that a scan which has come to `element` will touch a little later, and in
// the middle of an array the end of the one before it.
inline void TimingWheel::prefetch_before(Timer** element) {
  constexpr std::ptrdiff_t distance = 10;
  Chunk* const chunk = chunk_of(element);
  const std::ptrdiff_t position = element - chunk->first();
  if (position >= distance) {
    __builtin_prefetch(*(element - distance), 1);
    if (position == 3 * distance && chunk->previous != nullptr) {
      __builtin_prefetch(chunk->previous->last());
      __builtin_prefetch(chunk->previous->last() - distance);
    }
  } else if (chunk->previous != nullptr) {
    __builtin_prefetch(*(chunk->previous->last() + 1 - (distance - position)), 1);
  }
}

inline Tick TimingWheel::start_of(BucketId bucket) const {
  const unsigned shift = 8 * bucket.level();
  const Tick above = cursor_ >> shift >> 8;  // In two steps: all 64 bits at once shift nothing.
  return (above << 8 | bucket.index()) << shift;
}

void TimingWheel::append_to_empty(BucketId bucket, Timer& timer) {
  const bool tell = listener_ && !advancing_;
  const std::optional<Tick> before = tell ? next_due() : std::nullopt;

  auto& level = levels_[bucket.level()];
  if (!level) level = std::make_unique<Level>();
  Timer** const first = add_chunk(nullptr);
  level->last[bucket.index()] = first;
  *first = &timer;
  timer.place_ = place_of(bucket, first);
  ++level->entered;
  if (bucket.level() != overdue_level) queue_.insert(bucket);

  if (tell && (!before || *next_due() < *before)) listener_();
}

// A new chunk behind the one that ends with `last`, or for an empty bucket; its first element.
Timer** TimingWheel::add_chunk(Timer** last) {
  Chunk* const chunk = pool_.take();
  chunk->wheel = this;
  chunk->previous = last != nullptr ? chunk_of(last) : nullptr;
  return chunk->first();
}

// Gives back a bucket's last chunk, whose last timer was dropped.
void TimingWheel::drop_chunk(Level& level, BucketId bucket) {
  Timer**& last = level.last[bucket.index()];
  Chunk* const chunk = chunk_of(last);
  if (chunk->previous != nullptr) {
    last = chunk->previous->last();
  } else {
    last = nullptr;
    if (bucket.level() != overdue_level) queue_.erase(bucket);
  }
  pool_.give_back(chunk);
}

// Puts a timer that was just dropped from bucket `from` where its deadline belongs now.
inline void TimingWheel::place_again(BucketId from, Timer& timer) {
  const BucketId to = bucket_for(timer.deadline_);
  append(to, timer);
  if (to.level() < from.level()) {
    ++levels_[to.level()]->downgrades;
  } else if (to.level() == from.level()) {
    ++levels_[to.level()]->stayed;
  }
}

void TimingWheel::move_down(BucketId bucket, std::size_t& budget) {
  Level& level = *levels_[bucket.level()];
  Timer**& last = level.last[bucket.index()];
  for (; budget > 0 && last != nullptr; --budget) {
    prefetch_before(last);
    Timer& timer = **last;
    drop_last(level, bucket);
    place_again(bucket, timer);
  }
}

// noexcept: what a callback throws would leave timers behind that never fire.
void TimingWheel::fire(BucketId bucket, std::size_t& budget, std::size_t& fired) noexcept {
  Level& level = *levels_[bucket.level()];
  Timer**& last = level.last[bucket.index()];
  for (; budget > 0 && last != nullptr; --budget) {
    prefetch_before(last);
    Timer& timer = **last;
    drop_last(level, bucket);
    if (timer.deadline_ > cursor_ && bucket.level() == 0) {
      place_again(bucket, timer);  // It was moved later since.
      continue;
    }
    timer.place_ = 0;
    ++fired;
    timer.on_expired();
  }
}

}  // namespace tarry::timing
