// TimingWheel against hand-picked edges, then against a model: a sorted map that is too slow to
// ship and too simple to be wrong.

#include "timing/timing_wheel.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tarry::timing {
namespace {

constexpr Tick last_tick = std::numeric_limits<Tick>::max();

// Counts how often it fired, and when.
class CountingTimer final : public Timer {
 public:
  explicit CountingTimer(const TimingWheel& wheel) : wheel_(wheel) {}
  int fired = 0;
  Tick fired_at = 0;
  std::function<void()> then;  // Runs in the callback; may destroy us.

 private:
  void on_expired() override {
    ++fired;
    fired_at = wheel_.now();
    if (const auto last_words = then) last_words();
  }
  const TimingWheel& wheel_;
};

// Every power of 256 with its neighbours, the halves of the range, and both ends.
std::vector<Tick> edges() {
  std::set<Tick> edges{0, 1, 2, 63, 64, 65, last_tick - 1, last_tick};
  for (unsigned shift = 8; shift < 64; shift += 8) {
    for (const Tick factor : {1, 2, 255}) {
      const Tick edge = factor << shift;
      edges.insert({edge - 1, edge, edge + 1});
    }
  }
  const Tick half = Tick{1} << 63;
  edges.insert({half - 1, half, half + 1});
  return {edges.begin(), edges.end()};
}

// Advances as a driver does: from one next_due() to the next, so often at most.
int drive_to(TimingWheel& wheel, Tick end) {
  int steps = 0;
  while (wheel.next_due() && *wheel.next_due() <= end && steps < 10'000) {
    wheel.advance(*wheel.next_due());
    ++steps;
  }
  wheel.advance(end);
  return steps;
}

TEST_SUITE("timing wheel") {
  TEST_CASE("a timer fires in the tick of its deadline and not in the one before, at every edge") {
    for (const Tick start : edges()) {
      for (const Tick deadline : edges()) {
        if (deadline <= start) continue;
        CAPTURE(start);
        CAPTURE(deadline);
        TimingWheel wheel(start);
        CountingTimer timer(wheel);
        wheel.schedule(timer, deadline);
        REQUIRE(wheel.next_due().has_value());
        REQUIRE(*wheel.next_due() <= deadline);
        REQUIRE(*wheel.next_due() > start);

        REQUIRE(wheel.advance(deadline - 1).fired == 0);
        REQUIRE(timer.armed());
        REQUIRE(*wheel.next_due() == deadline);
        REQUIRE(wheel.advance(deadline).fired == 1);
        REQUIRE(timer.fired == 1);
        REQUIRE_FALSE(timer.armed());
        REQUIRE_FALSE(wheel.next_due().has_value());
        REQUIRE(wheel.empty());
      }
    }
  }

  TEST_CASE("a driver that sleeps until next_due() wakes at most once a level for one timer") {
    for (const Tick deadline : edges()) {
      CAPTURE(deadline);
      TimingWheel wheel;
      CountingTimer timer(wheel);
      wheel.schedule(timer, deadline);
      REQUIRE(drive_to(wheel, last_tick) <= 8);
      REQUIRE(timer.fired == 1);
      REQUIRE(timer.fired_at == deadline);
    }
  }

  TEST_CASE("one jump fires everything on its way, in the order of deadlines") {
    TimingWheel wheel;
    std::vector<std::unique_ptr<CountingTimer>> timers;
    std::vector<Tick> deadlines = edges();
    std::shuffle(deadlines.begin(), deadlines.end(), std::mt19937_64{1});
    std::vector<Tick> fired;
    for (const Tick deadline : deadlines) {
      timers.push_back(std::make_unique<CountingTimer>(wheel));
      timers.back()->then = [&fired, deadline] { fired.push_back(deadline); };
      wheel.schedule(*timers.back(), deadline);
    }
    CHECK(wheel.size() == deadlines.size());
    CHECK(wheel.advance(last_tick).fired == deadlines.size());
    CHECK(fired == edges());
  }

  TEST_CASE(
      "steps of a millisecond, a day and a century each fire exactly the timers within them") {
    constexpr Tick day = 86'400'000, century = 36'525 * day;
    TimingWheel wheel(123'456);
    Tick now = 123'456;
    for (const Tick step : {Tick{1}, day, century, Tick{1}, century, day}) {
      CountingTimer inside(wheel), at_end(wheel), beyond(wheel);
      wheel.schedule(inside, now + (step + 1) / 2);
      wheel.schedule(at_end, now + step);
      wheel.schedule(beyond, now + step + 1);
      now += step;
      CHECK(wheel.advance(now).fired == 2);
      CHECK(beyond.armed());
    }
    CHECK(wheel.empty());
  }

  TEST_CASE("a deadline that has passed fires in the next advance, though time stands still") {
    TimingWheel wheel(1000);
    CountingTimer past(wheel), present(wheel), zero(wheel);
    wheel.schedule(past, 999);
    wheel.schedule(present, 1000);
    wheel.schedule(zero, 0);
    CHECK(past.fired == 0);
    CHECK(wheel.next_due() == 1000);
    CHECK(wheel.stats().overdue == 3);
    CHECK(wheel.advance(1000).fired == 3);
    CHECK(wheel.empty());
  }

  TEST_CASE("time does not go back") {
    TimingWheel wheel(1000);
    CountingTimer timer(wheel);
    wheel.schedule(timer, 1500);
    wheel.advance(1400);
    wheel.advance(3);
    CHECK(wheel.now() == 1400);
    CHECK(wheel.advance(1500).fired == 1);
  }

  TEST_CASE("an idle wheel has nothing due, however far time has gone") {
    TimingWheel wheel;
    CHECK_FALSE(wheel.next_due().has_value());
    CHECK_FALSE(wheel.advance(last_tick).more);
    CHECK(wheel.stats().bytes < 1024);
    for (const auto& level : wheel.stats().levels) CHECK_FALSE(level.exists);
  }

  TEST_CASE(
      "time that passed while nothing was due does not make next_due() name a time too early") {
    TimingWheel wheel;
    CountingTimer timer(wheel);
    wheel.advance(1000);
    wheel.schedule(timer, 1001);
    CHECK(wheel.next_due() == 1001);
    wheel.cancel(timer);
    wheel.advance(5000, 1);
    wheel.schedule(timer, 5100);
    CHECK(wheel.next_due() == 5100);
  }

  TEST_CASE("a later fine timer does not hide an earlier coarse one from next_due()") {
    TimingWheel wheel;
    CountingTimer coarse(wheel), fine(wheel);
    wheel.schedule(coarse, 300);  // On level 1.
    wheel.advance(255);
    wheel.schedule(fine, 65'537);  // On level 2.
    CHECK(wheel.next_due() == 256);
    wheel.advance(256);
    CHECK(wheel.next_due() == 300);
    wheel.schedule(fine, 301);
    CHECK(wheel.next_due() == 300);
  }

  TEST_CASE("a deadline that is moved later does not fire at the old one, however often") {
    TimingWheel wheel;
    CountingTimer timer(wheel);
    wheel.schedule(timer, 100);
    for (Tick now = 0; now < 100'000; now += 37) {
      wheel.advance(now);
      REQUIRE(wheel.reschedule(timer, now + 100));
      REQUIRE(timer.deadline() == now + 100);
      REQUIRE(*wheel.next_due() <= now + 100);
    }
    CHECK(timer.fired == 0);
    const Tick deadline = timer.deadline();
    wheel.advance(deadline - 1);
    CHECK(timer.fired == 0);
    wheel.advance(deadline);
    CHECK(timer.fired == 1);
    CHECK_FALSE(wheel.reschedule(timer, deadline + 1));
  }

  TEST_CASE("a deadline moved later and then earlier again fires at the last one") {
    TimingWheel wheel;
    for (const Tick final : {1, 50, 100, 150, 255, 256, 300, 70'000}) {
      const Tick now = wheel.now();
      CAPTURE(final);
      CountingTimer timer(wheel);
      wheel.schedule(timer, now + 100);
      wheel.reschedule(timer, now + 100'000);
      wheel.reschedule(timer, now + final);
      wheel.advance(now + final - 1);
      CHECK(timer.fired == 0);
      wheel.advance(now + final);
      CHECK(timer.fired == 1);
    }
  }

  TEST_CASE("a timer moved later on level 0 or in the past is upgraded, and counted so") {
    TimingWheel wheel;
    CountingTimer near(wheel), overdue(wheel);
    wheel.schedule(near, 10);
    wheel.schedule(overdue, 0);
    wheel.reschedule(near, 70'000);
    wheel.reschedule(overdue, 300);
    CHECK(wheel.advance(10).fired == 0);
    const auto stats = wheel.stats();
    CHECK(stats.levels[0].timers == 0);
    CHECK(stats.levels[1].upgrades == 1);
    CHECK(stats.levels[2].upgrades == 1);
    CHECK(stats.levels[2].timers == 1);
    CHECK(drive_to(wheel, 100'000) >= 3);
    CHECK(near.fired_at == 70'000);
    CHECK(overdue.fired_at == 300);
  }

  TEST_CASE("stats count timers, buckets, upgrades and downgrades of each level") {
    TimingWheel wheel;
    CountingTimer a(wheel), b(wheel), c(wheel), d(wheel);
    wheel.schedule(a, 1);
    wheel.schedule(b, 70'000);  // Level 2: 1, level 1: 17, level 0: 112.
    wheel.schedule(c, 70'001);
    wheel.schedule(d, 2 * 65'536);
    auto stats = wheel.stats();
    CHECK(stats.levels[0].timers == 1);
    CHECK_FALSE(stats.levels[1].exists);
    CHECK(stats.levels[2].timers == 3);
    CHECK(stats.levels[2].buckets == 2);
    CHECK(stats.levels[2].upgrades == 3);
    // The digits of the deadlines.
    CHECK(stats.levels[0].used == DelayQueue::Bits{1 << 1});
    CHECK(stats.levels[1].used == DelayQueue::Bits{});
    CHECK(stats.levels[2].used == DelayQueue::Bits{1 << 1 | 1 << 2});
    CHECK(stats.placed_from == 0);

    wheel.advance(65'536);
    stats = wheel.stats();
    CHECK(stats.levels[1].used == DelayQueue::Bits{1 << 17});
    CHECK(stats.placed_from == 65'536);
    CHECK(stats.levels[1].timers == 2);
    CHECK(stats.levels[1].buckets == 1);
    CHECK(stats.levels[1].downgrades == 2);
    wheel.advance(69'999);
    stats = wheel.stats();
    CHECK(stats.levels[0].timers == 2);
    CHECK(stats.levels[0].downgrades == 2);
    CHECK(stats.levels[2].buckets == 1);
  }

  TEST_CASE("a budget of one fires a crowded tick one by one, and misses none") {
    TimingWheel wheel;
    constexpr int count = 1000;
    std::vector<std::unique_ptr<CountingTimer>> timers;
    for (int i = 0; i < count; ++i) {
      timers.push_back(std::make_unique<CountingTimer>(wheel));
      wheel.schedule(*timers.back(), 70'000);
    }
    int steps = 0, fired = 0;
    TimingWheel::Progress progress{.fired = 0, .more = true};
    while (progress.more) {
      progress = wheel.advance(80'000, 1);
      REQUIRE(progress.fired <= 1);
      if (progress.more) REQUIRE(wheel.next_due() == 80'000);
      fired += static_cast<int>(progress.fired);
      ++steps;
    }
    CHECK(fired == count);
    CHECK(steps == 3 * count);  // Twice moved down, once fired.
    CHECK(wheel.empty());
    for (const auto& timer : timers) CHECK(timer->fired == 1);
  }

  TEST_CASE("a bucket of a million is moved down and fired in steps of one, and none is early") {
    constexpr std::size_t count = 1'000'000;
    constexpr Tick begin = Tick{1} << 24;  // Where their bucket of level 3 begins.
    struct Plain final : Timer {
      void on_expired() override { ++*fired; }
      std::size_t* fired = nullptr;
    };
    TimingWheel wheel;
    std::size_t fired = 0, steps = 0;
    const auto timers = std::make_unique<Plain[]>(count);
    for (std::size_t i = 0; i < count; ++i) {
      timers[i].fired = &fired;
      wheel.schedule(timers[i], begin + 0x20'0000 + i % 2 * 0x1'0000);
    }
    REQUIRE(wheel.stats().levels[3].buckets == 1);
    CHECK(wheel.next_due() == begin);
    // One level down, each in its own step, with the moment always named as the next one.
    while (wheel.advance(begin, 1).more) {
      ++steps;
      REQUIRE(*wheel.next_due() == begin);
    }
    CHECK(steps == count - 1);
    CHECK(fired == 0);
    CHECK(wheel.stats().levels[2].downgrades == count);
    CHECK(wheel.next_due() == begin + 0x20'0000);

    // The first half's deadline: some are cancelled, moved away or destroyed in the middle of it.
    steps = 0;
    std::size_t cancelled = 0, moved = 0;
    while (wheel.advance(begin + 0x20'0000, 1).more) {
      if (++steps % 1000 != 0) continue;
      if (wheel.cancel(timers[steps])) ++cancelled;
      if (wheel.reschedule(timers[2 * (steps / 2) + 2], begin + 0x21'0000)) ++moved;
    }
    CHECK(cancelled > 200);
    CHECK(moved > 200);
    std::size_t in_second_half = 0;
    for (std::size_t i = 0; i < count; ++i) in_second_half += timers[i].armed();
    CHECK(fired == count - cancelled - in_second_half);
    CHECK(wheel.size() == in_second_half);
    while (wheel.advance(begin + 0x21'0000, 1).more) {
    }
    CHECK(fired == count - cancelled);
    CHECK(wheel.empty());
  }

  TEST_CASE("a jump of a century does no more work than moving a timer down from level to level") {
    constexpr Tick century = Tick{36'525} * 86'400'000;
    TimingWheel wheel(1);
    CountingTimer end(wheel), day(wheel);
    wheel.schedule(day, 86'400'000);
    wheel.schedule(end, 1 + century);
    // 2^41 < a century < 2^48: at most six levels each.
    const auto progress = wheel.advance(1 + century, 12);
    CHECK(progress.fired == 2);
    CHECK_FALSE(progress.more);
    CHECK(end.fired_at == 1 + century);
  }

  TEST_CASE("timers of one tick fire in an order that is always the same") {
    const auto order = [](std::size_t budget) {
      TimingWheel wheel;
      std::vector<int> fired;
      std::vector<std::unique_ptr<CountingTimer>> timers;
      for (int i = 0; i < 500; ++i) {
        timers.push_back(std::make_unique<CountingTimer>(wheel));
        timers.back()->then = [&fired, i] { fired.push_back(i); };
        wheel.schedule(*timers.back(), i % 3 == 0 ? 1000 : 1000 + static_cast<Tick>(i % 2));
        if (i % 7 == 0) wheel.cancel(*timers[static_cast<std::size_t>(i / 2)]);
      }
      while (wheel.advance(1001, budget).more) {
      }
      return fired;
    };
    CHECK(order(TimingWheel::unlimited) == order(TimingWheel::unlimited));
    CHECK(order(TimingWheel::unlimited) == order(3));
  }

  TEST_CASE("a timer can be cancelled or moved while its bucket is half moved down") {
    for (std::size_t interrupted_after = 1; interrupted_after < 400; interrupted_after += 7) {
      TimingWheel wheel;
      std::vector<std::unique_ptr<CountingTimer>> timers;
      for (Tick i = 0; i < 200; ++i) {
        timers.push_back(std::make_unique<CountingTimer>(wheel));
        wheel.schedule(*timers.back(), 512 + i);
      }
      wheel.advance(700, interrupted_after);
      std::set<std::size_t> moved;
      for (std::size_t i = 0; i < 200; i += 3) {
        if (!timers[i]->armed()) continue;
        if (i % 2 == 0) {
          wheel.cancel(*timers[i]);
        } else {
          wheel.reschedule(*timers[i], 600 + i % 7 * 50);
          moved.insert(i);
        }
      }
      std::vector<int> fired_before;
      for (const auto& timer : timers) fired_before.push_back(timer->fired);
      while (wheel.advance(711, 3).more) {
      }
      wheel.advance(2000);
      for (std::size_t i = 0; i < 200; ++i) {
        const bool cancelled = i % 3 == 0 && i % 2 == 0 && fired_before[i] == 0;
        REQUIRE(timers[i]->fired == (cancelled ? 0 : 1));
        if (moved.contains(i)) REQUIRE(timers[i]->fired_at >= 600 + i % 7 * 50);
      }
      CHECK(wheel.empty());
    }
  }

  TEST_CASE("a place left by a cancel counts as empty, whatever comes after") {
    // Timers `first` and then `second` of `count` in one bucket leave; then something else comes.
    for (int count = 1; count <= 64; count += count < 4 ? 1 : 20) {
      for (int first = 0; first < count; ++first) {
        for (int second = 0; second < count; second += 1 + count / 8) {
          for (const char* then :
               {"nothing", "same", "other", "late", "advance", "move", "cancel"}) {
            CAPTURE(count);
            CAPTURE(first);
            CAPTURE(second);
            CAPTURE(then);
            TimingWheel wheel;
            std::vector<std::unique_ptr<CountingTimer>> timers;
            for (int i = 0; i < count; ++i) {
              timers.push_back(std::make_unique<CountingTimer>(wheel));
              wheel.schedule(*timers.back(), 1000);
            }
            CountingTimer more(wheel);
            std::size_t size = timers.size();
            int due = count;
            const auto leave = [&](int i) {
              const auto index = static_cast<std::size_t>(i);
              if (timers[index] == nullptr) return;
              timers[index].reset();  // Cancelled, and its memory is nobody's.
              --size;
              --due;
            };
            const auto check = [&] {
              REQUIRE(wheel.size() == size);
              REQUIRE(wheel.empty() == (size == 0));
              REQUIRE(wheel.next_due().has_value() == (size != 0));
              const auto stats = wheel.stats();
              std::size_t on_levels = stats.overdue;
              for (const auto& level : stats.levels) on_levels += level.timers;
              REQUIRE(on_levels == size);
            };
            leave(first);
            check();
            const std::string_view next = then;
            if (next == "same" || next == "other" || next == "late") {
              wheel.schedule(more, next == "same" ? 1000 : next == "other" ? 5 : 0);
              ++size;
              ++due;
            } else if (next == "advance") {
              REQUIRE(wheel.advance(900).fired == 0);
            } else if (next == "move") {
              const auto& last = timers.back();
              if (last != nullptr) wheel.reschedule(*last, 999);
            } else if (next == "cancel") {
              for (int i = count - 1; i >= count / 2; --i) leave(i);
            }
            check();
            leave(second);
            check();
            REQUIRE(wheel.advance(1000).fired == static_cast<std::size_t>(due));
            size = 0;
            check();
          }
        }
      }
    }
  }

  TEST_CASE("a timer is found where a crowded bucket was moved to, and its arrays are given back") {
    struct Plain final : Timer {
      void on_expired() override { ++*fired; }
      int* fired = nullptr;
    };
    constexpr std::size_t count = 20'000;
    // Everybody leaves before, while or after the bucket of 512..767 is moved down; by budgets.
    for (std::size_t stop_at = 0; stop_at < count; stop_at += count / 8) {
      for (const bool cancel : {true, false}) {
        CAPTURE(stop_at);
        CAPTURE(cancel);
        TimingWheel wheel;
        int fired = 0;
        auto timers = std::make_unique<Plain[]>(count);
        for (std::size_t i = 0; i < count; ++i) {
          timers[i].fired = &fired;
          wheel.schedule(timers[i], 512 + i * 7919 % 256);
        }
        const std::size_t before = wheel.stats().bytes;
        for (std::size_t moved = 0; moved < stop_at; moved += 50) {
          REQUIRE(wheel.advance(512, 50).fired == 0);
          wheel.cancel(timers[moved]);  // Wherever it is just then.
        }
        CHECK(wheel.stats().bytes < before + 16 * count);
        REQUIRE(wheel.size() == count - (stop_at + 49) / 50);
        if (cancel) {
          for (std::size_t i = 0; i < count; ++i) wheel.cancel(timers[i * 7919 % count]);
        } else {
          for (std::size_t i = 0; i < count; ++i) {
            if (timers[i].armed() && i % 2 == 0) wheel.schedule(timers[i], 400'000 + i);
          }
          while (wheel.advance(1'000, 333).more) {
          }
          CHECK(fired == count / 2);  // The cancelled timers are among the others.
          while (wheel.advance(500'000, 333).more) {
          }
        }
        CHECK(wheel.empty());
        CHECK_FALSE(wheel.advance(600'000).more);
        for (int i = 0; i < 5; ++i) {
          wheel.schedule(timers[0], 700'000);
          wheel.cancel(timers[0]);
        }
        CHECK(wheel.stats().bytes < 300'000);
      }
    }
  }

  TEST_CASE("a timer that is scheduled while an advance is behind fires, and not early") {
    TimingWheel wheel;
    std::vector<std::unique_ptr<CountingTimer>> crowd;
    for (int i = 0; i < 100; ++i) {
      crowd.push_back(std::make_unique<CountingTimer>(wheel));
      wheel.schedule(*crowd.back(), 1000);
    }
    wheel.advance(5000, 10);  // In the middle of a bucket that begins at 768.
    CountingTimer past(wheel), between(wheel), now(wheel), later(wheel);
    wheel.schedule(past, 10);
    wheel.schedule(between, 2000);
    wheel.schedule(now, 5000);
    wheel.schedule(later, 5001);
    while (wheel.advance(5000, 10).more) {
    }
    CHECK(past.fired == 1);
    CHECK(between.fired == 1);
    CHECK(now.fired == 1);
    CHECK(later.fired == 0);
    CHECK(wheel.next_due() == 5001);
    wheel.advance(5001);
    CHECK(later.fired == 1);
  }

  TEST_CASE("a callback that schedules the past again waits for the next advance") {
    TimingWheel wheel;
    CountingTimer restless(wheel);
    restless.then = [&] { wheel.schedule(restless, 0); };
    wheel.schedule(restless, 1000);
    for (int i = 1; i <= 5; ++i) {
      const auto progress = wheel.advance(1000);
      CHECK(progress.fired == 1);
      CHECK(progress.more);
      CHECK(restless.fired == i);
    }
  }

  TEST_CASE("a callback may cancel, move and destroy its neighbours in the same tick") {
    for (int count : {2, 3, 62, 63, 64, 65, 127, 200}) {
      CAPTURE(count);
      TimingWheel wheel;
      std::vector<std::unique_ptr<CountingTimer>> timers;
      for (int i = 0; i < count; ++i) {
        timers.push_back(std::make_unique<CountingTimer>(wheel));
        wheel.schedule(*timers.back(), 5);
      }
      int fired = 0;
      for (auto& timer : timers) {
        timer->then = [&, self = timer.get()] {
          ++fired;
          for (auto& other : timers) {
            if (!other || other.get() == self) continue;
            if (fired == 1 && &other - timers.data() < count / 2) {
              other.reset();
            } else if (&other == &timers[static_cast<std::size_t>(count) - 1]) {
              wheel.cancel(*other);
            }
          }
        };
      }
      wheel.advance(5);
      CHECK(wheel.empty());
      CHECK(fired == count - count / 2);  // The last one fired first: none was left to cancel.
    }
  }

  TEST_CASE("a callback may destroy its own timer, or schedule it anew") {
    TimingWheel wheel;
    auto mortal = std::make_unique<CountingTimer>(wheel);
    mortal->then = [&] { mortal.reset(); };
    CountingTimer periodic(wheel);
    periodic.then = [&] { wheel.schedule(periodic, wheel.now() + 10); };
    wheel.schedule(*mortal, 10);
    wheel.schedule(periodic, 10);
    for (Tick now = 0; now <= 100; ++now) wheel.advance(now);
    CHECK(mortal == nullptr);
    CHECK(periodic.fired == 10);
  }

  TEST_CASE("a callback timer may destroy itself and what it holds") {
    TimingWheel wheel;
    int called = 0;
    std::unique_ptr<CallbackTimer> timer;
    const auto held = std::make_shared<int>(7);
    timer = std::make_unique<CallbackTimer>([&timer, &called, held] {
      timer.reset();
      called += *held;
    });
    wheel.schedule(*timer, 1);
    wheel.advance(1);
    CHECK(called == 7);

    CallbackTimer again([&] { ++called; });
    for (Tick now = 2; now < 5; ++now) {
      wheel.schedule(again, now);
      wheel.advance(now);
    }
    CHECK(called == 10);
  }

  TEST_CASE("a timer outlives its wheel disarmed, and leaves it when it is destroyed") {
    auto wheel = std::make_unique<TimingWheel>();
    std::vector<std::unique_ptr<CountingTimer>> timers;
    for (Tick i = 0; i < 300; ++i) {
      timers.push_back(std::make_unique<CountingTimer>(*wheel));
      wheel->schedule(*timers.back(), i < 100 ? 0 : 70 * i);
    }
    for (std::size_t i = 0; i < 300; i += 2) timers[i].reset();
    CHECK(wheel->size() == 150);
    wheel.reset();
    for (std::size_t i = 1; i < 300; i += 2) CHECK_FALSE(timers[i]->armed());
  }

  TEST_CASE("the listener hears of every schedule that makes next_due() earlier, and of no other") {
    TimingWheel wheel;
    int heard = 0;
    wheel.set_wakeup_listener([&] { ++heard; });
    CountingTimer a(wheel), b(wheel), c(wheel), d(wheel);
    wheel.schedule(a, 1000);
    CHECK(heard == 1);
    wheel.schedule(b, 1010);  // The same bucket.
    wheel.schedule(c, 5000);
    CHECK(heard == 1);
    wheel.reschedule(b, 9000);
    CHECK(heard == 1);
    wheel.schedule(c, 10);
    CHECK(heard == 2);
    wheel.schedule(d, 0);
    CHECK(heard == 3);
    d.then = [&] { wheel.schedule(d, 1); };
    wheel.advance(0);
    CHECK(heard == 3);  // Inside advance().
    CHECK(wheel.next_due() == 1);
  }

  TEST_CASE("a timer that is cancelled leaves nothing behind, however far its deadline was") {
    TimingWheel wheel;
    std::vector<std::unique_ptr<CountingTimer>> timers;
    for (int i = 0; i < 100; ++i) timers.push_back(std::make_unique<CountingTimer>(wheel));
    std::size_t after_warm_up = 0;
    for (std::size_t i = 0; i < 1'000'000; ++i) {
      CountingTimer& timer = *timers[i % 100];
      wheel.cancel(timer);
      wheel.schedule(timer, wheel.now() + 30'000);
      if (i % 100 == 0) wheel.advance(wheel.now() + 1);
      if (i == 100'000) after_warm_up = wheel.stats().bytes;
    }
    CHECK(wheel.size() == 100);
    CHECK(wheel.stats().bytes == after_warm_up);
  }

  TEST_CASE(
      "a million pending timers take 9 bytes each of the wheel and 24 in the user's objects") {
    constexpr std::size_t count = 1'000'000;
    struct Plain final : Timer {
      void on_expired() override {}
    };
    TimingWheel wheel;
    const auto timers = std::make_unique<Plain[]>(count);
    std::mt19937_64 random(5);
    for (std::size_t i = 0; i < count; ++i) wheel.schedule(timers[i], 1 + random() % 3'600'000);
    CHECK(wheel.size() == count);
    CHECK(wheel.stats().bytes < 9 * count);
    CHECK(sizeof(Timer) == 24);
  }

  TEST_CASE("a wheel gives memory back each time it is empty, and takes 12 bytes a timer before") {
    TimingWheel wheel;
    constexpr std::size_t count = 100'000;
    std::vector<std::unique_ptr<CountingTimer>> timers;
    for (std::size_t i = 0; i < count; ++i) {
      timers.push_back(std::make_unique<CountingTimer>(wheel));
      wheel.schedule(*timers.back(), 1 + i * 36);
    }
    CHECK(wheel.stats().bytes < 12 * count);
    CHECK(drive_to(wheel, count * 36) > 0);
    for (int i = 0; i < 10; ++i) {
      CHECK(wheel.empty());
      wheel.schedule(*timers[0], wheel.now() + 1);
      wheel.cancel(*timers[0]);
    }
    CHECK(wheel.stats().bytes < 300'000);
  }
}

TEST_SUITE("timing wheel against a sorted map") {
  // Timers with a plain multimap of (deadline, timer) beside the wheel.
  struct Model {
    TimingWheel wheel;
    std::mt19937_64 random;
    std::multimap<Tick, int> pending;
    std::vector<std::multimap<Tick, int>::iterator> where;  // pending.end(): not armed.
    std::vector<std::unique_ptr<Timer>> timers;
    std::vector<bool> passed;  // Scheduled when its deadline had passed, or behind an advance.
    Tick last_fired = 0;       // The deadline of the timer that fired last in this advance.
    Tick now;
    std::uint64_t operations = 0, fired = 0;
    // Thousands within the next few seconds, which are armed again as they fire.
    const bool is_crowd;

    struct ModelTimer final : Timer {
      ModelTimer(Model& m, int n) : model(m), number(n) {}
      void on_expired() override { model.expired(number); }
      Model& model;
      int number;
    };

    Model(std::uint64_t seed, Tick start, int count)
        : wheel(start), random(seed), now(start), is_crowd(count > 1000) {
      where.assign(static_cast<std::size_t>(count), pending.end());
      passed.assign(static_cast<std::size_t>(count), false);
      for (int i = 0; i < count; ++i) timers.push_back(std::make_unique<ModelTimer>(*this, i));
      for (std::size_t i = 0; is_crowd && i < timers.size(); ++i) schedule(i, random_deadline());
    }

    Tick below(Tick bound) { return random() % bound; }

    void forget(int number) {
      auto& place = where[static_cast<std::size_t>(number)];
      if (place != pending.end()) pending.erase(place);
      place = pending.end();
    }

    void expired(int number) {
      const auto index = static_cast<std::size_t>(number);
      REQUIRE(where[index] != pending.end());
      const Tick deadline = where[index]->first;
      REQUIRE(deadline <= wheel.now());
      REQUIRE_FALSE(timers[index]->armed());
      if (!passed[index]) {
        REQUIRE(deadline >= last_fired);
        last_fired = deadline;
      }
      forget(number);
      ++fired;
      if (is_crowd && below(16) != 0) schedule(index, random_deadline());
      if (below(4) == 0) step();  // A callback does what anyone may do.
    }

    Tick random_deadline() {
      if (is_crowd && below(32) != 0) return now + std::min(1 + below(1500), last_tick - now);
      const Tick reach = Tick{1} << below(64);
      switch (below(8)) {
        case 0:
          return now - std::min(now, below(reach));
        case 1:
          return now;
        case 2:
          return (now | (reach - 1));  // The end of a bucket of some size.
        default:
          return now + std::min(below(below(2) == 0 ? reach : 5000), last_tick - now);
      }
    }

    // One random operation on one random timer.
    void step() {
      ++operations;
      const auto index = static_cast<std::size_t>(below(timers.size()));
      const int number = static_cast<int>(index);
      Timer& timer = *timers[index];
      switch (below(8)) {
        case 0: {
          REQUIRE(wheel.cancel(timer) == (where[index] != pending.end()));
          forget(number);
          return;
        }
        case 1: {
          timers[index] = std::make_unique<ModelTimer>(*this, number);
          forget(number);
          return;
        }
        case 2:
        case 3: {
          if (!timer.armed()) return;
          const Tick deadline =
              timer.deadline() + std::min(below(3000), last_tick - timer.deadline());
          REQUIRE(wheel.reschedule(timer, deadline));
          note(index, deadline);
          return;
        }
        default: {
          schedule(index, random_deadline());
        }
      }
    }

    void schedule(std::size_t index, Tick deadline) {
      wheel.schedule(*timers[index], deadline);
      note(index, deadline);
    }

    void note(std::size_t index, Tick deadline) {
      passed[index] = deadline <= wheel.now();
      forget(static_cast<int>(index));
      where[index] = pending.emplace(deadline, static_cast<int>(index));
    }

    void check_next() {
      const auto next = wheel.next_due();
      REQUIRE(next.has_value() == !pending.empty());
      if (!next) return;
      REQUIRE(*next <= std::max(pending.begin()->first, now));
      REQUIRE(*next >= now);
    }

    void advance() {
      switch (below(is_crowd ? 64 : 4)) {
        case 0:
          now += std::min(below(Tick{1} << below(64)), last_tick - now);
          break;
        case 1:
          if (wheel.next_due()) now = *wheel.next_due();
          break;
        default:
          now += std::min(below(is_crowd ? 8 : 1000), last_tick - now);
      }
      while (true) {
        const std::size_t budget =
            below(3) == 0 ? TimingWheel::unlimited : 1 + below(is_crowd ? 200 : 20);
        last_fired = 0;
        const auto progress = wheel.advance(now, budget);
        REQUIRE(progress.fired <= budget);
        check_next();
        if (!progress.more) break;
        if (below(3) == 0) {
          step();
        }
        if (below(10) == 0) return;  // Left behind on purpose.
      }
      // All that is due has fired.
      REQUIRE((pending.empty() || pending.begin()->first > now));
    }
  };

  // The seed is printed when a check fails; TARRY_SEED replays the run, TARRY_STEPS makes it
  // longer.
  TEST_CASE(
      "two million random operations fire exactly the timers that a sorted map says, none early") {
    const char* given_seed = std::getenv("TARRY_SEED");
    const char* given_steps = std::getenv("TARRY_STEPS");
    const std::uint64_t seed =
        given_seed != nullptr ? std::stoull(given_seed) : std::random_device{}();
    const std::uint64_t steps = given_steps != nullptr ? std::stoull(given_steps) : 2'000'000;
    CAPTURE(seed);
    std::uint64_t operations = 0;
    std::uint64_t crowded_fired = 0;
    for (std::uint64_t round = 0; operations < steps; ++round) {
      CAPTURE(round);
      std::mt19937_64 starts(seed + round);
      const Tick start = round % 3 == 0 ? 0 : starts() >> starts() % 64;
      const int count = round % 8 == 3 ? 6000 : round % 2 == 0 ? 30 : 1000;
      Model model(seed + round, start, count);
      for (int i = 0;
           i < (model.is_crowd ? 2'000 : 60'000) && model.now < last_tick - (Tick{1} << 62); ++i) {
        model.step();
        if (model.below(6) == 0) model.advance();
        if (i % 16 == 0) model.check_next();
      }
      REQUIRE(model.wheel.size() == model.pending.size());
      std::size_t on_levels = model.wheel.stats().overdue;
      for (const auto& level : model.wheel.stats().levels) on_levels += level.timers;
      REQUIRE(on_levels == model.pending.size());
      operations += model.operations;
      if (model.is_crowd) crowded_fired += model.fired;
    }
    if (steps >= 1'000'000) CHECK(crowded_fired > steps / 100);
    if (given_steps != nullptr) MESSAGE("seed " << seed << ": " << operations << " operations");
  }
}

}  // namespace
}  // namespace tarry::timing
