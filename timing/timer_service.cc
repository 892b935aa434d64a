#include "timing/timer_service.h"

#include <poll.h>
#include <pthread.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <string>
#include <system_error>
#include <unordered_map>

#include "base/assert.h"
#include "timing/shard_lock.h"

namespace tarry::timing {
namespace {

using TimePoint = TimerService::TimePoint;
using Duration = TimerService::Duration;

constexpr Tick never = std::numeric_limits<Tick>::max();

// Timers taken out of a wheel, or moved in it, while its lock is held: one or two microseconds.
constexpr std::size_t batch = 64;

// Locks over the keys; more than threads that run at once.
constexpr std::size_t key_stripes = 32;

unsigned shard_count(unsigned wanted) {
  if (wanted == 0) wanted = 2 * std::max(1U, std::thread::hardware_concurrency());
  return std::bit_ceil(std::min(wanted, 256U));
}

int open_descriptor(Drive drive) {
  if (drive == Drive::manual) return -1;
  const int fd = ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::system_category(), "timerfd_create");
  return fd;
}

TimePoint saturating_add(TimePoint time, Duration delay) {
  if (delay > Duration::zero() && time > TimePoint::max() - delay) return TimePoint::max();
  if (delay < Duration::zero() && time < TimePoint::min() - delay) return TimePoint::min();
  return time + delay;
}

}  // namespace

std::string_view to_string(Refusal refusal) {
  switch (refusal) {
    case Refusal::full:
      return "as many timers are pending as may be";
    case Refusal::stopped:
      return "the timer service is stopped";
    case Refusal::no_period:
      return "the period of a timer is not longer than nothing";
  }
  return "unknown";
}

std::string_view to_string(CancelResult result) {
  switch (result) {
    case CancelResult::cancelled:
      return "cancelled";
    case CancelResult::running:
      return "running";
    case CancelResult::gone:
      return "gone";
  }
  return "unknown";
}

std::string_view to_string(RescheduleResult result) {
  switch (result) {
    case RescheduleResult::moved:
      return "moved";
    case RescheduleResult::running:
      return "running";
    case RescheduleResult::gone:
      return "gone";
  }
  return "unknown";
}

// What few timers have.
struct TimerService::Extra {
  Repeat repeat = Repeat::never;
  Duration period{};
  bool keyed = false;
  std::string key;
};

// One timer.  All but `callback` and `extra` is read and written under its shard's lock; those
// two belong to the driver from running to finishing, and to the shard before.
struct TimerService::Node final : Timer {
  enum class State : std::uint8_t {
    free,
    armed,     // In the wheel.
    ready,     // Due: taken out of the wheel, in the shard's ready list.
    running,   // Its callback is being called.
    finishing  // It has been, for the last time, and is being destroyed.
  };

  void on_expired() override;

  Shard* shard = nullptr;
  std::uint64_t sequence = 0;  // Its id's; 0 while free.
  TimePoint due{};             // As asked for; the wheel has it in ticks.
  std::unique_ptr<Extra> extra;
  TimerCallback callback;
  Node* next = nullptr;      // In the free list or the ready list.
  Node* previous = nullptr;  // In the ready list.
  std::uint32_t index = 0;
  State state = State::free;
  // While running:
  bool cancelled = false;  // It is the last run.
  bool again = false;      // It was rescheduled, to `due`.
  bool waited_for = false;

  bool waits() const { return state == State::armed || state == State::ready; }
};

struct alignas(128) TimerService::Shard {
  static constexpr std::size_t slab_size = 256;

  ShardLock lock;
  bool closed = false;   // Nothing may be scheduled any more.
  bool drained = false;  // stop() has taken everything out.
  Earliest<> earliest;   // Of what is in the wheel or ready.

  std::size_t spare = 0;  // Places that are free for this shard to use.
  Node* free = nullptr;
  std::uint32_t number = 0;
  std::uint32_t fresh = 0;  // Nodes from this index on were never used.
  // Ever; what was scheduled and is in none of the others exists.
  std::uint64_t sequence = 0;  // The last id's.
  std::uint64_t cancelled = 0;
  std::uint64_t finished = 0;
  std::uint64_t handed_back = 0;
  Node* ready_first = nullptr;
  Node* ready_last = nullptr;
  std::uint64_t fired = 0;
  std::uint64_t thrown = 0;
  std::uint64_t skipped = 0;
  TimingWheel wheel;
  std::vector<std::unique_ptr<Node[]>> slabs;  // After the wheel: nodes leave it when destroyed.

