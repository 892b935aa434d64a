// ShardLock between real threads, its owner among them.  Runs under ThreadSanitizer too, which has
// another fence (see AsymmetricFence); that of production is tried by all other builds.

#include "timing/service/shard_lock.h"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace tarry::timing {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

// The lock guards two numbers on different lines that are the same whenever nobody is inside.
struct Guarded {
  ShardLock lock;
  alignas(64) std::uint64_t first = 0;
  alignas(64) std::uint64_t second = 0;
  std::uint64_t torn = 0;

  void touch() {
    torn += first != second;
    ++first;
    asm volatile("" ::: "memory");
    ++second;
  }
};

void spin(std::uint64_t turns) {
  for (; turns > 0; --turns) asm volatile("");
}

TEST_SUITE("shard lock") {
  TEST_CASE("nobody is inside beside another: the owner, a driver that comes back, strangers") {
    // Strangers that are seldom leave it its owner, those that come often do not.
    for (const std::uint64_t rest : {200'000, 20'000, 100}) {
      CAPTURE(rest);
      Guarded guarded;
      std::atomic<bool> owned = false;
      std::array<std::uint64_t, 4> times{};
      const auto end = steady_clock::now() + 700ms;
      const auto until_end = [&](std::size_t thread, auto visit) {
        for (std::uint64_t i = 0; i % 64 != 0 || steady_clock::now() < end; ++i) {
          times[thread] += visit();
        }
      };
      {
        std::vector<std::jthread> threads;
        threads.emplace_back([&] {
          until_end(0, [&] {
            for (int i = 0; i < 64; ++i) {
              const std::lock_guard lock(guarded.lock);
              guarded.touch();
            }
            owned = true;
            return 64U;
          });
        });
        while (!owned) std::this_thread::yield();
        threads.emplace_back([&] {
          until_end(1, [&] {
            guarded.lock.lock_as_driver();
            guarded.lock.begin_driving();
            for (int i = 0; i < 4; ++i) {
              guarded.touch();
              guarded.lock.unlock();
              spin(rest / 1'000);
              guarded.lock.lock_as_driver();
            }
            guarded.lock.end_driving();
            guarded.lock.unlock();
            spin(rest / 10);
            return 4U;
          });
        });
        for (const std::size_t stranger : {2U, 3U}) {
          threads.emplace_back([&, stranger] {
            until_end(stranger, [&] {
              {
                const std::lock_guard lock(guarded.lock);
                guarded.touch();
              }
              spin(rest);
              return 1U;
            });
          });
        }
      }
      CHECK(guarded.torn == 0);
      CHECK(guarded.first == times[0] + times[1] + times[2] + times[3]);
      CHECK(guarded.second == guarded.first);
      for (const std::uint64_t each : times) CHECK(each > 0);
      MESSAGE("owner ", times[0], ", driver ", times[1], ", strangers ", times[2], " and ",
              times[3]);
    }
  }

  TEST_CASE(
      "a thread that comes while the driver works does not become the owner before it is done") {
    for (int round = 0; round < 100; ++round) {
      Guarded guarded;
      guarded.lock.lock_as_driver();
      guarded.lock.begin_driving();
      guarded.lock.unlock();
      constexpr std::uint64_t count = 20'000;
      std::atomic<bool> done = false;
      std::jthread other([&] {
        for (std::uint64_t i = 0; i < count; ++i) {
          const std::lock_guard lock(guarded.lock);
          guarded.touch();
        }
        done = true;
      });
      std::uint64_t drivers = 0;
      for (; !done; ++drivers) {
        guarded.lock.lock_as_driver();
        guarded.touch();
        guarded.lock.unlock();
        spin(100);
      }
      guarded.lock.lock_as_driver();
      guarded.lock.end_driving();
      guarded.lock.unlock();
      REQUIRE(guarded.torn == 0);
      REQUIRE(guarded.first == count + drivers);
    }
  }
}

}  // namespace
}  // namespace tarry::timing
