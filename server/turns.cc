#include "server/turns.h"

#include <time.h>

#include <chrono>

namespace tarry::server {
namespace {

std::chrono::nanoseconds thread_time() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace

void run_turns(boost::asio::io_context& context, const Clock& clock, WindowedHistogram& turns) {
  for (;;) {
    for (MonoTime began = clock.mono(); context.poll_one() != 0;) {
      const MonoTime ended = clock.mono();
      turns.add(whole_microseconds(ended - began), ended);
      began = ended;
    }
    const auto before = thread_time();
    if (context.run_one() == 0) return;
    turns.add(whole_microseconds(thread_time() - before), clock.mono());
  }
}

}  // namespace tarry::server
