// scatter(): a request's work on all its shards; what is begun when, what is waited for, how it
// ends.

#include "broker/scatter.h"

#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "broker/context/durability_wait.h"
#include "broker/context/one_shot_event.h"
#include "tests/broker/world.h"

namespace tarry::broker::test {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using Strings = std::vector<std::string>;

const purgatory::Kind waits_kind{"kind_of_scatter_test"};

struct Item {
  std::string name;
  std::string done = {};
};
using Work = std::function<asio::awaitable<void>(OnShard<Item>&, CancellationToken&)>;

// The outcome of a scatter().
struct Scattered {
  bool ended = false;
  std::string thrown = {};
};

struct Scattering : World {
  Scattering() : World({.shards = 3}) {}

  void add(std::size_t on, std::string name) { items.add(shard(on), {std::move(name)}); }

  // From shard 0.  `work` lives as long as the world.
  std::shared_ptr<Scattered> begin(Work work, bool has_client = true) {
    works.push_back(std::make_unique<Work>(std::move(work)));
    auto scattered = std::make_shared<Scattered>();
    asio::co_spawn(shard().executor(),
                   scatter(shard(), has_client ? &connection() : nullptr, items, *works.back()),
                   [scattered](std::exception_ptr failed) {
                     scattered->ended = true;
                     try {
                       if (failed) std::rethrow_exception(failed);
                     } catch (const std::exception& error) {
                       scattered->thrown = error.what();
                     }
                   });
    if (runs_at_once) run();
    return scattered;
  }

  // Waits for what never comes, until it is cancelled.
  asio::awaitable<void> wait_for_nothing(OnShard<Item>& there, CancellationToken& token) {
    if (token.cancelled()) {
      there.items[0].done = "cancelled before";
      co_return;
    }
    DurabilityWait waiting(*there.shard, waits_kind, Lsn{1} << 60, std::nullopt);
    const CancellationToken::Attached attached(token, waiting);
    const auto outcome = co_await waiting.wait(1h);
    there.items[0].done = outcome == purgatory::Outcome::cancelled ? "cancelled" : "expired";
  }
  Work waiting_for_nothing() {
    return [this](OnShard<Item>& there, CancellationToken& token) {
      return wait_for_nothing(there, token);
    };
  }
  Strings done() {
    Strings out;
    for (auto& there : items) {
      for (auto& item : there.items) out.push_back(item.done);
    }
    return out;
  }

