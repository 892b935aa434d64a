// StepQueue: long requests in turn, and short ones in between.

#include "broker/context/step_queue.h"

#include <algorithm>
#include <functional>
#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <doctest/doctest.h>

namespace tarry::broker {
namespace {

namespace asio = boost::asio;

// Each letter of `did` is a step of a long request, or "." for a short one.
struct StepsWorld {
  asio::io_context context;
  StepQueue steps{context.get_executor()};
  std::string did;

  void begin(char name, int count) {
    auto work = [this, name, count]() -> asio::awaitable<void> {
      for (int i = 0; i < count; ++i) {
        co_await steps.next();
        did += name;
      }
    };
    asio::co_spawn(context, std::move(work), asio::detached);
  }
};

TEST_SUITE("step_queue") {
  TEST_CASE("long requests take their steps in turn, and all come to their end") {
    StepsWorld world;
    world.begin('a', 3);
    world.begin('b', 1);
    world.begin('c', 2);
    world.context.run();
    CHECK(world.did == "abcaca");
    CHECK(world.steps.waiting() == 0);
  }

  TEST_CASE("a request that becomes ready waits for one step, however many long ones there are") {
    StepsWorld world;
    for (char name = 'a'; name <= 'z'; ++name) world.begin(name, 2);
    // Until the first step has been taken; then something short comes in.
    while (world.did.empty()) world.context.run_one();
    asio::post(world.context, [&] { world.did += '.'; });
    world.context.run();
    CHECK(world.did.starts_with("ab."));
    CHECK(world.did.size() == 2 * 26 + 1);
  }

  TEST_CASE("while something is always ready, a step is taken after each of its turns") {
    StepsWorld world;
    int left = 6;
    std::function<void()> busy = [&] {
      world.did += '.';
      if (--left > 0) asio::post(world.context, busy);
    };
    asio::post(world.context, busy);
    world.begin('a', 2);
    world.begin('b', 2);
    world.context.run();
    CHECK(world.did.find("baba") == std::string::npos);
    CHECK(world.did.find_last_of("ab") < world.did.size());
    CHECK(std::ranges::count(world.did, '.') == 6);
    CHECK(std::ranges::count(world.did, 'a') == 2);
    CHECK(std::ranges::count(world.did, 'b') == 2);
  }

  TEST_CASE("a step that begins another long request does not run within it") {
    StepsWorld world;
    auto outer = [&]() -> asio::awaitable<void> {
      co_await world.steps.next();
      world.begin('i', 1);
      world.did += 'o';
    };
    asio::co_spawn(world.context, std::move(outer), asio::detached);
    world.context.run();
    CHECK(world.did == "oi");
  }
}

}  // namespace
}  // namespace tarry::broker
