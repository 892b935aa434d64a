#include "base/keyed_hash.h"

#include <string>

#include <doctest/doctest.h>

namespace tarry {
namespace {

TEST_SUITE("keyed hash") {
  TEST_CASE("it is SipHash, as its authors publish it") {
    const HashKey key{0x0706050403020100, 0x0f0e0d0c0b0a0908};
    std::string text;
    CHECK(keyed_hash<2, 4>(key, text) == 0x726fdb47dd0e0e31);
    for (char byte = 0; byte < 15; ++byte) text.push_back(byte);
    CHECK(keyed_hash<2, 4>(key, text) == 0xa129ca6149be45e5);
  }

  TEST_CASE("texts that collide under one key do not under another") {
    // Counts the texts whose lowest bits are 0 under the first key.
    int both = 0, first = 0;
    for (int i = 0; i < 10'000; ++i) {
      const auto text = "id-" + std::to_string(i);
      if (keyed_hash({1, 2}, text) % 64 != 0) continue;
      ++first;
      both += keyed_hash({1, 3}, text) % 64 == 0;
    }
    CHECK(first > 50);
    CHECK(both < first / 4);
  }

  TEST_CASE("the process's key is not zero, and stays") {
    const auto key = process_hash_key();
    CHECK((key.low | key.high) != 0);
    CHECK(key.low == process_hash_key().low);
    CHECK(key.high == process_hash_key().high);
  }
}

}  // namespace
}  // namespace tarry
