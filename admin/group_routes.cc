#include "admin/group_routes.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "admin/call.h"
#include "admin/large_answer.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/context/freed_on_pool.h"
#include "broker/context/yield_budget.h"
#include "broker/views/group_status.h"
#include "web/json_reply.h"

namespace tarry::admin {
namespace {

namespace asio = boost::asio;

// The limit on groups in one answer: each is asked for its lag.
constexpr std::size_t max_groups_shown = 10'000;

// A member or an offset as JSON, with the memory that it takes; and what a member lists.
constexpr std::size_t us_per_row = 10;
constexpr std::size_t listed_a_microsecond = 20;
// A group of /groups: it is asked for its lag, and each of its offsets is looked at.
constexpr std::size_t us_per_group = 20;
constexpr std::size_t offsets_a_microsecond = 20;
// The text of more is made on the pool: a group may have a hundred thousand offsets.
constexpr std::size_t made_here = 1000;

Json summary_json(const broker::GroupSummary& group) {
  Json json;
  json["group"] = group.id;
  json["state"] = group.state;
  json["protocol_type"] = group.protocol_type;
  json["generation"] = group.generation;
  json["members"] = group.members;
  json["offsets"] = group.offsets;
  json["shard"] = group.shard;
  json["changed_ms"] = to_ms(group.changed);
  return json;
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// The topics and partitions that are listed for it.
std::size_t count_listed(const broker::MemberStatus& member) {
  std::size_t count = member.subscribed.size() + member.assigned.size();
  for (const auto& topic : member.assigned) count += topic.partitions.size();
  return count;
}

Json member_json(const broker::MemberStatus& member) {
  Json json;
  json["member"] = member.id;
  json["instance"] = or_null(member.instance_id);
  json["client"] = member.client_id;
  json["host"] = member.client_host;
  json["session_timeout_ms"] = member.session_timeout.count();
  json["leader"] = member.is_leader;
  json["subscribed"] = member.subscribed;
  json["assigned"] = Json::array();
  for (const auto& topic : member.assigned)
    json["assigned"].push_back(Json{{"topic", topic.topic}, {"partitions", topic.partitions}});
  return json;
}

Json offset_json(const broker::OffsetStatus& offset) {
  Json json;
  json["topic"] = offset.topic;
  json["partition"] = offset.partition.partition;
  json["committed"] = or_null(offset.committed);
  // A time of 0 would be shown as one of 1970.
  json["committed_at_ms"] = offset.committed ? Json(to_ms(offset.committed_at)) : Json(nullptr);
  json["metadata"] = offset.metadata;
  json["log_start"] = or_null(offset.log_start);
  json["high_watermark"] = or_null(offset.high_watermark);
  json["lag"] = or_null(offset.lag);
  json["member"] = offset.member.empty() ? Json(nullptr) : Json(offset.member);
  return json;
}

// The sum over its partitions; null if that of one is not known.
Json lag_json(const broker::GroupStatus& group) {
  std::int64_t lag = 0;
  for (const auto& offset : group.offsets) {
    // A sum without it would look like less lag than there is.
    if (!offset.lag) return nullptr;
    lag += *offset.lag;
  }
  return lag;
}

// All partitions of the topics that the group has offsets or assignments in.  Those without either
// are not among its offsets, and their records are not in its lag.
std::int64_t count_topic_partitions(Context& context, const broker::GroupStatus& group) {
  std::int64_t count = 0;
  std::string_view last;
  for (const auto& offset : group.offsets) {
    // Offsets are in the order of their topics, so each topic is asked for once.
    if (offset.topic == last) continue;
    last = offset.topic;
    if (const auto topic = context.here.topics().find(last)) count += topic->partitions;
  }
  return count;
}

// Each group with its lag, by name.
asio::awaitable<Json> groups_json(Context& context) {
  auto groups = co_await broker::group_summaries(context.broker, context.here);
  const broker::FreedOnPool freed(context.here, groups);
  Json body;
  body["at_ms"] = to_ms(context.broker.clock().wall());
  body["groups"] = Json::array();
  broker::YieldBudget budget(context.here, nullptr);
  for (const auto& group : groups) {
    if (body["groups"].size() == max_groups_shown) break;
    if (budget.spend(us_per_group + group.offsets / offsets_a_microsecond)) co_await budget.yield();
    body["groups"].push_back(summary_json(group));
    // Partitions that nobody uses stay closed: their lag is unknown, and so is the group's.
    const auto status = co_await broker::group_status(context.broker, context.here, group.id, 0);
    body["groups"].back()["lag"] = status ? lag_json(*status) : Json(nullptr);
    body["groups"].back()["topic_partitions"] =
        status ? Json(count_topic_partitions(context, *status)) : Json(nullptr);
  }
  // The list may be cut off, and the reader has to know.
  body["groups_total"] = groups.size();
  co_return body;
}

// The text is made on the pool, and what it is made of is freed there, which takes as long.
asio::awaitable<Reply> reply_on_pool(Context& context, Json body) {
  Reply reply;
  std::move_only_function<void()> work = [&body, &reply] {
    const Json made = std::move(body);
    reply = json_reply(made);
  };
  co_await context.here.run_on_pool(work);
  co_return reply;
}

// Groups of the same lag keep the order of their names; an unknown lag counts as none.
void keep_largest_lags(Json& body, std::size_t limit) {
  auto& groups = body["groups"].get_ref<Json::array_t&>();
  std::ranges::stable_sort(groups, std::ranges::greater{}, [](const Json& group) {
    return group["lag"].is_null() ? 0 : group["lag"].get<std::int64_t>();
  });
  groups.resize(std::min(limit, groups.size()));
}

}  // namespace

asio::awaitable<Json> groups_event_json(Context& context, std::size_t limit) {
  Json body = co_await groups_json(context);
  if (body["groups"].size() <= made_here) {
    keep_largest_lags(body, limit);
  } else {
    std::move_only_function<void()> work = [&body, limit] { keep_largest_lags(body, limit); };
    co_await context.here.run_on_pool(work);
  }
  co_return body;
}

asio::awaitable<Reply> get_groups(Call& call) {
  co_await wait_for_turn(call.context);
  const LargeAnswer turn(call.context);
  Json body = co_await groups_json(call.context);
  if (body["groups"].size() <= made_here) co_return json_reply(body);
  co_return co_await reply_on_pool(call.context, std::move(body));
}

asio::awaitable<Reply> get_group(Call& call) {
  co_await wait_for_turn(call.context);
  const LargeAnswer turn(call.context);
  std::string name = call.part(1);
  const auto group =
      co_await broker::group_status(call.context.broker, call.context.here, std::move(name));
  if (!group) throw Refused{404, fmt::format("there is no group '{}'", printable(call.part(1)))};
  Json body = summary_json(group->summary);
  body["assignor"] = group->protocol_name;
  body["members"] = Json::array();
  broker::YieldBudget budget(call.context.here, nullptr);
  std::size_t rows = group->offsets.size() + group->members.size();
  for (const auto& member : group->members) {
    const std::size_t listed = count_listed(member);
    rows += listed;
    if (budget.spend(us_per_row + listed / listed_a_microsecond)) co_await budget.yield();
    body["members"].push_back(member_json(member));
  }
  body["offsets"] = Json::array();
  std::int64_t lag = 0;
  for (const auto& offset : group->offsets) {
    if (budget.spend(us_per_row)) co_await budget.yield();
    body["offsets"].push_back(offset_json(offset));
    // Here the partitions are opened, so a lag is missing only where there is nothing to compare
    // with, or beyond ten thousand partitions.
    lag += offset.lag.value_or(0);
  }
  body["lag"] = lag;
  body["topic_partitions"] = count_topic_partitions(call.context, *group);
  if (rows <= made_here) co_return json_reply(body);
  co_return co_await reply_on_pool(call.context, std::move(body));
}

}  // namespace tarry::admin
