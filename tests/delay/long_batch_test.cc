// Batches with many records: no turn of the shard does more than a part of one.

#include <string>
#include <vector>

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

const TopicPartition jobs = partition_of(3), mails = partition_of(4);

std::vector<TestRecord> many(std::size_t count, const std::string& delay, const std::string& ids) {
  std::vector<TestRecord> out;
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back({"v" + std::to_string(i), {{"x-delay", delay}}});
    if (!ids.empty()) out.back().headers.push_back({"x-schedule-id", ids + std::to_string(i)});
  }
  return out;
}

// Until the engine has done its part; in so many turns.
std::size_t accept_all(TestHost& host, const TestHost::InSteps& batch) {
  std::size_t turns = 0;
  for (; !batch.answer; ++turns) {
    REQUIRE(turns < 10'000);
    host.background.run_all();
    host.turn(1);
  }
  return turns;
}

TEST_SUITE("long batches") {
  TEST_CASE("a long batch is applied in many turns, and others have theirs between") {
    TestHost host;
    host.checks_store = false;
    const auto batch = host.produce_in_steps(jobs, many(2'000, "1h", "order-"));
    accept_all(host, *batch);
    REQUIRE(batch->answer->has_value());
    CHECK(**batch->answer == -2'000);
    host.schedule(mails, "quick", "1ms");
    host.sync();
    CHECK(host.engine->stats().arriving >= 2'000 - 512);
    std::size_t turns = 0, before = host.engine->stats().arriving;
    while (host.engine->stats().arriving > 0) {
      REQUIRE(host.turn(1) == 1);
      const std::size_t now = host.engine->stats().arriving;
      CHECK(before - now <= 513);
      before = now;
      ++turns;
    }
    CHECK(turns >= 3);
    CHECK(host.total() == 2'001);
    host.pass(milliseconds{5});
    CHECK(host.values(mails) == std::vector<std::string>{"quick"});
    host.pass(milliseconds{3'600'000});
    CHECK(host.log(jobs).size() == 2'000);
  }

  TEST_CASE("records that a long batch replaces leave in many turns, and its commit encodes none") {
    TestHost host;
    host.checks_store = false;
    REQUIRE(host.produce(jobs, many(2'000, "1h", "id")).has_value());
    host.settle();
    const auto batch = host.produce_in_steps(jobs, many(2'000, "2h", "id"));
    CHECK(accept_all(host, *batch) >= 2'000 / 512);
    REQUIRE(batch->answer->has_value());
    CHECK(host.encoded_at_commit < 200);
    host.sync();
    std::size_t turns = 0, before = host.engine->stats().replaced_total;
    CHECK(before <= 512);
    for (; before < 2'000; ++turns) {
      REQUIRE(turns < 100);
      host.turn(1);
      const std::size_t now = host.engine->stats().replaced_total;
      CHECK(now - before <= 512);
      before = now;
    }
    CHECK(turns >= 3);
    host.settle();
    CHECK(host.pending().size() == 2'000);
    CHECK(host.total() == 2'000);
  }

  TEST_CASE(
      "the ids of a long batch that is due on arrival leave in many turns, with its offsets") {
    TestHost host;
    host.checks_store = false;
    host.schedule(jobs, "before", "1ms");
    host.pass(milliseconds{5});
    const auto past = std::to_string(to_ms(host.clock.wall()) - 1);
    std::vector<TestRecord> records = many(2'000, "1h", "id");
    for (std::size_t i = 0; i < records.size(); ++i)
      if (i % 4 != 3) records[i].headers[0] = {"x-deliver-at", past};
    const auto batch = host.produce_in_steps(jobs, records);
    CHECK(accept_all(host, *batch) >= (2'000 + 1'500) / 512);
    REQUIRE(batch->answer->has_value());
    CHECK(**batch->answer == 1);
    CHECK(host.encoded_at_commit < 200);
    const auto early = host.cancel(jobs, "id1998");  // It waits until that is durable.
    CHECK(!early->has_value());
    host.settle();
    CHECK(*early == ControlOutcome::already_delivered);
    CHECK(host.pending().size() == 500);
    for (const bool crashed : {false, true}) {
      if (crashed) host.crash();
      for (const Offset i : {0, 1, 1'000, 1'998}) {
        const auto events = host.trace(jobs, "id" + std::to_string(i));
        REQUIRE(events.size() == 1);
        CHECK(events[0].kind == storage::ScheduleEvent::Kind::delivered);
        CHECK(events[0].offset == 1 + i);
      }
    }
  }

  TEST_CASE("each record of a long batch that is not applied yet can be cancelled and found") {
    TestHost host;
    host.checks_store = false;
    const auto batch = host.produce_in_steps(jobs, many(1'500, "1h", "order-"));
    accept_all(host, *batch);
    const auto not_durable = host.cancel(jobs, "order-1490");
    host.sync();
    const auto not_applied = host.cancel(jobs, "order-1491");
    const auto applied = host.cancel(jobs, "order-1");
    const auto moved = host.move(jobs, "order-1492", host.clock.wall() + milliseconds{2});
    host.cancel_by_record(jobs, "order-1493");
    REQUIRE(host.produce(jobs, {{"new", {{"x-delay", "2s"}, {"x-schedule-id", "order-1494"}}}})
                .has_value());
    CHECK(host.engine->stats().arriving > 900);
    host.settle();
    CHECK(*not_durable == ControlOutcome::done);
    CHECK(*not_applied == ControlOutcome::done);
    CHECK(*applied == ControlOutcome::done);
    CHECK((*moved)->value().outcome == ControlOutcome::done);
    CHECK(host.pending().size() == 1'500 - 4);
    CHECK(host.total() == 1'500 - 4);
    host.pass(milliseconds{3'600'000});
    CHECK(host.log(jobs).size() == 1'500 - 4);
    CHECK(host.values(jobs).at(0) == "v1492");
    CHECK(host.values(jobs).at(1) == "new");
  }

  TEST_CASE("a look-up of a record of a batch that is not applied yet waits, and tells the truth") {
    TestHost host;
    host.checks_store = false;
    host.schedule(jobs, "before", "2h", "order-1499");
    host.schedule(jobs, "cancelled", "2h", "gone");
    host.settle();
    const auto batch = host.produce_in_steps(jobs, many(1'500, "1h", "order-"));
    accept_all(host, *batch);
    host.cancel_by_record(jobs, "gone");
    const auto not_durable = host.look_id(jobs, "order-1490");
    host.sync();
    const auto not_applied = host.look_id(jobs, "order-1499");
    const auto cancelled = host.look_id(jobs, "gone");
    const auto& last = host.pending().rbegin()->second;
    REQUIRE(last.value == "v1499");
    const auto by_handle = host.look_handle(last.handle());
    const auto unknown = host.look_id(jobs, "nobody");
    std::optional<std::size_t> events;
    host.engine->trace(jobs, "order-1499", [&](auto told) { events = told.value().size(); });
    host.background.run_all();
    CHECK(host.engine->stats().arriving > 900);
    CHECK(!*not_durable);
    CHECK(!*not_applied);
    CHECK(!*cancelled);
    CHECK(!*by_handle);
    CHECK(!events);
    CHECK(*unknown);
    host.settle();
    REQUIRE(*not_durable);
    CHECK((*not_durable)->record->id == "order-1490");
    REQUIRE(*not_applied);
    CHECK((*not_applied)->record->key.sequence == last.key.sequence);
    REQUIRE(*by_handle);
    CHECK((*by_handle)->record->id == "order-1499");
    REQUIRE(*cancelled);
    CHECK(!(*cancelled)->record);
    CHECK(events == 3);  // Scheduled, replaced, scheduled.
  }

  TEST_CASE(
      "a record that a long batch replaces is replaced once, whatever was delivered meanwhile") {
    TestHost host;
    host.checks_store = false;
    host.checks_order = false;  // What the batch has taken stays behind.
    auto before = many(900, "1h", "id");
    for (std::size_t i = 0; i < 600; ++i) before[i].headers[0].value = "20ms";
    REQUIRE(host.produce(jobs, before).has_value());
    host.settle();
    const auto batch = host.produce_in_steps(jobs, many(900, "2h", "id"));
    host.background.run_all();
    host.turn(1);
    CHECK(!batch->answer);
    // Half of what it replaces falls due while it is taken apart: what it has taken stays.
    host.clock.pass(milliseconds{30});
    accept_all(host, *batch);
    REQUIRE(batch->answer->has_value());
    host.settle();
    const auto delivered = host.log(jobs).size();
    CHECK(delivered > 0);
    CHECK(delivered <= 600 - DurableChanges::slice_records);
    CHECK(host.pending().size() == 900);
    host.pass(milliseconds{3 * 3'600'000});
    CHECK(host.log(jobs).size() == delivered + 900);
  }

  TEST_CASE("a long batch that is refused gives back the ids that it has taken") {
    TestHost host;
    host.checks_store = false;
    host.checks_order = false;  // Records that are given back come later.
    REQUIRE(host.produce(jobs, many(1'200, "1s", "id")).has_value());
    host.settle();
    const auto batch = host.produce_in_steps(jobs, many(1'200, "2h", "id"));
    host.background.run_all();
    host.turn(1);
    const auto cancelled = host.cancel(jobs, "id0");  // It waits for the batch.
    CHECK(!cancelled->has_value());
    host.refuses_commits = true;
    accept_all(host, *batch);
    CHECK(!batch->answer->has_value());
    host.refuses_commits = false;
    host.settle();
    CHECK(host.pending().size() == 1'199);
    CHECK(*cancelled == ControlOutcome::done);
    host.pass(milliseconds{2'000});
    CHECK(host.log(jobs).size() == 1'199);
    CHECK(host.engine->stats().overdue == 0);
  }

  TEST_CASE("a record of a short batch without ids is found before the batch is durable") {
    TestHost host;
    REQUIRE(host.produce(jobs, many(100, "1h", "")).has_value());
    host.settle();
    // The numbers go on.
    PendingKey third = host.pending().rbegin()->second.key;
    third.sequence += 3;
    REQUIRE(host.produce(jobs, many(100, "1h", "")).has_value());
    CHECK(host.engine->stats().arriving == 100);
    const auto cancelled = host.cancel(jobs, storage::encode_handle(third));
    host.settle();
    CHECK(host.engine->stats().arriving == 0);
    CHECK(*cancelled == ControlOutcome::done);
    CHECK(host.total() == 199);
    host.pass(milliseconds{3'600'000});
    CHECK(host.log(jobs).size() == 199);
  }

  TEST_CASE("a handle with another due time cancels nothing, also before the batch is durable") {
    for (const std::size_t count : {1, 100, 1'000}) {
      CAPTURE(count);
      TestHost host;
      host.checks_store = false;
      host.schedule(jobs, "before", "1h");
      host.settle();
      PendingKey made_up = host.pending().rbegin()->second.key;
      ++made_up.sequence;
      made_up.due += milliseconds{1};
      // One by one, a short batch as a whole, and a long one.
      if (count <= 100) {
        REQUIRE(host.produce(jobs, many(count, "1h", "")).has_value());
      } else {
        accept_all(host, *host.produce_in_steps(jobs, many(count, "1h", "")));
      }
      REQUIRE(host.engine->stats().arriving == count);
      const auto cancelled = host.cancel(jobs, storage::encode_handle(made_up));
      host.settle();
      CHECK(*cancelled == ControlOutcome::unknown);
      CHECK(host.total() == count + 1);
      host.pass(milliseconds{3'600'000});
      CHECK(host.log(jobs).size() == count + 1);
    }
  }

  TEST_CASE("a long batch that the journal has lost is looked into no more") {
    TestHost host;
    host.checks_store = false;
    const auto batch = host.produce_in_steps(jobs, many(1'500, "1h", "order-"));
    accept_all(host, *batch);
    CHECK(host.engine->stats().arriving == 1'500);
    host.fail_journal();
    host.background.run_all();  // Where it is freed.
    CHECK(host.engine->stats().arriving == 0);
    CHECK(host.engine->arriving_of(jobs.topic) == 0);
  }

  TEST_CASE("a long batch is freed on another thread, whatever becomes of it") {
    TestHost host;
    host.checks_store = false;
    const auto begin = [&] {
      auto batch = host.produce_in_steps(jobs, many(600, "2h", "id"));
      while (!batch->answer) {
        host.background.run_all();
        host.turn(1);
      }
      return batch;
    };
    const auto is_freed_elsewhere = [&] { return host.background.size() == 1; };
    host.terms = {.principal = 7, .max_bytes = 100, .user = "alice"};
    CHECK_FALSE(begin()->answer->has_value());
    CHECK(is_freed_elsewhere());
    host.settle();
    // Without an id there is nothing to take.
    const auto plain = host.produce_in_steps(jobs, many(600, "2h", ""));
    for (int i = 0; i < 10 && !plain->answer; ++i) host.background.step();
    REQUIRE(plain->answer);
    CHECK_FALSE(plain->answer->has_value());
    CHECK(is_freed_elsewhere());
    host.settle();
    host.terms = {};
    // The host has it already, and does not append it.
    host.refuses_commits = true;
    CHECK_FALSE(begin()->answer->has_value());
    CHECK(is_freed_elsewhere());
    host.refuses_commits = false;
    host.settle();
    host.refuses_appends = true;
    REQUIRE(begin()->answer->has_value());
    CHECK(is_freed_elsewhere());
    host.refuses_appends = false;
    host.settle();
    CHECK(host.pending().empty());
    REQUIRE(begin()->answer->has_value());
    host.sync();
    for (int i = 0; i < 10 && host.background.size() == 0; ++i) host.turn(1);
    CHECK(is_freed_elsewhere());
    host.settle();
    CHECK(host.pending().size() == 600);
  }

  TEST_CASE("an engine that goes while it takes a batch apart leaves all as it was") {
    TestHost host;
    host.checks_store = false;
    REQUIRE(host.produce(jobs, many(600, "1s", "id")).has_value());
    host.settle();
    const auto batch = host.produce_in_steps(jobs, many(600, "2h", "id"));
    host.background.run_all();
    host.turn(1);
    host.crash(0);
    CHECK(!batch->answer);
    CHECK(host.pending().size() == 600);
    host.pass(milliseconds{2'000});
    CHECK(host.log(jobs).size() == 600);
  }

  TEST_CASE("batches that wait to be applied count as memory for delayed records") {
    Engine::Options options;
    options.memory_bytes = 1 << 20;
    TestHost host(options);
    host.checks_store = false;
    std::size_t accepted = 0;
    // They are durable at once, and no step of the engine applies them.
    for (std::uint8_t topic = 10; topic < 60; ++topic) {
      const auto batch = host.produce_in_steps(partition_of(topic), many(2'000, "1h", ""));
      for (int i = 0; i < 10 && !batch->answer; ++i) host.background.run_all();
      REQUIRE(batch->answer);
      if (*batch->answer) ++accepted;
      host.sync();
    }
    CHECK(accepted >= 2);
    CHECK(accepted <= 10);
    host.settle();
    CHECK(host.total() == accepted * 2'000);
    CHECK(host.produce(jobs, many(1, "1h", "")).has_value());
  }

  TEST_CASE("a batch counts as the memory that was taken for it, however little of it is left") {
    Engine::Options options;
    options.memory_bytes = 1 << 20;
    TestHost host(options);
    host.checks_store = false;
    // Each record replaces the one before it, so that one is left.
    const TestRecord record{std::string(200, 'v'), {{"x-delay", "1h"}, {"x-schedule-id", "same"}}};
    const std::vector<TestRecord> records(400, record);
    std::string refused;
    int accepted = 0;
    for (std::uint8_t topic = 10; topic < 60 && refused.empty(); ++topic) {
      const auto answer = host.produce(partition_of(topic), records);
      if (answer) {
        ++accepted;
      } else {
        refused = std::string(answer.error().reason);
      }
    }
    CHECK(refused == "delay_memory_full");
    CHECK(accepted >= 2);
    CHECK(accepted <= 12);  // A hundred thousand bytes each.
    host.settle();
    CHECK(host.total() == static_cast<std::uint64_t>(accepted));
  }

  TEST_CASE("a short batch without ids in the journal hides no id of one before or after it") {
    TestHost host;
    host.schedule(jobs, "first", "1h", "id");
    REQUIRE(host.produce(jobs, many(100, "1h", "")).has_value());
    host.schedule(jobs, "second", "1h", "id");
    REQUIRE(host.produce(jobs, many(100, "1h", "")).has_value());
    host.cancel_by_record(jobs, "id");
    CHECK(host.engine->stats().arriving == 202);
    host.settle();
    CHECK(host.engine->stats().arriving == 0);
    CHECK(host.total() == 200);
    CHECK(host.engine->stats().replaced_total == 1);
    CHECK(host.engine->stats().cancelled_total == 1);
    host.pass(milliseconds{3'600'000});
    CHECK(host.log(jobs).size() == 200);
  }

  TEST_CASE("a long batch, half applied when memory goes to the disk, is whole after a crash") {
    Engine::Options options;
    options.memory_bytes = 128 << 10;
    TestHost host(options);
    host.checks_store = false;
    const auto batch = host.produce_in_steps(jobs, many(4'000, "1h", ""));
    accept_all(host, *batch);
    host.sync();
    // A part of the batch's home is on disk, and the rest of it is not applied.
    while (host.engine->stats().tier.written == 0) {
      REQUIRE(host.engine->stats().arriving > 0);
      host.turn(1);
      host.background.run_all();
    }
    CHECK(host.engine->stats().arriving > 500);
    REQUIRE(host.store->flush().has_value());
    host.crash();
    CHECK(host.pending().size() == 4'000);
    CHECK(host.total() == 4'000);
    host.pass(milliseconds{3'600'000});
    CHECK(host.log(jobs).size() == 4'000);
  }

  TEST_CASE("a partition delivers nothing while something durable may have to leave before it") {
    TestHost host;
    host.checks_store = false;
    host.schedule(jobs, "later", "30ms");
    host.settle();
    std::vector<TestRecord> records;
    for (int i = 1'200; i > 0; --i) {
      const auto due = host.clock.wall() + milliseconds{1 + i % 20};
      records.push_back({"v", {{"x-deliver-at", std::to_string(to_ms(due))}}});
    }
    const auto batch = host.produce_in_steps(jobs, records);
    accept_all(host, *batch);
    host.sync();
    host.clock.pass(milliseconds{50});  // TestHost checks the order of what is delivered.
    host.settle();
    CHECK(host.log(jobs).size() == 1'201);
    CHECK(host.values(jobs).back() == "later");
  }
}

}  // namespace
}  // namespace tarry::delay
