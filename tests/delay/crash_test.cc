// The process dies before every step of what the engine does, one after the other: of accepting,
// loading, dealing, delivering, a checkpoint, a cancel, a replacement, a topic's deletion, a
// long batch of which a part goes to the disk, and what is due beside a flood that does not fit.
//
//   act, a step at a time: a record of the journal is durable | a piece of work | a turn
//     |
//     '-- crash before step n, with none, one or all of the journal's records that wait, with or
//         without what the store had written (it may have been flushed at any time)
//           |
//           '-- start again, go on with the act, and let time pass until nothing is pending
//
// Then no acknowledged record is lost or there twice, and what was cancelled, replaced or of a
// deleted topic was not delivered.  TestHost checks every delivery as it is handed over.  Each rule
// has a negative control: a host that breaks it, and is caught.
//
// TARRY_CRASHES=N: a crash at each N-th step (1: at every step), and all variants of each.

#include <cstdlib>
#include <numeric>

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

std::string number(const char* name, int i) {
  return name + std::to_string(i);
}

struct Crash {
  std::size_t at = ~std::size_t{0};  // Before this step of the act.
  std::size_t kept = 0;              // The number of waiting journal records that are kept.
  bool flushed = false;
};

class Run {
 public:
  Run(const Engine::Options& options, const Crash& crash) : host(options), crash_(crash) {
    host.broken = &broken;
    host.finds_at_once = false;
    host.acknowledged = [this](const Buffer& batch) {
      for (const auto& record : read_batch(batch)) {
        if (!record.header("x-schedule-action")) acknowledged_.insert(record.value);
      }
    };
  }

  // Without a crash, until all is quiet.
  void prepare(milliseconds time = milliseconds{0}) { host.pass(time); }

  // Does all that there is to do in `time`, a step at a time.
  void drive(milliseconds time) {
    const WallTime end = host.clock.wall_now + time;
    while (true) {
      while (step()) {
      }
      if (host.clock.wall_now >= end) return;
      host.clock.pass(std::min(milliseconds{200}, end - host.clock.wall_now));
    }
  }
  void jump(milliseconds time) { host.clock.pass(time); }

  void schedule(const TopicPartition& partition, const std::string& value, const std::string& delay,
                const std::string& id = {}) {
    host.schedule(partition, value, delay, id);
  }
  // Records first to last - 1 with their ids, in turn due in two hours and in a second.
  void schedule_soon_and_later(int first, int last) {
    for (int i = first; i < last; ++i)
      schedule(orders, number("v", i), i % 2 ? "1s" : "2h", number("id", i));
  }
  // The record with this value, which has this id, is cancelled; the answer says whether it was.
  void cancel(const TopicPartition& partition, const std::string& id, const std::string& value) {
    may_end.insert(value);
    cancels_.push_back({host.cancel(partition, id), value});
  }

  // Nothing more is done: everything leaves.
  void end() {
    for (int rounds = 0; rounds < 400 && !host.pending().empty() && broken.empty(); ++rounds) {
      WallTime first = host.pending().begin()->second.key.due;
      for (const auto& [sequence, entry] : host.pending()) first = std::min(first, entry.key.due);
      if (first > host.clock.wall_now + seconds{30})
        host.clock.pass(first - host.clock.wall_now - seconds{20});
      host.pass(seconds{25});
    }
    host.must(host.pending().empty(), "what the journal has is delivered");
    std::map<std::string, int> delivered;
    for (const auto& partition : {orders, others})
      for (const auto& record : host.log(partition)) ++delivered[record.value];
    for (const auto& [value, times] : delivered) host.must(times == 1, "nothing is there twice");
    for (const auto& value : acknowledged_) {
      if (!may_end.contains(value))
        host.must(delivered.contains(value), "what was acknowledged is delivered");
    }
    for (const auto& [answer, value] : cancels_) {
      if (*answer == ControlOutcome::done)
        host.must(!delivered.contains(value), "what was cancelled is not delivered");
    }
    for (const auto& value : never) host.must(!delivered.contains(value), "what ended stays so");
    if (broken.empty()) {
      host.must(host.total() == 0, "what is counted is pending");
      host.must(host.engine->stats().early_total == 0, "nothing is early");
    }
  }

