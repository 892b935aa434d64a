#include "admin/event_feed.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "admin/call.h"
#include "admin/client_routes.h"
#include "admin/due_picture.h"
#include "admin/group_routes.h"
#include "admin/status_routes.h"
#include "admin/topic_routes.h"
#include "admin/wheel_routes.h"
#include "base/log.h"
#include "broker/broker.h"
#include "web/json_reply.h"

namespace tarry::admin {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;
using namespace std::chrono_literals;

// One event takes at most one part in so many of the time, and after a change so many.
constexpr int event_share = 50, hurried_event_share = 4;

// Changes that come one upon the other are told together: so many times in an interval.
constexpr int hurried_rounds = 4;

// Ten minutes of seconds, and what is older for an hour at least.
constexpr std::size_t max_points = 600, max_older_points = 300;
constexpr std::int64_t older_apart_ms = 10'000;

// Without a stream, and while something is pending: a point in so many seconds, or with so many
// turns of the shards in each.
constexpr int quiet_seconds = 5;
constexpr std::uint64_t busy_turns = 100;
// To note a point takes some turns, the last of them after it has counted.
constexpr std::uint64_t own_turns = 4, own_turns_per_shard = 1;

// Topics, groups and clients in an event; the page asks for other topics and groups by name.
constexpr std::size_t listed_at_most = 200;

struct KindInfo {
  const char* name;
  int every;  // In intervals.
  bool shows_pending;
};
constexpr std::array<KindInfo, 6> infos{{{"status", 1, true},
                                         {"wheel", 2, true},
                                         {"topics", 5, true},
                                         {"groups", 5, false},
                                         {"due", 2, true},
                                         {"clients", 5, false}}};

std::string text_of_event(const char* name, std::string_view json) {
  return fmt::format("event: {}\ndata: {}\n\n", name, json);
}

}  // namespace

