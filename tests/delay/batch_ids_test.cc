#include "delay/batch_ids.h"

#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>

namespace tarry::delay {
namespace {

std::uint64_t murmur_mix(std::uint64_t value) {
  return value ^ value >> 47;  // Its own inverse.
}

// Ids that all have one hash of the C++ library, whose seed is known: the second half of each makes
// up for the first one.
std::vector<std::string> colliding_ids(std::size_t count) {
  constexpr std::uint64_t factor = 0xc6a4a7935bd1e995;
  std::uint64_t inverse = factor;
  for (int i = 0; i < 6; ++i) inverse *= 2 - factor * inverse;
  std::vector<std::string> out;
  for (std::uint64_t first = 0; first < count; ++first) {
    std::uint64_t state = 0xc70f6907 ^ 16 * factor;
    state = (state ^ murmur_mix(first * factor) * factor) * factor;
    const std::uint64_t second = murmur_mix(state * inverse) * inverse;
    std::string& id = out.emplace_back(16, '\0');
    std::memcpy(id.data(), &first, 8);
    std::memcpy(id.data() + 8, &second, 8);
  }
  return out;
}

TEST_SUITE("ids of one batch") {
  TEST_CASE("each id of a batch has one number, in the order of the first ones") {
    for (const std::size_t different : {3u, 8u, 9u, 5'000u}) {
      std::mt19937_64 random(different);
      BatchIds ids(2 * different);
      std::map<std::string, BatchIds::Number> model;
      for (std::size_t i = 0; i < 2 * different; ++i) {
        const std::string id = "id" + std::to_string(random() % different);
        const auto [known, is_new] =
            model.try_emplace(id, static_cast<BatchIds::Number>(model.size()));
        const auto added = ids.add(id);
        REQUIRE(added.first == known->second);
        REQUIRE(added.second == is_new);
      }
      CHECK(ids.size() == model.size());
      for (const auto& [id, number] : model) {
        CHECK(ids.find(id) == number);
        CHECK(ids[number] == id);
      }
      CHECK_FALSE(ids.find("another"));
    }
    CHECK_FALSE(BatchIds().find("id1"));
  }

  TEST_CASE("ids that were made to collide by the library's hash are found as quickly as others") {
    const auto made = colliding_ids(20'000);
    BatchIds ids(made.size());
    const std::size_t hash = std::hash<std::string_view>()(made[0]);
    for (const auto& id : made) {
      REQUIRE(std::hash<std::string_view>()(id) == hash);
      REQUIRE(ids.add(id).second);
    }
    // Of tables that are as full as this one, less than one in a billion has such a run.
    CHECK(ids.longest_search() < 200);
    for (std::size_t i = 0; i < made.size(); ++i) CHECK(ids.find(made[i]) == i);
  }
}

}  // namespace
}  // namespace tarry::delay
