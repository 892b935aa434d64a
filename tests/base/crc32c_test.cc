#include "base/crc32c.h"

#include <random>

#include <doctest/doctest.h>

namespace tarry {
namespace {

// The definition, bit by bit.
std::uint32_t slow_crc32c(Bytes bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const std::uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

TEST_SUITE("crc32c") {
  TEST_CASE("the published check values come out") {
    CHECK(crc32c(Bytes{}) == 0);
    CHECK(crc32c(as_bytes("123456789")) == 0xe3069283);
    CHECK(crc32c(Buffer(32, 0x00)) == 0x8a9136aa);  // RFC 3720, B.4.
    CHECK(crc32c(Buffer(32, 0xff)) == 0x62a8ab43);
  }

  TEST_CASE("every length from 0 to 1100 at every alignment agrees with the definition") {
    std::mt19937 random(1);
    Buffer bytes(1200);
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
    for (std::size_t length = 0; length <= 1100; ++length) {
      const Bytes part = Bytes(bytes).subspan(length % 9, length);
      REQUIRE(crc32c(part) == slow_crc32c(part));
    }
  }

  TEST_CASE("a checksum can continue another, wherever the cut is") {
    std::mt19937 random(2);
    Buffer bytes(700);
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
    const Bytes all = bytes;
    for (std::size_t cut = 0; cut <= all.size(); ++cut)
      REQUIRE(crc32c(crc32c(all.first(cut)), all.subspan(cut)) == crc32c(all));
  }
}

}  // namespace
}  // namespace tarry
