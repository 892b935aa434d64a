#include "admin/due_picture.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <new>
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

// Counting takes at most one part in so many of the time, and after a change by hand so many.
constexpr int counting_share = 40, hurried_counting_share = 4;

// However quick it was.
constexpr milliseconds min_pause = 1s;
constexpr milliseconds min_far_pause = 3s, min_hurried_pause = 250ms;
constexpr milliseconds max_far_pause = 10min;
// Counting writes what memory has to the store, a little earlier than it would be; so many records
// in a second, but it waits no longer than a checkpoint would.
constexpr std::uint64_t written_per_second = 2'000;
constexpr std::uint64_t max_write_pause = 60;

// Counted ahead of the hour that is shown, so that it stays known until the next time.
constexpr milliseconds minutes_ahead = 75min;
// Without a change the store is counted again when this is used up: for so long the ends of the
// spans are counted by the second; shorter, where that would be more counts of an end than this.
constexpr milliseconds max_kept = 10min, min_kept = 10s;
constexpr std::size_t max_seconds = 100'000;
// The coming hour is counted by the second too: where memory does not know all of the present
// minute, what has been delivered in it would count.  But not with more counts than this.
constexpr std::size_t max_minutes_seconds = 200'000;

// For the first count, before it is answered without; and for another one, before it is answered
// with the one before.
constexpr milliseconds first_wait = 3s, next_wait = 500ms;
constexpr milliseconds wait_step = 20ms;

// The near minutes are those that begin in this one, and as many as memory knows.
constexpr milliseconds near_ahead = 4min;

constexpr std::size_t topics_by_name = 8;

WallTime floor_to(WallTime time, milliseconds by) {
  const auto ms = time.time_since_epoch();
  // The remainder of a time before 1970 is negative.
  return time - (ms % by + by) % by;
}

WallTime ceil_to(WallTime time, milliseconds by) {
  const WallTime floor = floor_to(time, by);
  return floor == time ? time : floor + by;
}

// `fine`: what the counts of the bucket are made of, in which the span ends.
struct Span {
  const char* name;
  milliseconds bucket;
  milliseconds length;
  milliseconds fine;

  // When it ends for one who looks at `now`.
  WallTime until(WallTime now) const { return ceil_to(now, 1s) + length; }
};
constexpr Span minute_span{"minute", 1s, 1min, 1s}, hour_span{"hour", 1min, 1h, 1min},
    day_span{"day", 1h, 24h, 1h}, month_span{"month", 24h, 24h * 30, 1h};

using Numbers = std::vector<std::uint64_t>;

Json empty_json(const Span& span, WallTime now, WallTime until) {
  return Json{{"span", span.name},
              {"bucket_ms", span.bucket.count()},
              {"from", to_ms(floor_to(now, span.bucket))},
              {"until", to_ms(until)},
              {"as_of_ms", nullptr},
              {"total", nullptr},
              {"counts", nullptr},
              {"other", nullptr}};
}

