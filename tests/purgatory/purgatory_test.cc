// The purgatory as a whole: its metrics, its end, and a model of it under random events.

#include "purgatory/purgatory.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "purgatory/delayed_operation.h"

namespace tarry::purgatory {
namespace {

// Not in the order of their names.
const Kind sync_kind{"sync"};
const Kind join_kind{"join"};
const Kind fetch_kind{"fetch"};
const Kind heartbeat_kind{"heartbeat"};

class Waiter final : public DelayedOperation {
 public:
  explicit Waiter(Kind kind) : DelayedOperation(kind) {}
  int answers = 0;

 private:
  bool is_satisfied() override { return false; }
  void on_complete(Outcome) override { ++answers; }
};

TEST_SUITE("purgatory") {
  TEST_CASE("waited time and lateness are counted up to the answer, per kind") {
    timing::TimingWheel wheel(100);
    Purgatory purgatory(wheel);
    WatchList list;
    Waiter join(join_kind), fetch(fetch_kind);
    const std::array watching{Watching{list, 1}};
    join.start(purgatory, 100, 300, watching);
    fetch.start(purgatory, 150, 1000, watching);
    wheel.advance(307);
    fetch.cancel();
    purgatory.run_completions(310);
    CHECK(purgatory.metrics(join_kind).waited_ms.total().max() == 210);
    CHECK(purgatory.metrics(join_kind).late_ms.total().max() == 10);
    CHECK(purgatory.metrics(fetch_kind).waited_ms.total().max() == 160);
    CHECK(purgatory.metrics(fetch_kind).late_ms.total().count() == 0);
    CHECK(purgatory.metrics(fetch_kind).cancelled == 1);
    CHECK(purgatory.metrics(sync_kind).started == 0);
  }

  TEST_CASE("one that is prolonged at its deadline waits on, and has not expired until it is not") {
    struct Patient final : DelayedOperation {
      Patient() : DelayedOperation(heartbeat_kind) {}
      std::optional<Tick> later;
      std::optional<Outcome> answer;

     private:
      bool is_satisfied() override { return false; }
      std::optional<Tick> prolonged() override { return std::exchange(later, std::nullopt); }
      void on_complete(Outcome outcome) override { answer = outcome; }
    };
    timing::TimingWheel wheel(0);
    Purgatory purgatory(wheel);
    Patient patient;
    patient.start(purgatory, 0, 10, {});
    patient.later = 30;
    wheel.advance(29);
    CHECK_FALSE(purgatory.has_completions());
    CHECK(patient.waiting());
    CHECK(patient.ParkedOperation::deadline() == 30);
    CHECK(purgatory.metrics(heartbeat_kind).expired == 0);
    wheel.advance(30);
    purgatory.run_completions(30);
    CHECK(patient.answer == Outcome::expired);
    CHECK(purgatory.metrics(heartbeat_kind).expired == 1);
  }

  TEST_CASE("every kind has its own name, and all are reported in the order of their names") {
    CHECK(heartbeat_kind.name() == "heartbeat");
    const auto all = kinds();
    REQUIRE(all.size() == kind_count());
    std::set<std::string_view> names;
    for (const Kind kind : all) names.insert(kind.name());
    CHECK(names.size() == kind_count());
    CHECK(std::ranges::is_sorted(all, {}, &Kind::name));
    for (const Kind kind : {sync_kind, join_kind, fetch_kind, heartbeat_kind})
      CHECK(std::ranges::count(all, kind) == 1);
  }

  TEST_CASE("a purgatory has figures of every kind, also of those that nothing has happened to") {
    timing::TimingWheel wheel;
    Purgatory purgatory(wheel);
    CHECK(purgatory.stats(0).size() == kind_count());
    for (const Kind kind : kinds()) CHECK(purgatory.stats(0)[kind.index()].started == 0);
  }

  TEST_CASE("a wait of long ago is in the total and not in the last minutes") {
    timing::TimingWheel wheel;
    Purgatory purgatory(wheel);
    Waiter waiter(join_kind);
    waiter.start(purgatory, 0, 1'000, {});
    wheel.advance(1'000);
    purgatory.run_completions(1'000);
    const auto at = [&](Tick now) { return purgatory.stats(now)[join_kind.index()]; };
    CHECK(at(1'000).waited_ms.recent.max() == 1'000);
    CHECK(at(240'000).late_ms.recent.count() == 1);
    CHECK(at(301'000).waited_ms.recent.count() == 0);
    CHECK(at(301'000).waited_ms.total.max() == 1'000);
  }

  TEST_CASE("cancel_all() answers everyone who waits") {
    timing::TimingWheel wheel;
    Purgatory purgatory(wheel);
    WatchList list;
    std::vector<std::unique_ptr<Waiter>> waiters;
    const std::array watching{Watching{list, 1}};
    const auto all = kinds();
    for (std::size_t i = 0; i < 100; ++i) {
      waiters.push_back(std::make_unique<Waiter>(all[i % all.size()]));
      waiters.back()->start(purgatory, 0, 1000, watching);
    }
    purgatory.cancel_all();
    CHECK(list.empty());
    CHECK(wheel.empty());
    CHECK(purgatory.run_completions(0) == 100);
    for (const auto& waiter : waiters) CHECK(waiter->answers == 1);
  }

  TEST_CASE("operations that outlive their purgatory are withdrawn, not answered") {
    timing::TimingWheel wheel;
    WatchList list;
    Waiter waiting(fetch_kind), queued(fetch_kind);
    {
      Purgatory purgatory(wheel);
      const std::array watching{Watching{list, 1}};
      waiting.start(purgatory, 0, 1000, watching);
      queued.start(purgatory, 0, 1000, watching);
      queued.cancel();
    }
    CHECK(list.empty());
    CHECK(wheel.empty());
    CHECK(waiting.answers + queued.answers == 0);
    CHECK_FALSE(waiting.waiting());
  }
}

TEST_SUITE("purgatory against a model") {
  // Numbers that grow, and operations that wait until all that they watch have grown enough, or
  // any has.  The model looks at every operation after every event.
  struct Model {
    static constexpr std::size_t list_count = 5;

    struct Operation final : DelayedOperation {
      Operation(Model& m, std::size_t n) : DelayedOperation(fetch_kind), model(m), number(n) {}
      bool is_satisfied() override {
        ++model.asked;
        return holds();
      }
      void on_complete(Outcome outcome) override { model.answered(*this, outcome); }

      bool has_reached(std::size_t i) const { return model.numbers[lists[i]] >= thresholds[i]; }
      bool holds() const {
        std::size_t count = 0;
        for (std::size_t i = 0; i < lists.size(); ++i) count += has_reached(i) ? 1U : 0U;
        return model.gone || (all ? count == lists.size() : count > 0);
      }

      Model& model;
      const std::size_t number;
      std::vector<std::size_t> lists;
      std::vector<Threshold> thresholds;
      bool all = false;
      // The model's expectation: how it was decided, until it is answered.
      bool pending = false;
      std::optional<Outcome> decided;
    };

    timing::TimingWheel wheel;
    Purgatory purgatory{wheel};
    std::array<WatchList, list_count> lists;
    std::array<Threshold, list_count> numbers{};
    std::vector<std::unique_ptr<Operation>> operations;
    std::mt19937_64 random;
    Tick now = 0;
    bool gone = false;
    bool in_run = false;
    std::uint64_t asked = 0, answers = 0, at_once = 0, events = 0;

    explicit Model(std::uint64_t seed, std::size_t count) : random(seed) {
      for (std::size_t i = 0; i < count; ++i) {
        operations.push_back(std::make_unique<Operation>(*this, i));
      }
    }

    std::uint64_t below(std::uint64_t bound) { return random() % bound; }

    void start(Operation& operation) {
      operation.lists.clear();
      operation.thresholds.clear();
      operation.all = below(3) == 0;
      std::vector<Watching> watching;
      for (std::uint64_t i = 0, count = 1 + below(4); i < count; ++i) {
        const auto list = static_cast<std::size_t>(below(list_count));
        operation.lists.push_back(list);
        operation.thresholds.push_back(numbers[list] + static_cast<Threshold>(below(40)));
        watching.push_back({lists[list], operation.thresholds.back()});
      }
      operation.pending = true;
      operation.decided.reset();
      const std::uint64_t answers_before = answers;
      const bool holds = operation.holds();
      if (holds) {
        operation.decided = Outcome::satisfied;
        ++at_once;
      }
      const bool waits = operation.start(purgatory, now, now + below(200), watching);
      REQUIRE(waits == !holds);
      REQUIRE((answers > answers_before) == holds);
    }

    void answered(Operation& operation, Outcome outcome) {
      ++answers;
      REQUIRE(operation.pending);
      REQUIRE(operation.decided == outcome);
      operation.pending = false;
      if (in_run && below(4) == 0) event();
    }

    // Every operation is as the model says: what holds is decided, what does not still waits.
    void check() {
      std::size_t waiting = 0;
      for (const auto& operation : operations) {
        if (!operation->pending) {
          REQUIRE_FALSE(operation->waiting());
          continue;
        }
        if (!operation->decided && operation->holds()) operation->decided = Outcome::satisfied;
        if (!operation->decided && operation->ParkedOperation::deadline() <= wheel.now() &&
            operation->outcome() == Outcome::expired) {
          operation->decided = Outcome::expired;
        }
        REQUIRE(operation->outcome() == operation->decided);
        REQUIRE(operation->waiting() == !operation->decided);
        waiting += operation->waiting() ? 1U : 0U;
      }
      REQUIRE(purgatory.metrics(fetch_kind).waiting == waiting);
      REQUIRE(wheel.size() == waiting);
    }

    void event() {
      ++events;
      auto& operation = operations[static_cast<std::size_t>(below(operations.size()))];
      switch (below(10)) {
        case 0: {
          if (operation->pending && !operation->decided) operation->decided = Outcome::cancelled;
          operation->cancel();
          break;
        }
        case 1: {
          // Its own answer may be running: that one is destroyed in other tests.
          if (in_run) break;
          operation = std::make_unique<Operation>(*this, operation->number);
          break;
        }
        case 2: {
          const bool waits = operation->waiting();
          REQUIRE(operation->move_deadline(std::max(operation->ParkedOperation::deadline(), now) +
                                           below(100)) == waits);
          break;
        }
        case 3: {
          if (below(50) != 0) break;
          gone = true;
          for (WatchList& list : lists) list.check_all();
          for (const WatchList& list : lists) REQUIRE(list.empty());
          check();
          gone = false;
          break;
        }
        case 4:
        case 5:
        case 6: {
          const auto list = static_cast<std::size_t>(below(list_count));
          numbers[list] += static_cast<Threshold>(below(10));
          lists[list].advance_to(numbers[list]);
          break;
        }
        default:
          if (!operation->pending) start(*operation);
      }
      check();
    }

    void turn() {
      now += below(20);
      wheel.advance(now, 1 + below(10));
      check();
      in_run = true;
      purgatory.run_completions(now, 1 + below(30));
      in_run = false;
      check();
    }
  };

  TEST_CASE(
      "random events decide exactly as a check of all operations would, and answer each once") {
    const std::uint64_t seed = std::random_device{}();
    CAPTURE(seed);  // Printed when a check fails; put it here to replay the run.
    for (std::uint64_t round = 0; round < 40; ++round) {
      CAPTURE(round);
      Model model(seed + round, 1 + (round * 7) % 60);
      for (int i = 0; i < 2000; ++i) {
        model.event();
        if (model.below(4) == 0) model.turn();
      }
      while (model.purgatory.has_completions()) model.purgatory.run_completions(model.now);
      const KindMetrics& metrics = model.purgatory.metrics(fetch_kind);
      REQUIRE(metrics.queued == 0);
      REQUIRE(metrics.started == metrics.answered_at_once + metrics.waiting + metrics.satisfied +
                                     metrics.expired + metrics.cancelled + metrics.withdrawn);
      REQUIRE(metrics.answered_at_once == model.at_once);
    }
  }
}

}  // namespace
}  // namespace tarry::purgatory
