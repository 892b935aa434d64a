#include "broker/views/metric_series.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <boost/asio/awaitable.hpp>

#include "broker/broker.h"
#include "broker/groups/groups.h"
#include "broker/partitions/topic_lags.h"
#include "broker/views/each_shard.h"
#include "broker/views/status.h"

namespace tarry::broker {
namespace {

namespace asio = boost::asio;

// Clients choose the names of groups.  One with a longer name counts among the others: cut off, two
// might be the same.
constexpr std::size_t max_label_bytes = 255;

// Less than a millisecond's work.
constexpr std::size_t entries_a_step = 4096;

// --- Groups

struct RawOffset {
  std::size_t group;  // Its place in RawGroups::members.
  TopicPartition partition;
  Offset committed;
};

struct RawGroups {
  std::vector<GroupSeries::Members> members;
  std::vector<RawOffset> offsets;  // At most max_offsets.
  // Without a series of their own:
  std::uint64_t long_named = 0;
  std::uint64_t members_of_long_named = 0;
};

// The place at which a walk through a shard's groups goes on.
struct Cursor {
  std::string group;
  std::optional<TopicPartition> partition;  // Goes on after it; empty: from the group's first.
  bool begun = false;
};

// False: the walk is at its end.
bool take_some(Shard& shard, Cursor& cursor, RawGroups& to) {
  const auto& groups = shard.groups().all();
  std::size_t left = entries_a_step;
  auto at = cursor.begun ? groups.lower_bound(cursor.group) : groups.begin();
  for (; at != groups.end(); ++at) {
    const auto& group = *at->second;
    const bool goes_on = cursor.begun && at->first == cursor.group && cursor.partition;
    if (group.is(GroupState::dead)) continue;
    const bool is_named = at->first.size() <= max_label_bytes;
    if (!is_named) {
      ++to.long_named;
      to.members_of_long_named += group.members().size();
    } else if (!goes_on) {  // The step before has counted a group that it ended in.
      to.members.push_back({at->first, group.members().size()});
    }
    const auto& offsets = group.offsets.all();
    auto offset = !is_named ? offsets.end()
                  : goes_on ? offsets.upper_bound(*cursor.partition)
                            : offsets.begin();
    for (; offset != offsets.end() && to.offsets.size() < max_offsets; ++offset) {
      to.offsets.push_back({to.members.size() - 1, offset->first, offset->second.offset});
      if (--left > 0) continue;
      cursor = {at->first, offset->first, true};
      return true;
    }
    if (--left > 0) continue;
    ++at;
    if (at == groups.end()) return false;
    cursor = {at->first, std::nullopt, true};
    return true;
  }
  return false;
}

asio::awaitable<void> take_groups(Shard& shard, RawGroups& to) {
  Cursor cursor;
  while (take_some(shard, cursor, to)) co_await shard.steps().next();
}

// Sorted by group, topic and partition.
std::vector<RawOffset> sorted(const storage::TopicsImage& topics, RawGroups& raw) {
  std::unordered_map<TopicId, std::string_view> names;
  for (const auto& offset : raw.offsets) {
    auto& name = names[offset.partition.topic];
    if (!name.empty()) continue;
    if (const auto topic = topics.find(offset.partition.topic)) name = topic->name;
  }
  // Offsets of a topic that is being deleted.
  std::erase_if(raw.offsets,
                [&](const RawOffset& offset) { return names[offset.partition.topic].empty(); });
  std::ranges::sort(raw.offsets, {}, [&](const RawOffset& offset) {
    return std::tuple(std::string_view(raw.members[offset.group].group),
                      names[offset.partition.topic], offset.partition.partition);
  });
  return std::move(raw.offsets);
}

// On the pool: there may be a hundred thousand offsets, and as many groups as clients like.
GroupSeries group_series_of(const storage::TopicsImage& topics, RawGroups& raw,
                            const std::vector<RawOffset>& offsets,
                            const std::vector<PartitionStatus>& logs, std::size_t max_series) {
  GroupSeries series;
  series.groups = raw.members.size() + raw.long_named;
  series.other_members = raw.members_of_long_named;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    // Beyond max_series no log is opened for a metric; those that are open anyway count.
    if (!logs[i].open) continue;
    const auto from = std::max(offsets[i].committed, logs[i].log_start);
    const auto lag =
        static_cast<std::uint64_t>(std::max<std::int64_t>(logs[i].high_watermark - from, 0));
    if (i >= max_series) {
      series.has_others = true;
      series.other_lags += lag;
    } else if (const auto topic = topics.find(offsets[i].partition.topic)) {
      series.lags.push_back(
          {raw.members[offsets[i].group].group, topic->name, offsets[i].partition.partition, lag});
    }
  }
  auto& members = raw.members;
  std::ranges::sort(members, {}, &GroupSeries::Members::group);
  for (std::size_t i = max_series; i < members.size(); ++i)
    series.other_members += members[i].members;
  if (members.size() > max_series) members.resize(max_series);
  series.members = std::move(members);
  return series;
}

}  // namespace

