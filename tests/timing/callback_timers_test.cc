// CallbackTimers: handles that never name a stranger, and callbacks that do as they like.

#include "timing/callback_timers.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace tarry::timing {
namespace {

using Handle = CallbackTimers::Handle;

TEST_SUITE("callback timers") {
  TEST_CASE(
      "a callback is called once, at its deadline, and may hold values that cannot be copied") {
    TimingWheel wheel;
    CallbackTimers callbacks(wheel);
    int sum = 0;
    const Handle handle =
        callbacks.schedule(70'000, [&sum, held = std::make_unique<int>(7)] { sum += *held; });
    CHECK(callbacks.deadline(handle) == 70'000);
    wheel.advance(69'999);
    CHECK(sum == 0);
    CHECK(callbacks.size() == 1);
    wheel.advance(70'000);
    wheel.advance(80'000);
    CHECK(sum == 7);
    CHECK(callbacks.size() == 0);
    CHECK_FALSE(callbacks.deadline(handle).has_value());
  }

  TEST_CASE("a cancelled callback is not called, and its captures are destroyed at once") {
    TimingWheel wheel;
    CallbackTimers callbacks(wheel);
    const auto held = std::make_shared<int>(0);
    const Handle handle = callbacks.schedule(10, [held] { ++*held; });
    CHECK(held.use_count() == 2);
    CHECK(callbacks.cancel(handle));
    CHECK(held.use_count() == 1);
    CHECK_FALSE(callbacks.cancel(handle));
    CHECK(wheel.empty());
    wheel.advance(10);
    CHECK(*held == 0);
  }

  TEST_CASE("a handle that is kept too long does not touch the timer that has its node since") {
    TimingWheel wheel;
    CallbackTimers callbacks(wheel);
    int called = 0;
    const Handle old = callbacks.schedule(10, [] {});
    wheel.advance(10);
    const Handle fresh = callbacks.schedule(20, [&] { ++called; });
    CHECK_FALSE(callbacks.cancel(old));
    CHECK_FALSE(callbacks.reschedule(old, 1000));
    CHECK_FALSE(callbacks.deadline(old).has_value());
    CHECK_FALSE(callbacks.cancel(Handle{}));
    CHECK(callbacks.deadline(fresh) == 20);
    wheel.advance(20);
    CHECK(called == 1);
  }

  TEST_CASE("a deadline can be moved either way") {
    TimingWheel wheel;
    CallbackTimers callbacks(wheel);
    std::vector<Tick> called;
    const Handle later = callbacks.schedule(10, [&] { called.push_back(wheel.now()); });
    const Handle earlier = callbacks.schedule(100'000, [&] { called.push_back(wheel.now()); });
    CHECK(callbacks.reschedule(later, 300));
    CHECK(callbacks.reschedule(earlier, 5));
    for (Tick now = 0; now <= 400; ++now) wheel.advance(now);
    CHECK(called == std::vector<Tick>{5, 300});
  }

  TEST_CASE("while a callback runs its handle names nothing, and its node may be taken") {
    TimingWheel wheel;
    CallbackTimers callbacks(wheel);
    Handle handle;
    int called = 0;
    handle = callbacks.schedule(1, [&] {
      CHECK_FALSE(callbacks.cancel(handle));
      for (int i = 0; i < 100; ++i) callbacks.schedule(2, [&] { ++called; });
      CHECK_FALSE(callbacks.reschedule(handle, 50));
    });
    wheel.advance(1);
    CHECK(callbacks.size() == 100);
    wheel.advance(2);
    CHECK(called == 100);
  }

  TEST_CASE("a callback may destroy all callbacks, its own too") {
    TimingWheel wheel;
    auto callbacks = std::make_unique<CallbackTimers>(wheel);
    const auto held = std::make_shared<int>(0);
    for (int i = 0; i < 200; ++i) {
      callbacks->schedule(5, [&callbacks, held] {
        ++*held;
        callbacks.reset();
      });
    }
    wheel.advance(5);
    CHECK(*held == 1);
    CHECK(held.use_count() == 1);
    CHECK(wheel.empty());
  }

  TEST_CASE("a callback's captures may cancel other timers as they are destroyed") {
    struct Canceller {
      CallbackTimers* callbacks;
      Handle handle;
      ~Canceller() {
        if (callbacks != nullptr) callbacks->cancel(handle);
      }
      Canceller(CallbackTimers* c, Handle h) : callbacks(c), handle(h) {}
      Canceller(Canceller&& other) noexcept
          : callbacks(std::exchange(other.callbacks, nullptr)), handle(other.handle) {}
    };
    TimingWheel wheel;
    CallbackTimers callbacks(wheel);
    std::vector<Handle> handles(1);
    for (int i = 0; i < 100; ++i) {
      handles.push_back(
          callbacks.schedule(9, [guard = Canceller(&callbacks, handles.back())] { (void)guard; }));
    }
    CHECK(callbacks.cancel(handles.back()));  // Takes all others along.
    CHECK(callbacks.size() == 0);
    for (int i = 0; i < 10; ++i) {
      callbacks.schedule(9, [guard = Canceller(&callbacks, handles.back())] { (void)guard; });
    }
  }

  TEST_CASE("nodes are reused: a long life of few callbacks takes no more memory") {
    TimingWheel wheel;
    CallbackTimers callbacks(wheel);
    std::vector<Handle> handles(10);
    callbacks.schedule(1, [] {});
    const std::size_t bytes = callbacks.bytes();
    for (Tick now = 1; now < 10'000; ++now) {
      Handle& handle = handles[now % 10];
      callbacks.cancel(handle);
      handle = callbacks.schedule(now + now % 17, [] {});
      wheel.advance(now);
    }
    CHECK(callbacks.bytes() == bytes);
  }

  TEST_CASE("random callbacks are called exactly when a map of them says") {
    const char* given = std::getenv("TARRY_SEED");
    const std::uint64_t seed = given != nullptr ? std::stoull(given) : std::random_device{}();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    TimingWheel wheel;
    CallbackTimers callbacks(wheel);
    std::map<int, std::pair<Handle, Tick>> expected;
    std::vector<Handle> gone;
    Tick now = 0;
    int next = 0;
    const std::function<void()> step = [&] {
      const Tick deadline = now + random() % (Tick{1} << random() % 20);
      auto some = expected.lower_bound(static_cast<int>(random() % 1000) + next - 1000);
      switch (random() % 4) {
        case 0:
          if (some == expected.end()) return;
          REQUIRE(callbacks.cancel(some->second.first));
          gone.push_back(some->second.first);
          expected.erase(some);
          return;
        case 1:
          if (some == expected.end()) return;
          REQUIRE(callbacks.reschedule(some->second.first, deadline));
          some->second.second = deadline;
          return;
        case 2:
          if (gone.empty()) return;
          REQUIRE_FALSE(callbacks.cancel(gone[random() % gone.size()]));
          return;
        default: {
          const int number = next++;
          const Handle handle = callbacks.schedule(deadline, [&, number] {
            const auto found = expected.find(number);
            REQUIRE(found != expected.end());
            REQUIRE(found->second.second <= wheel.now());
            gone.push_back(found->second.first);
            expected.erase(found);
            if (random() % 3 == 0) step();
          });
          expected[number] = {handle, deadline};
        }
      }
    };
    for (int i = 0; i < 100'000; ++i) {
      step();
      if (i % 8 != 0) continue;
      now += random() % 50;
      while (wheel.advance(now, 1 + random() % 10).more) {
        if (random() % 10 == 0) break;
      }
      REQUIRE(callbacks.size() == expected.size());
    }
    // Timers that its callbacks schedule take more than one more.
    for (int i = 0; i < 1000 && !expected.empty(); ++i) wheel.advance(now += 1 << 21);
    CHECK(expected.empty());
    CHECK(wheel.empty());
  }
}

}  // namespace
}  // namespace tarry::timing
