#include "server/turns.h"

#include <doctest/doctest.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <future>
#include <stdexcept>
#include <thread>

namespace tarry::server {
namespace {

using std::chrono::milliseconds;

std::chrono::nanoseconds cpu_time{};

struct HandClock final : Clock {
  MonoTime now{std::chrono::hours{1}};
  WallTime wall() const override { return WallTime{}; }
  MonoTime mono() const override { return now; }
};

TEST_SUITE("turns") {
  TEST_CASE("each turn of a thread is measured by itself, and the longest one is known") {
    boost::asio::io_context context;
    HandClock clock;
    WindowedHistogram turns, busy;
    for (const int ms : {3, 12, 5})
      boost::asio::post(context, [&clock, ms] { clock.now += milliseconds{ms}; });
    run_turns(context, clock, turns, busy);
    CHECK(context.stopped());
    const auto found = turns.recent(clock.now);
    CHECK(found.count() == 3);
    CHECK(found.max() == 12'000);
    CHECK(found.sum() == 20'000);
    CHECK_MESSAGE(turns.recent(clock.now + WindowedHistogram::window).count() == 0,
                  "a long turn leaves the window");
  }

  TEST_CASE("a turn that ends a wait is measured too, and the thread ends when it is stopped") {
    boost::asio::io_context context;
    const auto work = boost::asio::make_work_guard(context);
    HandClock clock;
    WindowedHistogram turns, busy;
    std::thread thread([&] { run_turns(context, clock, turns, busy); });
    std::promise<void> first, second;
    boost::asio::post(context, [&] { first.set_value(); });
    first.get_future().wait();
    boost::asio::post(context, [&] { second.set_value(); });
    second.get_future().wait();
    boost::asio::post(context, [&] { context.stop(); });
    thread.join();
    CHECK(turns.total().count() == 3);
  }

  TEST_CASE("a turn that waited for other processes is not a busy one, and short turns are none") {
    boost::asio::io_context context;
    HandClock clock;
    WindowedHistogram turns, busy;
    cpu_time = {};
    const auto turn = [&](milliseconds waits, std::chrono::microseconds works) {
      boost::asio::post(context, [&clock, waits, works] {
        clock.now += waits + works;
        cpu_time += works;
      });
    };
    turn(milliseconds{30}, milliseconds{2});
    for (int i = 0; i < 5; ++i) turn(milliseconds{0}, std::chrono::microseconds{300});
    turn(milliseconds{0}, milliseconds{12});
    run_turns(context, clock, turns, busy, [] { return cpu_time; });
    const auto found = busy.recent(clock.now);
    CHECK(turns.recent(clock.now).max() == 32'000);
    CHECK(found.count() == 2);
    CHECK(found.max() >= 12'000);
    CHECK(found.max() < 13'000);
    CHECK(found.sum() < 16'000);
  }

  TEST_CASE("a turn's exception ends the run, and the next run goes on behind it") {
    boost::asio::io_context context;
    HandClock clock;
    WindowedHistogram turns, busy;
    bool ran = false;
    boost::asio::post(context, [] { throw std::runtime_error("a turn failed"); });
    boost::asio::post(context, [&ran] { ran = true; });
    CHECK_THROWS_AS(run_turns(context, clock, turns, busy), std::runtime_error);
    CHECK_FALSE(ran);
    run_turns(context, clock, turns, busy);
    CHECK(ran);
  }
}

}  // namespace
}  // namespace tarry::server
