#include "timing/service/timer_service.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "timing/service/shard_lock.h"
#include "timing/service/timer_shard.h"

namespace tarry::timing {
namespace {

using TimePoint = TimerService::TimePoint;
using Duration = TimerService::Duration;

constexpr Tick never = Earliest<>::never;

unsigned shard_count(unsigned wanted) {
  if (wanted == 0) wanted = 2 * std::max(1U, std::thread::hardware_concurrency());
  // A power of two, so that a mask maps a thread's number to its shard.
  return std::bit_ceil(std::min(wanted, 256U));
}

}  // namespace

TimerService::TimerService(TimerServiceOptions options)
    : options_(std::move(options)),
      clock_(options_.clock, options_.tick),
      shard_mask_(shard_count(options_.shards) - 1),
      shards_(std::make_unique<TimerShard[]>(shard_mask_ + 1)),
      places_(options_.max_pending, std::size_t{shard_mask_} + 1) {
  TARRY_ASSERT(options_.tick >= std::chrono::microseconds(1), "a tick is at least a microsecond");
  TARRY_ASSERT(options_.drive == Drive::manual || (!options_.clock && !options_.alarm),
               "only a service with Drive::manual takes a clock or an alarm");
  for (std::uint32_t i = 0; i <= shard_mask_; ++i) shards_[i].number = i;
  if (options_.drive != Drive::manual) descriptor_.open();
  // The thread is started last, because it uses everything that is made before it.
  if (options_.drive == Drive::own_thread) thread_ = std::thread([this] { drive(); });
}

TimerService::~TimerService() {
  TARRY_ASSERT(!on_driver_thread(), "a callback may not destroy its service");
  stop();
  if (thread_.joinable()) thread_.join();  // A callback had called stop().
}

inline TimerShard& TimerService::own_shard() {
  return shards_[thread_number() & shard_mask_];
}

// Scheduling

Scheduled TimerService::schedule_at(TimePoint deadline, TimerCallback callback) {
  return add(deadline, callback, nullptr);
}

Scheduled TimerService::schedule_after(Duration delay, TimerCallback callback) {
  return add(clock_.after(delay), callback, nullptr);
}

Scheduled TimerService::schedule_every(TimePoint first, Duration period, Repeat repeat,
                                       TimerCallback callback) {
  return add_periodic(first, period, repeat, callback);
}

Scheduled TimerService::schedule_every(Duration period, Repeat repeat, TimerCallback callback) {
  return add_periodic(clock_.after(period), period, repeat, callback);
}

Scheduled TimerService::schedule_at(std::string_view key, TimePoint deadline,
                                    TimerCallback callback) {
  return add_keyed(key, deadline, {}, Repeat::never, callback);
}

Scheduled TimerService::schedule_after(std::string_view key, Duration delay,
                                       TimerCallback callback) {
  return add_keyed(key, clock_.after(delay), {}, Repeat::never, callback);
}

Scheduled TimerService::schedule_every(std::string_view key, Duration period, Repeat repeat,
                                       TimerCallback callback) {
  return add_keyed(key, clock_.after(period), period, repeat, callback);
}

Scheduled TimerService::add_periodic(TimePoint first, Duration period, Repeat repeat,
                                     TimerCallback& callback) {
  if (repeat != Repeat::never && period <= Duration::zero()) return Refusal::no_period;
  auto extra = std::make_unique<TimerExtra>();
  extra->repeat = repeat;
  extra->period = period;
  return add(first, callback, std::move(extra));
}

Scheduled TimerService::add_keyed(std::string_view key, TimePoint first, Duration period,
                                  Repeat repeat, TimerCallback& callback) {
  if (repeat != Repeat::never && period <= Duration::zero()) {
    return Refusal::no_period;
  }
  auto extra = std::make_unique<TimerExtra>();
  extra->repeat = repeat;
  extra->period = period;
  extra->keyed = true;
  extra->key = key;
  // The old timer's; destroyed when the lock is released.
  TimerCallback old_callback;
  std::unique_ptr<TimerExtra> old_extra;

  TimerKeys::Stripe& keys = keys_.stripe_of(key);
  const std::lock_guard lock(keys.lock);
  auto place = keys.ids.find(key);
  const bool replaces = place != keys.ids.end();
  if (replaces) {
    if (const auto id = replace(place->second, first, callback, extra)) {
      old_callback = std::move(callback);
      old_extra = std::move(extra);
      place->second = *id;
      return *id;
    }
  } else {
    place = keys.ids.emplace(key, TimerId()).first;
  }
  // Should it run at once, the driver waits for us before it forgets the key.
  const Scheduled added = add(first, callback, std::move(extra));
  if (added) {
    if (replaces) take_out(place->second, false, old_callback, old_extra);
    place->second = *added;
  } else if (!replaces) {
    keys.ids.erase(place);
  }
  return added;
}

Scheduled TimerService::add(TimePoint deadline, TimerCallback& callback,
                            std::unique_ptr<TimerExtra> extra) noexcept {
  const Tick tick = clock_.due_tick(deadline);
  TimerShard& shard = own_shard();
  TimerId id;
  bool earlier = false;
  {
    const std::lock_guard lock(shard.lock);
    // This may release the lock for a while, so `closed` is looked at afterwards.
    if (shard.spare == 0) find_places(shard);
    if (shard.closed || shard.spare == 0) {
      refused_.fetch_add(1, std::memory_order_relaxed);
      return shard.closed ? Refusal::stopped : Refusal::full;
    }
    --shard.spare;
    TimerNode& node = shard.take_node();
    node.sequence = ++shard.sequence;
    // A free node owns nothing.
    std::construct_at(&node.callback, std::move(callback));
    std::construct_at(&node.extra, std::move(extra));
    shard.arm(node, deadline, tick);
    id = shard.id_of(node);
    earlier = shard.earliest.lower_to(tick);
  }
  if (earlier) on_earlier_deadline(tick);
  return id;
}

// Gets the shard, whose lock is held, places if there are any.  Places that other shards hold and
// do not use are collected before anybody is refused.  May release the lock in between.
void TimerService::find_places(TimerShard& shard) {
  shard.spare += places_.fetch();
  if (shard.spare != 0) return;
  // One lock at a time: two threads that collect would wait for each other.
  shard.lock.unlock();
  for (std::uint32_t i = 0; i <= shard_mask_; ++i) {
    const std::lock_guard lock(shards_[i].lock);
    places_.give_back(std::exchange(shards_[i].spare, 0));
  }
  shard.lock.lock();
  if (shard.spare == 0) shard.spare += places_.fetch();
}

// The timer that has the place of `old` from now on, if that is waiting still; what it had is
// left in `callback` and `extra`.
std::optional<TimerId> TimerService::replace(TimerId old, TimePoint deadline,
                                             TimerCallback& callback,
                                             std::unique_ptr<TimerExtra>& extra) noexcept {
  const Tick tick = clock_.due_tick(deadline);
  TimerId id;
  bool earlier = false;
  {
    TimerShard& shard = shards_[old.shard];
    const std::lock_guard lock(shard.lock);
    TimerNode* const node = shard.find(old);
    if (node == nullptr || shard.closed || !node->waits()) return std::nullopt;
    node->sequence = ++shard.sequence;
    std::swap(node->callback, callback);
    std::swap(node->extra, extra);
    shard.arm(*node, deadline, tick);
    ++shard.cancelled;
    id = shard.id_of(*node);
    earlier = shard.earliest.lower_to(tick);
  }
  if (earlier) on_earlier_deadline(tick);
  return id;
}

// Cancelling and moving

// The core of every cancel.  A cancelled timer's own parts are left in `callback` and `extra`, for
// the caller to destroy when it holds no lock.
inline CancelResult TimerService::take_out(TimerId id, bool wait, TimerCallback& callback,
                                           std::unique_ptr<TimerExtra>& extra) {
  if (id.shard > shard_mask_) return CancelResult::gone;
  TimerShard& shard = shards_[id.shard];
  const std::lock_guard lock(shard.lock);
  TimerNode* const node = shard.find(id);
  if (node == nullptr) return CancelResult::gone;
  // The driver looks at the flag when the callback has returned.
  if (!node->waits()) {
    node->cancelled = true;
    if (wait) node->waited_for = true;
    return CancelResult::running;
  }
  shard.take_out(*node);
  callback = std::move(node->callback);
  extra = std::move(node->extra);
  shard.give_back(*node);
  ++shard.cancelled;
  places_.share(shard.spare);
  return CancelResult::cancelled;
}

CancelResult TimerService::cancel(TimerId id) {
  return cancel(id, false);
}

CancelResult TimerService::cancel(std::string_view key) {
  return cancel(key, false);
}

CancelResult TimerService::cancel_and_wait(TimerId id) {
  return cancel(id, true);
}

CancelResult TimerService::cancel_and_wait(std::string_view key) {
  return cancel(key, true);
}

CancelResult TimerService::cancel(TimerId id, bool wait) {
  TimerCallback callback;
  std::unique_ptr<TimerExtra> extra;
  const CancelResult result = take_out(id, wait, callback, extra);
  // Not under the shard's lock: a thread that schedules by key takes the key's lock first.
  if (extra && extra->keyed) keys_.forget(extra->key, id);
  if (wait && result == CancelResult::running) wait_until_returned(id);
  return result;
}

CancelResult TimerService::cancel(std::string_view key, bool wait) {
  TimerCallback callback;
  std::unique_ptr<TimerExtra> extra;
  TimerId id;
  CancelResult result;
  {
    TimerKeys::Stripe& keys = keys_.stripe_of(key);
    const std::lock_guard lock(keys.lock);
    const auto found = keys.ids.find(key);
    if (found == keys.ids.end()) return CancelResult::gone;
    id = found->second;
    result = take_out(id, wait, callback, extra);
    if (result != CancelResult::running) keys.ids.erase(found);  // If it runs, the driver does.
  }
  if (wait && result == CancelResult::running) wait_until_returned(id);
  return result;
}

void TimerService::wait_until_returned(TimerId id) {
  if (on_driver_thread()) return;  // It is the callback itself that asks.
  TimerShard& shard = shards_[id.shard];
  // The driver takes this lock after it has given the node back, so no wake-up is lost between the
  // look and the wait.
  std::unique_lock lock(pass_lock_);
  pass_changed_.wait(lock, [&] {
    const std::lock_guard shard_lock(shard.lock);
    return shard.find(id) == nullptr;
  });
}

RescheduleResult TimerService::reschedule_at(TimerId id, TimePoint deadline) noexcept {
  if (id.shard > shard_mask_) return RescheduleResult::gone;
  const Tick tick = clock_.due_tick(deadline);
  bool earlier = false;
  {
    TimerShard& shard = shards_[id.shard];
    const std::lock_guard lock(shard.lock);
    TimerNode* const node = shard.find(id);
    if (node == nullptr || shard.closed) return RescheduleResult::gone;
    if (!node->waits()) {
      if (node->state == TimerNode::State::finishing || node->cancelled)
        return RescheduleResult::gone;
      node->again = true;
      node->due = deadline;
      return RescheduleResult::running;
    }
    shard.arm(*node, deadline, tick);
    earlier = shard.earliest.lower_to(tick);
  }
  if (earlier) on_earlier_deadline(tick);
  return RescheduleResult::moved;
}

RescheduleResult TimerService::reschedule_after(TimerId id, Duration delay) {
  return reschedule_at(id, clock_.after(delay));
}

RescheduleResult TimerService::reschedule_at(std::string_view key, TimePoint deadline) {
  const auto id = find(key);
  return id ? reschedule_at(*id, deadline) : RescheduleResult::gone;
}

RescheduleResult TimerService::reschedule_after(std::string_view key, Duration delay) {
  return reschedule_at(key, clock_.after(delay));
}

std::optional<TimerId> TimerService::find(std::string_view key) const {
  return keys_.find(key);
}

// End

std::vector<TimerService::Unprocessed> TimerService::stop() {
  std::vector<Unprocessed> unprocessed;
  if (stopping_.exchange(true)) return unprocessed;
  // First nothing comes in any more, then the driver ends its pass, and only then is the rest taken
  // out: so no timer is both run and handed back.
  for (std::uint32_t i = 0; i <= shard_mask_; ++i) {
    const std::lock_guard lock(shards_[i].lock);
    shards_[i].closed = true;
  }
  alarm_.silence([this] { set_alarm(after_stop()); });
  const bool by_callback = on_driver_thread();
  if (!by_callback) {
    std::unique_lock lock(pass_lock_);
    pass_changed_.wait(lock, [this] { return !in_pass_; });
  }
  for (std::uint32_t i = 0; i <= shard_mask_; ++i) drain(shards_[i], unprocessed);
  keys_.clear();
  if (!by_callback && thread_.joinable()) thread_.join();
  return unprocessed;
}

void TimerService::drain(TimerShard& shard, std::vector<Unprocessed>& unprocessed) {
  for (std::uint32_t begin = 0;; begin += TimerShard::slab_size) {
    // Not under the lock, which cancel() may wait for.
    if (unprocessed.capacity() - unprocessed.size() < TimerShard::slab_size) {
      unprocessed.reserve(2 * unprocessed.capacity() + TimerShard::slab_size);
    }
    const std::lock_guard lock(shard.lock);
    shard.drained = true;
    const std::uint32_t end = std::min<std::uint32_t>(begin + TimerShard::slab_size, shard.fresh);
    for (std::uint32_t i = begin; i < end; ++i) {
      TimerNode& node = shard.slabs[begin / TimerShard::slab_size][i - begin];
      if (!node.waits()) continue;
      Unprocessed& out = unprocessed.emplace_back();
      out.id = shard.id_of(node);
      out.deadline = node.due;
      if (node.extra) {
        out.repeat = node.extra->repeat;
        out.period = node.extra->period;
        out.key = std::move(node.extra->key);
        node.extra.reset();
      }
      out.callback = std::move(node.callback);
      shard.take_out(node);
      shard.give_back(node);
      ++shard.handed_back;
    }
    if (end == shard.fresh) {
      shard.earliest.set(never);
      return;
    }
  }
}

TimerService::Stats TimerService::stats() const {
  Stats stats;
  stats.refused = refused_;
  stats.alarms = alarms_;
  for (std::uint32_t i = 0; i <= shard_mask_; ++i) {
    TimerShard& shard = shards_[i];
    const std::lock_guard lock(shard.lock);
    const auto wheel = shard.wheel.stats();
    for (std::size_t k = 0; k < stats.levels.size(); ++k) {
      stats.levels[k].exists |= wheel.levels[k].exists;
      stats.levels[k].timers += wheel.levels[k].timers;
      stats.levels[k].buckets += wheel.levels[k].buckets;
      stats.levels[k].upgrades += wheel.levels[k].upgrades;
      stats.levels[k].downgrades += wheel.levels[k].downgrades;
    }
    stats.pending += shard.in_use();
    stats.bytes += wheel.bytes + shard.slabs.size() * TimerShard::slab_size * sizeof(TimerNode);
    stats.scheduled += shard.sequence;
    stats.cancelled += shard.cancelled;
    stats.fired += shard.fired;
    stats.thrown += shard.thrown;
    stats.skipped += shard.skipped;
  }
  return stats;
}

}  // namespace tarry::timing
