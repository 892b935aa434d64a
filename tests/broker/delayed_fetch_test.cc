// DelayedFetch: each case that ends its waiting, and what does not.

#include "broker/handlers/delayed_fetch.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "protocol/messages/delete_topics.h"
#include "tests/broker/batches.h"

namespace tarry::broker::test {
namespace {

using namespace std::chrono_literals;
using purgatory::Kind;

constexpr int fetch_version = 12;

// Partitions that are open, waiting fetches, and what they are answered.
struct Fetches : World {
  explicit Fetches(std::size_t shards = 2) : World({.shards = shards}) {}

  Partition& partition(PartitionIndex index) {
    const TopicPartition tp{shard().topics().find("t")->id, index};
    Shard& there = broker().shard_of(tp);
    there.partitions().with(tp, [](auto) {});
    run();
    Partition* const open = there.partitions().find(tp);
    REQUIRE(open != nullptr);
    return *open;
  }
  // One on the connection's shard, and one that is not.
  PartitionIndex own() { return on_shard(true); }
  PartitionIndex other() { return on_shard(false); }
  PartitionIndex on_shard(bool home) {
    for (PartitionIndex p = 0;; ++p) {
      REQUIRE(p < shard().topics().find("t")->partitions);
      const TopicPartition tp{shard().topics().find("t")->id, p};
      if ((&broker().shard_of(tp) == &shard(0)) == home) return p;
    }
  }

  // A batch of so many bytes in the log.
  Buffer batch(std::size_t bytes) {
    // Lengths take a byte more where they are long, so that a few sizes cannot be.
    std::size_t value = bytes - batch_of(clock.wall(), {{""}}).size() + 1;
    Buffer made;
    do {
      made = batch_of(clock.wall(), {{std::string(--value, 'x')}});
    } while (made.size() > bytes);
    REQUIRE(made.size() == bytes);
    return made;
  }
  void append(PartitionIndex index, std::size_t bytes) {
    REQUIRE(test::produce(*this, "t", index, batch(bytes)).error_code == ErrorCode::none);
  }

