// DriverAlarm under every order of two threads that schedule and a driver that goes to sleep: one
// real thread, three contexts that take turns wherever another thread may come in between, and a
// random choice at each of these places.  A try takes microseconds, where one with real threads and
// a real sleep takes a hundred; so there are a million.  (With real threads: in
// timer_service_threads_test.cc.)

#include "timing/service/driver_alarm.h"

#include <doctest/doctest.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace tarry::timing {
namespace {

// ThreadSanitizer does not follow contexts, and would have nothing to say about one thread.
#ifndef __SANITIZE_THREAD__

constexpr Tick present = 10;  // A deadline up to here is due.
constexpr Tick never = Earliest<>::never;

class Interleaving {
 public:
  static constexpr int driver = 0;
  static constexpr int contexts = 3;

  explicit Interleaving(unsigned seed) : random_(seed) { current_ = this; }

  static Interleaving& current() { return *current_; }
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }  // Small ones alone.

  void start(int context, void (*body)()) {
    ucontext_t& made = contexts_[static_cast<std::size_t>(context)];
    ::getcontext(&made);
    std::vector<char>& stack = stacks_[static_cast<std::size_t>(context)];
    stack.resize(256 << 10);
    made.uc_stack.ss_sp = stack.data();
    made.uc_stack.ss_size = stack.size();
    made.uc_link = nullptr;
    ::makecontext(&made, body, 0);
  }

  // Until all have nothing more to do.
  void run() {
    rests_.fill(false);
    go_on_with(next());
  }

  // In a context: perhaps another one comes in between.
  void between() {
    if (below(3) == 0) go_on_with(next());
  }
  // It has nothing more to do, for now or in this try; returns when it may have.
  void rest() {
    rests_[static_cast<std::size_t>(running_)] = true;
    go_on_with(next());
  }
  void wake(int context) { rests_[static_cast<std::size_t>(context)] = false; }
  // It cannot go on before another one has.
  void let_others() { go_on_with(next()); }

 private:
  static constexpr int outside = contexts;

  int next() {
    std::array<int, contexts> ready{};
    int count = 0;
    for (int i = 0; i < contexts; ++i) {
      if (!rests_[static_cast<std::size_t>(i)]) ready[static_cast<std::size_t>(count++)] = i;
    }
    return count == 0 ? outside
                      : ready[static_cast<std::size_t>(below(static_cast<std::uint64_t>(count)))];
  }
  void go_on_with(int context) {
    if (context == running_) return;
    ucontext_t& from = contexts_[static_cast<std::size_t>(running_)];
    running_ = context;
    ::swapcontext(&from, &contexts_[static_cast<std::size_t>(context)]);
  }

  static inline Interleaving* current_ = nullptr;
  std::minstd_rand random_;
  std::array<ucontext_t, contexts + 1> contexts_{};
  std::array<std::vector<char>, contexts> stacks_;
  std::array<bool, contexts> rests_{};
  int running_ = outside;
};

struct TurnPoints {
  class Mutex {
   public:
    void lock() {
      Interleaving::current().between();
      while (held_) Interleaving::current().let_others();
      held_ = true;
    }
    void unlock() {
      held_ = false;
      Interleaving::current().between();
    }

   private:
    bool held_ = false;
  };
  static void between() { Interleaving::current().between(); }
};

// The surroundings that TimerService has: shards of deadlines, each with a lock, and an alarm.
struct Service {
  struct Shard {
    TurnPoints::Mutex lock;
    std::vector<Tick> waiting;
    Earliest<TurnPoints> earliest;
  };
  std::array<Shard, 2> shards;
  DriverAlarm<TurnPoints> driver_alarm;
  Tick alarm = never;
  int ran = 0;

  bool goes_off() const { return alarm <= present; }

  void schedule(Shard& shard, Tick deadline) {
    bool earlier = false;
    {
      const std::lock_guard lock(shard.lock);
      shard.waiting.push_back(deadline);
      earlier = shard.earliest.lower_to(deadline);
    }
    if (earlier) driver_alarm.on_earlier_deadline(deadline, [this](Tick at) { set_alarm(at); });
  }

  // A pass of the driver.
  void run_due() {
    driver_alarm.mark_awake();
    for (Shard& shard : shards) {
      if (shard.earliest.get() > present) continue;
      const std::lock_guard lock(shard.lock);
      ran += static_cast<int>(
          std::erase_if(shard.waiting, [](Tick deadline) { return deadline <= present; }));
      Tick next = never;
      for (const Tick deadline : shard.waiting) next = std::min(next, deadline);
      shard.earliest.set(next);
    }
    driver_alarm.fall_asleep(
        [this] {
          Tick at = never;
          for (const Shard& shard : shards) at = std::min(at, shard.earliest.get());
          return at;
        },
        [this](Tick at) { set_alarm(at); });
  }

  void set_alarm(Tick at) {
    alarm = at;
    if (goes_off()) Interleaving::current().wake(Interleaving::driver);
  }
};

Service* service = nullptr;

void drive() {
  while (true) {
    service->run_due();
    while (!service->goes_off()) {
      Interleaving::current().rest();
      if (Interleaving::current().below(4) == 0) break;  // It wakes up for nothing.
    }
  }
}

// Once or twice, into a shard that both share or its own, something that is due or is not.
template <std::size_t own>
void produce() {
  while (true) {
    Interleaving& turns = Interleaving::current();
    for (auto times = 1 + turns.below(2); times > 0; --times) {
      const std::size_t shard = turns.below(4) == 0 ? 1 - own : own;
      const std::array<Tick, 4> deadlines{5, present, 20, 30 + turns.below(3)};
      service->schedule(service->shards[shard], deadlines[turns.below(4)]);
      turns.between();
    }
    turns.rest();
  }
}

TEST_SUITE("driver alarm") {
  TEST_CASE("in a million random orders no wake-up is lost while the driver is going to sleep") {
    const char* const given_seed = std::getenv("TARRY_SEED");
    const unsigned seed = given_seed != nullptr ? static_cast<unsigned>(std::stoul(given_seed))
                                                : std::random_device{}();
    CAPTURE(seed);
    const char* const given = std::getenv("TARRY_TIMER_ROUNDS");
    const int tries = given != nullptr ? std::atoi(given) : 1'000'000;
    Interleaving turns(seed);
    Service a_service;
    service = &a_service;
    turns.start(Interleaving::driver, drive);
    turns.start(1, produce<0>);
    turns.start(2, produce<1>);
    bool lost = false;
    int alarms_off = 0;
    for (int i = 0; i < tries && !lost; ++i) {
      turns.run();
      for (Service::Shard& shard : a_service.shards) {
        for (const Tick deadline : shard.waiting) {
          // It sleeps now: nothing that is due is left, and nothing is before its alarm.
          lost = lost || deadline <= present || deadline < a_service.alarm;
        }
        if (shard.waiting.size() > 8) {
          shard.waiting.clear();
          shard.earliest.set(never);
        }
      }
      lost = lost || a_service.goes_off();
      alarms_off += a_service.ran > 0;
      a_service.ran = 0;
    }
    service = nullptr;
    CHECK_FALSE(lost);
    CHECK(alarms_off > tries / 4);
  }
}

#endif

}  // namespace
}  // namespace tarry::timing
