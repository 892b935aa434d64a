#pragma once

// How many records are due when: GET /delayed/count --> count_delayed().
//
// Every shard writes what it has to the store first; the store is what is counted, on the pool and
// in pieces.  Starts and ends on the thread of `here`.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>

#include <boost/asio/awaitable.hpp>

#include "base/clock.h"
#include "base/result.h"
#include "broker/views/delayed_records.h"

namespace tarry::broker {

// How many records are due in each stretch of `by`, counted from 1970 in UTC.  By hours or days,
// and of all partitions, it is known without reading records that are due within a year, but for
// those of the hours in which the query's time begins and ends.
struct DelayedCounts {
  std::uint64_t total = 0;
  std::map<WallTime, std::uint64_t> counts;  // By its beginning; no stretch is empty.
};
// Errc::too_large: more than max_delayed_counts stretches.  Only the topic, partition, from,
// until and hidden topics of `query` count.  `written`: write_pending() was called just before.
inline constexpr std::size_t max_delayed_counts = 100'000;
boost::asio::awaitable<Result<DelayedCounts>> count_delayed(Broker& broker, Shard& here,
                                                            DelayedQuery query,
                                                            std::chrono::milliseconds by,
                                                            bool written = false);

}  // namespace tarry::broker
