#include "delay/near_index.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <vector>

#include "delay/near_tier.h"
#include "tests/given.h"

namespace tarry::delay {
namespace {

TEST_SUITE("near index") {
  TEST_CASE("an insert makes one more segment at most, however many entries there are") {
    NearIndex index;
    NearEntry entry;
    std::size_t most = 0;
    constexpr Sequence count = 400'000;
    for (Sequence i = 1; i <= count; ++i) {
      const std::size_t before = index.bytes();
      index.insert(i, &entry);
      most = std::max(most, index.bytes() - before);
    }
    CHECK(most == NearIndex::segment_bytes);
    CHECK(index.size() == count);
    CHECK(index.bytes() <= count * NearIndex::bytes_per_entry + NearIndex::segment_bytes);
  }

  TEST_CASE("it agrees with a simple model, whatever the numbers have in common") {
    for (const Sequence stride : {1u, 4u, 64u, 4'096u, 1'000'003u}) {
      CAPTURE(stride);
      SeededRandom random(stride);
      NearIndex index;
      std::vector<NearEntry> entries(7);
      std::unordered_map<Sequence, NearEntry*> model;
      const auto agrees = [&](Sequence sequence) {
        const auto known = model.find(sequence);
        return index.find(sequence) == (known == model.end() ? nullptr : known->second);
      };
      // It grows, shrinks and grows again.
      for (int i = 0; i < 60'000; ++i) {
        const bool grows = i % 20'000 < 14'000;
        const Sequence sequence = 1 + random.below(20'000) * stride;
        NearEntry* const entry = &entries[random.below(entries.size())];
        if (random.below(10) < (grows ? 8u : 1u)) {
          index.insert(sequence, entry);
          model[sequence] = entry;
        } else if (const auto known = model.find(sequence); known != model.end()) {
          index.erase(sequence,
                      entry);  // Nothing, unless it is the one that the number stands for.
          if (known->second == entry) model.erase(known);
          REQUIRE(agrees(sequence));
          index.erase(sequence, index.find(sequence));
          model.erase(sequence);
        }
        REQUIRE(agrees(sequence));
        REQUIRE(index.size() == model.size());
      }
      for (Sequence i = 0; i <= 20'000; ++i) REQUIRE(agrees(1 + i * stride));
    }
  }

  TEST_CASE("when all of its segments are taken, an empty one is left, as at first") {
    NearIndex index;
    NearEntry entry;
    for (Sequence i = 1; i <= 10'000; ++i) index.insert(i, &entry);
    const auto segments = index.take_all();
    CHECK(segments.size() > 1);
    CHECK(index.size() == 0);
    CHECK(index.bytes() == NearIndex().bytes());
    CHECK(index.find(1) == nullptr);
    index.insert(1, &entry);
    CHECK(index.find(1) == &entry);
  }
}

}  // namespace
}  // namespace tarry::delay
