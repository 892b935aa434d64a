#include "timing/timing_wheel.h"

#include <sys/mman.h>

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
  // The walk below visits every element, and the timer that has left the hole may be gone.
  fill_hole();
  for (Level* const level : levels_) {
    if (level == &no_level) continue;
    for (Place last : level->last) {
      if (last == nowhere) continue;
      for (Chunk* chunk = chunk_of(last); chunk != nullptr; chunk = chunk->previous) {
        Entry* const end = chunk_of(last) == chunk ? element_of(last) + 1 : chunk->timers.end();
        for (Entry* entry = chunk->timers.data(); entry != end; ++entry) entry->timer()->place_ = 0;
      }
    }
    delete level;
  }
}

constinit TimingWheel::Level TimingWheel::no_level;

// First the overdue, then the buckets in the order of their times: one of level 0 fires, one of a
// higher level is moved down.
TimingWheel::Progress TimingWheel::advance(Tick now, std::size_t budget) {
  TARRY_ASSERT(!advancing_, "a callback may not advance the wheel");
  advancing_ = true;
  // A bucket that is being emptied is scanned element by element, so none may be a hole meanwhile.
  fill_hole();
  hole_ = no_hole_allowed;
  now_ = std::max(now_, now);
  Progress progress;

  if (any_overdue()) {
    Level& level = *levels_[overdue_level];
    // From here on callbacks that schedule the past fill the other bucket, so the drain ends.
    if (level.last[overdue_draining_] == nowhere) overdue_draining_ = 1 - overdue_draining_;
    fire(BucketId::of(overdue_level, overdue_draining_), budget, progress.fired);
  }

  progress.more = true;
  while (true) {
    if (!in_work()) {
      working_.reset();
      if (queue_.empty() || start_of(queue_.first()) > now_) {
        // All buckets up to now_ are empty, so placement may be relative to it.
        cursor_ = now_;
        progress.more = any_overdue();
        break;
      }
    }
    if (budget == 0) break;
    if (!working_) {
      working_ = queue_.first();
      cursor_ = start_of(*working_);
      leaves_places_ = working_->level() == 1 && is_crowded(*working_);
    }
    // The bucket stays where it is while it is emptied, and nothing new can get into it, since
    // cursor_ is in its time now.  So cancel() needs to know nothing of it being in work.
    if (working_->level() == 0) {
      fire(*working_, budget, progress.fired);
    } else if (leaves_places_) {
      move_crowd_down(*working_, budget);
    } else {
      move_down(*working_, budget);
    }
  }
  advancing_ = false;
  hole_ = no_hole;
  return progress;
}

std::optional<Tick> TimingWheel::next_due() const {
  if (any_overdue() || in_work()) return now_;
  if (queue_.empty()) return std::nullopt;
  return std::max(now_, start_of(queue_.first()));
}

std::size_t TimingWheel::size() const {
  std::size_t timers = 0;
  for (const Level* const level : levels_) timers += level->timers();
  // The timer of the hole is cancelled, but its element is still counted.
  return timers - (hole_ > no_hole_allowed ? 1 : 0);
}

std::size_t TimingWheel::Level::timers() const {
  std::size_t timers = chunks * Chunk::capacity;  // Less the room in each bucket's last one.
  for (const Place place : last) {
    if (place != nowhere) timers -= (last_offset - place % sizeof(Chunk)) / sizeof(Entry);
  }
  return timers;
}

TimingWheel::Stats TimingWheel::stats() const {
  Stats stats;
  stats.placed_from = cursor_;
  stats.overdue = levels_[overdue_level]->timers();
  stats.bytes = sizeof(*this) + pool_.bytes();
  for (const Level* const level : levels_) stats.bytes += level != &no_level ? sizeof(Level) : 0;
  for (unsigned i = 0; i < DelayQueue::level_count; ++i) {
    if (levels_[i] == &no_level) continue;
    const Level& level = *levels_[i];
    // A timer that came neither down nor from here came up: it overflowed, from level 0 where every
    // deadline starts out, or was moved later.
    const std::uint64_t from_below = level.entered - level.downgrades - level.stayed;
    stats.levels[i] = {.exists = true,
                       .timers = level.timers(),
                       .buckets = queue_.buckets_on(i),
                       .used = queue_.bits_on(i),
                       .upgrades = i == 0 ? 0 : from_below,
                       .downgrades = level.downgrades};
  }
  if (hole_ > no_hole_allowed) {
    const unsigned level = bucket_of(hole_).level();
    --(level == overdue_level ? stats.overdue : stats.levels[level].timers);
  }
  return stats;
}

