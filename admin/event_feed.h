#pragma once

// EventFeed: what the page shows, as server-sent events.
//
//   run() --each second--> status, wheel, due, topics, groups, clients, each as text
//                               |
//                    stream: those that it has not sent yet  -->  its browser
//                    stream: ...
//
// There is one computation for all streams, and no event is computed while there is no stream.  Its
// long parts are done so rarely that they take a small share of one core.  A stream that is slow
// misses events and goes on with the newest; one that takes nothing for the time of a request is
// ended by its connection.
//
// The past is kept for those who look after something has happened, so points of it are noted
// without a stream, too:
//
//   second_passed() --if something may have moved--> a few figures of each shard --> a point
//
// A broker that has nothing to do is not woken for it: its shards have made no turn, and nothing is
// pending.  With pending records, which may become overdue, a point is noted every five seconds,
// and each second while there is much to do.  The last 600 points are kept as they are, and 300
// older ones with ten seconds or more in between: an hour at a point a second, more at fewer.  They
// have about 400 bytes each, 360 KB together.
//
// On shard 0's thread, but for second_passed().

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <nlohmann/json_fwd.hpp>

#include "admin/call.h"
#include "base/clock.h"
#include "web/reply_stream.h"

namespace tarry::admin {

class EventFeed : public std::enable_shared_from_this<EventFeed> {
 public:
  EventFeed(const boost::asio::any_io_executor& executor, std::size_t max_streams,
            std::chrono::milliseconds interval);

  // Throws Refused when there are max_streams.
  std::shared_ptr<ReplyStream> open(Context& context, const broker::PendingReader& reader);
  // A request has changed what is pending: all streams are told at once, not in their next second.
  void pending_changed(Context& context);
  // All streams end.
  void stop();

  // Once a second.  `turns` counts the turns of the shards' threads.  Any thread, one at a time;
  // the rest happens on shard 0's.
  void second_passed(Context& context, std::function<std::uint64_t()> turns);

  // Any thread.
  std::size_t streams() const { return streams_; }
  std::uint64_t rounds() const { return rounds_; }  // The computation's rounds since the start.

 private:
  class Stream;
  enum Kind : std::size_t { status, wheel, topics, groups, due, clients, kinds };
  struct Event {
    std::uint64_t number = 0;  // Rising over all events; 0: none yet.
    std::shared_ptr<const std::string> text;
    std::string json{};  // In `text`; of `due` alone, which readers see differently.
    MonoTime again{};    // Computed not before,
    MonoTime soon{};     //   nor before this when something was changed.
  };
  // A point of the page's charts over time.
  struct Point {
    std::int64_t at_ms = 0;
    std::uint64_t overdue = 0;
    std::string json;
  };

  boost::asio::awaitable<void> run(Context& context, std::shared_ptr<void> keep);
  boost::asio::awaitable<void> compute(Context& context, Kind kind, bool at_once);
  boost::asio::awaitable<std::string> event_text(Context& context, Kind kind);
  boost::asio::awaitable<void> note_quietly(Context& context, std::function<std::uint64_t()> turns,
                                            std::optional<std::uint64_t> free_bytes,
                                            std::shared_ptr<void> keep);
  void note_point(const nlohmann::ordered_json& now);
  void keep_older(Point point);
  std::string history() const;
  void publish(Kind kind, std::string json);

  const std::size_t max_streams_;
  const std::chrono::milliseconds interval_;
  boost::asio::steady_timer changed_;  // Never expires; streams wait for it to be cancelled.
  boost::asio::steady_timer pause_;    // Between two rounds.
  std::array<Event, kinds> events_;
  std::deque<Point> older_, points_;
  std::uint64_t last_number_ = 0;
  std::atomic<std::uint64_t> rounds_ = 0;
  std::atomic<std::size_t> streams_ = 0;
  std::atomic<bool> noting_ = false;           // Without a stream.
  std::atomic<std::uint64_t> turns_seen_ = 0;  // At the end of that.
  // By second_passed() alone.  Large at first: rates need a point from before all that happens.
  int seconds_skipped_ = 1000;
  bool running_ = false;
  bool hurried_ = false;  // The next round is due at once.
  bool stopped_ = false;
};

}  // namespace tarry::admin
