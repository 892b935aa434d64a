// BucketStore over power cuts: RocksDB's files lose what was not synced, at any moment.
//
// TARRY_SEED repeats a run, TARRY_RUNS makes more of them.

#include <doctest/doctest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scratch.h"
#include "storage/bucket_store.h"
#include "tests/lossy_files.h"

namespace tarry::storage {
namespace {

const Bucket cut_hour = bucket_of(BucketLevel::hour, from_ms(1'795'000'000'000));

using PendingSet = std::set<Sequence>;

struct PowerCuts {
  explicit PowerCuts(std::uint64_t seed, bool forgets_syncs)
      : random(seed), files(std::make_shared<LossyFiles>(scratch.path("kept"))), on(files) {
    files->forgets_syncs = forgets_syncs;
    BucketLimits limits;
    limits.step_bytes = 4'000;
    store = std::move(BucketStore::make(scratch.path("db"), limits).value());
    REQUIRE(store->flush().has_value());
    promised = store->generation();
    states[promised] = {};
  }

  HomeWrite change() {
    HomeWrite out;
    out.home = cut_hour;
    Chunk chunk(cut_hour);
    for (auto count = 1 + random.below(20); count > 0; --count) {
      PendingView view;
      view.key = {cut_hour.start + std::chrono::milliseconds(random.below(3'600'000)), next++};
      view.first = view.key.due;
      view.partition.topic = test_topic(1);
      const std::string body(random.below(2'000), 'b');
      view.record = as_bytes(body);
      chunk.append(view);
      now.insert(view.key.sequence);
    }
    out.parts.push_back({std::make_shared<const Chunk>(std::move(chunk)), {}});
    for (auto at = now.begin(); at != now.end();) {
      // A mark is for older chunks: of what this write adds nothing is gone.
      if (random.below(12) != 0 || *at + 30 >= next) {
        ++at;
        continue;
      }
      out.gone.push_back(*at);
      at = now.erase(at);
    }
    out.place = {lsn += 10, 0, 0};
    return out;
  }
  // False: the machine has died.
  bool act() {
    switch (random.below(4)) {
      case 0: {
        states[store->generation() + 1] = now;
        if (!store->flush()) return false;
        promised = store->generation();
        return true;
      }
      case 1:
        return store->next_piece({0, 1}, cut_hour, {cut_hour.start, 0}, 10'000, {}).has_value();
      case 2:
        return store->sweep({0, 1}, cut_hour, {}, {}, 1'000'000).has_value();
      default:
        return store->write({0, 1}, change()).has_value();
    }
  }
  PendingSet listed() {
    PendingSet out;
    PendingQuery query;
    query.limit = 1'000;
    for (;;) {
      const auto page = store->page(query);
      REQUIRE(page.has_value());
      for (const auto& record : page->records) out.insert(record.key.sequence);
      if (!page->next) return out;
      query.after = page->next;
    }
  }
  // A life and its end; false: a rule is broken.
  bool live() {
    files->die_after(static_cast<std::int64_t>(random.below(300)));
    for (int i = 0; i < 60 && act(); ++i) {
    }
    files->die_after(0);
    store.reset();
    files->cut_power(random);
    files->live();
    auto opened = BucketStore::open(scratch.path("db"), {.step_bytes = 4'000});
    if (!opened) return false;
    store = std::move(*opened);
    const auto found = store->generation();
    if (found < promised || !states.contains(found) || listed() != states.at(found)) return false;
    now = states.at(found);
    promised = found;
    states = {{found, now}};
    return true;
  }

  SeededRandom random;
  ScratchDirectory scratch;
  std::shared_ptr<LossyFiles> files;
  OnLossyFiles on;
  std::unique_ptr<BucketStore> store;
  Sequence next = 1;
  std::uint64_t lsn = 100;
  PendingSet now;
  std::map<std::uint64_t, PendingSet> states;  // By the number of the flush that made it durable.
  std::uint64_t promised = 0;                  // The last flush that was said to be durable.
};

TEST_SUITE("power cuts") {
  TEST_CASE(
      "after a power cut at any moment a store is that of its last flush, or of the next one") {
    const char* given = std::getenv("TARRY_SEED");
    const char* runs = std::getenv("TARRY_RUNS");
    std::uint64_t seed = given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    std::size_t cut = 0;
    // In every second run nothing is lost: there are as many more as it takes.
    int left = runs ? std::atoi(runs) : given ? 1 : 3;
    for (; left > 0 || (!given && cut == 0 && left > -40); --left, ++seed) {
      INFO("TARRY_SEED=", seed);
      PowerCuts run(seed, false);
      for (int life = 0; life < 10; ++life) REQUIRE(run.live());
      cut += run.files->cut();
    }
    if (!given) CHECK(cut > 0);
  }

  TEST_CASE("a disk that forgets its syncs is caught") {
    int broken = 0;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      PowerCuts run(seed, true);
      for (int life = 0; life < 5; ++life) {
        if (run.live()) continue;
        ++broken;
        break;
      }
    }
    CHECK(broken == 4);
  }
}

}  // namespace
}  // namespace tarry::storage
