// The engine against a model: random delayed records, recurring ones too, cancels, replacements,
// refusals, clock steps, deletions of topics and crashes.  TestHost checks every delivery as it is
// handed over (never early, never twice, the first by (due, sequence) first); here stands what must
// be so at the end, and of answers.
//
// A recurring record is in the log as often as its x-count says, each time a whole number of
// periods after the last one, unless its owner moves it or takes it away.
//
// TARRY_SEED repeats a run, TARRY_RUNS makes more of them.

#include <cstdlib>
#include <random>

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

struct Simulation {
  struct Asked {
    TopicPartition partition;
    std::string id;
    std::shared_ptr<std::optional<ControlOutcome>> answer;
    bool judged = false;
  };

  explicit Simulation(std::uint64_t seed) : random(seed), host(options(seed)) {
    host.refuses = [this](const TopicPartition& partition) {
      return stuck.contains(partition) || below(30) == 0;
    };
    host.finds_at_once = false;
    has_quotas = seed % 2 == 1;
    has_floods = seed % 4 == 3;
    // A record that became pending while a batch was packed may be due before those in it.
    host.checks_order = seed % 3 != 0;
    host.topics[partition_of(2).topic].missed.runs = MissedRuns::all;
    host.runs_from = host.clock.wall();
    host.acknowledged = [this](const Buffer& batch) {
      for (const auto& record : read_batch(batch))
        if (series.contains(record.value)) acknowledged.insert(record.value);
    };
  }

