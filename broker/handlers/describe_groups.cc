// DescribeGroups (key 15), versions 0 to 6.  A group that is not there is "Dead", up to version 5
// without an error, in version 6 with GROUP_ID_NOT_FOUND.  Members' subscriptions and
// assignments are shown while the group is Stable: before, they are not decided.

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "broker/broker.h"
#include "broker/context/yield_budget.h"
#include "broker/groups/groups.h"
#include "broker/handlers/all.h"
#include "broker/handlers/answer_room.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/operations.h"
#include "broker/handlers/run.h"
#include "broker/scatter.h"
#include "protocol/messages/describe_groups.h"

namespace tarry::broker {

using protocol::DescribeGroupsRequest;
using protocol::DescribeGroupsResponse;
using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

// Copied, with what each member takes beside its bytes.
constexpr std::size_t bytes_a_microsecond = 1000;
constexpr std::size_t bytes_a_group = sizeof(DescribeGroupsResponse::Group) + 64;
// Each shard is asked once for its share of so many.
constexpr std::size_t groups_together = 512;

// A group that changes while its members are copied is described anew, so many times.
constexpr int max_tries = 3;

// Bytes of a member's answer.
std::size_t bytes_of(const DescribeGroupsResponse::Member& member) {
  return sizeof(member) + member.member_metadata.size() + member.member_assignment.size();
}

// The memory of one description, beside bytes_a_group.
std::size_t bytes_of(const DescribeGroupsResponse::Group& answer) {
  std::size_t bytes = 0;
  for (const auto& member : answer.members) bytes += bytes_of(member);
  return bytes;
}

DescribeGroupsResponse::Group dead_group(std::string_view id, int version) {
  DescribeGroupsResponse::Group answer;
  answer.group_id = id;
  answer.group_state = name_of(GroupState::dead);
  if (version >= 6) {
    answer.error_code = ErrorCode::group_id_not_found;
    answer.error_message = fmt::format("Group {} not found.", id);
  }
  return answer;
}

// Without its metadata and its assignment.
DescribeGroupsResponse::Member described(const std::string& id, const GroupMember& member) {
  DescribeGroupsResponse::Member shown;
  shown.member_id = id;
  shown.group_instance_id = member.instance_id;
  shown.client_id = member.client_id;
  shown.client_host = member.client_host;
  return shown;
}

// On the group's shard; in steps, because its members may have long texts; a member's megabytes are
// copied on the pool.  Empty: it has changed meanwhile.
asio::awaitable<std::optional<DescribeGroupsResponse::Group>> try_to_describe(Shard& shard,
                                                                              std::string_view id,
                                                                              int version,
                                                                              YieldBudget& budget) {
  const Group* group = shard.groups().find(id);
  if (group == nullptr || group->is(GroupState::dead)) co_return dead_group(id, version);
  DescribeGroupsResponse::Group answer;
  answer.group_id = id;
  answer.group_state = name_of(group->state());
  answer.protocol_type = group->protocol_type();
  if (group->is(GroupState::stable)) answer.protocol_data = group->protocol_name();
  const auto generation = group->generation();
  const auto state = group->state();
  for (auto at = group->members().begin(); at != group->members().end(); ++at) {
    auto& shown = answer.members.emplace_back(described(at->first, at->second));
    const bool is_shown = group->is(GroupState::stable);
    const auto metadata = is_shown ? group->metadata_of(at->second) : SharedBytes();
    const auto assignment = is_shown ? at->second.assignment : SharedBytes();
    auto copy = [metadata, assignment] {
      return std::pair(Buffer(metadata.begin(), metadata.end()),
                       Buffer(assignment.begin(), assignment.end()));
    };
    const bool is_long = metadata.size() + assignment.size() > encoded_here;
    if (!is_long) {
      std::tie(shown.member_metadata, shown.member_assignment) = copy();
      if (!budget.spend(1 + bytes_of(shown) / bytes_a_microsecond)) continue;
    }
    const std::string last = at->first;
    if (is_long) {
      auto copied = co_await shard.blocking(std::move(copy));
      std::tie(shown.member_metadata, shown.member_assignment) = std::move(copied);
    } else {
      co_await budget.yield();
    }
    group = shard.groups().find(id);
    if (group == nullptr || group->generation() != generation || !group->is(state))
      co_return std::nullopt;
    at = group->members().find(last);
    // The walk goes on by the id, and that member may have gone.
    if (at == group->members().end()) co_return std::nullopt;
  }
  co_return answer;
}

struct NamedGroup {
  std::string_view id;
  std::size_t place;  // In the answer.
};

asio::awaitable<DescribeGroupsResponse::Group> describe_one(Shard& shard, std::string_view id,
                                                            int version, YieldBudget& budget) {
  for (int tries = 0; tries < max_tries; ++tries) {
    auto described = co_await try_to_describe(shard, id, version, budget);
    if (described) co_return std::move(*described);
  }
  DescribeGroupsResponse::Group answer;
  answer.group_id = id;
  answer.error_code = ErrorCode::coordinator_not_available;  // Clients ask again.
  co_return answer;
}

// On the groups' shard: the first of `names`, as many as take it a millisecond.
asio::awaitable<std::vector<DescribeGroupsResponse::Group>> describe_some(
    Shard& shard, std::span<const NamedGroup> names, int version) {
  std::vector<DescribeGroupsResponse::Group> answers;
  YieldBudget budget(shard, nullptr);
  std::size_t microseconds = 0;
  for (const NamedGroup& name : names) {
    auto described = co_await describe_one(shard, name.id, version, budget);
    answers.push_back(std::move(described));
    microseconds += 1 + bytes_of(answers.back()) / bytes_a_microsecond;
    // At least one is described, however large, or the loop of the caller would never end.
    if (microseconds > 1000) break;
  }
  co_return answers;
}

struct Describing {
  RequestContext& context;
  const DescribeGroupsRequest& request;
  DescribeGroupsResponse& response;
  YieldBudget budget;
  AnswerMemory memory;
  std::size_t bytes = 0;
};

// False: nobody waits for the answer any more.
asio::awaitable<bool> describe_on(Describing& asking, Shard& shard,
                                  std::span<const NamedGroup> left) {
  RequestContext& context = asking.context;
  while (!left.empty()) {
    if (asking.bytes > max_answer_bytes) {
      for (const NamedGroup& name : left)
        asking.response.groups[name.place].error_code = ErrorCode::invalid_request;
      co_return true;
    }
    auto work = [&shard, left, version = context.version()] {
      return describe_some(shard, left, version);
    };
    auto answers = co_await context.broker.on(context.shard, shard, std::move(work));
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      auto& answer = answers[i];
      bytes += bytes_of(answer);
      if (asking.request.include_authorized_operations && answer.error_code == ErrorCode::none)
        answer.authorized_operations =
            allowed_operations(context, group_operations, AclResource::group, left[i].id);
      asking.response.groups[left[i].place] = std::move(answer);
    }
    left = left.subspan(answers.size());
    asking.bytes += bytes;
    // Once for the answer itself, and once for its bytes on the wire.
    if (asking.memory.spend(2 * bytes) && !co_await asking.memory.take()) co_return false;
    const std::size_t microseconds = answers.size() + bytes / bytes_a_microsecond;
    if (asking.budget.spend(microseconds) && !co_await asking.budget.yield()) co_return false;
  }
  co_return true;
}

