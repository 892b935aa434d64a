// OffsetFetch (key 9), versions 1 to 9.
//
// The durable committed offsets of a group.  An unknown group, topic or partition has
// committed nothing, which is offset -1 and no error.  From version 2 on no list of topics means
// all; from version 8 on it is asked for several groups at once.  There are no transactions, so
// what require_stable asks for always holds.

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "broker/broker.h"
#include "broker/context/freed_on_pool.h"
#include "broker/context/yield_budget.h"
#include "broker/groups/groups.h"
#include "broker/handlers/all.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/run.h"
#include "broker/scatter.h"
#include "protocol/messages/offset_fetch.h"

namespace tarry::broker {

using protocol::ErrorCode;
using protocol::OffsetFetchRequest;
using protocol::OffsetFetchResponse;
namespace asio = boost::asio;

namespace {

using GroupTopics = std::vector<OffsetFetchResponse::GroupTopic>;

class Room {
 public:
  explicit Room(std::size_t bytes) : left_(bytes) {}

  // False when it is used up, from then on.
  bool take_topic() { return take(sizeof(OffsetFetchResponse::GroupTopic)); }
  bool take(const CommittedOffset* offset) {
    const std::size_t bytes = sizeof(OffsetFetchResponse::GroupTopicPartition) +
                              (offset == nullptr ? 0 : offset->metadata.size());
    return take(bytes);
  }

  std::size_t left() const { return left_; }

 private:
  bool take(std::size_t bytes) {
    left_ = bytes < left_ ? left_ - bytes : 0;
    return left_ > 0;
  }

  std::size_t left_;
};

OffsetFetchResponse::GroupTopicPartition answer_of(PartitionIndex partition,
                                                   const CommittedOffset* offset) {
  if (offset == nullptr) return {partition, -1, -1, "", ErrorCode::none};
  return {partition, offset->offset, offset->leader_epoch, offset->metadata, ErrorCode::none};
}

const GroupOffsets* offsets_of(Shard& shard, std::string_view id) {
  const GroupEntry* const group = shard.groups().find(id);
  return group == nullptr ? nullptr : &group->offsets;
}

// On the group's shard, which may do without the group while others have their turn.  Empty when
// there is no room for it.  `Topic` is that of a request for one group, or for several.
template <typename Topic>
asio::awaitable<std::optional<GroupTopics>> committed_of(Shard& shard, std::string_view id,
                                                         const std::vector<Topic>& asked,
                                                         Room& room, YieldBudget& budget) {
  GroupTopics topics;
  const FreedOnPool freed(shard, topics);  // If there is no room for them.
  topics.reserve(asked.size());
  for (const auto& topic : asked) {
    if (!room.take_topic()) co_return std::nullopt;
    auto& answer = topics.emplace_back();
    answer.name = topic.name;
    if (budget.spend()) co_await budget.yield();
    const auto known = shard.topics().find(topic.name);
    for (const auto partition : topic.partition_indexes) {
      if (budget.spend()) co_await budget.yield();
      // Looked up each time, because the group may go while others have their turn.
      const GroupOffsets* const offsets = known ? offsets_of(shard, id) : nullptr;
      const auto* const offset =
          offsets == nullptr ? nullptr : offsets->find({known->id, partition});
      if (!room.take(offset)) co_return std::nullopt;
      answer.partitions.push_back(answer_of(partition, offset));
    }
  }
  co_return topics;
}

// The same of all that it has committed.
asio::awaitable<std::optional<GroupTopics>> all_committed(Shard& shard, std::string_view id,
                                                          Room& room, YieldBudget& budget) {
  GroupTopics topics;
  std::optional<TopicPartition> last;  // They stand in the order of topics.
  for (bool more = true; more;) {
    const GroupOffsets* const offsets = offsets_of(shard, id);
    if (offsets == nullptr) break;
    const auto& all = offsets->all();
    // The map may have changed while others had their turn, so the walk goes on by its last key.
    auto next = last ? all.upper_bound(*last) : all.begin();
    for (; next != all.end() && !budget.spend(); ++next) {
      const auto& [place, offset] = *next;
      const auto topic = shard.topics().find(place.topic);
      if (topic) {  // Null: it is being deleted.
        if (topics.empty() || !last || last->topic != place.topic)
          topics.push_back({topic->name, {}, {}});
        if (!room.take(&offset)) co_return std::nullopt;
        topics.back().partitions.push_back(answer_of(place.partition, &offset));
      }
      last = place;
    }
    more = next != all.end();
    if (more) co_await budget.yield();
  }
  co_return topics;
}

// Topics that the client may not see are left out if it asked for all.  False: nobody waits for
// the answer any more.
asio::awaitable<bool> hide_topics(const RequestContext& context, GroupTopics& topics,
                                  bool asked_for_all, YieldBudget& budget) {
  if (!context.shard.config().authorizer.enabled) co_return true;
  GroupTopics visible;
  const FreedOnPool freed(context.shard, visible);
  for (auto& topic : topics) {
    if (budget.spend() && !co_await budget.yield()) co_return false;
    if (asked_for_all) {
      if (is_allowed(context, AclOperation::describe, AclResource::topic, topic.name))
        visible.push_back(std::move(topic));
      continue;
    }
    if (authorize_topic(context, AclOperation::describe, topic.name)) continue;
    for (auto& partition : topic.partitions) {
      if (budget.spend() && !co_await budget.yield()) co_return false;
      partition = {partition.partition_index, -1, -1, "", ErrorCode::topic_authorization_failed};
    }
  }
  if (asked_for_all) std::swap(topics, visible);
  co_return true;
}

// Each shard is asked once for its share of so many, unless one turn's answers are long.
constexpr std::size_t fetched_together = 256;
constexpr std::size_t fetched_bytes_a_turn = std::size_t{1} << 20;

// The part of a request about one group, in either form; without topics it asks for all.
struct FetchedGroup {
  std::string_view id;
  std::size_t place;  // In the answer.
  const std::vector<OffsetFetchRequest::Topic>* of_one = nullptr;
  const std::vector<OffsetFetchRequest::GroupTopic>* of_several = nullptr;

