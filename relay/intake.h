#pragma once

// Intake: decides which source partitions of a member are paused, so that the records that have
// arrived and are not taken in yet stay within a bound.
//
//   finding, loading   they take nothing in, however long that lasts: all of them are paused while
//                      they hold half of the bound; so are those that rest (assignment.h)
//   reading, owned     each that holds records is paused once all partitions together hold the
//                      bound, until transactions have taken most of it in
//
// So a partition that cannot be taken over leaves the other half to those that can.
//
// Belongs to the Member, on the thread of its step().

#include <cstddef>
#include <set>

#include "relay/assignment.h"
#include "relay/cluster.h"

namespace tarry::relay {

class Intake {
 public:
  explicit Intake(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  // The partitions that are paused in the next poll.
  std::set<Source> choose(const Assignment& assignment) {
    std::size_t stuck = 0, waiting = 0;
    for (const auto& [source, assigned] : assignment)
      (goes_on(assigned) ? waiting : stuck) += assigned.partition.arrived_bytes();
    if (stuck + waiting >= max_bytes_) is_behind_ = true;
    // Far below the bound: after a pause librdkafka fetches anew what it had read ahead.
    if (waiting < max_bytes_ / 4) is_behind_ = false;
    std::set<Source> paused;
    for (const auto& [source, assigned] : assignment) {
      // One that is drained stays paused with the others: behind each pause its source has to be
      // read to its end again.
      const bool is_held = assigned.is_paused || assigned.partition.arrived() > 0;
      if (goes_on(assigned) ? is_behind_ && is_held : stuck >= max_bytes_ / 2)
        paused.insert(source);
    }
    return paused;
  }

 private:
  static bool goes_on(const AssignedPartition& assigned) {
    return assigned.takes_in() && assigned.rests.empty();
  }

  const std::size_t max_bytes_;
  bool is_behind_ = false;  // Transactions do not keep up with what arrives.
};

}  // namespace tarry::relay