  std::set<std::string> broken;
  TestHost host;
  std::set<std::string> may_end;  // Values that are cancelled, replaced or deleted perhaps,
  std::set<std::string> never;    //   and those for which that is durable.
  std::size_t steps = 0;
  bool has_crashed = false;
  // The steps before which a part of a batch is written, and the rest is not applied.
  std::vector<std::size_t> half_applied{};

 private:
  // The next thing that can be done, of each kind in its turn; false: there is none.
  bool step() {
    if (!has_crashed && !host.engine->has_applied_all() && host.engine->stats().tier.written > 0 &&
        (half_applied.empty() || half_applied.back() != steps))
      half_applied.push_back(steps);
    if (broken.empty() && steps == crash_.at && !has_crashed) crash();
    for (int tried = 0; tried < 3; ++tried) {
      kind_ = (kind_ + 1) % 3;
      if (kind_ == 0 && !host.idle()) return host.sync(1), ++steps, true;
      if (kind_ == 1 && host.background.step()) return ++steps, true;
      if (kind_ == 2 && host.turn(1) != 0) return ++steps, true;
    }
    return false;
  }
  void crash() {
    has_crashed = true;
    if (crash_.flushed) REQUIRE(host.store->flush().has_value());
    host.crash(std::min(crash_.kept, host.appended_and_waiting()), milliseconds{300});
  }

  struct Cancel {
    std::shared_ptr<std::optional<ControlOutcome>> answer;
    std::string value;
  };

  const Crash crash_;
  int kind_ = 0;
  std::set<std::string> acknowledged_;
  std::vector<Cancel> cancels_;
};

struct Act {
  const char* name;
  Engine::Options options;
  std::function<void(Run&)> prepare;
  std::function<void(Run&)> act;
};

Engine::Options small(std::size_t memory_bytes) {
  Engine::Options out;
  out.memory_bytes = memory_bytes;
  out.batch_records = 8;
  out.partition_batches = 2;
  out.step_loads = 16;
  out.lead = seconds{20};
  return out;
}

Act accepting() {
  return {"accept", small(1u << 20), [](Run&) {},
          [](Run& run) {
            run.schedule(orders, "a", "900");
            run.drive(milliseconds{0});
            REQUIRE(run.host.produce(orders, {{"now", {}},
                                              {"b", {{"x-delay", "400"}}},
                                              {"c", {{"x-delay", "1500"}, {"x-schedule-id", "c"}}},
                                              {"at once", {{"x-delay", "0"}}}}));
            run.schedule(others, "d", "5m", "d");
            run.drive(seconds{2});
          }};
}

Act loading() {
  return {"load", small(1u << 20),
          [](Run& run) {
            for (int i = 0; i < 40; ++i)
              run.schedule(i % 2 ? orders : others, number("far", i),
                           std::to_string(3'600'000 + i));
            run.prepare();
            run.host.checkpoint();
            run.prepare();
            run.jump(hours{1} - seconds{21});
          },
          [](Run& run) { run.drive(seconds{23}); }};
}