asio::awaitable<DescribeGroupsResponse> describe_groups(RequestContext& context,
                                                        const DescribeGroupsRequest& request) {
  DescribeGroupsResponse response;
  Describing asking{context, request, response, YieldBudget(context.shard, &context.connection),
                    AnswerMemory(context)};
  const bool room = co_await reserve_charged(context, request.groups.size(), response.groups);
  if (!room) co_return response;
  std::span<const std::string_view> left = request.groups;
  while (!left.empty()) {
    const auto some = left.first(std::min(left.size(), groups_together));
    left = left.subspan(some.size());
    if (asking.memory.spend(some.size() * bytes_a_group) && !co_await asking.memory.take())
      co_return response;
    asking.bytes += some.size() * bytes_a_group;
    ByShard<NamedGroup> asked;
    for (const auto id : some) {
      auto& answer = response.groups.emplace_back();
      answer.group_id = id;
      if (authorize_group(context, AclOperation::describe, id)) {
        asked.add(context.broker.shard_of_group(id), {id, response.groups.size() - 1});
      } else {
        answer.error_code = ErrorCode::group_authorization_failed;
      }
    }
    for (const auto& there : asked) {
      const bool waits = co_await describe_on(asking, *there.shard, there.items);
      if (!waits) co_return response;
    }
    if (asking.budget.spend(some.size()) && !co_await asking.budget.yield()) co_return response;
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_describe_groups(RequestContext context) {
  return run<DescribeGroupsRequest, describe_groups>(std::move(context));
}

}  // namespace tarry::broker
