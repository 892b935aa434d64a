#include "cli/timer_bench.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "base/assert.h"
#include "timing/service/timer_service.h"
#include "timing/timing_wheel.h"

namespace tarry::cli {
namespace {

using std::chrono::steady_clock;
using timing::Tick;
using namespace std::chrono_literals;

constexpr Tick hour = 3'600'000;
constexpr std::size_t hot_timers = 256;
// The timeout of a connection, which each request puts off.
constexpr Tick idle_timeout = 10'000;

// Two structures with one face, as in bench/peers.h.  A timer that fires counts for its owner.

class Wheel {
 public:
  static constexpr const char* name = "wheel";

  Wheel(std::size_t count, std::size_t budget)
      : budget_(budget), count_(count), timers_(std::make_unique<OwnedTimer[]>(count)) {}

  void arm(std::size_t i, Tick deadline) { wheel_.schedule(timers_[i], deadline); }
  void disarm(std::size_t i) { timers_[i].cancel(); }
  void move(std::size_t i, Tick deadline) { wheel_.reschedule(timers_[i], deadline); }
  bool step(Tick now) { return wheel_.advance(now, budget_).more; }
  void advance(Tick now) { wheel_.advance(now); }
  bool empty() const { return wheel_.empty(); }
  double bytes() const {
    return static_cast<double>(wheel_.stats().bytes + count_ * sizeof(timing::Timer));
  }

 private:
  struct OwnedTimer final : timing::Timer {
    void on_expired() override { ++count; }
    std::uint64_t count = 0;
  };
  const std::size_t budget_;
  const std::size_t count_;
  timing::TimingWheel wheel_;
  std::unique_ptr<OwnedTimer[]> timers_;
};

class Map {
 public:
  static constexpr const char* name = "std::multimap";

  Map(std::size_t count, std::size_t) : count_(count), slots_(std::make_unique<Slot[]>(count)) {
    // end() marks a slot without a timer: a multimap's end stays valid for its whole life.
    for (std::size_t i = 0; i < count; ++i) slots_[i].place = pending_.end();
  }

  void arm(std::size_t i, Tick deadline) {
    slots_[i].place = pending_.emplace(deadline, &slots_[i]);
  }
  void disarm(std::size_t i) {
    auto& place = slots_[i].place;
    if (place != pending_.end()) pending_.erase(std::exchange(place, pending_.end()));
  }
  void move(std::size_t i, Tick deadline) {
    // The node itself is moved, because a new allocation would be held against the map.
    auto node = pending_.extract(slots_[i].place);
    node.key() = deadline;
    slots_[i].place = pending_.insert(std::move(node));
  }
  bool step(Tick now) {
    advance(now);
    return false;
  }
  void advance(Tick now) {
    while (!pending_.empty() && pending_.begin()->first <= now) {
      Slot& slot = *pending_.begin()->second;
      disarm(static_cast<std::size_t>(&slot - slots_.get()));
      ++slot.count;
    }
  }
  bool empty() const { return pending_.empty(); }
  // A node is colour, three pointers, key and value, and 8 bytes of the allocator's, in 16s.
  double bytes() const { return static_cast<double>(count_ * (64 + sizeof(Slot::place))); }

