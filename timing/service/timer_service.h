#pragma once

// TimerService: timers for multi-threaded programs, on top of TimingWheel.
//
//    TimerService timers;
//    auto id = timers.schedule_after(30s, [] { give_up(); });         // any thread
//    timers.schedule_every(1s, Repeat::fixed_rate, [] { report(); });
//    if (timers.cancel(*id) == CancelResult::cancelled) ...           // give_up() never runs
//
// A wheel belongs to one thread, so the service has several, each with a lock: a shard.  A
// thread always schedules into its own shard, and its lock is nearly never contended: there is
// one shard a thread, until there are more threads than shards.  A driver, one thread at a time,
// runs what is due in all of them.
//
//    thread 1 --schedule--> [lock | wheel | earliest] <--+
//    thread 2 --schedule--> [lock | wheel | earliest] <--+-- run_due() -- own thread, epoll loop,
//    thread 3 --schedule--> [lock | wheel | earliest] <--+                io_context, or a test
//                              ^
//    any thread -- cancel(id) -+   the id names the shard
//
// The driver looks at a shard whose `earliest` has come, without a lock at the others.  It takes
// due timers out of the wheel in small batches, and runs each callback with no lock held.  It
// sleeps until the earliest time of all; a thread that schedules something before that sets the
// alarm earlier (a system call; in the common case, a later deadline, it is one comparison).
//
// Time
//   - Deadlines and periods are std::chrono times of std::chrono::steady_clock, as fine as a
//     nanosecond.  They are rounded up to `tick`, the present is rounded down: no callback runs
//     before its deadline.  It is late by less than a tick, plus what waking up takes, plus the
//     callbacks before it.  A deadline in the past is due at once.
//   - The callbacks of timers that one thread scheduled run in the order of their deadlines,
//     those of one tick in no promised order; those whose deadline had passed when they were
//     scheduled run as soon as they can.  Between the timers of different threads, if they are
//     due by the same wake-up, there is no promised order.
//   - Time in which the machine is suspended does not count.
//   - schedule_after() reads the clock, schedule_at() does not: a thread that schedules millions
//     a second and knows the time already saves half of the cost.
//
// Threads
//   - Every function may be called from any thread, callbacks included, but for run_due() (one
//     thread at a time, never from a callback) and the destructor.
//   - Callbacks run on the driver's thread, one at a time, with no lock held; one that is slow
//     delays the others.  A callback that throws does no harm: on_throw is called, and a periodic
//     one continues.
//   - A callback, with all that it owns, is destroyed with no lock held too: by the driver after
//     its last run, or by the thread that cancelled it.
//
// Cancelling has three answers.
//   cancelled  It was waiting.  The callback does not run (again), whatever the driver is doing.
//   running    The callback is running just now, and is not interrupted.  It is its last run.
//   gone       There is no such timer: it has run, or was cancelled, replaced or handed back by
//              stop() earlier.
// cancel_and_wait() answers the same, and in the case of `running` returns when the callback has
// returned and is destroyed.  So after it, whatever the answer, the callback is not running and
// its references may become invalid.  (Called by the callback itself, it does not wait.)
//
// Bounds: at most max_pending timers exist, each from its scheduling until its callback has
// returned for the last time or it is cancelled; one more is refused (Refusal::full) and its
// callback destroyed.  A timer that schedules itself again does so best by reschedule or as a
// periodic one: neither needs a second place.  Memory: 128 bytes and what the wheel needs for a
// timer, from a free list that is given back once a shard is empty.
//
// Errors: a refusal is a value.  Only the constructor throws (std::system_error: no descriptor, no
// thread), and a callback's or key's copy for want of memory, before anything is changed.  When
// memory runs out within the service itself the program ends.
//
// End: stop() refuses timers that are scheduled from then on, waits for the callback that is
// running, ends the service's thread and hands back every timer that did not run (no more).  The
// destructor does so too and destroys them; it may not be called from a callback.  Ids stay safe
// to use as long as the service lives.

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "timing/service/driver_alarm.h"
#include "timing/service/tick_clock.h"
#include "timing/service/timer_callback.h"
#include "timing/service/timer_descriptor.h"
#include "timing/service/timer_id.h"
#include "timing/service/timer_keys.h"
#include "timing/service/timer_places.h"
#include "timing/service/timer_results.h"
#include "timing/service/timer_service_options.h"
#include "timing/timing_wheel.h"

namespace tarry::timing {

// In timer_shard.h, which is not installed.
struct TimerExtra;
struct TimerNode;
struct TimerShard;

class TimerService {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::nanoseconds;

  explicit TimerService(TimerServiceOptions options = {});
  TimerService(const TimerService&) = delete;
  TimerService& operator=(const TimerService&) = delete;
  ~TimerService();

  Scheduled schedule_at(TimePoint deadline, TimerCallback callback);
  Scheduled schedule_after(Duration delay, TimerCallback callback);

  // The first run at `first`, or after one period.
  Scheduled schedule_every(TimePoint first, Duration period, Repeat repeat, TimerCallback callback);
  Scheduled schedule_every(Duration period, Repeat repeat, TimerCallback callback);

  // Keyed timers: the same key again replaces the timer that has it, which is cancelled (if its
  // callback is running it is its last run).  Replacing needs no place of its own unless the old
  // callback is running; when it is refused, the old timer stays as it was.
  Scheduled schedule_at(std::string_view key, TimePoint deadline, TimerCallback callback);
  Scheduled schedule_after(std::string_view key, Duration delay, TimerCallback callback);
  Scheduled schedule_every(std::string_view key, Duration period, Repeat repeat,
                           TimerCallback callback);