  Node* find(TimerId id) {
    if (id.index >= fresh) return nullptr;
    Node& node = slabs[id.index / slab_size][id.index % slab_size];
    return node.sequence == id.sequence && id.sequence != 0 ? &node : nullptr;
  }

  TimerId id_of(const Node& node) const { return {node.sequence, node.index, number}; }

  std::size_t in_use() const { return sequence - cancelled - finished - handed_back; }

  Node& take_node() {
    if (free != nullptr) return *std::exchange(free, free->next);
    return fresh_node();
  }

  [[gnu::noinline]] Node& fresh_node() {
    if (fresh == slabs.size() * slab_size) slabs.push_back(std::make_unique<Node[]>(slab_size));
    Node& node = slabs[fresh / slab_size][fresh % slab_size];
    node.shard = this;
    node.index = fresh++;
    return node;
  }

  // Of a timer whose callback and extra were moved out or destroyed.
  void give_back(Node& node) {
    node.sequence = 0;
    node.state = Node::State::free;
    node.next = std::exchange(free, &node);
    ++spare;
  }

  // All but the first, when no node is in use; to be destroyed without the lock.
  std::vector<std::unique_ptr<Node[]>> drop_slabs() {
    std::vector<std::unique_ptr<Node[]>> dropped(std::make_move_iterator(slabs.begin() + 1),
                                                 std::make_move_iterator(slabs.end()));
    slabs.resize(1);
    free = nullptr;
    fresh = 0;
    return dropped;
  }

  void push_ready(Node& node) {
    node.state = Node::State::ready;
    node.next = nullptr;
    node.previous = std::exchange(ready_last, &node);
    (node.previous != nullptr ? node.previous->next : ready_first) = &node;
  }

  void leave_ready(Node& node) {
    (node.previous != nullptr ? node.previous->next : ready_first) = node.next;
    (node.next != nullptr ? node.next->previous : ready_last) = node.previous;
  }

  // Takes a waiting timer out of the wheel or the ready list.
  void take_out(Node& node) {
    if (node.state == Node::State::armed) {
      wheel.cancel(node);
    } else {
      leave_ready(node);
    }
  }

  // Arms it, or moves it if it is waiting already.
  void arm(Node& node, TimePoint deadline, Tick tick) {
    if (node.state == Node::State::ready) leave_ready(node);
    node.due = deadline;
    node.state = Node::State::armed;
    wheel.schedule(node, tick);
  }
};

void TimerService::Node::on_expired() {
  shard->push_ready(*this);
}

struct alignas(64) TimerService::Keys {
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view key) const {
      return std::hash<std::string_view>()(key);
    }
  };

  // Taken before a shard's lock, never while one is held.
  std::mutex lock;
  std::unordered_map<std::string, TimerId, Hash, std::equal_to<>> ids;
};

TimerService::TimerService(TimerServiceOptions options)
    : options_(std::move(options)),
      epoch_(now()),
      fd_(open_descriptor(options_.drive)),
      shard_mask_(shard_count(options_.shards) - 1),
      shards_(std::make_unique<Shard[]>(shard_mask_ + 1)),
      keys_(std::make_unique<Keys[]>(key_stripes)),
      places_at_once_(std::clamp<std::size_t>(
          options_.max_pending / (8 * (std::size_t{shard_mask_} + 1)), 1, 256)),
      places_(options_.max_pending) {
  TARRY_ASSERT(options_.tick >= std::chrono::microseconds(1), "a tick is at least a microsecond");
  TARRY_ASSERT(options_.drive == Drive::manual || (!options_.clock && !options_.alarm),
               "a clock of one's own is for who drives the service himself");
  for (std::uint32_t i = 0; i <= shard_mask_; ++i) shards_[i].number = i;
  if (options_.drive == Drive::own_thread) {
    try {
      thread_ = std::thread([this] { drive(); });
    } catch (...) {
      ::close(fd_);
      throw;
    }
  }
}

TimerService::~TimerService() {
  TARRY_ASSERT(!on_driver_thread(), "a callback may not destroy its service");
  stop();
  if (thread_.joinable()) thread_.join();  // A callback had called stop().
  if (fd_ >= 0) ::close(fd_);
}

TimePoint TimerService::now() const {
  return options_.clock ? options_.clock() : std::chrono::steady_clock::now();
}

TimePoint TimerService::after(Duration delay) const {
  return saturating_add(now(), delay);
}

