#pragma once

// GroupShare: how much the groups of one client use of a shard's limits for groups.
//
// A client is a user, or an address where nobody logs in.  It may have as much as it leaves for all
// others together, however many groups it makes.
//
//   group                        counts for
//   without members              who made it, or was the last to commit to it or to join it
//   with members                 the client of its generation's leader
//   with members, at the start   nobody, until a client becomes a member, or a commit is taken
//
// A request that is refused changes none of this.
//
// Held by the groups that it counts and by their members, on their shard's thread.

#include <algorithm>
#include <cstddef>

namespace tarry::broker {

struct GroupShare {
  std::size_t groups = 0;
  std::size_t offset_bytes = 0;  // Committed offsets: a part of OffsetBudget::bytes.
  std::size_t name_bytes = 0;    // The groups' names: a part of OffsetBudget::name_bytes.
  std::size_t member_bytes = 0;  // Members, and member ids that were given out.
  bool is_nobodys = false;       // The share of groups that nobody has used since the start.

  // The most by which a client that has `mine` of `taken` may grow, so that it has no more than is
  // left for others.
  static std::size_t room(std::size_t mine, std::size_t taken, std::size_t limit) {
    return (limit - std::min(limit, taken + mine)) / 2;
  }
};

}  // namespace tarry::broker
