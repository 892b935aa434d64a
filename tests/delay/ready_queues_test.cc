// ReadyQueues: records that are cancelled while they stand in their partition's queue.

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

constexpr std::size_t drops_of_a_step = 512;

// Records of one partition, named by their numbers, that are queued because they are soon due.
void queue_named(TestHost& host, int records) {
  std::vector<TestRecord> batch;
  for (int i = 0; i < records; ++i)
    batch.push_back({"v", {{"x-delay", "300"}, {"x-schedule-id", std::to_string(i)}}});
  REQUIRE(host.produce(orders, batch).has_value());
  host.settle();
  REQUIRE(host.engine->stats().near == static_cast<std::size_t>(records));
}

// One batch, in this order: the records from number `last` down to number `first`.
void cancel_backwards(TestHost& host, int last, int first) {
  std::vector<TestRecord> batch;
  for (int i = last; i >= first; --i)
    batch.push_back({"", {{"x-schedule-id", std::to_string(i)}, {"x-schedule-action", "cancel"}}});
  REQUIRE(host.produce(orders, batch).has_value());
  host.settle();
}

struct NoSink final : Sink {
  std::optional<TopicDelay> target(const TopicPartition&) override { return TopicDelay{}; }
  void deliver(const TopicPartition&, Buffer, Departures, DeliveryTold) override {}
  void commit(storage::JournalTransaction) override {}
  void request_sequences() override {}
  void store_failed(const Error& error) override { FAIL("the store failed: " << error.message); }
};

