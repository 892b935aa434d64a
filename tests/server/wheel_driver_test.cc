#include "server/wheel_driver.h"

#include <vector>

#include "tests/server/world.h"

namespace tarry::server {
namespace {

// The driver sleeps on the machine's clock, so these tests take some milliseconds of it.
struct Drive : World<SystemClock> {
  Drive() : driver(context, shard()) { driver.start(); }
  ~Drive() { driver.stop(); }

  void arm(timing::Timer& timer, int after_ms) {
    shard().wheel().schedule(timer, shard().tick_after(std::chrono::milliseconds{after_ms}));
  }
  WheelDriver driver;
};

TEST_SUITE("wheel_driver") {
  TEST_CASE("a timer fires, and not before its time") {
    Drive drive;
    MonoTime fired{};
    timing::CallbackTimer timer([&] { fired = drive.clock.mono(); });
    const MonoTime due = drive.clock.mono() + std::chrono::milliseconds{5};
    drive.arm(timer, 5);
    drive.until([&] { return fired != MonoTime{}; });
    CHECK(fired >= due);
  }

  TEST_CASE("a timer that is scheduled earlier wakes the driver earlier") {
    Drive drive;
    bool late_fired = false, early_fired = false;
    timing::CallbackTimer late([&] { late_fired = true; });
    timing::CallbackTimer early([&] { early_fired = true; });
    drive.arm(late, 3'600'000);
    drive.settle();
    drive.arm(early, 2);
    drive.until([&] { return early_fired; });
    CHECK_FALSE(late_fired);
  }

  TEST_CASE("more timers than one step takes all fire, with other work in between") {
    Drive drive;
    constexpr std::size_t count = 20'000;
    std::size_t fired = 0;
    std::vector<std::unique_ptr<timing::CallbackTimer>> timers;
    for (std::size_t i = 0; i < count; ++i) {
      timers.push_back(std::make_unique<timing::CallbackTimer>([&] { ++fired; }));
      drive.arm(*timers.back(), 3);
    }
    std::size_t seen_half_done = 0;
    std::function<void()> look = [&] {
      if (fired > 0 && fired < count) ++seen_half_done;
      if (fired < count) boost::asio::post(drive.context, look);
    };
    look();
    drive.until([&] { return fired == count; });
    CHECK(seen_half_done > 0);
  }

  TEST_CASE("after stop() nothing fires") {
    Drive drive;
    bool fired = false;
    timing::CallbackTimer timer([&] { fired = true; });
    drive.arm(timer, 1);
    drive.driver.stop();
    const auto end = drive.clock.mono() + std::chrono::milliseconds{5};
    drive.until([&] { return drive.clock.mono() > end; });
    CHECK_FALSE(fired);
  }
}

}  // namespace
}  // namespace tarry::server
