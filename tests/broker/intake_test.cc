// Batches that take long to check: on the pool, and nobody overtakes anybody.

#include <doctest/doctest.h>

#include "protocol/messages/delete_topics.h"
#include "tests/broker/batches.h"

namespace tarry::broker::test {
namespace {

using records::Codec;
using Strings = std::vector<std::string>;

// Packs to some `bytes`: letters without order do not pack.
std::string noise(std::size_t bytes, std::uint64_t seed = 1) {
  SeededRandom random(seed);
  std::string text(bytes, ' ');
  for (auto& c : text) c = static_cast<char>(random.u64());
  return text;
}

// `first` is its first record's value; the rest makes it long.
Buffer long_batch(World& world, const std::string& first, Producer producer = {}) {
  return batch_of(world.clock.wall(), {{first}, {noise(100'000)}}, producer, Codec::zstd);
}

protocol::ProduceResponse::PartitionResponse answer_of(World& world, World::Pending& pending) {
  return world.read<protocol::ProduceResponse>(pending, 9).responses[0].partition_responses[0];
}

Strings short_values(World& world, PartitionIndex partition = 0) {
  Strings out;
  for (const auto& seen : read_all(world, "t", partition))
    if (seen.value.size() < 100) out.push_back(seen.value);
  return out;
}

struct OneShard : World {
  explicit OneShard(std::function<void(BrokerConfig&)> configure = [](BrokerConfig&) {})
      : World({.shards = 1, .configure = std::move(configure)}) {}
  Partition& partition(PartitionIndex index, std::string_view topic = "t") {
    const TopicPartition tp{shard().topics().find(topic)->id, index};
    shard().partitions().with(tp, [](auto) {});
    run();
    return *shard().partitions().find(tp);
  }
};

// The codecs of all batches of topic t.
std::vector<Codec> stored_codecs(World& world) {
  std::vector<Codec> out;
  const auto response = world.call<protocol::FetchResponse>(fetch_request("t", 0, 0), 12);
  Buffer all;
  for (const auto& piece : response.responses[0].partitions[0].records.pieces)
    append_bytes(all, piece.view());
  for (Bytes left = all; !left.empty();) {
    const auto batch = records::next_batch(left);
    REQUIRE(batch.has_value());
    out.push_back(batch->codec().value());
    left = left.subspan(batch->size());
  }
  return out;
}

TEST_SUITE("batch intake") {
  TEST_CASE("a long compressed batch is not unpacked on the shard's thread") {
    OneShard world;
    create_topic(world, "t", 2);
    Partition& first = world.partition(0);
    Partition& other = world.partition(1);
    const Buffer packed = long_batch(world, "a");
    const Buffer plain = batch_of(world.clock.wall(), {{"b"}});
    world.background_stands_still = true;
    const auto slow = world.begin(produce_request("t", 0, packed), 9);
    CHECK(first.log_end() == 0);
    // A neighbour takes its place meanwhile.
    const auto quick = world.begin(produce_request("t", 1, plain), 9);
    CHECK(other.log_end() == 1);
    world.background_stands_still = false;
    world.run();
    CHECK(answer_of(world, *slow).base_offset == 0);
    CHECK(answer_of(world, *quick).base_offset == 0);
  }

  TEST_CASE("an uncompressed batch does not overtake one that is being decompressed") {
    OneShard world;
    create_topic(world, "t");
    Partition& partition = world.partition(0);
    const Buffer packed = long_batch(world, "first");
    const Buffer plain = batch_of(world.clock.wall(), {{"second"}});
    const Buffer small = batch_of(world.clock.wall(), {{"third"}}, {}, Codec::lz4);
    const Buffer packed_too = long_batch(world, "fourth");
    world.background_stands_still = true;
    std::vector<std::shared_ptr<World::Pending>> begun;
    for (const Buffer* batch : {&packed, &plain, &small, &packed_too})
      begun.push_back(world.begin(produce_request("t", 0, *batch), 9));
    CHECK(partition.log_end() == 0);
    world.background_stands_still = false;
    world.run();
    CHECK(short_values(world) == Strings{"first", "second", "third", "fourth"});
    CHECK(answer_of(world, *begun[1]).base_offset == 2);
    CHECK(answer_of(world, *begun[3]).base_offset == 4);
  }

  TEST_CASE("an idempotent producer's sequences hold, whatever of them is compressed") {
    OneShard world;
    create_topic(world, "t");
    world.partition(0);
    std::vector<Buffer> batches;
    std::int32_t sequence = 0;
    for (int i = 0; i < 20; ++i) {
      const Producer producer{7, 0, sequence};
      if (i % 3 == 0) {
        batches.push_back(long_batch(world, std::to_string(i), producer));
        sequence += 2;
      } else {
        batches.push_back(batch_of(world.clock.wall(), {{std::to_string(i)}}, producer,
                                   i % 3 == 1 ? Codec::none : Codec::gzip));
        sequence += 1;
      }
    }
    world.background_stands_still = true;
    std::vector<std::shared_ptr<World::Pending>> begun;
    for (const auto& batch : batches)
      begun.push_back(world.begin(produce_request("t", 0, batch), 9));
    world.background_stands_still = false;
    world.run();
    Strings expected;
    for (int i = 0; i < 20; ++i) {
      CAPTURE(i);
      CHECK(answer_of(world, *begun[static_cast<std::size_t>(i)]).error_code == ErrorCode::none);
      expected.push_back(std::to_string(i));
    }
    CHECK(short_values(world) == expected);
  }

  TEST_CASE("a batch that is refused when it is unpacked lets those behind it pass") {
    OneShard world;
    create_topic(world, "t");
    world.partition(0);
    Buffer broken = long_batch(world, "broken");
    broken.back() ^= 1;
    const Buffer plain = batch_of(world.clock.wall(), {{"good"}});
    world.background_stands_still = true;
    const auto bad = world.begin(produce_request("t", 0, broken), 9);
    const auto good = world.begin(produce_request("t", 0, plain), 9);
    world.background_stands_still = false;
    world.run();
    CHECK(answer_of(world, *bad).error_code == ErrorCode::corrupt_message);
    CHECK(answer_of(world, *good).base_offset == 0);
  }

  TEST_CASE(
      "bombs are unpacked one at a time, and batches of ordinary text wait for none of them") {
    OneShard world([](BrokerConfig& config) { config.decompressed_max_bytes = 32 << 20; });
    create_topic(world, "t", 12, {{"max.message.bytes", "2000000"}});
    for (PartitionIndex p = 0; p < 12; ++p) world.partition(p);
    const Buffer bomb = batch_of(world.clock.wall(),
                                 {{noise(20'000)}, {std::string(40 << 20, 'x')}}, {}, Codec::zstd);
    const Buffer large = batch_of(world.clock.wall(),
                                  {{noise(20'000)}, {std::string(20 << 20, 'x')}}, {}, Codec::zstd);
    REQUIRE(large.size() < 40'000);
    const Buffer text = long_batch(world, "text");
    world.background_stands_still = true;
    std::vector<std::shared_ptr<World::Pending>> bombs, larges, texts;
    for (PartitionIndex p = 0; p < 4; ++p) {
      bombs.push_back(world.begin(produce_request("t", p, bomb), 9));
      larges.push_back(world.begin(produce_request("t", 4 + p, large), 9));
      texts.push_back(world.begin(produce_request("t", 8 + p, text), 9));
      CHECK(world.background().size() <= 2);  // There are twelve.
    }
    world.background_stands_still = false;
    world.run();
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(answer_of(world, *bombs[i]).error_code == ErrorCode::message_too_large);
      CHECK(answer_of(world, *larges[i]).error_code == ErrorCode::none);
      CHECK(answer_of(world, *texts[i]).error_code == ErrorCode::none);
    }
  }

  TEST_CASE("a long batch that there is no memory for is refused, and those behind it are taken") {
    OneShard world;
    create_topic(world, "t");
    world.partition(0);
    const Buffer packed = long_batch(world, "a");
    const Buffer plain = batch_of(world.clock.wall(), {{"b"}});
    for (int i = 0; i < 3; ++i) {  // A lane that lost two of its places would have none left.
      world.background().no_memory = true;
      CHECK(produce(world, "t", 0, packed).error_code == ErrorCode::kafka_storage_error);
    }
    CHECK(produce(world, "t", 0, packed).base_offset == 0);
    CHECK(produce(world, "t", 0, plain).base_offset == 2);
    CHECK(short_values(world) == Strings{"a", "b"});
  }

  TEST_CASE("a bomb that there is no memory for is refused, and those behind it are taken") {
    OneShard world([](BrokerConfig& config) { config.decompressed_max_bytes = 32 << 20; });
    create_topic(world, "t", 1, {{"max.message.bytes", "2000000"}});
    world.partition(0);
    const Buffer large = batch_of(world.clock.wall(),
                                  {{noise(20'000)}, {std::string(20 << 20, 'x')}}, {}, Codec::zstd);
    const Buffer plain = batch_of(world.clock.wall(), {{"b"}});
    world.background_stands_still = true;
    const auto first = world.begin(produce_request("t", 0, large), 9);
    const auto second = world.begin(produce_request("t", 0, plain), 9);
    world.background().no_memory = true;  // When it has come through the usual lane.
    world.background_stands_still = false;
    world.run();
    CHECK(answer_of(world, *first).error_code == ErrorCode::kafka_storage_error);
    CHECK(answer_of(world, *second).base_offset == 0);
    CHECK(produce(world, "t", 0, large).error_code == ErrorCode::none);
  }

  TEST_CASE(
      "a batch that schedules one of more records than are allowed is refused, others are not") {
    OneShard world;
    create_topic(world, "t");
    std::vector<NewRecord> some(100'000, NewRecord{"", {{"x-delay", "1h"}}});
    std::vector<NewRecord> more(100'001);
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), more)).base_offset == 0);
    const auto packed = batch_of(world.clock.wall(), some, {}, Codec::zstd);
    CHECK(produce(world, "t", 0, packed).base_offset == -100'000);
    more.back() = some.back();
    for (const auto codec : {Codec::none, Codec::zstd}) {
      const auto refused = produce(world, "t", 0, batch_of(world.clock.wall(), more, {}, codec));
      CHECK(refused.error_code == ErrorCode::message_too_large);
      CHECK(refused.error_message->find("100001 records") != std::string::npos);
    }
    CHECK(world.broker().pending_counts().total() == 100'000);
  }

  TEST_CASE("a batch is taken as its topic was when it came, whatever it is when it is unpacked") {
    OneShard world;
    create_topic(world, "t");
    Partition& partition = world.partition(0);
    const Buffer packed = long_batch(world, "a");
    world.background_stands_still = true;
    const auto pending = world.begin(produce_request("t", 0, packed), 9);
    auto changed = std::make_shared<TopicConfig>(partition.config());
    changed->timestamp_type = TimestampType::log_append_time;
    partition.set_config(changed);
    world.background_stands_still = false;
    world.run();
    CHECK(answer_of(world, *pending).error_code == ErrorCode::none);
    CHECK(answer_of(world, *pending).log_append_time_ms == -1);
    CHECK(produce(world, "t", 0, packed).log_append_time_ms >= 0);
  }

  TEST_CASE("a scheduled record in a long batch is found") {
    OneShard world;
    create_topic(world, "t");
    world.partition(0);
    const Buffer packed = batch_of(
        world.clock.wall(),
        {{"now"}, {"later", {{"x-delay", "5s"}}}, {noise(50'000), {{"trace", "x-not-a-schedule"}}}},
        {}, Codec::zstd);
    const auto answer = produce(world, "t", 0, packed);
    CHECK(answer.error_code == ErrorCode::none);
    CHECK(answer.base_offset == 0);
    CHECK(short_values(world) == Strings{"now"});
    world.pass(std::chrono::seconds{6});
    CHECK(short_values(world) == Strings{"now", "later"});
  }

  TEST_CASE("a topic that is deleted while its batches are unpacked answers that it is unknown") {
    OneShard world;
    create_topic(world, "t");
    world.partition(0);
    const Buffer packed = long_batch(world, "a");
    const Buffer plain = batch_of(world.clock.wall(), {{"b"}});
    world.background_stands_still = true;
    const auto first = world.begin(produce_request("t", 0, packed), 9);
    const auto second = world.begin(produce_request("t", 0, plain), 9);
    world.shard().set_topics(std::make_shared<storage::TopicsImage>());
    world.run();
    // Its bytes are still being looked at.
    CHECK_FALSE(first->answer.has_value());
    world.background_stands_still = false;
    world.run();
    CHECK(answer_of(world, *first).error_code == ErrorCode::unknown_topic_or_partition);
    CHECK(answer_of(world, *second).error_code == ErrorCode::unknown_topic_or_partition);
  }

  TEST_CASE("a shard where a request fails does not take away what the other shards work with") {
    World world;
    create_topic(world, "t", 8);
    const auto id = world.shard().topics().find("t")->id;
    PartitionIndex home = 0, away = 0;
    while (world.broker().shard_of({id, home}).index() != 0) ++home;
    while (world.broker().shard_of({id, away}).index() != 1) ++away;
    const Buffer batch = batch_of(world.clock.wall(), {{"a"}});
    auto request = produce_request("t", home, batch);
    request.topic_data[0].partition_data.push_back({away, batch});
    world.background(0).no_memory = true;  // Partitions are opened there.
    const auto pending = world.begin(request, 9);
    world.run();
    const auto answers = world.read<protocol::ProduceResponse>(*pending, 9).responses[0];
    CHECK(answers.partition_responses[0].error_code == ErrorCode::unknown_server_error);
    CHECK(answers.partition_responses[1].error_code == ErrorCode::none);
    // The first one is as if it had not been asked for.
    CHECK(produce(world, "t", home, batch).error_code == ErrorCode::none);
    CHECK(short_values(world, away) == Strings{"a"});
  }

  TEST_CASE("a client that goes while its batches are unpacked leaves nothing behind") {
    OneShard world;
    create_topic(world, "t", 6);
    for (PartitionIndex p = 0; p < 6; ++p) world.partition(p);
    const Buffer packed = long_batch(world, "a");
    world.background_stands_still = true;
    std::vector<std::shared_ptr<World::Pending>> begun;
    for (PartitionIndex p = 0; p < 6; ++p)
      begun.push_back(world.begin(produce_request("t", p, packed), 9));
    begun.push_back(world.begin(produce_request("t", 0, packed), 9));
    world.connection().close();
    world.run();
    world.background_stands_still = false;
    world.run();
    for (const auto& pending : begun) CHECK(pending->answer.has_value());
  }

  TEST_CASE("a topic's compression.type is that of all its batches, however they were sent") {
    for (const auto type : {"uncompressed", "gzip", "snappy", "lz4", "zstd"}) {
      CAPTURE(type);
      const auto wanted = type == std::string_view("uncompressed") ? "none" : type;
      OneShard world;
      create_topic(world, "t", 1, {{"compression.type", type}});
      Strings sent;
      std::int32_t sequence = 0;
      for (const auto codec : {Codec::none, Codec::gzip, Codec::zstd}) {
        for (const std::size_t size : {10, 40'000}) {
          sent.push_back(std::to_string(sent.size()) + std::string(size, 'x'));
          CHECK(produce(world, "t", 0,
                        batch_of(world.clock.wall(), {{sent.back()}}, {7, 0, sequence++}, codec))
                    .error_code == ErrorCode::none);
        }
      }
      // One of its records goes to the log now, and the other as a delivery.
      sent.push_back("now");
      sent.push_back("later");
      produce(world, "t", 0,
              batch_of(world.clock.wall(), {{"later", {{"x-delay", "1000"}}}, {"now"}}, {},
                       Codec::none));
      world.pass(std::chrono::seconds{2});
      for (const bool again : {false, true}) {
        if (again) world.restart();
        CHECK(values(read_all(world, "t")) == sent);
        const auto codecs = stored_codecs(world);
        CHECK(codecs.size() == 8);
        for (const Codec codec : codecs) CHECK(std::string_view(records::name_of(codec)) == wanted);
      }
    }
  }

  TEST_CASE("a batch that is too large in its topic's codec is refused") {
    OneShard world;
    create_topic(world, "t", 1,
                 {{"compression.type", "uncompressed"}, {"max.message.bytes", "10000"}});
    const std::string text(20'000, 'x');
    CHECK(produce(world, "t", 0, batch_of(world.clock.wall(), {{text}}, {}, Codec::zstd))
              .error_code == ErrorCode::message_too_large);
    CHECK(world.partition(0).log_end() == 0);
  }

  TEST_CASE("a long batch is not recompressed on the shard's thread") {
    OneShard world;
    create_topic(world, "t", 2, {{"compression.type", "gzip"}});
    Partition& partition = world.partition(0);
    const Buffer plain = batch_of(world.clock.wall(), {{std::string(100'000, 'x')}});
    world.background_stands_still = true;
    const auto slow = world.begin(produce_request("t", 0, plain), 9);
    CHECK(partition.log_end() == 0);
    world.background_stands_still = false;
    world.run();
    CHECK(answer_of(world, *slow).base_offset == 0);
    CHECK(stored_codecs(world) == std::vector<Codec>{Codec::gzip});
  }
}

}  // namespace
}  // namespace tarry::broker::test
