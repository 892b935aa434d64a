#include "admin/delayed_routes.h"

#include <chrono>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "admin/delayed_call.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/views/delayed_records.h"

namespace tarry::admin {
namespace {

namespace asio = boost::asio;
using broker::DelayedRecord;

constexpr std::size_t max_page_records = 1000;

// The unit that `by` names.
std::chrono::milliseconds unit_of(const std::string& by) {
  using namespace std::chrono;
  if (by == "minute") return minutes(1);
  if (by == "hour") return hours(1);
  if (by == "day") return hours(24);
  throw Refused{400, fmt::format("by={}: give minute, hour or day", printable(by))};
}

std::string_view name_of(broker::PartitionEvent::Kind kind) {
  using Kind = broker::PartitionEvent::Kind;
  switch (kind) {
    case Kind::scheduled:
      return "scheduled";
    case Kind::delivered:
      return "delivered";
    case Kind::cancelled:
      return "cancelled";
    case Kind::replaced:
      return "replaced";
    case Kind::expired:
      return "expired";
    case Kind::moved:
      break;
  }
  return "moved";
}

}  // namespace

asio::awaitable<Reply> list_delayed(Call& call) {
  broker::DelayedQuery query;
  if (const auto* topic = call.parameter("topic")) query.topic = topic_of(call, *topic);
  if (call.parameter("partition") != nullptr) {
    if (!query.topic) throw Refused{400, "partition needs a topic, as in topic=orders&partition=0"};
    query.partition = partition_of(call, *query.topic);
  }
  if (const auto* from = call.parameter("from")) query.from = time_of("from", *from);
  if (const auto* to = call.parameter("to")) query.until = time_of("to", *to);
  if (const auto* id = call.parameter("id")) {
    query.id = pattern_of("id", *id);
  }
  if (const auto* key = call.parameter("key")) query.key = pattern_of("key", *key);
  const auto* values = call.parameter("values");
  if (values != nullptr && *values != "true" && *values != "false")
    throw Refused{400, fmt::format("values={}: give true or false", printable(*values))};
  if (const auto* limit = call.parameter("limit"))
    query.limit = number_of("limit", *limit, 1, max_page_records);
  if (const auto* after = call.parameter("after")) {
    if (!broker::is_delayed_cursor(*after)) {
      throw Refused{400, fmt::format("after={}: give the `next` of the previous page, as in "
                                     "after=@7Rk1D2b1",
                                     printable(*after))};
    }
    query.after = *after;
  }

  auto& context = call.context;
  const auto page = co_await broker::list_delayed(context.broker, context.here, std::move(query));
  if (!page) throw_failed(page.error());
  Json body;
  body["records"] = Json::array();
  for (const auto& record : page->records) {
    body["records"].push_back(json_of(record));
    if (values != nullptr && *values == "true") put_value(body["records"].back(), record);
  }
  body["next"] = page->next.empty() ? Json(nullptr) : Json(page->next);
  co_return json_reply(body);
}

asio::awaitable<Reply> get_delayed(Call& call) {
  const auto topic = topic_of(call, call.part(1));
  const auto partition = partition_of(call, *topic);
  const std::string name = name_of_record(call);
  auto& context = call.context;
  const auto found =
      co_await broker::find_delayed(context.broker, context.here, topic, name, partition);
  if (!found) throw_failed(found.error());
  if (found->pending.empty()) {
    throw Refused{404, found->delivered.empty()
                           ? fmt::format("nothing is pending under '{}' in topic {}",
                                         printable(name), topic->name)
                           : fmt::format("'{}' of topic {} has been delivered already",
                                         printable(name), topic->name)};
  }
  const DelayedRecord& first = found->pending.front();
  Json body = json_of(first);
  put_value(body, first);
  body["partitions"] = Json::array();  // Where it is pending: the one shown is due first.
  for (const auto& each : found->pending) body["partitions"].push_back(each.partition);
  co_return json_reply(body);
}

asio::awaitable<Reply> count_delayed(Call& call) {
  auto& context = call.context;
  broker::DelayedQuery query;
  if (const auto* topic = call.parameter("topic")) query.topic = topic_of(call, *topic);
  const auto* from = call.parameter("from");
  const auto* to = call.parameter("to");
  const auto* by = call.parameter("by");
  if (from != nullptr) query.from = time_of("from", *from);
  if (to != nullptr) query.until = time_of("to", *to);
  Json body;
  if (by == nullptr && from == nullptr && to == nullptr) {
    const auto& counts = context.broker.pending_counts();
    body["total"] = query.topic ? counts.pending_of(query.topic->id) : counts.total();
    body["by"] = nullptr;
    body["counts"] = Json::array();
    co_return json_reply(body);
  }
  const auto unit = unit_of(by == nullptr ? "day" : *by);
  const auto counted =
      co_await broker::count_delayed(context.broker, context.here, std::move(query), unit);
  if (!counted) throw_failed(counted.error());
  body["total"] = counted->total;
  body["by"] = by == nullptr ? Json(nullptr) : Json(*by);
  body["counts"] = Json::array();
  if (by != nullptr) {
    for (const auto& [start, count] : counted->counts)
      body["counts"].push_back(Json{{"from", to_ms(start)}, {"count", count}});
  }
  co_return json_reply(body);
}

asio::awaitable<Reply> trace_delayed(Call& call) {
  const auto topic = topic_of(call, call.part(1));
  const auto partition = partition_of(call, *topic);
  const std::string name = name_of_record(call);
  auto& context = call.context;
  const auto events =
      co_await broker::trace_delayed(context.broker, context.here, topic, name, partition);
  if (!events) throw_failed(events.error());
  if (events->empty()) {
    throw Refused{404, fmt::format("nothing is remembered of '{}' in topic {}", printable(name),
                                   topic->name)};
  }
  Json body;
  body["events"] = Json::array();
  for (const auto& event : *events) {
    Json each;
    each["at_ms"] = to_ms(event.at);
    each["event"] = name_of(event.kind);
    each["due_ms"] = to_ms(event.due);
    each["offset"] = event.offset >= 0 ? Json(event.offset) : Json(nullptr);
    each["partition"] = event.partition;
    body["events"].push_back(std::move(each));
  }
  co_return json_reply(body);
}

}  // namespace tarry::admin