  bool asks_for_all() const { return of_one == nullptr && of_several == nullptr; }
};

FetchedGroup asked_of_one(const OffsetFetchRequest& request) {
  return {request.group_id, 0, request.topics ? &*request.topics : nullptr, nullptr};
}
FetchedGroup asked_of(const OffsetFetchRequest::Group& group, std::size_t place) {
  return {group.group_id, place, nullptr, group.topics ? &*group.topics : nullptr};
}

struct FetchedSome {
  std::vector<std::optional<GroupTopics>> groups;
  std::size_t bytes = 0;
};

// On the groups' shard: those of the first of `groups`.
asio::awaitable<FetchedSome> fetch_some(Shard& shard, std::span<const FetchedGroup> groups,
                                        Room& room) {
  FetchedSome fetched;
  const std::size_t before = room.left();
  YieldBudget budget(shard, nullptr);
  for (const FetchedGroup& asked : groups) {
    if (budget.spend()) co_await budget.yield();
    auto work = asked.asks_for_all() ? all_committed(shard, asked.id, room, budget)
                : asked.of_one != nullptr
                    ? committed_of(shard, asked.id, *asked.of_one, room, budget)
                    : committed_of(shard, asked.id, *asked.of_several, room, budget);
    auto found = co_await std::move(work);
    fetched.groups.push_back(std::move(found));
    fetched.bytes = before - room.left();
    // Behind at least one, or the loop of the caller would never end.
    if (fetched.bytes > fetched_bytes_a_turn) break;
  }
  co_return fetched;
}

struct OffsetFetching {
  RequestContext& context;
  std::vector<OffsetFetchResponse::Group>& answers;
  Room room;
  AnswerMemory memory;
  YieldBudget budget;
};

// False: no memory, and nobody waits for the answer any more.
asio::awaitable<bool> fetch_on(OffsetFetching& fetching, Shard& shard,
                               std::span<const FetchedGroup> left) {
  RequestContext& context = fetching.context;
  while (!left.empty()) {
    auto work = [&shard, left, &room = fetching.room] { return fetch_some(shard, left, room); };
    auto fetched = co_await context.broker.on(context.shard, shard, std::move(work));
    // Once for the answer itself, and once for its bytes on the wire.
    if (fetching.memory.spend(2 * fetched.bytes) && !co_await fetching.memory.take())
      co_return false;
    for (std::size_t i = 0; i < fetched.groups.size(); ++i) {
      auto& topics = fetched.groups[i];
      auto& answer = fetching.answers[left[i].place];
      if (!topics) {
        answer.error_code = ErrorCode::invalid_request;
        continue;
      }
      answer.topics = std::move(*topics);
      const bool waits =
          co_await hide_topics(context, answer.topics, left[i].asks_for_all(), fetching.budget);
      if (!waits) co_return false;
    }
    left = left.subspan(fetched.groups.size());
  }
  co_return true;
}

// The only group of a request before version 8.
asio::awaitable<void> answer_one(Shard& shard, OffsetFetchResponse& response,
                                 OffsetFetchResponse::Group group, YieldBudget& budget) {
  const FreedOnPool freed(shard, group.topics);
  response.error_code = group.error_code;
  for (auto& topic : group.topics) {
    if (budget.spend() && !co_await budget.yield()) co_return;
    auto& answer = response.topics.emplace_back();
    answer.name = std::move(topic.name);
    for (auto& p : topic.partitions) {
      if (budget.spend() && !co_await budget.yield()) co_return;
      answer.partitions.push_back({p.partition_index, p.committed_offset, p.committed_leader_epoch,
                                   std::move(p.metadata), p.error_code});
    }
  }
}

// False: nobody waits for the answer any more.
asio::awaitable<bool> fetch_groups(OffsetFetching& fetching, std::span<const FetchedGroup> some) {
  RequestContext& context = fetching.context;
  if (fetching.budget.spend(some.size()) && !co_await fetching.budget.yield()) co_return false;
  const std::size_t bytes = some.size() * (sizeof(OffsetFetchResponse::Group) + 64);
  if (fetching.memory.spend(bytes) && !co_await fetching.memory.take()) co_return false;
  ByShard<FetchedGroup> asked;
  for (const FetchedGroup& group : some) {
    auto& answer = fetching.answers.emplace_back();
    answer.group_id = group.id;
    if (authorize_group(context, AclOperation::describe, group.id)) {
      asked.add(context.broker.shard_of_group(group.id), group);
    } else {
      answer.error_code = ErrorCode::group_authorization_failed;
    }
  }
  for (const auto& there : asked) {
    const bool waits = co_await fetch_on(fetching, *there.shard, there.items);
    if (!waits) co_return false;
  }
  co_return true;
}

asio::awaitable<OffsetFetchResponse> offset_fetch(RequestContext& context,
                                                  const OffsetFetchRequest& request) {
  OffsetFetchResponse response;
  auto& answers = response.groups;
  const auto kept = static_cast<std::size_t>(context.shard.config().group_offsets_bytes);
  // All that one group can have committed fits.
  OffsetFetching fetching{context, answers, Room(std::max(max_answer_bytes, kept)),
                          AnswerMemory(context), YieldBudget(context.shard, &context.connection)};
  if (context.version() < 8) {
    const FetchedGroup only = asked_of_one(request);
    const bool waits = co_await fetch_groups(fetching, {&only, 1});
    if (!waits) co_return response;
    auto group = std::move(std::exchange(answers, {}).front());
    co_await answer_one(context.shard, response, std::move(group), fetching.budget);
    co_return response;
  }
  std::vector<FetchedGroup> some;
  for (std::size_t from = 0; from < request.groups.size(); from += some.size()) {
    some.clear();
    const std::size_t until = std::min(request.groups.size(), from + fetched_together);
    for (std::size_t at = from; at < until; ++at) some.push_back(asked_of(request.groups[at], at));
    const bool waits = co_await fetch_groups(fetching, some);
    if (!waits) break;
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_offset_fetch(RequestContext context) {
  return run<OffsetFetchRequest, offset_fetch>(std::move(context));
}

}  // namespace tarry::broker
