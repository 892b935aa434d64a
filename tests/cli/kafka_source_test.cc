// The partitions of __consumer_offsets that an import needs: all of them, once.

#include "cli/kafka_source.h"

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tests/given.h"
#include "tests/memory_disk.h"

TEST_SUITE_BEGIN("kafka source");

namespace tarry::cli {
namespace {

struct KafkaSourceFixture {
  SeededRandom random{3};
  storage::MemoryDisk disk{random};
  std::vector<std::string> directories{"kafka-1", "kafka-2"};

  KafkaSourceFixture() {
    for (const auto& directory : directories)
      put(directory, "orders", directory == "kafka-1" ? 0 : 1);
  }

  void put(const std::string& directory, const std::string& topic, PartitionIndex partition) {
    REQUIRE(disk.make_directories(fmt::format("{}/{}-{}", directory, topic, partition)));
  }
  void put_offsets(const std::string& directory, PartitionIndex from, PartitionIndex until) {
    for (auto index = from; index < until; ++index) put(directory, "__consumer_offsets", index);
  }
  KafkaSource open(std::optional<PartitionIndex> offsets_partitions = {}) {
    auto opened = KafkaSource::open(disk, directories, offsets_partitions);
    if (!opened) FAIL(opened.error().message);
    REQUIRE(opened->topics.size() == 1);
    CHECK(opened->topics.front().problem.empty());
    return std::move(*opened);
  }
};

TEST_CASE("all partitions of __consumer_offsets, or none, are no problem") {
  KafkaSourceFixture kafka;
  CHECK(kafka.open().offsets_problem.empty());
  kafka.put_offsets("kafka-1", 0, 20);
  kafka.put_offsets("kafka-2", 20, 50);
  const auto source = kafka.open();
  CHECK(source.offsets_problem.empty());
  CHECK(source.offsets.size() == 50);
  CHECK(kafka.open(50).offsets_problem.empty());
  kafka.put_offsets("kafka-2", 50, 60);
  CHECK(kafka.open().offsets_problem.empty());
}

TEST_CASE("a partition of the largest number there can be is one that the others are missing for") {
  KafkaSourceFixture kafka;
  kafka.put_offsets("kafka-1", 0, 50);
  kafka.put("kafka-1", "__consumer_offsets", std::numeric_limits<PartitionIndex>::max());
  CHECK(kafka.open().offsets_problem.contains("partitions 50, 51, 52"));
}

TEST_CASE("a partition of __consumer_offsets that is given twice is named with both directories") {
  KafkaSourceFixture kafka;
  kafka.put_offsets("kafka-1", 0, 50);
  kafka.put_offsets("kafka-2", 7, 8);
  const auto problem = kafka.open().offsets_problem;
  CHECK(problem.contains("kafka-1/__consumer_offsets-7"));
  CHECK(problem.contains("kafka-2/__consumer_offsets-7"));
}

TEST_CASE(
    "partitions of __consumer_offsets that are missing in the middle or at the end are named") {
  KafkaSourceFixture kafka;
  kafka.put_offsets("kafka-1", 0, 7);
  kafka.put_offsets("kafka-2", 8, 48);
  CHECK(kafka.open().offsets_problem.contains("partitions 7, 48, 49 are in none"));
  CHECK(kafka.open(48).offsets_problem.contains("partitions 7 are in none"));
  CHECK_FALSE(kafka.open().offsets_problem.contains("--offsets-partitions"));
}

TEST_CASE("fewer than 50 partitions of __consumer_offsets are all if one says so") {
  KafkaSourceFixture kafka;
  kafka.put_offsets("kafka-1", 0, 2);
  const auto problem = kafka.open().offsets_problem;
  CHECK(problem.contains("partitions 2, 3, 4"));
  CHECK(problem.contains("if Kafka has only 2"));
  CHECK(problem.contains("--offsets-partitions"));
  CHECK(kafka.open(2).offsets_problem.empty());
  CHECK(kafka.open(1).offsets_problem.contains("there is a partition 1"));
}

}  // namespace
}  // namespace tarry::cli

TEST_SUITE_END();
