#include "server/turns.h"

#include <time.h>

#include <algorithm>
#include <chrono>

namespace tarry::server {
namespace {

using std::chrono::nanoseconds;

// Reading the CPU time of a thread is a system call: not after each of a thousand short turns.
constexpr std::chrono::milliseconds long_turn{1};

// The CPU time of turns that lasted long.
class BusyTime {
 public:
  BusyTime(ThreadTime thread_time, WindowedHistogram& busy)
      : thread_time_(thread_time), busy_(busy) {}

  void begin(MonoTime now) {
    read_at_ = now;
    used_ = thread_time_();
  }

  void turn_ended(nanoseconds took, MonoTime now) {
    if (now - read_at_ < long_turn) return;
    const nanoseconds before = used_;
    begin(now);
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
  for (;;) {
    MonoTime began = clock.mono();
    for (busy_time.begin(began); context.poll_one() != 0;) {
      const MonoTime ended = clock.mono();
      turns.add(whole_microseconds(ended - began), ended);
      busy_time.turn_ended(ended - began, ended);
      count_turn();
      began = ended;
    }
    const nanoseconds before = thread_time();
    if (context.run_one() == 0) return;
    const nanoseconds used = thread_time() - before;
    const MonoTime now = clock.mono();
    turns.add(whole_microseconds(used), now);
    count_turn();
    if (used >= long_turn) busy.add(whole_microseconds(used), now);
  }
}

}  // namespace tarry::server
