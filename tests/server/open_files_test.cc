#include "server/open_files.h"

#include <algorithm>
#include <cstdint>

#include <doctest/doctest.h>

namespace tarry::server {
namespace {

TEST_SUITE("open files") {
  TEST_CASE("connections and the broker's own files fit below the limit together") {
    for (const std::uint64_t limit : {1100u, 1'200u, 4'096u, 20'000u, 1u << 20}) {
      for (const std::uint32_t shards : {1u, 2u, 16u}) {
        const auto connections = connections_within(limit, 1u << 30, shards);
        CHECK(connections > 0);
        CHECK(connections + std::min<std::uint64_t>(reserved_files, limit / 2) <= limit);
      }
    }
    CHECK(connections_within(20'000, 100'000, 2) == 20'000 - 512 - 32);
  }
  TEST_CASE("a limit with room for max.connections leaves it as it is") {
    CHECK(connections_within(1 << 20, 100'000, 2) == 100'000);
    CHECK(connections_within(~std::uint64_t{0}, 100'000, 2) == 100'000);
  }
  TEST_CASE("half of a very low limit is for connections, and there is always one") {
    CHECK(connections_within(256, 100'000, 1) == 128);
    CHECK(connections_within(0, 100'000, 1) == 1);
  }
}

}  // namespace
}  // namespace tarry::server
