#include "broker/views/topics_count.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "broker/broker.h"
#include "broker/context/yield_budget.h"
#include "storage/bucket_store.h"
#include "storage/pending.h"

namespace tarry::broker {

namespace asio = boost::asio;
using storage::BucketLevel;

void TopicsCount::count(const TopicId& topic, std::uint64_t records) {
  totals_[topic] += records;
  total_ += records;
}

std::uint64_t TopicsCount::of(const TopicId& topic) const {
  const auto found = totals_.find(topic);
  return found == totals_.end() ? 0 : found->second;
}

asio::awaitable<Result<>> TopicsCount::add(TopicId topic) {
  auto work = [&store = broker_.pending(), topic] { return store.counts(topic); };
  const auto homes = co_await here_.blocking(std::move(work));
  if (!homes) co_return std::unexpected(homes.error());
  for (const auto& [home, records] : *homes) {
    const WallTime from = std::max(home.start, from_), until = std::min(home.end(), until_);
    if (from >= until) continue;
    const bool is_month = home.level == BucketLevel::month;
    // A month is read as a whole: its hours are counted with it.
    if (!is_month && homes->contains(storage::bucket_of(BucketLevel::month, home.start))) continue;
    if (is_month || from != home.start || until != home.end()) {
      unread_[home].insert(topic);
    } else {
      count(topic, records);
    }
  }
  co_return Result<>{};
}

asio::awaitable<Result<bool>> TopicsCount::read() {
  if (unread_.empty()) co_return false;
  const auto first = unread_.begin();
  storage::PendingQuery query;
  query.from = std::max(first->first.start, from_);
  query.until = std::min(first->first.end(), until_);
  auto work = [&store = broker_.pending(), &query, at = next_.value_or(query.from)] {
    return store.count(query, at, std::chrono::hours(24), true);
  };
  const auto piece = co_await here_.blocking(std::move(work));
  if (!piece) co_return std::unexpected(piece.error());
  YieldBudget budget(here_, nullptr);
  for (const auto& [topic, stretches] : piece->topics) {
    if (budget.spend()) co_await budget.yield();
    if (!first->second.contains(topic)) continue;
    for (const auto& [start, records] : stretches) count(topic, records);
  }
  next_ = piece->next;
  if (!next_) unread_.erase(first);
  co_return !unread_.empty();
}

}  // namespace tarry::broker
