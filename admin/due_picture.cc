#include "admin/due_picture.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "admin/call.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/views/delayed_records.h"
#include "broker/views/status.h"
#include "web/json_reply.h"

namespace tarry::admin {
namespace {

namespace asio = boost::asio;
using broker::DueCounts;
using broker::StretchCounts;
using std::chrono::milliseconds;
using namespace std::chrono_literals;

// Counting takes at most one part in so many of the time.
constexpr int counting_share = 40;

// However quick it was.
constexpr milliseconds least_pause = 1s;
constexpr milliseconds least_far_pause = 3s;
constexpr milliseconds longest_far_pause = 10min;
// Counting writes what memory has to the store, a little earlier than it would be; so many records
// in a second, but it waits no longer than a checkpoint would.
constexpr std::uint64_t written_per_second = 2'000;
constexpr std::uint64_t longest_write_pause = 60;

// Counted ahead of the spans that are shown, so that their ends stay known until the next time.
constexpr milliseconds minutes_ahead = 75min;
constexpr milliseconds hours_ahead = 24h * 32;
// Without a change the store is counted again when this is used up.
constexpr milliseconds far_kept = 10min;

// For the first count, before it is answered without.
constexpr milliseconds first_wait = 3s;
constexpr milliseconds wait_step = 20ms;

// The near minutes are those that begin in this one, and as many as memory knows.
constexpr milliseconds near_ahead = 4min;

constexpr std::size_t topics_by_name = 8;

WallTime floor_to(WallTime time, milliseconds by) {
  const auto ms = time.time_since_epoch();
  // The remainder of a time before 1970 is negative.
  return time - (ms % by + by) % by;
}

struct Span {
  const char* name;
  milliseconds bucket;
  std::size_t count;
};
constexpr Span minute_span{"minute", 1s, 60}, hour_span{"hour", 1min, 60}, day_span{"day", 1h, 24},
    month_span{"month", 24h, 30};

using Numbers = std::vector<std::uint64_t>;

// The parts of `counts` that lie in the span, topics with most records first by name and the others
// together.
Json span_json(const Context& context, const Span& span, WallTime now, WallTime as_of,
               const DueCounts& counts, std::uint64_t& total) {
  const WallTime from = floor_to(now, span.bucket);
  const WallTime until = from + span.bucket * static_cast<int>(span.count);
  struct OfTopic {
    std::uint64_t sum = 0;
    TopicId topic{};
    Numbers numbers{};
  };
  std::vector<OfTopic> topics;
  for (const auto& [topic, stretches] : counts) {
    OfTopic one{0, topic, Numbers(span.count)};
    for (auto at = stretches.lower_bound(from); at != stretches.end() && at->first < until; ++at) {
      one.numbers[static_cast<std::size_t>((at->first - from) / span.bucket)] += at->second;
      one.sum += at->second;
    }
    if (one.sum != 0) topics.push_back(std::move(one));
  }
  // Topics of one sum stand by their ids, so that a page does not see them change places.
  std::ranges::sort(topics, [](const OfTopic& a, const OfTopic& b) {
    return a.sum != b.sum ? a.sum > b.sum : a.topic < b.topic;
  });
  total = 0;
  Json by_name = Json::object();
  Numbers other(span.count);
  for (const auto& one : topics) {
    total += one.sum;
    const auto topic = context.here.topics().find(one.topic);
    if (topic && by_name.size() < topics_by_name) {
      by_name[topic->name] = one.numbers;
    } else {
      std::ranges::transform(other, one.numbers, other.begin(), std::plus<>());
    }
  }
  return Json{{"span", span.name},        {"bucket_ms", span.bucket.count()},
              {"from", to_ms(from)},      {"as_of_ms", to_ms(as_of)},
              {"total", total},           {"counts", std::move(by_name)},
              {"other", std::move(other)}};
}

Json unknown_span(const Span& span, WallTime now) {
  return Json{{"span", span.name},
              {"bucket_ms", span.bucket.count()},
              {"from", to_ms(floor_to(now, span.bucket))},
              {"as_of_ms", nullptr},
              {"total", nullptr},
              {"counts", nullptr},
              {"other", nullptr}};
}

// `minutes`, with those in which memory has everything as it says.
DueCounts with_near(DueCounts minutes, const broker::NearDue& near, WallTime now) {
  const WallTime from = floor_to(now, 1min), until = floor_to(near.known_until, 1min);
  // Memory does not know even the present minute as a whole.
  if (from >= until) return minutes;
  for (auto& [topic, stretches] : minutes)
    stretches.erase(stretches.begin(), stretches.lower_bound(until));
  for (const auto& [topic, seconds] : near.counts) {
    for (const auto& [start, records] : seconds) {
      if (start >= from && start < until) minutes[topic][floor_to(start, 1min)] += records;
    }
  }
  return minutes;
}

// `hours`, where the present one is the sum of its minutes from now on: the store counts what is
// overdue in it too.
DueCounts with_minutes(DueCounts hours, const DueCounts& minutes, WallTime now) {
  const WallTime hour = floor_to(now, 1h);
  for (auto& [topic, stretches] : hours)
    stretches.erase(stretches.begin(), stretches.upper_bound(hour));
  for (const auto& [topic, stretches] : minutes) {
    for (const auto& [start, records] : stretches) {
      if (floor_to(start, 1h) == hour && start >= floor_to(now, 1min))
        hours[topic][hour] += records;
    }
  }
  return hours;
}

}  // namespace

asio::awaitable<std::string> DuePicture::text(Context& context) {
  const auto& clock = context.broker.clock();
  // The first page waits a little; the others get the picture that there is.
  for (auto waited = 0ms; computing_ && text_.empty(); waited += wait_step) {
    if (waited >= first_wait || !co_await context.pauses->wait(wait_step)) break;
  }
  if (!computing_ && (text_.empty() || clock.mono() >= text_again_)) co_await compute(context);
  co_return text_;
}

asio::awaitable<void> DuePicture::compute(Context& context) {
  const auto self = shared_from_this();
  computing_ = true;
  // Also when the computation throws.
  const std::shared_ptr<void> ended(nullptr, [this](void*) { computing_ = false; });
  const auto& clock = context.broker.clock();
  const MonoTime started = clock.mono();
  const WallTime now = clock.wall();
  const auto near =
      co_await broker::near_due(context.broker, context.here, floor_to(now, 1min) + near_ahead, 1s);
  const auto took = std::chrono::ceil<milliseconds>(clock.mono() - started);
  begin_far(context, near, now);
  for (auto waited = 0ms; !far_ && counting_ && waited < first_wait; waited += wait_step) {
    if (!co_await context.pauses->wait(wait_step)) break;
  }
  text_ = json(context, near, now);
  // Many pages cost no more than one: all get this text until then.
  text_again_ = clock.mono() + std::max(least_pause, took * counting_share);
}

void DuePicture::begin_far(Context& context, const broker::NearDue& near, WallTime now) {
  const MonoTime mono = context.broker.clock().mono();
  if (counting_ || mono < far_again_) return;
  // A delivery leaves this sum as it is, and the far picture right; new and removed records change
  // it.
  const Marks marks{context.broker.pending_counts().total() + near.delivered, near.changed};
  // After the clock was set back the picture is one of the future.
  if (far_ && marks == marks_ && now >= far_->at && now - far_->at < far_kept) return;
  marks_ = marks;
  written_ = near.written;
  counting_ = true;
  asio::co_spawn(context.here.executor(), count_far(context, context.owner.lock()),
                 [self = shared_from_this()](const std::exception_ptr& failure) {
                   if (failure) log_error("admin", "the due records cannot be counted");
                 });
}

asio::awaitable<void> DuePicture::count_far(Context& context, std::shared_ptr<void>) {
  const std::shared_ptr<void> ended(nullptr, [this](void*) { counting_ = false; });
  auto& broker = context.broker;
  auto& here = context.here;
  const MonoTime started = broker.clock().mono();
  co_await broker::write_pending(broker, here);
  const WallTime now = broker.clock().wall();
  auto minutes = co_await broker::read_due(broker, here, now, now + minutes_ahead, 1min);
  auto hours = co_await broker::hour_due(broker, here, now, now + hours_ahead);
  std::uint64_t written = 0;
  for (const auto& shard : co_await broker::shard_statuses(broker, here))
    written += shard.delay.tier.written;
  const auto took = std::chrono::ceil<milliseconds>(broker.clock().mono() - started);
  const auto writes = std::chrono::seconds(
      std::min(longest_write_pause, (written - std::min(written, written_)) / written_per_second));
  const auto pause = std::clamp(took * counting_share, least_far_pause, longest_far_pause);
  // Known before the error is looked at: a store that fails is not asked again at once.
  far_again_ = broker.clock().mono() + std::max<milliseconds>(pause, writes);
  if (!minutes || !hours) {
    log_error("admin", "the due records cannot be counted: {}",
              (!minutes ? minutes.error() : hours.error()).message);
    co_return;  // The picture that was counted before stays, with its time.
  }
  far_ = Far{now, std::move(*minutes), std::move(*hours)};
}

std::string DuePicture::json(Context& context, const broker::NearDue& near, WallTime now) const {
  const std::uint64_t pending = context.broker.pending_counts().total();
  Json body;
  body["now_ms"] = to_ms(now);
  body["as_of_ms"] = far_ ? Json(to_ms(far_->at)) : Json(nullptr);
  body["total"] = pending;
  body["overdue"] = near.overdue;
  body["later"] = nullptr;
  auto& spans = body["spans"] = Json::array();
  std::uint64_t total = 0;
  spans.push_back(span_json(context, minute_span, now, now, near.counts, total));
  // More than memory can hold is due soon.
  if (near.known_until < floor_to(now, 1s) + 1min) spans.back()["approximate"] = true;
  if (!far_) {
    for (const Span& span : {hour_span, day_span, month_span})
      spans.push_back(unknown_span(span, now));
  } else {
    const auto minutes = with_near(far_->minutes, near, now);
    const auto hours = with_minutes(far_->hours, minutes, now);
    spans.push_back(span_json(context, hour_span, now, far_->at, minutes, total));
    spans.push_back(span_json(context, day_span, now, far_->at, hours, total));
    spans.push_back(span_json(context, month_span, now, far_->at, hours, total));
    const auto known = total + near.overdue;
    // The three numbers are not of one moment, so they may not add up.
    body["later"] = pending - std::min(pending, known);
  }
  return text_of(body);
}

}  // namespace tarry::admin
