#include "broker/views/group_status.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "broker/broker.h"
#include "broker/context/yield_budget.h"
#include "broker/groups/groups.h"
#include "broker/views/status.h"

namespace tarry::broker {
namespace {

namespace asio = boost::asio;

// On the group's shard, as what follows.
GroupSummary summary_of(Shard& shard, const GroupEntry& group) {
  GroupSummary summary;
  summary.id = group.id();
  summary.state = name_of(group.state());
  summary.protocol_type = group.protocol_type();
  summary.shard = shard.index();
  summary.generation = group.generation();
  summary.changed = group.changed();
  summary.members = group.members().size();
  summary.offsets = group.offsets.all().size();
  return summary;
}

std::optional<GroupStatus> status_of(Shard& shard, std::string_view id) {
  const GroupEntry* const group = shard.groups().find(id);
  if (group == nullptr || group->is(GroupState::dead)) return std::nullopt;
  GroupStatus status;
  status.summary = summary_of(shard, *group);
  status.protocol_name = group->protocol_name();
  const bool consumers = group->protocol_type() == protocol::consumer_protocol_type;
  // The member of each assigned partition, by the topic's name: an assigned topic need not exist.
  std::map<std::pair<std::string, PartitionIndex>, std::string> assigned;
  for (const auto& [member_id, member] : group->members()) {
    auto& shown = status.members.emplace_back();
    shown.id = member_id;
    shown.instance_id = member.instance_id;
    shown.client_id = member.client_id;
    shown.client_host = member.client_host;
    shown.session_timeout = member.session_timeout;
    shown.is_leader = member_id == group->leader();
    shown.assignment = member.assignment;
    if (!consumers) continue;
    if (const auto topics = protocol::subscribed_topics(group->metadata_of(member)))
      shown.subscribed.assign(topics->begin(), topics->end());
    shown.assigned = protocol::assigned_partitions(member.assignment)
                         .value_or(std::vector<protocol::AssignedTopic>{});
    for (const auto& topic : shown.assigned)
      for (const auto partition : topic.partitions)
        assigned.insert_or_assign({topic.topic, partition}, member_id);
  }

  for (const auto& [place, offset] : group->offsets.all()) {
    const auto topic = shard.topics().find(place.topic);
    if (!topic) continue;  // It is being deleted.
    auto& shown = status.offsets.emplace_back();
    shown.topic = topic->name;
    shown.partition = place;
    shown.committed = offset.offset;
    shown.leader_epoch = offset.leader_epoch;
    shown.committed_at = offset.committed;
    shown.metadata = offset.metadata;
    if (auto owner = assigned.extract({topic->name, place.partition}))
      shown.member = std::move(owner.mapped());
  }
  // The partitions that are left have an owner but no committed offset.
  for (auto& [place, member_id] : assigned) {
    const auto topic = shard.topics().find(place.first);
    if (!topic || place.second < 0 || place.second >= topic->partitions) continue;
    auto& shown = status.offsets.emplace_back();
    shown.topic = place.first;
    shown.partition = {topic->id, place.second};
    shown.member = std::move(member_id);
  }
  std::ranges::sort(status.offsets, {}, [](const OffsetStatus& o) {
    return std::tuple(std::string_view(o.topic), o.partition.partition);
  });
  return status;
}

// Each a copy of two names.
asio::awaitable<std::vector<GroupSummary>> summaries_of(Shard& shard) {
  std::vector<GroupSummary> summaries;
  YieldBudget budget(shard, nullptr);
  const auto& groups = shard.groups().all();
  for (auto at = groups.begin(); at != groups.end(); ++at) {
    if (budget.spend()) {
      // Groups may come and go meanwhile, this one too.
      const std::string next = at->first;
      co_await budget.yield();
      at = groups.lower_bound(next);
      if (at == groups.end()) break;
    }
    if (!at->second->is(GroupState::dead)) summaries.push_back(summary_of(shard, *at->second));
  }
  co_return summaries;
}

// Both lists are in order already.
asio::awaitable<std::vector<GroupSummary>> merged(Shard& here,
                                                  std::vector<std::vector<GroupSummary>> lists) {
  using Rest = std::pair<std::vector<GroupSummary>::iterator, std::vector<GroupSummary>::iterator>;
  std::vector<Rest> rests;
  for (auto& list : lists) {
    if (!list.empty()) rests.emplace_back(list.begin(), list.end());
  }
  // A heap whose front has the first id of all.
  const auto behind = [](const Rest& a, const Rest& b) { return a.first->id > b.first->id; };
  std::ranges::make_heap(rests, behind);
  std::vector<GroupSummary> all;
  YieldBudget budget(here, nullptr);
  while (!rests.empty()) {
    if (budget.spend()) co_await budget.yield();
    std::ranges::pop_heap(rests, behind);
    auto& [first, end] = rests.back();
    all.push_back(std::move(*first));
    if (++first == end) {
      rests.pop_back();
    } else {
      std::ranges::push_heap(rests, behind);
    }
  }
  co_return all;
}

}  // namespace

asio::awaitable<std::vector<GroupSummary>> group_summaries(Broker& broker, Shard& here) {
  std::vector<std::vector<GroupSummary>> of_shards;
  for (std::size_t i = 0; i < broker.shard_count(); ++i) {
    auto work = [&shard = broker.shard(i)] { return summaries_of(shard); };
    of_shards.push_back(co_await broker.on(here, broker.shard(i), std::move(work)));
  }
  co_return co_await merged(here, std::move(of_shards));
}

asio::awaitable<std::optional<GroupStatus>> group_status(Broker& broker, Shard& here,
                                                         std::string id, std::size_t open_up_to) {
  Shard& shard = broker.shard_of_group(id);
  std::optional<GroupStatus> status;
  auto work = [&shard, &id, &status]() -> asio::awaitable<void> {
    status = status_of(shard, id);
    co_return;
  };
  co_await broker.on(here, shard, std::move(work));
  if (!status) co_return status;

  std::vector<TopicPartition> partitions;
  partitions.reserve(status->offsets.size());
  for (const auto& offset : status->offsets) partitions.push_back(offset.partition);
  const auto logs = co_await partition_statuses(broker, here, std::move(partitions), open_up_to);
  for (std::size_t i = 0; i < logs.size(); ++i) {
    if (!logs[i].open) continue;
    auto& offset = status->offsets[i];
    offset.log_start = logs[i].log_start;
    offset.high_watermark = logs[i].high_watermark;
    // Records that retention has removed are no lag.
    const Offset from = std::max(offset.committed.value_or(0), logs[i].log_start);
    offset.lag = std::max<std::int64_t>(logs[i].high_watermark - from, 0);
  }
  co_return status;
}

}  // namespace tarry::broker
