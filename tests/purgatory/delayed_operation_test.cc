#include "purgatory/delayed_operation.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "purgatory/purgatory.h"

namespace tarry::purgatory {
namespace {

const Kind produce_kind{"test_produce"};
const Kind test_kind{"test_fetch"};

// A partition reduced to what an operation sees of it.
struct FakePartition {
  Threshold end = 0;
  WatchList watchers;

  std::size_t append(Threshold count) {
    end += count;
    return watchers.advance_to(end);
  }
};

// The notes that the operations of a test share: it notes what they were asked and answered.
struct Notes {
  int asked = 0;
  std::vector<int> answered;  // By number, in order.
};

// Waits for whatever its condition says.
class TestOperation final : public DelayedOperation {
 public:
  TestOperation(Notes& notes, int number, std::function<bool()> condition, Kind kind = produce_kind)
      : DelayedOperation(kind), notes_(notes), number_(number), condition_(std::move(condition)) {}

  std::function<void(Outcome)> then;  // Runs in on_complete(); may destroy us.
  std::function<void()> when_asked;   // Runs in is_satisfied().
  using DelayedOperation::asked_for;
  using DelayedOperation::rewatch;

 private:
  bool is_satisfied() override {
    ++notes_.asked;
    if (when_asked) when_asked();
    return condition_();
  }
  void on_complete(Outcome outcome) override {
    notes_.answered.push_back(number_);
    if (const auto last_words = then) last_words(outcome);
  }

  Notes& notes_;
  const int number_;
  const std::function<bool()> condition_;
};

constexpr Tick start_time = 1'000'000;

struct Shard {
  timing::TimingWheel wheel{start_time};
  Purgatory purgatory{wheel};
  Notes notes;
  int rings = 0;

  Shard() {
    purgatory.set_ready_hook([this] { ++rings; });
  }

