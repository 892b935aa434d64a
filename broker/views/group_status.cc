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
#include "broker/views/each_shard.h"
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

// The member of each assigned partition that exists, by the topic's name.  A leader may assign what
// it likes, millions of it.
using Assigned = std::map<std::pair<std::string, PartitionIndex>, std::string>;

// Longer metadata and assignments of members are read on the pool.
constexpr std::size_t read_here = std::size_t{64} << 10;
constexpr std::size_t read_bytes_a_microsecond = 64;

// A member's subscription and assignment.
struct Said {
  std::vector<std::string> subscribed;
  std::vector<protocol::AssignedTopic> assigned;

  std::size_t elements() const {
    std::size_t count = subscribed.size() + assigned.size();
    for (const auto& topic : assigned) count += topic.partitions.size();
    return count;
  }
};

// On any thread.
Said read_said(const SharedBytes& metadata, const SharedBytes& assignment) {
  Said said;
  if (const auto topics = protocol::subscribed_topics(metadata))
    said.subscribed.assign(topics->begin(), topics->end());
  if (auto topics = protocol::assigned_partitions(assignment)) said.assigned = std::move(*topics);
  return said;
}

MemberStatus member_status(const Group& group, const std::string& id, const GroupMember& member) {
  MemberStatus shown;
  shown.id = id;
  shown.instance_id = member.instance_id;
  shown.client_id = member.client_id;
  shown.client_host = member.client_host;
  shown.session_timeout = member.session_timeout;
  shown.is_leader = id == group.leader();
  shown.assignment = member.assignment;
  return shown;
}

OffsetStatus offset_status(const std::string& topic, const TopicPartition& place,
                           const CommittedOffset& offset) {
  OffsetStatus shown;
  shown.topic = topic;
  shown.partition = place;
  shown.committed = offset.offset;
  shown.leader_epoch = offset.leader_epoch;
  shown.committed_at = offset.committed;
  shown.metadata = offset.metadata;
  return shown;
}

asio::awaitable<void> note_assigned(Shard& shard,
                                    const std::vector<protocol::AssignedTopic>& topics,
                                    const std::string& member, Assigned& assigned,
                                    YieldBudget& budget) {
  for (const auto& [name, partitions] : topics) {
    if (budget.spend()) co_await budget.yield();
    for (const PartitionIndex partition : partitions) {
      if (budget.spend()) co_await budget.yield();
      const auto topic = shard.topics().find(name);
      if (topic && partition < topic->partitions)
        assigned.insert_or_assign({name, partition}, member);
    }
  }
}

// The group may change or go while others have their turn, so the walks go on by the last key.
asio::awaitable<void> add_members(Shard& shard, std::string_view id, GroupStatus& status,
                                  Assigned& assigned, YieldBudget& budget) {
  std::string last;
  std::size_t listed = 0;
  for (bool is_first = true;; is_first = false) {
    const GroupEntry* const group = shard.groups().find(id);
    if (group == nullptr) co_return;
    const auto& members = group->members();
    const auto next = is_first ? members.begin() : members.upper_bound(last);
    if (next == members.end()) co_return;
    last = next->first;
    auto& shown = status.members.emplace_back(member_status(*group, last, next->second));
    if (group->protocol_type() == protocol::consumer_protocol_type) {
      const SharedBytes metadata = group->metadata_of(next->second);
      const std::size_t bytes = metadata.size() + shown.assignment.size();
      auto read = [metadata, assignment = shown.assignment] {
        return read_said(metadata, assignment);
      };
      Said said;
      if (bytes > read_here) {
        said = co_await shard.blocking(std::move(read));
      } else {
        said = read();
        if (budget.spend(bytes / read_bytes_a_microsecond)) co_await budget.yield();
      }
      co_await note_assigned(shard, said.assigned, last, assigned, budget);
      const std::size_t elements = said.elements();
      if (listed + elements <= max_elements_listed) {
        listed += elements;
        shown.subscribed = std::move(said.subscribed);
        shown.assigned = std::move(said.assigned);
      }
    }
    if (budget.spend()) co_await budget.yield();
  }
}

