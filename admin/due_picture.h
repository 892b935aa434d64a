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
// Nothing is computed that nobody asked for.  On shard 0's thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/awaitable.hpp>

#include "admin/call.h"
#include "base/clock.h"
#include "broker/views/due_counts.h"

namespace tarry::admin {

class DuePicture : public std::enable_shared_from_this<DuePicture> {
 public:
  // One line of JSON.  Where the store has never been counted, this begins to, and waits for it
  // for a moment at most.
  boost::asio::awaitable<std::string> text(Context& context);

 private:
  // The counts from the store.
  struct Far {
    WallTime at;
    broker::DueCounts minutes;  // From then on, for a little more than an hour,
    broker::DueCounts hours;    //   and for a little more than a month.
  };
  // Two that differ: something else is pending than what was, but for deliveries.
  struct Marks {
    std::uint64_t accepted = 0;
    std::uint64_t changed = 0;
    bool operator==(const Marks&) const = default;
  };

  boost::asio::awaitable<void> compute(Context& context);
  void begin_far(Context& context, const broker::NearDue& near, WallTime now);
  boost::asio::awaitable<void> count_far(Context& context, std::shared_ptr<void> keep);
  std::string json(Context& context, const broker::NearDue& near, WallTime now) const;

  std::optional<Far> far_;
  bool counting_ = false;
  Marks marks_;           // The marks of far_, or of the picture being counted.
  MonoTime far_again_{};  // Not before.
  std::uint64_t written_ = 0;

  std::string text_;  // Empty: none yet.
  bool computing_ = false;
  MonoTime text_again_{};
};

}  // namespace tarry::admin