 private:
  struct Slot {
    std::multimap<Tick, Slot*>::iterator place;
    std::uint64_t count = 0;
  };
  const std::size_t count_;
  std::unique_ptr<Slot[]> slots_;
  std::multimap<Tick, Slot*> pending_;
};

double cpu_ns() {
  timespec time{};
  // CPU time, because other programs share the machine on which people try this.
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

// CPU time of one of `count` that `work` does.
template <class Work>
double ns_of_each(std::size_t count, Work work) {
  const double begin = cpu_ns();
  work();
  return (cpu_ns() - begin) / static_cast<double>(count);
}

class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : random_(seed) {}
  std::vector<std::uint32_t> up_to(std::size_t count, std::uint64_t bound) {
    std::vector<std::uint32_t> numbers(count);
    for (auto& number : numbers) number = static_cast<std::uint32_t>(1 + random_() % bound);
    return numbers;
  }

 private:
  std::mt19937_64 random_;
};

constexpr int parts_of_each = 4;

template <class Structure>
TimerFigures measure(const TimerBenchOptions& options, const std::function<void()>& next_part) {
  TimerFigures figures{.name = Structure::name, .step_us = {}};
  // From the seed, so that both structures have the same deadlines.
  Numbers numbers(options.seed);
  const auto deadlines = numbers.up_to(options.pending, hour);
  const std::size_t some = std::clamp<std::size_t>(options.pending, 10'000, 300'000);
  const auto picks = numbers.up_to(some, options.pending);
  const auto later = numbers.up_to(some, hour);

  const auto stand = [&](Structure& structure) {
    for (std::size_t i = 0; i < options.pending; ++i) structure.arm(i, deadlines[i]);
  };
  next_part();
  {
    // Each part has a new one, so that none works on what the one before has left.
    Structure structure(options.pending + hot_timers, options.budget);
    figures.insert_ns = ns_of_each(options.pending, [&] { stand(structure); });
    figures.bytes = structure.bytes() / static_cast<double>(options.pending + hot_timers);
    figures.hot_pair_ns = ns_of_each(some, [&] {
      Tick now = 0;
      for (std::size_t i = 0; i < some; ++i) {
        // The same few timers take turns, so that their memory is in the caches.
        const std::size_t timer = options.pending + i % hot_timers;
        structure.disarm(timer);
        structure.arm(timer, now + 30'000);
        if (i % 1'000 == 999) structure.advance(++now);
      }
    });
    // Some of those that stand have fired meanwhile; they are armed again like the others.
    figures.cold_pair_ns = ns_of_each(some, [&] {
      for (std::size_t i = 0; i < some; ++i) {
        // They are picked at random among all, so that their memory is in no cache.
        structure.disarm(picks[i] - 1);
        structure.arm(picks[i] - 1, 1'000 + later[i]);
      }
    });
  }
  next_part();
  {
    Structure structure(options.pending, options.budget);
    for (std::size_t i = 0; i < options.pending; ++i) structure.arm(i, idle_timeout + 1'000);
    figures.reschedule_ns = ns_of_each(some, [&] {
      Tick now = 0;
      for (std::size_t i = 0; i < some; ++i) {
        structure.move(picks[i] - 1, now + idle_timeout + 1'000);
        if (i % 1'000 == 999) structure.advance(++now);
      }
    });
  }
  next_part();
  {
    Structure structure(options.pending, options.budget);
    for (std::size_t i = 0; i < options.pending; ++i) structure.arm(i, 1 + deadlines[i] % 10'000);
    figures.expiry_ns = ns_of_each(options.pending, [&] {
      for (Tick now = 1; !structure.empty(); ++now) structure.advance(now);
    });
  }
  next_part();
  {
    Structure structure(options.pending, options.budget);
    stand(structure);
    std::vector<double> steps;
    for (Tick now = 1; now <= hour / 6; ++now) {
      for (bool more = true; more;) {
        const double begin = cpu_ns();
        more = structure.step(now);
        steps.push_back((cpu_ns() - begin) / 1e3);
      }
    }
    std::ranges::sort(steps);
    const auto at = [&](double share) {
      return steps[static_cast<std::size_t>(share * static_cast<double>(steps.size() - 1))];
    };
    figures.step_us = {at(0.5), at(0.99), at(0.9999), steps.back()};
  }
  return figures;
}

// Each thread schedules for 30 s and cancels 1024 pairs later, and reads the clock now and then.
double pairs_per_second(unsigned threads) {
  constexpr auto duration = 500ms;
  constexpr std::size_t window = 1024;
  timing::TimerService service;
  std::atomic<bool> ending = false;
  std::atomic<std::uint64_t> pairs = 0;
  const auto begin = steady_clock::now();
  {
    std::vector<std::jthread> workers;
    for (unsigned i = 0; i < threads; ++i) {
      workers.emplace_back([&] {
        std::vector<timing::TimerId> pending(window);
        auto now = steady_clock::now();
        std::uint64_t done = 0;
        for (; !ending.load(std::memory_order_relaxed); ++done) {
          // A clock read for each pair would cost more than the pair does.
          if (done % 256 == 0) now = steady_clock::now();
          timing::TimerId& timer = pending[done % window];
          // A timer is cancelled long after it was made, as the timeouts of requests are.
          if (done >= window) service.cancel(timer);
          const auto scheduled = service.schedule_at(now + 30s, [] {});
          TARRY_ASSERT(scheduled, "a few thousand timers are within the bound");
          timer = *scheduled;
        }
        pairs += done;
      });
    }
    std::this_thread::sleep_for(duration);
    ending = true;
  }
  return static_cast<double>(pairs) /
         std::chrono::duration<double>(steady_clock::now() - begin).count();
}

}  // namespace

TimerBench measure_timers(const TimerBenchOptions& options,
                          const std::function<void(int part, int parts)>& progress) {
  int part = 0;
  const int parts = 2 * parts_of_each + (options.threads > 0 ? 1 : 0);
  const auto next_part = [&] { progress(part++, parts); };
  TimerBench bench;
  bench.figures.push_back(measure<Wheel>(options, next_part));
  bench.figures.push_back(measure<Map>(options, next_part));
  if (options.threads > 0) {
    next_part();
    bench.pairs_per_second = pairs_per_second(options.threads);
  }
  return bench;
}

}  // namespace tarry::cli
