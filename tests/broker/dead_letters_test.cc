// tarry.delay.invalid=dead-letter: bad records go to NAME.invalid, the rest of their batch stays.

#include <doctest/doctest.h>
#include <boost/asio/co_spawn.hpp>

#include <string>
#include <utility>
#include <vector>

#include "tests/broker/batches.h"

namespace tarry::broker::test {
namespace {

using namespace std::chrono_literals;
using Strings = std::vector<std::string>;
using Headers = std::vector<std::pair<std::string, std::string>>;

const NewRecord bad{"bad", {{"mine", "1"}, {"x-delay", "soon"}}};

void create_dead_letter_topic(World& world, std::string_view name, std::int32_t partitions = 1) {
  create_topic(world, name, partitions, {{"tarry.delay.invalid", "dead-letter"}});
}

std::int32_t partitions_of(World& world, std::string_view name) {
  const auto topic = world.shard().topics().find(name);
  return topic ? topic->partitions : 0;
}

std::uint64_t reason_count(World& world, std::string_view reason) {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < world.shard_count(); ++i) {
    const auto& refusals = world.shard(i).notes().refusals();
    if (const auto found = refusals.find(reason); found != refusals.end()) count += found->second;
  }
  return count;
}

TEST_SUITE("dead letters") {
  TEST_CASE(
      "a bad record goes to NAME.invalid with its error, the rest of its batch around a hole") {
    World world({.shards = 3});
    create_dead_letter_topic(world, "t", 8);
    for (PartitionIndex p = 0; p < 8; ++p) {
      CAPTURE(p);
      const auto answer = produce(
          world, "t", p,
          batch_of(world.clock.wall(), {{"first"}, bad, {"later", {{"x-delay", "3s"}}}, {"last"}}));
      CHECK(answer.error_code == ErrorCode::none);
      CHECK(answer.base_offset == 0);
      const auto seen = read_all(world, "t", p);
      CHECK(values(seen) == Strings{"first", "last"});
      CHECK(seen[1].offset == 3);
      const auto dead = read_all(world, "t.invalid", p);
      REQUIRE(values(dead) == Strings{"bad"});
      REQUIRE(dead[0].headers.size() == 3);
      CHECK(dead[0].headers[0] == std::pair<std::string, std::string>{"mine", "1"});
      CHECK(dead[0].headers[1] == std::pair<std::string, std::string>{"x-delay", "soon"});
      CHECK(dead[0].headers[2].first == "x-error");
      CHECK(dead[0].headers[2].second.starts_with("x-delay: "));
      CHECK(dead[0].headers[2].second.find("soon") != std::string::npos);
      CHECK(dead[0].timestamp == seen[0].timestamp);
    }
    CHECK(partitions_of(world, "t.invalid") == 8);
    world.pass(4s);
    CHECK(values(read_all(world, "t", 7)) == Strings{"first", "last", "later"});
    world.restart(2);
    CHECK(values(read_all(world, "t", 7)) == Strings{"first", "last", "later"});
    CHECK(values(read_all(world, "t.invalid", 7)) == Strings{"bad"});
  }

  TEST_CASE("a batch whose records are all bad is answered -n and leaves no trace in its topic") {
    World world;
    create_dead_letter_topic(world, "t");
    const auto answer = produce(world, "t", 0, batch_of(world.clock.wall(), {bad, bad, bad}));
    CHECK(answer.error_code == ErrorCode::none);
    CHECK(answer.base_offset == -3);
    CHECK(read_all(world, "t").empty());
    CHECK(read_all(world, "t.invalid").size() == 3);
  }

  TEST_CASE(
      "a retried duplicate gets the same answer, and its records are not dead-lettered again") {
    World world;
    create_dead_letter_topic(world, "t", 2);
    const auto now = world.clock.wall();
    const Buffer mixed = batch_of(now, {{"a"}, bad}, {7, 0, 0});
    const Buffer all_bad = batch_of(now, {bad, bad}, {7, 0, 2});
    CHECK(produce(world, "t", 1, mixed).base_offset == 0);
    CHECK(produce(world, "t", 1, all_bad).base_offset == -2);
    for (int again = 0; again < 2; ++again) {
      CHECK(produce(world, "t", 1, mixed).base_offset == 0);
      CHECK(produce(world, "t", 1, all_bad).base_offset == -2);
      CHECK(read_all(world, "t.invalid", 1).size() == 3);
      world.restart();
    }
    // The bad records count in the producer's sequence; one out of order has no dead letters.
    CHECK(produce(world, "t", 1, batch_of(now, {bad}, {7, 0, 9})).error_code ==
          ErrorCode::out_of_order_sequence);
    CHECK(produce(world, "t", 1, batch_of(now, {{"b"}}, {7, 0, 4})).base_offset == 2);
    CHECK(read_all(world, "t.invalid", 1).size() == 3);
  }

  TEST_CASE(
      "a batch that is refused because too many records are pending has no dead letters, however "
      "often it is sent, and one when there is room") {
    World world;
    create_topic(world, "t", 1,
                 {{"tarry.delay.invalid", "dead-letter"}, {"tarry.delay.max.pending", "1"}});
    const auto now = world.clock.wall();
    const NewRecord later{"v", {{"x-delay", "1h"}}};
    CHECK(produce(world, "t", 0, batch_of(now, {later})).error_code == ErrorCode::none);
    const Buffer numbered = batch_of(now, {later, bad}, {7, 0, 0});
    for (int again = 0; again < 3; ++again) {
      for (const Buffer& batch : {batch_of(now, {later, bad}), numbered})
        CHECK(produce(world, "t", 0, batch).error_code == ErrorCode::not_leader_or_follower);
    }
    CHECK(partitions_of(world, "t.invalid") == 0);
    world.pass(1h + 1s);
    for (int again = 0; again < 2; ++again) {
      CHECK(produce(world, "t", 0, numbered).error_code == ErrorCode::none);
      CHECK(read_all(world, "t.invalid").size() == 1);
    }
  }

  TEST_CASE(
      "a record is delivered or replaced, not both, whenever the dead letters of the batch that "
      "replaces it are written") {
    for (std::size_t steps = 0; steps < 8; ++steps) {
      CAPTURE(steps);
      World world({.shards = 1});
      create_dead_letter_topic(world, "t");
      const auto now = world.clock.wall();
      const auto in = [](const char* delay, const char* value) {
        return NewRecord{value, {{"x-delay", delay}, {"x-schedule-id", "id"}}};
      };
      CHECK(produce(world, "t", 0, batch_of(now, {in("1s", "old")})).error_code == ErrorCode::none);
      world.background_stands_still = true;
      const auto pending =
          world.begin(produce_request("t", 0, batch_of(now, {in("1h", "new"), bad})), 9);
      for (std::size_t i = 0; i < steps; ++i) {
        world.turn();
        world.background().step();
      }
      world.pass(2s);
      world.background_stands_still = false;
      world.pass(1s);
      REQUIRE(pending->answer.has_value());
      const auto answer = world.read<protocol::ProduceResponse>(*pending, 9);
      CHECK(answer.responses[0].partition_responses[0].error_code == ErrorCode::none);
      const auto before = values(read_all(world, "t"));
      CHECK((before.empty() || before == Strings{"old"}));
      CHECK(read_all(world, "t.invalid").size() == 1);
      world.pass(1h);
      auto after = before;
      after.emplace_back("new");
      CHECK(values(read_all(world, "t")) == after);
    }
  }

  TEST_CASE(
      "batches behind one with dead letters keep their order, and none is answered before it is "
      "durable") {
    World world({.shards = 2});
    create_dead_letter_topic(world, "t", 4);
    for (PartitionIndex p = 0; p < 4; ++p) {
      CAPTURE(p);
      const auto now = world.clock.wall();
      const Buffer first = batch_of(now, {{"1"}, bad}, {7, 0, 0});
      const Buffer second = batch_of(now, {{"2"}}, {7, 0, 2});
      const Buffer third = batch_of(now, {bad, {"3"}}, {7, 0, 3});
      world.background_stands_still = true;
      const auto one = world.begin(produce_request("t", p, first), 9);
      const auto two = world.begin(produce_request("t", p, second), 9);
      const auto three = world.begin(produce_request("t", p, third), 9);
      // A retry that overtakes the answer waits with the rest.
      const auto again = world.begin(produce_request("t", p, first), 9);
      world.run();
      CHECK_FALSE(one->answer.has_value());
      CHECK_FALSE(two->answer.has_value());
      world.background_stands_still = false;
      world.pass(1s);
      const auto offset = [&](const auto& pending) {
        REQUIRE(pending->answer.has_value());
        const auto response = world.read<protocol::ProduceResponse>(*pending, 9);
        const auto& answer = response.responses[0].partition_responses[0];
        CHECK(answer.error_code == ErrorCode::none);
        return answer.base_offset;
      };
      CHECK(offset(one) == 0);
      CHECK(offset(two) == 2);
      CHECK(offset(three) == 3);
      CHECK(offset(again) == 0);
      CHECK(values(read_all(world, "t", p)) == Strings{"1", "2", "3"});
      CHECK(read_all(world, "t.invalid", p).size() == 2);
    }
  }

  TEST_CASE("a compressed batch, and one with more dead letters than fit into a piece, lose none") {
    World world;
    create_dead_letter_topic(world, "t");
    std::vector<NewRecord> records;
    for (int i = 0; i < 6'000; ++i) {
      NewRecord record{std::to_string(i) + std::string(300, '.'), {}};
      if (i % 3 != 0) record.headers = {{"x-delay", "soon"}};
      records.push_back(std::move(record));
    }
    const auto answer =
        produce(world, "t", 0, batch_of(world.clock.wall(), records, {}, records::Codec::zstd));
    CHECK(answer.error_code == ErrorCode::none);
    CHECK(read_all(world, "t").size() == 2'000);
    const auto dead = read_all(world, "t.invalid");
    REQUIRE(dead.size() == 4'000);
    for (std::size_t i = 0; i < dead.size(); ++i) {
      const auto number = std::to_string(i / 2 * 3 + i % 2 + 1);
      if (!dead[i].value.starts_with(number + ".")) FAIL_CHECK(i << " is " << dead[i].value);
    }
  }

  TEST_CASE("with acks=0 the dead letters are written, and the connection stays") {
    World world;
    create_dead_letter_topic(world, "t");
    const Buffer batch = batch_of(world.clock.wall(), {{"a"}, bad});
    const auto pending = world.begin(produce_request("t", 0, batch, 0), 9);
    world.pass(1s);
    CHECK(values(read_all(world, "t")) == Strings{"a"});
    CHECK(read_all(world, "t.invalid").size() == 1);
  }

  TEST_CASE("a batch that is only checked has no dead letters") {
    World world;
    create_dead_letter_topic(world, "t");
    const Buffer batch = batch_of(world.clock.wall(), {{"a"}, bad});
    const auto response =
        world.call<protocol::ProduceResponse>(produce_request("t", 0, batch, 17), 9);
    CHECK(response.responses[0].partition_responses[0].error_code ==
          ErrorCode::invalid_required_acks);
    CHECK(partitions_of(world, "t.invalid") == 0);
  }

  TEST_CASE(
      "a dead-letter topic refuses invalid records, and so does a topic whose name is too long for "
      "one") {
    World world;
    const std::string longest(241, 'a'), too_long(242, 'a');
    for (const std::string& name : {std::string("t.invalid"), too_long}) {
      create_dead_letter_topic(world, name);
      const auto answer = produce(world, name, 0, batch_of(world.clock.wall(), {{"a"}, bad}));
      CHECK(answer.error_code == ErrorCode::invalid_record);
      CHECK(answer.error_message->find("soon") != std::string::npos);
      CHECK(answer.error_message->find("tarry.delay.invalid=dead-letter has no effect here") !=
            std::string::npos);
      REQUIRE(answer.record_errors.size() == 1);
      CHECK(answer.record_errors[0].batch_index == 1);
      CHECK(read_all(world, name).empty());
    }
    create_dead_letter_topic(world, longest);
    CHECK(produce(world, longest, 0, batch_of(world.clock.wall(), {bad})).base_offset == -1);
    CHECK(read_all(world, longest + ".invalid").size() == 1);
  }

  TEST_CASE(
      "partitions that NAME.invalid lacks are added, and it is recreated when it is deleted") {
    World world;
    create_topic(world, "t.invalid", 1);
    create_dead_letter_topic(world, "t", 4);
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {bad})).base_offset == -1);
    CHECK(partitions_of(world, "t.invalid") == 1);
    CHECK(produce(world, "t", 3, batch_of(world.clock.wall(), {bad})).base_offset == -1);
    CHECK(partitions_of(world, "t.invalid") == 4);
    const auto id = world.shard().topics().find("t.invalid")->id;
    boost::asio::co_spawn(world.shard().executor(), world.broker().topics().remove(id, true),
                          [](std::exception_ptr, TopicResult<TopicPtr>) {});
    world.run();
    CHECK(partitions_of(world, "t.invalid") == 0);
    CHECK(produce(world, "t", 2, batch_of(world.clock.wall(), {bad})).base_offset == -1);
    CHECK(read_all(world, "t.invalid", 2).size() == 1);
  }

