#include "delay/engine.h"

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

using records::Codec;

TEST_SUITE("accept") {
  TEST_CASE("a batch that asks for nothing goes to the log as it came, in every codec") {
    TestHost host;
    for (int codec = 0; codec < 5; ++codec) {
      const Buffer batch = make_batch({{"a", {{"trace", "1"}}}, {"b", {{"x-schedule-id", "1"}}}},
                                      host.clock.wall(), {.codec = static_cast<Codec>(codec)});
      const auto accepted = host.accept(orders, check(batch));
      REQUIRE(accepted.has_value());
      CHECK(accepted->untouched());
      CHECK(accepted->is_empty());
    }
  }

  TEST_CASE("tarry.delay.enable=false: headers are ignored") {
    TestHost host;
    const Buffer batch = make_batch({{"a", {{"x-delay", "nonsense"}}}}, host.clock.wall());
    TopicDelay topic;
    topic.enable = false;
    CHECK(host.accept(orders, check(batch), topic)->untouched());
  }

  TEST_CASE("all delayed: nothing goes to the log and the base offset is -n, in every codec") {
    for (int codec = 0; codec < 5; ++codec) {
      TestHost host;
      const auto answer = host.produce(
          orders,
          {{"a", {{"x-delay", "5s"}}}, {"b", {{"x-delay", "1s"}}}, {"c", {{"x-delay", "5s"}}}},
          {.codec = static_cast<Codec>(codec)});
      CHECK(answer == Offset{-3});
      host.settle();
      CHECK(host.values(orders).empty());
      host.pass(milliseconds{999});
      CHECK(host.values(orders).empty());
      host.pass(milliseconds{1});
      CHECK(host.values(orders) == Strings{"b"});
      host.pass(milliseconds{4'000});
      CHECK(host.values(orders) == Strings{"b", "a", "c"});
    }
  }

  TEST_CASE("a mixed batch keeps deltas, count of offsets, producer and codec, and has holes") {
    for (int codec = 0; codec < 5; ++codec) {
      TestHost host;
      const Buffer batch =
          make_batch({{"late", {{"x-delay", "5s"}}},
                      {"plain", {{"trace", "1"}, {"x-schedule-id", "mine"}}},
                      {"", {{"x-schedule-action", "cancel"}, {"x-schedule-id", "nobody"}}},
                      {"now", {{"x-delay", "0"}, {"trace", "2"}, {"x-schedule-handle", "@forged"}}},
                      {"late too", {{"x-delay", "5s"}}}},
                     host.clock.wall(),
                     {.codec = static_cast<Codec>(codec),
                      .producer_id = 77,
                      .producer_epoch = 3,
                      .base_sequence = 9});
      const auto accepted = host.accept(orders, check(batch));
      REQUIRE(accepted.has_value());
      CHECK(!accepted->untouched());
      CHECK(!accepted->appends_nothing());
      CHECK(accepted->delayed() == 2);
      const auto view = records::BatchView::parse(accepted->immediate()).value();
      CHECK(view.codec() == static_cast<Codec>(codec));
      CHECK(view.last_offset_delta() == 4);
      CHECK(view.record_count() == 2);
      CHECK(view.producer_id() == 77);
      CHECK(view.producer_epoch() == 3);
      CHECK(view.base_sequence() == 9);
      CHECK(view.last_sequence() == 13);
      const auto read = read_batch(accepted->immediate());
      REQUIRE(read.size() == 2);
      CHECK(read[0].offset == 1);
      CHECK(read[0].value == "plain");
      CHECK(read[0].headers == std::vector<TestHeader>{{"trace", "1"}, {"x-schedule-id", "mine"}});
      CHECK(read[1].offset == 3);
      REQUIRE(read[1].headers.size() == 3);
      CHECK(read[1].headers[0] == TestHeader{"trace", "2"});
      CHECK(read[1].header("x-scheduled-for") == std::to_string(to_ms(host.clock.wall())));
      CHECK(storage::parse_handle(*read[1].header("x-schedule-handle")).has_value());
    }
  }

  TEST_CASE("a batch of cancels alone counts as all delayed") {
    TestHost host;
    const auto answer =
        host.produce(orders, {{"", {{"x-schedule-action", "cancel"}, {"x-schedule-id", "a"}}},
                              {"", {{"x-schedule-action", "cancel"}, {"x-schedule-id", "b"}}}});
    CHECK(answer == Offset{-2});
    host.settle();
    CHECK(host.engine->stats().cancel_unknown_total == 2);
    CHECK(host.values(orders).empty());
  }

  TEST_CASE(
      "each bad record of a batch is named by its index, and nothing changes, in every codec") {
    for (int codec = 0; codec < 5; ++codec) {
      TestHost host;
      const auto refused = host.produce(orders,
                                        {{"good", {{"x-delay", "5s"}}},
                                         {"bad", {{"x-delay", "soon"}}},
                                         {"plain", {}},
                                         {"bad", {{"x-every", "5ms"}}},
                                         {"bad", {{"x-delay", "1"}, {"x-deliver-at", "1"}}}},
                                        {.codec = static_cast<Codec>(codec)});
      REQUIRE(!refused.has_value());
      CHECK(refused.error().kind == ScheduleErrors::Kind::invalid);
      REQUIRE(refused.error().records.size() == 3);
      CHECK(refused.error().records[0].index == 1);
      CHECK(refused.error().records[0].message.find("x-delay") != std::string::npos);
      CHECK(refused.error().records[0].message.find("soon") != std::string::npos);
      CHECK(refused.error().records[1].index == 3);
      CHECK(refused.error().records[2].index == 4);
      host.pass(milliseconds{10'000});
      CHECK(host.values(orders).empty());
      CHECK(host.total() == 0);
    }
  }

  TEST_CASE("at most a hundred of a thousand bad records are named") {
    TestHost host;
    const std::vector<TestRecord> bad(1'000, {"", {{"x-delay", "soon"}}});
    const auto refused = host.produce(orders, bad);
    REQUIRE(!refused.has_value());
    CHECK(refused.error().records.size() == 100);
    CHECK(refused.error().message.find("999 more") != std::string::npos);
  }

  TEST_CASE("a delay in a transaction is refused, and a transactional batch without is untouched") {
    TestHost host;
    const records::BatchOptions options{
        .producer_id = 5, .producer_epoch = 0, .base_sequence = 0, .transactional = true};
    const auto refused = host.produce(orders, {{"a", {{"x-delay", "5s"}}}}, options);
    REQUIRE(!refused.has_value());
    CHECK(refused.error().kind == ScheduleErrors::Kind::invalid);
    CHECK(refused.error().records.size() == 1);
    CHECK(host.produce(orders, {{"a", {}}}, options).has_value());
  }

  TEST_CASE("a topic's default delay applies to records without a delay") {
    TestHost host;
    host.topics[orders.topic].default_delay = milliseconds{2'000};
    CHECK(host.produce(orders, {{"a", {}}, {"b", {}}}) == Offset{-2});
    host.pass(milliseconds{2'000});
    CHECK(host.values(orders) == Strings{"a", "b"});
  }

  TEST_CASE("without sequence numbers a delayed batch is refused as busy, and others are not") {
    TestHost host;
    host.block = 4;
    host.give_sequences_when_asked = false;
    host.crash();  // Starts again with a block of four.
    for (int i = 0; i < 4; ++i) host.schedule(orders, "a", "1s");
    CHECK(host.sequences_asked != 0);
    const auto refused = host.produce(orders, {{"a", {{"x-delay", "1s"}}}});
    REQUIRE(!refused.has_value());
    CHECK(refused.error().kind == ScheduleErrors::Kind::busy);
    CHECK(host.produce(orders, {{"a", {}}}).has_value());
    host.give();
    CHECK(host.produce(orders, {{"a", {{"x-delay", "1s"}}}}).has_value());
  }

  TEST_CASE("above tarry.delay.max.pending delayed records are refused, and nothing else is") {
    TestHost host;
    host.topics[orders.topic].max_pending = 2;
    const TestRecord delayed{"a", {{"x-delay", "10s"}, {"x-schedule-id", "a"}}};
    const TestRecord other{"b", {{"x-delay", "10s"}}};
    REQUIRE(host.produce(orders, {delayed, other}).has_value());
    host.settle();
    const auto refused = host.produce(orders, {other});
    REQUIRE(!refused.has_value());
    CHECK(refused.error().kind == ScheduleErrors::Kind::busy);
    CHECK(refused.error().message.find(
              "has 2 pending records, the batch would add 1, and the limit is 2") !=
          std::string::npos);
    CHECK(host.produce(orders, {{"plain", {}}}).has_value());
    CHECK(host.produce(orders, {{"due", {{"x-delay", "0"}}}}).has_value());
    CHECK(host.produce(others, {other}).has_value());
    host.cancel_by_record(orders, "a");
    host.settle();
    CHECK(host.produce(orders, {other}).has_value());
    host.pass(milliseconds{10'000});
    CHECK(host.produce(orders, {delayed, other}).has_value());
    // More than there may ever be, whatever is pending.
    for (const bool full : {true, false}) {
      if (!full) host.pass(milliseconds{10'000});
      const auto too_many = host.produce(orders, {other, other, other});
      REQUIRE(!too_many.has_value());
      CHECK(too_many.error().kind == ScheduleErrors::Kind::too_many);
      CHECK(too_many.error().reason == "delay_max_pending");
      CHECK(too_many.error().message ==
            "the batch has 3 delayed records, but the topic may have only 2 pending "
            "(tarry.delay.max.pending); send smaller batches");
    }
  }

  TEST_CASE("a record that is accepted and not pending yet counts for tarry.delay.max.pending") {
    TestHost host;
    host.checks_store = false;
    host.topics[orders.topic].max_pending = 1'000;
    const std::vector<TestRecord> records(500, {"v", {{"x-delay", "10s"}}});
    const auto other = TopicPartition{orders.topic, 1};
    REQUIRE(host.produce(orders, records).has_value());
    const auto in_steps = host.produce_in_steps(other, records);
    // The first is in the journal, the second is being taken apart.
    CHECK_FALSE(host.produce(orders, records).has_value());
    while (!in_steps->answer) host.background.run_all(), host.turn(1);
    CHECK((*in_steps->answer).has_value());
    CHECK_FALSE(host.produce(orders, records).has_value());
    host.settle();
    CHECK_FALSE(host.produce(orders, records).has_value());
    CHECK(host.total() == 1'000);
    host.pass(milliseconds{10'000});
    CHECK(host.total() == 0);
    CHECK(host.produce(orders, records).has_value());
    // One that is refused in the end counts no more.
    host.refuses_commits = true;
    const auto refused = host.produce_in_steps(other, records);
    while (!refused->answer) host.background.run_all(), host.turn(1);
    host.refuses_commits = false;
    CHECK(host.produce(orders, records).has_value());
  }

  TEST_CASE("an engine without sequence numbers asks again with the next record that needs one") {
    TestHost host;
    host.block = 1;
    host.give_sequences_when_asked = false;
    host.crash();
    host.schedule(orders, "a", "1s");
    for (int i = 0; i < 3; ++i) {
      const std::size_t asked = host.sequences_asked;
      host.engine->sequences_refused();
      REQUIRE_FALSE(host.produce(orders, {{"b", {{"x-delay", "1s"}}}}).has_value());
      CHECK(host.sequences_asked == asked + 1);
      // Not before that answer is there.
      REQUIRE_FALSE(host.produce(orders, {{"b", {{"x-delay", "1s"}}}}).has_value());
      CHECK(host.sequences_asked == asked + 1);
    }
    host.give();
    host.schedule(orders, "b", "1s");
  }

  TEST_CASE("a record that is added after its topic was deleted and swept leaves nothing behind") {
    TestHost host;
    host.schedule(orders, "first", "1h");
    host.settle();
    host.schedule(orders, "on its way", "1h", "id");
    REQUIRE(host.produce(orders, {{"now", {{"x-delay", "0"}, {"x-schedule-id", "due"}}}}));
    host.deleted.insert(orders.topic);
    host.engine->topic_deleted(orders.topic);
    host.drop(orders.topic);
    REQUIRE(host.store->reclaim(0.5, host.clock.wall()).has_value());
    host.checks_store = false;  // The journal's view of the test knows nothing of deleted topics.
    host.settle();
    CHECK(host.total() == 0);
    host.checkpoint();
    host.settle();
    CHECK(host.store->page({})->records.empty());
    CHECK(host.engine->stats().arriving == 0);
    CHECK(host.trace(orders, "due").empty());
    host.pass(std::chrono::hours{2});
    CHECK(host.values(orders) == Strings{"now"});
  }
}

}  // namespace
}  // namespace tarry::delay
