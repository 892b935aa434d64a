#pragma once

// DelayedFlow: the records of one part of a benchmark: when each is sent and due, and what became
// of it.
//
//                        planned      due                    arrived
//   number 17  ------------|-----------|------------------------|-----> wall clock
//                          '- accept --'                        |
//                                      '---------- lag ---------'
//
// A record is a number.  When it is sent and when it is due follow from the number and the plan
// alone, so that neither has to be kept, and a sender that falls behind moves neither: what it
// delays is counted.  A record that is not delayed is due when it is to be sent.
//
// Invariants
//   - Each record counts once as delivered; every further arrival counts as twice.
//   - `lost` is exact: accepted, due, and not arrived.  It takes two bits a record (none if the
//     plan does not track them), and nothing else here grows with their number.
//
// Threads: accept() on any; arrive() on one; the questions on any, and figures() when all others
// have ended.  Times are microseconds of the wall clock.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cli/latency_histogram.h"

namespace tarry::cli {

struct FlowPlan {
  std::uint64_t first = 0;  // The number of the first record.
  std::uint64_t count = 0;
  double rate = 0;          // Records a second; 0: as fast as the broker accepts them.
  bool is_delayed = false;  // False: they have no header and are due at once.
  // Due `delay` after they are to be sent, and up to `spread` later, at random.
  std::chrono::milliseconds delay{0};
  std::chrono::milliseconds spread{0};
  bool is_burst = false;  // All are due in one millisecond, `delay` after the first is sent.
  std::uint64_t seed = 0;
  // False: records are counted and not told apart, and `lost` is 0.  It takes no memory then.
  bool is_tracked = true;
};

// The outcome of one flow, or the sum of several.
struct FlowFigures {
  std::uint64_t accepted = 0;
  std::uint64_t accepted_late = 0;  // After they were due.
  std::uint64_t delivered = 0;
  std::uint64_t early = 0;
  std::uint64_t lost = 0;
  std::uint64_t twice = 0;
  std::uint64_t not_due = 0;      // Accepted, and not due when the benchmark ended.
  std::uint64_t unconfirmed = 0;  // Delivered, but not reported as accepted.
  LatencyHistogram lag;           // The lag of delivered records.

  void add(const FlowFigures& other);
};

// A set of numbers below `size`; any thread.
class AtomicSet {
 public:
  explicit AtomicSet(std::uint64_t size) : words_((size + 63) / 64) {}

  // Whether it was not in the set before.
  bool insert(std::uint64_t number) {
    const std::uint64_t bit = std::uint64_t{1} << (number % 64);
    return (words_[number / 64].fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
  }
  std::size_t word_count() const { return words_.size(); }
  // Numbers 64 * i to 64 * i + 63, the lowest bit first.
  std::uint64_t word(std::size_t i) const { return words_[i].load(std::memory_order_relaxed); }

 private:
  std::vector<std::atomic<std::uint64_t>> words_;
};

class DelayedFlow {
 public:
  explicit DelayedFlow(const FlowPlan& plan);

  const FlowPlan& plan() const { return plan_; }
  bool has(std::uint64_t number) const {
    return number >= plan_.first && number - plan_.first < plan_.count;
  }

  // The first record is to be sent at `now`.  Before that no record has a time.
  void begin(std::int64_t now) { begin_.store(now); }
  std::int64_t began() const { return begin_.load(); }
  // Records are to be sent in groups of this many: one client sends a whole group.
  std::uint64_t group_size() const { return group_size_; }
  std::int64_t planned(std::uint64_t number) const;
  std::int64_t due(std::uint64_t number) const;  // Whole milliseconds, if it is delayed.
  std::int64_t last_due() const;                 // No record is due later.

  void accept(std::uint64_t number, std::int64_t now);
  void arrive(std::uint64_t number, std::int64_t now);

  std::uint64_t accepted() const { return accepted_count_.load(std::memory_order_relaxed); }
  std::uint64_t delivered() const { return delivered_count_.load(std::memory_order_relaxed); }
  // Accepted, due by `now`, and not arrived.  Looks at every record.
  std::uint64_t missing(std::int64_t now) const;

  FlowFigures figures(std::int64_t now) const;

 private:
  const FlowPlan plan_;
  const std::uint64_t group_size_;
  std::atomic<std::int64_t> begin_ = 0;
  AtomicSet accepted_;
  AtomicSet arrived_;
  std::atomic<std::uint64_t> accepted_count_ = 0;
  std::atomic<std::uint64_t> accepted_late_ = 0;
  std::atomic<std::uint64_t> delivered_count_ = 0;
  // Used only by the thread that calls arrive().
  std::uint64_t early_ = 0;
  std::uint64_t twice_ = 0;
  LatencyHistogram lag_;
};

}  // namespace tarry::cli