  TEST_CASE("a batch whose dead letters cannot be written is refused, and can be sent again") {
    World world({.shards = 1});
    create_dead_letter_topic(world, "t");
    const Buffer batch = batch_of(world.clock.wall(), {{"a"}, bad}, {7, 0, 0});
    CHECK(produce(world, "t", 0, batch).base_offset == 0);
    const auto target = world.shard().topics().find("t.invalid")->id;
    world.shard().partitions().find({target, 0})->fence("it is broken");
    const Buffer next = batch_of(world.clock.wall(), {bad, {"b"}}, {7, 0, 2});
    const auto refused = produce(world, "t", 0, next);
    CHECK(refused.error_code == ErrorCode::kafka_storage_error);
    CHECK(refused.error_message->find("could not be written to topic t.invalid: it is broken") !=
          std::string::npos);
    CHECK(values(read_all(world, "t")) == Strings{"a"});
    CHECK(reason_count(world, "dead_letters_not_written") == 1);
    world.restart();
    CHECK(produce(world, "t", 0, next).base_offset == 2);
    CHECK(values(read_all(world, "t")) == Strings{"a", "b"});
    CHECK(read_all(world, "t.invalid").size() == 2);
  }

  TEST_CASE("a topic that is deleted while its dead letters are written answers its producers") {
    World world({.shards = 2});
    create_dead_letter_topic(world, "t", 2);
    world.background_stands_still = true;
    const Buffer batch = batch_of(world.clock.wall(), {{"a"}, bad});
    const auto pending = world.begin(produce_request("t", 1, batch), 9);
    const auto behind = world.begin(produce_request("t", 1, batch), 9);
    world.run();
    const auto id = world.shard().topics().find("t")->id;
    boost::asio::co_spawn(world.shard().executor(), world.broker().topics().remove(id, true),
                          [](std::exception_ptr, TopicResult<TopicPtr>) {});
    world.background_stands_still = false;
    world.pass(1s);
    for (const auto& each : {pending, behind}) {
      REQUIRE(each->answer.has_value());
      const auto response = world.read<protocol::ProduceResponse>(*each, 9);
      CHECK(response.responses[0].partition_responses[0].error_code != ErrorCode::none);
    }
  }

  TEST_CASE("without the config a bad record refuses its batch, and nothing is created") {
    World world;
    create_topic(world, "t");
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {{"a"}, bad})).error_code ==
          ErrorCode::invalid_record);
    CHECK(partitions_of(world, "t.invalid") == 0);
  }
}

}  // namespace
}  // namespace tarry::broker::test
