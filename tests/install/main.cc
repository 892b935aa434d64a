// Three reminders, of which one is moved and one is cancelled, and an alarm on another thread.

#include <timing/service/timer_service.h>
#include <timing/timing_wheel.h>

#include <chrono>
#include <cstdio>
#include <future>

int main() {
  using tarry::timing::CallbackTimer;
  tarry::timing::TimingWheel wheel;
  CallbackTimer tea([] { std::puts("tea is ready"); });
  CallbackTimer nap([] { std::puts("the nap is over"); });
  CallbackTimer call([] { std::puts("nobody hears this"); });
  wheel.schedule(tea, 180'000);
  wheel.schedule(nap, 60'000);
  wheel.schedule(call, 90'000);
  wheel.reschedule(nap, 1'200'000);
  wheel.cancel(call);
  while (const auto due = wheel.next_due()) wheel.advance(*due);
  std::printf("%llu ms later\n", static_cast<unsigned long long>(wheel.now()));

  std::promise<void> rang;
  tarry::timing::TimerService timers;
  const auto alarm =
      timers.schedule_after(std::chrono::milliseconds(20), [&] { rang.set_value(); });
  if (!alarm) return 1;
  rang.get_future().wait();
  std::puts("the alarm rang");
}
