// AppendQueue: the order in which a partition takes batches, and how many of them in one turn.

#include "broker/partitions/append_queue.h"

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/broker/batches.h"
#include "tests/given.h"

namespace tarry::broker::test {
namespace {

// A queue whose first batch the delay engine takes apart until the test says so.
struct AppendQueueWorld {
  QueuedBackground background;
  BatchChecks checks{background, 64u << 20};
  std::vector<std::function<void()>> turns;
  std::move_only_function<void(AppendQueue::Parts)> split_done;
  bool holds_first = true;
  std::vector<std::size_t> taken;  // The numbers of batches, by the order in which they were.
  std::shared_ptr<AppendQueue> queue = std::make_shared<AppendQueue>(
      steps(), checks, [this](auto turn) { turns.push_back(std::move(turn)); });

  AppendQueue::Steps steps() {
    AppendQueue::Steps out;
    out.read_ids = [](const auto&, auto done) { done(AppendQueue::IdRows{}); };
    out.dead_letters = [](const auto&, const auto&) { return std::nullopt; };
    out.write = [](Buffer, auto done) { done({}); };
    out.split = [this](const auto&, const auto&, auto, auto done) {
      if (!std::exchange(holds_first, false)) return done(std::nullopt);
      split_done = std::move(done);
    };
    out.take = [](const auto&, auto, auto, const auto&) { return Appended{}; };
    return out;
  }
  // `scheduled`: all of its records are.
  void add(const Buffer& batch, std::size_t number, bool scheduled) {
    Arrival arrival;
    arrival.records = batch;
    arrival.done = [this, number](const Appended&) { taken.push_back(number); };
    CheckedArrival checked{*records::check_produced(batch, {}), delay::BatchSchedules{}};
    if (scheduled)
      checked.schedules->of_records.resize(static_cast<std::size_t>(checked.batch.count));
    queue->add_checked(std::move(arrival), {}, std::move(checked));
  }
  bool turn() {
    const auto now = std::exchange(turns, {});
    for (const auto& one : now) one();
    return !now.empty();
  }
};

TEST_SUITE("append queue") {
  TEST_CASE(
      "a turn takes about a thousand records of the scheduled batches that are ready behind "
      "another") {
    AppendQueueWorld world;
    const Buffer batch = batch_of(WallTime{}, std::vector<NewRecord>(100, NewRecord{"v"}));
    for (std::size_t i = 0; i < 101; ++i) world.add(batch, i, true);
    CHECK(world.taken.empty());
    world.split_done(std::nullopt);
    std::size_t turns = 0;
    for (std::size_t before = 0;;) {
      CHECK(world.taken.size() - before <= 11);
      CHECK(world.turns.size() <= 1);
      before = world.taken.size();
      // One that comes meanwhile is no turn of its own.
      if (turns == 1) world.add(batch, 101, true);
      CHECK(world.taken.size() == before);
      if (!world.turn()) break;
      ++turns;
    }
    CHECK(turns >= 9);
    CHECK(world.taken.size() == 102);
    CHECK(std::ranges::is_sorted(world.taken));
  }

  TEST_CASE("batches without schedules are taken in one turn, and those of a partition that goes") {
    AppendQueueWorld world;
    const Buffer batch = batch_of(WallTime{}, std::vector<NewRecord>(500, NewRecord{"v"}));
    for (std::size_t i = 0; i < 10; ++i) world.add(batch, i, i == 0);
    world.split_done(std::nullopt);
    CHECK(world.taken.size() == 10);

    AppendQueueWorld other;
    for (std::size_t i = 0; i < 10; ++i) other.add(batch, i, true);
    other.split_done(std::nullopt);
    CHECK(other.taken.size() == 3);
    other.queue->retire();
    while (other.turn()) {
    }
    CHECK(other.taken.size() == 10);
  }
}

}  // namespace
}  // namespace tarry::broker::test