Act dealing() {
  return {"deal", small(24'000),
          [](Run& run) {
            for (int i = 0; i < 120; ++i) {
              run.schedule(orders, number("far", i) + std::string(100, 'x'),
                           std::to_string(3'600'000 + i % 10 * 3));
              if (i % 30 != 29) continue;
              run.prepare();
              run.host.checkpoint();
              run.prepare();
            }
            run.schedule(others, "in a year", "500d");
            run.prepare();
            run.host.checkpoint();
            run.prepare();
            run.jump(hours{1} - seconds{21});
          },
          [](Run& run) {
            run.drive(seconds{23});
            run.jump(hours{24 * 480});
            run.drive(seconds{1});
            run.host.checkpoint();
            run.drive(seconds{1});
          }};
}

Act delivering() {
  return {"delivery", small(1u << 20),
          [](Run& run) {
            for (int i = 0; i < 40; ++i)
              run.schedule(i % 3 ? orders : others, number("v", i), std::to_string(500 + i % 4));
            run.prepare();
          },
          [](Run& run) { run.drive(seconds{1}); }};
}

Act checkpointing() {
  return {"checkpoint", small(1u << 20),
          [](Run& run) {
            run.schedule_soon_and_later(0, 12);
            run.prepare();
          },
          [](Run& run) {
            run.host.checkpoint();
            run.schedule(orders, "beside it", "2h", "beside");
            run.drive(seconds{2});
            run.cancel(orders, "id2", "v2");
            run.drive(milliseconds{0});
            run.host.checkpoint();
            run.drive(milliseconds{0});
          }};
}

Act cancelling() {
  return {"cancel", small(1u << 20),
          [](Run& run) {
            run.schedule_soon_and_later(0, 6);
            run.prepare();
            run.host.checkpoint();
            run.prepare();
            run.schedule_soon_and_later(6, 10);
            run.prepare();
          },
          [](Run& run) {
            for (const int i : {0, 1, 6, 7}) run.cancel(orders, number("id", i), number("v", i));
            run.may_end.insert("v2");
            run.host.cancel_by_record(orders, "id2");
            run.drive(milliseconds{0});
            run.host.checkpoint();
            run.drive(seconds{2});
          }};
}

Act replacing() {
  return {"replace", small(1u << 20),
          [](Run& run) {
            run.schedule_soon_and_later(0, 6);
            run.prepare();
            run.host.checkpoint();
            run.prepare();
          },
          [](Run& run) {
            for (const int i : {0, 1}) {
              run.may_end.insert(number("v", i));
              run.host.produce_in_steps(
                  orders, {{number("instead of ", i),
                            {{"x-delay", "1500"}, {"x-schedule-id", number("id", i)}}}});
              run.drive(milliseconds{0});
            }
            (void)run.host.move(orders, "id2", run.host.clock.wall() + milliseconds{700});
            (void)run.host.deliver_now(orders, "id4");
            (void)run.host.move(orders, "id3", run.host.clock.wall() + hours{3});
            run.drive(milliseconds{0});
            run.host.checkpoint();
            run.drive(seconds{2});
          }};
}

Act deleting() {
  return {"topic deletion", small(1u << 20),
          [](Run& run) {
            for (int i = 0; i < 8; ++i) {
              run.schedule(orders, number("v", i), i % 2 ? "1s" : "2h", number("id", i));
              run.schedule(others, number("other", i), i % 2 ? "1s" : "2h");
              run.may_end.insert(number("v", i));
              run.never.insert(number("v", i));
              if (i != 4) continue;
              run.prepare();
              run.host.checkpoint();
              run.prepare();
            }
            run.prepare();
          },
          [](Run& run) {
            for (int step = 0; step < 3; ++step) {
              run.host.delete_topic(orders.topic, step);
              run.drive(milliseconds{0});
            }
            run.host.checkpoint();
            run.drive(seconds{2});
          }};
}

// Memory is short after the first turn of a batch that takes several.
Act spilling() {
  return {"spill", small(24'000), [](Run&) {},
          [](Run& run) {
            std::vector<TestRecord> records;
            for (int i = 0; i < 2'600; ++i)
              records.push_back({number("v", i), {{"x-delay", std::to_string(3'600'000 + i % 7)}}});
            run.host.produce_in_steps(orders, records);
            run.drive(milliseconds{0});
            run.host.checkpoint();
            run.drive(milliseconds{0});
          }};
}

// More is due at once in one partition than memory holds, and it is refused; others are due with
// it.
Act rescuing() {
  return {"rescue", small(60'000),
          [](Run& run) {
            run.host.refuses = [](const TopicPartition& of) { return of == orders; };
            const std::string at = std::to_string(to_ms(run.host.clock.wall()) + 60'000);
            for (int i = 0; i < 20; ++i) {
              run.schedule(others, number("other", i), std::to_string(60'000 + i % 4 * 100),
                           number("id", i));
              std::vector<TestRecord> records;
              for (int n = 0; n < 25; ++n) {
                records.push_back(
                    {number("flood", i * 25 + n) + std::string(100, 'x'), {{"x-deliver-at", at}}});
              }
              REQUIRE(run.host.produce(orders, records));
              run.prepare();
              if (i % 8 == 7) run.host.checkpoint();
            }
            run.prepare();
            run.jump(milliseconds{59'000});
          },
          [](Run& run) {
            run.drive(milliseconds{1'050});
            // It may be refused, because the memory is spent.
            (void)run.host.produce(others, {{"meanwhile", {{"x-delay", "300"}}}});
            run.cancel(others, "id3", "other3");
            (void)run.host.move(others, "id7", run.host.clock.wall() + milliseconds{400});
            run.drive(milliseconds{200});
            run.host.checkpoint();
            run.drive(milliseconds{500});
            if (!run.has_crashed) {
              CHECK(run.host.engine->stats().tier.rescued > 0);
              CHECK(!run.host.log(others).empty());
            }
            run.host.refuses = nullptr;
            run.drive(milliseconds{500});
          }};
}

std::vector<Act> acts() {
  return {accepting(),  loading(),   dealing(),  delivering(), checkpointing(),
          cancelling(), replacing(), deleting(), spilling(),   rescuing()};
}

using Controls = std::function<void(TestHost&)>;

// The rules that were broken; and the number of steps, if it did not die.
std::set<std::string> broken_by(const Act& act, const Crash& crash, const Controls& controls,
                                std::size_t* steps = nullptr) {
  Run run(act.options, crash);
  act.prepare(run);
  if (controls) controls(run.host);
  act.act(run);
  if (steps != nullptr) *steps = run.steps;
  run.end();
  return run.broken;
}

std::size_t count_steps(const Act& act) {
  static std::map<std::string, std::size_t> known;
  const auto [at, is_new] = known.try_emplace(act.name, 0);
  if (!is_new) return at->second;
  const auto broken = broken_by(act, {}, nullptr, &at->second);
  CHECK_MESSAGE(broken.empty(), act.name);
  return at->second;
}

// The controls are caught in this act: of all crashes some break this rule.
bool is_caught(const Act& act, const Controls& controls, const std::string& rule) {
  const std::size_t steps = count_steps(act);
  for (const std::size_t part : {8, 5, 7, 6, 4, 3, 2, 1}) {
    const auto broken = broken_by(act, {steps * part / 9, 1'000, false}, controls);
    if (broken.contains(rule)) return true;
  }
  return false;
}

template <typename Is>
Controls forget(Is is) {
  return [is](TestHost& host) {
    host.controls.forgets = [is](const storage::Operation& operation) { return is(operation); };
  };
}
Controls forget_removals(storage::RemovalReason how) {
  return forget([how](const storage::Operation& operation) {
    const auto* const gone = std::get_if<storage::PendingRemoved>(&operation);
    return gone != nullptr && gone->how == how;
  });
}

TEST_SUITE("crash") {
  TEST_CASE(
      "nothing is lost, delivered twice, early or revived, at whatever step the process dies") {
    set_log_level(LogLevel::off);
    const char* const given = std::getenv("TARRY_CRASHES");
    std::size_t crashes = 0;
    for (const Act& act : acts()) {
      CAPTURE(act.name);
      const std::size_t steps = count_steps(act);
      REQUIRE(steps > 10);
      // A few of them, others in each act; or as many as are asked for.
      const std::size_t stride = given != nullptr
                                     ? static_cast<std::size_t>(std::max(1, std::atoi(given)))
                                     : std::max<std::size_t>(1, steps / 2);
      for (std::size_t at = given != nullptr ? 0 : crashes % stride; at < steps; at += stride) {
        for (std::size_t variant = 0; variant < 6; ++variant) {
          if (given == nullptr && variant != at % 6) continue;
          static constexpr std::size_t kept[] = {0, 1, 1'000};
          const Crash crash{at, kept[variant % 3], variant >= 3};
          CAPTURE(at);
          CAPTURE(variant);
          const auto broken = broken_by(act, crash, nullptr);
          const auto rules = std::accumulate(
              broken.begin(), broken.end(), std::string(),
              [](std::string all, const std::string& rule) { return all + rule + "; "; });
          CHECK_MESSAGE(broken.empty(), rules);
          ++crashes;
        }
      }
    }
    if (given != nullptr) MESSAGE(crashes << " crashes");
    set_log_level(LogLevel::info);
  }

  TEST_CASE("a process that dies between two turns of a batch, a part of it written, loses none") {
    set_log_level(LogLevel::off);
    const Act act = spilling();
    const auto die_at = [&](std::size_t at, bool flushed, const Controls& controls) {
      Run run(act.options, {at, 0, flushed});
      if (controls) controls(run.host);
      act.act(run);
      run.end();
      CHECK(run.has_crashed);
      return run.broken;
    };
    const Controls counts_records = [](TestHost& host) { host.controls.counts_records = true; };
    Run undisturbed(act.options, {});
    act.act(undisturbed);
    CAPTURE(undisturbed.half_applied.size());
    CHECK(undisturbed.half_applied.size() >= 2);
    std::size_t caught = 0;
    // Some of them, spread over all.
    const std::size_t stride = std::max<std::size_t>(1, undisturbed.half_applied.size() / 3);
    for (std::size_t i = 0; i < undisturbed.half_applied.size(); i += stride) {
      const std::size_t at = undisturbed.half_applied[i];
      CAPTURE(at);
      CHECK(die_at(at, true, nullptr).empty());
      CHECK(die_at(at, false, nullptr).empty());
      // Its first part is written up to a place within the record: whoever knows records alone
      // leaves out the rest.
      caught += die_at(at, true, counts_records).contains("what was acknowledged is delivered");
    }
    CHECK(caught >= 2);
    set_log_level(LogLevel::info);
  }

  TEST_CASE("the simulation catches a host that breaks a rule") {
    set_log_level(LogLevel::off);
    using storage::RemovalReason;
    const auto forget_added = forget([](const storage::Operation& operation) {
      return std::holds_alternative<storage::PendingAdded>(operation);
    });
    CHECK(is_caught(accepting(), forget_added, "what is counted is pending"));
    CHECK(is_caught(accepting(), forget_added, "what was acknowledged is delivered"));
    CHECK(is_caught(delivering(), forget_removals(RemovalReason::delivered),
                    "what is handed over is pending"));
    CHECK(is_caught(cancelling(), forget_removals(RemovalReason::cancelled),
                    "what is handed over is pending"));
    CHECK(is_caught(replacing(), forget_removals(RemovalReason::replaced),
                    "what is handed over is pending"));
    CHECK(is_caught(replacing(), forget_removals(RemovalReason::moved),
                    "what is counted is pending"));
    const Controls notes_early = [](TestHost& host) { host.controls.notes_early = true; };
    CHECK(is_caught(checkpointing(), notes_early, "what is counted is pending"));
    const Controls is_early = [](TestHost& host) { host.clock.ahead = milliseconds{50}; };
    CHECK(is_caught(delivering(), is_early, "nothing is early"));
    const Controls reverses = [](TestHost& host) { host.controls.reverses = true; };
    CHECK(is_caught(delivering(), reverses, "due records leave in their order"));
    const Controls forgets_deletion = [](TestHost& host) { host.controls.forgets_deletion = true; };
    CHECK(is_caught(deleting(), forgets_deletion, "what is counted is pending"));
    set_log_level(LogLevel::info);
  }
}

}  // namespace
}  // namespace tarry::delay
