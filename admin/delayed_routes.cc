#include "admin/delayed_routes.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "admin/encoding.h"
#include "admin/json_reply.h"
#include "base/log.h"
#include "base/time_text.h"
#include "base/utf8.h"
#include "broker/broker.h"
#include "broker/views/delayed_records.h"

namespace tarry::admin {
namespace {

namespace asio = boost::asio;
using broker::CancelOutcome;
using broker::DelayedRecord;

constexpr std::size_t max_page_records = 1000;
constexpr std::size_t max_id_bytes = 249;

// --- What the client gives ---------------------------------------------------------------------

template <typename T>
T number(const std::string& name, const std::string& text, T least, T most) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most) {
    throw Refused{400, fmt::format("{}={}: a number from {} to {} is expected, as in {}={}", name,
                                   printable(text), least, most, name, least)};
  }
  return value;
}

broker::TopicPtr topic_of(Call& call, const std::string& name) {
  auto topic = call.context.here.topics().find(name);
  if (!topic) throw Refused{404, fmt::format("there is no topic '{}'", printable(name))};
  return topic;
}

std::optional<PartitionIndex> partition_of(Call& call, const storage::Topic& topic) {
  const auto* text = call.parameter("partition");
  if (text == nullptr) return std::nullopt;
  return number<PartitionIndex>("partition", *text, 0, topic.partitions - 1);
}

WallTime time_of(const char* name, const std::string& text) {
  std::string given = text;
  // A + that was not escaped came as a blank, which stands in no time.
  std::ranges::replace(given, ' ', '+');
  const auto time = parse_time(given);
  if (!time) throw Refused{400, fmt::format("{}: {}", name, time.error().message)};
  return *time;
}

std::string name_of_record(Call& call) {
  const std::string& name = call.part(2);
  if (name.size() > max_id_bytes) {
    throw Refused{400, fmt::format("the limit of an id is {} bytes; '{}' has {}", max_id_bytes,
                                   printable(name, 64), name.size())};
  }
  return name;
}

[[noreturn]] void failed(const Error& error) {
  const bool busy = error.code == Errc::stopped || error.code == Errc::no_space;
  throw Refused{busy ? 503u : 500u, error.message};
}

// --- What we answer ----------------------------------------------------------------------------

// Text as it is, other bytes in base64 with NAME_base64 beside them.
void put_bytes(Json& to, const std::string& name, const std::optional<Bytes>& bytes) {
  if (!bytes) {
    to[name] = nullptr;
  } else if (is_utf8(as_text(*bytes))) {
    to[name] = as_text(*bytes);
  } else {
    to[name] = base64(*bytes);
    to[name + "_base64"] = true;
  }
}

Json row_of(const DelayedRecord& record) {
  Json row;
  row["topic"] = record.topic;
  row["partition"] = record.partition;
  if (record.id.empty()) {
    row["id"] = nullptr;
  } else {
    put_bytes(row, "id", as_bytes(record.id));
  }
  row["handle"] = record.handle;
  row["due_ms"] = to_ms(record.due);
  row["accepted_ms"] = to_ms(record.accepted);
  row["expires_ms"] = record.expires ? Json(to_ms(*record.expires)) : Json(nullptr);
  put_bytes(row, "key", record.key);
  row["value_bytes"] = record.value ? Json(record.value->size()) : Json(nullptr);
  row["headers"] = Json::array();
  for (const auto& header : record.headers) {
    Json each;
    put_bytes(each, "name", as_bytes(header.name));
    put_bytes(each, "value", header.value);
    row["headers"].push_back(std::move(each));
  }
  row["recurring"] = false;
  if (!record.damage.empty()) row["damage"] = record.damage;
  return row;
}

std::string_view name_of(CancelOutcome outcome) {
  switch (outcome) {
    case CancelOutcome::cancelled:
      return "cancelled";
    case CancelOutcome::already_delivered:
      return "already_delivered";
    case CancelOutcome::unknown:
      break;
  }
  return "unknown";
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
    if (id->empty()) throw Refused{400, "id is empty: give an id, or a pattern as in id=order-*"};
    query.id = *id;
  }
  if (const auto* limit = call.parameter("limit"))
    query.limit = number<std::size_t>("limit", *limit, 1, max_page_records);
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
  if (!page) failed(page.error());
  Json body;
  body["records"] = Json::array();
  for (const auto& record : page->records) body["records"].push_back(row_of(record));
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
  if (!found) failed(found.error());
  if (found->pending.empty()) {
    throw Refused{404, found->delivered.empty()
                           ? fmt::format("nothing is pending under '{}' in topic {}",
                                         printable(name), topic->name)
                           : fmt::format("'{}' of topic {} has been delivered already",
                                         printable(name), topic->name)};
  }
  const DelayedRecord& first = found->pending.front();
  Json body = row_of(first);
  body["timestamp_ms"] = to_ms(first.original);
  body["value"] = first.value ? Json(base64(*first.value)) : Json(nullptr);
  body["partitions"] = Json::array();  // Where it is pending: the one shown is due first.
  for (const auto& each : found->pending) body["partitions"].push_back(each.partition);
  co_return json_reply(body);
}

asio::awaitable<Reply> cancel_delayed(Call& call) {
  const auto topic = topic_of(call, call.part(1));
  const auto partition = partition_of(call, *topic);
  const std::string name = name_of_record(call);
  auto& context = call.context;
  const auto cancelled =
      co_await broker::cancel_delayed(context.broker, context.here, topic, name, partition);
  if (!cancelled) failed(cancelled.error());

  CancelOutcome best = CancelOutcome::unknown;
  Json partitions = Json::array();
  for (const auto& each : *cancelled) {
    best = std::min(best, each.outcome);  // Their order is from best to worst.
    partitions.push_back(Json{{"partition", each.partition}, {"result", name_of(each.outcome)}});
  }
  Json body;
  body["result"] = name_of(best);
  body["partitions"] = std::move(partitions);
  co_return json_reply(body);
}

}  // namespace tarry::admin
