#include "delay/id_events.h"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace tarry::delay {
namespace {

TEST_SUITE("id events") {
  TEST_CASE("each id of each partition has its own events, however many there are") {
    std::mt19937_64 random(11);
    IdEvents ids;
    std::map<std::tuple<PartitionIndex, std::string>, std::vector<Sequence>> model;
    TopicPartition partition;
    for (Sequence i = 1; i <= 20'000; ++i) {
      partition.partition = static_cast<PartitionIndex>(random() % 3);
      const std::string id = "id" + std::to_string(random() % 5'000);
      auto& expected = model[{partition.partition, id}];
      const auto [events, is_new] = ids.of(partition, id);
      REQUIRE(is_new == expected.empty());
      REQUIRE(events->size() == expected.size());
      expected.push_back(i);
      events->push_back({.key = {WallTime{}, i}});
    }
    std::size_t seen = 0;
    ids.for_each([&](const TopicPartition& of, std::string_view id, const auto& events) {
      ++seen;
      const auto& expected = model.at({of.partition, std::string(id)});
      REQUIRE(ids.find(of, id) == &events);
      REQUIRE(events.size() == expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i)
        CHECK(events[i].key.sequence == expected[i]);
    });
    CHECK(seen == model.size());
    CHECK(ids.find(partition, "another") == nullptr);
    CHECK(IdEvents().find(partition, "id1") == nullptr);
  }
}

}  // namespace
}  // namespace tarry::delay
