#pragma once

// QueueMarks: up to which time all records that librdkafka had fetched have been taken from its
// queue.
//
// One queue has the records of all partitions, in the order in which they were fetched.  So the
// records of one partition may be behind any number of records of others.
//
//   look()            sets a mark: so many records were in the queue a moment after this time
//   took()            takes one of them; when all before a mark are taken, its time is reached
//   found_nothing()   the queue was empty after the last look
//
// A full queue keeps librdkafka from fetching from any partition.  Then records that were
// acknowledged before a mark may be missing in it, and the mark says nothing about its time.  A
// mark from before the clock was set back says nothing either: it seems later than it was.
//
// One thread.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "base/clock.h"

namespace tarry::relay {

class QueueMarks {
 public:
  // With as much in its queue librdkafka fetches nothing, or soon does not.
  struct QueueBound {
    std::size_t records = 0, bytes = 0;

    // Below librdkafka's bounds: one that is nearly reached was reached a moment ago, or soon is.
    // An empty queue is never full, however small they are.
    static QueueBound below(std::size_t records, std::size_t bytes) {
      const auto part = [](std::size_t bound) {
        return std::max<std::size_t>(1, bound / 4 * 3 + bound % 4 * 3 / 4);
      };
      return {part(records), part(bytes)};
    }
  };
  // Above it a look leaves no mark.
  static constexpr std::size_t max_marks = 100;

  QueueMarks(WallTime now, QueueBound full) : full_(full), at_(now) {}

  // `now` was read before `queued`.
  void look(WallTime now, std::size_t queued) {
    if (now < looked_at_) {
      at_ = {};
      for (auto& mark : marks_) mark.at = {};
    }
    looked_at_ = now;
    const bool is_full = queued >= full_.records;
    was_full_ = was_full_ || is_full;
    if (marks_.size() < max_marks) marks_.push_back({now, taken_ + queued, bytes_, is_full});
    reach();
  }
  void took(std::size_t bytes) {
    ++taken_;
    bytes_ += bytes;
    reach();
  }
  void found_nothing() {
    for (const auto& mark : marks_) was_full_ = was_full_ || is_large(mark);
    marks_.clear();
    at_ = looked_at_;
  }

  // All that was fetched by then has been taken; zero: this is not known of any time.
  WallTime at() const { return at_; }
  // Since it was asked last.
  bool take_was_full() { return std::exchange(was_full_, false); }

 private:
  struct Mark {
    WallTime at{};
    std::uint64_t until = 0;  // It is reached when so many have been taken.
    std::uint64_t bytes = 0;  // Those that had been taken.
    bool is_full = false;
  };

  // The size of the queue at the mark is known when all of it has been taken.
  bool is_large(const Mark& mark) const { return bytes_ - mark.bytes >= full_.bytes; }
  void reach() {
    for (; !marks_.empty() && marks_.front().until <= taken_; marks_.pop_front()) {
      const Mark& mark = marks_.front();
      if (is_large(mark)) was_full_ = true;
      if (!mark.is_full && !is_large(mark)) at_ = mark.at;
    }
  }

  QueueBound full_;
  std::deque<Mark> marks_;  // As they were made.
  std::uint64_t taken_ = 0, bytes_ = 0;
  WallTime at_, looked_at_{};
  bool was_full_ = false;
};

}  // namespace tarry::relay
