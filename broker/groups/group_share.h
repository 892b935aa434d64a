#pragma once

// GroupShare: what the groups of one client take of what all groups of a shard may have.
//
// A client is a user, or an address where nobody logs in.  It may have as much as it leaves for all
// others together, however many groups it makes.  A group counts for the client that made it, and
// after a restart for the first that uses it.
//
// Held by the groups that it counts, on their shard's thread.

#include <algorithm>
#include <cstddef>

namespace tarry::broker {

struct GroupShare {
  std::size_t groups = 0;
  std::size_t offset_bytes = 0;  // Of names and committed offsets: a part of OffsetBudget::bytes.
  std::size_t member_bytes = 0;  // Of members, and of member ids that were given out.

  // The most by which a client that has `mine` of `taken` may grow, so that it has no more than is
  // left for others.
  static std::size_t room(std::size_t mine, std::size_t taken, std::size_t limit) {
    return (limit - std::min(limit, taken + mine)) / 2;
  }
};

}  // namespace tarry::broker
