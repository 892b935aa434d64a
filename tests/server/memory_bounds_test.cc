#include "server/memory_bounds.h"

#include <cstdint>

#include <doctest/doctest.h>

namespace tarry::server {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

broker::BrokerConfig small_broker(std::int64_t tail_mib) {
  broker::BrokerConfig config;
  config.memory_bytes = 64 << 20;
  config.delay_memory_bytes = 32 << 20;
  config.tail_bytes = tail_mib << 20;
  config.group_offsets_bytes = 8 << 20;
  return config;
}

TEST_SUITE("memory bounds") {
  TEST_CASE("the limits are those of all shards, and a shard has at least 4 MiB for delayed ones") {
    CHECK(memory_bounds(small_broker(16), 2).limits == 144 * mib);
    CHECK(memory_bounds(small_broker(16), 16).limits == (64 + 64 + 16 * 24) * mib);
  }

  TEST_CASE("each shard may have delivered twice its tail before any of that is written") {
    for (const std::uint32_t shards : {1u, 2u, 16u}) {
      const auto small = memory_bounds(small_broker(16), shards);
      const auto large = memory_bounds(small_broker(64), shards);
      // 128 and 32 MiB that are not written, with half of the tail instead of all of it; and an
      // eighth of what the limits differ by.
      constexpr std::uint64_t differ = (128 - 32) - (32 - 8) + 48 / 8;
      CHECK(large.beside - small.beside == shards * differ * mib);
    }
  }

  TEST_CASE("a flood that took 326 MB with limits of 144 MiB is within the bounds") {
    const auto bounds = memory_bounds(small_broker(16), 2);
    CHECK(bounds.limits + bounds.beside > 326'000'000u);
    // The container in docs/operating.md has 640 MiB.
    CHECK(bounds.limits + bounds.beside < 576 * mib);
  }
}

}  // namespace
}  // namespace tarry::server