  CancelResult cancel(TimerId id);
  CancelResult cancel(std::string_view key);
  CancelResult cancel_and_wait(TimerId id);
  CancelResult cancel_and_wait(std::string_view key);

  // Moves the next run, earlier or later.  A fixed rate counts on from there.
  RescheduleResult reschedule_at(TimerId id, TimePoint deadline) noexcept;
  RescheduleResult reschedule_after(TimerId id, Duration delay);
  RescheduleResult reschedule_at(std::string_view key, TimePoint deadline);
  RescheduleResult reschedule_after(std::string_view key, Duration delay);

  // The timer that has this key, if there is one.
  std::optional<TimerId> find(std::string_view key) const;

  // A timer that stop() took out.  A periodic one had its next run before it.
  struct Unprocessed {
    TimerId id;
    TimePoint deadline;
    Repeat repeat = Repeat::never;
    Duration period{};
    std::string key;  // Empty when it has none.
    TimerCallback callback;
  };

  // In no promised order.  The second call returns nothing, at once.  When a callback calls it,
  // that callback's own timer is not among them.
  std::vector<Unprocessed> stop();

  // Drivers.

  // Readable (level-triggered) while run_due() has work; it is never to be read.  With
  // Drive::descriptor alone; closed by the destructor.
  int fd() const;

  struct Progress {
    std::size_t fired = 0;
    bool more = false;  // Something is due still: the budget is used up.
  };
  static constexpr std::size_t default_budget = 1024;

  // Runs what is due, as far as `budget` goes: each callback takes one, and so does each timer
  // of a large bucket that is moved down.  Not with Drive::own_thread.
  Progress run_due(std::size_t budget = default_budget);

  // When run_due() has work next: never later than the earliest deadline, sometimes earlier.
  std::optional<TimePoint> next_due() const;

  struct Stats {
    // The levels of all shards together.
    std::array<TimingWheel::LevelStats, DelayQueue::level_count> levels{};
    std::size_t pending = 0;  // Timers that exist, also those whose callback is running.
    std::size_t bytes = 0;    // Wheels and nodes, without what callbacks own.
    // Ever.
    std::uint64_t scheduled = 0;
    std::uint64_t cancelled = 0;  // With those that were replaced.
    std::uint64_t fired = 0;
    std::uint64_t thrown = 0;
    std::uint64_t skipped = 0;  // Runs of a fixed rate that were missed.
    std::uint64_t refused = 0;
    std::uint64_t alarms = 0;  // How often the driver was told of an earlier deadline.
  };
  // Locks one shard after the other.
  Stats stats() const;

 private:
  TimerShard& own_shard();
  Scheduled add_periodic(TimePoint first, Duration period, Repeat repeat, TimerCallback& callback);
  Scheduled add_keyed(std::string_view key, TimePoint first, Duration period, Repeat repeat,
                      TimerCallback& callback);
  Scheduled add(TimePoint deadline, TimerCallback& callback,
                std::unique_ptr<TimerExtra> extra) noexcept;
  std::optional<TimerId> replace(TimerId old, TimePoint deadline, TimerCallback& callback,
                                 std::unique_ptr<TimerExtra>& extra) noexcept;
  void find_places(TimerShard& shard);
  CancelResult take_out(TimerId id, bool wait, TimerCallback& callback,
                        std::unique_ptr<TimerExtra>& extra);
  CancelResult cancel(TimerId id, bool wait);
  CancelResult cancel(std::string_view key, bool wait);
  void wait_until_returned(TimerId id);

  Progress pass(std::size_t budget);
  std::size_t run_shard(TimerShard& shard, std::size_t& budget) noexcept;
  void run(TimerNode& node);
  TimePoint next_run(TimerShard& shard, const TimerNode& node, TimePoint returned);
  void report(TimerId id) const noexcept;
  void begin_pass();
  bool end_pass();
  bool on_driver_thread() const;
  Tick earliest() const;
  void on_earlier_deadline(Tick deadline);
  void set_alarm(Tick at);
  Tick after_stop() const;
  void drive();
  void drain(TimerShard& shard, std::vector<Unprocessed>& unprocessed);

  const TimerServiceOptions options_;
  const TickClock clock_;
  TimerDescriptor descriptor_;  // None with Drive::manual.
  const std::uint32_t shard_mask_;
  const std::unique_ptr<TimerShard[]> shards_;
  TimerKeys keys_;

  alignas(64) TimerPlaces places_;  // The places that no shard holds for its own.
  std::atomic<std::uint64_t> refused_{0};

  alignas(64) DriverAlarm<> alarm_;
  std::atomic<std::uint64_t> alarms_{0};

  alignas(64) mutable std::mutex pass_lock_;
  std::condition_variable pass_changed_;  // A pass ended, or a callback that is waited for did.
  bool in_pass_ = false;                  // Under pass_lock_.
  // The thread whose pass it is; no thread's between passes.
  std::atomic<std::thread::id> driver_{};
  std::atomic<bool> stopping_{false};
  std::uint32_t first_shard_ = 0;  // The next pass begins there; the driver's own.
  std::thread thread_;
};

}  // namespace tarry::timing