  static Engine::Options options(std::uint64_t seed) {
    Engine::Options options;
    if (seed % 3 == 0) options.compressed_inline = 0;  // All is compressed on the Background.
    if (seed % 2 == 0) return options;
    options.memory_bytes = 60'000;  // So that everything goes back and forth.
    options.step_loads = 8 + seed % 16;
    options.step_timers = 16;
    options.step_records = 32;
    options.batch_records = 4 + seed % 8;
    options.partition_batches = 1 + seed % 5;
    options.in_flight_records = 20 + seed % 50;
    options.lead = milliseconds{20'000};
    return options;
  }

  std::uint64_t below(std::uint64_t n) { return random() % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  TopicPartition any_partition() {
    const auto topic = one_in(6) ? doomed : static_cast<std::uint8_t>(1 + below(2));
    return partition_of(topic, static_cast<PartitionIndex>(below(3)));
  }
  std::string any_id() { return "id" + std::to_string(below(20)); }

  // Of four principals: one that is unknown, and in every other run one with a quota.
  void any_producer() {
    host.terms = {.principal = static_cast<PrincipalId>(below(4))};
    if (!has_quotas || host.terms.principal != with_quota) return;
    host.terms.max_records = record_quota;
    host.terms.max_bytes = byte_quota;
    host.terms.user = "alice";
  }
  void check_quota() {
    if (!has_quotas) return;
    const auto use = host.use_of(with_quota);
    CHECK_MESSAGE(use.records >= 0, "nothing is given back twice");
    CHECK_MESSAGE(use.bytes >= 0, "nothing is given back twice");
    CHECK_MESSAGE(use.records <= record_quota, "no quota is exceeded");
    CHECK_MESSAGE(use.bytes <= byte_quota, "no quota is exceeded");
  }

  void recur(TestRecord& record, const TopicPartition& partition, bool has_id) {
    const auto period = 1'000 + below(3'000);
    const auto count = 1 + below(4);
    series[record.value] = {.period = static_cast<std::int64_t>(period),
                            .count = count,
                            .has_id = has_id,
                            .stays = partition.topic != partition_of(doomed).topic};
    const bool forgets = forgets_last_run && count > 1;
    record.headers.push_back({"x-every", std::to_string(period)});
    record.headers.push_back({"x-count", std::to_string(forgets ? count - 1 : count)});
  }

  void produce() {
    const TopicPartition partition = any_partition();
    std::vector<TestRecord> records;
    for (std::uint64_t n = 1 + below(6); n != 0; --n) {
      TestRecord record{"v" + std::to_string(next_value++), {}};
      if (one_in(6)) {
        record.headers = {{"x-schedule-action", "cancel"}, {"x-schedule-id", any_id()}};
      } else if (!one_in(8)) {
        const auto delay = one_in(20) ? 60'000 + below(60'000) : one_in(10) ? 0 : below(4'000);
        record.headers.push_back({"x-delay", std::to_string(delay)});
        const bool has_id = one_in(3);
        if (has_id) record.headers.push_back({"x-schedule-id", any_id()});
        if (one_in(8)) {
          recur(record, partition, has_id);
        } else if (one_in(10)) {
          record.headers.push_back(
              {"x-expire-at", std::to_string(to_ms(host.clock.wall()) +
                                             static_cast<std::int64_t>(delay + 1 + below(2'000)))});
        }
      }
      records.push_back(std::move(record));
    }
    any_producer();
    const auto codec = static_cast<records::Codec>(below(5));
    auto& before = in_steps[partition];
    if (before && !before->answer) return;  // A partition's batches come one after the other.
    if (before && !*before->answer)
      CHECK(before->answer->error().kind == ScheduleErrors::Kind::busy);
    before.reset();
    if (one_in(3)) {
      before = host.produce_in_steps(partition, records, {.codec = codec});
      return;
    }
    const auto produced = host.produce(partition, records, {.codec = codec});
    // Memory is spent for a while; nothing has changed.
    if (!produced) CHECK(produced.error().kind == ScheduleErrors::Kind::busy);
  }

  // More than fits into a small memory, due in one millisecond of one partition.
  void flood() {
    const TopicPartition partition = any_partition();
    if (in_steps[partition] && !in_steps[partition]->answer) return;
    const auto due = to_ms(host.clock.wall()) + static_cast<std::int64_t>(below(6'000));
    std::vector<TestRecord> records;
    for (std::uint64_t n = 100 + below(300); n != 0; --n) {
      TestRecord record{"v" + std::to_string(next_value++), {}};
      record.headers.push_back({"x-deliver-at", std::to_string(due)});
      if (one_in(20)) record.headers.push_back({"x-schedule-id", any_id()});
      records.push_back(std::move(record));
    }
    any_producer();
    (void)host.produce(partition, records);
  }

  // A batch that takes two turns: after the first one memory may be short, and a part of the batch
  // is on the disk before the rest of it is applied.
  void crash_within_batch() {
    std::vector<TestRecord> records;
    for (std::uint64_t n = 520 + below(300); n != 0; --n) {
      const auto delay = one_in(2) ? 90'000 + below(5'000) : below(4'000);
      records.push_back({"v" + std::to_string(next_value++), {{"x-delay", std::to_string(delay)}}});
    }
    const auto partition = any_partition();
    if (in_steps[partition] && !in_steps[partition]->answer) return;
    any_producer();
    const auto batch = host.produce_in_steps(partition, records);
    for (int turns = 0; turns < 10 && !batch->answer; ++turns) {
      host.background.run_all();
      host.turn(1);
    }
    if (!batch->answer || !*batch->answer) return;  // It is refused, or others are before it.
    host.sync();
    for (int turns = 0; turns < 3 && !host.engine->has_applied_all(); ++turns) {
      host.background.run_all();
      if (one_in(2)) break;
      host.turn(1);
    }
    if (one_in(2)) REQUIRE(host.store->flush().has_value());
    crash();
  }
  void crash() {
    host.crash(below(host.appended_and_waiting() + 1), milliseconds{below(3'000)});
    host.runs_from = host.clock.wall();
    asked.clear();
    delivers.clear();
    in_steps.clear();
  }

  // The topic goes; a crash may come between the steps of that.  Another one has its records next.
  void delete_topic() {
    const TopicId topic = partition_of(doomed++).topic;
    for (int step = 0; step < 3; ++step) {
      host.delete_topic(topic, step);
      if (one_in(6)) return crash();
    }
  }

  void cancel() {
    const TopicPartition partition = any_partition();
    std::string name = any_id();
    if (one_in(2) && !host.pending().empty()) {
      auto entry = host.pending().lower_bound(1 + below(host.pending().rbegin()->first));
      name = entry->second.handle();
      cancels_asked.insert(entry->second.value);
    }
    auto answer = std::make_shared<std::optional<ControlOutcome>>();
    host.engine->cancel(partition, name,
                        [this, partition, name, answer](const Result<Controlled>& told) {
                          if (!told) return;
                          *answer = told->outcome;
                          // A recurring record may have been delivered before: it is not again from
                          // here on.
                          if (told->outcome == ControlOutcome::done && name.starts_with('@'))
                            runs_when_cancelled[name] = runs_of(partition, name);
                        });
    host.look();
    asked.push_back({partition, name, std::move(answer)});
  }
  std::size_t runs_of(const TopicPartition& partition, const std::string& handle) {
    return static_cast<std::size_t>(std::ranges::count_if(
        host.log(partition),
        [&](const auto& record) { return record.header("x-schedule-handle") == handle; }));
  }

  // Another due time, earlier or later or in the past; or now.
  void move() {
    TopicPartition partition = any_partition();
    std::string name = any_id();
    if (!one_in(3) && !host.pending().empty()) {
      const auto entry = host.pending().lower_bound(1 + below(host.pending().rbegin()->first));
      name = entry->second.handle();
      partition = entry->second.partition;
      moves_asked.insert(entry->second.value);
    }
    if (one_in(3)) {
      delivers.push_back({partition, name, host.deliver_now(partition, name)});
      return;
    }
    const auto by = static_cast<std::int64_t>(below(one_in(5) ? 90'000 : 4'000)) - 500;
    (void)host.move(partition, name, host.clock.wall() + milliseconds{by});
  }

  // A record that was said to be delivered stands where it was said.
  void judge_deliveries() {
    for (auto& each : delivers) {
      if (!each.answer->has_value() || std::exchange(each.judged, true)) continue;
      const auto& told = **each.answer;
      if (!told || told->outcome != ControlOutcome::done) continue;
      const auto& log = host.log(each.partition);
      REQUIRE(told->offset >= 0);
      REQUIRE(static_cast<std::size_t>(told->offset) < log.size());
      const auto& record = log[static_cast<std::size_t>(told->offset)];
      const bool by_handle = each.id.starts_with('@');
      CHECK(record.header(by_handle ? "x-schedule-handle" : "x-schedule-id") == each.id);
      ++delivered_now;
    }
  }

  // An answer is durable when it is given.
  void judge() {
    for (auto& each : asked) {
      if (each.judged || !each.answer->has_value()) continue;
      each.judged = true;
      if (!each.id.starts_with('@')) continue;
      const auto key = storage::parse_handle(each.id).value();
      const bool pending = host.pending().contains(key.sequence) &&
                           host.pending().at(key.sequence).partition == each.partition;
      CHECK_MESSAGE(!pending, "whatever is answered, it is pending no longer");
    }
  }

  void step() {
    const auto what = below(100);
    if (what < 30) {
      if (has_floods && one_in(20))
        flood();
      else
        produce();
    } else if (what < 38) {
      cancel();
    } else if (what < 45) {
      move();
    } else if (what < 65) {
      host.sync(below(4));
      for (auto works = below(3); works != 0; --works) host.background.step();
    } else if (what < 90) {
      host.clock.pass(milliseconds{below(one_in(10) ? 3'000 : 60)});
      for (auto turns = below(20); turns != 0; --turns) {
        host.turn(1);
        if (one_in(2)) host.background.step();
      }
    } else if (what < 92) {
      const auto partition = any_partition();
      if (one_in(3)) {
        host.out_of_service.insert(partition);  // Until the next crash.
      } else if (!stuck.erase(partition)) {
        stuck.insert(partition);
      }
    } else if (what < 94) {
      host.refuses_commits = !host.refuses_commits;
    } else if (what < 95) {
      host.clock.wall_now -= milliseconds{below(5'000)};
    } else if (what < 96) {
      const bool is_far = one_in(3);
      host.clock.wall_now += milliseconds{below(is_far ? 200'000 : 3'000)};
      // The runs in between were missed, if it is far enough.
      if (is_far) host.runs_from.reset();
    } else if (what < 97) {
      if (one_in(2)) {
        host.checkpoint();
      } else if (one_in(4)) {
        crash_within_batch();
      } else {
        crash();
      }
    } else if (what < 98 && one_in(6)) {
      delete_topic();
    } else {
      host.pass(milliseconds{below(500)});
    }
    rescued = std::max(rescued, host.engine->stats().tier.rescued);
    judge();
    judge_deliveries();
    check_quota();
  }

  void end() {
    stuck.clear();
    host.refuses = nullptr;
    host.refuses_commits = false;
    if (!host.out_of_service.empty()) crash();
    // Far enough for every due time, expiry and back-off, also after steps back.
    for (int i = 0; i < 60 && !(host.pending().empty() && host.idle()); ++i) {
      host.pass(milliseconds{10'000});
    }
    judge();
    CHECK_MESSAGE(host.pending().empty(), "nothing that was acknowledged is lost");
    CHECK(host.total() == 0);
    // With nothing on its way nothing is reserved.
    host.check_uses();
    const auto stats = host.engine->stats();
    CHECK(stats.early_total == 0);
    CHECK(stats.near == 0);
    CHECK(stats.overdue == 0);
    CHECK(stats.arriving == 0);
    CHECK_MESSAGE(host.wheel->empty(), "with nothing pending no timer runs");
    check_logs();
  }

  void check_logs() {
    std::set<std::string> seen;
    std::map<std::string, std::size_t> runs;                 // By handle.
    std::map<std::string, std::vector<std::int64_t>> times;  // Of recurring records, by value.
    for (std::uint8_t topic = 1; topic <= doomed; ++topic) {
      for (PartitionIndex index = 0; index < 3; ++index) {
        for (const auto& record : host.log(partition_of(topic, index))) {
          if (series.contains(record.value)) {
            times[record.value].push_back(std::stoll(record.header("x-scheduled-for").value()));
          } else {
            CHECK_MESSAGE(seen.insert(record.value).second, "nothing is delivered twice");
          }
          if (const auto handle = record.header("x-schedule-handle")) ++runs[*handle];
        }
      }
    }
    for (const auto& [handle, before] : runs_when_cancelled)
      CHECK_MESSAGE(runs[handle] == before, "what was cancelled is not delivered from then on");
    for (const auto& [value, rule] : series) check_runs(value, rule, times[value]);
  }

  struct Series {
    std::int64_t period = 0;  // In milliseconds.
    std::uint64_t count = 0;
    bool has_id = false;  // By which anybody moves, cancels or replaces it.
    bool stays = false;   // Its topic is not deleted.
  };
  void check_runs(const std::string& value, const Series& rule,
                  const std::vector<std::int64_t>& times) {
    CAPTURE(value);
    CHECK_MESSAGE(times.size() <= rule.count, "no run is delivered twice, and none after the last");
    if (rule.has_id) return;
    for (std::size_t i = 1; i < times.size() && !moves_asked.contains(value); ++i) {
      CHECK_MESSAGE(times[i] > times[i - 1], "each run is later than those before it");
      CHECK_MESSAGE((times[i] - times[0]) % rule.period == 0, "no lateness of a run adds up");
    }
    if (rule.stays && acknowledged.contains(value) && !cancels_asked.contains(value))
      host.must(times.size() == rule.count, each_run);
  }

  bool has_quotas = false;
  bool has_floods = false;
  std::uint64_t rescued = 0;  // Records, by one engine of it at most.
  static constexpr PrincipalId with_quota = 3;
  static constexpr std::int64_t record_quota = 12, byte_quota = 700;
  std::mt19937_64 random;
  TestHost host;
  std::set<TopicPartition> stuck;
  std::map<TopicPartition, std::shared_ptr<TestHost::InSteps>> in_steps;
  std::vector<Asked> asked;
  struct Delivering {
    TopicPartition partition;
    std::string id;
    TestHost::Answer answer;
    bool judged = false;
  };
  std::vector<Delivering> delivers;
  std::size_t delivered_now = 0;
  std::map<std::string, std::size_t> runs_when_cancelled;  // By handle.
  std::uint64_t next_value = 0;
  std::uint8_t doomed = 3;  // The topic that is deleted next.

  static constexpr auto each_run = "each run of a record that was acknowledged is delivered";
  std::map<std::string, Series> series;  // Recurring records, by value.
  // The values of those that were acknowledged, and that their owner has named by their handles.
  std::set<std::string> acknowledged, cancels_asked, moves_asked;
  bool forgets_last_run = false;  // A negative control, of each recurring record.
};

TEST_SUITE("simulation") {
  TEST_CASE("after random events no record is lost, duplicated, early or out of order") {
    set_log_level(LogLevel::off);
    const char* given = std::getenv("TARRY_SEED");
    const char* runs = std::getenv("TARRY_RUNS");
    std::uint64_t seed = given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    for (int left = runs ? std::atoi(runs) : given ? 1 : 8; left != 0; --left, ++seed) {
      CAPTURE(seed);
      Simulation simulation(seed);
      for (int i = 0; i < 1'500; ++i) simulation.step();
      simulation.end();
    }
    set_log_level(LogLevel::info);
  }

  TEST_CASE("floods that do not fit into memory let what is due beside them be rescued") {
    set_log_level(LogLevel::off);
    std::uint64_t rescued = 0;
    for (std::uint64_t seed = 3; seed < 12; seed += 4) {
      CAPTURE(seed);
      Simulation simulation(seed);
      for (int i = 0; i < 1'500; ++i) simulation.step();
      simulation.end();
      rescued += simulation.rescued;
    }
    CHECK(rescued > 0);
    set_log_level(LogLevel::info);
  }

  TEST_CASE("a last run that is never delivered is noticed") {
    set_log_level(LogLevel::off);
    std::set<std::string> broken;
    Simulation simulation(2);
    simulation.host.broken = &broken;
    simulation.forgets_last_run = true;
    for (int i = 0; i < 1'500; ++i) simulation.step();
    simulation.end();
    CHECK(broken.contains(Simulation::each_run));
    set_log_level(LogLevel::info);
  }
}

}  // namespace
}  // namespace tarry::delay