Tick TimerService::due_tick(TimePoint deadline) const {
  if (deadline <= epoch_) return 0;
  const auto since = static_cast<std::uint64_t>(deadline.time_since_epoch().count()) -
                     static_cast<std::uint64_t>(epoch_.time_since_epoch().count());
  const auto tick = static_cast<std::uint64_t>(options_.tick.count());
  return since / tick + (since % tick != 0);
}

TimePoint TimerService::time_of(Tick tick) const {
  const auto length = static_cast<std::uint64_t>(options_.tick.count());
  const auto longest = static_cast<std::uint64_t>(Duration::max().count());
  return tick > longest / length
             ? TimePoint::max()
             : saturating_add(epoch_, Duration(static_cast<std::int64_t>(tick * length)));
}

inline TimerService::Shard& TimerService::own_shard() {
  return shards_[thread_number() & shard_mask_];
}

// Scheduling

Scheduled TimerService::schedule_at(TimePoint deadline, TimerCallback callback) {
  return add(deadline, callback, nullptr);
}

Scheduled TimerService::schedule_after(Duration delay, TimerCallback callback) {
  return add(after(delay), callback, nullptr);
}

Scheduled TimerService::schedule_every(TimePoint first, Duration period, Repeat repeat,
                                       TimerCallback callback) {
  return add_periodic(first, period, repeat, callback);
}

Scheduled TimerService::schedule_every(Duration period, Repeat repeat, TimerCallback callback) {
  return add_periodic(after(period), period, repeat, callback);
}

Scheduled TimerService::schedule_at(std::string_view key, TimePoint deadline,
                                    TimerCallback callback) {
  return add_keyed(key, deadline, {}, Repeat::never, callback);
}

Scheduled TimerService::schedule_after(std::string_view key, Duration delay,
                                       TimerCallback callback) {
  return add_keyed(key, after(delay), {}, Repeat::never, callback);
}

Scheduled TimerService::schedule_every(std::string_view key, Duration period, Repeat repeat,
                                       TimerCallback callback) {
  return add_keyed(key, after(period), period, repeat, callback);
}

Scheduled TimerService::add_periodic(TimePoint first, Duration period, Repeat repeat,
                                     TimerCallback& callback) {
  if (repeat != Repeat::never && period <= Duration::zero()) return Refusal::no_period;
  auto extra = std::make_unique<Extra>();
  extra->repeat = repeat;
  extra->period = period;
  return add(first, callback, std::move(extra));
}

Scheduled TimerService::add_keyed(std::string_view key, TimePoint first, Duration period,
                                  Repeat repeat, TimerCallback& callback) {
  if (repeat != Repeat::never && period <= Duration::zero()) {
    return Refusal::no_period;
  }
  auto extra = std::make_unique<Extra>();
  extra->repeat = repeat;
  extra->period = period;
  extra->keyed = true;
  extra->key = key;
  // What the old timer had; destroyed when the lock is released.
  TimerCallback old_callback;
  std::unique_ptr<Extra> old_extra;

  Keys& keys = keys_of(key);
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
                            std::unique_ptr<Extra> extra) noexcept {
  const Tick tick = due_tick(deadline);
  Shard& shard = own_shard();
  TimerId id;
  bool earlier = false;
  {
    const std::lock_guard lock(shard.lock);
    if (shard.spare == 0) find_places(shard);
    if (shard.closed || shard.spare == 0) {
      refused_.fetch_add(1, std::memory_order_relaxed);
      return shard.closed ? Refusal::stopped : Refusal::full;
    }
    --shard.spare;
    Node& node = shard.take_node();
    node.sequence = ++shard.sequence;
    // A free node owns nothing.
    std::construct_at(&node.callback, std::move(callback));
    std::construct_at(&node.extra, std::move(extra));
    shard.arm(node, deadline, tick);
    id = shard.id_of(node);
    earlier = shard.earliest.lower_to(tick);
  }
  if (earlier) told_of(tick);
  return id;
}

// Gets the shard, whose lock is held, places if there are any.  Places are fetched some at a
// time, so that threads do not meet at one counter; what others hold for themselves and do not
// use is collected before anybody is refused.  May release the lock in between.
void TimerService::find_places(Shard& shard) {
  const auto fetch = [this, &shard] {
    std::size_t left = places_.load(std::memory_order_relaxed);
    std::size_t taken = 0;
    do {
      taken = std::min(left, places_at_once_);
    } while (taken != 0 &&
             !places_.compare_exchange_weak(left, left - taken, std::memory_order_relaxed));
    shard.spare += taken;
    return taken != 0;
  };
  if (fetch()) return;
  shard.lock.unlock();
  for (std::uint32_t i = 0; i <= shard_mask_; ++i) {
    const std::lock_guard lock(shards_[i].lock);
    places_.fetch_add(std::exchange(shards_[i].spare, 0), std::memory_order_relaxed);
  }
  shard.lock.lock();
  if (shard.spare == 0) fetch();
}

