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

struct HandClock final : Clock {
  MonoTime now{std::chrono::hours{1}};
  WallTime wall() const override { return WallTime{}; }
  MonoTime mono() const override { return now; }
};

TEST_SUITE("turns") {
  TEST_CASE("each turn of a thread is measured by itself, and the longest one is known") {
    boost::asio::io_context context;
    HandClock clock;
    WindowedHistogram turns;
    for (const int ms : {3, 12, 5})
      boost::asio::post(context, [&clock, ms] { clock.now += milliseconds{ms}; });
    run_turns(context, clock, turns);
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
    WindowedHistogram turns;
    std::thread thread([&] { run_turns(context, clock, turns); });
    std::promise<void> first, second;
    boost::asio::post(context, [&] { first.set_value(); });
    first.get_future().wait();
    boost::asio::post(context, [&] { second.set_value(); });
    second.get_future().wait();
    boost::asio::post(context, [&] { context.stop(); });
    thread.join();
    CHECK(turns.total().count() == 3);
  }

  TEST_CASE("a turn's exception ends the run, and the next run goes on behind it") {
    boost::asio::io_context context;
    HandClock clock;
    WindowedHistogram turns;
    bool ran = false;
    boost::asio::post(context, [] { throw std::runtime_error("a turn failed"); });
    boost::asio::post(context, [&ran] { ran = true; });
    CHECK_THROWS_AS(run_turns(context, clock, turns), std::runtime_error);
    CHECK_FALSE(ran);
    run_turns(context, clock, turns);
    CHECK(ran);
  }
}

}  // namespace
}  // namespace tarry::server
