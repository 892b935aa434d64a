#include "server/blocking_pool.h"

#include <atomic>
#include <barrier>
#include <cerrno>
#include <future>
#include <new>
#include <system_error>
#include <thread>

#include <doctest/doctest.h>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

namespace tarry::server {
namespace {

namespace asio = boost::asio;

// A shard's thread.
struct Lane {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard{context.get_executor()};
  std::thread thread{[this] { context.run(); }};

  ~Lane() {
    guard.reset();
    thread.join();
  }
};

TEST_SUITE("blocking_pool") {
  TEST_CASE("work runs on the pool, and its continuation on the shard that handed it in") {
    BlockingPool pool(2);
    Lane first, second;
    const auto background = pool.background_for(first.context);
    const auto other = pool.background_for(second.context);
    for (auto* lane : {&first, &second}) {
      auto& door = lane == &first ? *background : *other;
      std::promise<std::pair<std::thread::id, std::thread::id>> seen;
      door.run([] { return std::this_thread::get_id(); },
               [&](std::thread::id worked) {
                 seen.set_value({worked, std::this_thread::get_id()});
               });
      const auto [worked, followed] = seen.get_future().get();
      CHECK(followed == lane->thread.get_id());
      CHECK(worked != first.thread.get_id());
      CHECK(worked != second.thread.get_id());
      CHECK(worked != std::this_thread::get_id());
    }
    pool.stop();
  }

  TEST_CASE("pieces of work run at once, as many as there are threads") {
    constexpr std::ptrdiff_t threads = 4;
    BlockingPool pool(threads);
    Lane lane;
    const auto background = pool.background_for(lane.context);
    std::barrier all_there(threads);  // Only passed when all are in it together.
    std::atomic<int> followed = 0;
    std::promise<void> done;
    for (int i = 0; i < threads; ++i) {
      background->run(
          [&] {
            all_there.arrive_and_wait();
            return 0;
          },
          [&](int) {
            if (++followed == threads) done.set_value();
          });
    }
    done.get_future().wait();
    pool.stop();
  }

  TEST_CASE("a pool that stops finishes the work that was handed in, and drops later work") {
    std::atomic<int> worked = 0;
    int followed = 0;
    asio::io_context context(1);
    BlockingPool pool(1);
    const auto background = pool.background_for(context);
    for (int i = 0; i < 100; ++i)
      background->run([&] { return ++worked; }, [&](int) { ++followed; });
    pool.stop();
    CHECK(worked == 100);
    CHECK(followed == 0);  // Never inside run(), nor on a thread of the pool.
    background->run([&] { return ++worked; }, [&](int) { ++followed; });
    context.run();
    CHECK(followed == 100);
    CHECK(worked == 100);
  }

  TEST_CASE("a pool that gets no second thread ends the first, and says so") {
    std::atomic<int> running = 0;
    const auto start = [&running, begun = 0](std::move_only_function<void()> run) mutable {
      if (++begun == 2) throw std::system_error(EAGAIN, std::generic_category());
      return std::thread([&running, run = std::move(run)]() mutable {
        ++running;
        run();
        --running;
      });
    };
    CHECK_THROWS_AS(BlockingPool(2, start), std::system_error);
    CHECK(running == 0);
  }

  TEST_CASE("an exception of work that returns a Result becomes its error") {
    BlockingPool pool(1);
    Lane lane;
    const auto background = pool.background_for(lane.context);
    std::promise<Result<int>> seen;
    background->run([]() -> Result<int> { throw std::bad_alloc(); },
                    [&](Result<int> result) { seen.set_value(std::move(result)); });
    CHECK(seen.get_future().get().error().message == "no memory");
    pool.stop();
  }

  TEST_CASE("a completion may hand in more work") {
    BlockingPool pool(2);
    Lane lane;
    const auto background = pool.background_for(lane.context);
    std::promise<int> done;
    std::function<void(int)> next = [&](int n) {
      if (n == 1000) return done.set_value(n);
      background->run([n] { return n + 1; }, next);
    };
    background->run([] { return 0; }, next);
    CHECK(done.get_future().get() == 1000);
    pool.stop();
  }

  TEST_CASE("a lane of its own stands behind nobody, however much the pool has to do") {
    BlockingPool pool(1);
    Lane lane;
    const auto background = pool.background_for(lane.context);
    const auto own = pool.dedicated_lane(lane.context, "tarry-round-0");
    std::promise<void> let_go;
    background->run([wait = let_go.get_future()]() mutable { return wait.wait(), 0; }, [](int) {});
    std::atomic<int> behind = 0;
    for (int i = 0; i < 100; ++i) background->run([&] { return ++behind; }, [](int) {});
    std::promise<int> seen;
    own->run([&] { return behind.load(); }, [&](int n) { seen.set_value(n); });
    auto answer = seen.get_future();
    const bool in_time = answer.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
    CHECK(in_time);
    let_go.set_value();
    if (in_time) CHECK(answer.get() == 0);
    pool.stop();
    CHECK(behind == 100);
  }
}

}  // namespace
}  // namespace tarry::server
