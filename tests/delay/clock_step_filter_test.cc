#include "delay/clock_step_filter.h"

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

TEST_SUITE("clock_step_filter") {
  TEST_CASE(
      "time that passes alike on both clocks is accepted, however long the pause between "
      "observations") {
    TestClock clock;
    ClockStepFilter wall;
    CHECK(wall.observe(clock) == clock.wall());
    for (const int pause : {1, 1'000, 86'400'000}) {
      clock.pass(milliseconds{pause});
      CHECK(wall.observe(clock) == clock.wall());
      CHECK(!wall.confirms_at());
    }
  }

  TEST_CASE("a step ahead by a minute is followed at once") {
    TestClock clock;
    ClockStepFilter wall;
    wall.observe(clock);
    clock.wall_now += milliseconds{60'000};
    CHECK(wall.observe(clock) == clock.wall());
  }

  TEST_CASE("a jump ahead is followed when it has lasted a second, and not before") {
    TestClock clock;
    ClockStepFilter wall;
    const WallTime before = wall.observe(clock);
    clock.wall_now += std::chrono::hours{2};
    CHECK(wall.observe(clock) == before);
    REQUIRE(wall.confirms_at().has_value());
    CHECK(*wall.confirms_at() == clock.mono() + milliseconds{1'000});
    clock.pass(milliseconds{999});
    CHECK(wall.observe(clock) == before + milliseconds{999});
    clock.pass(milliseconds{1});
    CHECK(wall.observe(clock) == clock.wall());
    CHECK(!wall.confirms_at());
  }

  TEST_CASE("a jump ahead that is reverted within a second is never followed") {
    TestClock clock;
    ClockStepFilter wall;
    const WallTime before = wall.observe(clock);
    clock.wall_now += std::chrono::hours{2};
    wall.observe(clock);
    clock.pass(milliseconds{500});
    clock.wall_now -= std::chrono::hours{2};
    CHECK(wall.observe(clock) == before + milliseconds{500});
    CHECK(!wall.confirms_at());
  }

  TEST_CASE("a step back is followed at once") {
    TestClock clock;
    ClockStepFilter wall;
    wall.observe(clock);
    clock.wall_now -= std::chrono::hours{5};
    CHECK(wall.observe(clock) == clock.wall());
    clock.pass(milliseconds{10});
    CHECK(wall.observe(clock) == clock.wall());
  }

  TEST_CASE("it finds out when a millisecond begins") {
    TestClock clock;
    clock.mono_now =
        std::chrono::nanoseconds{7'000'400'000};  // The wall is at .4 of its millisecond.
    ClockStepFilter wall;
    wall.observe(clock);
    clock.mono_now += std::chrono::nanoseconds{600'000};
    clock.wall_now += milliseconds{1};  // And begins another one now.
    wall.observe(clock);
    const WallTime due = clock.wall_now + milliseconds{5};
    CHECK(wall.mono_of(due) == clock.mono() + milliseconds{5});
    clock.mono_now += std::chrono::nanoseconds{900'000};
    wall.observe(clock);
    CHECK(wall.mono_of(due) == MonoTime(std::chrono::nanoseconds{7'006'000'000}));
    CHECK(wall.since(due, MonoTime(std::chrono::nanoseconds{7'006'250'000})) ==
          std::chrono::nanoseconds{250'000});
  }

  TEST_CASE("a due time beyond what nanoseconds can count is a year away") {
    TestClock clock;
    ClockStepFilter wall;
    wall.observe(clock);
    CHECK(wall.mono_of(from_ms(9'000'000'000'000'000'000)) ==
          clock.mono() + std::chrono::hours{24 * 365});
  }
}

}  // namespace
}  // namespace tarry::delay