  ByShard<Item> items;
  std::vector<std::unique_ptr<Work>> works;
  Strings log;
};

TEST_SUITE("scatter") {
  TEST_CASE_FIXTURE(Scattering, "each shard gets its items in the order of the request") {
    for (const auto& [on, name] :
         {std::pair{2, "a"}, {0, "b"}, {2, "c"}, {1, "d"}, {0, "e"}, {2, "f"}}) {
      add(static_cast<std::size_t>(on), name);
    }
    CHECK(items.only_shard() == nullptr);
    const auto scattered =
        begin([](OnShard<Item>& there, CancellationToken&) -> asio::awaitable<void> {
          int number = 0;
          for (auto& item : there.items)
            item.done = fmt::format("{}{}{}", there.shard->index(), item.name, ++number);
          co_return;
        });
    CHECK(scattered->ended);
    CHECK(done() == Strings{"2a1", "2c2", "2f3", "0b1", "0e2", "1d1"});
  }

  TEST_CASE_FIXTURE(Scattering, "without items it ends at once, and asks nobody") {
    const auto scattered = begin([&](OnShard<Item>&, CancellationToken&) -> asio::awaitable<void> {
      log.push_back("asked");
      co_return;
    });
    CHECK(scattered->ended);
    CHECK(log.empty());
    CHECK(items.only_shard() == nullptr);
  }

  TEST_CASE_FIXTURE(Scattering,
                    "all work is begun before any is waited for: the others', then our own") {
    add(2, "a");
    add(0, "b");
    add(1, "c");
    const auto there = [&](OnShard<Item>& on) -> asio::awaitable<void> {
      log.push_back("runs " + on.items[0].name);
      if (on.shard == &shard()) {
        // Whatever we send from now on comes behind the work on the other shards.
        for (const std::size_t other : {1, 2}) {
          asio::post(shard(other).executor(),
                     [this, other] { log.push_back(fmt::format("later on {}", other)); });
        }
        co_await asio::post(shard().executor(), asio::use_awaitable);
        log.push_back("goes on");
      }
    };
    const auto scattered = begin([&, there](OnShard<Item>& on, CancellationToken&) {
      log.push_back("begins " + on.items[0].name);
      return there(on);
    });
    CHECK(scattered->ended);
    CHECK(log == Strings{"begins a", "begins c", "begins b", "runs b", "goes on", "runs c",
                         "later on 1", "runs a", "later on 2"});
  }

  TEST_CASE_FIXTURE(Scattering, "our own work is a plain call: nothing comes in between") {
    add(0, "a");
    CHECK(items.only_shard() == &shard());
    const Work work = [&](OnShard<Item>&, CancellationToken&) -> asio::awaitable<void> {
      log.push_back("work");
      co_return;
    };
    const auto request = [&]() -> asio::awaitable<void> {
      asio::post(shard().executor(), [&] { log.push_back("somebody else"); });
      co_await scatter(shard(), &connection(), items, work);
      log.push_back("answered");
    };
    asio::co_spawn(shard().executor(), request(), asio::detached);
    run();
    CHECK(log == Strings{"work", "answered", "somebody else"});
  }

  TEST_CASE_FIXTURE(Scattering, "a later request's work overtakes an earlier one's on no shard") {
    add(1, "a");
    add(0, "b");
    stands_still = 1;
    std::deque<OneShotEvent> first(3);
    const auto take_place = [&](OnShard<Item>& on, std::string request,
                                bool waits) -> asio::awaitable<void> {
      log.push_back(request + on.items[0].name);
      if (waits) co_await first[on.shard->index()].wait();
    };
    const auto one = begin(
        [&](OnShard<Item>& on, CancellationToken&) { return take_place(on, "first ", true); });
    const auto two = begin(
        [&](OnShard<Item>& on, CancellationToken&) { return take_place(on, "second ", false); });
    stands_still.reset();
    run();
    CHECK(log == Strings{"first b", "second b", "first a", "second a"});
    CHECK_FALSE(one->ended);
    CHECK(two->ended);
    for (auto& each : first) each.fire();
    run();
    CHECK(one->ended);
  }

  TEST_CASE_FIXTURE(Scattering, "an exception of one shard's work is thrown when all have ended") {
    for (const std::size_t throws : {0, 1, 2}) {
      CAPTURE(throws);
      items = {};
      for (const std::size_t on : {0, 1, 2}) add(on, "");
      OneShotEvent go_on;
      const std::size_t slow = throws == 1 ? 2 : 1;
      const auto scattered =
          begin([&](OnShard<Item>& on, CancellationToken&) -> asio::awaitable<void> {
            if (on.shard->index() == throws) throw std::runtime_error("no memory");
            if (on.shard->index() == slow) co_await go_on.wait();
            on.items[0].done = "done";
          });
      CHECK_FALSE(scattered->ended);
      go_on.fire();
      run();
      CHECK(scattered->ended);
      CHECK(scattered->thrown == "no memory");
      Strings expected(3, "done");
      expected[throws] = "";
      CHECK(done() == expected);
    }
  }

  TEST_CASE_FIXTURE(Scattering, "work that cannot even be begun does not leave the others alone") {
    for (const std::size_t on : {1, 0, 2}) add(on, "");
    const auto finish = [](OnShard<Item>& on) -> asio::awaitable<void> {
      co_await asio::post(on.shard->executor(), asio::use_awaitable);
      on.items[0].done = "done";
    };
    const auto scattered = begin([&](OnShard<Item>& on, CancellationToken&) {
      if (on.shard->index() == 1) throw std::runtime_error("not begun");
      return finish(on);
    });
    CHECK(scattered->ended);
    CHECK(scattered->thrown == "not begun");
    CHECK(done() == Strings{"", "done", "done"});
  }

  TEST_CASE_FIXTURE(Scattering, "when the client goes its work is cancelled on every shard") {
    for (const std::size_t on : {1, 0, 2}) add(on, "");
    const auto scattered = begin(waiting_for_nothing());
    CHECK_FALSE(scattered->ended);
    connection().close();
    CHECK(done() == Strings{"", "", ""});  // Each is told on its own shard, in its turn.
    stands_still = 2;
    run();
    CHECK(done() == Strings{"cancelled", "cancelled", ""});
    CHECK_FALSE(scattered->ended);
    stands_still.reset();
    run();
    CHECK(done() == Strings(3, "cancelled"));
    CHECK(scattered->ended);
    CHECK(scattered->thrown.empty());
  }

  TEST_CASE_FIXTURE(Scattering, "the work of a client that has gone is cancelled when it begins") {
    for (const std::size_t on : {1, 0, 2}) add(on, "");
    connection().close();
    const auto scattered = begin(waiting_for_nothing());
    CHECK(scattered->ended);
    CHECK(done() == Strings(3, "cancelled before"));
  }

  TEST_CASE_FIXTURE(Scattering, "without a client nobody's end cancels the work") {
    for (const std::size_t on : {1, 0}) add(on, "");
    const auto scattered = begin(waiting_for_nothing(), false);
    connection().close();
    run();
    CHECK_FALSE(scattered->ended);
    pass(2h);
    CHECK(scattered->ended);
    CHECK(done() == Strings(2, "expired"));
  }

  TEST_CASE_FIXTURE(Scattering, "a cancellation that comes when the work has ended does nothing") {
    add(1, "");
    runs_at_once = false;
    const auto scattered =
        begin([](OnShard<Item>&, CancellationToken&) -> asio::awaitable<void> { co_return; });
    stands_still = 1;
    run();
    stands_still = 0;
    run();  // It ends there, which is not known here yet.
    connection().close();
    stands_still = 1;
    run();
    CHECK(scattered->ended);
    stands_still.reset();
    run();
  }

  TEST_CASE("a coroutine that waits for a shard that never runs again ends with the process") {
    std::weak_ptr<int> frame;
    ByShard<Item> items;
    const Work work = [](OnShard<Item>&, CancellationToken&) -> asio::awaitable<void> {
      co_return;
    };
    {
      World world({.shards = 3});
      items.add(world.shard(1), {""});
      items.add(world.shard(0), {""});
      world.stands_still = 1;
      const auto alive = std::make_shared<int>();
      frame = alive;
      asio::co_spawn(world.shard().executor(),
                     scatter(world.shard(), &world.connection(), items, work),
                     [alive](std::exception_ptr) {});
      world.run();
    }
    CHECK(frame.expired());
  }
}

}  // namespace
}  // namespace tarry::broker::test
