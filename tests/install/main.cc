// Three reminders, of which one is moved and one is cancelled.

#include <timing/timing_wheel.h>

#include <cstdio>

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
}