// The parts of `counts` that lie in the span, topics with most records first by name and the others
// together.
Json span_json(const Context& context, const Span& span, WallTime now, WallTime until,
               WallTime as_of, const DueCounts& counts, std::uint64_t& total) {
  const WallTime from = floor_to(now, span.bucket);
  const auto buckets = static_cast<std::size_t>((ceil_to(until, span.bucket) - from) / span.bucket);
  struct OfTopic {
    std::uint64_t sum = 0;
    TopicId topic{};
    Numbers numbers{};
  };
  std::vector<OfTopic> topics;
  for (const auto& [topic, stretches] : counts) {
    OfTopic one{0, topic, Numbers(buckets)};
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
  Numbers other(buckets);
  for (const auto& one : topics) {
    total += one.sum;
    const auto topic = context.here.topics().find(one.topic);
    if (topic && by_name.size() < topics_by_name) {
      by_name[topic->name] = one.numbers;
    } else {
      std::ranges::transform(other, one.numbers, other.begin(), std::plus<>());
    }
  }
  Json json = empty_json(span, now, until);
  json["as_of_ms"] = to_ms(as_of);
  json["total"] = total;
  json["counts"] = std::move(by_name);
  json["other"] = std::move(other);
  return json;
}

// Adds what of `counts` is due from `from` on and before `until`, as if it were due at `at`.
void add_part(DueCounts& to, WallTime at, const DueCounts& counts, WallTime from, WallTime until) {
  for (const auto& [topic, stretches] : counts) {
    std::uint64_t sum = 0;
    for (auto it = stretches.lower_bound(from); it != stretches.end() && it->first < until; ++it)
      sum += it->second;
    // A topic without records there gets no entry, because each one is a line of the page.
    if (sum != 0) to[topic][at] += sum;
  }
}

// `counts` of stretches of `fine`, without what is due from `until` on.  `until` is not before
// end.at, and not after the time that end.seconds know.
template <typename End>
DueCounts cut(DueCounts counts, milliseconds fine, const End& end, WallTime until) {
  const WallTime last = floor_to(until, fine);
  for (auto& [topic, stretches] : counts)
    stretches.erase(stretches.lower_bound(last), stretches.end());
  if (last <= end.at) add_part(counts, last, end.base, last, end.at);
  add_part(counts, last, end.seconds, std::max(last, end.at), until);
  return counts;
}

std::uint64_t sum_of(const DueCounts& counts) {
  std::uint64_t sum = 0;
  for (const auto& [topic, stretches] : counts)
    for (const auto& [start, records] : stretches) sum += records;
  return sum;
}

// `counts` of stretches of `by` from now on, with those in which memory has everything as it says.
DueCounts with_near(DueCounts counts, milliseconds by, const broker::NearDue& near, WallTime now) {
  const WallTime from = floor_to(now, by), until = std::max(from, floor_to(near.known_until, by));
  for (auto& [topic, stretches] : counts)
    stretches.erase(stretches.begin(), stretches.lower_bound(until));
  for (const auto& [topic, seconds] : near.counts) {
    for (const auto& [start, records] : seconds) {
      if (start >= from && start < until) counts[topic][floor_to(start, by)] += records;
    }
  }
  return counts;
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

std::string DuePicture::for_reader(std::string text, Context& context,
                                   const broker::PendingReader& reader) {
  if (text.empty() || reader.may_read_all(context.broker, context.here)) return text;
  Json body = parse_json(text);
  for (Json& span : body["spans"]) {
    if (span["counts"].is_null()) continue;  // Not counted yet.
    auto other = span["other"].get<Numbers>();
    Json seen = Json::object();
    for (const auto& [topic, counts] : span["counts"].items()) {
      const auto numbers = counts.get<Numbers>();
      if (reader.may_read(context.broker, context.here, topic)) {
        seen[topic] = numbers;
      } else {
        std::ranges::transform(other, numbers, other.begin(), std::plus<>());
      }
    }
    span["counts"] = std::move(seen);
    span["other"] = other;
  }
  return text_of(body);
}

void DuePicture::hurry() {
  hurried_ = true;
  text_again_ = {};
}

asio::awaitable<void> DuePicture::compute(Context& context) {
  const auto self = shared_from_this();
  computing_ = true;
  // It ends also when the computation throws.
  const std::shared_ptr<void> ended(nullptr, [this](void*) { computing_ = false; });
  const auto& clock = context.broker.clock();
  const MonoTime started = clock.mono();
  WallTime now = clock.wall();
  auto near =
      co_await broker::near_due(context.broker, context.here, floor_to(now, 1min) + near_ahead, 1s);
  const auto took = std::chrono::ceil<milliseconds>(clock.mono() - started);
  if (begin_far(context, near, now)) {
    const auto patience = far_ ? next_wait : first_wait;
    for (auto waited = 0ms; counting_ && waited < patience; waited += wait_step) {
      if (!co_await context.pauses->wait(wait_step)) break;
    }
    // Without a new moment the near part would be older than the far one.
    now = clock.wall();
    near = co_await broker::near_due(context.broker, context.here, floor_to(now, 1min) + near_ahead,
                                     1s);
  }
  text_ = json(context, near, now);
  // Many pages cost no more than one: all get this text until then.
  text_again_ = clock.mono() + std::max(min_pause, took * counting_share);
}

DuePicture::Marks DuePicture::marks_of(const Context& context, const broker::NearDue& near) {
  return {context.broker.pending_counts().total() + near.delivered, near.changed};
}

bool DuePicture::begin_far(Context& context, const broker::NearDue& near, WallTime now) {
  const MonoTime mono = context.broker.clock().mono();
  if (counting_) return !far_;
  if (mono < (hurried_ ? far_soon_ : far_again_)) return false;
  const Marks marks = marks_of(context, near);
  if (far_ && far_->marks == marks && now >= far_->at && now - far_->at < far_->kept) return false;
  written_ = near.written;
  hurried_ = false;
  counting_ = true;
  try {
    asio::co_spawn(context.here.executor(), count_far(context, marks, context.owner.lock()),
                   [self = shared_from_this()](const std::exception_ptr& failure) {
                     if (failure) log_error("admin", "the due records cannot be counted");
                   });
  } catch (const std::bad_alloc&) {
    counting_ = false;  // Or they would never be counted again.
    throw;
  }
  return true;
}

asio::awaitable<void> DuePicture::count_far(Context& context, Marks marks, std::shared_ptr<void>) {
  const std::shared_ptr<void> ended(nullptr, [this](void*) { counting_ = false; });
  auto& broker = context.broker;
  auto& here = context.here;
  const MonoTime started = broker.clock().mono();
  co_await broker::write_pending(broker, here);
  auto far = co_await read_far(broker, here);
  std::uint64_t written = 0;
  for (const auto& shard : co_await broker::shard_statuses(broker, here))
    written += shard.delay.tier.written;
  const auto took = std::chrono::ceil<milliseconds>(broker.clock().mono() - started);
  const auto writes = std::chrono::seconds(
      std::min(max_write_pause, (written - std::min(written, written_)) / written_per_second));
  const auto pause = std::clamp(took * counting_share, min_far_pause, max_far_pause);
  // Known before the error is looked at: a store that fails is not asked again at once.
  far_again_ = broker.clock().mono() + std::max<milliseconds>(pause, writes);
  far_soon_ = broker.clock().mono() + std::max(min_hurried_pause, took * hurried_counting_share);
  if (!far) {
    log_error("admin", "the due records cannot be counted: {}", far.error().message);
    co_return;  // The last counts stay, with their time.
  }
  far->marks = marks;
  far_ = std::move(*far);
}

asio::awaitable<Result<DuePicture::Far>> DuePicture::read_far(broker::Broker& broker,
                                                              broker::Shard& here) {
  Far far;
  far.at = broker.clock().wall();
  const WallTime hours_until = ceil_to(month_span.until(far.at) + max_kept, 1h);
  auto hours = co_await broker::hour_due(broker, here, far.at, hours_until);
  if (!hours) co_return std::unexpected(hours.error());
  far.hours = std::move(*hours);
  const std::size_t topics = std::max<std::size_t>(1, far.hours.counts.size());
  far.minutes_by = topics * static_cast<std::size_t>(minutes_ahead / 1s) <= max_minutes_seconds
                       ? milliseconds(1s)
                       : 1min;
  auto minutes =
      co_await broker::read_due(broker, here, far.at, far.at + minutes_ahead, far.minutes_by);
  if (!minutes) co_return std::unexpected(minutes.error());
  far.minutes = std::move(*minutes);
  far.kept =
      std::clamp<milliseconds>(std::chrono::seconds(max_seconds / topics), min_kept, max_kept);
  const std::array<std::pair<const Span*, End*>, 3> ends{
      {{&hour_span, &far.hour}, {&day_span, &far.day}, {&month_span, &far.month}}};
  for (const auto& [span, end] : ends) {
    end->at = span->until(far.at);
    auto base =
        co_await broker::read_due(broker, here, floor_to(end->at, span->fine), end->at, span->fine);
    if (!base) co_return std::unexpected(base.error());
    end->base = std::move(*base);
    auto seconds = co_await broker::read_due(broker, here, end->at, end->at + far.kept, 1s);
    if (!seconds) co_return std::unexpected(seconds.error());
    end->seconds = std::move(*seconds);
  }
  co_return far;
}

std::string DuePicture::json(Context& context, const broker::NearDue& near, WallTime now) const {
  Json body;
  body["now_ms"] = to_ms(now);
  body["as_of_ms"] = far_ ? Json(to_ms(far_->at)) : Json(nullptr);
  body["current"] = far_ && far_->marks == marks_of(context, near);
  body["total"] = context.broker.pending_counts().total();
  body["overdue"] = near.overdue;
  body["later"] = nullptr;
  auto& spans = body["spans"] = Json::array();
  std::uint64_t total = 0;
  const WallTime minute_until = minute_span.until(now);
  spans.push_back(span_json(context, minute_span, now, minute_until, now, near.counts, total));
  // More than memory can hold is due soon.
  if (near.known_until < minute_until) spans.back()["approximate"] = true;
  if (!far_) {
    for (const Span& span : {hour_span, day_span, month_span})
      // The page draws all spans from the start, so it gets those that are not counted yet without
      // numbers.
      spans.push_back(empty_json(span, now, span.until(now)));
    return text_of(body);
  }
  // If counting takes long, the ends stay behind.
  const WallTime seen = std::clamp(now, far_->at, far_->at + far_->kept - 1s);
  const auto minutes = with_near(far_->minutes, far_->minutes_by, near, now);
  const auto hours = with_minutes(far_->hours.counts, minutes, now);
  const auto add = [&](const Span& span, const DueCounts& counts, const End& end) {
    const WallTime until = span.until(seen);
    spans.push_back(
        span_json(context, span, now, until, far_->at, cut(counts, span.fine, end, until), total));
  };
  add(hour_span, minutes, far_->hour);
  add(day_span, hours, far_->day);
  add(month_span, hours, far_->month);
  // Not what is pending now without these: that is of another moment.
  const auto in_hours = sum_of(hours);
  // The hours and the minutes were read one after the other, so the sum may be a little smaller
  // than its part.
  const std::uint64_t later = far_->hours.beyond + in_hours - std::min(in_hours, total);
  body["later"] = later;
  body["total"] = near.overdue + total + later;
  return text_of(body);
}

}  // namespace tarry::admin
