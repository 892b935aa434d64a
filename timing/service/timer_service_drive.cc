// How a TimerService runs what is due; see timer_service.h.

#include "timing/service/timer_service.h"

#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "timing/service/timer_shard.h"

namespace tarry::timing {
namespace {

using TimePoint = TimerService::TimePoint;
using Duration = TimerService::Duration;

// Timers taken out of a wheel, or moved in it, while its lock is held: one or two microseconds.
constexpr std::size_t batch = 64;

}  // namespace

TimerService::Progress TimerService::run_due(std::size_t budget) {
  TARRY_ASSERT(options_.drive != Drive::own_thread, "the service's own thread runs what is due");
  return pass(budget);
}

TimerService::Progress TimerService::pass(std::size_t budget) {
  begin_pass();
  Progress progress;
  // Callbacks may have scheduled more, so it ends only when a look at all shards finds nothing due.
  for (bool found = true; found && budget > 0 && !stopping_;) {
    found = false;
    const Tick tick = clock_.current_tick();
    for (std::uint32_t i = 0; i <= shard_mask_ && budget > 0 && !stopping_; ++i) {
      // A budget that one shard uses up begins with the next one next time.
      TimerShard& shard = shards_[(first_shard_ + i) & shard_mask_];
      if (shard.earliest.get() > tick) continue;
      found = true;
      progress.fired += run_shard(shard, budget);
      if (budget == 0) first_shard_ += i + 1;
    }
  }
  progress.more = end_pass();
  return progress;
}

// Runs what is due in one shard, as far as the budget goes, and reduces that.
std::size_t TimerService::run_shard(TimerShard& shard, std::size_t& budget) noexcept {
  std::size_t fired = 0;
  // Destroyed when the lock is released.
  std::vector<std::unique_ptr<TimerNode[]>> unused;
  shard.lock.lock_as_driver();
  shard.lock.begin_driving();
  while (budget > 0 && !stopping_) {
    if (shard.ready_first == nullptr) {
      const auto progress = shard.wheel.advance(clock_.current_tick(), std::min(batch, budget));
      if (shard.ready_first == nullptr) {
        if (!progress.more) break;
        // Many were moved down and none is due yet.
        budget -= std::min(batch, budget);
        // Threads that schedule get at the shard between two batches.
        shard.lock.unlock();
        shard.lock.lock_as_driver();
        continue;
      }
    }
    TimerNode& node = *shard.ready_first;
    shard.leave_ready(node);
    node.state = TimerNode::State::running;
    ++shard.fired;
    shard.lock.unlock();
    run(node);
    shard.lock.lock_as_driver();
    ++fired;
    --budget;
  }
  if (shard.in_use() == 0 && shard.slabs.size() > 1) unused = shard.drop_slabs();
  shard.lock.end_driving();
  // Timers that the budget has left over are due: 0 is before every tick.
  shard.earliest.set(
      shard.ready_first != nullptr ? 0 : shard.wheel.next_due().value_or(Earliest<>::never));
  shard.lock.unlock();
  return fired;
}

// Calls the callback, then arms the timer again or ends it.  No lock is held.
void TimerService::run(TimerNode& node) {
  TimerShard& shard = *node.shard;
  const TimerId id = shard.id_of(node);
  bool threw = false;
  try {
    node.callback(id);
  } catch (...) {
    threw = true;
    report(id);
  }
  const bool periodic = node.extra && node.extra->repeat != Repeat::never;
  const TimePoint returned = periodic ? clock_.now() : TimePoint();
  {
    const std::lock_guard lock(shard.lock);
    shard.thrown += threw;
    if (!node.cancelled && !shard.drained && (node.again || periodic)) {
      const TimePoint next =
          std::exchange(node.again, false) ? node.due : next_run(shard, node, returned);
      shard.arm(node, next, clock_.due_tick(next));
      return;
    }
    node.state = TimerNode::State::finishing;
  }
  // Destroyed with no lock held, and before the place is given back: the timer exists until then.
  if (node.extra && node.extra->keyed) keys_.forget(node.extra->key, id);
  node.extra.reset();
  node.callback = {};
  bool waited_for = false;
  {
    const std::lock_guard lock(shard.lock);
    node.cancelled = node.again = false;
    waited_for = std::exchange(node.waited_for, false);
    shard.give_back(node);
    ++shard.finished;
    places_.share(shard.spare);
  }
  if (waited_for) {
    // Waits until a waiter that has just looked is asleep, so that it is woken.
    { const std::lock_guard lock(pass_lock_); }
    pass_changed_.notify_all();
  }
}

// When a periodic timer that was due at node.due and has `returned` runs next.
TimePoint TimerService::next_run(TimerShard& shard, const TimerNode& node, TimePoint returned) {
  const Duration period = node.extra->period;
  if (node.extra->repeat == Repeat::fixed_delay) return TickClock::add(returned, period);
  const TimePoint next = TickClock::add(node.due, period);
  if (next >= returned) return next;
  // Without a sign, for a first run may have been asked for so long ago that the time since has no
  // room in a duration.
  const auto begin = static_cast<std::uint64_t>(next.time_since_epoch().count());
  const auto late = static_cast<std::uint64_t>(returned.time_since_epoch().count()) - begin;
  const auto length = static_cast<std::uint64_t>(period.count());
  shard.skipped += late / length;
  return TimePoint(Duration(static_cast<std::int64_t>(begin + late / length * length)));
}

// In a catch.
void TimerService::report(TimerId id) const noexcept {
  if (options_.on_throw) {
    options_.on_throw(id, std::current_exception());
    return;
  }
  try {
    throw;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "timer service: a callback threw: %s\n", error.what());
  } catch (...) {
    std::fprintf(stderr, "timer service: a callback threw something unknown\n");
  }
}

