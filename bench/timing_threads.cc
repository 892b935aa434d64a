// Timers that several threads share: TimerService beside what others do about threads.
//
// Each producer arms a timer for 30 s and cancels it 1024 pairs later, as requests do that are
// answered in time; one pair in a hundred is a timer for 5 ms that nobody cancels.  One thread
// more fires them.  A producer reads the clock every 256 pairs.  Real time: the figure is pairs a
// second of all producers by the wall clock, and `cpu_ns` the CPU time of all threads for a pair.

#include "bench/timing_threads.h"

#include <benchmark/benchmark.h>

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "bench/peers.h"
#include "timing/service/timer_service.h"

namespace tarry::bench {
namespace {

using peers::Tick;
using std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::size_t max_threads = 2;
constexpr std::size_t window = 1024;             // Pairs from arming to cancelling.
constexpr std::size_t short_timers = 64 * 1024;  // A thread's; far more than are pending at once.
constexpr std::size_t timers_a_thread = window + short_timers;
constexpr std::size_t timers = max_threads * timers_a_thread;

struct Owner {
  std::uint32_t count = 0;
  void fire() { ++count; }
};

// A peer with one owner, who is called every millisecond: producers and he share a lock, unless the
// design hands over without one.
template <class Peer, bool has_lock = true>
class Shared {
 public:
  static constexpr const char* name = Peer::name;

  Shared() : peer_(timers), thread_([this] { work(); }) {}
  ~Shared() {
    ending_ = true;
    thread_.join();
  }

  void arm(std::size_t i, steady_clock::time_point deadline) {
    const auto held = hold();
    peer_.arm(i, tick_of(deadline) + 1);
  }
  void disarm(std::size_t i) {
    const auto held = hold();
    peer_.disarm(i);
  }

 private:
  Tick tick_of(steady_clock::time_point time) const {
    return static_cast<Tick>((time - begin_) / 1ms);
  }
  std::unique_lock<std::mutex> hold() {
    return has_lock ? std::unique_lock(lock_) : std::unique_lock<std::mutex>();
  }
  void work() {
    for (auto next = begin_ + 1ms; !ending_; next += 1ms) {
      std::this_thread::sleep_until(next);
      const auto held = hold();
      peer_.advance(tick_of(steady_clock::now()));
    }
  }

  const steady_clock::time_point begin_ = steady_clock::now();
  std::mutex lock_;
  Peer peer_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

class Service {
 public:
  static constexpr const char* name = "tarry";

  void arm(std::size_t i, steady_clock::time_point deadline) {
    ids_[i] = *service_.schedule_at(deadline, [owner = &owners_[i]] { owner->fire(); });
  }
  void disarm(std::size_t i) { service_.cancel(ids_[i]); }

 private:
  std::unique_ptr<Owner[]> owners_ = std::make_unique<Owner[]>(timers);
  std::unique_ptr<timing::TimerId[]> ids_ = std::make_unique<timing::TimerId[]>(timers);
  timing::TimerService service_;
};

// With the lock of its own reactor.
class Asio {
 public:
  static constexpr const char* name = "Boost.Asio";

  Asio() : guard_(context_.get_executor()), thread_([this] { context_.run(); }) {
    slots_.reserve(timers);
    for (std::size_t i = 0; i < timers; ++i) {
      slots_.push_back({boost::asio::steady_timer(context_), {}});
    }
  }
  ~Asio() {
    context_.stop();
    thread_.join();
  }

  void arm(std::size_t i, steady_clock::time_point deadline) {
    Slot& slot = slots_[i];
    slot.timer.expires_at(deadline);
    slot.timer.async_wait([&slot](const boost::system::error_code& error) {
      if (!error) slot.owner.fire();
    });
  }
  void disarm(std::size_t i) { slots_[i].timer.cancel(); }

 private:
  struct Slot {
    boost::asio::steady_timer timer;
    Owner owner;
  };
  boost::asio::io_context context_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_;
  std::vector<Slot> slots_;
  std::thread thread_;
};

// With real-time priority (chrt -f) the producers would keep the processors from the thread that
// fires, which has the same priority.  So they take one less.
void step_back() {
  sched_param priority{};
  if (::sched_getscheduler(0) != SCHED_FIFO || ::sched_getparam(0, &priority) != 0) return;
  priority.sched_priority = std::max(priority.sched_priority - 1, 1);
  ::sched_setscheduler(0, SCHED_FIFO, &priority);
}

template <class Peer>
std::uint64_t produce(Peer& peer, std::size_t first, steady_clock::time_point end) {
  step_back();
  std::uint64_t pairs = 0;
  std::size_t next_short = 0;
  auto now = steady_clock::now();
  for (;; ++pairs) {
    if (pairs % 256 == 0) {
      now = steady_clock::now();
      if (now >= end) break;
    }
    if (pairs % 100 == 99) {
      const std::size_t timer = first + window + next_short++ % short_timers;
      if (next_short > short_timers) peer.disarm(timer);  // Fired long ago, but it may lag.
      peer.arm(timer, now + 5ms);
      continue;
    }
    const std::size_t timer = first + pairs % window;
    if (pairs >= window) peer.disarm(timer);
    peer.arm(timer, now + 30s);
  }
  return pairs;
}

double process_cpu_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

template <class Peer>
void pairs_of_threads(benchmark::State& state, std::size_t threads, double seconds) {
  for (auto _ : state) {
    auto peer = std::make_unique<Peer>();
    std::atomic<std::uint64_t> pairs = 0;
    const double cpu = process_cpu_ns();
    const auto begin = steady_clock::now();
    {
      const auto end = begin + std::chrono::duration_cast<steady_clock::duration>(
                                   std::chrono::duration<double>(seconds));
      std::vector<std::jthread> producers;
      for (std::size_t i = 0; i < threads; ++i) {
        producers.emplace_back([&, i] { pairs += produce(*peer, i * timers_a_thread, end); });
      }
    }
    const double wall = std::chrono::duration<double>(steady_clock::now() - begin).count();
    const auto count = static_cast<double>(pairs);
    state.counters["value"] = count / wall / 1e6;
    state.counters["cpu_ns"] = (process_cpu_ns() - cpu) / count;
    state.SetIterationTime(wall);
    state.SetLabel(threads == 1 ? "pairs, 1 thread [M/s]" : "pairs, 2 threads [M/s]");
  }
}

template <class... Peers>
void add_all(double seconds) {
  for (const std::size_t threads : {1, 2}) {
    (benchmark::RegisterBenchmark(
         ("threads_" + std::to_string(threads) + "/" + Peers::name).c_str(),
         [=](benchmark::State& state) { pairs_of_threads<Peers>(state, threads, seconds); })
         ->Iterations(1)
         ->UseManualTime()
         ->Unit(benchmark::kMillisecond),
     ...);
  }
}

}  // namespace

void add_thread_benchmarks(double seconds) {
  add_all<Service, Shared<peers::KeyedRound<Owner>>, Shared<peers::PooledHeap<Owner>>,
          Shared<peers::Hashed<Owner>, false>, Shared<peers::Kafka<Owner>>,
          Shared<peers::Multimap<Owner>>, Asio>(seconds);
}

}  // namespace tarry::bench
