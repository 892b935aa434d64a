// OneShotEvent: whoever comes first, the one who waits goes on, once.

#include "broker/context/one_shot_event.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>

#include <doctest/doctest.h>

namespace tarry::broker {
namespace {

namespace asio = boost::asio;

asio::awaitable<void> wait_for(OneShotEvent& event, int& went_on) {
  co_await event.wait();
  ++went_on;
}

TEST_SUITE("one_shot_event") {
  TEST_CASE("a waiting coroutine continues inside fire(), once") {
    asio::io_context context;
    OneShotEvent event;
    int went_on = 0;
    asio::co_spawn(context, wait_for(event, went_on), asio::detached);
    context.poll();
    CHECK(went_on == 0);
    event.fire();
    CHECK(went_on == 1);
    event.fire();
    context.restart();
    context.poll();
    CHECK(went_on == 1);
  }

  TEST_CASE("a fire() before wait() is kept") {
    asio::io_context context;
    OneShotEvent event;
    CHECK_FALSE(event.fired());
    event.fire();
    CHECK(event.fired());
    int went_on = 0;
    asio::co_spawn(context, wait_for(event, went_on), asio::detached);
    context.poll();
    CHECK(went_on == 1);
  }

  TEST_CASE("very many events that were fired before do not nest") {
    asio::io_context context;
    int went_on = 0;
    const auto many = [&]() -> asio::awaitable<void> {
      for (int i = 0; i < 300'000; ++i) {
        OneShotEvent event;
        event.fire();
        co_await event.wait();
        ++went_on;
      }
    };
    asio::co_spawn(context, many(), asio::detached);
    context.run();
    CHECK(went_on == 300'000);
  }

  TEST_CASE("an event that nobody can fire any more destroys its waiting coroutine") {
    auto alive = std::make_shared<int>(0);
    OneShotEvent event;
    {
      asio::io_context context;
      const auto wait = [](OneShotEvent& on, std::shared_ptr<int> held) -> asio::awaitable<void> {
        co_await on.wait();
        ++*held;
      };
      asio::co_spawn(context, wait(event, alive), asio::detached);
      context.poll();
      CHECK(alive.use_count() == 2);
      event = OneShotEvent();
    }
    CHECK(alive.use_count() == 1);
    CHECK(*alive == 0);
  }
}

}  // namespace
}  // namespace tarry::broker