  std::unique_ptr<TestOperation> waiter(int number, FakePartition& partition, Threshold threshold,
                                        Kind kind = produce_kind) {
    return std::make_unique<TestOperation>(
        notes, number, [&partition, threshold] { return partition.end >= threshold; }, kind);
  }
  bool watch(TestOperation& operation, FakePartition& partition, Threshold threshold,
             Tick deadline = start_time + 500) {
    const std::array watching{Watching{partition.watchers, threshold}};
    return operation.start(purgatory, wheel.now(), deadline, watching);
  }
  // A turn of the shard's loop.
  std::size_t turn(Tick now) {
    wheel.advance(now);
    return purgatory.run_completions(now);
  }
  std::size_t turn() { return turn(wheel.now()); }
};

TEST_SUITE("delayed operation") {
  struct OnePartition : Shard {
    FakePartition a;
    std::unique_ptr<TestOperation> operation = waiter(1, a, 100);

    bool left_nothing_behind() {
      return a.watchers.empty() && wheel.empty() && !purgatory.has_completions() &&
             purgatory.metrics(produce_kind).waiting == 0 &&
             purgatory.metrics(produce_kind).queued == 0;
    }
  };

  TEST_CASE_FIXTURE(OnePartition, "one that is satisfied already is answered without waiting") {
    a.append(100);
    CHECK_FALSE(watch(*operation, a, 100));
    CHECK(notes.answered == std::vector{1});
    CHECK(operation->outcome() == Outcome::satisfied);
    CHECK(rings == 0);
    CHECK(left_nothing_behind());
    CHECK(purgatory.metrics(produce_kind).answered_at_once == 1);
    CHECK(purgatory.metrics(produce_kind).satisfied == 0);
  }

  TEST_CASE_FIXTURE(OnePartition, "one that is answered at once may be destroyed by its answer") {
    a.append(100);
    operation->then = [&](Outcome) { operation.reset(); };
    CHECK_FALSE(watch(*operation, a, 100));
    CHECK(operation == nullptr);
    CHECK(left_nothing_behind());
  }

  TEST_CASE_FIXTURE(OnePartition, "a change that satisfies does not answer: the next turn does") {
    CHECK(watch(*operation, a, 100));
    CHECK_FALSE(operation->outcome().has_value());
    CHECK(a.append(99) == 0);
    CHECK(notes.asked == 1);  // At the start; below the threshold nobody asks.
    CHECK(a.append(1) == 1);
    CHECK(notes.answered.empty());
    CHECK(operation->outcome() == Outcome::satisfied);
    CHECK(a.watchers.empty());
    CHECK(wheel.empty());
    CHECK(rings == 1);

    CHECK(turn() == 1);
    CHECK(notes.answered == std::vector{1});
    CHECK(left_nothing_behind());
    CHECK(rings == 1);
  }

  TEST_CASE_FIXTURE(OnePartition, "one expires at its deadline and not one tick before") {
    CHECK(watch(*operation, a, 100, start_time + 500));
    a.append(99);
    CHECK(turn(start_time + 499) == 0);
    CHECK(operation->waiting());
    CHECK(turn(start_time + 500) == 1);
    CHECK(operation->outcome() == Outcome::expired);
    CHECK(left_nothing_behind());

    a.append(1000);
    turn(start_time + 5000);
    CHECK(notes.answered == std::vector{1});
  }

  TEST_CASE_FIXTURE(OnePartition, "a deadline that has passed expires in the next turn") {
    CHECK(watch(*operation, a, 100, start_time - 5));
    CHECK(notes.answered.empty());
    CHECK(turn() == 1);
    CHECK(operation->outcome() == Outcome::expired);
    CHECK(purgatory.metrics(produce_kind).late_ms.total().max() == 5);
  }

  TEST_CASE_FIXTURE(OnePartition, "one that is cancelled is answered so, once") {
    watch(*operation, a, 100);
    operation->cancel();
    operation->cancel();
    CHECK(notes.answered.empty());
    a.append(1000);
    CHECK(turn(start_time + 1000) == 1);
    CHECK(operation->outcome() == Outcome::cancelled);
    CHECK(left_nothing_behind());
    operation->cancel();
    CHECK(turn() == 0);
  }

  TEST_CASE_FIXTURE(OnePartition, "one that is satisfied can no longer expire or be cancelled") {
    watch(*operation, a, 100);
    a.append(100);
    operation->cancel();
    turn(start_time + 1000);
    CHECK(operation->outcome() == Outcome::satisfied);
    CHECK(notes.answered.size() == 1);
    CHECK(purgatory.metrics(produce_kind).satisfied == 1);
  }

  TEST_CASE_FIXTURE(OnePartition, "one that is destroyed while it waits is never answered") {
    watch(*operation, a, 100);
    operation.reset();
    CHECK(left_nothing_behind());
    a.append(1000);
    turn(start_time + 1000);
    CHECK(notes.answered.empty());
    CHECK(purgatory.metrics(produce_kind).withdrawn == 1);
  }

  TEST_CASE_FIXTURE(OnePartition, "one that is destroyed between its change and the turn, too") {
    watch(*operation, a, 100);
    a.append(100);
    operation.reset();
    CHECK(left_nothing_behind());
    CHECK(turn() == 0);
    CHECK(notes.answered.empty());
  }

  TEST_CASE_FIXTURE(OnePartition, "answers come in the order in which they were earned") {
    auto second = waiter(2, a, 50), third = waiter(3, a, 100), fourth = waiter(4, a, 100);
    watch(*operation, a, 100);
    watch(*second, a, 50);
    watch(*third, a, 100);
    watch(*fourth, a, 70);
    a.append(100);
    CHECK(turn() == 4);
    CHECK(notes.answered == std::vector{2, 4, 1, 3});  // By threshold, then by arrival.
  }

  TEST_CASE_FIXTURE(OnePartition, "one that is destroyed by another's answer is not answered") {
    auto victim = waiter(2, a, 100), waiting_victim = waiter(3, a, 200), last = waiter(4, a, 100);
    watch(*operation, a, 100);
    watch(*victim, a, 100);
    watch(*waiting_victim, a, 200);
    watch(*last, a, 100);
    operation->then = [&](Outcome) {
      victim.reset();
      waiting_victim.reset();
      operation.reset();
    };
    a.append(100);
    CHECK(turn() == 2);
    CHECK(notes.answered == std::vector{1, 4});
    CHECK(left_nothing_behind());
  }

  TEST_CASE_FIXTURE(OnePartition, "an answer that satisfies others leaves them to the next turn") {
    auto second = waiter(2, a, 200);
    watch(*operation, a, 100);
    watch(*second, a, 200);
    operation->then = [&](Outcome) {
      a.append(100);
      CHECK(notes.answered == std::vector{1});
    };
    a.append(100);
    CHECK(rings == 1);
    CHECK(turn() == 1);
    CHECK(rings == 2);
    CHECK(turn() == 1);
    CHECK(rings == 2);
    CHECK(notes.answered == std::vector{1, 2});
  }

  TEST_CASE_FIXTURE(OnePartition, "a budget leaves the rest in order, and says that it is there") {
    auto second = waiter(2, a, 100), third = waiter(3, a, 100), later = waiter(4, a, 101);
    watch(*operation, a, 100);
    watch(*second, a, 100);
    watch(*third, a, 100);
    watch(*later, a, 101);
    operation->then = [&](Outcome) { a.append(1); };
    a.append(100);
    CHECK(purgatory.run_completions(start_time, 2) == 2);
    CHECK(rings == 2);
    CHECK(purgatory.run_completions(start_time, 100) == 2);
    CHECK(rings == 2);
    CHECK(notes.answered == std::vector{1, 2, 3, 4});
  }

  TEST_CASE_FIXTURE(OnePartition,
                    "one may be started anew once it is answered, in its answer too") {
    int rounds = 0;
    operation->then = [&](Outcome outcome) {
      CHECK(outcome == Outcome::expired);
      if (++rounds < 3) watch(*operation, a, 100, wheel.now() + 10);
    };
    watch(*operation, a, 100, start_time + 10);
    for (Tick now = start_time; now <= start_time + 100; ++now) turn(now);
    CHECK(rounds == 3);
    CHECK(left_nothing_behind());
    CHECK(purgatory.metrics(produce_kind).started == 3);
    CHECK(purgatory.metrics(produce_kind).expired == 3);
  }

  TEST_CASE_FIXTURE(OnePartition, "one that is started anew on another list is asked by that one") {
    bool ready = false;
    TestOperation again(notes, 2, [&] { return ready; });
    FakePartition b;
    for (FakePartition* partition : {&a, &b}) {
      ready = false;
      watch(again, *partition, 1);
      ready = true;
      CHECK(partition->append(1) == 1);
      CHECK(turn() == 1);
    }
  }

  TEST_CASE_FIXTURE(OnePartition,
                    "a deadline that is moved later holds, and the old one does not") {
    watch(*operation, a, 100, start_time + 10);
    for (Tick now = start_time; now < start_time + 1000; now += 9) {
      REQUIRE(operation->move_deadline(now + 10));
      REQUIRE(turn(now + 9) == 0);
    }
    const Tick deadline = operation->ParkedOperation::deadline();
    CHECK(turn(deadline - 1) == 0);
    CHECK(turn(deadline) == 1);
    CHECK(purgatory.metrics(produce_kind).late_ms.total().max() == 0);
    CHECK_FALSE(operation->move_deadline(deadline + 10));
  }

  struct TwoPartitions : Shard {
    FakePartition a, b;
    // A fetch: enough bytes in both together.  Any new byte in either may be the last one needed.
    std::unique_ptr<TestOperation> fetch = std::make_unique<TestOperation>(
        notes, 1, [this] { return a.end + b.end >= 100; }, test_kind);

    bool start_fetch() {
      const std::array watching{Watching{a.watchers, 1}, Watching{b.watchers, 1}};
      return fetch->start(purgatory, wheel.now(), start_time + 500, watching);
    }
    bool left_nothing_behind() { return a.watchers.empty() && b.watchers.empty() && wheel.empty(); }
  };

  TEST_CASE_FIXTURE(TwoPartitions, "a fetch over two partitions is answered by either of them") {
    for (FakePartition* filled : {&a, &b}) {
      a.end = b.end = 0;
      CHECK(start_fetch());
      filled->append(100);
      CHECK(left_nothing_behind());
      CHECK(turn() == 1);
      CHECK(fetch->outcome() == Outcome::satisfied);
    }
    CHECK(notes.answered.size() == 2);
  }

  TEST_CASE_FIXTURE(TwoPartitions, "a fetch is answered by the append that fills both together") {
    start_fetch();
    a.append(60);
    CHECK(turn() == 0);
    b.append(39);
    CHECK(turn() == 0);
    a.append(1);
    CHECK(left_nothing_behind());
    CHECK(turn() == 1);
  }

  TEST_CASE_FIXTURE(TwoPartitions,
                    "a fetch that stays short of bytes is answered at its deadline") {
    start_fetch();
    a.append(99);
    CHECK(turn(start_time + 499) == 0);
    CHECK(turn(start_time + 500) == 1);
    CHECK(fetch->outcome() == Outcome::expired);
    CHECK(left_nothing_behind());
  }

  TEST_CASE_FIXTURE(TwoPartitions,
                    "an operation that states how much is missing is not asked before that") {
    // Two hundred records in b, as long as a stays as it is.
    TestOperation patient(notes, 2, [this] { return b.end >= 200; });
    patient.when_asked = [&] { patient.rewatch(b.watchers, 200); };
    const std::array watching{Watching{a.watchers, never_reached}, Watching{b.watchers, 1}};
    patient.start(purgatory, start_time, start_time + 500, watching);
    notes.asked = 0;
    for (int i = 0; i < 199; ++i) b.append(1);
    CHECK(notes.asked == 1);
    CHECK(b.watchers.lowest() == 200);
    a.append(1000);
    CHECK(notes.asked == 1);
    CHECK(a.watchers.check_all() == 0);  // The partition is gone, say.
    CHECK(notes.asked == 2);
    CHECK(b.append(1) == 1);
    CHECK(turn() == 1);
  }

  TEST_CASE_FIXTURE(TwoPartitions, "an operation may watch one list twice and is answered once") {
    auto twice = waiter(2, a, 20);
    const std::array watching{Watching{a.watchers, 20}, Watching{a.watchers, 10},
                              Watching{a.watchers, 20}};
    auto other = waiter(3, a, 20);
    twice->start(purgatory, start_time, start_time + 500, watching);
    watch(*other, a, 20);
    CHECK(a.append(10) == 0);
    CHECK(a.append(10) == 2);
    CHECK(turn() == 2);
    CHECK(notes.answered == std::vector{2, 3});
    CHECK(left_nothing_behind());
  }

  TEST_CASE_FIXTURE(TwoPartitions, "one whose list is gone still waits for the other") {
    auto doomed = std::make_unique<FakePartition>();
    const std::array watching{Watching{doomed->watchers, 1}, Watching{b.watchers, 100}};
    fetch->start(purgatory, start_time, start_time + 500, watching);
    doomed.reset();
    CHECK(fetch->waiting());
    b.append(100);
    CHECK(turn() == 1);
    CHECK(left_nothing_behind());
  }

  TEST_CASE_FIXTURE(TwoPartitions, "check_all() asks everyone once, in order of thresholds") {
    bool deleted = false;
    std::vector<std::unique_ptr<TestOperation>> operations;
    for (const int number : {5, 1, 3, 2, 4}) {
      operations.push_back(
          std::make_unique<TestOperation>(notes, number, [&deleted] { return deleted; }));
      watch(*operations.back(), a, number * 1000);
    }
    notes.asked = 0;
    CHECK(a.watchers.check_all() == 0);
    CHECK(notes.asked == 5);
    deleted = true;
    CHECK(a.watchers.check_all() == 5);
    CHECK(turn() == 5);
    CHECK(notes.answered == std::vector{1, 2, 3, 4, 5});
    CHECK(left_nothing_behind());
  }

  TEST_CASE_FIXTURE(TwoPartitions,
                    "an operation is told which of its lists asks, and may move on that list") {
    FakePartition c;
    TestOperation sum(notes, 2, [&] { return a.end + b.end + c.end >= 100; });
    std::vector<std::optional<std::size_t>> asked;
    sum.when_asked = [&] {
      asked.push_back(sum.asked_for());
      FakePartition* const which[] = {&a, &b, &c};
      if (const auto i = sum.asked_for()) sum.rewatch(*i, which[*i]->end + 10);
    };
    const std::array watching{Watching{a.watchers, 10}, Watching{b.watchers, 10},
                              Watching{c.watchers, 10}};
    sum.start(purgatory, start_time, start_time + 500, watching);
    c.append(10);
    c.append(9);
    a.append(30);
    c.append(1);
    b.append(5);
    b.watchers.check_all();
    using Asked = std::optional<std::size_t>;
    CHECK(asked == std::vector<Asked>{{}, 2, 0, 2, 1});
    CHECK_FALSE(sum.asked_for().has_value());
    b.append(45);
    CHECK(turn() == 1);
    CHECK(left_nothing_behind());
    CHECK(c.watchers.empty());
    sum.rewatch(0, 5);  // No effect: it does not wait.
    CHECK(a.watchers.empty());
  }

  TEST_CASE_FIXTURE(TwoPartitions,
                    "one without a deadline is not in the wheel, until it gets one") {
    auto patient = waiter(2, a, 100);
    watch(*patient, a, 100, no_deadline);
    CHECK(wheel.empty());
    turn(start_time + 1'000'000'000'000);
    CHECK(patient->waiting());
    CHECK(patient->move_deadline(wheel.now() + 10));
    CHECK(patient->move_deadline(no_deadline));
    CHECK(wheel.empty());
    CHECK(patient->move_deadline(wheel.now() + 10));
    CHECK(turn(wheel.now() + 10) == 1);
    CHECK(patient->outcome() == Outcome::expired);
    watch(*patient, a, 100, no_deadline);
    a.append(100);
    CHECK(turn() == 1);
    CHECK(patient->outcome() == Outcome::satisfied);
    CHECK(left_nothing_behind());
  }

  TEST_CASE_FIXTURE(TwoPartitions,
                    "one that moves ahead whenever it is asked is asked once a pass") {
    TestOperation restless(notes, 2, [] { return false; });
    Threshold next = 1;
    restless.when_asked = [&] { restless.rewatch(a.watchers, next += 100); };
    watch(restless, a, 1);
    auto between = waiter(3, a, 10'000);  // This waiter is behind it now and before it then.
    watch(*between, a, 50);
    notes.asked = 0;
    CHECK(a.watchers.check_all() == 0);
    CHECK(notes.asked == 2);
    notes.asked = 0;
    between->when_asked = [&] { between->rewatch(a.watchers, 150); };
    CHECK(a.watchers.advance_to(1000) == 0);
    CHECK(notes.asked == 2);
    CHECK(restless.waiting());
  }
}

TEST_SUITE("many delayed operations") {
  TEST_CASE_FIXTURE(Shard,
                    "a chain of answers, each of which satisfies the next, is as deep as one") {
    constexpr int count = 100'000;
    FakePartition partition;
    std::vector<std::unique_ptr<TestOperation>> operations;
    int depth = 0, deepest = 0;
    for (int i = 1; i <= count; ++i) {
      operations.push_back(waiter(i, partition, i));
      operations.back()->then = [&](Outcome) {
        deepest = std::max(deepest, ++depth);
        partition.append(1);
        --depth;
      };
      watch(*operations.back(), partition, i);
    }
    partition.append(1);
    int turns = 0;
    while (purgatory.has_completions()) {
      turn();
      ++turns;
    }
    CHECK(deepest == 1);
    CHECK(turns == count);
    CHECK(notes.answered.size() == count);
    CHECK(partition.watchers.empty());
  }

  TEST_CASE_FIXTURE(Shard,
                    "thousands that are completed leave nothing on a list where nothing comes") {
    FakePartition busy, quiet;
    TestOperation both(notes, 1, [&] { return busy.end > 0 && busy.end % 2 == 0; });
    for (int i = 0; i < 10'000; ++i) {
      busy.end = 0;
      const std::array watching{Watching{busy.watchers, 1}, Watching{quiet.watchers, 1}};
      both.start(purgatory, wheel.now(), start_time + 500, watching);
      switch (i % 3) {
        case 0:
          busy.append(2);
          break;
        case 1:
          both.cancel();
          break;
        default:
          both.withdraw();
      }
      REQUIRE(quiet.watchers.empty());
      REQUIRE(busy.watchers.empty());
      REQUIRE(wheel.empty());
      turn();
    }
    const KindMetrics& metrics = purgatory.metrics(produce_kind);
    CHECK(metrics.satisfied == 3334);
    CHECK(metrics.cancelled == 3333);
    CHECK(metrics.withdrawn == 3333);
  }

  TEST_CASE_FIXTURE(Shard, "a deadline centuries away neither fires nor keeps the wheel busy") {
    FakePartition partition;
    auto far = waiter(1, partition, 1);
    watch(*far, partition, 1, start_time + (Tick{1} << 61));
    CHECK(turn(start_time + 3'600'000) == 0);
    CHECK(far->waiting());
    partition.append(1);
    CHECK(turn() == 1);
    CHECK(wheel.empty());
  }

  TEST_CASE_FIXTURE(Shard, "an advance among 100 000 waiters asks only those that it satisfies") {
    constexpr int count = 100'000;
    FakePartition partition;
    std::vector<std::unique_ptr<TestOperation>> operations;
    for (int i = 0; i < count; ++i) {
      // Every fifth comes out of order.
      const Threshold threshold = i % 5 == 0 ? count - i : i + 1;
      operations.push_back(waiter(i, partition, threshold));
      watch(*operations.back(), partition, threshold, start_time + 1000 + static_cast<Tick>(i));
    }
    notes.asked = 0;
    std::size_t satisfied = 0;
    for (int i = 0; i < 100; ++i) satisfied += partition.append(7);
    CHECK(static_cast<std::size_t>(notes.asked) == satisfied);
    CHECK(satisfied > 500);
    CHECK(turn() == satisfied);
    CHECK(purgatory.metrics(produce_kind).waiting == count - satisfied);
    CHECK(turn(start_time + 1000 + count) == count - satisfied);
    CHECK(partition.watchers.empty());
    CHECK(wheel.empty());
    const KindMetrics& metrics = purgatory.metrics(produce_kind);
    CHECK(metrics.expired == count - satisfied);
    CHECK(metrics.satisfied == satisfied);
    CHECK(metrics.waited_ms.total().count() == count);
  }
}

}  // namespace
}  // namespace tarry::purgatory
