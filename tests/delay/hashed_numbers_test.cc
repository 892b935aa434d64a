#include "delay/hashed_numbers.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace tarry::delay {
namespace {

// A list with a table, as its owners have it.  The test chooses each key's hash.
struct NumberedKeys {
  HashedNumbers numbers;
  std::vector<std::string> keys;

  const HashedNumbers::Slot& slot(HashedNumbers::Hash hash, const std::string& key) const {
    return numbers.slot(hash, [&](HashedNumbers::Number number) { return keys[number] == key; });
  }
  // False: the key was there.
  bool add(HashedNumbers::Hash hash, const std::string& key) {
    numbers.make_room(keys.size());
    auto& slot =
        numbers.slot(hash, [&](HashedNumbers::Number number) { return keys[number] == key; });
    if (!slot.is_empty()) return false;
    slot.take(hash, static_cast<HashedNumbers::Number>(keys.size()));
    keys.push_back(key);
    return true;
  }
};

TEST_SUITE("hashed numbers") {
  TEST_CASE("each key has one number, however the table grows and however few hashes there are") {
    for (const std::uint32_t hashes : {1u, 7u, 300u, 1u << 30}) {
      CAPTURE(hashes);
      std::mt19937_64 random(hashes);
      NumberedKeys table;
      std::map<std::string, HashedNumbers::Number> model;
      // The highest hashes, so that searches go on from the last slot at the first one.
      const auto hash_of = [&](std::uint64_t key) {
        return 0xffff'ffffu - static_cast<HashedNumbers::Hash>(key * 0x9e3779b9u % hashes);
      };
      for (int i = 0; i < 1'000; ++i) {
        const std::uint64_t key = random() % 600;
        const auto [known, is_new] = model.try_emplace(
            std::to_string(key), static_cast<HashedNumbers::Number>(model.size()));
        REQUIRE(table.add(hash_of(key), known->first) == is_new);
      }
      for (std::uint64_t key = 0; key < 1'200; ++key) {
        const auto known = model.find(std::to_string(key));
        const auto& slot = table.slot(hash_of(key), std::to_string(key));
        REQUIRE(slot.is_empty() == (known == model.end()));
        if (known != model.end()) REQUIRE(slot.number() == known->second);
      }
    }
  }

  TEST_CASE("a third of the slots stays empty, and the table grows no sooner than it must") {
    NumberedKeys table;
    CHECK(table.numbers.slots() == 0);
    CHECK(table.numbers.memory_bytes() == 0);
    CHECK(table.numbers.longest_search() == 0);
    for (std::size_t count = 1; count <= 5'000; ++count) {
      REQUIRE(
          table.add(static_cast<HashedNumbers::Hash>(count * 0x9e3779b9u), std::to_string(count)));
      REQUIRE(count * 3 <= table.numbers.slots() * 2);
      if (count > 10) REQUIRE(table.numbers.slots() < 3 * count);
    }
  }

  TEST_CASE("a table that was reserved for so many numbers has twice the slots and need not grow") {
    HashedNumbers numbers;
    numbers.reserve(9);
    CHECK(numbers.slots() == 32);
    for (HashedNumbers::Number number = 0; number < 9; ++number) {
      auto& slot = numbers.slot(31, [](HashedNumbers::Number) { return false; });
      REQUIRE(slot.is_empty());
      slot.take(31, number);
    }
    // The run begins in the last slot.
    CHECK(numbers.longest_search() == 9);
    CHECK(numbers.slots() == 32);
  }
}

}  // namespace
}  // namespace tarry::delay
