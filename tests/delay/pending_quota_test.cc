// What users may have pending: who is refused, what frees room, and that nothing is counted twice.

#include <string>
#include <vector>

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

constexpr PrincipalId alice = 7, bob = 8;

PendingTerms records_at_most(std::int64_t records, PrincipalId of = alice) {
  return {.principal = of, .max_records = records, .user = of == alice ? "alice" : "bob"};
}

std::vector<TestRecord> delayed_records(std::size_t count, const std::string& id = {}) {
  std::vector<TestRecord> out;
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back({"v" + std::to_string(i), {{"x-delay", "60000"}}});
    if (!id.empty()) out.back().headers.push_back({"x-schedule-id", id + std::to_string(i)});
  }
  return out;
}
TestRecord cancel_of(const std::string& id) {
  return {"", {{"x-schedule-id", id}, {"x-schedule-action", "cancel"}}};
}

std::string quota_refusal(const std::expected<Offset, ScheduleErrors>& answer,
                          ScheduleErrors::Kind kind = ScheduleErrors::Kind::busy) {
  if (answer) return "taken";
  CHECK(answer.error().kind == kind);
  CHECK(answer.error().reason == "user_max_pending");
  return answer.error().message;
}

TEST_SUITE("pending quotas") {
  TEST_CASE("a user at its limit is refused and another goes on, until something is delivered") {
    TestHost host;
    host.terms = records_at_most(3);
    REQUIRE(host.produce(orders, delayed_records(3)).has_value());
    host.sync();
    CHECK(quota_refusal(host.produce(orders, delayed_records(2))) ==
          "user alice has 3 pending records and may have 3 (quota pending_records), but the batch "
          "adds 2; try again when some are delivered or cancelled");
    // Records that are not delayed are none of its business.
    CHECK(host.produce(orders, {{"at once"}}).has_value());
    host.terms = records_at_most(3, bob);
    CHECK(host.produce(orders, delayed_records(2)).has_value());
    host.pass(milliseconds{61'000});
    host.terms = records_at_most(3);
    CHECK(host.produce(orders, delayed_records(2)).has_value());
    host.sync();
    CHECK(host.use_of(alice).records == 2);
    CHECK(host.use_of(bob) == storage::PendingUse{});
  }

  TEST_CASE("a batch that exceeds a quota alone is too large, and need not be sent again") {
    TestHost host;
    constexpr auto too_many = ScheduleErrors::Kind::too_many;
    host.terms = records_at_most(3);
    CHECK(quota_refusal(host.produce(orders, delayed_records(4)), too_many) ==
          "user alice may have 3 pending records (quota pending_records), and the batch alone adds "
          "4; send smaller batches");
    CHECK(quota_refusal(host.produce(orders, delayed_records(4, "id")), too_many) != "taken");
    host.terms = {.principal = alice, .max_bytes = 10, .user = "alice"};
    CHECK(quota_refusal(host.produce(orders, delayed_records(1, "id")), too_many)
              .starts_with("user alice may have 10 bytes of pending records (quota pending_bytes), "
                           "and the batch alone adds "));
    const auto in_steps = host.produce_in_steps(orders, delayed_records(600, "id"));
    host.settle();
    CHECK(quota_refusal(*in_steps->answer, too_many) != "taken");
    CHECK(host.use_of(alice) == storage::PendingUse{});
  }

  TEST_CASE("records that are not durable yet count too, whatever partition they are for") {
    TestHost host;
    host.terms = records_at_most(3);
    REQUIRE(host.produce(orders, delayed_records(2)).has_value());
    CHECK(quota_refusal(host.produce(others, delayed_records(2))) != "taken");
    REQUIRE(host.produce(others, delayed_records(1)).has_value());
    CHECK(quota_refusal(host.produce(others, delayed_records(1))) != "taken");
    host.sync();
    CHECK(host.use_of(alice).records == 3);
  }

  TEST_CASE("a batch that is not appended gives its room back") {
    TestHost host;
    host.terms = records_at_most(3);
    {
      const Buffer bytes = make_batch(delayed_records(3), host.clock.wall());
      const auto accepted = host.accept(orders, check(bytes));
      REQUIRE(accepted.has_value());
      CHECK(host.use_of(alice).records == 3);
    }
    CHECK(host.use_of(alice) == storage::PendingUse{});
    host.refuses_commits = true;
    const auto in_steps = host.produce_in_steps(orders, delayed_records(3));
    host.settle();
    REQUIRE(in_steps->answer.has_value());
    CHECK_FALSE(in_steps->answer->has_value());
    CHECK(host.use_of(alice) == storage::PendingUse{});
  }

  TEST_CASE("a replacement counts as what it adds, and a cancel is never refused") {
    TestHost host;
    host.terms = records_at_most(3);
    REQUIRE(host.produce(orders, delayed_records(3, "id")).has_value());
    host.sync();
    CHECK(quota_refusal(host.produce(orders, delayed_records(4, "id"))) != "taken");
    REQUIRE(host.produce(orders, delayed_records(3, "id")).has_value());
    CHECK(host.use_of(alice).records == 3);
    host.sync();
    CHECK(host.use_of(alice).records == 3);
    // In one batch with the cancel of another.
    auto both = delayed_records(1);
    both.insert(both.begin(), cancel_of("id0"));
    REQUIRE(host.produce(orders, both).has_value());
    host.sync();
    CHECK(host.use_of(alice).records == 3);
    // A quota may be lowered below what there is.
    host.terms = records_at_most(1);
    CHECK(host.produce(orders, {cancel_of("id1")}).has_value());
    CHECK(host.produce(orders, {{"again", {{"x-delay", "60000"}, {"x-schedule-id", "id2"}}}})
              .has_value());
    host.sync();
    CHECK(host.use_of(alice).records == 2);
    CHECK(quota_refusal(host.produce(orders, delayed_records(1))) != "taken");
  }

  TEST_CASE("a user who replaces another user's record pays for its own in full") {
    TestHost host;
    host.terms = records_at_most(5);
    REQUIRE(host.produce(orders, delayed_records(2, "id")).has_value());
    host.sync();
    host.terms = records_at_most(1, bob);
    CHECK(quota_refusal(host.produce(orders, delayed_records(2, "id")),
                        ScheduleErrors::Kind::too_many) != "taken");
    host.terms = records_at_most(2, bob);
    REQUIRE(host.produce(orders, delayed_records(2, "id")).has_value());
    host.sync();
    CHECK(host.use_of(alice) == storage::PendingUse{});
    CHECK(host.use_of(bob).records == 2);
  }

  TEST_CASE("bytes are those of ids and stored records, and a larger replacement adds to them") {
    TestHost host;
    host.terms = {.principal = alice};
    REQUIRE(host.produce(orders, delayed_records(1, "id")).has_value());
    host.sync();
    const auto one = host.use_of(alice).bytes;
    CHECK(one == std::int64_t{host.pending().begin()->second.share.bytes});
    CHECK(one > 5);
    host.terms = {.principal = alice, .max_bytes = 2 * one, .user = "alice"};
    REQUIRE(host.produce(orders, delayed_records(2, "id")).has_value());
    host.sync();
    CHECK(host.use_of(alice).bytes == 2 * one);
    CHECK(
        quota_refusal(host.produce(orders, delayed_records(1))).contains("(quota pending_bytes)"));
    CHECK(quota_refusal(host.produce(
              orders, {{"longer", {{"x-delay", "60000"}, {"x-schedule-id", "id0"}}}})) != "taken");
    CHECK(host.produce(orders, {{"s", {{"x-delay", "60000"}, {"x-schedule-id", "id0"}}}})
              .has_value());
    host.sync();
    CHECK(host.use_of(alice).bytes == 2 * one - 1);
  }

  TEST_CASE("a long batch is refused when its ids are taken, and its records stay pending") {
    TestHost host;
    host.terms = records_at_most(700);
    const auto first = host.produce_in_steps(orders, delayed_records(600, "id"));
    host.settle();
    REQUIRE(first->answer->has_value());
    CHECK(host.use_of(alice).records == 600);
    const auto too_many = host.produce_in_steps(orders, delayed_records(701, "id"));
    host.settle();
    CHECK(quota_refusal(*too_many->answer) != "taken");
    CHECK(host.use_of(alice).records == 600);
    CHECK(host.pending().size() == 600);
    const auto second = host.produce_in_steps(orders, delayed_records(700, "id"));
    host.settle();
    REQUIRE(second->answer->has_value());
    CHECK(host.use_of(alice).records == 700);
    host.check_uses();
  }

  TEST_CASE(
      "a batch that does what its user may not is refused as a whole, and says what that is") {
    TestHost host;
    REQUIRE(host.produce(orders, delayed_records(2, "id")).has_value());
    host.sync();
    const auto reason_of = [&host](const std::vector<TestRecord>& records) {
      const auto answer = host.produce(orders, records);
      if (answer) return std::string("taken");
      CHECK(answer.error().kind == ScheduleErrors::Kind::denied);
      return std::string(answer.error().reason);
    };
    const TestRecord due_with_id{"now", {{"x-delay", "0"}, {"x-schedule-id", "id0"}}};
    host.terms = {.may_schedule = false};
    CHECK(reason_of({{"at once"}, delayed_records(1)[0]}) == may_not_schedule);
    CHECK(reason_of(delayed_records(1, "id")) == may_not_schedule);
    CHECK(reason_of({due_with_id}) == may_not_schedule);
    CHECK(reason_of({{"due", {{"x-delay", "0"}}}}) == "taken");
    CHECK(reason_of({cancel_of("id0")}) == "taken");
    host.terms = {.may_cancel = false};
    CHECK(reason_of({{"at once"}, cancel_of("id1")}) == may_not_cancel);
    const auto in_steps = host.produce_in_steps(orders, {delayed_records(1)[0], cancel_of("id1")});
    host.settle();
    CHECK(in_steps->answer->error().reason == may_not_cancel);
    host.sync();
    CHECK(host.pending().size() == 1);
    CHECK(reason_of(delayed_records(2, "id")) == "taken");
  }

  TEST_CASE("while a long batch is applied in turns, nobody gets the room that it takes") {
    TestHost host;
    host.terms = records_at_most(1'200);
    REQUIRE(host.produce_in_steps(orders, delayed_records(1'200, "id")) != nullptr);
    host.settle();
    REQUIRE(host.use_of(alice).records == 1'200);
    const auto again = host.produce_in_steps(orders, delayed_records(1'200, "id"));
    while (!again->answer) {
      host.background.run_all();
      host.turn(1);
    }
    REQUIRE(again->answer->has_value());
    host.sync();
    std::size_t turns = 0;
    for (; !host.engine->has_applied_all(); ++turns) {
      CHECK(host.use_of(alice).records == 1'200);
      CHECK(quota_refusal(host.produce(others, delayed_records(1))) != "taken");
      host.turn(1);
    }
    CHECK(turns > 2);
    CHECK(host.use_of(alice).records == 1'200);
  }

  TEST_CASE("a record is its producer's through moves, occurrences and a crash") {
    TestHost host;
    host.terms = records_at_most(4);
    REQUIRE(host.produce(orders, {{"moved", {{"x-delay", "600000"}, {"x-schedule-id", "a"}}},
                                  {"again", {{"x-every", "60000"}, {"x-schedule-id", "b"}}},
                                  {"gone", {{"x-delay", "90000"}, {"x-schedule-id", "c"}}}})
                .has_value());
    host.sync();
    host.terms = records_at_most(4, bob);
    (void)host.move(orders, "a", host.clock.wall() + milliseconds{900'000});
    host.pass(milliseconds{61'000});
    CHECK(host.use_of(alice).records == 3);
    host.check_uses();
    host.crash();
    CHECK(host.use_of(alice).records == 3);
    host.checkpoint();
    host.settle();
    host.crash();
    CHECK(host.use_of(alice).records == 3);
    // By somebody else who knows the id, from the disk: it is alice's room that is free.
    REQUIRE(host.produce(orders, {cancel_of("a"), cancel_of("b")}).has_value());
    (void)host.cancel(orders, "c");
    host.settle();
    CHECK(host.use_of(alice) == storage::PendingUse{});
    CHECK(host.use_of(bob) == storage::PendingUse{});
  }

  TEST_CASE("a topic that is dropped leaves its producers' accounts, with what is on its way") {
    TestHost host;
    host.terms = records_at_most(20);
    REQUIRE(host.produce(orders, delayed_records(3, "id")).has_value());
    REQUIRE(host.produce(others, delayed_records(2)).has_value());
    host.sync();
    host.checkpoint();
    host.settle();
    host.crash();  // These three are known from the start.
    REQUIRE(host.produce(orders, delayed_records(5, "id")).has_value());
    host.sync();
    REQUIRE(host.produce(orders, delayed_records(4)).has_value());
    CHECK(host.use_of(alice).records == 11);
    for (int step = 0; step < 3; ++step) host.delete_topic(orders.topic, step);
    host.settle();
    CHECK(host.use_of(alice).records == 2);
    host.check_uses();
    host.crash();
    CHECK(host.use_of(alice).records == 2);
  }
}

}  // namespace
}  // namespace tarry::delay