  std::shared_ptr<Pending> fetch(const std::vector<PartitionIndex>& partitions, int min_bytes,
                                 int max_wait = 10'000, Offset from = 0,
                                 int partition_max = 1'000'000) {
    auto request = fetch_request("t", partitions[0], from, max_wait, min_bytes);
    auto& asked = request.topics[0].partitions;
    asked[0].partition_max_bytes = partition_max;
    for (std::size_t i = 1; i < partitions.size(); ++i) {
      asked.push_back(asked[0]);
      asked.back().partition = partitions[i];
    }
    return begin(request, fetch_version);
  }
  protocol::FetchRequest by_name(const std::vector<PartitionIndex>& partitions, int min_bytes,
                                 Offset from = 0) {
    auto request = fetch_request("t", partitions[0], from, 10'000, min_bytes);
    auto& asked = request.topics[0].partitions;
    for (std::size_t i = 1; i < partitions.size(); ++i) {
      asked.push_back(asked[0]);
      asked.back().partition = partitions[i];
    }
    return request;
  }
  protocol::FetchRequest by_id(const std::vector<PartitionIndex>& partitions, int min_bytes,
                               Offset from = 0) {
    auto request = by_name(partitions, min_bytes, from);
    request.topics[0].topic_id = shard().topics().find("t")->id;
    return request;
  }
  // Nobody is there to be told anything.
  static bool says_nothing(const Pending& pending) {
    return pending.answer && pending.answer->frame.empty() && pending.answer->close.empty();
  }
  protocol::FetchResponse answer(const Pending& pending) {
    return read<protocol::FetchResponse>(pending, fetch_version);
  }
  ErrorCode error(const Pending& pending) {
    return answer(pending).responses[0].partitions[0].error_code;
  }
  std::size_t bytes(const Pending& pending) {
    std::size_t sum = 0;
    const auto response = answer(pending);
    for (const auto& each : response.responses[0].partitions) sum += each.records.size();
    return sum;
  }
  const purgatory::KindMetrics& metrics(Kind kind, std::size_t index = 0) {
    return shard(index).purgatory().metrics(kind);
  }
  // Nothing waits, on any shard, for any partition.
  bool nothing_left() {
    run();
    for (std::size_t i = 0; i < broker().shard_count(); ++i) {
      if (metrics(fetch_kind, i).waiting + metrics(fetch_watch_kind, i).waiting > 0) return false;
      for (const auto& [tp, partition] : shard(i).partitions().all())
        if (!partition->fetches.empty()) return false;
    }
    return true;
  }
};

TEST_SUITE("delayed fetch") {
  TEST_CASE_FIXTURE(Fetches,
                    "satisfied: by the append that brings the last byte, not by one before") {
    create_topic(*this, "t", 8);
    for (const PartitionIndex p : {own(), other()}) {
      CAPTURE(p);
      const auto waiting = fetch({p}, 1000);
      for (int i = 0; i < 4; ++i) append(p, 200);
      append(p, 199);
      CHECK_FALSE(waiting->answer.has_value());
      append(p, 100);
      REQUIRE(waiting->answer.has_value());
      CHECK(bytes(*waiting) == 1099);
      CHECK(nothing_left());
    }
  }

  TEST_CASE_FIXTURE(Fetches,
                    "bytes that were read count: a fetch waits only for the missing ones") {
    create_topic(*this, "t", 8);
    for (const PartitionIndex p : {own(), other()}) {
      append(p, 600);
      const auto waiting = fetch({p}, 1000);
      append(p, 399);
      CHECK_FALSE(waiting->answer.has_value());
      append(p, 80);
      REQUIRE(waiting->answer.has_value());
      CHECK(bytes(*waiting) == 1079);
    }
  }

  TEST_CASE_FIXTURE(Fetches, "an append that is not enough does not touch it") {
    create_topic(*this, "t", 8);
    const PartitionIndex p = own();
    Partition& log = partition(p);
    append(p, 100);
    const auto waiting = fetch({p}, 10'000);
    const auto waits_for = log.fetches.lowest();
    CHECK(waits_for == log.visible_bytes() + 9'900);
    for (int i = 0; i < 50; ++i) {
      append(p, 100);
      CHECK(log.fetches.lowest() == waits_for);  // Whoever is asked moves its number.
    }
    CHECK_FALSE(waiting->answer.has_value());
  }

  TEST_CASE_FIXTURE(Fetches, "satisfied: by what several partitions bring together") {
    create_topic(*this, "t", 8);
    const auto waiting = fetch({0, 1, 2, 3, 4, 5, 6, 7}, 1000);
    for (PartitionIndex p = 0; p < 7; ++p) {
      append(p, 130);
      CHECK_FALSE(waiting->answer.has_value());
    }
    append(3, 90);
    REQUIRE(waiting->answer.has_value());
    CHECK(bytes(*waiting) == 1000);
    CHECK(nothing_left());
  }

  TEST_CASE("satisfied: exactly when a count of all bytes would say so, whatever comes where") {
    const std::uint64_t seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t bound) { return static_cast<int>(random() % bound); };
    for (const std::size_t shards : {1, 2, 3}) {
      Fetches world(shards);
      create_topic(world, "t", 12);
      for (int round = 0; round < 12; ++round) {
        CAPTURE(round);
        std::vector<PartitionIndex> asked;
        std::vector<Offset> from;
        for (PartitionIndex p = 0; p < 12; ++p)
          if (below(2) == 0) asked.push_back(p);
        if (asked.empty()) asked.push_back(below(12));
        const int partition_max = below(3) == 0 ? 1500 : 1'000'000;
        auto request = fetch_request("t", asked[0], 0, 60'000, 0);
        request.topics[0].partitions.clear();
        for (const PartitionIndex p : asked) {
          auto& each = request.topics[0].partitions.emplace_back();
          each.partition = p;
          each.fetch_offset = world.partition(p).log_end();
          each.partition_max_bytes = partition_max;
        }
        const int min_bytes = 1 + below(6000);
        request.min_bytes = min_bytes;
        // The bytes that are there, per partition; no more than may be returned counts.
        std::vector<int> have(12, 0);
        const int reachable = std::min(min_bytes, partition_max * static_cast<int>(asked.size()));
        const auto waiting = world.begin(request, fetch_version);
        for (;;) {
          int sum = 0;
          for (const PartitionIndex p : asked)
            sum += std::min(have[static_cast<std::size_t>(p)], partition_max);
          REQUIRE(waiting->answer.has_value() == (sum >= reachable));
          if (sum >= reachable) break;
          const PartitionIndex p = below(12);
          int size = 80 + below(500);
          if (size == 126 || size == 133) ++size;  // Sizes that no batch has.
          world.append(p, static_cast<std::size_t>(size));
          have[static_cast<std::size_t>(p)] += size;
        }
        CHECK(world.nothing_left());
      }
    }
  }

  TEST_CASE_FIXTURE(Fetches, "not satisfied: by what is appended and not durable yet") {
    create_topic(*this, "t", 8);
    for (const PartitionIndex p : {own(), other()}) {
      partition(p);
      const auto waiting = fetch({p}, 1);
      background_stands_still = true;
      const Buffer data = batch(100);
      const auto produced = begin(produce_request("t", p, data), 9);
      pass(1s);
      CHECK_FALSE(waiting->answer.has_value());
      CHECK(partition(p).log_end() == 1);
      background_stands_still = false;
      run();
      CHECK(bytes(*waiting) == 100);
      CHECK(produced->answer.has_value());
    }
  }

  TEST_CASE_FIXTURE(Fetches, "satisfied: its topic is deleted") {
    for (const bool home : {true, false}) {
      create_topic(*this, "t", 8);
      const PartitionIndex p = on_shard(home);
      append(p, 100);
      const auto waiting = fetch({p}, 1000);
      protocol::DeleteTopicsRequest request;
      request.timeout_ms = 30'000;
      request.topics.push_back({"t", {}});
      const auto deleted = begin(request, 6);
      pass(1ms);
      REQUIRE(waiting->answer.has_value());
      CHECK(error(*waiting) == ErrorCode::unknown_topic_or_partition);
      CHECK(nothing_left());
    }
  }

  TEST_CASE_FIXTURE(Fetches,
                    "by a topic's id: satisfied by an append, in the versions that have it") {
    create_topic(*this, "t", 8);
    for (const int version : {13, 17}) {
      CAPTURE(version);
      for (const PartitionIndex p : {own(), other()}) {
        CAPTURE(p);
        const auto waiting = begin(by_id({p}, 1, partition(p).log_end()), version);
        pass(1s);
        CHECK_FALSE(waiting->answer.has_value());
        append(p, 100);
        const auto response = read<protocol::FetchResponse>(*waiting, version);
        REQUIRE(response.responses.size() == 1);
        CHECK(response.responses[0].topic_id == shard().topics().find("t")->id);
        CHECK(response.responses[0].partitions[0].error_code == ErrorCode::none);
        CHECK(response.responses[0].partitions[0].records.size() == 100);
        CHECK(nothing_left());
      }
    }
  }

  TEST_CASE("its topic is deleted: unknown by its id from version 13 on, by its name before") {
    for (const bool made_again : {false, true}) {
      CAPTURE(made_again);
      for (const int version : {12, 13}) {
        CAPTURE(version);
        for (const std::size_t shards : {1, 3}) {
          CAPTURE(shards);
          Fetches world(shards);
          create_topic(world, "t", 12);
          const auto id = world.shard().topics().find("t")->id;
          // Fetches from one partition here, from one elsewhere, and from all: each home that there
          // can be.
          std::vector<std::pair<std::size_t, std::shared_ptr<World::Pending>>> all;
          for (std::size_t home = 0; home < shards; ++home) {
            for (std::vector<PartitionIndex> asked :
                 {std::vector<PartitionIndex>{0}, {1}, {2}, {3}, {4}, {0, 1, 2, 3, 4, 5}}) {
              const auto count = asked.size();
              all.emplace_back(count, version >= 13
                                          ? world.begin(world.by_id(asked, 1000), version, home)
                                          : world.begin(world.by_name(asked, 1000), version, home));
            }
          }
          for (const auto& [count, pending] : all) CHECK_FALSE(pending->answer.has_value());
          protocol::DeleteTopicsRequest request;
          request.timeout_ms = 30'000;
          request.topics.push_back({"t", {}});
          world.runs_at_once = false;
          const auto deleted = world.begin(request, 6);
          std::shared_ptr<World::Pending> made;
          if (made_again) {
            // Refused while the old one is there, so it is asked for until it is taken.
            protocol::CreateTopicsRequest create;
            auto& topic = create.topics.emplace_back();
            topic.name = "t";
            topic.num_partitions = 12;
            topic.replication_factor = 1;
            made = world.begin(create, 7);
          }
          world.run();
          CHECK(deleted->answer.has_value());
          if (made_again) {
            CHECK(world.read<protocol::CreateTopicsResponse>(*made, 7).topics[0].error_code ==
                  ErrorCode::none);
            REQUIRE(world.shard().topics().find("t"));
            CHECK_FALSE(world.shard().topics().find("t")->id == id);
          }
          for (const auto& [count, pending] : all) {
            CAPTURE(count);
            const auto response = world.read<protocol::FetchResponse>(*pending, version);
            REQUIRE(response.responses[0].partitions.size() == count);
            for (const auto& each : response.responses[0].partitions) {
              CHECK(each.error_code == (version >= 13 ? ErrorCode::unknown_topic_id
                                                      : ErrorCode::unknown_topic_or_partition));
              CHECK(each.records.size() == 0);
            }
          }
          CHECK(world.nothing_left());
        }
      }
    }
  }

  TEST_CASE_FIXTURE(Fetches, "satisfied: one of its partitions goes out of service") {
    create_topic(*this, "t", 8);
    for (const PartitionIndex p : {own(), other()}) {
      const auto waiting = fetch({p}, 1000);
      partition(p).fence("a test says so");
      run();
      REQUIRE(waiting->answer.has_value());
      CHECK(error(*waiting) == ErrorCode::kafka_storage_error);
      CHECK(nothing_left());
    }
  }

  TEST_CASE_FIXTURE(Fetches, "satisfied: the log start moves past its offset, by DeleteRecords") {
    create_topic(*this, "t", 8);
    for (const PartitionIndex p : {own(), other()}) {
      append(p, 100);
      append(p, 100);
      append(p, 100);
      const auto behind = fetch({p}, 1000, 10'000, 1);
      const auto ahead = fetch({p}, 1000, 10'000, 2);
      CHECK(partition(p).delete_records(2).error == ErrorCode::none);
      run();
      REQUIRE(behind->answer.has_value());
      CHECK(error(*behind) == ErrorCode::offset_out_of_range);
      CHECK_FALSE(ahead->answer.has_value());
      append(p, 900);
      CHECK(bytes(*ahead) == 1000);
      CHECK(nothing_left());
    }
  }

  TEST_CASE("satisfied: the log start moves past its offset, by retention") {
    Fetches world;
    create_topic(world, "t", 8, {{"retention.ms", "60000"}, {"segment.bytes", "150"}});
    for (const PartitionIndex p : {world.own(), world.other()}) {
      for (int i = 0; i < 3; ++i) world.append(p, 100);
      world.pass(61s);  // A checkpoint: they are in segments.
      const auto behind = world.fetch({p}, 100'000, 3'600'000, 0);
      const auto at_end = world.fetch({p}, 100'000, 3'600'000, world.partition(p).log_end());
      CHECK_FALSE(behind->answer.has_value());
      world.pass(600s);
      CHECK(world.partition(p).log_start() == 3);
      REQUIRE(behind->answer.has_value());
      CHECK(world.error(*behind) == ErrorCode::offset_out_of_range);
      CHECK_FALSE(at_end->answer.has_value());
    }
  }

  TEST_CASE("not satisfied: by a log that is rolled; its bytes are counted over the border") {
    Fetches world;
    create_topic(world, "t", 8, {{"segment.bytes", "250"}});
    for (const PartitionIndex p : {world.own(), world.other()}) {
      const auto waiting = world.fetch({p}, 1000, 600'000);
      for (int i = 0; i < 9; ++i) {
        world.append(p, 100);
        if (i % 3 == 2) world.pass(61s);  // A checkpoint writes them, and rolls.
        CHECK_FALSE(waiting->answer.has_value());
      }
      world.append(p, 100);
      REQUIRE(waiting->answer.has_value());
      CHECK(world.bytes(*waiting) == 1000);
    }
  }

  TEST_CASE("a read that ends with an old segment is answered, for there is more behind it") {
    Fetches world(1);
    create_topic(world, "t", 1, {{"segment.bytes", "250"}});
    for (int i = 0; i < 9; ++i) world.append(0, 100);
    world.stop();
    world.restart();
    const auto waiting = world.fetch({0}, 900, 10'000);
    REQUIRE(waiting->answer.has_value());
    CHECK(world.bytes(*waiting) == 200);
    CHECK(world.metrics(fetch_kind).started == 0);
  }

  TEST_CASE_FIXTURE(Fetches, "satisfied: nothing that comes could still be returned") {
    create_topic(*this, "t", 8);
    for (const PartitionIndex p : {own(), other()}) {
      const auto waiting = fetch({p}, 5000, 10'000, 0, 1000);
      append(p, 999);
      CHECK_FALSE(waiting->answer.has_value());
      append(p, 100);
      REQUIRE(waiting->answer.has_value());
      CHECK(bytes(*waiting) == 999);
      // A fetch does not wait when it is so at the first look.
      CHECK(fetch({p}, 5000, 10'000, 0, 1000)->answer.has_value());
      CHECK(nothing_left());
    }
  }

  TEST_CASE_FIXTURE(Fetches,
                    "min_bytes beyond max_bytes is max_bytes, and what does not fit is there") {
    create_topic(*this, "t", 1);
    append(0, 700);
    append(0, 700);
    auto request = fetch_request("t", 0, 0, 10'000, 5000);
    request.max_bytes = 1000;
    const auto waiting = begin(request, fetch_version);
    REQUIRE(waiting->answer.has_value());
    CHECK(bytes(*waiting) == 700);
  }

  TEST_CASE_FIXTURE(Fetches,
                    "expired: at max_wait and not a millisecond before, with what there is") {
    create_topic(*this, "t", 8);
    for (const PartitionIndex p : {own(), other()}) {
      const std::size_t where = p == own() ? 0 : 1;  // It waits where its partition is.
      append(p, 100);
      const auto waiting = fetch({p}, 10'000, 500);
      append(p, 100);
      pass(499ms);
      CHECK_FALSE(waiting->answer.has_value());
      pass(1ms);
      REQUIRE(waiting->answer.has_value());
      CHECK(bytes(*waiting) == 200);
      CHECK(metrics(fetch_kind, where).expired == 1);
      CHECK(metrics(fetch_kind, where).late_ms.total().max() == 0);
      CHECK(nothing_left());
    }
  }

  TEST_CASE_FIXTURE(Fetches,
                    "cancelled: the client goes, and nothing is left on any shard at once") {
    create_topic(*this, "t", 8);
    const auto waiting = fetch({0, 1, 2, 3, 4, 5, 6, 7}, 1000);
    const auto here = fetch({own()}, 1000), away = fetch({other()}, 1000);
    CHECK(metrics(fetch_kind).waiting == 2);
    CHECK(metrics(fetch_kind, 1).waiting == 1);
    CHECK(metrics(fetch_watch_kind, 1).waiting == 1);
    connection().close();
    CHECK(metrics(fetch_kind).waiting == 0);
    run();
    CHECK(says_nothing(*waiting));
    CHECK(says_nothing(*here));
    CHECK(says_nothing(*away));
    CHECK(metrics(fetch_kind).cancelled == 2);
    CHECK(metrics(fetch_kind, 1).cancelled == 1);
    CHECK(nothing_left());
    // Nothing is parked there any more.
    CHECK(says_nothing(*fetch({0, 1}, 1000)));
    CHECK(metrics(fetch_kind).started == 2);
  }

  TEST_CASE("cancelled: the broker stops, and nobody waits for max_wait, nor is told anything") {
    Fetches world;
    create_topic(world, "t", 8);
    const auto here = world.fetch({world.own()}, 1000, 3'600'000);
    const auto away = world.fetch({world.other()}, 1000, 3'600'000);
    bool stopped = false;
    world.broker().stop([&] { stopped = true; });
    for (int i = 0; i < 1000 && !stopped; ++i) world.pass(1ms);
    CHECK(stopped);
    for (const std::size_t where : {0, 1}) CHECK(world.metrics(fetch_kind, where).cancelled == 1);
    CHECK(Fetches::says_nothing(*here));
    CHECK(Fetches::says_nothing(*away));
    CHECK(world.nothing_left());
    world.restart();
  }

  TEST_CASE("a fetch over several shards ends when the first of them stops") {
    Fetches world;
    create_topic(world, "t", 8);
    const PartitionIndex a = world.own(), b = world.other();
    world.append(a, 100);
    const auto waiting = world.fetch({a, b}, 1000, 3'600'000);
    bool stopped = false;
    world.background_stands_still = true;
    world.broker().stop([&] { stopped = true; });
    world.pass(1ms);
    CHECK_FALSE(stopped);
    CHECK_FALSE(world.shard(0).stopping());
    CHECK(world.shard(1).stopping());
    CHECK(world.bytes(*waiting) == 100);
    CHECK(world.nothing_left());
    world.background_stands_still = false;
    for (int i = 0; i < 1000 && !stopped; ++i) world.pass(1ms);
    CHECK(stopped);
  }

  TEST_CASE_FIXTURE(Fetches, "one of several errors is enough: the others' data come with it") {
    create_topic(*this, "t", 8);
    const PartitionIndex a = own(), b = other();
    append(a, 100);
    const auto waiting = fetch({a, b}, 1000);
    partition(b).fence("a test says so");
    run();
    REQUIRE(waiting->answer.has_value());
    const auto response = answer(*waiting);
    CHECK(response.responses[0].partitions[0].error_code == ErrorCode::none);
    CHECK(response.responses[0].partitions[0].records.size() == 100);
    CHECK(response.responses[0].partitions[1].error_code == ErrorCode::kafka_storage_error);
  }

  TEST_CASE_FIXTURE(Fetches,
                    "answered once, when partitions of several shards satisfy it together") {
    create_topic(*this, "t", 8);
    const PartitionIndex a = own(), b = other();
    partition(a);
    partition(b);
    const auto waiting = fetch({a, b}, 100);
    background_stands_still = true;
    const Buffer one = batch(100), two = batch(100);
    const auto first = begin(produce_request("t", a, one), 9);
    const auto second = begin(produce_request("t", b, two), 9);
    background_stands_still = false;
    run();
    REQUIRE(waiting->answer.has_value());
    CHECK(metrics(fetch_kind).satisfied == 1);
    CHECK(metrics(fetch_kind).started == 1);
    CHECK(nothing_left());
  }

  TEST_CASE_FIXTURE(Fetches, "a fetch without partitions, or without time, does not wait") {
    create_topic(*this, "t", 1);
    protocol::FetchRequest nothing;
    nothing.max_wait_ms = 10'000;
    nothing.min_bytes = 1;
    nothing.max_bytes = 1000;
    CHECK(begin(nothing, fetch_version)->answer.has_value());
    CHECK(fetch({0}, 1, 0)->answer.has_value());
    CHECK(metrics(fetch_kind).started == 0);
  }

  TEST_CASE(
      "a hundred that wait for one partition are all answered by one append, in their order") {
    Fetches world(1);
    create_topic(world, "t", 1);
    std::vector<std::shared_ptr<World::Pending>> waiting;
    for (int i = 0; i < 100; ++i) waiting.push_back(world.fetch({0}, i < 50 ? 1 : 1000));
    world.append(0, 100);
    CHECK(std::ranges::count_if(waiting, [](auto& one) { return one->answer.has_value(); }) == 50);
    world.append(0, 900);
    CHECK(std::ranges::count_if(waiting, [](auto& one) { return one->answer.has_value(); }) == 100);
  }
}

}  // namespace
}  // namespace tarry::broker::test
