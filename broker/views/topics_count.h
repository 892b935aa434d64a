#pragma once

// TopicsCount: how many records of each of several topics are due in a time.
//
//   add(topic) ...   the numbers that the store keeps: those of whole hours are known at once
//   read()     ...   what is left, for all topics together: an hour of which the time has only a
//                    part, and a month, whose numbers say too little
//
// The chunks of an hour have the records of all topics, so that to count one topic after the other
// would read them once for each.  The numbers are those of count_delayed().
//
// It counts what is in the store: write_pending() comes first.  Belongs to the coroutine that asks,
// on the thread of `here`.

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include <boost/asio/awaitable.hpp>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "storage/bucket.h"

namespace tarry::broker {

class Broker;
class Shard;

class TopicsCount {
 public:
  // Counts the time from `from` until before `until`.
  TopicsCount(Broker& broker, Shard& here, WallTime from, WallTime until)
      : broker_(broker), here_(here), from_(from), until_(until) {}

  boost::asio::awaitable<Result<>> add(TopicId topic);
  // Reads a piece of what is left, when all topics are there; false: that was the last one.
  boost::asio::awaitable<Result<bool>> read();

  // Complete after the last read().
  std::uint64_t total() const { return total_; }
  std::uint64_t of(const TopicId& topic) const;

 private:
  void count(const TopicId& topic, std::uint64_t records);

  Broker& broker_;
  Shard& here_;
  const WallTime from_, until_;
  std::uint64_t total_ = 0;
  std::map<TopicId, std::uint64_t> totals_;
  // To be read, each with the topics that are counted by it; months come first.
  std::map<storage::Bucket, std::set<TopicId>> unread_;
  std::optional<WallTime> next_;  // The first of them goes on there.
};

}  // namespace tarry::broker
