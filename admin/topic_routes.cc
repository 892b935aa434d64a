#include "admin/topic_routes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "admin/call.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/context/yield_budget.h"
#include "broker/views/status.h"
#include "broker/views/topic_note.h"
#include "web/json_reply.h"

namespace tarry::admin {
namespace {

namespace asio = boost::asio;
using broker::PartitionStatus;

// A page that shows partitions opens so many of them: a log's directory is read for each.
constexpr std::size_t opened_at_most = 1000;

// A topic or a partition as JSON, with its memory.
constexpr std::size_t us_per_line = 5;
// So many partitions are named or summed up in a microsecond.
constexpr std::size_t partitions_a_microsecond = 100;
// The text of more lines is made on the pool, and what it is made of freed there.
constexpr std::size_t lines_made_here = 1000;

std::size_t us_of_partitions(const storage::Topic& topic) {
  return 1 + static_cast<std::size_t>(topic.partitions) / partitions_a_microsecond;
}

asio::awaitable<Reply> reply_of(Context& context, Json body, std::size_t lines) {
  if (lines <= lines_made_here) co_return json_reply(body);
  auto work = [body = std::move(body)]() mutable {
    const Json made = std::move(body);
    return json_reply(made);
  };
  co_return co_await context.here.blocking(std::move(work));
}

Json topic_json(Context& context, const storage::Topic& topic) {
  Json json;
  json["name"] = topic.name;
  json["id"] = topic.id.text();
  json["partitions"] = topic.partitions;
  json["configs"] = Json::object();
  for (const auto& [key, value] : topic.configs) json["configs"][key] = value;
  json["pending"] = context.broker.pending_counts().pending_of(topic.id);
  return json;
}

// Sums of the partitions that are open.
void put_totals(Json& to, std::span<const PartitionStatus> partitions) {
  std::uint64_t bytes = 0;
  std::int64_t offsets = 0;
  std::size_t open = 0;
  for (const auto& partition : partitions) {
    // A partition that nobody uses stays closed: to open it for its size would read its directory.
    if (!partition.open) continue;
    ++open;
    bytes += partition.bytes;
    offsets += partition.high_watermark - partition.log_start;
  }
  to["partitions_open"] = open;
  to["bytes"] = bytes;
  to["offsets"] = offsets;
}

Json refusal_json(const broker::TopicNote::Refusal& refusal) {
  Json json{{"at_ms", to_ms(refusal.at)}, {"partition", refusal.partition},
            {"reason", refusal.reason},   {"message", refusal.message},
            {"client", nullptr},          {"principal", nullptr},
            {"address", nullptr}};
  if (const auto& client = refusal.client) {
    json["client"] = client->id;
    json["principal"] = client->principal;
    json["address"] = client->address;
  }
  return json;
}

Json refusals_json(const broker::TopicNote& note) {
  Json json{{"total", note.refused}, {"last", nullptr}, {"senders", Json::array()}};
  if (const auto& last = note.last_refusal) json["last"] = refusal_json(*last);
  for (const auto& sender : note.refused_senders) {
    json["senders"].push_back(refusal_json(sender.last));
    json["senders"].back()["batches"] = sender.batches;
  }
  return json;
}

Json dead_letters_json(const broker::TopicNote& note) {
  Json json{{"total", note.dead_letters}, {"last", nullptr}};
  if (const auto& last = note.last_dead_letter) {
    json["last"] = {
        {"at_ms", to_ms(last->at)}, {"partition", last->partition}, {"message", last->message}};
  }
  return json;
}

Json slips_json(const delay::HeaderSlips& slips) {
  Json json{{"total", slips.total()}, {"names", Json::array()}};
  for (const auto& slip : slips.names()) {
    json["names"].push_back({{"name", slip.name}, {"meant", slip.meant}, {"count", slip.count}});
  }
  return json;
}

// All partitions are asked for together, because each shard is then visited once and not once for
// each topic.
std::vector<TopicPartition> partitions_of(const storage::Topic& topic) {
  std::vector<TopicPartition> partitions;
  for (PartitionIndex p = 0; p < topic.partitions; ++p) partitions.push_back({topic.id, p});
  return partitions;
}

broker::TopicPtr topic_of(Call& call) {
  auto topic = call.context.here.topics().find(call.part(1));
  if (!topic) throw Refused{404, fmt::format("there is no topic '{}'", printable(call.part(1)))};
  return topic;
}

}  // namespace

asio::awaitable<Reply> get_topics(Call& call) {
  auto& context = call.context;
  // A topic that is deleted meanwhile is shown as it was.
  const auto topics = context.here.topics().by_name();
  broker::YieldBudget budget(context.here, nullptr);
  std::vector<TopicPartition> partitions;
  for (const auto& topic : topics) {
    if (budget.spend(us_of_partitions(*topic))) co_await budget.yield();
    const auto more = partitions_of(*topic);
    partitions.insert(partitions.end(), more.begin(), more.end());
  }
  const auto statuses =
      co_await broker::partition_statuses(context.broker, context.here, partitions, opened_at_most);
  Json body;
  body["topics"] = Json::array();
  std::span<const PartitionStatus> rest = statuses;
  for (const auto& topic : topics) {
    if (budget.spend(us_per_line + us_of_partitions(*topic))) co_await budget.yield();
    const auto count = static_cast<std::size_t>(topic->partitions);
    Json each = topic_json(context, *topic);
    put_totals(each, rest.first(count));
    rest = rest.subspan(count);
    body["topics"].push_back(std::move(each));
  }
  co_return co_await reply_of(context, std::move(body), topics.size());
}

asio::awaitable<Json> topics_event_json(Context& context, std::size_t limit) {
  const auto all = context.here.topics().by_name();
  broker::YieldBudget budget(context.here, nullptr);
  std::vector<std::pair<std::uint64_t, broker::TopicPtr>> topics;
  for (const auto& topic : all) {
    if (budget.spend()) co_await budget.yield();
    topics.emplace_back(context.broker.pending_counts().pending_of(topic->id), topic);
  }
  const auto shown = std::min(limit, topics.size());
  // The rest stays unsorted: there may be a hundred thousand topics.
  std::ranges::partial_sort(topics, topics.begin() + static_cast<std::ptrdiff_t>(shown),
                            [](const auto& a, const auto& b) {
                              return a.first != b.first ? a.first > b.first
                                                        : a.second->name < b.second->name;
                            });
  topics.resize(shown);
  std::vector<TopicPartition> partitions;
  for (const auto& [pending, topic] : topics) {
    const auto more = partitions_of(*topic);
    partitions.insert(partitions.end(), more.begin(), more.end());
  }
  const auto statuses =
      // It opens no partition, because it is computed again every few seconds.
      co_await broker::partition_statuses(context.broker, context.here, partitions, 0);
  std::vector<TopicId> ids;
  for (const auto& [pending, topic] : topics) ids.push_back(topic->id);
  const auto notes = co_await broker::topic_notes(context.broker, context.here, std::move(ids));
  Json body;
  body["at_ms"] = to_ms(context.broker.clock().wall());
  body["topics"] = Json::array();
  std::span<const PartitionStatus> rest = statuses;
  std::size_t place = 0;
  for (const auto& [pending, topic] : topics) {
    const auto count = static_cast<std::size_t>(topic->partitions);
    Json each = topic_json(context, *topic);
    // The page does not show them here, and an event goes out every few seconds.
    each.erase("configs");
    put_totals(each, rest.first(count));
    // Most topics have refused nothing, and are sent without it.
    const auto& note = notes[place++];
    if (note.refused > 0) each["refused_batches"] = refusals_json(note);
    rest = rest.subspan(count);
    body["topics"].push_back(std::move(each));
  }
  body["topics_total"] = all.size();
  co_return body;
}

asio::awaitable<Reply> get_topic(Call& call) {
  auto& context = call.context;
  const auto topic = topic_of(call);
  const auto statuses = co_await broker::partition_statuses(context.broker, context.here,
                                                            partitions_of(*topic), opened_at_most);
  const auto note = co_await broker::topic_note(context.broker, context.here, topic->id);
  Json body = topic_json(context, *topic);
  put_totals(body, statuses);
  body["refused_batches"] = refusals_json(note);
  body["dead_letters"] = dead_letters_json(note);
  body["header_slips"] = slips_json(note.slips);
  body["partitions"] = Json::array();
  broker::YieldBudget budget(context.here, nullptr);
  for (std::size_t i = 0; i < statuses.size(); ++i) {
    if (budget.spend(us_per_line)) co_await budget.yield();
    const auto& status = statuses[i];
    Json each;
    each["partition"] = i;
    each["shard"] = status.shard;
    each["open"] = status.open;
    // Opening reads a directory, so of the rest it is only known that they exist.
    if (status.open) {
      each["fenced"] = status.fenced;
      if (status.fenced) each["reason"] = status.reason;
      each["log_start"] = status.log_start;
      each["high_watermark"] = status.high_watermark;
      each["log_end"] = status.log_end;
      each["bytes"] = status.bytes;
    }
    body["partitions"].push_back(std::move(each));
  }
  co_return co_await reply_of(context, std::move(body), statuses.size());
}

asio::awaitable<Reply> delete_topic(Call& call) {
  auto& context = call.context;
  auto& broker = context.broker;
  bool force = false;
  if (const auto* given = call.parameter("force")) {
    if (*given != "true" && *given != "false") {
      throw Refused{400, fmt::format("force={}: true or false is expected, as in force=true",
                                     printable(*given))};
    }
    force = *given == "true";
  }
  // The switch holds for every way to a deletion.
  if (!call.context.here.config().delete_topics) throw Refused{403, "delete.topic.enable is false"};
  const auto topic = topic_of(call);
  // Before the deletion, which forgets the number.
  const auto pending = broker.pending_counts().pending_of(topic->id);
  const auto removed = co_await broker.topics().remove(topic->id, force);
  if (!removed) {
    using protocol::ErrorCode;
    const auto& refused = removed.error();
    // The number is a field of its own: the page asks a person by it before it forces the deletion.
    if (refused.code == ErrorCode::policy_violation) {
      Json body{{"error", refused.message}};
      body["pending"] = pending;
      co_return json_reply(body, 409);
    }
    throw Refused{refused.code == ErrorCode::unknown_topic_id ? 404u : 500u, refused.message};
  }
  // Pages that are open show pending records, and would keep those of this topic for seconds.
  if (pending != 0) call.context.pending_changed();
  Json body;
  body["result"] = "deleted";
  body["topic"] = topic->name;
  body["id"] = topic->id.text();
  body["pending_dropped"] = pending;
  co_return json_reply(body);
}

}  // namespace tarry::admin
