#pragma once

// The figures of /metrics that come one for each topic, for each user, or for each partition of a
// group.
//
//   every shard, in steps --> all figures --sorted and cut on the pool--> the first by name, and a
//                                                                         sum of the rest
//
// A step takes a few thousand entries, so that no shard is held by a broker with many.  Bounds: at
// most `max_series` figures have series of their own, and at most max_offsets committed offsets are
// read.  A group whose id has more than 255 bytes has no series of its own, and no lag.
//
// The copies are of one moment in each step, not of one moment in all.  Everything here starts and
// ends on the thread of `here`, which is shard 0.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/ids.h"
#include "storage/pending.h"

namespace tarry::broker {

class Broker;
class Shard;

// Committed offsets of all groups that are read for their lag; those beyond are not.
inline constexpr std::size_t max_offsets = 100'000;

struct GroupLag {
  std::string group;
  std::string topic;
  PartitionIndex partition = 0;
  std::uint64_t lag = 0;
};

struct GroupSeries {
  // The lags of partitions with a committed offset, by group, topic and partition.  Partitions that
  // have series of their own are opened to know their end; of the rest, the open ones count.
  std::vector<GroupLag> lags;
  std::uint64_t other_lags = 0;
  bool has_others = false;
  struct Members {
    std::string group;
    std::uint64_t members = 0;
  };
  std::vector<Members> members;  // By group.
  std::uint64_t other_members = 0;
  std::uint64_t groups = 0;
};
boost::asio::awaitable<GroupSeries> group_series(Broker& broker, Shard& here,
                                                 std::size_t max_series);

// A topic's deliveries since the start.
struct TopicDeliveries {
  std::string topic;
  std::uint64_t records = 0;
  double lag_seconds = 0;  // The sum, from each due time until the record was durable in the log.
};
struct TopicPending {
  std::string topic;
  std::uint64_t records = 0;
};

struct TopicSeries {
  std::vector<TopicDeliveries> deliveries;  // By topic; so are those pending.
  TopicDeliveries other_deliveries;
  std::vector<TopicPending> pending;
  std::uint64_t other_pending = 0;
};
boost::asio::awaitable<TopicSeries> topic_series(Broker& broker, Shard& here,
                                                 std::size_t max_series);

// The pending records of a user, and their bytes, as its quotas count them.
struct UserPending {
  std::string user;
  storage::PendingUse use;
};
struct UserSeries {
  std::vector<UserPending> pending;  // By user; those that have something.
  storage::PendingUse other;
};
boost::asio::awaitable<UserSeries> user_series(Broker& broker, Shard& here, std::size_t max_series);

}  // namespace tarry::broker