// Under the shard's lock: leaves to others what it does not need soon.
inline void TimerService::share_places(Shard& shard) {
  if (shard.spare <= 2 * places_at_once_) return;
  shard.spare -= places_at_once_;
  places_.fetch_add(places_at_once_, std::memory_order_relaxed);
}

// The timer that has the place of `old` from now on, if that is waiting still; what it had is
// left in `callback` and `extra`.
std::optional<TimerId> TimerService::replace(TimerId old, TimePoint deadline,
                                             TimerCallback& callback,
                                             std::unique_ptr<Extra>& extra) noexcept {
  const Tick tick = due_tick(deadline);
  TimerId id;
  bool earlier = false;
  {
    Shard& shard = shards_[old.shard];
    const std::lock_guard lock(shard.lock);
    Node* const node = shard.find(old);
    if (node == nullptr || shard.closed || !node->waits()) return std::nullopt;
    node->sequence = ++shard.sequence;
    std::swap(node->callback, callback);
    std::swap(node->extra, extra);
    shard.arm(*node, deadline, tick);
    ++shard.cancelled;
    id = shard.id_of(*node);
    earlier = shard.earliest.lower_to(tick);
  }
  if (earlier) told_of(tick);
  return id;
}

// Cancelling and moving

// The core of every cancel.  What a cancelled timer had is left in `callback` and `extra`, for
// the caller to destroy when it holds no lock.
inline CancelResult TimerService::take_out(TimerId id, bool wait, TimerCallback& callback,
                                           std::unique_ptr<Extra>& extra) {
  if (id.shard > shard_mask_) return CancelResult::gone;
  Shard& shard = shards_[id.shard];
  const std::lock_guard lock(shard.lock);
  Node* const node = shard.find(id);
  if (node == nullptr) return CancelResult::gone;
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
  share_places(shard);
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
  std::unique_ptr<Extra> extra;
  const CancelResult result = take_out(id, wait, callback, extra);
  if (extra) forget_key(*extra, id);
  if (wait && result == CancelResult::running) wait_until_returned(id);
  return result;
}

CancelResult TimerService::cancel(std::string_view key, bool wait) {
  TimerCallback callback;
  std::unique_ptr<Extra> extra;
  TimerId id;
  CancelResult result;
  {
    Keys& keys = keys_of(key);
    const std::lock_guard lock(keys.lock);
    const auto found = keys.ids.find(key);
    if (found == keys.ids.end()) return CancelResult::gone;
    id = found->second;
    result = take_out(id, wait, callback, extra);
    if (result != CancelResult::running) keys.ids.erase(found);  // Else the driver does.
  }
  if (wait && result == CancelResult::running) wait_until_returned(id);
  return result;
}

void TimerService::wait_until_returned(TimerId id) {
  if (on_driver_thread()) return;  // It is the callback itself that asks.
  Shard& shard = shards_[id.shard];
  std::unique_lock lock(pass_lock_);
  pass_changed_.wait(lock, [&] {
    const std::lock_guard shard_lock(shard.lock);
    return shard.find(id) == nullptr;
  });
}

RescheduleResult TimerService::reschedule_at(TimerId id, TimePoint deadline) noexcept {
  if (id.shard > shard_mask_) return RescheduleResult::gone;
  const Tick tick = due_tick(deadline);
  bool earlier = false;
  {
    Shard& shard = shards_[id.shard];
    const std::lock_guard lock(shard.lock);
    Node* const node = shard.find(id);
    if (node == nullptr || shard.closed) return RescheduleResult::gone;
    if (!node->waits()) {
      if (node->state == Node::State::finishing || node->cancelled) return RescheduleResult::gone;
      node->again = true;
      node->due = deadline;
      return RescheduleResult::running;
    }
    shard.arm(*node, deadline, tick);
    earlier = shard.earliest.lower_to(tick);
  }
  if (earlier) told_of(tick);
  return RescheduleResult::moved;
}

RescheduleResult TimerService::reschedule_after(TimerId id, Duration delay) {
  return reschedule_at(id, after(delay));
}

