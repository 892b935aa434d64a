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
        for (Timer** timer = chunk->first(); timer <= end; ++timer) (*timer)->wheel_ = nullptr;
      }
    }
  }
}

void TimingWheel::schedule(Timer& timer, Tick deadline) {
  if (timer.wheel_ != nullptr) {
    TARRY_ASSERT(timer.wheel_ == this, "a timer is in one wheel at a time");
    if (deadline >= timer.deadline_ && timer.bucket_.level() != overdue_level) {
      timer.deadline_ = deadline;  // Its bucket finds out when it comes due.
      return;
    }
    remove(timer);
  }
  timer.wheel_ = this;
  timer.deadline_ = deadline;
  const BucketId bucket = deadline > now_ ? bucket_for(deadline) : overdue_filling();
  if (listener_ && !advancing_) {
    append_and_tell(bucket, timer);
  } else {
    append(bucket, timer);
  }
  // The way from level 0, where every timer starts out, to the level that it overflowed to.
  if (bucket.level() != 0) ++levels_[bucket.level()]->upgrades;
}

bool TimingWheel::reschedule(Timer& timer, Tick deadline) {
  if (!timer.armed()) return false;
  schedule(timer, deadline);
  return true;
}

bool TimingWheel::cancel(Timer& timer) {
  if (!timer.armed()) return false;
  TARRY_ASSERT(timer.wheel_ == this, "a timer is cancelled in the wheel that it is in");
  remove(timer);
  timer.wheel_ = nullptr;
  return true;
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

  while (true) {
    if (!in_work()) {
      working_.reset();
      if (queue_.empty() || start_of(queue_.first()) > now_) {
        cursor_ = now_;
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
  const std::optional<Tick> next = next_due();
  progress.more = next && *next <= now_;
  return progress;
}

std::optional<Tick> TimingWheel::next_due() const {
  if (overdue() != 0 || in_work()) return now_;
  if (queue_.empty()) return std::nullopt;
  return std::max(now_, start_of(queue_.first()));
}

std::size_t TimingWheel::size() const {
  std::size_t timers = 0;
  for (const auto& level : levels_) timers += level ? level->timers : 0;
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
    stats.levels[i] = {.exists = true,
                       .timers = level.timers,
                       .buckets = queue_.buckets_on(i),
                       .upgrades = level.upgrades,
                       .downgrades = level.downgrades};
  }
  return stats;
}

void TimingWheel::ChunkPool::grow() {
  // Doubling, so that a small wheel stays small, up to 256 KiB a slab.
  const std::size_t chunks = std::clamp<std::size_t>(total_, 8, 512);
  slabs_.push_back(std::make_unique_for_overwrite<Chunk[]>(chunks));
  total_ += chunks;
  for (Chunk* chunk = slabs_.back().get() + chunks; chunk-- != slabs_.back().get();) {
    chunk->previous = std::exchange(free_, chunk);
  }
}

void TimingWheel::ChunkPool::shrink() {
  slabs_.clear();
  free_ = nullptr;
  total_ = 0;
}

TimingWheel::Chunk* TimingWheel::chunk_of(Timer** element) {
  return reinterpret_cast<Chunk*>(reinterpret_cast<std::uintptr_t>(element) & ~(sizeof(Chunk) - 1));
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

inline BucketId TimingWheel::bucket_for(Tick deadline) const {
  const Tick difference = (deadline ^ cursor_) | 0xff;
  const unsigned level = static_cast<unsigned>(63 - std::countl_zero(difference)) / 8;
  return BucketId::of(level, static_cast<unsigned>(deadline >> 8 * level) & 0xff);
}

inline Tick TimingWheel::start_of(BucketId bucket) const {
  const unsigned shift = 8 * bucket.level();
  const Tick above = cursor_ >> shift >> 8;  // In two steps: all 64 bits at once shift nothing.
  return (above << 8 | bucket.index()) << shift;
}

TimingWheel::Level& TimingWheel::make_level(unsigned level) {
  levels_[level] = std::make_unique<Level>();
  return *levels_[level];
}

inline void TimingWheel::append(BucketId bucket, Timer& timer) {
  Level* const existing = levels_[bucket.level()].get();
  Level& level = existing != nullptr ? *existing : make_level(bucket.level());
  Timer**& last = level.last[bucket.index()];
  if (last == nullptr) {
    Chunk* const chunk = pool_.take();
    chunk->previous = nullptr;
    last = chunk->first();
    if (bucket.level() != overdue_level) queue_.insert(bucket);
  } else if (Chunk* const filled = chunk_of(last); last == filled->last()) {
    Chunk* const chunk = pool_.take();
    chunk->previous = filled;
    last = chunk->first();
  } else {
    ++last;
  }
  *last = &timer;
  timer.place_ = last;
  timer.bucket_ = bucket;
  ++level.timers;
}

void TimingWheel::append_and_tell(BucketId bucket, Timer& timer) {
  const auto before = next_due();
  append(bucket, timer);
  if (!before || *next_due() < *before) listener_();
}

inline void TimingWheel::remove(Timer& timer) {
  Level& level = *levels_[timer.bucket_.level()];
  Timer* const moved = *level.last[timer.bucket_.index()];
  *timer.place_ = moved;
  moved->place_ = timer.place_;
  drop_last(level, timer.bucket_);
}

inline void TimingWheel::drop_last(Level& level, BucketId bucket) {
  --level.timers;
  Timer**& last = level.last[bucket.index()];
  Chunk* const chunk = chunk_of(last);
  if (last != chunk->first()) {
    --last;
    return;
  }
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
  } else if (to.level() > from.level()) {
    ++levels_[to.level()]->upgrades;
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
    timer.wheel_ = nullptr;
    ++fired;
    timer.on_expired();
  }
}

}  // namespace tarry::timing
