#include "admin/delayed_routes.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "admin/delayed_call.h"
#include "base/json.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/context/yield_budget.h"
#include "broker/views/delayed_counts.h"
#include "broker/views/delayed_records.h"
#include "web/arguments.h"

namespace tarry::admin {
namespace {

namespace asio = boost::asio;
using broker::DelayedRecord;

constexpr std::size_t max_page_records = 1000;

// A search that finds little is answered after this time, and goes on with the next page.
constexpr std::chrono::milliseconds search_time{400};
constexpr std::size_t max_search_bytes = 1000;

// The time that a record's JSON takes, and the bytes in it that take another microsecond.
constexpr std::size_t us_per_json = 20;
constexpr std::size_t json_bytes_per_us = 256;

// An id is looked up in so many partitions of topics with pending records; beyond, it is found
// when its turn comes.
constexpr std::size_t looked_up_partitions = 4096;

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

Json json_of(const broker::PartitionEvent& event) {
  Json each;
  each["at_ms"] = to_ms(event.at);
  each["event"] = name_of(event.kind);
  each["due_ms"] = to_ms(event.due);
  each["offset"] = event.offset >= 0 ? Json(event.offset) : Json(nullptr);
  each["partition"] = event.partition;
  return each;
}

// The records as JSON, with a comma between two; in steps, each of which frees those that it made.
asio::awaitable<std::string> text_of_records(Call& call, std::vector<DelayedRecord> records,
                                             bool values) {
  std::string text;
  broker::YieldBudget budget(call.context.here, nullptr);
  for (auto& each : records) {
    const std::size_t left_out = !values && each.value ? each.value->size() : 0;
    const std::size_t bytes = each.bytes.size() - std::min(left_out, each.bytes.size());
    if (budget.spend(us_per_json + bytes / json_bytes_per_us)) co_await budget.yield();
    const auto record = std::move(each);
    Json json = admin::json_of(record);
    if (values) put_value(json, record);
    if (!text.empty()) text += ',';
    text += text_of(json);
  }
  co_return text;
}

broker::DelayedQuery query_of(Call& call) {
  broker::DelayedQuery query;
  if (const auto* topic = call.parameter("topic")) query.topic = topic_of(call, *topic);
  // A partition's number alone would mean one of every topic.
  if (call.parameter("partition") != nullptr && !query.topic)
    throw Refused{400, "partition needs a topic, as in topic=orders&partition=0"};
  const auto words = [&](const char* name) {
    const auto* text = call.parameter(name);
    return text == nullptr ? std::nullopt : std::optional(*text);
  };
  put_filter(query, read_filter(words, query.topic ? query.topic->partitions - 1 : 0,
                                call.context.broker.clock().wall()));
  if (const auto* text = call.parameter("q")) {
    if (text->empty() || text->size() > max_search_bytes) {
      throw Refused{400,
                    fmt::format("q: give 1 to {} bytes: an id, a handle, or a part of an id or key",
                                max_search_bytes)};
    }
    query.text = *text;
  }
  if (const auto* recurring = call.parameter("recurring"))
    query.recurring = flag_given("recurring", *recurring);
  if (const auto* limit = call.parameter("limit"))
    query.limit = page_size_given(*limit, max_page_records);
  // Empty: the first page, for a loop that has no `next` yet.
  if (const auto* after = call.parameter("after"); after != nullptr && !after->empty()) {
    if (!broker::is_delayed_cursor(*after)) {
      throw Refused{400, fmt::format("after={}: give the `next` of the previous page, as in "
                                     "after=@7Rk1D2b1",
                                     printable(*after))};
    }
    query.after = *after;
  }
  return query;
}

// The records that are pending under exactly this id or handle: known at once, however many are
// pending.
asio::awaitable<std::vector<DelayedRecord>> look_up(Call& call, const broker::DelayedQuery& query) {
  auto& context = call.context;
  std::vector<DelayedRecord> records;
  const auto add = [&](DelayedRecord record) {
    if (!call.reader.may_read(context.broker, context.here, record.topic)) return;
    if (record.due < query.from || record.due >= query.until) return;
    if (query.topic && record.topic != query.topic->name) return;
    if (query.partition && record.partition != *query.partition) return;
    if (query.recurring && record.recurrence.has_value() != *query.recurring) return;
    if (records.size() < query.limit) records.push_back(std::move(record));
  };
  if (query.text.starts_with('@')) {
    auto found = co_await broker::find_by_handle(context.broker, context.here, query.text);
    if (!found) throw_failed(found.error());
    if (*found) add(std::move(**found));
    co_return records;
  }
  // The look-up knows neither pattern, so its records might not match.
  if (!query.key.empty() || !query.id.empty()) co_return records;
  std::vector<broker::TopicPtr> topics;
  std::size_t partitions = 0;
  for (const auto& topic : context.here.topics().by_name()) {
    if (query.topic && topic->id != query.topic->id) continue;
    if (query.hidden.contains(topic->id)) continue;
    // Counted in memory, so topics without pending records cost no question.
    if (context.broker.pending_counts().pending_of(topic->id) == 0) continue;
    partitions += static_cast<std::size_t>(topic->partitions);
    topics.push_back(topic);
  }
  if (partitions > looked_up_partitions) co_return records;
  // One topic's partition that is out of service hides nothing of the others.
  std::optional<Error> fenced;
  for (const auto& topic : topics) {
    auto found = co_await broker::find_delayed(context.broker, context.here, topic, query.text,
                                               query.partition);
    if (!found && found.error().code == Errc::fenced) {
      fenced = std::move(found.error());
      continue;
    }
    if (!found) throw_failed(found.error());
    for (auto& record : found->pending) add(std::move(record));
  }
  if (fenced && records.empty()) throw_failed(*fenced);
  co_return records;
}

}  // namespace

asio::awaitable<Reply> list_delayed(Call& call) {
  auto& context = call.context;
  auto query = query_of(call);
  if (!query.topic) query.hidden = co_await call.reader.hidden_topics(context.broker, context.here);
  const auto* values_given = call.parameter("values");
  const bool values = values_given != nullptr && flag_given("values", *values_given);
  std::vector<DelayedRecord> records;
  // Later pages would show the same records again.
  if (!query.text.empty() && !query.after) records = co_await look_up(call, query);
  const auto looked_up = static_cast<std::ptrdiff_t>(records.size());
  const std::size_t limit = std::max(query.limit, records.size());
  const bool searches =
      !query.text.empty() || !query.key.empty() || query.recurring || !query.hidden.empty();
  // A handle names one record, which was found or is none.
  bool ended = query.text.starts_with('@') && broker::is_delayed_cursor(query.text);
  const MonoTime until = context.broker.clock().mono() + search_time;
  for (bool first = true; !ended && (first || records.size() < limit); first = false) {
    auto some = query;
    // A page of no records would not say whether there are more.
    some.limit = std::max<std::size_t>(limit - records.size(), 1);
    auto page = co_await broker::list_delayed(context.broker, context.here, some, !first);
    if (!page) throw_failed(page.error());
    for (auto& record : page->records) {
      // Made anew each time, because `records` moves as it grows.
      const std::span known(records.begin(), records.begin() + looked_up);
      if (std::ranges::find(known, record.handle, &DelayedRecord::handle) == known.end())
        records.push_back(std::move(record));
    }
    ended = page->next.empty();
    query.after = std::move(page->next);
    // Without a search the first page is full, or the last one.
    if (!searches || context.broker.clock().mono() >= until) break;
  }
  const std::string text = co_await text_of_records(call, std::move(records), values);
  const Json next = ended ? Json(nullptr) : Json(*query.after);
  co_return Reply{200, fmt::format("{{\"records\":[{}],\"next\":{}}}\n", text, text_of(next))};
}

asio::awaitable<Reply> get_delayed(Call& call) {
  const NamedCall named(call);
  auto& context = call.context;
  const auto found = co_await broker::find_delayed(context.broker, context.here, named.topic,
                                                   named.name, named.partition);
  if (!found) throw_failed(found.error());
  if (found->pending.empty()) {
    throw Refused{404, found->delivered.empty()
                           ? fmt::format("nothing is pending under '{}' in topic {}",
                                         printable(named.name), named.topic->name)
                           : fmt::format("'{}' of topic {} has been delivered already",
                                         printable(named.name), named.topic->name)};
  }
  const DelayedRecord& first = found->pending.front();
  Json body = json_of(first);
  put_value(body, first);
  body["partitions"] = Json::array();  // It is pending in these: the one shown is due first.
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
  if (from != nullptr) query.from = time_of(call, "from", *from);
  if (to != nullptr) query.until = time_of(call, "to", *to);
  if (!query.topic) query.hidden = co_await call.reader.hidden_topics(context.broker, context.here);
  Json body;
  // The store counts these as they come and go; nothing is read.
  if (by == nullptr && from == nullptr && to == nullptr) {
    const auto& counts = context.broker.pending_counts();
    std::uint64_t hidden = 0;
    broker::YieldBudget budget(context.here, nullptr);
    for (const TopicId& topic : query.hidden.all()) {
      if (budget.spend()) co_await budget.yield();
      hidden += counts.pending_of(topic);
    }
    const std::uint64_t total = query.topic ? counts.pending_of(query.topic->id) : counts.total();
    body["total"] = total - std::min(total, hidden);
    body["by"] = nullptr;
    body["counts"] = Json::array();
    co_return json_reply(body);
  }
  const auto unit = unit_given(by == nullptr ? "day" : *by);
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

asio::awaitable<Reply> trace_in_all_topics(Call& call) {
  const auto* given = call.parameter("id");
  // Only pending records have a handle, so a handle has no past to be found.
  if (given == nullptr || given->empty() || given->starts_with('@'))
    throw Refused{400, "give the id of a record, as in id=order-4711"};
  const std::string id = *given;
  check_id_length(id);
  auto& context = call.context;
  Json body;
  body["events"] = Json::array();
  body["complete"] = true;
  std::size_t partitions = 0;
  // One list, because there may be others after each wait.
  const auto topics = context.here.topics().by_name();
  broker::YieldBudget budget(context.here, nullptr);
  for (const auto& topic : topics) {
    if (context.here.stopping()) throw Refused{503, "the broker is stopping"};
    // Those that are left out are in no bound, and each takes time.
    if (budget.spend(broker::PendingReader::us_to_judge)) co_await budget.yield();
    if (!call.reader.may_read(context.broker, context.here, topic->name)) continue;
    partitions += static_cast<std::size_t>(topic->partitions);
    if (partitions > looked_up_partitions) {
      body["complete"] = false;
      break;
    }
    const auto events =
        co_await broker::trace_delayed(context.broker, context.here, topic, id, std::nullopt);
    if (!events) throw_failed(events.error());
    for (const auto& event : *events) {
      body["events"].push_back(json_of(event));
      body["events"].back()["topic"] = topic->name;
    }
  }
  co_return json_reply(body);
}

asio::awaitable<Reply> trace_delayed(Call& call) {
  const NamedCall named(call);
  auto& context = call.context;
  const auto events = co_await broker::trace_delayed(context.broker, context.here, named.topic,
                                                     named.name, named.partition);
  if (!events) throw_failed(events.error());
  // 404 and not an empty list: most often the id was misspelt.
  if (events->empty()) {
    throw Refused{404, fmt::format("nothing is known about '{}' in topic {}", printable(named.name),
                                   named.topic->name)};
  }
  Json body;
  body["events"] = Json::array();
  for (const auto& event : *events) body["events"].push_back(json_of(event));
  co_return json_reply(body);
}

}  // namespace tarry::admin