void TimerService::begin_pass() {
  {
    const std::lock_guard lock(pass_lock_);
    TARRY_ASSERT(!in_pass_, "run_due() is called by one thread at a time and not by a callback");
    in_pass_ = true;
  }
  driver_ = std::this_thread::get_id();
  alarm_.mark_awake();
}

// Sets the alarm to the earliest time of all; true when that has come already.
bool TimerService::end_pass() {
  const Tick at =
      alarm_.fall_asleep([this] { return earliest(); },
                         [this](Tick tick) { set_alarm(stopping_ ? after_stop() : tick); });
  driver_ = std::thread::id();
  {
    const std::lock_guard lock(pass_lock_);
    in_pass_ = false;
  }
  pass_changed_.notify_all();
  return !stopping_ && at != Earliest<>::never && at <= clock_.current_tick();
}

bool TimerService::on_driver_thread() const {
  return driver_.load() == std::this_thread::get_id();
}

Tick TimerService::earliest() const {
  Tick earliest = Earliest<>::never;
  for (std::uint32_t i = 0; i <= shard_mask_; ++i) {
    earliest = std::min(earliest, shards_[i].earliest.get());
  }
  return earliest;
}

// By a thread that has scheduled something which is its shard's earliest.
void TimerService::on_earlier_deadline(Tick deadline) {
  alarm_.on_earlier_deadline(deadline, [this](Tick at) {
    alarms_.fetch_add(1, std::memory_order_relaxed);
    if (!stopping_) set_alarm(at);
  });
}

// Under the alarm's lock.
void TimerService::set_alarm(Tick at) {
  const TimePoint time = at == Earliest<>::never ? TimePoint::max() : clock_.time_of(at);
  if (descriptor_.is_open()) {
    descriptor_.set(time);
  } else if (options_.alarm) {
    options_.alarm(time);
  }
}

// The thread of the service has to see that it is to end; any other driver has nothing to do.
Tick TimerService::after_stop() const {
  return options_.drive == Drive::own_thread ? 0 : Earliest<>::never;
}

int TimerService::fd() const {
  TARRY_ASSERT(options_.drive == Drive::descriptor, "only Drive::descriptor gives out its fd");
  return descriptor_.fd();
}

std::optional<TimePoint> TimerService::next_due() const {
  const Tick next = earliest();
  return next == Earliest<>::never ? std::nullopt : std::optional(clock_.time_of(next));
}

void TimerService::drive() {
  // Signals are for the program's own threads.
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  ::pthread_setname_np(::pthread_self(), "timers");
  while (!stopping_) {
    pollfd wait{.fd = descriptor_.fd(), .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, -1);
    pass(default_budget);
  }
}

}  // namespace tarry::timing
