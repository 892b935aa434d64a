#include <doctest/doctest.h>

#include <chrono>

#include "base/log.h"
#include "relay/believed_clock.h"

namespace tarry::relay {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;

class HandClock final : public Clock {
 public:
  WallTime wall() const override { return wall_now; }
  MonoTime mono() const override { return mono_now; }
  void pass(milliseconds time) {
    wall_now += time;
    mono_now += time;
  }

  WallTime wall_now = from_ms(1'800'000'000'000);
  MonoTime mono_now{hours(1)};
};

struct BelievedTime {
  BelievedTime() { set_log_level(LogLevel::off); }
  ~BelievedTime() { set_log_level(LogLevel::info); }

  HandClock clock;
  BelievedClock believed{clock};
};

}  // namespace

TEST_CASE("time that passes is neither a jump nor a step back, however long nobody has looked") {
  BelievedTime time;
  for (const auto pause : {milliseconds(0), milliseconds(1), milliseconds(hours(30))}) {
    time.clock.pass(pause);
    CHECK(time.believed.wall() == time.clock.wall());
    CHECK_FALSE(time.believed.take_jump());
    CHECK_FALSE(time.believed.take_set_back());
    CHECK(time.believed.take_ahead() == milliseconds(0));
  }
}

TEST_CASE(
    "a jump ahead is reported once, when the clock follows it, and a correction is not a jump") {
  BelievedTime time;
  const WallTime before = time.believed.wall();
  time.clock.wall_now += hours(2);
  CHECK(time.believed.wall() == before);
  CHECK_FALSE(time.believed.take_jump());
  time.clock.pass(milliseconds(1'000));
  CHECK(time.believed.wall() == time.clock.wall());
  CHECK(time.believed.take_jump());
  CHECK_FALSE(time.believed.take_jump());
  time.clock.wall_now += minutes(1);
  CHECK(time.believed.wall() == time.clock.wall());
  CHECK_FALSE(time.believed.take_jump());
}

TEST_CASE("a clock that was set back is followed at once, and reported") {
  BelievedTime time;
  time.believed.wall();
  time.clock.wall_now -= milliseconds(5);
  CHECK(time.believed.wall() == time.clock.wall());
  CHECK(time.believed.take_set_back());
  CHECK_FALSE(time.believed.take_set_back());
  time.clock.pass(milliseconds(1));
  time.believed.wall();
  CHECK_FALSE(time.believed.take_set_back());
}

TEST_CASE(
    "a clock that was set back by less than has passed since is reported, and a slow one is not") {
  BelievedTime time;
  time.believed.wall();
  time.clock.mono_now += milliseconds(8'000);
  time.clock.wall_now += milliseconds(3'000);
  CHECK(time.believed.wall() == time.clock.wall());
  CHECK(time.believed.take_set_back());
  time.clock.mono_now += milliseconds(8'000);
  time.clock.wall_now += milliseconds(7'500);
  CHECK(time.believed.wall() == time.clock.wall());
  CHECK_FALSE(time.believed.take_set_back());
  CHECK_FALSE(time.believed.take_jump());
}

TEST_CASE(
    "time that passed for the wall clock alone is reported once, and in a jump when it is first "
    "seen") {
  BelievedTime time;
  time.believed.wall();
  time.clock.pass(milliseconds(100));
  time.clock.wall_now += milliseconds(5'000);
  CHECK(time.believed.wall() == time.clock.wall());
  CHECK(time.believed.take_ahead() == milliseconds(5'000));
  CHECK(time.believed.take_ahead() == milliseconds(0));
  time.clock.wall_now += hours(2);
  time.believed.wall();
  CHECK(time.believed.take_ahead() == minutes(1));
  time.clock.pass(milliseconds(10));
  time.believed.wall();
  CHECK(time.believed.take_ahead() == milliseconds(0));
  time.clock.pass(milliseconds(1'000));
  time.believed.wall();
  CHECK(time.believed.take_ahead() == hours(2));
}

TEST_CASE("a jump that is taken back while it is in doubt was never there") {
  BelievedTime time;
  time.believed.wall();
  time.clock.wall_now += hours(2);
  time.clock.pass(milliseconds(500));
  time.believed.wall();
  time.clock.wall_now -= hours(2);
  time.clock.pass(milliseconds(1));
  CHECK(time.believed.wall() == time.clock.wall());
  CHECK_FALSE(time.believed.take_jump());
  CHECK_FALSE(time.believed.take_set_back());
}

}  // namespace tarry::relay
