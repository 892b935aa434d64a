#pragma once

// DuePicture: how many records are due in each second of the coming minute, minute of the hour,
// hour of the day and day of the month, by topic.
//
//   near_due()   what shards have in memory       each time --------------+
//   read_due()   by the minute, from the store    now and then, in the    +--> one JSON text
//   hour_due()   by the hour, from its numbers    background -------------+    for all who ask
//
// With millions pending the store cannot be read each second, so its part is counted again only
// when something has changed, and so rarely that counting takes a small share of one core
// (counting_share).  It writes what memory has to the store before it counts: also that is bounded.
// Each span says when it was counted.
//
// A span ends at a moment of its own, not at the end of a bucket:
//
//     |  14:00  |  15:00  |   ...   |  13:00  |  14:00  |      buckets of the coming day
//          ^ now 14:37                             ^ until 14:37 tomorrow
//                                             |base|seconds|   an End: counted finely, so that the
//                                                  ^ at        end can move on until the next count
//
// Numbers that are shown together are of one moment: total = overdue + the month + later.
//
// Nothing is computed that nobody asked for.  On shard 0's thread.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/awaitable.hpp>

#include "admin/call.h"
#include "base/clock.h"
#include "base/result.h"
#include "broker/views/due_counts.h"

namespace tarry::admin {

class DuePicture : public std::enable_shared_from_this<DuePicture> {
 public:
  // One line of JSON.  If the store is to be counted, this begins to, and waits for it for a moment
  // at most.
  boost::asio::awaitable<std::string> text(Context& context);
  // A text for a reader who may not know of every topic: the numbers of those are in `other`.
  static std::string for_reader(std::string text, Context& context,
                                const broker::PendingReader& reader);
  // Somebody has changed what is pending and looks at what comes of it: counted again sooner.
  void hurry();

 private:
  // Two that differ: something else is pending than what was, but for deliveries.
  struct Marks {
    std::uint64_t accepted = 0;
    std::uint64_t changed = 0;
    bool operator==(const Marks&) const = default;
  };
  // The end of a span when the store was counted.
  struct End {
    WallTime at;                // A full second.
    broker::DueCounts base;     // The part before it of the bucket that it is in,
    broker::DueCounts seconds;  //   and the time after it, for as long as Far::kept.
  };
  // The counts from the store.
  struct Far {
    Marks marks;
    WallTime at;
    std::chrono::milliseconds kept{};        // Its ends are known for so long.
    std::chrono::milliseconds minutes_by{};  // A second, or a minute.
    broker::DueCounts minutes;               // From `at` on, for a little more than an hour,
    broker::HourDue hours;                   //   and for a little more than a month.
    End hour, day, month;
  };

  boost::asio::awaitable<void> compute(Context& context);
  static Marks marks_of(const Context& context, const broker::NearDue& near);
  // Whether it is worth waiting for a count.
  bool begin_far(Context& context, const broker::NearDue& near, WallTime now);
  boost::asio::awaitable<void> count_far(Context& context, Marks marks, std::shared_ptr<void> keep);
  static boost::asio::awaitable<Result<Far>> read_far(broker::Broker& broker, broker::Shard& here);
  std::string json(Context& context, const broker::NearDue& near, WallTime now) const;

  std::optional<Far> far_;
  bool counting_ = false;
  MonoTime far_again_{};  // No count begins before this,
  MonoTime far_soon_{};   //   nor before this when it is hurried.
  bool hurried_ = false;
  std::uint64_t written_ = 0;

  std::string text_;  // Empty: none yet.
  bool computing_ = false;
  MonoTime text_again_{};
};

}  // namespace tarry::admin
