#include "admin/delayed_call.h"

#include <variant>

#include <fmt/core.h>

#include "base/base64.h"
#include "base/log.h"
#include "base/time_text.h"
#include "base/utf8.h"
#include "broker/broker.h"
#include "web/arguments.h"

namespace tarry::admin {
namespace {

constexpr std::size_t max_id_bytes = 249;

// In the words of the headers, but for `left`: how many deliveries are still to come.
Json recurrence_json(const delay::Recurrence& recurrence) {
  Json json;
  json["text"] = recurrence.text();
  if (const auto* every = std::get_if<delay::Recurrence::Every>(&recurrence.rule())) {
    json["every"] = format_duration(every->period);
  } else {
    const auto& in_zone = std::get<delay::Recurrence::InZone>(recurrence.rule());
    json["cron"] = in_zone.cron.text();
    json["tz"] = in_zone.zone->name();
  }
  if (recurrence.end().until) json["until_ms"] = to_ms(*recurrence.end().until);
  if (recurrence.end().count) json["left"] = *recurrence.end().count - recurrence.delivered();
  return json;
}

}  // namespace

broker::TopicPtr topic_of(Call& call, const std::string& name) {
  auto& here = call.context.here;
  auto topic = here.topics().find(name);
  if (!topic) throw Refused{404, fmt::format("there is no topic '{}'", printable(name))};
  if (call.reader.may_read(call.context.broker, here, name)) return topic;
  ++here.counters.refused_total;
  throw Refused{403, call.reader.why_not(name)};
}

std::optional<PartitionIndex> partition_of(Call& call, const storage::Topic& topic) {
  const auto* text = call.parameter("partition");
  if (text == nullptr) return std::nullopt;
  const auto last = static_cast<std::size_t>(topic.partitions - 1);
  return static_cast<PartitionIndex>(number_given("partition", *text, 0, last));
}

void put_filter(broker::DelayedQuery& query, const RecordFilter& filter) {
  query.partition = filter.partition;
  query.from = filter.from;
  query.until = filter.until;
  query.id = filter.id;
  query.key = filter.key;
}

// `in 1h` means the broker's clock, by which records are delivered.
WallTime time_of(const Call& call, const char* name, const std::string& text) {
  return time_given(name, text, call.context.broker.clock().wall());
}

void check_id_length(const std::string& name) {
  // No record can have a longer one, so nothing is searched for it.
  if (name.size() > max_id_bytes) {
    throw Refused{400, fmt::format("the id '{}' has {} bytes; the limit is {}", printable(name, 64),
                                   name.size(), max_id_bytes)};
  }
}

NamedCall::NamedCall(Call& call)
    : topic(topic_of(call, call.part(1))),
      partition(partition_of(call, *topic)),
      name(call.part(2)) {
  check_id_length(name);
}

void throw_failed(const Error& error) {
  switch (error.code) {
    // All three pass by themselves, so the client may try again.
    case Errc::stopped:
    case Errc::no_space:
    case Errc::exhausted:
    case Errc::fenced:  // Until the partition is opened again.
      throw Refused{503, error.message};
    case Errc::invalid:  // The record is there, and does not allow it.
      throw Refused{409, error.message};
    case Errc::too_large:
      throw Refused{400, error.message};
    default:
      throw Refused{500, error.message};
  }
}

Json json_of(const broker::DelayedRecord& record) {
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
  row["recurring"] = record.recurrence.has_value();
  if (record.recurrence) row["recurrence"] = recurrence_json(*record.recurrence);
  // A damaged record is listed all the same: an operator has to find it.
  if (!record.damage.empty()) row["damage"] = record.damage;
  return row;
}

void put_value(Json& to, const broker::DelayedRecord& record) {
  to["timestamp_ms"] = to_ms(record.original);
  // Base64 for every value, so that nobody has to find out which of the two it is.
  to["value"] = record.value ? Json(base64(as_text(*record.value))) : Json(nullptr);
}

}  // namespace tarry::admin
