#include "delay/engine.h"

#include <rocksdb/perf_context.h>
#include <rocksdb/perf_level.h>

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

using records::Codec;

using Strings = std::vector<std::string>;

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

  TEST_CASE("tarry.delay.enable=false: nobody looks at headers") {
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
            "the batch has 3 delayed records, and the topic may have 2 pending ones "
            "(tarry.delay.max.pending); send fewer of them in one batch");
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

TEST_SUITE("delivery") {
  TEST_CASE(
      "the headers that schedule a record are removed, its id stays, and two headers are added") {
    TestHost host;
    const WallTime due = host.clock.wall() + milliseconds{1'000};
    REQUIRE(host.produce(orders, {{"v",
                                   {{"a", "1"},
                                    {"x-delay", "1s"},
                                    {"x-schedule-id", "mine"},
                                    {"x-scheduled-for", "forged"},
                                    {"x-expire-at", std::to_string(to_ms(due) + 500)},
                                    {"x-schedule-handle", "forged"},
                                    {"null", std::nullopt}},
                                   "key"}}));
    host.settle();
    const auto key = host.pending().begin()->second.key;
    host.pass(milliseconds{1'000});
    REQUIRE(host.log(orders).size() == 1);
    const ReadRecord& record = host.log(orders)[0];
    CHECK(record.key == "key");
    CHECK(record.value == "v");
    CHECK(record.timestamp == due);
    CHECK(record.headers ==
          std::vector<TestHeader>{{"a", "1"},
                                  {"x-schedule-id", "mine"},
                                  {"null", std::nullopt},
                                  {"x-scheduled-for", std::to_string(to_ms(due))},
                                  {"x-schedule-handle", storage::encode_handle(key)}});
  }

  TEST_CASE("tarry.delay.timestamp says which time a delivered record has") {
    for (const auto which :
         {DeliveredTimestamp::due, DeliveredTimestamp::original, DeliveredTimestamp::delivery}) {
      TestHost host;
      host.topics[orders.topic].timestamp = which;
      const WallTime sent = host.clock.wall();
      host.schedule(orders, "a", "1s");
      host.settle();
      host.clock.pass(milliseconds{1'500});
      host.settle();
      REQUIRE(host.log(orders).size() == 1);
      const WallTime expected = which == DeliveredTimestamp::due ? sent + milliseconds{1'000}
                                : which == DeliveredTimestamp::original
                                    ? sent
                                    : sent + milliseconds{1'500};
      CHECK(host.log(orders)[0].timestamp == expected);
    }
  }

  TEST_CASE("a topic with LogAppendTime has the time of delivery") {
    TestHost host;
    host.topics[orders.topic].log_append_time = true;
    host.schedule(orders, "a", "1s");
    host.settle();
    host.clock.pass(milliseconds{1'500});
    host.settle();
    CHECK(host.log(orders).at(0).timestamp == host.clock.wall());
  }

  TEST_CASE("no record is added to the store before its journal record is durable") {
    TestHost host;
    host.schedule(orders, "a", "10ms");
    host.clock.pass(milliseconds{1'000});
    host.turn();
    CHECK(host.deliveries == 0);
    CHECK(host.total() == 0);
    host.settle();
    CHECK(host.values(orders) == Strings{"a"});
  }

  TEST_CASE("equal due times leave in the order of their arrival, others by due time") {
    TestHost host;
    const std::string due = std::to_string(to_ms(host.clock.wall()) + 500);
    std::vector<std::string> expected;
    for (int i = 0; i < 300; ++i) {
      REQUIRE(host.produce(orders, {{std::to_string(i), {{"x-deliver-at", due}}}}));
      expected.push_back(std::to_string(i));
    }
    host.schedule(orders, "first", "100ms");
    expected.insert(expected.begin(), "first");
    host.pass(milliseconds{500});
    CHECK(host.values(orders) == expected);
  }

  TEST_CASE("batches stay within max.message.bytes, and a larger record gets its own batch") {
    TestHost host;
    host.topics[orders.topic].max_message_bytes = 4'096;
    for (int i = 0; i < 40; ++i) host.schedule(orders, std::string(300, 'a'), "1s");
    host.schedule(orders, std::string(20'000, 'b'), "1s");
    for (int i = 0; i < 5; ++i) host.schedule(orders, std::string(300, 'c'), "1s");
    host.pass(milliseconds{1'000});
    CHECK(host.log(orders).size() == 46);
    std::size_t largest = 0;
    for (const std::size_t size : host.batch_sizes()) largest = std::max(largest, size);
    CHECK(largest <= 4'096 / 300);
    CHECK(largest >= 8);
  }

  TEST_CASE("a refused delivery is tried again after a back-off, and nobody else waits") {
    TestHost host;
    host.refuses = [](const TopicPartition& partition) { return partition == orders; };
    for (int i = 0; i < 5; ++i) {
      host.schedule(orders, "o" + std::to_string(i), "1s");
      host.schedule(others, "x" + std::to_string(i), "1s");
    }
    host.pass(milliseconds{5'000});
    CHECK(host.log(others).size() == 5);
    CHECK(host.log(orders).empty());
    const auto refused = host.engine->stats().refused_total;
    CHECK(refused >= 5);
    CHECK(refused <= 15);  // 10, 20, 40 ... 1 000 ms.
    host.refuses = nullptr;
    host.pass(milliseconds{1'000});
    CHECK(host.values(orders) == Strings{"o0", "o1", "o2", "o3", "o4"});
  }

  TEST_CASE("a record that cannot be delivered before its x-expire-at is removed and counted") {
    TestHost host;
    const std::string expiry = std::to_string(to_ms(host.clock.wall()) + 2'000);
    REQUIRE(host.produce(orders, {{"mortal", {{"x-delay", "1s"}, {"x-expire-at", expiry}}},
                                  {"eternal", {{"x-delay", "1s"}}}}));
    host.refuses = [](const TopicPartition&) { return true; };
    host.pass(milliseconds{3'000});
    CHECK(host.engine->stats().expired_total == 1);  // The partition need not take anything for it.
    host.refuses = nullptr;
    host.pass(milliseconds{1'000});
    CHECK(host.values(orders) == Strings{"eternal"});
    CHECK(host.engine->stats().expired_total == 1);
    CHECK(host.total() == 0);
  }

  TEST_CASE("records that expired while the broker was down are not delivered") {
    TestHost host;
    const std::string expiry = std::to_string(to_ms(host.clock.wall()) + 2'000);
    REQUIRE(host.produce(orders, {{"mortal", {{"x-delay", "1s"}, {"x-expire-at", expiry}}}}));
    host.settle();
    host.crash(0, milliseconds{10'000});
    host.settle();
    CHECK(host.values(orders).empty());
    CHECK(host.engine->stats().expired_total == 1);
  }

  TEST_CASE("pending records of a deleted topic are removed and counted") {
    TestHost host;
    host.schedule(orders, "a", "1s");
    host.schedule(orders, "b", "2s");
    host.settle();
    host.deleted.insert(orders.topic);
    host.pass(milliseconds{3'000});
    CHECK(host.values(orders).empty());
    CHECK(host.engine->stats().dropped_total == 2);
    CHECK(host.total() == 0);
  }

  TEST_CASE("deleting a topic lets its entries go at once") {
    TestHost host;
    for (int i = 0; i < 100; ++i) host.schedule(orders, "a", std::to_string(1 + i) + "s");
    host.schedule(others, "b", "2s");
    host.settle();
    CHECK(host.engine->stats().near == 101);
    host.deleted.insert(orders.topic);
    host.engine->topic_deleted(orders.topic);
    host.turn();
    CHECK(host.engine->stats().near == 1);
    host.pass(milliseconds{2'000});
    CHECK(host.values(others) == Strings{"b"});
    CHECK(host.values(orders).empty());
  }
}

TEST_SUITE("ids") {
  TEST_CASE("the same id again in the partition replaces the pending record") {
    TestHost host;
    host.schedule(orders, "first", "5s", "a");
    host.schedule(others, "elsewhere", "5s", "a");
    host.settle();
    host.schedule(orders, "second", "7s", "a");
    host.pass(milliseconds{10'000});
    CHECK(host.values(orders) == Strings{"second"});
    CHECK(host.values(others) == Strings{"elsewhere"});
    CHECK(host.engine->stats().replaced_total == 1);
  }

  TEST_CASE("a cancel right behind the record finds it, before anything is durable") {
    TestHost host;
    host.schedule(orders, "a", "5s", "id");
    host.cancel_by_record(orders, "id");
    host.schedule(orders, "b", "5s", "id");
    host.schedule(orders, "c", "6s", "id");
    host.pass(milliseconds{10'000});
    CHECK(host.values(orders) == Strings{"c"});
    CHECK(host.engine->stats().cancelled_total == 1);
    CHECK(host.engine->stats().replaced_total == 1);
  }

  TEST_CASE("within one batch the order of records counts") {
    TestHost host;
    const auto schedule = [](std::string value) {
      return TestRecord{std::move(value), {{"x-delay", "5s"}, {"x-schedule-id", "a"}}};
    };
    const TestRecord cancel{"", {{"x-schedule-id", "a"}, {"x-schedule-action", "cancel"}}};
    host.schedule(orders, "zero", "5s", "a");
    REQUIRE(host.produce(orders,
                         {schedule("one"), cancel, cancel, schedule("two"), schedule("three")}));
    host.pass(milliseconds{10'000});
    CHECK(host.values(orders) == Strings{"three"});
    CHECK(host.engine->stats().cancelled_total == 1);
    CHECK(host.engine->stats().cancel_unknown_total == 1);
    CHECK(host.engine->stats().replaced_total == 2);
  }

  TEST_CASE("a record that is due already replaces the pending record with its id") {
    TestHost host;
    host.schedule(orders, "later", "5s", "a");
    host.settle();
    REQUIRE(host.produce(orders, {{"now", {{"x-delay", "0"}, {"x-schedule-id", "a"}}}}));
    host.pass(milliseconds{10'000});
    CHECK(host.values(orders) == Strings{"now"});
  }

  TEST_CASE("an id that was due on arrival is remembered as delivered, also after a crash") {
    TestHost host;
    REQUIRE(
        host.produce(orders, {{"now", {{"x-delay", "0"}, {"x-schedule-id", "a"}}},
                              {"long ago", {{"x-deliver-at", "1000"}, {"x-schedule-id", "b"}}}}));
    const auto at_once = host.cancel(orders, "a");
    CHECK(!at_once->has_value());  // A crash may still take the record away.
    host.settle();
    CHECK(*at_once == ControlOutcome::already_delivered);
    for (const bool crashed : {false, true}) {
      CAPTURE(crashed);
      if (crashed) host.crash();
      CHECK(*host.cancel(orders, "a") == ControlOutcome::already_delivered);
      CHECK(*host.cancel(orders, "b") == ControlOutcome::already_delivered);
      CHECK(*host.cancel(others, "a") == ControlOutcome::unknown);
    }
    host.pass(std::chrono::hours{2});
    CHECK(*host.cancel(orders, "a") == ControlOutcome::unknown);
    CHECK(host.values(orders) == Strings{"now", "long ago"});
    CHECK(host.total() == 0);
  }

  TEST_CASE("a cancel finds the last of several records with one id, due or delayed") {
    const TestRecord due{"due", {{"x-delay", "0"}, {"x-schedule-id", "a"}}};
    const TestRecord later{"later", {{"x-delay", "5s"}, {"x-schedule-id", "a"}}};
    for (const bool together : {false, true}) {
      for (const bool due_last : {false, true}) {
        CAPTURE(together);
        CAPTURE(due_last);
        TestHost host;
        const std::vector<TestRecord> order{due_last ? later : due, due_last ? due : later};
        if (together) {
          REQUIRE(host.produce(orders, order));
        } else {
          for (const auto& record : order) REQUIRE(host.produce(orders, {record}));
        }
        const auto answer = host.cancel(orders, "a");
        host.settle();
        CHECK(*answer == (due_last ? ControlOutcome::already_delivered : ControlOutcome::done));
        host.pass(milliseconds{10'000});
        CHECK(host.values(orders) == Strings{"due"});
        CHECK(host.engine->stats().replaced_total == (due_last ? 1 : 0));
      }
    }
  }

  TEST_CASE("a cancel by a client that comes too late changes nothing and is counted") {
    TestHost host;
    host.schedule(orders, "a", "1s", "id");
    host.settle();
    host.clock.pass(milliseconds{1'000});
    host.turn();  // In flight.
    CHECK(host.engine->stats().in_flight == 1);
    host.cancel_by_record(orders, "id");
    host.settle();
    CHECK(host.values(orders) == Strings{"a"});
    CHECK(host.engine->stats().cancel_late_total == 1);
    CHECK(host.engine->stats().cancelled_total == 0);
  }

  TEST_CASE("cancel answers for ids and handles when it is durable") {
    TestHost host;
    host.schedule(orders, "a", "5s", "id");
    host.schedule(orders, "b", "5s");
    host.settle();
    const std::string handle = storage::encode_handle(host.pending().rbegin()->second.key);
    const auto by_id = host.cancel(orders, "id");
    const auto by_handle = host.cancel(orders, handle);
    const auto again = host.cancel(orders, "id");
    CHECK(!by_id->has_value());
    CHECK(!by_handle->has_value());
    CHECK(!again->has_value());
    host.settle();
    CHECK(*by_id == ControlOutcome::done);
    CHECK(*by_handle == ControlOutcome::done);
    CHECK(*again == ControlOutcome::unknown);
    CHECK(*host.cancel(orders, "nobody") == ControlOutcome::unknown);
    CHECK(*host.cancel(orders, "@nonsense!") == ControlOutcome::unknown);
    CHECK(*host.cancel(others, handle) == ControlOutcome::unknown);
    host.pass(milliseconds{10'000});
    CHECK(host.values(orders).empty());
    CHECK(host.engine->stats().cancelled_total == 2);
  }

  TEST_CASE("a cancel finds a record that is not durable yet, by id and by handle") {
    TestHost host;
    host.schedule(orders, "a", "5s", "id");
    host.schedule(orders, "b", "5s");
    const auto by_id = host.cancel(orders, "id");
    host.sync(2);
    const std::string handle = storage::encode_handle(host.pending().rbegin()->second.key);
    const auto by_handle = host.cancel(orders, handle);
    host.settle();
    CHECK(*by_id == ControlOutcome::done);
    CHECK(*by_handle == ControlOutcome::done);
    host.pass(milliseconds{10'000});
    CHECK(host.values(orders).empty());
  }

  TEST_CASE("cancel waits for the outcome of a delivery in flight") {
    TestHost host;
    host.schedule(orders, "a", "1s", "id");
    host.settle();
    host.clock.pass(milliseconds{1'000});
    host.turn();
    const auto answer = host.cancel(orders, "id");
    CHECK(!answer->has_value());
    host.settle();
    CHECK(*answer == ControlOutcome::already_delivered);
    CHECK(*host.cancel(orders, "id") == ControlOutcome::already_delivered);
    host.pass(std::chrono::hours{2});
    CHECK(*host.cancel(orders, "id") == ControlOutcome::unknown);
  }

  TEST_CASE("a cancel that could not be written leaves the record pending") {
    TestHost host;
    host.schedule(orders, "a", "1s", "id");
    host.settle();
    host.refuses_commits = true;
    bool refused = false;
    host.engine->cancel(orders, "id", [&](Result<Controlled> told) { refused = !told; });
    host.look();
    CHECK(refused);
    host.pass(milliseconds{1'000});
    CHECK(host.values(orders) == Strings{"a"});
  }
}

TEST_SUITE("time") {
  TEST_CASE("with nothing pending no timer runs, and afterwards neither") {
    TestHost host;
    host.settle();
    CHECK(host.wheel->empty());
    host.schedule(orders, "a", "5s");
    host.settle();
    CHECK(!host.wheel->empty());
    host.pass(milliseconds{5'000});
    CHECK(host.values(orders) == Strings{"a"});
    CHECK(host.wheel->empty());
  }

  TEST_CASE("nor does one for what was far ahead and is cancelled") {
    TestHost host;
    host.schedule(orders, "a", "30d", "a");
    host.schedule(orders, "b", "40d", "b");
    host.pass(milliseconds{5'000});
    const auto answer = host.cancel(orders, "a");
    host.settle();
    CHECK(*answer == ControlOutcome::done);
    CHECK(!host.wheel->empty());
    host.cancel_by_record(orders, "b");
    host.settle();
    CHECK(host.wheel->empty());
  }

  TEST_CASE("while a load waits for memory a timer runs, and it goes on when there is room again") {
    Engine::Options options;
    options.memory_bytes = 200'000;
    options.lead = milliseconds{20'000};
    TestHost host(options);
    host.checks_order = false;
    for (int i = 0; i < 20; ++i) host.schedule(others, "far " + std::to_string(i), "1h");
    host.settle();
    host.checkpoint();
    host.settle();
    for (int i = 0; i < 140; ++i) host.schedule(orders, std::string(1'000, 'x'), "1s");
    host.settle();
    host.defers = true;  // They are on their way, and stay in memory.
    host.pass(milliseconds{2'000});
    REQUIRE(!host.deferred.empty());
    host.clock.pass(std::chrono::hours{1} - milliseconds{12'000});
    host.settle();
    CHECK(host.engine->stats().tier.loads == 0);
    REQUIRE(host.wheel->next_due().has_value());
    host.pass(milliseconds{1'500});
    CHECK(host.engine->stats().tier.loads == 0);
    host.defers = false;
    for (auto& deliver : std::exchange(host.deferred, {})) deliver();
    host.pass(milliseconds{15'000});
    CHECK(host.engine->stats().tier.loads > 0);
    CHECK(host.log(others).size() == 20);
    CHECK(host.log(orders).size() == 140);
  }

  TEST_CASE("nor does one for what was far ahead in a topic that is deleted") {
    TestHost host;
    host.schedule(orders, "a", "30d", "a");
    host.pass(milliseconds{5'000});
    CHECK(!host.wheel->empty());
    host.engine->topic_deleted(orders.topic);
    host.drop(orders.topic);
    host.settle();
    CHECK(host.wheel->empty());
  }

  // Each time is two steps of the shard's wheel: the alarm overflows to its second level.
  TEST_CASE("the first due time is reported, however far ahead the others are") {
    TestHost host;
    host.topics[orders.topic].max_delay = std::chrono::hours{24 * 2'000};
    host.schedule(orders, "a", "1000d");
    host.schedule(orders, "b", "1200d");
    host.schedule(orders, "c", "5m");
    host.settle();
    CHECK(host.engine->stats().next_due == host.clock.wall() + std::chrono::minutes{5});
  }

  TEST_CASE("something far ahead wakes the shard once a second, and no oftener") {
    TestHost host;
    host.schedule(orders, "a", "30d");
    host.pass(milliseconds{1'000});
    std::size_t steps = 0;
    for (int i = 0; i < 100; ++i) {
      host.clock.pass(milliseconds{100});
      steps += host.turn();
    }
    CHECK(steps <= 2 * 11);
    CHECK(host.engine->stats().near == 0);
  }

  TEST_CASE(
      "a clock that is set ahead delivers within a second, by more than a minute a second later") {
    TestHost host;
    host.schedule(orders, "a", "50s");
    host.schedule(orders, "b", "2h");
    host.settle();
    host.clock.wall_now += milliseconds{50'000};
    host.pass(milliseconds{1'000});
    CHECK(host.values(orders) == Strings{"a"});
    host.clock.wall_now += std::chrono::hours{2};
    host.pass(milliseconds{900});
    CHECK(host.values(orders) == Strings{"a"});
    host.pass(milliseconds{1'200});
    CHECK(host.values(orders) == Strings{"a", "b"});
  }

  TEST_CASE("a clock that is set back delays pending records, and none is early") {
    TestHost host;
    host.schedule(orders, "a", "10s");
    host.pass(milliseconds{9'000});
    host.clock.wall_now -= std::chrono::hours{1};
    host.schedule(orders, "b", "5s");
    host.pass(milliseconds{5'000});
    CHECK(host.values(orders) == Strings{"b"});
    host.pass(std::chrono::hours{1});
    CHECK(host.values(orders) == Strings{"b", "a"});
  }

  TEST_CASE(
      "a delay that is asked for right after a jump ahead counts from the clock on the wall") {
    TestHost host;
    host.schedule(orders, "a", "1s");
    host.settle();
    host.clock.wall_now += std::chrono::hours{2};
    host.schedule(others, "b", "5s");
    host.pass(milliseconds{4'999});
    CHECK(host.values(others).empty());
    host.pass(milliseconds{1});
    CHECK(host.values(others) == Strings{"b"});
  }

  TEST_CASE("lag is measured from due to durable") {
    TestHost host;
    host.schedule(orders, "a", "1s");
    host.settle();
    host.clock.pass(milliseconds{1'000});
    host.turn();
    host.clock.pass(milliseconds{7});
    host.settle();
    const auto lag = host.engine->stats().lag_us.recent;
    CHECK(lag.count() == 1);
    CHECK(lag.max() == 7'000);
    CHECK(lag.p50() == 7'000);
    CHECK(host.engine->stats().early_total == 0);
  }
}

// Counts what this thread's iterators pass over in RocksDB, deletions and all.
class PassedOver {
 public:
  PassedOver() {
    rocksdb::SetPerfLevel(rocksdb::PerfLevel::kEnableCount);
    take();
  }
  // Since the last time.
  std::uint64_t take() {
    const auto& counts = *rocksdb::get_perf_context();
    const std::uint64_t all =
        counts.internal_key_skipped_count + counts.internal_delete_skipped_count;
    return all - std::exchange(taken_, all);
  }

 private:
  std::uint64_t taken_ = 0;
};

TEST_SUITE("reading ahead") {
  TEST_CASE("to cancel what is due first costs no more for all that was cancelled before it") {
    TestHost host;
    constexpr int records = 1'000, measured = 100;
    for (int i = 0; i < records; ++i) {
      host.schedule(orders, "v", std::to_string(3600 + i) + "s", std::to_string(i));
    }
    host.settle();
    host.crash();
    host.settle();
    PassedOver passed;
    std::uint64_t first = 0, last = 0;
    for (int i = 0; i < records; ++i) {
      const auto answer = host.cancel(orders, std::to_string(i));
      host.settle();
      REQUIRE(*answer == ControlOutcome::done);
      const auto of_this = passed.take();
      if (i < measured) first += of_this;
      if (i >= records - measured) last += of_this;
      if (i + 1 == records) break;
      const auto next = host.engine->stats().next_due;
      REQUIRE(next.has_value());
      REQUIRE(*next <= host.pending().begin()->second.key.due);
    }
    CHECK(first <= 4 * measured);
    CHECK(last <= 4 * measured);
    // A record on the disk is seen to be gone when it comes near.
    host.pass(std::chrono::hours{2});
    CHECK(host.wheel->empty());
  }

  TEST_CASE("a step passes over a bounded number of records of a deleted topic") {
    Engine::Options options;
    options.step_loads = 50;
    TestHost host(options);
    const WallTime start = host.clock.wall();
    for (int i = 0; i < 2'000; ++i) host.schedule(orders, "v", std::to_string(3600 + i) + "s");
    host.schedule(others, "a", "2h", "a");
    host.schedule(others, "b", "3h", "b");
    host.settle();
    host.drop(orders.topic);
    host.deleted.insert(orders.topic);
    host.checks_store = false;
    host.engine->topic_deleted(orders.topic);

    PassedOver passed;
    std::uint64_t most = 0;
    const auto settle = [&] {
      do {
        host.sync();
        passed.take();
        while (host.turn(1) != 0) most = std::max(most, passed.take());
      } while (!host.idle());
    };
    const WallTime a = start + std::chrono::hours{2}, b = start + std::chrono::hours{3};
    settle();
    CHECK(host.engine->stats().next_due == a);
    host.crash();
    settle();
    CHECK(host.engine->stats().next_due <= a);
    const auto answer = host.cancel(others, "a");
    settle();
    CHECK(*answer == ControlOutcome::done);
    host.clock.pass(std::chrono::minutes{100});  // The records of the deleted topic come near.
    settle();
    CHECK(host.engine->stats().next_due <= b);
    CHECK(host.engine->stats().near == 0);
    host.schedule(others, "c", "1s");
    host.pass(std::chrono::minutes{80});
    settle();
    CHECK(host.values(others) == Strings{"c", "b"});
    CHECK(host.values(orders).empty());
    CHECK(most <= 60);
  }
}

TEST_SUITE("space") {
  TEST_CASE(
      "records that are cancelled or deleted by force long before they are due leave the disk") {
    for (const bool deleted : {false, true}) {
      CAPTURE(deleted);
      TestHost host;
      const std::string value(100, 'v');
      for (int batch = 0; batch < 50; ++batch) {
        std::vector<TestRecord> records;
        for (int i = 0; i < 100; ++i) {
          const std::string id = std::to_string(batch) + "." + std::to_string(i);
          records.push_back({value, {{"x-delay", "40h"}, {"x-schedule-id", id}}});
        }
        REQUIRE(host.produce(orders, records).has_value());
      }
      host.schedule(others, "stays", "40h");
      host.settle();
      host.checkpoint();
      host.settle();
      CHECK(host.engine->stats().tier.records == 0);  // All of it is on the disk alone.
      if (deleted) {
        host.checks_store = false;
        host.deleted.insert(orders.topic);
        host.drop(orders.topic);
        host.engine->topic_deleted(orders.topic);
      } else {
        for (int batch = 0; batch < 50; ++batch) {
          for (int i = 0; i < 100; ++i)
            (void)host.cancel(orders, std::to_string(batch) + "." + std::to_string(i));
        }
        host.settle();
        host.checkpoint();
      }
      host.settle();
      CHECK(host.engine->stats().tier.freed_bytes > 500'000);
      host.pass(std::chrono::hours{41});
      CHECK(host.values(others) == Strings{"stays"});
      CHECK(host.values(orders).empty());
    }
  }
}

TEST_SUITE("memory") {
  TEST_CASE("records that are due beyond the window stay on disk and are delivered in time") {
    TestHost host;
    for (int i = 0; i < 50; ++i)
      host.schedule(orders, std::to_string(i), std::to_string(20 + i) + "m");
    host.settle();
    CHECK(host.engine->stats().near == 0);
    host.pass(std::chrono::seconds{19 * 60 + 30});
    const auto near = host.engine->stats().near;
    CHECK(near > 0);
    CHECK(near < 5);
    host.pass(std::chrono::minutes{60});
    CHECK(host.log(orders).size() == 50);
    CHECK(host.engine->stats().lag_us.total.max() <= 1'000);
  }

  TEST_CASE(
      "near stays within its budget, however many records are added, and none is late for it") {
    Engine::Options options;
    options.memory_bytes = 2'000'000;
    options.step_loads = 32;
    options.batch_records = 16;
    TestHost host(options);
    host.checks_order = false;  // Looking at all that is pending, for each batch, takes minutes.
    // From the far to the near, which is the worst order.
    const std::string value(400, 'v');
    for (int i = 8'000; i > 0; --i) {
      host.schedule(orders, value, std::to_string(1'000 + i * 10));
      if (i % 50 == 0) host.settle();
      CHECK(host.engine->stats().tier.memory_bytes <= 1'800'000);
    }
    host.pass(milliseconds{1'000 + 80'000});
    CHECK(host.log(orders).size() == 8'000);
    CHECK(host.engine->stats().lag_us.total.max() <= 1'000);
  }

  TEST_CASE("a partition that is stuck holds up no other while there is memory") {
    Engine::Options options;
    options.step_loads = 32;
    options.batch_records = 16;
    TestHost host(options);
    host.refuses = [](const TopicPartition& partition) { return partition == orders; };
    for (int i = 0; i < 2'000; ++i) {
      host.schedule(orders, std::to_string(i), "1s");
      if (i % 10 == 0) host.schedule(others, std::to_string(i), "3s");
      if (i % 100 == 0) host.settle();
    }
    host.pass(milliseconds{4'000});
    CHECK(host.log(others).size() == 200);
    host.refuses = nullptr;
    host.pass(milliseconds{2'000});
    CHECK(host.log(orders).size() == 2'000);
  }

  TEST_CASE(
      "a hundred thousand due in one millisecond leave in bounded steps, and others between") {
    TestHost host;
    host.checks_order = false;  // Looking at all that is pending, for each batch, takes minutes.
    host.checks_store = false;  // Durable changes are applied in steps, and wait for them.
    const std::string due = std::to_string(to_ms(host.clock.wall()) + 60'000);
    const TestRecord record{"a", {{"x-deliver-at", due}}};
    for (int i = 0; i < 100; ++i) {
      REQUIRE(host.produce(orders, std::vector<TestRecord>(1'000, record)));
    }
    host.schedule(others, "b", "60s");
    host.settle();
    host.clock.pass(milliseconds{60'000});
    std::size_t turns = 0, before_other = 0;
    while (host.log(orders).size() < 100'000 && turns < 100'000) {
      const auto delivered = host.engine->stats().delivered_total;
      const auto in_flight = host.engine->stats().in_flight;
      host.wheel->advance(host.wheel->now() + 1, 4'096);
      CHECK(host.engine->stats().in_flight - in_flight <= 2'048);
      host.sync(host.appended_and_waiting());
      if (host.log(others).empty()) before_other = host.log(orders).size();
      ++turns;
      CHECK(host.engine->stats().delivered_total - delivered <= 4 * 2'048);
    }
    CHECK(host.log(orders).size() == 100'000);
    CHECK(before_other <= 4 * 2'048);
    host.settle();
    CHECK(host.total() == 0);
  }
}

TEST_SUITE("restart") {
  TEST_CASE("overdue records are delivered immediately, in order, none twice") {
    TestHost host;
    Strings expected;
    for (int i = 0; i < 3'000; ++i) {
      host.schedule(orders, std::to_string(i), std::to_string(1'000 + i) + "ms");
      expected.push_back(std::to_string(i));
    }
    host.settle();
    host.crash(0, milliseconds{60'000});
    host.settle();
    CHECK(host.values(orders) == expected);
    host.crash();
    host.pass(milliseconds{60'000});
    CHECK(host.values(orders) == expected);
  }

  TEST_CASE("a delivery that was durable and not reported is not repeated") {
    TestHost host;
    host.schedule(orders, "a", "1s");
    host.settle();
    host.clock.pass(milliseconds{1'000});
    host.turn();
    CHECK(host.appended_and_waiting() == 1);
    SUBCASE("it was durable") {
      host.crash(1);
    }
    SUBCASE("it was not") {
      host.crash();
    }
    host.pass(milliseconds{10'000});
    CHECK(host.values(orders) == Strings{"a"});
  }
}

}  // namespace
}  // namespace tarry::delay