void TimingWheel::ChunkPool::next_piece() {
  if (slabs_used_ == 0 || fresh_ == slabs_[slabs_used_ - 1].end()) {
    if (slabs_used_ == slabs_.size()) add_slab();
    fresh_ = slabs_[slabs_used_++].chunks.get();
  }
  Slab& slab = slabs_[slabs_used_ - 1];
  fresh_end_ = fresh_ + std::min<std::ptrdiff_t>(piece_chunks, slab.end() - fresh_);
  if (slab.touched != nullptr && fresh_end_ <= slab.touched) return;
  slab.touched = fresh_end_;
#ifdef MADV_POPULATE_WRITE
  // Advice: where the system does not take it, each page comes when it is touched.
  if (slab.count == slab_chunks) {
    constexpr std::uintptr_t page = 4096;
    const auto begin = reinterpret_cast<std::uintptr_t>(fresh_) / page * page;
    const auto end = reinterpret_cast<std::uintptr_t>(fresh_end_);
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE);
  }
#endif
}

void TimingWheel::ChunkPool::add_slab() {
  // Doubling, so that a small wheel stays small.
  const std::size_t count = std::clamp<std::size_t>(bytes_ / sizeof(Chunk), 8, slab_chunks);
  auto chunks = std::make_unique_for_overwrite<Chunk[]>(count);
  TARRY_ASSERT(reinterpret_cast<std::uintptr_t>(chunks.get() + count) >> address_bits == 0,
               "a timer's place has no room for longer addresses");
  slabs_.push_back({std::move(chunks), count, nullptr});
  bytes_ += count * sizeof(Chunk);
}

void TimingWheel::ChunkPool::start_over() {
  bytes_ -= slabs_.back().count * sizeof(Chunk);
  slabs_.pop_back();
  free_ = fresh_ = fresh_end_ = nullptr;
  slabs_used_ = 0;
}

// An array that a scan will come to soon.
inline void TimingWheel::prefetch(const Chunk& chunk) {
  for (std::size_t i = 0; i < chunk.timers.size(); i += 64 / sizeof(Entry)) {
    __builtin_prefetch(&chunk.timers[i]);
  }
}

// All of a timer and the first bytes of its user's: it may lie across two lines.
inline void TimingWheel::prefetch(const Timer* timer) {
  __builtin_prefetch(timer, 1);
  __builtin_prefetch(timer + 1, 1);
}

// The timer that a scan which goes down and has come to `position` will touch a little later.
inline void TimingWheel::prefetch_before(const Chunk& chunk, std::size_t position) {
  if (position >= prefetch_distance) {
    prefetch(chunk.timers[position - prefetch_distance].timer());
  } else if (chunk.previous != nullptr) {
    prefetch(chunk.previous->timers[Chunk::capacity + position - prefetch_distance].timer());
  }
}

// The timers that a scan which begins at `last` will touch first.
inline void TimingWheel::prefetch_first(Place last) {
  const Chunk& chunk = *chunk_of(last);
  const std::size_t filled = position_of(last) + 1;
  const std::size_t count = std::min(filled, prefetch_distance);
  for (std::size_t i = 1; i <= count; ++i) prefetch(chunk.timers[filled - i].timer());
}

inline Tick TimingWheel::start_of(BucketId bucket) const {
  const unsigned shift = 8 * bucket.level();
  const Tick above = cursor_ >> shift >> 8;  // In two steps: all 64 bits at once shift nothing.
  return (above << 8 | bucket.index()) << shift;
}

