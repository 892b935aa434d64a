// TimerService with real threads and the real clock: what only goes wrong between them.  Runs
// under ThreadSanitizer too.  No test waits longer than its timers are long, some milliseconds.

#include <doctest/doctest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <boost/asio/post.hpp>
#include <cstdlib>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "timing/service/timer_service.h"
#include "timing/service/timer_service_asio.h"

namespace tarry::timing {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using TimePoint = TimerService::TimePoint;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int slowdown = 10;
#else
constexpr int slowdown = 1;
#endif

// How often, at most; TARRY_TIMER_ROUNDS says otherwise.
int rounds(int usual) {
  const char* const given = std::getenv("TARRY_TIMER_ROUNDS");
  return given != nullptr ? std::atoi(given) : usual / slowdown;
}

// Until `done`, as fast as the other thread can be: without sleeping while it runs, without
// standing in its way when it does not.  (yield() would give away a whole turn on a busy machine.)
template <class Done>
bool spin_until(Done done) {
  const auto lost = steady_clock::now() + 30s;
  while (true) {
    for (int i = 0; i < 3000; ++i) {
      if (done()) return true;
    }
    if (steady_clock::now() > lost) return false;
    std::this_thread::sleep_for(20us);
  }
}

// Some nanoseconds.
void pass_time(std::uint64_t turns) {
  for (; turns > 0; --turns) asm volatile("");
}

// Stands for the kernel's alarm: it wakes the thread that sleeps until it has gone off.  With
// Drive::manual under a clock that stands still at zero, everything up to zero is due.
struct Alarm {
  std::atomic<TimePoint> at{TimePoint::max()};
  bool went_off() const { return at.load() <= TimePoint(); }
};

TEST_SUITE("timer service threads") {
  TEST_CASE("the service's own thread runs the scheduled timers") {
    TimerService service;
    std::vector<int> ran;
    std::latch done(3);
    const auto note = [&](int number) {
      return [&, number] {
        ran.push_back(number);
        done.count_down();
      };
    };
    const TimePoint now = steady_clock::now();
    REQUIRE(service.schedule_at(now + 5ms, note(3)));
    REQUIRE(service.schedule_at(now + 3ms, note(2)));
    REQUIRE(service.schedule_at(now + 1ms, note(1)));
    done.wait();
    std::ranges::sort(ran);  // A thread that was held up while scheduling scheduled into the past.
    CHECK(ran == std::vector{1, 2, 3});
  }

  TEST_CASE("no callback runs before its deadline by the real clock") {
    TimerService service({.tick = 50us});
    constexpr int count = 2000;
    std::atomic<int> early = 0;
    std::latch done(count);
    std::mt19937_64 random(7);
    for (int i = 0; i < count; ++i) {
      const TimePoint deadline =
          steady_clock::now() + std::chrono::nanoseconds(random() % 20'000'000);
      REQUIRE(service.schedule_at(deadline, [&, deadline] {
        if (steady_clock::now() < deadline) ++early;
        done.count_down();
      }));
    }
    done.wait();
    CHECK(early == 0);
  }

  // The driver ends a pass, sets its alarm and sleeps; meanwhile something earlier is scheduled.
  // Each round hits another moment of that; one that is missed leaves the driver asleep with
  // what is due until the far timer, an hour.  The more shards the driver looks at before it
  // sleeps, the longer the moment in which one that it has passed already becomes due.
  TEST_CASE("no wake-up is lost when the driver is going to sleep") {
    TimerService service({.shards = 256});
    REQUIRE(service.schedule_after(1h, [] {}));
    std::atomic<int> ran = 0;
    const int most = rounds(1'000'000);
    const auto end = steady_clock::now() + 3s;
    int round = 0;
    bool lost = false;
    std::minstd_rand random(1);
    while (!lost && round < most && steady_clock::now() < end) {
      for (int i = 0; i < 100 && !lost; ++i) {
        ++round;
        // Before the service was made: due at once.
        if (!service.schedule_at(TimePoint(), [&ran] { ++ran; })) break;
        lost = !spin_until([&] { return ran.load() == round; });
        pass_time(random() % 256);
      }
    }
    CHECK_FALSE(lost);
    CHECK(ran == round);
    MESSAGE(round, " times with a thread and its descriptor");
  }

  TEST_CASE("no wake-up is lost however short the way to sleep is") {
    Alarm alarm;
    TimerService service({.drive = Drive::manual,
                          .shards = 256,
                          .clock = [] { return TimePoint(); },
                          .alarm = [&](TimePoint at) { alarm.at = at; }});
    REQUIRE(service.schedule_at(TimePoint(1h), [] {}));
    std::atomic<bool> end = false;
    std::atomic<bool> lost = false;
    std::thread driver([&] {
      while (!end && !lost) {
        service.run_due();
        if (!spin_until([&] { return alarm.went_off() || end || lost; })) lost = true;
      }
    });
    const int most = rounds(1'000'000);
    const auto stop_at = steady_clock::now() + 3s;
    std::atomic<int> total = 0;
    std::vector<std::thread> producers;
    for (unsigned seed = 1; seed <= 2; ++seed) {
      producers.emplace_back([&, seed] {
        std::atomic<int> ran = 0;
        std::minstd_rand random(seed);
        int round = 0;
        while (!lost && round < most / 2 && steady_clock::now() < stop_at) {
          for (int i = 0; i < 100 && !lost; ++i) {
            ++round;
            const auto before = std::chrono::microseconds(random() % 1000);
            if (!service.schedule_at(TimePoint() - before, [&ran] { ++ran; })) break;
            if (!spin_until([&] { return ran.load() == round; })) lost = true;
            pass_time(random() % 64);
          }
        }
        total += round;
      });
    }
    for (auto& producer : producers) producer.join();
    end = true;
    driver.join();
    CHECK_FALSE(lost);
    MESSAGE(total.load(), " times with two producers and a driver that spins");
  }

  // Each timer ends in exactly one way: it ran, it was cancelled, or stop() handed it back.
  TEST_CASE("between threads that schedule, move, cancel and stop no timer is lost or runs twice") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    for (unsigned round = 0; round < 4; ++round) {
      constexpr int threads = 6;
      constexpr int per_thread = 4000;
      struct Record {
        std::atomic<int> ran{0};
        std::atomic<int> cancelled{0};
        std::atomic<int> again{0};  // It was rescheduled while it ran.
        std::atomic<bool> scheduled{false};
        TimerId id;  // Written before `scheduled`.
      };
      std::vector<Record> records(threads * per_thread);
      std::vector<TimerService::Unprocessed> unprocessed;
      TimerService service({.tick = 10us, .shards = 4});
      std::atomic<int> done = 0;
      const auto work = [&](int thread) {
        std::mt19937 random(seed + round * 100 + static_cast<unsigned>(thread));
        for (int i = 0; i < per_thread; ++i) {
          Record& record = records[static_cast<std::size_t>(thread * per_thread + i)];
          const auto delay = std::chrono::microseconds(random() % 3000);
          const auto id = service.schedule_after(delay, [&record] { ++record.ran; });
          if (!id) break;
          record.id = *id;
          record.scheduled.store(true);
          // Another one's, of any thread.
          Record& other = records[random() % records.size()];
          if (!other.scheduled.load()) continue;
          if (random() % 3 == 0) {
            const std::chrono::microseconds delay_again(random() % 2000);
            if (service.reschedule_after(other.id, delay_again) == RescheduleResult::running) {
              ++other.again;
            }
          } else {
            const auto answer =
                random() % 8 == 0 ? service.cancel_and_wait(other.id) : service.cancel(other.id);
            if (answer == CancelResult::cancelled) ++other.cancelled;
          }
        }
        ++done;
      };
      std::vector<std::thread> workers;
      for (int thread = 0; thread < threads; ++thread) workers.emplace_back(work, thread);
      // Half of the rounds stop it in the middle.
      if (round % 2 == 1) {
        spin_until([&] { return service.stats().fired > 500 || done == threads; });
        unprocessed = service.stop();
      }
      for (auto& worker : workers) worker.join();
      if (round % 2 == 0) unprocessed = service.stop();
      for (auto& timer : unprocessed) timer.callback(timer.id);  // Counts as its run.
      for (const Record& record : records) {
        if (!record.scheduled) continue;
        const int ends = record.ran + record.cancelled;
        REQUIRE(ends >= 1);
        REQUIRE(ends <= 1 + record.again);
      }
      CHECK(service.stats().pending == 0);
    }
  }