RescheduleResult TimerService::reschedule_at(std::string_view key, TimePoint deadline) {
  const auto id = find(key);
  return id ? reschedule_at(*id, deadline) : RescheduleResult::gone;
}

RescheduleResult TimerService::reschedule_after(std::string_view key, Duration delay) {
  return reschedule_at(key, after(delay));
}

TimerService::Keys& TimerService::keys_of(std::string_view key) const {
  return keys_[Keys::Hash()(key) % key_stripes];
}

std::optional<TimerId> TimerService::find(std::string_view key) const {
  Keys& keys = keys_of(key);
  const std::lock_guard lock(keys.lock);
  const auto found = keys.ids.find(key);
  return found != keys.ids.end() ? std::optional(found->second) : std::nullopt;
}

// Unless another timer has the key by now.
void TimerService::forget_key(const Extra& extra, TimerId id) {
  if (!extra.keyed) return;
  Keys& keys = keys_of(extra.key);
  const std::lock_guard lock(keys.lock);
  const auto found = keys.ids.find(extra.key);
  if (found != keys.ids.end() && found->second == id) keys.ids.erase(found);
}

// Driving

TimerService::Progress TimerService::run_due(std::size_t budget) {
  TARRY_ASSERT(options_.drive != Drive::own_thread, "the service's own thread runs what is due");
  return pass(budget);
}

