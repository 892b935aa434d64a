// The owner of a pending record may move it or deliver it now.

#include <doctest/doctest.h>

#include <new>

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

using Strings = std::vector<std::string>;
using std::chrono::hours;
using std::chrono::minutes;

ControlOutcome outcome_of(const TestHost::Answer& answer) {
  REQUIRE_MESSAGE(answer->has_value(), "it is answered");
  REQUIRE_MESSAGE((**answer).has_value(), (**answer ? "" : (**answer).error().message));
  return (**answer)->outcome;
}

TEST_SUITE("move") {
  TEST_CASE("a look-up for which there is no memory is refused, and the next one is answered") {
    TestHost host;
    host.schedule(orders, "a", "60s", "id");
    host.settle();
    host.background.no_memory = true;
    const auto refused = host.move(orders, "id", host.clock.wall() + hours{2});
    REQUIRE(refused->has_value());
    REQUIRE_FALSE((*refused)->has_value());
    CHECK((*refused)->error().code == Errc::exhausted);
    const auto moved = host.move(orders, "id", host.clock.wall() + minutes{2});
    host.settle();
    CHECK(outcome_of(moved) == ControlOutcome::done);
    host.pass(minutes{2});
    CHECK(host.values(orders) == Strings{"a"});
  }

  TEST_CASE("a cancel or a move that finds no memory leaves the record as it was") {
    for (const bool cancels : {true, false}) {
      for (const bool asks_again : {true, false}) {
        CAPTURE(cancels);
        CAPTURE(asks_again);
        TestHost host;
        host.schedule(orders, "a", "60s", "id");
        host.settle();
        // By its handle the record is found in memory, so the request itself is told.
        const std::string handle = host.pending().begin()->second.handle();
        host.has_no_memory = true;
        bool is_refused = false;
        try {
          if (cancels) {
            host.cancel(orders, handle);
          } else {
            host.move(orders, handle, host.clock.wall() + hours{2});
          }
        } catch (const std::bad_alloc&) {
          is_refused = true;
        }
        CHECK(is_refused);
        host.settle();
        if (!asks_again) {
          host.pass(minutes{1});
          CHECK(host.values(orders) == Strings{"a"});
          continue;
        }
        const auto moved = host.move(orders, "id", host.clock.wall() + minutes{2});
        host.settle();
        CHECK(outcome_of(moved) == ControlOutcome::done);
        host.pass(minutes{1});
        CHECK(host.values(orders).empty());
        host.pass(minutes{1});
        CHECK(host.values(orders) == Strings{"a"});
      }
    }
  }

  TEST_CASE("a moved record is delivered only at its new time, whether later or earlier") {
    TestHost host;
    for (const auto by : {milliseconds{500}, milliseconds{90'000}, milliseconds{7'200'000}}) {
      CAPTURE(by.count());
      host.log(orders).clear();
      host.schedule(orders, "a", "30s", "id");
      host.settle();
      const WallTime due = host.clock.wall() + by;
      const auto answer = host.move(orders, "id", due);
      host.settle();
      CHECK(outcome_of(answer) == ControlOutcome::done);
      CHECK((**answer)->due == due);
      host.pass(by - milliseconds{1});
      CHECK(host.values(orders).empty());
      host.pass(milliseconds{1});
      CHECK(host.values(orders) == Strings{"a"});
      host.pass(hours{3});
      CHECK(host.values(orders) == Strings{"a"});
    }
  }

  TEST_CASE(
      "a record that is moved into the past is due when it is moved, and is not late since then") {
    TestHost host;
    host.schedule(orders, "a", "2h", "id");
    host.settle();
    const WallTime now = host.clock.wall();
    const auto answer = host.move(orders, "id", now - hours{3});
    host.settle();
    REQUIRE(outcome_of(answer) == ControlOutcome::done);
    CHECK((**answer)->due == now);
    host.pass(milliseconds{1});
    REQUIRE(host.values(orders) == Strings{"a"});
    CHECK(host.log(orders)[0].header("x-scheduled-for") == std::to_string(to_ms(now)));
    CHECK(host.engine->stats().lag_us.total.max() < 100'000);
  }

  TEST_CASE("a moved record keeps its handle, which finds it, and the consumer gets both times") {
    TestHost host;
    host.schedule(orders, "a", "1h");
    host.settle();
    const std::string handle = host.pending().begin()->second.handle();
    const WallTime first = host.clock.wall() + minutes{2};
    const WallTime second = host.clock.wall() + minutes{1};
    const auto once = host.move(orders, handle, first);
    host.settle();
    const auto twice = host.move(orders, handle, second);
    host.settle();
    CHECK(outcome_of(once) == ControlOutcome::done);
    CHECK(outcome_of(twice) == ControlOutcome::done);
    host.pass(minutes{1});
    REQUIRE(host.log(orders).size() == 1);
    CHECK(host.log(orders)[0].header("x-schedule-handle") == handle);
    CHECK(host.log(orders)[0].header("x-scheduled-for") == std::to_string(to_ms(second)));
    CHECK(outcome_of(host.move(orders, handle, first)) == ControlOutcome::unknown);
  }

  TEST_CASE("a moved record is found by its id and its handle after a crash and any replay") {
    for (const int checkpoint : {0, 1, 2}) {
      CAPTURE(checkpoint);
      TestHost host;
      host.schedule(orders, "a", "1h", "id");
      host.settle();
      if (checkpoint == 1) host.checkpoint();
      host.settle();
      const std::string handle = host.pending().begin()->second.handle();
      const auto answer = host.move(orders, "id", host.clock.wall() + hours{2});
      host.settle();
      REQUIRE(outcome_of(answer) == ControlOutcome::done);
      if (checkpoint == 2) host.checkpoint();
      host.settle();
      host.crash();
      const auto cancelled = host.cancel(orders, checkpoint == 1 ? handle : "id");
      host.settle();
      CHECK(*cancelled == ControlOutcome::done);
      CHECK(host.total() == 0);
      host.checkpoint();
      host.settle();
      const auto key = storage::parse_handle(handle);
      CHECK(!host.store->forward(*key).value());  // Its forwarding row has gone with it.
    }
  }

  TEST_CASE("a record that was moved twice is found by its handle, however much is replayed") {
    for (int checkpoint = 0; checkpoint <= 2; ++checkpoint) {
      CAPTURE(checkpoint);
      TestHost host;
      host.schedule(orders, "a", "1h");
      host.settle();
      const std::string handle = host.pending().begin()->second.handle();
      for (const int later : {2, 3}) {
        host.move(orders, handle, host.clock.wall() + hours{later});
        host.settle();
        if (later == 1 + checkpoint) host.checkpoint();
        host.settle();
      }
      host.crash();
      const auto cancelled = host.cancel(orders, handle);
      host.settle();
      CHECK(*cancelled == ControlOutcome::done);
    }
  }

  TEST_CASE("a move that was not durable when the process died has not happened") {
    TestHost host;
    host.schedule(orders, "a", "10s", "id");
    host.settle();
    const auto answer = host.move(orders, "id", host.clock.wall() + hours{1});
    CHECK(!answer->has_value());
    host.crash();
    host.pass(milliseconds{10'000});
    CHECK(host.values(orders) == Strings{"a"});
  }

  TEST_CASE(
      "records of one due time keep the order of their arrival, also the one that was moved") {
    TestHost host;
    host.schedule(orders, "first", "1h", "first");
    host.settle();
    const WallTime due = host.clock.wall() + minutes{5};
    host.schedule(orders, "second", "5m");
    host.settle();
    const auto answer = host.move(orders, "first", due);
    host.settle();
    REQUIRE(outcome_of(answer) == ControlOutcome::done);
    host.pass(minutes{5});
    CHECK(host.values(orders) == Strings{"first", "second"});
  }

  TEST_CASE("a record that is overdue and stuck can be moved away, and is not delivered twice") {
    TestHost host;
    host.refuses = [](const TopicPartition&) { return true; };
    host.schedule(orders, "a", "1s", "a");
    host.schedule(orders, "b", "1s", "b");
    host.pass(milliseconds{2'000});
    const WallTime due = host.clock.wall() + minutes{1};
    const auto answer = host.move(orders, "a", due);
    host.settle();
    REQUIRE(outcome_of(answer) == ControlOutcome::done);
    host.refuses = nullptr;
    host.pass(milliseconds{5'000});
    CHECK(host.values(orders) == Strings{"b"});
    host.pass(minutes{1});
    CHECK(host.values(orders) == Strings{"b", "a"});
  }

  TEST_CASE("a record that is accepted and not durable yet is moved once it is") {
    TestHost host;
    host.schedule(orders, "a", "1h", "id");
    const WallTime due = host.clock.wall() + minutes{1};
    const auto answer = host.move(orders, "id", due);
    CHECK(!answer->has_value());
    host.settle();
    CHECK(outcome_of(answer) == ControlOutcome::done);
    host.pass(minutes{1});
    CHECK(host.values(orders) == Strings{"a"});
  }

  TEST_CASE("a move beyond the record's expiry is refused and names it; the record stays") {
    TestHost host;
    const WallTime expires = host.clock.wall() + minutes{10};
    REQUIRE(host.produce(orders, {{"a",
                                   {{"x-delay", "1m"},
                                    {"x-schedule-id", "id"},
                                    {"x-expire-at", std::to_string(to_ms(expires))}}}})
                .has_value());
    host.settle();
    const auto answer = host.move(orders, "id", expires);
    REQUIRE(answer->has_value());
    REQUIRE(!(**answer).has_value());
    CHECK((**answer).error().code == Errc::invalid);
    CHECK((**answer).error().message.find("x-expire-at") != std::string::npos);
    host.pass(minutes{1});
    CHECK(host.values(orders) == Strings{"a"});
  }

  TEST_CASE("a move that could not be written leaves the record where it was") {
    TestHost host;
    host.schedule(orders, "a", "1s", "id");
    host.settle();
    host.refuses_commits = true;
    const auto answer = host.move(orders, "id", host.clock.wall() + hours{1});
    REQUIRE(answer->has_value());
    CHECK(!(**answer).has_value());
    host.refuses_commits = false;
    host.pass(milliseconds{1'000});
    CHECK(host.values(orders) == Strings{"a"});
  }

  TEST_CASE(
      "a cancel and a replacement that come while a move is on its way hold for the moved one") {
    TestHost host;
    host.schedule(orders, "a", "1h", "a");
    host.schedule(orders, "b", "1h", "b");
    host.settle();
    const auto a = host.move(orders, "a", host.clock.wall() + minutes{1});
    const auto b = host.move(orders, "b", host.clock.wall() + minutes{1});
    const auto cancelled = host.cancel(orders, "a");
    host.sync();
    host.schedule(orders, "b again", "2m", "b");
    host.settle();
    CHECK(outcome_of(a) == ControlOutcome::done);
    CHECK(*cancelled == ControlOutcome::done);
    host.pass(minutes{3});
    CHECK(host.values(orders) == Strings{"b again"});
    CHECK(host.total() == 0);
  }

  TEST_CASE("a record with the id of one whose move is on its way is refused for the moment") {
    TestHost host;
    host.schedule(orders, "a", "1h", "id");
    host.settle();
    const auto moved = host.move(orders, "id", host.clock.wall() + minutes{1});
    const TestRecord again{"again", {{"x-delay", "2m"}, {"x-schedule-id", "id"}}};
    const TestRecord cancel{"", {{"x-schedule-action", "cancel"}, {"x-schedule-id", "id"}}};
    for (const auto& record : {again, cancel}) {
      const auto refused = host.produce(orders, {record});
      REQUIRE(!refused.has_value());
      CHECK(refused.error().kind == ScheduleErrors::Kind::busy);
    }
    host.settle();
    CHECK(outcome_of(moved) == ControlOutcome::done);
    REQUIRE(host.produce(orders, {again}).has_value());
    host.pass(minutes{3});
    CHECK(host.values(orders) == Strings{"again"});
  }

  TEST_CASE("a record of a topic that is deleted while its move is on its way is gone") {
    TestHost host;
    host.schedule(orders, "a", "1h", "id");
    host.settle();
    const auto answer = host.move(orders, "id", host.clock.wall() + minutes{1});
    host.deleted.insert(orders.topic);
    host.drop(orders.topic);
    host.engine->topic_deleted(orders.topic);
    host.checks_store = false;
    host.settle();
    CHECK(outcome_of(answer) == ControlOutcome::unknown);
    host.pass(minutes{2});
    CHECK(host.values(orders).empty());
  }

  TEST_CASE(
      "an unknown name, a name of another partition and an old name are unknown, or answered by "
      "what became of them") {
    TestHost host;
    host.schedule(orders, "a", "1s", "id");
    host.settle();
    const WallTime due = host.clock.wall() + minutes{1};
    CHECK(outcome_of(host.move(orders, "nobody", due)) == ControlOutcome::unknown);
    CHECK(outcome_of(host.move(others, "id", due)) == ControlOutcome::unknown);
    CHECK(outcome_of(host.deliver_now(orders, "@zzz")) == ControlOutcome::unknown);
    host.pass(milliseconds{1'000});
    CHECK(outcome_of(host.move(orders, "id", due)) == ControlOutcome::already_delivered);
    CHECK(outcome_of(host.deliver_now(orders, "id")) == ControlOutcome::already_delivered);
  }
}

TEST_SUITE("deliver now") {
  TEST_CASE("a record is delivered now, and the answer is its offset") {
    TestHost host;
    host.schedule(orders, "later", "1h", "id");
    host.schedule(orders, "soon", "1s");
    host.pass(milliseconds{1'000});
    const auto answer = host.deliver_now(orders, "id");
    host.settle();
    CHECK(outcome_of(answer) == ControlOutcome::done);
    CHECK((**answer)->offset == 1);
    CHECK(host.values(orders) == Strings{"soon", "later"});
    CHECK(host.log(orders)[1].timestamp == host.clock.wall());
    host.pass(hours{2});
    CHECK(host.log(orders).size() == 2);
  }

  TEST_CASE("it is answered when it is delivered, however often the clock is in the way") {
    TestHost host;
    host.refuses = [](const TopicPartition&) { return true; };
    host.refusal = Errc::invalid;
    host.schedule(orders, "a", "1h", "id");
    host.settle();
    const auto answer = host.deliver_now(orders, "id");
    host.pass(milliseconds{3'000});
    CHECK(!answer->has_value());
    host.refuses = nullptr;
    host.pass(milliseconds{3'000});
    CHECK(outcome_of(answer) == ControlOutcome::done);
    CHECK((**answer)->offset == 0);
  }

  TEST_CASE(
      "a request that waits for the delivery is told when the record is cancelled, moved or "
      "dropped") {
    for (const std::string what : {"cancel", "move", "drop"}) {
      CAPTURE(what);
      TestHost host;
      host.refuses = [](const TopicPartition&) { return true; };
      // As when the clock is in the way: the request goes on waiting.
      host.refusal = Errc::invalid;
      host.schedule(orders, "a", "1h", "id");
      host.settle();
      const auto answer = host.deliver_now(orders, "id");
      host.settle();
      CHECK(!answer->has_value());
      if (what == "cancel") host.cancel(orders, "id");
      if (what == "move") host.move(orders, "id", host.clock.wall() + hours{1});
      if (what == "drop") {
        host.deleted.insert(orders.topic);
        host.checks_store = false;
        host.drop(orders.topic);
        host.engine->topic_deleted(orders.topic);
      }
      host.settle();
      REQUIRE(answer->has_value());
      if (what == "move") {
        CHECK(!(**answer).has_value());
      } else {
        CHECK(outcome_of(answer) == ControlOutcome::unknown);
      }
    }
  }

  TEST_CASE("a request that is told of a cancel in a batch finds the record counted no more") {
    TestHost host;
    host.refuses = [](const TopicPartition&) { return true; };
    host.refusal = Errc::invalid;
    host.schedule(orders, "a", "1h", "id");
    host.settle();
    std::optional<std::uint64_t> pending;
    host.engine->deliver_now(orders, "id",
                             [&](const Result<Controlled>&) { pending = host.total(); });
    host.look();
    host.settle();
    REQUIRE(!pending);
    host.cancel_by_record(orders, "id");
    host.settle();
    CHECK(pending == 0);
  }

  TEST_CASE(
      "a request that waits for the delivery is told why its partition takes none, and the record "
      "is delivered when it does") {
    TestHost host;
    bool refuses = true;
    host.refuses = [&](const TopicPartition& partition) { return refuses && partition == orders; };
    host.schedule(orders, "a", "1h", "id");
    host.schedule(others, "b", "1h", "id");
    host.settle();
    const auto answer = host.deliver_now(orders, "id");
    const auto other = host.deliver_now(others, "id");
    host.settle();
    CHECK(outcome_of(other) == ControlOutcome::done);
    REQUIRE(answer->has_value());
    REQUIRE(!(**answer).has_value());
    CHECK((**answer).error().code == Errc::exhausted);
    CHECK((**answer).error().message ==
          "not delivered yet: refused by the test; it stays pending and due now");
    refuses = false;
    host.pass(milliseconds{5'000});
    CHECK(host.values(orders) == Strings{"a"});
  }

  TEST_CASE("once the engine delivers no more, requests that wait or come are told so at once") {
    TestHost host;
    host.refuses = [](const TopicPartition&) { return true; };
    host.refusal = Errc::invalid;
    host.schedule(orders, "a", "1h", "id");
    host.schedule(orders, "b", "1h", "other");
    host.settle();
    const auto waits = host.deliver_now(orders, "id");
    host.settle();
    CHECK(!waits->has_value());
    host.engine->stop_waiting();
    const auto late = host.deliver_now(orders, "other");
    const auto cancel = host.cancel(orders, "other");
    for (const auto& answer : {waits, late}) {
      REQUIRE(answer->has_value());
      REQUIRE(!(**answer).has_value());
      CHECK((**answer).error().code == Errc::stopped);
    }
    CHECK(!cancel->has_value());
    CHECK(host.pending().size() == 2);
  }

  TEST_CASE("requests that wait for one record are bounded") {
    TestHost host;
    host.refuses = [](const TopicPartition&) { return true; };
    host.refusal = Errc::invalid;
    host.schedule(orders, "a", "1s", "id");
    host.pass(milliseconds{1'000});
    std::vector<TestHost::Answer> answers;
    for (int i = 0; i < 20; ++i) answers.push_back(host.deliver_now(orders, "id"));
    CHECK(std::ranges::count_if(answers, [](const auto& each) { return each->has_value(); }) == 4);
    CHECK((**answers.back()).error().code == Errc::exhausted);
  }
}

TEST_SUITE("trace") {
  TEST_CASE("an id remembers when it was scheduled, replaced, moved and delivered, and where") {
    TestHost host;
    const WallTime start = host.clock.wall();
    host.schedule(orders, "a", "1h", "id");
    host.settle();
    host.pass(milliseconds{10});
    host.schedule(orders, "b", "2h", "id");
    host.settle();
    host.pass(milliseconds{10});
    host.move(orders, "id", start + minutes{1});
    host.settle();
    host.pass(minutes{1});
    REQUIRE(host.values(orders) == Strings{"b"});
    const auto events = host.trace(orders, "id");
    REQUIRE(events.size() == 6);
    using Kind = storage::ScheduleEvent::Kind;
    const auto is = [](const storage::ScheduleEvent& event, Kind kind, WallTime at, WallTime due) {
      return event.kind == kind && event.at == at && event.key.due == due;
    };
    const WallTime second = start + milliseconds{10};
    CHECK(is(events[0], Kind::scheduled, start, start + hours{1}));
    CHECK(is(events[1], Kind::replaced, second, start + hours{1}));
    CHECK(is(events[2], Kind::scheduled, second, second + hours{2}));
    CHECK(is(events[3], Kind::moved, start + milliseconds{20}, second + hours{2}));
    CHECK(is(events[4], Kind::scheduled, second, start + minutes{1}));
    CHECK(events[4].first == second + hours{2});
    CHECK(events[5].kind == Kind::delivered);
    CHECK(events[5].key.due == start + minutes{1});
    CHECK(events[5].offset == 0);
    // A replay adds nothing.
    host.crash();
    CHECK(host.trace(orders, "id") == events);
    host.pass(hours{2});
    CHECK(host.trace(orders, "id").empty());
  }

  TEST_CASE("an id remembers its last 32 events") {
    TestHost host;
    host.schedule(orders, "a", "1h", "id");
    host.settle();
    for (int i = 0; i < 40; ++i) {
      host.pass(milliseconds{1});
      host.move(orders, "id", host.clock.wall() + hours{1});
      host.settle();
    }
    const auto events = host.trace(orders, "id");
    host.checkpoint();
    host.settle();
    const auto kept = host.trace(orders, "id");
    CHECK(kept.size() == storage::max_id_events);
    CHECK(kept.back() == events.back());
  }
}

}  // namespace
}  // namespace tarry::delay