TEST_SUITE("ready queues") {
  TEST_CASE("however many partitions have something due at once, a step finds a place for a few") {
    constexpr std::size_t partitions = 3'000, places_of_a_step = 1'024;
    TestClock clock;
    EngineOptions options;
    options.wheel_start = MonoTime(clock.mono_now);
    TestDirectory directory;
    const auto store = storage::BucketStore::make(directory.path("pending"), {}).value();
    QueuedBackground background;
    timing::TimingWheel wheel;
    EngineClock time(clock);
    time.start();
    Alarm alarm(
        time, wheel, options.wheel_start,
        {.step = [] { return false; }, .next = [](MonoTime) { return std::optional<MonoTime>(); }});
    BucketTier::Hooks hooks;
    hooks.near = [](const storage::PendingView&, const Location&) {};
    hooks.pulled_back = [](const PendingKey&) {};
    hooks.wake = [] {};
    hooks.failed = [](const Error& error) { FAIL("the store failed: " << error.message); };
    BucketTier tier(*store, background, {0, 1}, {}, std::move(hooks));
    REQUIRE(tier.open(clock.wall()).has_value());
    while (tier.step(clock.wall()) || background.step()) {
    }
    NoSink sink;
    EngineContext context{
        .options = options, .time = time, .alarm = alarm, .tier = tier, .sink = sink, .failed = {}};
    ReadyQueues queues(context);
    const WallTime due = clock.wall() + milliseconds{400};
    for (std::size_t i = 0; i < partitions; ++i)
      queues.file({due, static_cast<Sequence>(i + 1)},
                  partition_of(1, static_cast<PartitionIndex>(i)));
    // All of them wait for the same moment.
    for (int steps = 0; queues.advance(time.begin_step()); ++steps) REQUIRE(steps < 100);
    REQUIRE_FALSE(queues.any_in_line());
    clock.pass(milliseconds{400});
    std::size_t seen = 0, steps = 0;
    for (bool more = true; more; ++steps) {
      REQUIRE(steps < 100);
      more = queues.advance(time.begin_step());
      std::size_t in_line = 0;
      for (auto slot = queues.next_turn(false); slot; slot = queues.next_turn(false), ++in_line) {
        NearEntry* const entry = queues.take(*slot, time.now());
        REQUIRE(entry != nullptr);
        queues.erase(*entry);
        queues.end_turn(*slot, time.now());
      }
      CHECK(in_line <= places_of_a_step);
      seen += in_line;
    }
    CHECK(seen == partitions);
    CHECK(queues.size() == 0);
  }

  TEST_CASE("records that are cancelled from the last to the first leave their queue in steps") {
    for (const bool overdue : {false, true}) {
      CAPTURE(overdue);
      TestHost host;
      host.checks_order = false;  // Looking at all that is pending, for each batch, takes minutes.
      constexpr int records = 3'000;
      if (overdue) host.refuses = [](const TopicPartition& of) { return of == orders; };
      queue_named(host, records);
      if (overdue) host.pass(milliseconds{400});
      cancel_backwards(host, records - 1, 1);
      CHECK(host.pending().size() == 1);
      REQUIRE(host.engine->stats().near == records);  // They stand behind the first one.

      std::size_t before = records, turns = 0;
      const auto look = [&] {
        const std::size_t now = host.engine->stats().near;
        CHECK(before - now <= drops_of_a_step);
        before = now;
      };
      const auto answer = host.cancel(orders, "0");
      look();
      host.sync();
      look();
      for (; host.engine->stats().near > 0; ++turns) {
        REQUIRE(turns < 100);
        REQUIRE(host.turn(1) == 1);
        look();
      }
      CHECK(turns >= records / drops_of_a_step - 1);
      host.settle();
      CHECK(*answer == ControlOutcome::done);
      CHECK(host.pending().empty());

      host.refuses = nullptr;
      host.schedule(orders, "next", "600");
      host.pass(milliseconds{2'000});
      CHECK(host.values(orders) == std::vector<std::string>{"next"});
      CHECK(host.wheel->empty());
    }
  }

  TEST_CASE("a record behind thousands that were cancelled is delivered, and another one on time") {
    TestHost host;
    host.checks_order = false;
    constexpr int records = 3'000;
    queue_named(host, records);
    host.schedule(others, "other", "310");
    cancel_backwards(host, records - 2, 1);
    (void)host.cancel(orders, "0");
    host.clock.pass(milliseconds{310});
    // Their partition and the other one are due at once; a step passes over some hundreds.
    std::size_t turns = 0;
    for (; host.log(others).empty(); ++turns) {
      REQUIRE(turns < 4);
      host.turn(1);
      host.sync();
    }
    host.settle();
    CHECK(host.log(orders).size() == 1);
    CHECK(host.engine->stats().near == 0);
    CHECK(host.engine->stats().lag_us.total.count() == 2);
  }

  TEST_CASE("a record that was cancelled is not overdue, though its queue has it still") {
    for (const bool overdue : {false, true}) {
      CAPTURE(overdue);
      TestHost host;
      host.checks_order = false;
      constexpr int records = 1'000;
      host.refuses = [](const TopicPartition& of) { return of == orders; };
      queue_named(host, records);
      if (overdue) {
        host.pass(milliseconds{400});
        CHECK(host.engine->stats().overdue == records);
      }
      cancel_backwards(host, records - 1, 2);
      REQUIRE(host.engine->stats().near == records);  // They stand behind the first ones.
      CHECK(host.pending().size() == 2);
      if (!overdue) {
        CHECK(host.engine->stats().overdue == 0);
        host.pass(milliseconds{400});
      }
      CHECK(host.engine->stats().overdue == 2);
      // What could not be written leaves the record overdue.
      host.refuses_commits = true;
      CHECK(!*host.cancel(orders, "1"));
      host.refuses_commits = false;
      CHECK(host.engine->stats().overdue == 2);
      host.refuses = nullptr;
      host.pass(milliseconds{2'000});
      CHECK(host.log(orders).size() == 2);
      CHECK(host.engine->stats().near == 0);
      CHECK(host.engine->stats().overdue == 0);
    }
  }

  TEST_CASE("a removal that is refused while its queue is emptied leaves its record where it was") {
    TestHost host;
    host.checks_order = false;
    constexpr int records = 2'000;
    queue_named(host, records);
    cancel_backwards(host, records - 2, 1);
    (void)host.cancel(orders, "0");  // It is appended, and the queue is being emptied.
    const auto near = host.engine->stats().near;
    REQUIRE(near > 1);
    host.refuses_commits = true;
    const auto refused = host.cancel(orders, std::to_string(records - 1));
    host.refuses_commits = false;
    CHECK(!*refused);
    host.pass(milliseconds{400});
    CHECK(host.log(orders).size() == 1);
    CHECK(host.pending().empty());
    CHECK(host.engine->stats().near == 0);
  }
}

}  // namespace
}  // namespace tarry::delay