TimerService::Progress TimerService::pass(std::size_t budget) {
  begin_pass();
  Progress progress;
  for (bool found = true; found && budget > 0 && !stopping_;) {
    found = false;
    const Tick tick = current_tick();
    for (std::uint32_t i = 0; i <= shard_mask_ && budget > 0 && !stopping_; ++i) {
      // A budget that one shard uses up begins with the next one next time.
      Shard& shard = shards_[(first_shard_ + i) & shard_mask_];
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
std::size_t TimerService::run_shard(Shard& shard, std::size_t& budget) noexcept {
  std::size_t fired = 0;
  std::vector<std::unique_ptr<Node[]>> unused;
  shard.lock.lock_as_driver();
  shard.lock.begin_driving();
  while (budget > 0 && !stopping_) {
    if (shard.ready_first == nullptr) {
      const auto progress = shard.wheel.advance(current_tick(), std::min(batch, budget));
      if (shard.ready_first == nullptr) {
        if (!progress.more) break;
        // Many were moved down and none is due yet.
        budget -= std::min(batch, budget);
        shard.lock.unlock();
        shard.lock.lock_as_driver();
        continue;
      }
    }
    Node& node = *shard.ready_first;
    shard.leave_ready(node);
    node.state = Node::State::running;
    ++shard.fired;
    shard.lock.unlock();
    run(node);
    shard.lock.lock_as_driver();
    ++fired;
    --budget;
  }
  if (shard.in_use() == 0 && shard.slabs.size() > 1) unused = shard.drop_slabs();
  shard.lock.end_driving();
  shard.earliest.set(shard.ready_first != nullptr ? 0 : shard.wheel.next_due().value_or(never));
  shard.lock.unlock();
  return fired;
}

// Calls the callback, then arms the timer again or ends it.  No lock is held.
void TimerService::run(Node& node) {
  Shard& shard = *node.shard;
  const TimerId id = shard.id_of(node);
  bool threw = false;
  try {
    node.callback(id);
  } catch (...) {
    threw = true;
    report(id);
  }
  const bool periodic = node.extra && node.extra->repeat != Repeat::never;
  const TimePoint returned = periodic ? now() : TimePoint();
  {
    const std::lock_guard lock(shard.lock);
    shard.thrown += threw;
    if (!node.cancelled && !shard.drained && (node.again || periodic)) {
      const TimePoint next =
          std::exchange(node.again, false) ? node.due : next_run(shard, node, returned);
      shard.arm(node, next, due_tick(next));
      return;
    }
    node.state = Node::State::finishing;
  }
  if (node.extra) forget_key(*node.extra, id);
  node.extra.reset();
  node.callback = {};
  bool waited_for = false;
  {
    const std::lock_guard lock(shard.lock);
    node.cancelled = node.again = false;
    waited_for = std::exchange(node.waited_for, false);
    shard.give_back(node);
    ++shard.finished;
    share_places(shard);
  }
  if (waited_for) {
    { const std::lock_guard lock(pass_lock_); }
    pass_changed_.notify_all();
  }
}

// When a periodic timer that was due at node.due and has `returned` runs next.
TimePoint TimerService::next_run(Shard& shard, const Node& node, TimePoint returned) {
  const Duration period = node.extra->period;
  if (node.extra->repeat == Repeat::fixed_delay) return saturating_add(returned, period);
  const TimePoint next = saturating_add(node.due, period);
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
  alarm_.stay_awake();
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
  return !stopping_ && at != never && at <= current_tick();
}

bool TimerService::on_driver_thread() const {
  return driver_.load() == std::this_thread::get_id();
}

Tick TimerService::current_tick() const {
  const TimePoint time = now();
  if (time <= epoch_) return 0;
  return static_cast<std::uint64_t>((time - epoch_).count()) /
         static_cast<std::uint64_t>(options_.tick.count());
}

Tick TimerService::earliest() const {
  Tick earliest = never;
  for (std::uint32_t i = 0; i <= shard_mask_; ++i) {
    earliest = std::min(earliest, shards_[i].earliest.get());
  }
  return earliest;
}

// By a thread that has scheduled something which is its shard's earliest.
void TimerService::told_of(Tick deadline) {
  alarm_.told_of(deadline, [this](Tick at) {
    alarms_.fetch_add(1, std::memory_order_relaxed);
    if (!stopping_) set_alarm(at);
  });
}

// Under the alarm's lock.
void TimerService::set_alarm(Tick at) {
  if (fd_ < 0) {
    if (options_.alarm) options_.alarm(at == never ? TimePoint::max() : time_of(at));
    return;
  }
  // All zeros would disarm it.
  itimerspec alarm{};
  if (at != never) {
    const auto since_boot = std::max<std::int64_t>(time_of(at).time_since_epoch().count(), 1);
    alarm.it_value.tv_sec = static_cast<std::time_t>(since_boot / 1'000'000'000);
    alarm.it_value.tv_nsec = static_cast<long>(since_boot % 1'000'000'000);
  }
  // It also takes back the readiness of an alarm that went off.
  const int set = ::timerfd_settime(fd_, TFD_TIMER_ABSTIME, &alarm, nullptr);
  TARRY_ASSERT(set == 0, "a timerfd takes every time that is not negative");
}

// The thread of the service has to see that it is to end; any other driver has nothing to do.
Tick TimerService::after_stop() const {
  return options_.drive == Drive::own_thread ? 0 : never;
}

int TimerService::fd() const {
  TARRY_ASSERT(options_.drive == Drive::descriptor, "only Drive::descriptor gives out its fd");
  return fd_;
}

std::optional<TimePoint> TimerService::next_due() const {
  const Tick next = earliest();
  return next == never ? std::nullopt : std::optional(time_of(next));
}

void TimerService::drive() {
  // Signals are for the program's own threads.
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  ::pthread_setname_np(::pthread_self(), "timers");
  while (!stopping_) {
    pollfd wait{.fd = fd_, .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, -1);
    pass(default_budget);
  }
}

// End

std::vector<TimerService::Unprocessed> TimerService::stop() {
  std::vector<Unprocessed> unprocessed;
  if (stopping_.exchange(true)) return unprocessed;
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
  for (std::size_t i = 0; i < key_stripes; ++i) {
    const std::lock_guard lock(keys_[i].lock);
    keys_[i].ids.clear();
  }
  if (!by_callback && thread_.joinable()) thread_.join();
  return unprocessed;
}

void TimerService::drain(Shard& shard, std::vector<Unprocessed>& unprocessed) {
  for (std::uint32_t begin = 0;; begin += Shard::slab_size) {
    // Not under the lock, which cancel() may wait for.
    if (unprocessed.capacity() - unprocessed.size() < Shard::slab_size) {
      unprocessed.reserve(2 * unprocessed.capacity() + Shard::slab_size);
    }
    const std::lock_guard lock(shard.lock);
    shard.drained = true;
    const std::uint32_t end = std::min<std::uint32_t>(begin + Shard::slab_size, shard.fresh);
    for (std::uint32_t i = begin; i < end; ++i) {
      Node& node = shard.slabs[begin / Shard::slab_size][i - begin];
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
    Shard& shard = shards_[i];
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
    stats.bytes += wheel.bytes + shard.slabs.size() * Shard::slab_size * sizeof(Node);
    stats.scheduled += shard.sequence;
    stats.cancelled += shard.cancelled;
    stats.fired += shard.fired;
    stats.thrown += shard.thrown;
    stats.skipped += shard.skipped;
  }
  return stats;
}

}  // namespace tarry::timing
