#include "broker/views/due_counts.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "broker/broker.h"
#include "broker/views/each_shard.h"
#include "storage/bucket.h"
#include "storage/bucket_store.h"

namespace tarry::broker {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;

// Near records that a shard looks at before others have their turn: about 0.2 ms.
constexpr std::size_t seen_per_step = 16'384;

// Topics whose numbers are read in one piece of work on the pool.
constexpr std::size_t topics_per_step = 64;

WallTime beginning_of(WallTime time, milliseconds by) {
  const auto ms = time.time_since_epoch();
  return time - (ms % by + by) % by;
}

asio::awaitable<void> look_at_near(Shard& shard, WallTime until, milliseconds by, NearDue& out) {
  const auto stats = shard.engine().stats();
  out.known_until = std::min(out.known_until, stats.horizon);
  out.overdue += stats.overdue;
  out.delivered += stats.delivered_total;
  out.changed += stats.cancelled_total + stats.moved_total + stats.recurred_total +
                 stats.left_out_total + stats.replaced_total + stats.expired_total +
                 stats.dropped_total;
  out.written += stats.tier.written;
  // Neighbours are often of one topic.
  auto of_topic = out.counts.end();
  const auto seen = [&](const TopicPartition& partition, WallTime due) {
    if (due >= until) return;
    if (of_topic == out.counts.end() || of_topic->first != partition.topic)
      of_topic = out.counts.try_emplace(partition.topic).first;
    ++of_topic->second[beginning_of(due, by)];
  };
  std::size_t cursor = 0;
  while (shard.engine().visit_near(cursor, seen_per_step, seen)) co_await shard.steps().next();
}

}  // namespace

asio::awaitable<NearDue> near_due(Broker& broker, Shard& here, WallTime until, milliseconds by) {
  NearDue out;
  out.known_until = until;
  const auto look = [&](Shard& shard) { return look_at_near(shard, until, by, out); };
  co_await on_each_shard(broker, here, look);
  co_return out;
}

asio::awaitable<Result<DueCounts>> read_due(Broker& broker, Shard& here, WallTime from,
                                            WallTime until, milliseconds by) {
  DueCounts out;
  storage::PendingQuery query;
  query.from = from;
  query.until = until;
  for (std::optional<WallTime> at = from; at;) {
    // A piece at a time, so that others get at the pool.
    auto piece = co_await here.blocking(
        [&, begin = *at] { return broker.pending().count(query, begin, by, true); });
    if (!piece) co_return std::unexpected(piece.error());
    for (const auto& [topic, stretches] : piece->topics) {
      auto& counts = out[topic];
      for (const auto& [start, records] : stretches) counts[start] += records;
    }
    at = piece->next;
  }
  co_return out;
}

asio::awaitable<Result<HourDue>> hour_due(Broker& broker, Shard& here, WallTime from,
                                          WallTime until) {
  std::vector<TopicId> topics;
  for (const auto& topic : here.topics().by_name()) {
    // In memory, so that topics without pending records cost no read.
    if (broker.pending_counts().pending_of(topic->id) != 0) topics.push_back(topic->id);
  }
  HourDue out;
  const auto read = [&](std::span<const TopicId> some) -> Result<> {
    for (const TopicId& topic : some) {
      const auto homes = broker.pending().counts(topic);
      if (!homes) return std::unexpected(homes.error());
      for (const auto& [home, records] : *homes) {
        // Months are dealt out into hours almost a year ahead, so they are beyond too.
        if (home.level != storage::BucketLevel::hour || home.start >= until) {
          out.beyond += records;
        } else if (home.end() > from) {
          out.counts[topic][home.start] += records;
        }
      }
    }
    return {};
  };
  for (std::span<const TopicId> left = topics; !left.empty();) {
    const auto some = left.first(std::min(left.size(), topics_per_step));
    left = left.subspan(some.size());
    const auto done = co_await here.blocking([&] { return read(some); });
    if (!done) co_return std::unexpected(done.error());
  }
  co_return out;
}

}  // namespace tarry::broker
