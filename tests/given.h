#pragma once

// The inputs that a test gives: chance from a printed seed, time that it sets, and
// work that waits until the test lets it run.

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <new>
#include <utility>

#include "base/background.h"
#include "base/clock.h"
#include "base/random.h"

namespace tarry {

// How often something random is tried.  ThreadSanitizer makes everything ten times slower and has
// nothing to say of what runs in one thread: a few tries show that it still runs.
constexpr int tries(int count) {
#ifdef __SANITIZE_THREAD__
  return (count + 24) / 25;
#else
  return count;
#endif
}

// The same numbers for the same seed (splitmix64).
class SeededRandom final : public Random {
 public:
  explicit SeededRandom(std::uint64_t seed) : state_(seed) {}
  std::uint64_t u64() override {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t end) { return u64() % end; }

 private:
  std::uint64_t state_;
};

class SetClock final : public Clock {
 public:
  WallTime wall() const override { return std::chrono::floor<std::chrono::milliseconds>(now_wall); }
  MonoTime mono() const override { return now_mono; }

  std::chrono::sys_time<std::chrono::nanoseconds> now_wall{
      std::chrono::sys_days{std::chrono::year{2026} / 11 / 21}};
  MonoTime now_mono{std::chrono::hours{1}};
};

// Both parts of a piece of work run in step(), one after the other, in the order of asking.
class QueuedBackground final : public Background {
 public:
  void run_and_then(Work work, Work then) override {
    if (std::exchange(no_memory, false)) throw std::bad_alloc();
    queue_.push_back({std::move(work), std::move(then)});
  }
  // False when nothing waits.
  bool step() {
    if (queue_.empty()) return false;
    auto [work, then] = std::move(queue_.front());
    queue_.pop_front();
    do_it(work);
    then();
    return true;
  }
  // The one that was asked for last: pieces of work run in any order.
  bool step_last() {
    if (queue_.empty()) return false;
    auto [work, then] = std::move(queue_.back());
    queue_.pop_back();
    do_it(work);
    then();
    return true;
  }
  void run_all() {
    while (step()) {
    }
  }
  std::size_t size() const { return queue_.size(); }
  void forget() { queue_.clear(); }
  bool no_memory = false;  // For the next piece of work.

 private:
  // As the pool: nobody catches what work throws.  A test's own (a power cut) is no std::exception.
  static void do_it(Work& work) {
    try {
      work();
    } catch (const std::exception&) {
      std::terminate();
    }
  }

  std::deque<std::pair<Work, Work>> queue_;
};

}  // namespace tarry