  TEST_CASE("after cancel_and_wait() the callback is not running and is destroyed") {
    TimerService service({.tick = 1us, .shards = 2});
    std::minstd_rand random(3);
    int answers[3] = {};
    const auto end = steady_clock::now() + 2s;
    for (int round = 0; round < 8 || (round < 300 && steady_clock::now() < end); ++round) {
      // The object that the callback refers to is gone right after cancel_and_wait(): under a
      // sanitizer a callback that ran on would be seen, and here too, by the count.
      auto count = std::make_unique<std::atomic<int>>(0);
      const auto owned = std::make_shared<int>();
      const auto callback = [&count = *count, owned] {
        for (int i = 0; i < 20; ++i) {
          ++count;
          pass_time(500);
        }
      };
      const bool periodic = round % 2 == 0;
      const auto id = periodic ? service.schedule_every(5us, Repeat::fixed_rate, callback)
                               : service.schedule_after(10us, callback);
      REQUIRE(id);
      pass_time(random() % 20'000);
      // Every fourth is met in the middle of it.
      if (round % 4 == 0) REQUIRE(spin_until([&] { return count->load() % 20 > 0; }));
      const auto answer = service.cancel_and_wait(*id);
      ++answers[static_cast<int>(answer)];
      if (periodic) REQUIRE(answer != CancelResult::gone);
      REQUIRE(count->load() % 20 == 0);
      REQUIRE(owned.use_count() == 2);  // Ours and the lambda's that was copied.
      count.reset();
      REQUIRE(service.cancel(*id) == CancelResult::gone);
    }
    CHECK(answers[1] > 0);
    MESSAGE("cancelled ", answers[0], ", running ", answers[1], ", gone ", answers[2]);
  }

  TEST_CASE("a thread that waits for a running callback is woken when it has returned") {
    TimerService service;
    std::binary_semaphore begun(0);
    std::binary_semaphore go_on(0);
    std::atomic<bool> returned = false;
    const auto id = service.schedule_every(1ms, Repeat::fixed_delay, [&] {
      begun.release();
      go_on.acquire();
      returned = true;
    });
    begun.acquire();
    CHECK(service.cancel(*id) == CancelResult::running);
    // While it runs, nobody waits for anything but it.
    const auto other = service.schedule_after(1h, [] {});
    CHECK(service.cancel_and_wait(*other) == CancelResult::cancelled);
    CHECK(service.stats().pending == 1);
    CHECK(service.reschedule_after(*id, 1ms) == RescheduleResult::gone);
    CHECK_FALSE(returned);
    std::binary_semaphore asks(0);
    std::thread waiting([&] {
      asks.release();
      const auto answer = service.cancel_and_wait(*id);
      CHECK(returned);
      // Should it have been held up before it asked, it is over.
      CHECK((answer == CancelResult::running || answer == CancelResult::gone));
    });
    asks.acquire();
    pass_time(100'000);
    go_on.release();
    waiting.join();
    CHECK(service.cancel(*id) == CancelResult::gone);
  }

  TEST_CASE("stop() waits for the callback that runs, and hands back its next run") {
    TimerService service;
    std::binary_semaphore begun(0);
    std::binary_semaphore go_on(0);
    std::atomic<bool> returned = false;
    const auto id = service.schedule_every(1ms, Repeat::fixed_rate, [&] {
      begun.release();
      go_on.acquire();
      returned = true;
    });
    begun.acquire();
    std::size_t handed_back = 0;
    std::size_t periodic = 0;
    std::thread stopping([&] {
      const auto unprocessed = service.stop();
      CHECK(returned);
      handed_back = unprocessed.size();
      periodic = static_cast<std::size_t>(
          std::ranges::count(unprocessed, *id, &TimerService::Unprocessed::id));
    });
    // From then on nothing may be scheduled, though the callback runs still.
    std::size_t more = 0;
    CHECK(spin_until([&] {
      const bool scheduled = service.schedule_after(1h, [] {}).has_value();
      more += scheduled;
      return !scheduled;
    }));
    CHECK_FALSE(returned);
    go_on.release();
    stopping.join();
    CHECK(periodic == 1);
    CHECK(handed_back == more + 1);
  }

  TEST_CASE("a callback on the service's own thread may stop the service") {
    std::size_t handed_back = 0;
    {
      std::latch done(1);
      TimerService service;
      REQUIRE(service.schedule_after(1h, [] {}));
      REQUIRE(service.schedule_after(1ms, [&] {
        handed_back = service.stop().size();
        done.count_down();
      }));
      done.wait();
    }
    CHECK(handed_back >= 1);
  }

  TEST_CASE("threads at the bound never pass it, and find every place that is free") {
    constexpr std::size_t bound = 1000;
    TimerService service({.drive = Drive::manual, .max_pending = bound, .shards = 4});
    std::atomic<std::size_t> pending = 0;
    std::atomic<std::size_t> refused = 0;
    std::atomic<bool> wrong = false;
    std::vector<std::thread> threads;
    for (unsigned seed = 0; seed < 4; ++seed) {
      threads.emplace_back([&, seed] {
        std::minstd_rand random(seed + 1);
        std::vector<TimerId> ids;
        for (int i = 0; i < 50'000 / slowdown; ++i) {
          if (random() % 100 < 55) {
            // Counted after it is there and before it goes: never more than there are.
            if (const auto id = service.schedule_at(TimePoint::max(), [] {})) {
              if (++pending > bound) wrong = true;
              ids.push_back(*id);
            } else {
              ++refused;
            }
          } else if (!ids.empty()) {
            --pending;
            if (service.cancel(ids.back()) != CancelResult::cancelled) wrong = true;
            ids.pop_back();
          }
        }
      });
    }
    for (auto& thread : threads) thread.join();
    CHECK_FALSE(wrong);
    CHECK(service.stats().pending == pending);
    // From a shard of any number, whoever holds the places.
    while (pending < bound) {
      REQUIRE(service.schedule_at(TimePoint::max(), [] {}));
      ++pending;
    }
    CHECK_FALSE(service.schedule_at(TimePoint::max(), [] {}));
    CHECK(service.stats().pending == bound);
    CHECK(service.stats().refused == refused + 1);
  }

  TEST_CASE("threads that fight over a few keys leave one timer a key") {
    TimerService service({.tick = 1us, .shards = 4});
    std::atomic<int> ran = 0;
    std::atomic<int> cancelled = 0;
    std::atomic<int> scheduled = 0;
    std::vector<std::thread> threads;
    for (unsigned seed = 0; seed < 4; ++seed) {
      threads.emplace_back([&, seed] {
        std::minstd_rand random(seed + 1);
        for (int i = 0; i < 20'000 / slowdown; ++i) {
          const std::string key = "key " + std::to_string(random() % 3);
          switch (random() % 4) {
            case 0:
              if (service.cancel_and_wait(key) == CancelResult::cancelled) ++cancelled;
              break;
            case 1:
              service.reschedule_after(key, std::chrono::microseconds(random() % 50));
              break;
            default:
              if (service.schedule_after(key, std::chrono::microseconds(random() % 50),
                                         [&ran] { ++ran; })) {
                ++scheduled;
              }
          }
        }
      });
    }
    for (auto& thread : threads) thread.join();
    for (int i = 0; i < 3; ++i) service.cancel_and_wait("key " + std::to_string(i));
    // One that was replaced while it ran may be running still, without its key.
    CHECK(spin_until([&] { return service.stats().pending == 0; }));
    const auto stats = service.stats();
    CHECK(stats.scheduled == static_cast<std::uint64_t>(scheduled));
    for (int i = 0; i < 3; ++i) CHECK_FALSE(service.find("key " + std::to_string(i)));
  }

  TEST_CASE("the descriptor is readable when something is due, and only then") {
    TimerService service({.drive = Drive::descriptor, .tick = 100us});
    const auto readable = [&](int timeout_ms) {
      pollfd wait{.fd = service.fd(), .events = POLLIN, .revents = 0};
      return ::poll(&wait, 1, timeout_ms) == 1;
    };
    CHECK_FALSE(readable(0));
    int ran = 0;
    const TimePoint deadline = steady_clock::now() + 3ms;
    REQUIRE(service.schedule_at(deadline, [&] { ++ran; }));
    REQUIRE(service.schedule_at(deadline, [&] { ++ran; }));
    REQUIRE(service.schedule_after(1h, [&] { ++ran; }));
    REQUIRE(readable(10'000));
    CHECK(steady_clock::now() >= deadline);
    // It stays so until all that is due has run.
    CHECK(service.run_due(1).more);
    CHECK(ran == 1);
    REQUIRE(readable(10'000));
    CHECK_FALSE(service.run_due().more);
    CHECK(ran == 2);
    CHECK_FALSE(readable(0));
    // Something earlier than what it was set for.
    REQUIRE(service.schedule_after(0ns, [&] { ++ran; }));
    REQUIRE(readable(10'000));
    service.run_due();
    CHECK(ran == 3);
    REQUIRE(service.schedule_after(0ns, [&] { ++ran; }));
    CHECK(service.stop().size() == 2);
    CHECK_FALSE(readable(0));
  }

  TEST_CASE("an io_context drives the service beside its other work") {
    boost::asio::io_context context;
    TimerService service({.drive = Drive::descriptor, .tick = 100us});
    std::optional<AsioTimerDriver> driver;
    driver.emplace(context, service, 1);  // So that it has to come back for what is left.
    int ran = 0;
    bool posted = false;
    boost::asio::post(context, [&] { posted = true; });
    const auto callback = [&] {
      // In a callback; it is all the work that the context has.
      if (++ran == 7) driver.reset();
    };
    const TimePoint now = steady_clock::now();
    for (const int ms : {3, 1, 2, 2, 1, 4}) {
      REQUIRE(service.schedule_at(now + std::chrono::milliseconds(ms), callback));
    }
    // From another thread, earlier than what it sleeps for.
    std::thread other([&] { CHECK(service.schedule_at(now, callback)); });
    other.join();
    context.run();
    CHECK(posted);
    CHECK(ran == 7);

    // Destroyed with its handler queued, then with nothing due.
    REQUIRE(service.schedule_at(now, callback));
    context.restart();
    driver.emplace(context, service);
    context.poll_one();
    driver.reset();
    context.run();
    CHECK(ran <= 8);
    CHECK(service.stop().size() == static_cast<std::size_t>(8 - ran));
  }
}

}  // namespace
}  // namespace tarry::timing