asio::awaitable<GroupSeries> group_series(Broker& broker, Shard& here, std::size_t max_series) {
  auto raw = std::make_shared<RawGroups>();
  const auto take = [&to = *raw](Shard& shard) { return take_groups(shard, to); };
  co_await on_each_shard(broker, here, take);
  const auto topics = broker.topics().image();
  // Named and moved: g++ 12 destroys a temporary callable twice (GCC bug 99576).
  auto sort = [raw, topics] { return sorted(*topics, *raw); };
  const auto offsets = co_await here.blocking(std::move(sort));
  std::vector<TopicPartition> partitions;
  partitions.reserve(offsets.size());
  for (const auto& offset : offsets) partitions.push_back(offset.partition);
  const auto logs = co_await partition_statuses(broker, here, std::move(partitions), max_series);
  auto work = [&raw = *raw, &topics = *topics, &offsets, &logs, max_series] {
    return group_series_of(topics, raw, offsets, logs, max_series);
  };
  co_return co_await here.blocking(std::move(work));
}

// --- Topics

namespace {

using Lags = std::map<TopicId, TopicLags::Lag>;

asio::awaitable<void> take_lags(Shard& shard, Lags& to) {
  std::optional<TopicId> after;
  while (true) {
    const auto& all = shard.topic_lags().all();
    auto at = after ? all.upper_bound(*after) : all.begin();
    for (std::size_t left = entries_a_step; left > 0 && at != all.end(); --left, ++at) {
      to[at->first].add(at->second);
      after = at->first;
    }
    if (at == all.end()) co_return;
    co_await shard.steps().next();
  }
}

// By the topics' names.  On the pool.
TopicSeries series_of(const storage::TopicsImage& topics, const Lags& lags,
                      const storage::PendingCounts& counts, std::size_t max_series) {
  TopicSeries series;
  for (const auto& topic : topics.by_name()) {
    if (const auto count = counts.pending_of(topic->id); count > 0) {
      if (series.pending.size() < max_series) {
        series.pending.push_back({topic->name, count});
      } else {
        series.other_pending += count;
      }
    }
    const auto lag = lags.find(topic->id);
    if (lag == lags.end()) continue;
    const double seconds = std::chrono::duration<double>(lag->second.sum).count();
    if (series.deliveries.size() < max_series) {
      series.deliveries.push_back({topic->name, lag->second.records, seconds});
    } else {
      series.other_deliveries.records += lag->second.records;
      series.other_deliveries.lag_seconds += seconds;
    }
  }
  return series;
}

}  // namespace

asio::awaitable<TopicSeries> topic_series(Broker& broker, Shard& here, std::size_t max_series) {
  const auto lags = std::make_shared<Lags>();
  const auto take = [&to = *lags](Shard& shard) { return take_lags(shard, to); };
  co_await on_each_shard(broker, here, take);
  auto work = [topics = broker.topics().image(), lags, &counts = broker.pending_counts(),
               max_series] { return series_of(*topics, *lags, counts, max_series); };
  co_return co_await here.blocking(std::move(work));
}

// --- Users

namespace {

constexpr std::string_view principals_type = "User:";

UserSeries series_of(const SecurityImage& image, const storage::PendingCounts& counts,
                     std::size_t max_series) {
  auto uses = counts.uses();
  UserSeries series;
  std::map<std::string_view, storage::PendingUse> by_user;
  const auto take = [&](std::string_view user, PrincipalId principal) {
    const auto use = uses.extract(principal);
    if (!use.empty() && use.mapped() != storage::PendingUse{}) by_user.emplace(user, use.mapped());
  };
  take("ANONYMOUS", anonymous_principal);
  for (const auto& [name, principal] : image.principals())
    take(std::string_view(name).substr(principals_type.size()), principal);
  for (const auto& [user, use] : by_user) {
    if (series.pending.size() < max_series)
      series.pending.push_back({std::string(user), use});
    else
      series.other.add(use);
  }
  // These are of users without a number.
  for (const auto& [principal, use] : uses) series.other.add(use);
  return series;
}

}  // namespace

asio::awaitable<UserSeries> user_series(Broker& broker, Shard& here, std::size_t max_series) {
  auto work = [image = broker.security(here).image, &counts = broker.pending_counts(), max_series] {
    return series_of(*image, counts, max_series);
  };
  co_return co_await here.blocking(std::move(work));
}

}  // namespace tarry::broker
