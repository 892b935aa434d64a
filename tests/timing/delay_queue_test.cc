// DelayQueue against a sorted set of (level, index).

#include "timing/delay_queue.h"

#include <doctest/doctest.h>

#include <random>
#include <set>
#include <utility>

namespace tarry::timing {
namespace {

TEST_SUITE("delay queue") {
  TEST_CASE("the first bucket is the lowest level's first one, whatever came and went") {
    const std::uint64_t seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    DelayQueue queue;
    std::set<std::pair<unsigned, unsigned>> model;
    for (int i = 0; i < 200'000; ++i) {
      // Rarely many at once: most of the time levels become empty and are used again.
      const unsigned level = static_cast<unsigned>(random() % DelayQueue::level_count);
      const unsigned index = static_cast<unsigned>(random() % 256);
      if (random() % (i % 20'000 < 10'000 ? 3 : 2) == 0) {
        queue.insert(BucketId::of(level, index));
        model.emplace(level, index);
      } else if (!model.empty()) {
        auto some = model.lower_bound({level, index});
        if (some == model.end()) some = model.begin();
        queue.erase(BucketId::of(some->first, some->second));
        model.erase(some);
      }
      REQUIRE(queue.empty() == model.empty());
      if (!model.empty()) {
        REQUIRE(queue.first() == BucketId::of(model.begin()->first, model.begin()->second));
      }
    }
    std::size_t buckets = 0;
    for (unsigned level = 0; level < DelayQueue::level_count; ++level) {
      buckets += queue.buckets_on(level);
    }
    CHECK(buckets == model.size());
  }

  TEST_CASE("each bucket can be the only one, and is gone when it is taken out") {
    for (unsigned level = 0; level < DelayQueue::level_count; ++level) {
      for (unsigned index = 0; index < 256; ++index) {
        DelayQueue queue;
        queue.insert(BucketId::of(level, index));
        REQUIRE(queue.first() == BucketId::of(level, index));
        REQUIRE(queue.buckets_on(level) == 1);
        queue.erase(BucketId::of(level, index));
        REQUIRE(queue.empty());
      }
    }
  }
}

}  // namespace
}  // namespace tarry::timing
