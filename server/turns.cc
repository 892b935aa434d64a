#include "server/turns.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace tarry::server {
namespace {

using std::chrono::nanoseconds;

// Reading the CPU time of a thread is a system call: not after each of a thousand short turns.
constexpr std::chrono::milliseconds long_turn{1};

// A thread that was away from its core for less has not waited for work.
constexpr std::chrono::microseconds shortest_wait{10};

// The CPU time of turns that lasted long.
class BusyTime {
 public:
  BusyTime(ThreadTime thread_time, WindowedHistogram& busy)
      : thread_time_(thread_time), busy_(busy) {}

  void begin(MonoTime now, nanoseconds used) {
    read_at_ = now;
    used_ = used;
  }

  void turn_ended(nanoseconds took, MonoTime now) {
    if (now - read_at_ < long_turn) return;
    const nanoseconds before = used_;
    begin(now, thread_time_());
    // Turns since the last reading were shorter together than long_turn, so nearly all of it is
    // this one's.
    if (took >= long_turn) busy_.add(whole_microseconds(std::min(took, used_ - before)), now);
  }

 private:
  const ThreadTime thread_time_;
  WindowedHistogram& busy_;
  MonoTime read_at_{};
  nanoseconds used_{};
};

}  // namespace

nanoseconds thread_time() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + nanoseconds(now.tv_nsec);
}

void run_turns(boost::asio::io_context& context, const Clock& clock, WindowedHistogram& turns,
               WindowedHistogram& busy, ThreadTime thread_time, std::atomic<std::uint64_t>* count) {
  BusyTime busy_time(thread_time, busy);
  // This thread alone writes it, so no turn pays for an exclusive access.
  const auto count_turn = [count] {
    if (count != nullptr)
      count->store(count->load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  };
  MonoTime now = clock.mono();
  nanoseconds used = thread_time();
  for (;;) {
    // First everything that is ready.
    busy_time.begin(now, used);
    bool any = false;
    for (; context.poll_one() != 0; any = true) {
      const MonoTime ended = clock.mono();
      turns.add(whole_microseconds(ended - now), ended);
      busy_time.turn_ended(ended - now, ended);
      count_turn();
      now = ended;
    }
    if (any) used = thread_time();
    // Then the work that has to be waited for.  After a wait there is seldom more than one turn to
    // do: a look for more would be another system call.
    for (bool has_waited = true; has_waited;) {
      if (context.run_one() == 0) return;
      const nanoseconds before = std::exchange(used, thread_time());
      const MonoTime began = std::exchange(now, clock.mono());
      const nanoseconds took = used - before;
      const nanoseconds away = now - began - took;
      turns.add(whole_microseconds(took), now);
      count_turn();
      if (took >= long_turn) busy.add(whole_microseconds(took), now);
      // A turn that waits for a lock or a core looks the same; if that takes long, the turns behind
      // it are measured by the clock again.
      has_waited = away > shortest_wait && away < long_turn;
    }
  }
}

}  // namespace tarry::server
