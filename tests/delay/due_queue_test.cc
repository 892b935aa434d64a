#include "delay/due_queue.h"

#include <random>
#include <set>

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

WallTime at(std::int64_t ms) {
  return from_ms(1'795'000'000'000 + ms);
}

TEST_SUITE("due_queue") {
  TEST_CASE("the smallest key is delivered first, whether keys came alone or in sorted runs") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    NearEntry entry;
    DueQueue queue;
    std::set<PendingKey> model;
    Sequence next = 1;
    std::vector<DueQueue::Item> run;
    const auto add = [&](int base) {
      run.push_back({{at(base + static_cast<int>(random() % 30)), next++}, &entry});
      model.insert(run.back().key);
    };
    for (int i = 0; i < 400; ++i) {
      const bool fills = i % 100 < 60;
      run.clear();
      for (auto left = random() % (fills ? 200 : 20); left > 0; --left) add(i);
      // The wheel gives them last first.
      std::ranges::sort(run, {}, &DueQueue::Item::key);
      queue.push_sorted(run);
      run.clear();
      for (auto left = random() % (fills ? 150 : 50); left > 0; --left) add(i);
      for (const auto& item : run) queue.push(item);
      for (auto left = random() % (fills ? 100 : 400); left > 0 && !model.empty(); --left) {
        REQUIRE(queue.front().key == *model.begin());
        queue.pop();
        model.erase(model.begin());
      }
      REQUIRE(queue.size() == model.size());
      CHECK(queue.empty() == model.empty());
      const auto due = static_cast<std::size_t>(
          std::ranges::distance(model.begin(), model.lower_bound(PendingKey{at(i + 10), 0})));
      CHECK(queue.due_by(at(i + 9)) == due);
      CHECK((queue.due_by(at(i + 9), 64) >= 64) == (due >= 64));
    }
  }
}

}  // namespace
}  // namespace tarry::delay