// The stream of one connection.
class EventFeed::Stream final : public ReplyStream {
 public:
  Stream(std::shared_ptr<EventFeed> feed, Context& context, broker::PendingReader reader)
      : feed_(std::move(feed)), context_(context), reader_(std::move(reader)) {
    ++feed_->streams_;
  }
  ~Stream() override { --feed_->streams_; }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  asio::awaitable<std::optional<std::string>> next() override {
    EventFeed& feed = *feed_;
    // A page that opens shows the last minutes at once.
    if (!std::exchange(greeted_, true))
      co_return fmt::format("retry: 2000\n\nevent: history\ndata: {}\n\n", feed.history());
    // Without memory the loop may have ended before its streams: a page opens another one then.
    while (!feed.stopped_ && feed.running_) {
      std::string piece;
      for (std::size_t kind = 0; kind < kinds; ++kind) {
        // Only the newest event of each kind is kept: a slow client misses some, and memory stays
        // bounded.
        const Event& event = feed.events_[kind];
        if (event.number <= seen_) continue;
        if (kind == due && !reader_.may_read_all(context_.broker, context_.here)) {
          piece += text_of_event(infos[kind].name,
                                 DuePicture::for_reader(event.json, context_, reader_));
        } else {
          piece += *event.text;
        }
      }
      seen_ = feed.last_number_;
      if (!piece.empty()) co_return piece;
      boost::system::error_code ignored;
      co_await feed.changed_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
    co_return std::nullopt;
  }

 private:
  const std::shared_ptr<EventFeed> feed_;
  Context& context_;
  const broker::PendingReader reader_;
  bool greeted_ = false;
  std::uint64_t seen_ = 0;
};

EventFeed::EventFeed(const asio::any_io_executor& executor, std::size_t max_streams,
                     milliseconds interval)
    : max_streams_(max_streams),
      interval_(interval),
      changed_(executor, asio::steady_timer::time_point::max()),
      pause_(executor) {}

std::shared_ptr<ReplyStream> EventFeed::open(Context& context,
                                             const broker::PendingReader& reader) {
  if (stopped_) throw Refused{503, "the broker is stopping"};
  if (streams_ >= max_streams_) {
    throw Refused{503, fmt::format("{} event streams are open, which is the limit: close a page "
                                   "that shows this broker, or ask GET /status instead",
                                   max_streams_)};
  }
  auto stream = std::make_shared<Stream>(shared_from_this(), context, reader);
  if (!std::exchange(running_, true)) {
    // The events that were computed for earlier streams are old.
    events_ = {};
    try {
      asio::co_spawn(context.here.executor(), run(context, context.owner.lock()), asio::detached);
    } catch (const std::bad_alloc&) {
      running_ = false;  // Or no stream would begin it again.
      throw;
    }
  }
  return stream;
}

void EventFeed::pending_changed(Context& context) {
  context.due->hurry();
  context.first_on_disk.again = context.first_on_disk.soon;
  hurried_ = true;
  pause_.cancel();
}

void EventFeed::second_passed(Context& context, std::function<std::uint64_t()> turns) {
  // A stream's computation notes points, too.
  if (streams_ > 0 || noting_) return;
  auto& broker = context.broker;
  const std::uint64_t moved = turns() - turns_seen_;
  ++seconds_skipped_;
  if (broker.pending_counts().total() == 0) {
    if (moved <= own_turns + own_turns_per_shard * broker.shard_count()) return;
  } else if (moved < busy_turns && seconds_skipped_ < quiet_seconds) {
    return;
  }
  auto keep = context.owner.lock();
  if (!keep) return;
  seconds_skipped_ = 0;
  try {
    // Here, because a disk that does not answer would hold a shard.
    std::error_code failed;
    const auto space = std::filesystem::space(broker.identity().data_directory, failed);
    std::optional<std::uint64_t> free_bytes;
    if (!failed) free_bytes = space.available;
    noting_ = true;
    asio::co_spawn(context.here.executor(),
                   note_quietly(context, std::move(turns), free_bytes, std::move(keep)),
                   asio::detached);
  } catch (const std::bad_alloc&) {
    noting_ = false;  // Without memory there is no point for this second.
  }
}

asio::awaitable<void> EventFeed::note_quietly(Context& context,
                                              std::function<std::uint64_t()> turns,
                                              std::optional<std::uint64_t> free_bytes,
                                              std::shared_ptr<void>) {
  const auto self = shared_from_this();
  const std::shared_ptr<void> ended(nullptr, [this](void*) { noting_ = false; });
  if (stopped_) co_return;
  try {
    Json now = co_await quick_figures_json(context);
    // Null and not 0, which would read as a full disk.
    now["storage"]["free_bytes"] = free_bytes ? Json(*free_bytes) : Json(nullptr);
    if (!stopped_ && streams_ == 0) note_point(now);
  } catch (const std::exception& failure) {
    log_error("admin", "the page's history lacks a point: {}", failure.what());
  }
  turns_seen_ = turns();
}

void EventFeed::stop() {
  stopped_ = true;
  changed_.cancel();
  pause_.cancel();
}

asio::awaitable<void> EventFeed::run(Context& context, std::shared_ptr<void>) {
  const auto self = shared_from_this();
  // In the turn in which the loop ends: a stream that opens later begins another one.
  const std::shared_ptr<void> ended(nullptr, [this](void*) {
    running_ = false;
    if (streams_ > 0 && !stopped_) changed_.cancel();
  });
  for (std::uint64_t round = 0; streams_ > 0 && !stopped_; ++round) {
    ++rounds_;
    const bool at_once = std::exchange(hurried_, false);
    for (std::size_t kind = 0; kind < kinds && !stopped_; ++kind) {
      // One after the other, so that an event never costs more than one kind's share of the time.
      if (round % static_cast<std::uint64_t>(infos[kind].every) == 0 ||
          (at_once && infos[kind].shows_pending))
        co_await compute(context, static_cast<Kind>(kind), at_once);
    }
    if (at_once && !co_await context.pauses->wait(interval_ / hurried_rounds)) break;
    if (hurried_ || stopped_) continue;
    pause_.expires_after(interval_);
    boost::system::error_code ignored;
    co_await pause_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

asio::awaitable<void> EventFeed::compute(Context& context, Kind kind, bool at_once) {
  const auto& clock = context.broker.clock();
  Event& event = events_[kind];
  const MonoTime started = clock.mono();
  if (started < (at_once ? event.soon : event.again)) co_return;
  try {
    auto json = co_await event_text(context, kind);
    if (!json.empty()) publish(kind, std::move(json));
  } catch (const std::exception& failure) {
    log_error("admin", "the page's event {} could not be made: {}", infos[kind].name,
              failure.what());
  }
  // But the status, which the page needs to see that the broker is there; and the picture bounds
  // itself, and waits in between.
  if (kind == status || kind == due) co_return;
  event.again = started + (clock.mono() - started) * event_share;
  event.soon = started + (clock.mono() - started) * hurried_event_share;
}

asio::awaitable<std::string> EventFeed::event_text(Context& context, Kind kind) {
  switch (kind) {
    case status: {
      const Json json = co_await status_json(context);
      note_point(json);
      co_return text_of(json);
    }
    case wheel:
      co_return text_of(co_await wheel_page_json(context));
    case topics:
      co_return text_of(co_await topics_event_json(context, listed_at_most));
    case groups:
      co_return text_of(co_await groups_event_json(context, listed_at_most));
    case due:
      co_return co_await context.due->text(context);
    case clients:
      co_return text_of(co_await clients_json(context, listed_at_most));
    case kinds:
      break;
  }
  co_return std::string();
}

void EventFeed::publish(Kind kind, std::string json) {
  events_[kind].text = std::make_shared<const std::string>(text_of_event(infos[kind].name, json));
  if (kind == due) events_[kind].json = std::move(json);
  events_[kind].number = ++last_number_;
  // All that wait on the timer are woken by this.
  changed_.cancel();
}

void EventFeed::note_point(const Json& now) {
  const Json& delayed = now["delayed"];
  const auto at = now["at_ms"].get<std::int64_t>();
  Json point{{"at_ms", at},
             {"pending", delayed["pending"]},
             {"overdue", delayed["overdue"]},
             {"delivered_total", delayed["delivered_total"]},
             {"lag_ms", delayed["lag_ms"]}};
  // A page makes rates of these: its charts begin with the past.
  for (const char* name :
       {"requests_total", "received_bytes_total", "sent_bytes_total", "appended_records_total"})
    point[name] = now[name];
  for (const char* name : {"journal_bytes_total", "fsyncs_total", "free_bytes"})
    point[name] = now["storage"][name];
  point["cpu_seconds"] = now["process"]["cpu_seconds"];
  if (points_.size() == max_points) {
    keep_older(std::move(points_.front()));
    points_.pop_front();
  }
  points_.push_back({at, delayed["overdue"].get<std::uint64_t>(), text_of(point)});
}

// If points are too close together, the one with the most overdue records stays: that is what
// somebody looks for afterwards.
void EventFeed::keep_older(Point point) {
  if (!older_.empty() && point.at_ms - older_.back().at_ms < older_apart_ms) {
    if (point.overdue > older_.back().overdue) {
      point.at_ms = older_.back().at_ms;  // Otherwise points could be put off over and over.
      older_.back() = std::move(point);
    }
    return;
  }
  if (older_.size() == max_older_points) older_.pop_front();
  older_.push_back(std::move(point));
}

std::string EventFeed::history() const {
  std::string text = fmt::format("{{\"every_ms\":{},\"points\":[", interval_.count());
  bool first = true;
  for (const auto* const points : {&older_, &points_}) {
    for (const Point& point : *points) {
      if (!std::exchange(first, false)) text += ',';
      text += point.json;
    }
  }
  return text + "]}";
}

}  // namespace tarry::admin