asio::awaitable<void> add_offsets(Shard& shard, std::string_view id, GroupStatus& status,
                                  Assigned& assigned, YieldBudget& budget) {
  std::optional<TopicPartition> last;
  for (bool more = true; more;) {
    const GroupEntry* const group = shard.groups().find(id);
    if (group == nullptr) break;
    const auto& offsets = group->offsets.all();
    auto next = last ? offsets.upper_bound(*last) : offsets.begin();
    for (; next != offsets.end() && !budget.spend(); ++next) {
      last = next->first;
      const auto topic = shard.topics().find(last->topic);
      if (!topic) continue;  // It is being deleted.
      auto& shown =
          status.offsets.emplace_back(offset_status(topic->name, next->first, next->second));
      if (auto owner = assigned.extract({topic->name, last->partition}))
        shown.member = std::move(owner.mapped());
    }
    more = next != offsets.end();
    if (more) co_await budget.yield();
  }
  // The partitions that are left have an owner but no committed offset.
  while (!assigned.empty()) {
    if (budget.spend()) co_await budget.yield();
    auto owner = assigned.extract(assigned.begin());
    const auto& [name, partition] = owner.key();
    const auto topic = shard.topics().find(name);
    if (!topic || partition < 0 || partition >= topic->partitions) continue;
    auto& shown = status.offsets.emplace_back();
    shown.topic = name;
    shown.partition = {topic->id, partition};
    shown.member = std::move(owner.mapped());
  }
}

// More are sorted on the pool.
constexpr std::size_t sorted_here = 1000;

void sort_offsets(std::vector<OffsetStatus>& offsets) {
  std::ranges::sort(offsets, {}, [](const OffsetStatus& o) {
    return std::tuple(std::string_view(o.topic), o.partition.partition);
  });
}

asio::awaitable<std::optional<GroupStatus>> status_of(Shard& shard, std::string_view id) {
  const GroupEntry* const group = shard.groups().find(id);
  if (group == nullptr || group->is(GroupState::dead)) co_return std::nullopt;
  GroupStatus status;
  status.summary = summary_of(shard, *group);
  status.protocol_name = group->protocol_name();
  YieldBudget budget(shard, nullptr);
  Assigned assigned;
  co_await add_members(shard, id, status, assigned, budget);
  co_await add_offsets(shard, id, status, assigned, budget);
  if (status.offsets.size() <= sorted_here) {
    sort_offsets(status.offsets);
    co_return status;
  }
  auto work = [&offsets = status.offsets] {
    sort_offsets(offsets);
    return true;
  };
  co_await shard.blocking(std::move(work));
  co_return status;
}

// Each a copy of two names.
asio::awaitable<std::vector<GroupSummary>> summaries_of(Shard& shard) {
  std::vector<GroupSummary> summaries;
  YieldBudget budget(shard, nullptr);
  const auto& groups = shard.groups().all();
  // At once: to grow it would move all that it has, in one step.
  summaries.reserve(groups.size());
  for (auto at = groups.begin(); at != groups.end(); ++at) {
    if (budget.spend(summary_microseconds)) {
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
  std::size_t count = 0;
  for (const auto& list : lists) count += list.size();
  std::vector<GroupSummary> all;
  all.reserve(count);
  YieldBudget budget(here, nullptr);
  while (!rests.empty()) {
    if (budget.spend(summary_microseconds)) co_await budget.yield();
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
  std::vector<std::vector<GroupSummary>> of_shards(broker.shard_count());
  const auto take = [&of_shards](Shard& shard) -> asio::awaitable<void> {
    of_shards[shard.index()] = co_await summaries_of(shard);
  };
  co_await on_each_shard(broker, here, take);
  co_return co_await merged(here, std::move(of_shards));
}

asio::awaitable<std::optional<GroupStatus>> group_status(Broker& broker, Shard& here,
                                                         std::string id, std::size_t open_up_to) {
  Shard& shard = broker.shard_of_group(id);
  auto work = [&shard, &id] { return status_of(shard, id); };
  auto status = co_await broker.on(here, shard, std::move(work));
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
