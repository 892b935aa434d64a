#include "broker/views/delayed_counts.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "broker/broker.h"
#include "storage/bucket.h"
#include "storage/bucket_store.h"
#include "storage/pending.h"

namespace tarry::broker {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;
using storage::Bucket;
using storage::BucketLevel;

void add(DelayedCounts& counts, WallTime due, milliseconds by, std::uint64_t records) {
  counts.total += records;
  const auto ms = due.time_since_epoch();
  const auto into = (ms % by + by) % by;  // Times before 1970 round down too.
  counts.counts[due - into] += records;
}

Result<> check_size(const DelayedCounts& counts) {
  if (counts.counts.size() <= max_delayed_counts) return {};
  return fail(Errc::too_large, fmt::format("the answer would have more than {} counts: choose a "
                                           "longer unit, or a shorter time range",
                                           max_delayed_counts));
}

// Reads all records in the query's time, piece by piece, so that others get at the pool.
asio::awaitable<Result<>> count_by_reading(Broker& broker, Shard& here,
                                           const storage::PendingQuery& query, milliseconds by,
                                           DelayedCounts& counts) {
  for (std::optional<WallTime> from = query.from; from;) {
    const auto piece =
        co_await here.blocking([&, at = *from] { return broker.pending().count(query, at, by); });
    if (!piece) co_return std::unexpected(piece.error());
    for (const auto& [start, records] : piece->counts) add(counts, start, by, records);
    if (auto checked = check_size(counts); !checked) co_return checked;
    from = piece->next;
  }
  co_return Result<>{};
}

// Counts by the numbers that the store keeps of each hour.  A month's numbers say too little, so it
// is read, and so is an hour of which the query has only a part.
asio::awaitable<Result<>> count_by_hours(Broker& broker, Shard& here,
                                         const storage::PendingQuery& query, milliseconds by,
                                         DelayedCounts& counts) {
  storage::BucketStore& store = broker.pending();
  std::vector<TopicId> topics;
  if (query.topic) {
    topics.push_back(*query.topic);
  } else {
    const auto totals = co_await here.blocking([&] { return store.totals(); });
    if (!totals) co_return std::unexpected(totals.error());
    for (const auto& [topic, total] : *totals)
      if (!query.hidden.contains(topic)) topics.push_back(topic);
  }
  std::map<Bucket, std::uint64_t> homes;  // Months first.
  for (const TopicId& topic : topics) {
    const auto of_topic = co_await here.blocking([&] { return store.counts(topic); });
    if (!of_topic) co_return std::unexpected(of_topic.error());
    for (const auto& [home, records] : *of_topic) homes[home] += records;
  }
  for (const auto& [home, records] : homes) {
    const WallTime from = std::max(home.start, query.from),
                   until = std::min(home.end(), query.until);
    if (from >= until) continue;
    const bool is_month = home.level == BucketLevel::month;
    // Months come first, and a month is read as a whole: its hours are counted with it.
    if (!is_month && homes.contains(storage::bucket_of(BucketLevel::month, home.start))) continue;
    if (is_month || from != home.start || until != home.end()) {
      auto within = query;
      within.from = from;
      within.until = until;
      auto read = co_await count_by_reading(broker, here, within, by, counts);
      if (!read) co_return read;
    } else {
      add(counts, home.start, by, records);
    }
    if (auto checked = check_size(counts); !checked) co_return checked;
  }
  co_return Result<>{};
}

}  // namespace

asio::awaitable<Result<DelayedCounts>> count_delayed(Broker& broker, Shard& here,
                                                     DelayedQuery query, milliseconds by,
                                                     bool written) {
  storage::PendingQuery asked_for;
  if (query.topic) asked_for.topic = query.topic->id;
  asked_for.partition = query.partition;
  asked_for.from = query.from;
  asked_for.until = query.until;
  asked_for.hidden = std::move(query.hidden);
  // The store is what is counted, so the shards write first what they still have in memory.
  if (!written) co_await write_pending(broker, here);
  // The store's numbers are of whole hours and of whole topics.
  const bool by_hours = !query.partition && by % std::chrono::hours(1) == milliseconds(0);
  DelayedCounts counts;
  Result<> done;
  if (by_hours) {
    done = co_await count_by_hours(broker, here, asked_for, by, counts);
  } else {
    done = co_await count_by_reading(broker, here, asked_for, by, counts);
  }
  if (!done) co_return std::unexpected(done.error());
  co_return counts;
}

}  // namespace tarry::broker
