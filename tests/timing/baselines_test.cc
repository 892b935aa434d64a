// The same test for our wheel and for all that it is measured against: who is compared is right.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "bench/peers.h"

namespace tarry::peers {
namespace {

// The timers that have fired, in order; and what firing does besides.
struct Log {
  std::vector<std::size_t> fired;
  std::function<void(std::size_t)> then = [](std::size_t) {};

  std::vector<std::size_t> take() { return std::exchange(fired, {}); }
};

struct Noted {
  Log* log = nullptr;
  std::size_t id = 0;

  void fire() {
    log->fired.push_back(id);
    log->then(id);
  }
};

template <class Peer>
struct Bench : Peer {
  explicit Bench(std::size_t count) : Peer(count) {
    for (std::size_t i = 0; i < count; ++i) this->user(i) = {&log, i};
  }
  Log log;
};

using Ids = std::vector<std::size_t>;

#define TARRY_PEERS                                                                 \
  Tarry<Noted>, KeyedRound<Noted>, PooledHeap<Noted>, Hashed<Noted>, Levels<Noted>, \
      ThreeLevels<Noted>, Multimap<Noted>, Kafka<Noted>

TEST_SUITE_BEGIN("baselines");

TEST_CASE_TEMPLATE("each fires at its tick, in no other, at the edges of buckets and levels", Peer,
                   TARRY_PEERS) {
  std::vector<Tick> deadlines;
  for (const Tick edge : {1, 20, 256, 400, 512, 8'000, 65'536, 131'072, 160'000}) {
    for (const Tick offset : {0, 1, 2}) deadlines.push_back(edge + offset - (edge > 1 ? 1 : 0));
  }
  for (const Tick start : {Tick{0}, Tick{255}, Tick{65'530}}) {
    CAPTURE(start);
    Bench<Peer> peer(deadlines.size());
    peer.arm(0, start);  // Moves the time of those that would not walk over nothing.
    peer.advance(start);
    peer.advance(start + 1);
    REQUIRE(peer.log.take() == Ids{0});
    std::map<Tick, std::set<std::size_t>> expected;
    for (std::size_t i = 0; i < deadlines.size(); ++i) {
      peer.arm(i, start + 1 + deadlines[i]);
      expected[start + 1 + deadlines[i]].insert(i);
    }
    CHECK(peer.size() == deadlines.size());
    for (Tick now = start + 2; now <= start + 1 + deadlines.back(); ++now) {
      peer.advance(now);
      if (!expected.contains(now) && peer.log.fired.empty()) continue;
      const auto fired = peer.log.take();
      CAPTURE(now);
      REQUIRE(std::set(fired.begin(), fired.end()) == expected[now]);
    }
    CHECK(peer.size() == 0);
  }
}

TEST_CASE_TEMPLATE("a jump fires all that it passes, in the order of their deadlines", Peer,
                   TARRY_PEERS) {
  std::mt19937_64 random(7);
  constexpr std::size_t count = 2'000;
  Bench<Peer> peer(count);
  std::vector<Tick> deadlines(count);
  for (std::size_t i = 0; i < count; ++i) {
    deadlines[i] = 1 + random() % 300'000;
    peer.arm(i, deadlines[i]);
  }
  peer.settle();
  peer.advance(200'000);
  const auto fired = peer.log.take();
  CHECK(std::ranges::is_sorted(fired, {}, [&](std::size_t i) { return deadlines[i]; }));
  CHECK(fired.size() == static_cast<std::size_t>(std::ranges::count_if(
                            deadlines, [](Tick deadline) { return deadline <= 200'000; })));
  peer.advance(300'000);
  CHECK(peer.log.fired.size() + fired.size() == count);
}

TEST_CASE_TEMPLATE(
    "a deadline that has passed fires at the next tick, and so does one of a callback", Peer,
    TARRY_PEERS) {
  Bench<Peer> peer(3);
  peer.arm(0, 1'000);
  peer.advance(1'000);
  CHECK(peer.log.take() == Ids{0});
  peer.arm(1, 0);
  peer.log.then = [&](std::size_t id) {
    if (id == 1) peer.arm(2, 999);
  };
  peer.advance(1'001);
  peer.advance(1'002);
  CHECK(peer.log.take() == Ids{1, 2});
}

TEST_CASE_TEMPLATE("a cancelled timer does not fire, and cancel says whether it was pending", Peer,
                   TARRY_PEERS) {
  if constexpr (Peer::can_cancel) {
    Bench<Peer> peer(4);
    CHECK_FALSE(peer.disarm(0));
    peer.arm(0, 10);
    peer.arm(1, 10);
    peer.arm(2, 100'000);
    CHECK(peer.disarm(0));
    CHECK_FALSE(peer.disarm(0));
    peer.advance(5);
    peer.arm(0, 20);
    CHECK(peer.disarm(2));
    peer.advance(200'000);
    CHECK(peer.log.take() == Ids{1, 0});
    CHECK_FALSE(peer.disarm(1));
    CHECK(peer.size() == 0);
  }
}

TEST_CASE_TEMPLATE("a callback may cancel those that are due with it, and arm itself again", Peer,
                   TARRY_PEERS) {
  if constexpr (Peer::can_cancel) {
    Bench<Peer> peer(3);
    for (std::size_t i = 0; i < 3; ++i) peer.arm(i, 7);
    bool is_first = true;
    peer.log.then = [&](std::size_t id) {
      if (!std::exchange(is_first, false)) return;
      for (std::size_t i = 0; i < 3; ++i) {
        if (i != id) CHECK(peer.disarm(i));
      }
      peer.arm(id, 9);
    };
    peer.advance(7);
    REQUIRE(peer.log.fired.size() == 1);
    const auto id = peer.log.take().front();
    peer.advance(8);
    CHECK(peer.log.fired.empty());
    peer.advance(100);
    CHECK(peer.log.take() == Ids{id});
  }
}

TEST_CASE_TEMPLATE("a deadline that is moved, either way, is the only one that counts", Peer,
                   TARRY_PEERS) {
  if constexpr (Peer::can_move) {
    Bench<Peer> peer(2);
    peer.arm(0, 500);
    peer.arm(1, 70'000);
    peer.move(0, 90'000);
    peer.move(1, 300);
    peer.advance(299);
    CHECK(peer.log.fired.empty());
    peer.advance(300);
    CHECK(peer.log.take() == Ids{1});
    peer.advance(89'999);
    CHECK(peer.log.fired.empty());
    peer.advance(90'000);
    CHECK(peer.log.take() == Ids{0});
  }
}

// Random operations beside a sorted map; what fires in one advance() has to be the same set.
TEST_CASE_TEMPLATE("random operations have the outcome of a sorted map", Peer, TARRY_PEERS) {
  const std::uint64_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr std::size_t count = 300;
  Bench<Peer> peer(count);
  std::multimap<Tick, std::size_t> model;
  std::array<Tick, count> deadlines{};  // 0: not pending.
  Tick now = 0;
  const auto forget = [&](std::size_t i) {
    const auto [first, last] = model.equal_range(std::exchange(deadlines[i], 0));
    model.erase(std::find_if(first, last, [&](const auto& entry) { return entry.second == i; }));
  };
  const auto some_deadline = [&] {
    const Tick spans[] = {4, 300, 5'000, 200'000};
    return now + 1 + random() % spans[random() % 4];
  };
  for (int step = 0; step < 30'000; ++step) {
    const std::size_t i = random() % count;
    switch (random() % 4) {
      case 0:
      case 1:
        if (deadlines[i] == 0) {
          deadlines[i] = some_deadline();
          model.emplace(deadlines[i], i);
          peer.arm(i, deadlines[i]);
        } else if constexpr (Peer::can_move) {
          forget(i);
          deadlines[i] = some_deadline();
          model.emplace(deadlines[i], i);
          peer.move(i, deadlines[i]);
        }
        break;
      case 2:
        if constexpr (Peer::can_cancel) {
          const bool pending = deadlines[i] != 0;
          REQUIRE(peer.disarm(i) == pending);
          if (pending) forget(i);
        }
        break;
      default: {
        const Tick jumps[] = {1, 1, 40, 2'000};
        now += 1 + random() % jumps[random() % 4];
        peer.advance(now);
        Ids expected;
        while (!model.empty() && model.begin()->first <= now) {
          expected.push_back(model.begin()->second);
          deadlines[model.begin()->second] = 0;
          model.erase(model.begin());
        }
        auto fired = peer.log.take();
        std::ranges::sort(fired);
        std::ranges::sort(expected);
        REQUIRE(fired == expected);
        REQUIRE(peer.size() == model.size());
      }
    }
  }
}

// Features that only one of them has.

Callback count_into(int& counter) {
  return {[](void* argument) { ++*static_cast<int*>(argument); }, &counter};
}

TEST_CASE("keyed rounds: the same key again replaces the pending timer") {
  baselines::KeyedRoundWheel wheel(8);
  int first = 0, second = 0;
  wheel.add(42, 5, count_into(first));
  wheel.add(42, 100, count_into(second));
  CHECK(wheel.size() == 1);
  wheel.advance(99);
  CHECK(first + second == 0);
  wheel.advance(100);
  CHECK(second == 1);
  CHECK_FALSE(wheel.remove(42));
}

TEST_CASE(
    "pooled heap: a node that has fired is armed again by set, until its owner gives it back") {
  baselines::PooledHeap heap;
  int fired = 0;
  auto* const node = heap.add(5, count_into(fired));
  heap.advance(5);
  CHECK(fired == 1);
  heap.set(node, 9);
  CHECK(heap.next_due() == 9);
  heap.advance(9);
  CHECK(fired == 2);
  CHECK_FALSE(heap.del(node));
  CHECK(heap.add(1, count_into(fired)) == node);
}

TEST_CASE("hashed rounds: timers above the limit are refused, and room comes back") {
  baselines::HashedWheel wheel(16, 2);
  int fired = 0;
  auto* const first = wheel.new_timeout(1, count_into(fired));
  auto* const second = wheel.new_timeout(2, count_into(fired));
  CHECK(wheel.new_timeout(3, count_into(fired)) == nullptr);
  CHECK(wheel.cancel(first));
  auto* const third = wheel.new_timeout(3, count_into(fired));
  REQUIRE(third != nullptr);
  wheel.advance(10);
  CHECK(fired == 2);
  CHECK_FALSE(wheel.cancel(second));
  wheel.release(third);
}

TEST_CASE(
    "hashed rounds: stop gives back the timers that did not run, wherever they were, and refuses "
    "new ones") {
  baselines::HashedWheel wheel(16);
  int fired = 0;
  std::vector<baselines::HashedWheel::Timeout*> timeouts;
  for (Tick deadline = 1; deadline <= 40; ++deadline) {
    timeouts.push_back(wheel.new_timeout(deadline, count_into(fired)));
    if (deadline == 30) wheel.advance(10);
  }
  wheel.cancel(timeouts[20]);
  wheel.cancel(timeouts[35]);
  CHECK(wheel.stop().size() == 28);
  CHECK(fired == 10);
  CHECK(wheel.new_timeout(50, count_into(fired)) == nullptr);
  for (std::size_t i = 0; i < timeouts.size(); ++i) {
    if (i != 20 && i != 35) wheel.release(timeouts[i]);
  }
}

TEST_CASE("hashed rounds: timers that threads hand over and cancel run once or not at all") {
  baselines::HashedWheel wheel(64);
  constexpr int each = 20'000;
  std::atomic<int> fired = 0, cancelled = 0, working = 2;
  const Callback count{[](void* argument) { ++*static_cast<std::atomic<int>*>(argument); }, &fired};
  const auto produce = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < each; ++i) {
      auto* const timeout = wheel.new_timeout(random() % 1'000, count);
      if (timeout == nullptr) continue;  // Refused; then the count below is wrong.
      if (random() % 2 == 0) {
        cancelled += wheel.cancel(timeout) ? 1 : 0;
      } else {
        wheel.release(timeout);
      }
    }
    --working;
  };
  std::thread first(produce, 1U), second(produce, 2U);
  for (Tick now = 0; working > 0; ++now) wheel.advance(now);
  first.join();
  second.join();
  wheel.advance(1'000'000'000);
  CHECK(fired + cancelled == 2 * each);
  CHECK(wheel.pending() == 0);
}

TEST_CASE(
    "level ticking: levels are made when a deadline needs them, and way up and down is counted") {
  baselines::LevelWheel wheel(16);
  int fired = 0;
  wheel.add(15, count_into(fired));
  CHECK(wheel.levels() == 1);
  wheel.add(16, count_into(fired));
  CHECK(wheel.levels() == 2);
  wheel.add(~Tick{0}, count_into(fired));
  CHECK(wheel.levels() == 16);
  CHECK(wheel.upgrades() == 16);
  wheel.advance(16);
  CHECK(fired == 2);
  CHECK(wheel.downgrades() == 1);
}

TEST_CASE("3 x 256: a periodic task does not drift, and a deadline out of reach is refused") {
  baselines::ThreeLevelWheel wheel;
  int fired = 0;
  CHECK(wheel.add(100, count_into(fired), 1'000));
  CHECK_FALSE(wheel.add(baselines::ThreeLevelWheel::reach, count_into(fired)));
  CHECK(wheel.add(baselines::ThreeLevelWheel::reach - 1, count_into(fired)));
  wheel.advance(99);
  CHECK(fired == 0);
  wheel.advance(100);
  CHECK(fired == 1);
  wheel.advance(1'000'099);
  CHECK(fired == 1'000);
  wheel.advance(1'000'100);
  CHECK(fired == 1'001);
}

TEST_SUITE_END();

}  // namespace
}  // namespace tarry::peers
