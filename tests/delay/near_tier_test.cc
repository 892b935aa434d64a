#include "delay/near_tier.h"

#include <map>
#include <random>

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

WallTime moment_at(std::int64_t ms) {
  return from_ms(1'795'000'000'000 + ms);
}

std::vector<Sequence> sequences(const std::vector<NearEntry*>& entries) {
  std::vector<Sequence> out;
  for (const auto* entry : entries) out.push_back(entry->key().sequence);
  std::ranges::sort(out);
  return out;
}

TEST_SUITE("near_tier") {
  TEST_CASE("an entry leaves the wheel for its millisecond and not before") {
    NearTier tier(moment_at(0));
    std::vector<NearEntry*> queued;
    CHECK(tier.insert({moment_at(100), 1}, 0)->state() == NearEntry::State::waiting);
    CHECK(tier.insert({moment_at(0), 2}, 0)->state() == NearEntry::State::queued);
    CHECK(tier.insert({moment_at(100), 1}, 0) == nullptr);
    CHECK(!tier.advance(moment_at(99), 1'000, queued));
    CHECK(queued.empty());
    CHECK(tier.complete_before() == moment_at(100));
    tier.advance(moment_at(100), 1'000, queued);
    CHECK(sequences(queued) == std::vector<Sequence>{1});
    CHECK(!tier.next_due().has_value());
  }

  TEST_CASE(
      "a record that the wheel has already passed is queued at once, and a step back changes "
      "nothing") {
    NearTier tier(moment_at(0));
    std::vector<NearEntry*> queued;
    tier.insert({moment_at(10'000), 1}, 0);
    tier.advance(moment_at(9'000), 1'000, queued);
    tier.advance(moment_at(1'000), 1'000, queued);  // The clock was set back.
    CHECK(tier.complete_before() == moment_at(9'001));
    CHECK(tier.insert({moment_at(2'000), 2}, 0)->state() == NearEntry::State::queued);
    CHECK(tier.insert({moment_at(9'000), 3}, 0)->state() == NearEntry::State::queued);
    CHECK(tier.insert({moment_at(9'001), 4}, 0)->state() == NearEntry::State::waiting);
    CHECK(queued.empty());
    while (tier.advance(moment_at(10'000), 1'000, queued)) {
    }
    CHECK(sequences(queued) == std::vector<Sequence>{1, 4});
  }

  TEST_CASE("with a budget it knows before which time nothing is in the wheel any more") {
    NearTier tier(moment_at(0));
    for (Sequence i = 0; i < 1'000; ++i)
      tier.insert({moment_at(4 + static_cast<std::int64_t>(i % 2)), i}, 0);
    std::vector<NearEntry*> queued;
    std::size_t steps = 0;
    bool more = true;
    while (more) {
      more = tier.advance(moment_at(5), 64, queued);
      const auto is_before = [&](const NearEntry* entry) {
        return entry->key().due < tier.complete_before();
      };
      const auto out = static_cast<std::size_t>(std::ranges::count_if(queued, is_before));
      if (tier.complete_before() == moment_at(5)) CHECK(out == 500);
      if (tier.complete_before() == moment_at(6)) CHECK(out == 1'000);
      CHECK(++steps < 100);
    }
    CHECK(steps > 10);
    CHECK(tier.complete_before() == moment_at(6));
  }

  TEST_CASE("a sweep erases the entries behind the horizon, and no others") {
    NearTier tier(moment_at(0));
    for (Sequence i = 0; i < 20'000; ++i) {
      tier.insert({moment_at(1 + static_cast<std::int64_t>((i * 7'919) % 20'000)), i}, 0);
    }
    const PendingKey horizon{moment_at(15'001), 0};
    while (!tier.sweep(1'000, [&](const NearEntry& entry) { return entry.key() >= horizon; })) {
    }
    CHECK(tier.size() == 15'000);
  }

  TEST_CASE("memory for entries comes in small pieces, and goes in small pieces after a burst") {
    constexpr std::size_t piece = 64u << 10, step = 512;
    constexpr Sequence count = 200'000;
    NearTier tier(moment_at(0));
    const std::size_t empty = tier.bytes();
    std::size_t most = 0;
    for (Sequence i = 0; i < count;) {
      const std::size_t before = tier.bytes();
      for (const Sequence end = i + step; i < end; ++i) tier.insert({moment_at(0), i}, 0);
      most = std::max(most, tier.bytes() - before);
    }
    CHECK(most <= 2 * piece);  // A slab of entries, and a segment of the index.

    const std::size_t all = tier.bytes();
    CHECK(all > count * sizeof(NearEntry));
    for (Sequence i = 0; NearEntry* const entry = tier.find(i); ++i) {
      CHECK(!tier.has_ended());
      tier.erase(*entry);
    }
    CHECK(tier.size() == 0);
    CHECK(tier.bytes() >= all);  // The last one that went has freed nothing.
    CHECK(tier.has_ended());
    tier.insert({moment_at(100), 1}, 0);  // Another one comes meanwhile.
    std::size_t left = tier.bytes(), calls = 0;
    for (bool more = true; more; ++calls) {
      more = tier.free_ended(4);
      CHECK(left - tier.bytes() <= 4 * piece);
      left = tier.bytes();
    }
    CHECK(calls >= all / (4 * piece) - 1);
    CHECK(left <= empty + 8 * piece);  // A slab, and what the wheel needs for one timer.
    CHECK(tier.find(1) != nullptr);
    std::vector<NearEntry*> queued;
    tier.advance(moment_at(100), 1'000, queued);
    CHECK(sequences(queued) == std::vector<Sequence>{1});
  }

  TEST_CASE("a visit sees each entry that is not on its way once, whatever its steps") {
    NearTier tier(moment_at(0));
    for (Sequence i = 0; i < 3'000; ++i)
      tier.insert({moment_at(static_cast<std::int64_t>(i % 7)), i}, 0);
    tier.set_in_flight(*tier.find(7));
    std::vector<Sequence> seen;
    std::size_t cursor = 0;
    while (tier.visit(cursor, 100,
                      [&](const NearEntry& entry) { seen.push_back(entry.key().sequence); })) {
    }
    std::ranges::sort(seen);
    CHECK(seen.size() == 2'999);
    CHECK(std::ranges::adjacent_find(seen) == seen.end());
    CHECK(!std::ranges::binary_search(seen, 7u));
  }

  TEST_CASE("it agrees with a simple model over random inserts, erasures and times") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    NearTier tier(moment_at(0));
    std::map<Sequence, PendingKey> model;  // The records that wait.
    std::int64_t now = 0, latest = 0;
    Sequence next = 1;
    for (int i = 0; i < 20'000; ++i) {
      switch (random() % 8) {
        case 0:
        case 1:
        case 2:
        case 3: {
          const PendingKey key{moment_at(now + 1 + static_cast<std::int64_t>(random() % 2'000)),
                               next++};
          NearEntry* const entry = tier.insert(key, 0);
          CHECK((entry->state() == NearEntry::State::queued) == (key.due <= moment_at(latest)));
          if (key.due <= moment_at(latest)) {
            tier.erase(*entry);
          } else {
            model[key.sequence] = key;
          }
          break;
        }
        case 4:
          if (!model.empty()) {
            const auto chosen = model.lower_bound(random() % next);
            if (chosen == model.end()) break;
            NearEntry* const entry = tier.find(chosen->first);
            REQUIRE(entry != nullptr);
            tier.erase(*entry);
            CHECK(tier.find(chosen->first) == nullptr);
            model.erase(chosen);
          }
          break;
        case 5:
          now -= static_cast<std::int64_t>(random() % 300);  // The clock is set back.
          break;
        default:
          now += static_cast<std::int64_t>(random() % 100);
          latest = std::max(latest, now);
          std::vector<NearEntry*> queued;
          while (tier.advance(moment_at(now), 1 + random() % 50, queued)) {
          }
          std::vector<Sequence> expected;
          for (const auto& [sequence, key] : model) {
            if (key.due <= moment_at(latest)) expected.push_back(sequence);
          }
          CHECK(sequences(queued) == expected);
          for (NearEntry* entry : queued) {
            model.erase(entry->key().sequence);
            tier.erase(*entry);
          }
      }
      CHECK(tier.size() == model.size());
    }
  }
}

}  // namespace
}  // namespace tarry::delay
