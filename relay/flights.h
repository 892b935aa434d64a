#pragma once

// Flights: the records that a member has sent before the transaction that removes them
// (Cluster::begin_send()), in the order of sending, until Kafka has confirmed them.
//
//   begun() --> under way --confirmed()--> confirmed, or ended(): whatever has become of them
//
// Belongs to SendsAhead, on the thread of the member's step().

#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace tarry::relay {

class Flights {
 public:
  // `due`: the due times of those that were scheduled.
  void begun(std::size_t records, std::vector<WallTime> due) {
    begun_ += records;
    all_.push_back({begun_, std::move(due)});
  }
  // So many of all that were begun since the last end, from the first one on.  Returns the due
  // times of those that are new, each flight whole.
  std::vector<WallTime> confirmed(std::size_t records) {
    std::vector<WallTime> due;
    for (; !all_.empty() && all_.front().end <= records; all_.pop_front())
      due.insert(due.end(), all_.front().due.begin(), all_.front().due.end());
    return due;
  }
  void ended() { *this = {}; }

  // Some records were begun since the last end, though they may be confirmed.
  bool has_begun() const { return begun_ > 0; }
  bool is_under_way() const { return !all_.empty(); }
  std::size_t begun() const { return begun_; }

 private:
  struct Flight {
    std::size_t end = 0;  // Its last record is before this one.
    std::vector<WallTime> due;
  };

  std::size_t begun_ = 0;
  std::deque<Flight> all_;
};

}  // namespace tarry::relay