bool TimingWheel::cancel_beyond(Timer& timer) {
  fill_hole();
  remove(place_of(timer));
  timer.place_ = 0;
  return true;
}

TimingWheel::Place TimingWheel::new_place_of(const Timer& timer) {
  return element_of(timer.place_)->place();
}

void TimingWheel::fill_hole() {
  if (hole_ <= no_hole_allowed) return;
  remove(std::exchange(hole_, no_hole));
}

// Puts the bucket's last timer into a place whose own is gone.
void TimingWheel::remove(Place place) {
  const BucketId bucket = bucket_of(place);
  Level& level = *levels_[bucket.level()];
  const Place last = level.last[bucket.index()];
  if (place != last) {
    const Entry moved = *element_of(last);
    *element_of(place) = moved;
    moved.timer()->place_ = place;
  }
  drop_last(level, bucket, last);
}

void TimingWheel::move_earlier(Timer& timer, Tick deadline) {
  fill_hole();
  remove(place_of(timer));
  timer.place_ = 0;
  schedule(timer, deadline);
}

void TimingWheel::append_overdue(Timer& timer) {
  timer.place_ =
      append(BucketId::of(overdue_level, 1 - overdue_draining_), Entry(timer, timer.deadline_));
}

// append() where the bucket is empty, its level not made yet or its last array full.
TimingWheel::Place TimingWheel::append_beyond(unsigned level_number, unsigned index, Entry entry) {
  const BucketId bucket = BucketId::of(level_number, index);
  if (levels_[bucket.level()] == &no_level) levels_[bucket.level()] = new Level;
  Level& level = *levels_[bucket.level()];
  Place& last = level.last[bucket.index()];
  const bool was_empty = last == nowhere;
  const bool tell = was_empty && listener_ && !advancing_;
  // Asked before the timer is in, to find out whether it makes the wheel due earlier.
  const std::optional<Tick> before = tell ? next_due() : std::nullopt;

  Chunk* const chunk = pool_.take();
  chunk->wheel = this;
  chunk->previous = chunk_of(last);
  ++level.chunks;
  last = first_of(bucket, chunk);
  *element_of(last) = entry;
  ++level.entered;
  if (was_empty && bucket.level() != overdue_level) queue_.insert(bucket);

  const Place place = last;
  if (tell && (!before || *next_due() < *before)) listener_();
  return place;
}

// Gives back a bucket's last chunk, whose last timer was dropped.
void TimingWheel::drop_chunk(Level& level, Place last) {
  const BucketId bucket = bucket_of(last);
  Chunk* const chunk = chunk_of(last);
  if (chunk->previous != nullptr) {
    level.last[bucket.index()] = last_of(bucket, chunk->previous);
  } else {
    level.last[bucket.index()] = nowhere;
    if (bucket.level() != overdue_level) queue_.erase(bucket);
  }
  --level.chunks;
  // Elements of this array hold the new places of timers, so it is not used again yet.
  if (leaves_places_ && working_ == bucket) {
    retire(chunk);
  } else {
    pool_.give_back(chunk);
  }
  if (retired_ != 0) release_retired();
}

void TimingWheel::retire(Chunk* chunk) {
  chunk->previous = retired_first_;
  if (retired_first_ == nullptr) retired_last_ = chunk;
  retired_first_ = chunk;
  ++retired_;
}

// If no timer's place can be in one of them any more.
void TimingWheel::release_retired() {
  if (queue_.has(0) || (leaves_places_ && in_work())) return;
  pool_.give_back(retired_first_, retired_last_, std::exchange(retired_, 0));
  retired_first_ = retired_last_ = nullptr;
}

