#pragma once

// How many records are due when, by topic: for pictures of what is pending.
//
//   near_due()  the coming minutes: what each shard has in memory
//   read_due()  any time: reads the records' due times in the store
//   hour_due()  by the hour: the numbers that the store keeps
//
// The last two are as new as the last write_pending(), or the shards' own writes.  Records
// that are overdue are in none of them.  Everything here starts and ends on the thread of `here`.

#include <chrono>
#include <cstdint>
#include <map>

#include <boost/asio/awaitable.hpp>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"

namespace tarry::broker {

class Broker;
class Shard;

// By the beginning of a stretch, counted from 1970 in UTC.
using StretchCounts = std::map<WallTime, std::uint64_t>;
using DueCounts = std::map<TopicId, StretchCounts>;

struct NearDue {
  DueCounts counts;           // By `by`, of what is due before `until`;
  WallTime known_until;       //   from this time on there may be more on disk.
  std::uint64_t overdue = 0;  // Not counted.
  // Totals since the start: of what has left in time, of everything else that changed what is
  // pending, and of what went to the disk.
  std::uint64_t delivered = 0;
  std::uint64_t changed = 0;
  std::uint64_t written = 0;
};
boost::asio::awaitable<NearDue> near_due(Broker& broker, Shard& here, WallTime until,
                                         std::chrono::milliseconds by);

boost::asio::awaitable<Result<DueCounts>> read_due(Broker& broker, Shard& here, WallTime from,
                                                   WallTime until, std::chrono::milliseconds by);

// The hours that end after `from` and begin before `until`.  The first one may count what is
// overdue in it.
struct HourDue {
  DueCounts counts;
  std::uint64_t beyond = 0;  // Records in the hours and months that begin at `until` or later.
};
boost::asio::awaitable<Result<HourDue>> hour_due(Broker& broker, Shard& here, WallTime from,
                                                 WallTime until);

}  // namespace tarry::broker
