#include "golden.h"

#include <cstdlib>
#include <random>

#include <doctest/doctest.h>

#include "protocol/api.h"
#include "protocol/dump.h"

namespace tarry::protocol {
namespace {

TEST_SUITE("golden messages") {
  TEST_CASE("every message of Kafka decodes, prints the same JSON and encodes to the same bytes") {
    CHECK(golden_messages().size() == 735);
    for (const GoldenMessage& golden : golden_messages()) {
      CAPTURE(golden.title);
      const auto dumped = dump_message(golden.key, golden.request, golden.version, golden.bytes);
      REQUIRE_MESSAGE(dumped, (dumped ? "" : dumped.error().message), " ", to_hex(golden.bytes));
      CHECK(dumped->json == golden.json);
      if (golden.canonical) CHECK(to_hex(dumped->bytes) == to_hex(golden.bytes));
    }
  }

  TEST_CASE("a tagged field that holds its default is read and not written again") {
    int seen = 0;
    for (const GoldenMessage& golden : golden_messages()) {
      if (golden.canonical) continue;
      ++seen;
      CAPTURE(golden.title);
      const auto dumped = dump_message(golden.key, golden.request, golden.version, golden.bytes);
      REQUIRE(dumped);
      CHECK(dumped->json == golden.json);
      // Such a field is the last one in each of these.  Its three bytes are gone, and where the
      // tagged fields are counted there is one less: it is the only byte that differs.
      REQUIRE(dumped->bytes.size() == golden.bytes.size() - 3);
      int differ = 0;
      for (std::size_t i = 0; i < dumped->bytes.size(); ++i) {
        if (dumped->bytes[i] == golden.bytes[i]) continue;
        ++differ;
        CHECK(dumped->bytes[i] == golden.bytes[i] - 1);
      }
      CHECK(differ == 1);
    }
    CHECK(seen == 2);
  }

  TEST_CASE("every truncation of every message is an error") {
    for (const GoldenMessage& golden : golden_messages()) {
      CAPTURE(golden.title);
      for (std::size_t size = 0; size < golden.bytes.size(); ++size) {
        // Memory of exactly this size, so that asan sees a read past its end.
        const Buffer cut(golden.bytes.begin(), golden.bytes.begin() + static_cast<long>(size));
        const auto dumped = dump_message(golden.key, golden.request, golden.version, cut);
        REQUIRE_FALSE(dumped);
        REQUIRE(dumped.error().code == Errc::corrupt);
      }
    }
  }

  TEST_CASE("a byte too many is an error") {
    for (const GoldenMessage& golden : golden_messages()) {
      CAPTURE(golden.title);
      Buffer longer = golden.bytes;
      longer.push_back(0);
      CHECK_FALSE(dump_message(golden.key, golden.request, golden.version, longer));
    }
  }

  TEST_CASE("a message that still decodes after random changes can be encoded and decoded again") {
    const char* given = std::getenv("TARRY_TEST_SEED");
    const unsigned seed = given ? static_cast<unsigned>(std::atoll(given)) : std::random_device{}();
    MESSAGE("TARRY_TEST_SEED=", seed);
    std::mt19937 random(seed);
    const auto below = [&](std::size_t limit) { return random() % limit; };
    int decoded = 0;
    for (int round = 0; round < 40; ++round) {
      for (const GoldenMessage& golden : golden_messages()) {
        Buffer bytes = golden.bytes;
        if (round % 4 == 0) {  // Nothing but noise.
          bytes.resize(below(64));
          for (auto& byte : bytes) byte = static_cast<std::uint8_t>(below(4) ? below(3) : random());
        }
        for (std::size_t change = 0; change <= below(3) && !bytes.empty(); ++change) {
          auto& byte = bytes[below(bytes.size())];
          byte = static_cast<std::uint8_t>(below(2) ? byte ^ (1u << below(8)) : random());
        }
        bytes.shrink_to_fit();
        int version = golden.version;
        if (below(8) == 0) {  // A layout that the bytes were not made for.
          const ApiSchema& api = *find_api(static_cast<std::int16_t>(golden.key));
          version = static_cast<int>(below(static_cast<std::size_t>(api.max_version) + 1));
        }
        const auto dumped = dump_message(golden.key, golden.request, version, bytes);
        if (!dumped) {
          REQUIRE_FALSE(dumped.error().message.empty());
          continue;
        }
        ++decoded;
        CAPTURE(golden.title);
        CAPTURE(version);
        CAPTURE(to_hex(bytes));
        const auto again = dump_message(golden.key, golden.request, version, dumped->bytes);
        REQUIRE(again);
        CHECK(again->json == dumped->json);
        CHECK(again->bytes == dumped->bytes);
      }
    }
    CHECK(decoded > 1000);  // With fewer the changes are too wild to test anything.
  }

  TEST_CASE("a key or a version that the schema does not have is unsupported") {
    const auto no_key = dump_message(999, true, 0, {});
    REQUIRE_FALSE(no_key);
    CHECK(no_key.error().code == Errc::unsupported);
    for (const ApiSchema& api : api_schemas()) {
      for (const int version : {api.min_version - 1, api.max_version + 1}) {
        const auto dumped = dump_message(static_cast<int>(api.key), false, version, {});
        REQUIRE_FALSE(dumped);
        CHECK(dumped.error().code == Errc::unsupported);
      }
    }
  }
}

}  // namespace
}  // namespace tarry::protocol
