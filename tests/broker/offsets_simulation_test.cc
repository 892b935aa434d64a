// Committed offsets over kills, checkpoints, other numbers of shards and deletions, against a map.

#include <doctest/doctest.h>

#include <cstdlib>
#include <map>

#include "protocol/messages/delete_topics.h"
#include "protocol/messages/offset_delete.h"
#include "tests/broker/offset_requests.h"

namespace tarry::broker::test {
namespace {

using namespace std::chrono_literals;

constexpr int groups = 12;
constexpr PartitionIndex partition_count = 4;

std::uint64_t first_seed() {
  const char* given = std::getenv("TARRY_SEED");
  return given == nullptr ? 1 : std::strtoull(given, nullptr, 10);
}

using Offsets = std::map<std::pair<std::string, PartitionIndex>, Offset>;

// The text that fetch_all() should give.
std::string text_of(const Offsets& offsets) {
  std::set<std::string> lines;
  for (const auto& [place, offset] : offsets)
    lines.insert(fmt::format("{}-{}:{}/4/m{} ", place.first, place.second, offset, offset));
  std::string out;
  for (const auto& line : lines) out += line;
  return out;
}

TEST_SUITE("offsets simulation") {
  TEST_CASE("every answered commit survives any kill, with any number of shards") {
    const std::uint64_t first = first_seed();
    for (std::uint64_t seed = first; seed < first + 3; ++seed) {
      CAPTURE(seed);
      SeededRandom random(seed);
      const auto below = [&](std::uint64_t n) { return random.u64() % n; };
      World world = small_world(1 + below(3));
      std::map<std::string, Offsets> model;
      for (const auto* topic : {"a", "b"}) create_topic(world, topic, partition_count);
      for (int step = 0; step < 250; ++step) {
        CAPTURE(step);
        const std::string group = fmt::format("g{}", below(groups));
        const std::string topic = below(2) == 0 ? "a" : "b";
        const auto partition = static_cast<PartitionIndex>(below(partition_count));
        const auto kind = below(100);
        if (kind < 70) {
          const auto offset = static_cast<Offset>(below(1000));
          const std::string metadata = fmt::format("m{}", offset);
          REQUIRE(commit(world, group, topic, partition, offset, metadata) == ErrorCode::none);
          model[group][{topic, partition}] = offset;
        } else if (kind < 78) {
          protocol::OffsetDeleteRequest request;
          request.group_id = group;
          request.topics.push_back({topic, {{partition}}});
          const auto response = world.call<protocol::OffsetDeleteResponse>(request, 0);
          const bool known = model.contains(group);
          REQUIRE(response.error_code == (known ? ErrorCode::none : ErrorCode::group_id_not_found));
          if (known) model[group].erase({topic, partition});
          if (known && model[group].empty()) model.erase(group);
        } else if (kind < 84) {
          REQUIRE(remove_group(world, group) ==
                  (model.contains(group) ? ErrorCode::none : ErrorCode::group_id_not_found));
          model.erase(group);
        } else if (kind < 87) {
          protocol::DeleteTopicsRequest request;
          request.timeout_ms = 30'000;
          request.topics.push_back({topic, {}});
          world.call<protocol::DeleteTopicsResponse>(request, 6);
          create_topic(world, topic, partition_count);
          for (auto& [id, offsets] : model)
            std::erase_if(offsets, [&](const auto& o) { return o.first.first == topic; });
          std::erase_if(model, [](const auto& g) { return g.second.empty(); });
        } else if (kind < 94) {
          // A checkpoint of every shard; nothing expires within the hour.
          world.pass(61s);
          for (auto& [id, offsets] : model) {
            for (auto& [place, offset] : offsets) {
              const std::string metadata = fmt::format("m{}", offset);
              REQUIRE(commit(world, id, place.first, place.second, offset, metadata) ==
                      ErrorCode::none);
            }
          }
        } else {
          world.restart(1 + below(4));
          for (int g = 0; g < groups; ++g) {
            const std::string id = fmt::format("g{}", g);
            CAPTURE(id);
            const auto known = model.find(id);
            REQUIRE(fetch_all(world, id) == (known == model.end() ? "" : text_of(known->second)));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tarry::broker::test