// Empties a bucket from its end, each timer into the bucket where its deadline belongs now, which
// is never this one.
void TimingWheel::move_down(BucketId bucket, std::size_t& budget) {
  Level& level = *levels_[bucket.level()];
  // append() counts each timer as entered; the difference shows how many came down.
  std::array<std::uint64_t, DelayQueue::level_count> entered;
  for (unsigned i = 0; i <= bucket.level(); ++i) entered[i] = levels_[i]->entered;

  if (level.last[bucket.index()] != nowhere) prefetch_first(level.last[bucket.index()]);
  while (budget > 0 && level.last[bucket.index()] != nowhere) {
    const Place last = level.last[bucket.index()];
    Chunk& chunk = *chunk_of(last);
    const std::size_t filled = position_of(last) + 1;
    const std::size_t count = std::min(budget, filled);
    budget -= count;
    if (chunk.previous != nullptr) prefetch(*chunk.previous);
    for (std::size_t i = filled; i > filled - count; --i) {
      prefetch_before(chunk, i - 1);
      Timer& timer = *chunk.timers[i - 1].timer();
      timer.place_ = append(bucket_for(timer.deadline_), Entry(timer, timer.deadline_));
    }
    if (count == filled) {
      drop_chunk(level, last);
    } else {
      level.last[bucket.index()] = last - count * sizeof(Entry);
    }
  }

  for (unsigned i = 0; i < bucket.level(); ++i) {
    const std::uint64_t moved = levels_[i]->entered - entered[i];
    if (moved != 0) levels_[i]->downgrades += moved;  // Without a move it may be no_level.
  }
  level.stayed += level.entered - entered[bucket.level()];
}

// Some two timers for each bucket of level 0.  With fewer it is better to have touched them all in
// one go, for when they fire they are too few to be fetched ahead.
bool TimingWheel::is_crowded(BucketId bucket) const {
  const Chunk* chunk = chunk_of(levels_[bucket.level()]->last[bucket.index()]);
  for (int i = 0; i < 8 && chunk != nullptr; ++i) chunk = chunk->previous;
  return chunk != nullptr;
}

// move_down() from level 1 to level 0 by what is in the arrays alone.  One that was moved later
// since is found when it comes to fire.
void TimingWheel::move_crowd_down(BucketId bucket, std::size_t& budget) {
  Place& last = levels_[1]->last[bucket.index()];
  while (budget > 0 && last != nowhere) {
    Chunk& chunk = *chunk_of(last);
    const std::size_t filled = position_of(last) + 1;
    const std::size_t count = std::min(budget, filled);
    budget -= count;
    if (chunk.previous != nullptr) prefetch(*chunk.previous);
    for (std::size_t i = filled; i > filled - count; --i) {
      Entry& entry = chunk.timers[i - 1];
      entry = Entry::moved_to(append(BucketId::of(0, entry.digit()), entry));
    }
    levels_[0]->downgrades += count;
    if (count == filled) {
      drop_chunk(*levels_[1], last);
    } else {
      last -= count * sizeof(Entry);
    }
  }
}

// noexcept: what a callback throws would leave timers behind that never fire.
void TimingWheel::fire(BucketId bucket, std::size_t& budget, std::size_t& fired) noexcept {
  Level& level = *levels_[bucket.level()];
  Place& last = level.last[bucket.index()];
  for (; budget > 0 && last != nowhere; --budget) {
    const std::size_t position = position_of(last);
    const Chunk& chunk = *chunk_of(last);
    // Shortly before the first element from which prefetch_before() looks into that array.
    if (position == 20 && chunk.previous != nullptr) prefetch(*chunk.previous);
    prefetch_before(chunk, position);
    Timer& timer = *chunk.timers[position].timer();
    // Out of the bucket before its callback runs, which may schedule or destroy it.
    drop_last(level, bucket, last);
    if (timer.deadline_ > cursor_ && bucket.level() == 0) {
      // It was moved later since.
      const BucketId to = bucket_for(timer.deadline_);
      timer.place_ = append(to, Entry(timer, timer.deadline_));
      if (to.level() == 0) ++level.stayed;
      continue;
    }
    timer.place_ = 0;
    ++fired;
    timer.on_expired();
  }
  if (last == nowhere && !queue_.empty() && queue_.first().level() == 0) {
    prefetch_first(levels_[0]->last[queue_.first().index()]);
  }
}

}  // namespace tarry::timing
