#include "delay/near_tier.h"

#include <map>
#include <random>

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

WallTime at(std::int64_t ms) {
  return from_ms(1'795'000'000'000 + ms);
}

std::vector<Sequence> sequences(const std::vector<NearEntry*>& entries) {
  std::vector<Sequence> out;
  for (const auto* entry : entries) out.push_back(entry->key().sequence);
  std::ranges::sort(out);
  return out;
}

TEST_SUITE("near_tier") {
  TEST_CASE("an entry becomes ready at its millisecond and not before") {
    NearTier tier(at(0));
    std::vector<NearEntry*> ready;
    CHECK(tier.insert({at(100), 1}, 0, at(0))->state() == NearEntry::State::waiting);
    CHECK(tier.insert({at(0), 2}, 0, at(0))->state() == NearEntry::State::ready);
    CHECK(tier.insert({at(100), 1}, 0, at(0)) == nullptr);
    CHECK(!tier.advance(at(99), 1'000, ready));
    CHECK(ready.empty());
    tier.advance(at(100), 1'000, ready);
    CHECK(sequences(ready) == std::vector<Sequence>{1});
    CHECK(!tier.next_work().has_value());
  }

  TEST_CASE("after a step back what comes out of the wheel waits for its time") {
    NearTier tier(at(0));
    std::vector<NearEntry*> ready;
    tier.insert({at(10'000), 1}, 0, at(0));
    tier.advance(at(9'000), 1'000, ready);
    // The clock says 1 000 again: what is due until 9 000 cannot go into the wheel any more.
    CHECK(tier.insert({at(2'000), 2}, 0, at(1'000))->state() == NearEntry::State::early);
    CHECK(tier.insert({at(1'500), 3}, 0, at(1'000))->state() == NearEntry::State::early);
    CHECK(tier.next_work() == at(1'500));
    tier.advance(at(1'499), 1'000, ready);
    CHECK(ready.empty());
    tier.advance(at(2'000), 1'000, ready);
    CHECK(sequences(ready) == std::vector<Sequence>{2, 3});
    ready.clear();
    tier.advance(at(9'999), 1'000, ready);
    CHECK(ready.empty());
    tier.advance(at(10'000), 1'000, ready);
    CHECK(sequences(ready) == std::vector<Sequence>{1});
  }

  TEST_CASE("with a budget it says that it is behind until all that is due is ready") {
    NearTier tier(at(0));
    for (Sequence i = 0; i < 1'000; ++i) tier.insert({at(5), i}, 0, at(0));
    std::vector<NearEntry*> ready;
    std::size_t steps = 0;
    while (tier.advance(at(5), 64, ready)) {
      CHECK(tier.is_behind());
      CHECK(++steps < 100);
    }
    CHECK(!tier.is_behind());
    CHECK(ready.size() == 1'000);
  }

  TEST_CASE("a sweep erases what is behind the horizon, and nothing else") {
    NearTier tier(at(0));
    for (Sequence i = 0; i < 20'000; ++i) {
      tier.insert({at(1 + static_cast<std::int64_t>((i * 7'919) % 20'000)), i}, 0, at(0));
    }
    const PendingKey horizon{at(15'001), 0};
    while (!tier.sweep(1'000, [&](const NearEntry& entry) { return entry.key() >= horizon; })) {
    }
    CHECK(tier.size() == 15'000);
  }

  TEST_CASE("it agrees with a simple model over random inserts, erasures and times") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    NearTier tier(at(0));
    std::map<Sequence, PendingKey> model;  // What waits.
    std::int64_t now = 0;
    Sequence next = 1;
    for (int i = 0; i < 20'000; ++i) {
      switch (random() % 8) {
        case 0:
        case 1:
        case 2:
        case 3: {
          const PendingKey key{at(now + 1 + static_cast<std::int64_t>(random() % 2'000)), next++};
          tier.insert(key, 0, at(now));
          model[key.sequence] = key;
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
          std::vector<NearEntry*> ready;
          while (tier.advance(at(now), 1 + random() % 50, ready)) {
          }
          std::vector<Sequence> expected;
          for (const auto& [sequence, key] : model) {
            if (key.due <= at(now)) expected.push_back(sequence);
          }
          CHECK(sequences(ready) == expected);
          for (NearEntry* entry : ready) {
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
